# Messages that expire, with the mover alive and nobody claiming; what it knew is lost with it; the server dies between the
# mark and the commit; maps that a version without marks has filled.
use strict;
use warnings;
use BatonPages;
use BatonTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('expiry', conf => "pg_baton.mover_naptime = '50ms'\npg_baton.sweep_interval = '300ms'\npg_baton.launcher_naptime = '200ms'\n");
my $s = session($node);

# enqueue(QUEUE, N, LIFE): N messages that expire LIFE from now; the first id
sub enqueue
{
	my ($queue, $n, $life) = @_;
	return $s->query("SELECT min(id) FROM baton.enqueue_batch('$queue', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, $n) i),"
		  . " expires_ats => ARRAY[clock_timestamp() + '$life'::interval])");
}
sub in_queue { return $s->query("SELECT count(*) FROM baton_queue.\"$_[0]\"") }
sub counted { return $s->query("SELECT expired FROM baton.queue_counters WHERE queue = '$_[0]'") }

$s->query("SELECT baton.create_queue('q', backoff => '0 s')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 2000) i))");
enqueue('q', 20, '300 ms');
ok(wait_until(sub { in_queue('q') == 2000 }, 'the mover to sweep'), 'swept by the mover, without a claim');
is(counted('q'), 20, 'counted');

# one after the other on the same pages
$s->query("SELECT baton.enqueue('q', '1', expires_at => clock_timestamp() + i * interval '3 ms') FROM generate_series(1, 100) i");
ok(wait_until(sub { in_queue('q') == 2000 }, 'the mover to sweep'), 'one after the other');
is(counted('q'), 120, 'each of them');

# held beyond its time, handed back; its transaction open beyond its time
$s->query("SELECT baton.create_queue('held', backoff => '0 s')");
enqueue('held', 2, '500 ms');
my $token = $s->query("SELECT token FROM baton.claim('held', lease => '10 min')");
my $lapsing = $s->query("SELECT token FROM baton.claim('held', lease => '1 s')");
my $t = session($node);
$t->query('BEGIN');
$t->query("SELECT baton.enqueue('held', '3', expires_at => clock_timestamp() + '200 ms')");
ok(wait_until(sub { in_queue('held') == 1 }, 'the lease to end'), 'swept at the end of its lease');
is($s->query("SELECT state FROM baton_queue.held"), 'claimed', 'a live claim is left alone');
is($s->query("SELECT outcome FROM baton.hand_back(ARRAY['$token'])"), 'handed_back', 'handed back');
ok(wait_until(sub { in_queue('held') == 0 }, 'the mover to look again'), 'swept when it is let go');
$t->query('COMMIT');
ok(wait_until(sub { counted('held') == 3 }, 'the mover to look again'), 'and when its enqueue commits');

# a claim that has looked at the message and not taken it yet when its time comes
my $gate = session($node);
$gate->query('SELECT FROM pg_advisory_lock(47728, 1)');
for my $verb ("claim('gap', max_items => 5)", "take('gap', 5)")
{
	$s->query("SELECT baton.create_queue('gap', backoff => '0 s', if_not_exists => true)");
	$s->query("SELECT baton.enqueue('gap', '1', expires_at => clock_timestamp() + '1 s')");
	$s->query("SELECT baton.enqueue('gap', '2')");
	$t->query("SET pg_baton.debug_point = 'claim-looked:wait'");
	$t->send("SELECT payload FROM baton.$verb");
	ok(wait_until(sub { $s->query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1 }, 'the claim to stop'), "$verb: looked");
	ok(wait_until(sub { $s->query('SELECT coalesce(min(expires_at) < clock_timestamp(), true) FROM baton_queue.gap') eq 't' }, 'its time'), 'expired meanwhile');
	$gate->query('SELECT FROM pg_advisory_unlock(47728, 1)');
	is($t->answer->rows, '2', "$verb: not handed out");
	$t->query('RESET pg_baton.debug_point');
	$gate->query('SELECT FROM pg_advisory_lock(47728, 1)');
	ok(wait_until(sub { $s->query("SELECT count(*) FROM baton_queue.gap WHERE expires_at IS NOT NULL") == 0 }, 'the mover to sweep'), 'swept');
}
$gate->quit;

# nothing of what the mover knows is needed
my $left = enqueue('q', 300, '1 s');
is($s->query(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'pg_baton mover'}), 1, 'the mover is ended');
ok(wait_until(sub { in_queue('q') == 2000 }, 'the next mover to sweep'), 'the next one finds what was there');

# very many at once, and the rest of the queue goes on
enqueue('q', 10000, '1 s');
my $taken = 0;
ok(wait_until(sub {
			$taken += $s->query("SELECT count(*) FROM baton.take('q', 10)") if $taken < 2000;
			return $taken == 2000 && in_queue('q') == 0;
		}, 'all to be taken or swept'), 'many at once');
is($s->query("SELECT acked || ' ' || expired FROM baton.queue_counters WHERE queue = 'q'"), '2000 10420', 'each has one end');
is_sound($node, $_) for qw(q held);

# ---- the server dies with messages marked and not committed: no worker meddles, since only this session's clock is ahead
for my $policy (qw(drop keep))
{
	$s->query("SELECT baton.create_queue('$policy', expired => '$policy')");
	my $first = enqueue($policy, 10, '1 h');
	$s->query("SET pg_baton.clock_offset = '2h'; SET pg_baton.debug_point = 'expire-settled:panic'");
	my $witness = session($node);
	my $answer = $s->try("CALL baton.maintain('$policy')");
	ok($answer->lost, "$policy: the server dies");
	ok(come_back($node, $witness), "$policy: and comes back");
	$s = session($node);
	my $where = "SELECT (SELECT count(*) FROM baton_queue.$policy) || ' ' || (SELECT count(*) FROM baton.quarantined('$policy'))";
	is($s->query($where), '10 0', "$policy: all are in the queue, and nowhere else");
	is_sound($node, $policy);
	$s->query("SET pg_baton.clock_offset = '2h'");
	is($s->query("SELECT count(*) FROM baton_queue.$policy WHERE state = 'expired'"), 10, "$policy: expired");
	$s->query("CALL baton.maintain('$policy')");
	is($s->query($where), $policy eq 'keep' ? '0 10' : '0 0', "$policy: settled");
	crash_and_start($node);
	$s = session($node);
	is($s->query($where), $policy eq 'keep' ? '0 10' : '0 0', "$policy: for good");
}

# ---- a map as 0.1.0 made it: its slots do not say that their messages expire
$s->query("SELECT baton.create_queue('old')");
$s->query("SELECT baton.enqueue('old', '0')");
enqueue('old', 200, '2 s');
my $map = BatonPages::file_of($node, $s->query("SELECT 'baton_data.q' || value || '_0_map' FROM baton.describe_queue('old') WHERE option = 'id'"));
$s->quit;
$node->stop;
without_checksums($node);
open my $fh, '+<:raw', $map or die "$map: $!";
read $fh, my $bytes, -s $map;
substr($bytes, BatonPages::HEADER + 6, 2) = "\0\0";    # MapMeta.flags
my $marked = 0;
for (my $page = BatonPages::PAGE; $page < length $bytes; $page += BatonPages::PAGE)
{
	for my $slot (0 .. 126)
	{
		my $at = $page + BatonPages::HEADER + 64 * $slot + 7;
		$marked++ if ord(substr($bytes, $at, 1)) & 0x20;
		substr($bytes, $at, 1) = chr(ord(substr($bytes, $at, 1)) & ~0x20);
	}
}
seek $fh, 0, 0;
print $fh $bytes;
close $fh;
is($marked, 200, 'the slots were marked');
$node->start;
$s = session($node);
ok(wait_until(sub { in_queue('old') == 1 }, 'the mover to sweep'), 'the rows are asked instead');
is_sound($node, 'old');
$s->quit;
$node->stop;
done_testing();
