# The server dies right after it has confirmed a verb, with every process stopped that could have written something to
# disk on the side. What the verb promised must be there afterwards; a careless session cannot weaken it.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Without workers: they would settle, sweep and log at times of their own.
my $node = new_node('confirmed', conf => "pg_baton.workers = off\nautovacuum = off\nlog_checkpoints = off\n");
$node->safe_psql(
	'postgres', q{
	SELECT baton.create_queue('q', max_attempts => 2);
	SELECT baton.create_queue('unflushed', claim_flush => false);
	SELECT baton.create_queue('async', durability => 'async');
	CREATE TABLE effect (id bigint)});

# after(CODE): runs CODE in a session that asks for no durability at all, kills the server, starts it; what CODE returned
sub after
{
	my ($verb) = @_;
	my $s = session($node, options => '-c synchronous_commit=off');
	my @writers = split /\n/,
	  $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('walwriter', 'background writer', 'checkpointer')");
	kill 'STOP', @writers;
	my @result = $verb->($s);
	crash_and_start($node);
	return @result;
}

my $sql = sub { my ($q) = @_; return $node->safe_psql('postgres', $q) };
my $state = sub {
	my ($queue, $id) = @_;
	return $sql->("SELECT state, generation, failures FROM baton_queue.$queue WHERE id = $id");
};
my $new = sub { my ($queue) = @_; return $sql->("SELECT id FROM baton.enqueue('$queue', '{}')") };
my $claim = sub {
	my ($s, $queue) = @_;
	return $s->try("SELECT token, id, generation FROM baton.claim('$queue', 'w', lease => '10 min')")->row;
};
my $settle = sub { my ($token) = @_; return $sql->("SELECT outcome FROM baton.settle(ARRAY['$token'], '{ack}')") };

# ---- enqueue, in each of its forms
my ($id) = after(sub { $_[0]->query("SELECT id FROM baton.enqueue('q', '{\"a\": 1}')") });
is($sql->("SELECT payload FROM baton_queue.q WHERE id = $id"), '{"a": 1}', 'enqueue');
my @ids = split /\n/, (after(sub { $_[0]->query("SELECT id FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[300]))") }))[0];
is($sql->("SELECT count(*) FROM baton_queue.q WHERE id BETWEEN $ids[0] AND $ids[-1]"), 300, 'enqueue_batch');
after(sub { $_[0]->query(q{INSERT INTO baton_queue.q (message_id, payload) VALUES ('by insert', '2')}) });
is($sql->("SELECT state FROM baton_queue.q WHERE message_id = 'by insert'"), 'ready', 'INSERT into the view');
my ($bytes) = after(sub { $_[0]->query("SELECT id FROM baton.enqueue_bytes('q', '\\x2a')") });
is($sql->("SELECT payload_bytes FROM baton_queue.q WHERE id = $bytes"), '\x2a', 'enqueue_bytes');
is_sound($node, 'q');
# With wal_level = minimal a relation that its own transaction has made is not logged, but written out at commit.
is($sql->('SHOW wal_level'), 'minimal', 'wal_level is minimal here');
after(
	sub {
		$_[0]->query($_)
		  for 'BEGIN', "SELECT baton.create_queue('made')", "SELECT id FROM baton.enqueue_batch('made', array_fill('1'::jsonb, ARRAY[300]))",
		  "SELECT id FROM baton.enqueue('made', '2')", 'COMMIT';
	});
is($sql->("SELECT count(*) FROM baton_queue.made"), 301, 'create_queue and enqueue in one transaction');
is_sound($node, 'made');
is($sql->("SELECT count(*) FROM baton.take('made', 1000)"), 301, 'and all of it is handed out');
$sql->("SELECT count(*) FROM baton.take('q', 1000)");

# ---- claim
$id = $new->('q');
my ($token, undef, $generation) = after(sub { $claim->($_[0], 'q') });
is($state->('q', $id), "claimed|$generation|0", 'claim: the message is held');
is($settle->($token), 'acked', 'claim: its token settles');

# ---- extend: a crash must not bring back the shorter deadline
$id = $new->('q');
($token) = $claim->(session($node), 'q');
my ($until) = after(sub { $_[0]->query("SELECT baton.extend('$token', '1 h')") });
is($sql->("SELECT lease_until FROM baton_queue.q WHERE id = $id"), $until, 'extend: the later deadline');
is($settle->($token), 'acked', 'extend: the token settles');

# ---- start, extend_batch, ack_batch: what is confirmed of several is there of all
my @several = map { $new->('q'); ($claim->(session($node), 'q'))[0] } 1 .. 3;
my $s = '\'' . join("','", @several) . '\'';
my ($untils) = after(sub { $_[0]->query("SELECT baton.start('$several[0]')"); $_[0]->query("SELECT string_agg(lease_until::text, ' ' ORDER BY lease_until) FROM baton.extend_batch(ARRAY[$s], '2 h')") });
is($sql->("SELECT string_agg(lease_until::text, ' ' ORDER BY lease_until) FROM baton_queue.q WHERE state = 'claimed'"), $untils, 'extend_batch: the later deadlines');
is($sql->("SELECT count(*) FROM baton.in_flight WHERE running IS NOT NULL"), 1, 'start: that it was started');
after(sub { $_[0]->query("SELECT baton.ack_batch(ARRAY[$s])") });
is($sql->("SELECT count(*) FROM baton_queue.q WHERE state = 'claimed'"), 0, 'ack_batch: they are gone');
is(join(' ', map { $settle->($_) } @several), 'already_settled already_settled already_settled', 'ack_batch: the tokens are spent');

# ---- hand_back acts at once and is not flushed: after the crash the message is ready, or held until its lease is over
$id = $new->('q');
($token) = $claim->(session($node), 'q');
after(sub { $_[0]->query("SELECT outcome FROM baton.hand_back(ARRAY['$token'])") });
like($state->('q', $id), qr/^(?:ready|claimed)\|1\|0$/, 'hand_back: never lost, never counted');
$settle->($token);
$sql->("SELECT count(*) FROM baton.take('q')");
is($state->('q', $id), '', 'hand_back: and done in the end');

# ---- ack with an effect, in one transaction
$id = $new->('q');
($token) = $claim->(session($node), 'q');
after(
	sub {
		$_[0]->query('BEGIN');
		$_[0]->query("INSERT INTO effect VALUES ($id)");
		$_[0]->query("SELECT baton.ack('$token')");
		# lowered after the verb, which must not help either
		$_[0]->query('SET LOCAL synchronous_commit = off');
		$_[0]->query('COMMIT');
	});
is($state->('q', $id), '', 'ack: the message is gone');
is($sql->("SELECT count(*) FROM effect WHERE id = $id"), 1, 'ack: the effect is there');
is($settle->($token), 'already_settled', 'ack: the token is spent');

# ---- ack that was not committed
$id = $new->('q');
($token) = $claim->(session($node), 'q');
after(sub { $_[0]->query('BEGIN'); $_[0]->query("SELECT baton.ack('$token')"); $_[0]->query("SELECT txid_current()") });
is($state->('q', $id), 'claimed|1|0', 'ack without commit: the message is held as before');
is($settle->($token), 'acked', 'ack without commit: the token settles');

# ---- take
$id = $new->('q');
after(sub { $_[0]->query("SELECT id FROM baton.take('q')") });
is($state->('q', $id), '', 'take');

# ---- release, at once and later; the last failure quarantines
$id = $new->('q');
($token) = $claim->(session($node), 'q');
after(sub { $_[0]->query("SELECT state FROM baton.release('$token', delay => '0 s', reason => 'busy')") });
is($state->('q', $id), 'ready|1|1', 'release: ready with its failure');
is($settle->($token), 'already_settled', 'release: the token is spent');
is($sql->("SELECT reason FROM baton.evidence('q', $id)"), 'busy', 'release: what it said');
($token) = $claim->(session($node), 'q');
after(sub { $_[0]->query("SELECT state FROM baton.release('$token', delay => '0 s')") });
is($state->('q', $id), '', 'last release: gone from the queue');
is($sql->("SELECT failures FROM baton.quarantined('q') WHERE id = $id"), 2, 'last release: in quarantine');
$id = $new->('q');
($token) = $claim->(session($node), 'q');
my ($due) = after(sub { $_[0]->query("SELECT not_before FROM baton.release('$token', delay => '1 h', failed => false)") });
is($sql->("SELECT state, not_before, failures FROM baton_queue.q WHERE id = $id"), "scheduled|$due|0", 'release with a delay');
is(join('', $claim->(session($node), 'q')), '', 'release with a delay: not handed out');
$sql->("SET pg_baton.clock_offset = '2h'; SELECT count(*) FROM baton.take('q', 10)");

# ---- quarantine, settle, settle_and_claim
$id = $new->('q');
($token) = $claim->(session($node), 'q');
after(sub { $_[0]->query("SELECT baton.quarantine('$token', 'unreadable')") });
is($sql->("SELECT cause, reason FROM baton.quarantined('q') WHERE id = $id"), 'verb|unreadable', 'quarantine');
my @tokens = map { $new->('q'); ($claim->(session($node), 'q'))[0] } 1 .. 3;
after(sub { $_[0]->query("SELECT outcome FROM baton.settle(ARRAY['$tokens[0]','$tokens[1]'], '{ack,release_unfailed}', '{0 s}')") });
is($settle->($_), 'already_settled', 'settle') for @tokens[ 0, 1 ];
my ($row) = after(sub { $_[0]->query("SELECT outcome, token FROM baton.settle_and_claim('q', ARRAY['$tokens[2]'], lease => '10 min')") });
my ($outcome, $next) = $row =~ /^(\w+)\|\n\|(\S+)$/ or diag($row);
is($settle->($tokens[2]), 'already_settled', 'settle_and_claim: the settlement');
is($settle->($next), 'acked', 'settle_and_claim: the claim');
# nothing is settled here, so no commit flushes for the claim
$id = $new->('q');
($row) = after(sub { $_[0]->query("SELECT outcome, token FROM baton.settle_and_claim('q', ARRAY['$tokens[2]'], lease => '10 min')") });
($outcome, $next) = $row =~ /^(\w+)\|\n\|(\S+)$/ or diag($row);
is($outcome, 'already_settled', 'settle_and_claim that settles nothing');
is($settle->($next), 'acked', 'settle_and_claim that settles nothing: the claim');

# ---- fence, pause, create, alter, drop
$id = $new->('q');
($token) = $claim->(session($node), 'q');
my ($ended) = after(sub { $_[0]->query("SELECT baton.fence('q')") });
is($ended, 1, 'fence ended the claim');
is($settle->($token), 'stale_epoch', 'fence: the token stays dead');
is($state->('q', $id), 'ready|1|0', 'fence: the message is ready');
is_sound($node, 'q');

# ---- revoke, lease_grace, start of a lease that was short until then, reschedule
($token, $id) = $claim->(session($node), 'q');
after(sub { $_[0]->query("SELECT baton.revoke('q', $id, reason => 'wedged')") });
is($settle->($token), 'stale_epoch', 'revoke: the token stays dead');
is($state->('q', $id), 'ready|2|0', 'revoke: the message is ready');
is($sql->("SELECT reason FROM baton.audit WHERE action = 'revoke'"), 'wedged', 'revoke: with the row in the audit');
($token) = $claim->(session($node), 'q');
($until) = after(sub { $_[0]->query("SELECT extended FROM baton.lease_grace('q', '1 h')"); $_[0]->query("SELECT lease_until FROM baton_queue.q WHERE id = $id") });
is($sql->("SELECT lease_until FROM baton_queue.q WHERE id = $id"), $until, 'lease_grace: the later deadline');
is($sql->("SELECT affected FROM baton.audit WHERE action = 'lease_grace'"), 1, 'lease_grace: with the row in the audit');
($until) = after(sub { $_[0]->query($_) for 'BEGIN', "SELECT extended FROM baton.lease_grace('q', '1 h')"; $_[0]->query("SELECT lease_until FROM baton_queue.q WHERE id = $id") });
is($sql->("SELECT lease_until FROM baton_queue.q WHERE id = $id"), $until, 'lease_grace without commit: the later deadline all the same');
is($settle->($token), 'acked', 'lease_grace: the token settles');
$sql->("SELECT baton.alter_queue('q', start_within => '1 min')");
$id = $new->('q');
($token) = $claim->(session($node), 'q');
($until) = after(sub { $_[0]->query("SELECT baton.start('$token')") });
is($sql->("SELECT lease_until FROM baton_queue.q WHERE id = $id"), $until, 'start with start_within: the later deadline');
is($settle->($token), 'acked', 'start with start_within: the token settles');
$sql->("SELECT baton.alter_queue('q', start_within => '0')");
$id = $new->('q');
($due) = after(sub { $_[0]->query("SELECT due FROM baton.reschedule('q', $id, '3 h')") });
is($sql->("SELECT state, not_before FROM baton_queue.q WHERE id = $id"), "scheduled|$due", 'reschedule');
after(sub { $_[0]->query("SELECT state FROM baton.reschedule('q', $id, '0 s')") });
is($state->('q', $id), 'ready|0|0', 'reschedule: now');
$sql->("SELECT count(*) FROM baton.take('q', 10)");

after(sub { $_[0]->query("SELECT baton.pause('q')") });
is($sql->("SELECT state FROM baton.queues WHERE name = 'q'"), 'paused', 'pause');
after(sub { $_[0]->query("SELECT baton.resume('q')") });
is($sql->("SELECT state FROM baton.queues WHERE name = 'q'"), 'active', 'resume');
after(sub { $_[0]->query("SELECT baton.create_queue('another', lease => '5 min')") });
is($sql->("SELECT id FROM baton.enqueue('another', '1')"), 1, 'create_queue');
after(sub { $_[0]->query("SELECT baton.alter_queue('another', lease => '7 min')") });
is($sql->("SELECT lease FROM baton.queues WHERE name = 'another'"), '00:07:00', 'alter_queue');
after(sub { $_[0]->query("SELECT baton.drop_queue('another', discard => true)") });
is($sql->("SELECT count(*) FROM baton.queues WHERE name = 'another'"), 0, 'drop_queue');
$sql->('UPDATE baton_internal.queue SET home_system = 1');
after(sub { $_[0]->query('SELECT baton.adopt()') });
is($sql->("SELECT string_agg(DISTINCT state, ' ') FROM baton.queues"), 'active', 'adopt');

# ---- claims that may be forgotten: an early redelivery, and the fence holds although the number is used again
$id = $new->('unflushed');
my ($first, undef, $g1) = after(sub { $claim->($_[0], 'unflushed') });
is($state->('unflushed', $id), 'ready|0|0', 'claim without flush: forgotten');
is($settle->($first), 'stale_generation', 'claim without flush: the token of the forgotten claim settles nothing');
my ($second, undef, $g2) = $claim->(session($node), 'unflushed');
is($g2, $g1, 'claim without flush: the number is used again');
is($settle->($first), 'stale_generation', 'claim without flush: the forgotten token does not match its successor');
is($state->('unflushed', $id), "claimed|$g2|0", 'claim without flush: and changes nothing');
is($settle->($second), 'acked', 'claim without flush: the successor settles');

# ---- durability async: enqueue and ack may be lost, both as a whole
my ($gone) = after(sub { $_[0]->query("SELECT id FROM baton.enqueue('async', '{}')") });
is($state->('async', $gone), '', 'async: an enqueue that was not flushed never was');
$id = $new->('async');
$sql->('CHECKPOINT');
($token) = $claim->(session($node), 'async');
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
after(sub { $_[0]->query("SELECT baton.ack('$token')") });
is($state->('async', $id), 'claimed|1|0', 'async: an ack that was not flushed never was');
is($settle->($token), 'acked', 'async: its token settles');
is_sound($node, $_) for qw(unflushed async);
done_testing();
