# One snapshot is held while the queue works. Nothing that it keeps from being vacuumed may cost the queue anything: no table
# but the segments gathers dead rows, and a claim touches as many buffers after thousands of settled messages as before.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'pinned',
	conf => q{
autovacuum = off
synchronous_commit = off
pg_baton.rotate_grace = '1h'
pg_baton.mover_naptime = 50ms
pg_baton.retention_naptime = 100ms
pg_baton.sweep_interval = 500ms
});
my $s = session($node, name => 'main');
$s->query("SELECT baton.create_queue('q', segment_bytes => 262144, durability => 'async', backoff => '0 s', max_attempts => 1000)");
$s->query("SELECT baton.create_queue('later', segment_bytes => 262144, durability => 'async', backoff => '0 s', max_attempts => 1000)");
my $pin = session($node, name => 'pin');
$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$pin->query('SELECT count(*) FROM baton.queues');

# buffers(SQL): how many buffers a statement touches when everything is cached
sub buffers
{
	my ($sql) = @_;
	my $plan = $s->query("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT JSON) $sql");
	my ($hit) = $plan =~ /"Shared Hit Blocks": (\d+)/;
	my ($read) = $plan =~ /"Shared Read Blocks": (\d+)/;
	return $hit + $read;
}

# one message, and what a claim of it costs; least of three, since a claim now and then does a sweep that was due
sub cost_of_claim
{
	my ($queue) = @_;
	my @cost;
	for (1 .. 5)
	{
		$s->query("SELECT count(*) FROM baton.enqueue('$queue', '1')");
		push @cost, buffers("SELECT * FROM baton.claim('$queue', lease => '1 min')");
		$s->query("SELECT baton.fence('$queue')");
		$s->query("SELECT count(*) FROM baton.take('$queue', 10)");
	}
	@cost = sort { $a <=> $b } @cost;
	return $cost[1];
}

sub cost_of_nothing
{
	my ($queue) = @_;
	my @cost = sort { $a <=> $b } map { buffers("SELECT * FROM baton.claim('$queue')") } 1 .. 5;
	return $cost[1];
}

my $scripts = $PostgreSQL::Test::Utils::tmp_check;
sub load
{
	my ($name, $sql, $clients, $transactions) = @_;
	my $file = "$scripts/$name.sql";
	unlink $file;
	append_to_file($file, $sql);
	my ($status, undef, $err) = run_tool($node, 'pgbench', '-n', '-c', $clients, '-t', $transactions, '-f', $file, 'postgres');
	is($status, 0, "load: $name") or diag($err);
	return;
}

# ---- claim and ack, one at a time
cost_of_claim('q');
my $before = cost_of_claim('q');
my $nothing = cost_of_nothing('q');
load('work', q{
SELECT count(*) FROM baton.enqueue_batch('q', '{1,2,3}');
SELECT baton.ack(token) FROM baton.claim('q', 'w', 1);
SELECT count(*) FROM baton.take('q', 1);
SELECT state FROM baton.claim('q', 'w', 1) c, baton.release(c.token, '0 s', failed => false) r;
SELECT count(*) FROM baton.take('q', 1);
}, 2, 3000);
1 while $s->query("SELECT count(*) FROM baton.take('q', 1000)") > 0;
my $after = cost_of_claim('q');
cmp_ok($after, '<=', $before + 4, "buffers of a claim after 18000 settled messages: $after, before: $before");
my $nothing_after = cost_of_nothing('q');
cmp_ok($nothing_after, '<=', $nothing + 4, "buffers of a claim that finds nothing: $nothing_after, before: $nothing");
is($s->query("SELECT count(*) FROM baton_queue.q"), 0, 'the queue is empty');
cmp_ok($s->query("SELECT sum(settled) FROM baton.segments WHERE queue = 'q'"), '>', 17000, 'and the settled messages are in their segments still');

# ---- work for later: what is due is found without walking over what was due before
$s->query("SELECT count(*) FROM baton.enqueue_batch('later', array_fill('1'::jsonb, ARRAY[300]), delays => '{1 h}')");
cost_of_claim('later');
$before = cost_of_claim('later');
$nothing = cost_of_nothing('later');
load('later', q{
SELECT count(*) FROM baton.enqueue_batch('later', '{1,2,3}', delays => '{10 ms, 20 ms, 0 s}');
SELECT state FROM baton.claim('later', 'w', 2) c, baton.release(c.token, '5 ms', failed => false) r;
SELECT count(*) FROM baton.take('later', 3);
}, 2, 3000);
wait_until(sub { $s->query("SELECT count(*) FROM baton.take('later', 1000)"); $s->query("SELECT count(*) FROM baton_queue.later WHERE state <> 'scheduled'") == 0 }, 'all that is due');
is($s->query('SELECT count(*) FROM baton_queue.later'), 300, 'what is for later is there');
$after = cost_of_claim('later');
cmp_ok($after, '<=', $before + 6, "buffers of a claim after 18000 delayed messages: $after, before: $before");
$nothing_after = cost_of_nothing('later');
cmp_ok($nothing_after, '<=', $nothing + 6, "buffers of a look for what is due: $nothing_after, before: $nothing");

# ---- dead rows
is($pin->query('SELECT count(*) FROM baton.queues'), 2, 'the snapshot is held still');
is($s->query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pin' AND backend_xmin IS NOT NULL"), 1, 'and pins the horizon');
$s->query('SELECT pg_stat_force_next_flush()');
my $dead = q{SELECT schemaname || '.' || relname, n_dead_tup FROM pg_stat_all_tables
	WHERE n_dead_tup > 0 AND NOT (schemaname = 'baton_data' AND relname ~ '^q\d+_\d+$')};
ok(wait_until(sub { $s->query("SELECT sum(n_dead_tup) FROM pg_stat_all_tables WHERE schemaname = 'baton_data' AND relname ~ '^q\\d+_\\d+\$'") > 30000 }, 'the counts'),
	'tens of thousands of dead rows in the segments');
my %dead = map { split /\|/ } split /\n/, $s->query($dead);
# fence(), which this test uses to end its claims, changes the definition of the queue: once a call
my $fences = delete($dead{'baton_internal.queue'}) // 0;
cmp_ok($fences, '<=', 60, "dead definitions: $fences");
my @too_many = map { "$_: $dead{$_}" } grep { $dead{$_} > 100 } sort keys %dead;
is("@too_many", '', 'no other table, catalogs among them, has more than a hundred');
is_sound($node, $_) for qw(q later);
done_testing();
