# Retained messages through crashes at each step, under a pinned horizon, with the worker at work, on a standby, and in a
# copy: retained or still claimed, never both and never neither.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('retained', streaming => 1, fsync => 1, conf => "pg_baton.workers = off\npg_baton.rotate_min_interval = 0");
my $s = session($node);
my $kept = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM baton.retained('q')";
my $state = "SELECT string_agg(id || ' ' || state, ', ' ORDER BY id) FROM baton_queue.q";

# anew(SESSION): a session after a crash; SESSION is one of before, not the victim
sub anew
{
	ok(come_back($node, $_[0]), 'the server is back');
	return session($node);
}

# ---- crashes in the middle of an acknowledgement, and right after it
$s->query("SELECT baton.create_queue('q', retention => '13 h', replay_window => '12 h', lease => '10 min')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[8]))");
my @token = split /\n/, $s->query("SELECT token FROM baton.claim('q', 'w', 4)");
for my $point ('retain-rows', 'settle-rows')
{
	$s->query("SET pg_baton.debug_point = '$point:panic'");
	my $witness = session($node);
	ok($s->try("SELECT baton.ack('$token[0]')")->lost, "a crash at $point");
	$s = anew($witness);
	is($s->query($kept), '', 'nothing is retained');
	is($s->query($state), '1 claimed, 2 claimed, 3 claimed, 4 claimed, 5 ready, 6 ready, 7 ready, 8 ready', 'it is claimed as before');
}
is($s->query("SELECT baton.ack('$token[0]')"), 'acked', 'its token works');
crash_and_start($node);
$s = session($node);
is($s->query($kept), '1', 'a crash after the commit: it is retained');
is($s->query("SELECT count(*) FROM baton_queue.q WHERE id = 1"), 0, 'and work no more');
$s->query('BEGIN');
$s->query("SELECT baton.ack_batch(ARRAY['$token[1]', '$token[2]'])");
$node->safe_psql('postgres', 'CHECKPOINT');    # all of it is on disk
crash_and_start($node);
$s = session($node);
is($s->query($kept), '1', 'a crash before the commit, with everything on disk: not retained');
is($s->query("SELECT baton.ack_batch(ARRAY['$token[1]', '$token[2]'])"), 2, 'and acknowledged then');
is($s->query($kept), '1 2 3', 'retained once');
is_sound($node, 'q');

# ---- a pinned horizon
my $old = session($node, name => 'pinner');
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$old->query('SELECT 1');
my $later = "SET pg_baton.clock_offset = '20h'";
my $kept_by = "SELECT kept_by FROM baton.segments WHERE state = 'retained'";
$s->query($later);
my $reclaim = 'SELECT baton_internal.reclaim_retained()';
is($s->query($reclaim), 0, 'past its time: it is noted');
is($s->query($reclaim), 0, 'a snapshot from before that is waited for');
is($s->query($kept_by), 'horizon: session pid ' . $old->pid, 'which is named');
is($old->query($kept), '1 2 3', 'it finds what it may expect');
$old->query('COMMIT');

# ---- crashes in the middle of a truncation
for my $point ('retained_locked', 'retained_truncated')
{
	$s->query("$later; SET pg_baton.debug_point = '$point:panic'");
	my $witness = session($node);
	ok($s->try($reclaim)->lost, "a crash at $point");
	$s = anew($witness);
	is($s->query($kept), '1 2 3', 'all is there');
}

# ---- a standby
my $standby = standby_of($node, 'reader');
is($standby->safe_psql('postgres', $kept), '1 2 3', 'a standby shows what is retained');
is($standby->safe_psql('postgres', "SELECT split_part(kept_by, ' until', 1) FROM baton.segments WHERE state = 'retained'"), 'replay window of q', 'and what keeps it');
my $r = session($standby);
refused_with($r, "SELECT * FROM baton.replay('q')", '25006', 'it replays nothing');
refused_with($r, "SELECT baton.hold('q', 'x')", '25006', 'and holds nothing');
$r->quit;
$standby->stop;

# ---- a copy, of a queue on hold
$s->query("SELECT baton.hold('q', 'case 4711')");
my $folder = $PostgreSQL::Test::Utils::tmp_check;
my ($status, undef, $err) = run_tool($node, 'pg_dump', '-Fc', '-f', "$folder/copy.dump", 'postgres');
is($status, 0, 'pg_dump') or diag($err);
$node->safe_psql('postgres', 'CREATE DATABASE copy');
($status, undef, $err) = run_tool($node, 'pg_restore', '-d', 'copy', "$folder/copy.dump");
is($status, 0, 'pg_restore') or diag($err);
my $c = session($node, database => 'copy');
is($c->query($kept), '1 2 3', 'a copy has what is retained');
is($c->query("SELECT value FROM baton.describe_queue('q') WHERE option = 'held'"), 'case 4711', 'and the hold');
$c->query($later);
$c->query($reclaim) for 1 .. 3;
is($c->query($kept), '1 2 3', 'which holds');
is($c->query($kept_by), 'hold of q', 'as it says');
is($c->query("SELECT messages FROM baton.replay('q', ids => '{2}', dry_run => false)"), 1, 'replay works there');
is($c->query("SELECT count(*) FROM baton.take('q', 100)"), 0, 'for whoever adopts it');
$c->query('SELECT baton.adopt()');
cmp_ok($c->query("SELECT max(id) FROM baton.take('q', 100)"), '>', 8, 'as a message with a higher id');
like(refused_with($c, 'SELECT * FROM baton.uninstall(dry_run => false, discard => true)', '55000', 'a hold keeps pg_baton in the database')->message,
	qr/queue "q" is on hold/, 'as it says');
is($c->query("SELECT baton.unhold('q')"), 't', 'unhold');
$c->quit;

# ---- the worker does it by itself
$s->query("SELECT baton.unhold('q')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', (SELECT array_agg(to_jsonb(repeat(md5(n::text), 10))) FROM generate_series(1, 4000) n))");
is($s->query("SELECT count(*) FROM baton.take('q', 10000)"), 4000 + 4, 'much is retained');    # one is claimed
my ($table) = $s->query("SELECT 'baton_data.retained_' || segment FROM baton.segments WHERE state = 'retained'") =~ /(\S+)/;
$node->append_conf('postgresql.conf', "pg_baton.workers = on\npg_baton.retention_naptime = 100\npg_baton.clock_offset = 0");
$s->quit;
$node->restart;
$s = session($node);
my $steps = "SELECT count(*) FROM baton_internal.worker_status() w JOIN pg_database d ON d.oid = w.database AND d.datname = current_database() WHERE w.step LIKE 'retained%' AND w.last_success IS NOT NULL AND w.last_error IS NULL";
ok(wait_until(sub { $s->query($steps) == 2 }, 'the steps'), 'the worker takes both steps');
ok( wait_until(
		sub {
			my $plan = $s->query("SET enable_seqscan = off; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT count(*) FROM $table WHERE queue_id = 1 AND id = 2000");
			return $plan =~ /Heap Blocks: lossy=(\d+)/ && $1 <= 32;
		},
		'the index'),
	'a message is found by its id in a few pages of some hundred');
cmp_ok($s->query("SELECT pg_relation_size('$table') / 8192"), '>', 200, 'of which there are many');
$node->append_conf('postgresql.conf', "pg_baton.clock_offset = '20h'");
$node->reload;
ok(wait_until(sub { $s->query($kept) eq '' }, 'the truncation'), 'past its time everything goes');
is($s->query("SELECT pg_relation_size('$table')"), 0, 'and its space is given back');
is_sound($node, 'q');
done_testing();
