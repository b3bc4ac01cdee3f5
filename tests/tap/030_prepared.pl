# Prepared transactions: enqueue and settle are prepared, and ended by another session, also after a crash; a claim refuses.
# COMMIT PREPARED calls nobody, so the message has to be found by those who look: the mover, and without workers the claimers.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# No sweep finds by chance what nobody has said, until the test comes to what only a sweep can find.
my $node = new_node('prepared', conf => "max_prepared_transactions = 20\npg_baton.sweep_interval = '1h'\npg_baton.settle_timeout = 200ms\nautovacuum = off\n");
my $s = session($node);
my $gid = 0;

sub claim_soon
{
	my ($queue, $more) = @_;
	my $got = '';
	wait_until(sub { ($got = $s->query("SELECT id FROM baton.claim('$queue', lease => '1 min', max_items => 10)")) ne '' }, "something to claim in $queue");
	return $got;
}
sub state { my ($queue, $id) = @_; return $s->query("SELECT state FROM baton_queue.$queue WHERE id = $id") }
sub outcome { my ($token) = @_; return $s->query("SELECT outcome FROM baton.settle(ARRAY['$token'], '{ack}')") }

# prepare(SQL, ...): in a session that is gone afterwards; the rows of the first statement
sub prepare
{
	my ($name, @sql) = @_;
	my $p = session($node);
	$p->query('BEGIN');
	my $rows = $p->query(shift @sql);
	$p->query($_) for @sql;
	$p->query("PREPARE TRANSACTION '$name'");
	$p->quit;
	return $rows;
}

$s->query("SELECT baton.create_queue('q', max_attempts => 100, backoff => '0 s')");

# ---- enqueue
my $id = prepare('e1', "SELECT id FROM baton.enqueue('q', '1')");
is($s->query("SELECT count(*) FROM baton.claim('q')"), 0, 'a prepared enqueue is not handed out');
is($s->query("SELECT baton.why_empty('q')"), 'empty', 'and why_empty does not count it');
is_sound($node, 'q', 'check with a prepared enqueue');
my $w = session($node, name => 'waiter', options => '-c pg_baton.wait_recheck=10min');
$w->send("CALL baton.wait('q', '3 min')");
wait_until(sub { $s->query("SELECT waiting FROM baton.queue_stats WHERE queue = 'q'") == 1 }, 'the waiter');
$s->query("COMMIT PREPARED 'e1'");
is($w->answer->rows, 'ready', 'committed by another session: a waiter is woken');
is(claim_soon('q'), $id, 'and the message handed out');
my $gone = prepare('e2', "SELECT id FROM baton.enqueue('q', '2')");
$s->query("ROLLBACK PREPARED 'e2'");
$id = $s->query("SELECT id FROM baton.enqueue('q', '3')");
is(claim_soon('q'), $id, 'rolled back by another session: only what came after it is handed out');
is_sound($node, 'q', 'check after both');
# one transaction with several messages, some for later, into the middle of others
my @ids = split /\n/, prepare('e3', "SELECT id FROM baton.enqueue_batch('q', '{1,2,3}', delays => '{0 s,0 s,1 h}')");
$s->query("SELECT id FROM baton.enqueue('q', '4')");
$s->query("SELECT count(*) FROM baton.take('q', 10)");
$s->query("COMMIT PREPARED 'e3'");
my %got;
wait_until(sub { $got{$_}++ for split /\n/, $s->query("SELECT id FROM baton.take('q', 10)"); keys %got == 2 }, 'two messages');
is(join(' ', sort { $a <=> $b } keys %got), "@ids[0,1]", 'of a prepared batch those that are due');
is(state('q', $ids[2]), 'scheduled', 'and the other one later');

# ---- settle
sub claimed
{
	my ($lease) = @_;
	my $id = $s->query("SELECT id FROM baton.enqueue('q', '5')");
	my ($token, $got);
	wait_until(sub { ($got, $token) = split /\|/, $s->query("SELECT id, token FROM baton.claim('q', lease => '$lease')"); defined $token && $got == $id }, 'a claim');
	return ($token, $id);
}
$s->query("SET pg_baton.clock_offset = 0");
my ($token, $mine) = claimed('10 min');
prepare('a1', "SELECT baton.ack('$token')");
is(state('q', $mine), 'settling', 'a prepared ack: the message is being settled');
is(outcome($token), 'settling', 'a second settlement does not wait in an array form');
refused_with($s, "SELECT baton.ack('$token')", '55P03', 'and waits no longer than the setting in a single form');
$s->query("SET pg_baton.clock_offset = '1 h'");
is($s->query("SELECT count(*) FROM baton.claim('q', max_items => 10) WHERE id = $mine"), 0, 'nobody gets it, not even when its lease is over');
$s->query('RESET pg_baton.clock_offset');
is_sound($node, 'q', 'check with a prepared ack');
$s->query("COMMIT PREPARED 'a1'");
is(state('q', $mine), '', 'committed: it is gone');
is(outcome($token), 'already_settled', 'committed: its token is spent');

($token, $mine) = claimed('10 min');
prepare('a2', "SELECT baton.ack('$token')");
$s->query("ROLLBACK PREPARED 'a2'");
is(state('q', $mine), 'claimed', 'rolled back: it is held as before');
is(outcome($token), 'acked', 'rolled back: its token settles');

($token, $mine) = claimed('1 s');
prepare('a3', "SELECT baton.ack('$token')");
$s->query("SET pg_baton.clock_offset = '1 h'");
$s->query("ROLLBACK PREPARED 'a3'");
wait_until(sub { grep { $_ == $mine } split /\n/, $s->query("SELECT id FROM baton.take('q', 10)") }, 'the message');
is(state('q', $mine), '', 'rolled back after its lease: it is handed out again');
$s->query('RESET pg_baton.clock_offset');

($token, $mine) = claimed('10 min');
prepare('r1', "SELECT state FROM baton.release('$token', delay => '0 s', reason => 'later')");
is(state('q', $mine), 'settling', 'a prepared release');
$s->query("COMMIT PREPARED 'r1'");
is(claim_soon('q'), $mine, 'committed: it is handed out again');
is($s->query("SELECT failures FROM baton_queue.q WHERE id = $mine"), 1, 'with its failure');
is($s->query("SELECT reason FROM baton.evidence('q', $mine)"), 'later', 'and what it said');
is_sound($node, 'q', 'check after settlements');

# ---- claim and take refuse, and the message comes back
$id = $s->query("SELECT id FROM baton.enqueue('q', '6')");
for my $verb ("SELECT id FROM baton.claim('q')", "SELECT id FROM baton.take('q')")
{
	my $p = session($node);
	my $got;
	wait_until(sub { $p->query('BEGIN'); $got = $p->query($verb); $p->query('ROLLBACK') if $got eq ''; $got ne '' }, $verb);
	is($got, $id, $verb);
	refused_with($p, "PREPARE TRANSACTION 'c'", '0A000', 'PREPARE TRANSACTION after it is refused');
}
is(claim_soon('q'), $id, 'and the message comes back');
# a settlement after the claim of another transaction may be prepared together with an enqueue, in a savepoint too
($token, $mine) = claimed('10 min');
$id = prepare('m', "SELECT id FROM baton.enqueue('q', '7')", 'SAVEPOINT s', "SELECT baton.ack('$token')", 'RELEASE s', 'SAVEPOINT t',
	"SELECT id FROM baton.enqueue('q', '8')", 'ROLLBACK TO t');
$s->query("COMMIT PREPARED 'm'");
is(claim_soon('q'), $id, 'enqueue and ack in one prepared transaction: the new message');
is(outcome($token), 'already_settled', 'and the old one is gone');

# ---- a segment with something prepared in it is not reclaimed
$s->query("SELECT baton.create_queue('ring', segments => 2, segment_bytes => 65536)");
$id = prepare('seg', "SELECT id FROM baton.enqueue('ring', '1')");
$node->append_conf('postgresql.conf', "pg_baton.rotate_grace = 0\npg_baton.rotate_min_interval = 0");
$node->reload;
wait_until(sub { $s->query('SHOW pg_baton.rotate_grace') eq '0' }, 'the setting');
for (1 .. 3)
{
	$s->query("SELECT count(*) FROM baton.enqueue_batch('ring', array_fill(to_jsonb(repeat('x', 700)), ARRAY[500]))");
	1 while $s->query("SELECT count(*) FROM baton.take('ring', 1000)") > 0;
}
$s->query("SET pg_baton.clock_offset = '1 h'");
$s->query("SELECT baton_internal.rotate('ring')");
$s->query('RESET pg_baton.clock_offset');
$s->query("COMMIT PREPARED 'seg'");
is(claim_soon('ring'), $id, 'a full ring waits for a prepared enqueue');

# ---- more than the list of prepared ranges holds
$node->append_conf('postgresql.conf', "pg_baton.sweep_interval = 500ms");
$node->reload;
$s->query("SELECT baton.create_queue('many', backoff => '0 s', max_attempts => 100)");
$s->query("SELECT count(*) FROM baton.enqueue_batch('many', array_fill('1'::jsonb, ARRAY[700]))");
my @tokens = split /\n/, $s->query("SELECT token FROM baton.claim('many', 'w', 700, '10 min')");
prepare('many', "SELECT count(*) FROM baton.settle(ARRAY['" . join("','", @tokens) . "'], '{release_unfailed}', '{0 s}')");
$s->query("COMMIT PREPARED 'many'");
my $n = 0;
wait_until(sub { $n += $s->query("SELECT count(*) FROM baton.take('many', 1000)"); $n >= 700 }, '700 messages');
is($n, 700, 'more ranges than shared memory has room for');

# ---- a crash in between
my %t;
@t{qw(ack_c ack_r rel_c)} = map { [ claimed('20 min') ] } 1 .. 3;
my $enq_c = prepare('enq_c', "SELECT id FROM baton.enqueue('q', '9')");
my $enq_r = prepare('enq_r', "SELECT id FROM baton.enqueue('q', '10')");
prepare($_, "SELECT baton.ack('$t{$_}[0]')") for qw(ack_c ack_r);
prepare('rel_c', "SELECT state FROM baton.release('$t{rel_c}[0]', delay => '0 s')");
crash_and_start($node);
$s = session($node);
is($s->query('SELECT count(*) FROM pg_prepared_xacts'), 5, 'five prepared transactions are recovered');
is($s->query("SELECT count(*) FROM baton.claim('q', max_items => 100)"), 0, 'recovered: nothing of theirs is handed out');
is(outcome($t{$_}[0]), 'settling', "recovered: $_ is in progress") for qw(ack_c ack_r rel_c);
is_sound($node, 'q', 'check with recovered transactions');
$s->query("COMMIT PREPARED '$_'") for qw(enq_c ack_c rel_c);
$s->query("ROLLBACK PREPARED '$_'") for qw(enq_r ack_r);
%got = ();
wait_until(sub { $got{$_}++ for split /\n/, $s->query("SELECT id FROM baton.claim('q', max_items => 100, lease => '20 min')"); keys %got >= 2 }, 'two messages');
is(join(' ', sort { $a <=> $b } keys %got), join(' ', sort { $a <=> $b } $enq_c, $t{rel_c}[1]), 'recovered: what was enqueued and released is handed out');
is(outcome($t{ack_c}[0]), 'already_settled', 'recovered: a committed ack');
is(outcome($t{ack_r}[0]), 'acked', 'recovered: a rolled back ack, whose token settles');
is_sound($node, 'q');

# ---- without workers
$node->append_conf('postgresql.conf', 'pg_baton.workers = off');
$node->restart;
$s = session($node);
$s->query("SELECT count(*) FROM baton.take('q', 100)");
$id = prepare('alone', "SELECT id FROM baton.enqueue('q', '11')");
is($s->query("SELECT count(*) FROM baton.claim('q')"), 0, 'without workers: not handed out');
$s->query("COMMIT PREPARED 'alone'");
is(claim_soon('q'), $id, 'without workers: a claimer finds it');
is_sound($node, $_) for qw(q ring many);
done_testing();
