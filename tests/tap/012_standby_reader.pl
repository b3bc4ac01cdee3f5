# Rotation and readers on a standby: TRUNCATE is replayed with its lock, unconditionally. Who only looks at views must not
# hold it up; who reads a segment can; and a snapshot older than the truncation gets 40001, not a silent hole.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node(
	'primary', streaming => 1,
	conf => "pg_baton.workers = off\npg_baton.rotate_min_interval = 0\npg_baton.rotate_grace = 0\nautovacuum = off\n");
my $standby = standby_of($primary, 'standby', conf => "hot_standby_feedback = off\nmax_standby_streaming_delay = -1\n");
my $p = session($primary);
$p->query("SELECT baton.create_queue('q', segments => 3, segment_bytes => 65536)");

# fill and work off a segment, and go on to the next
sub more
{
	$p->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill(to_jsonb(repeat('x', 700)), ARRAY[500]))");
	return;
}
sub work { 1 while $p->query("SELECT count(*) FROM baton.take('q', 1000)") > 0; return; }

sub rotate
{
	$p->query("SET pg_baton.clock_offset = '1h'");
	my $n = $p->query("SELECT baton_internal.rotate('q')");
	$p->query('RESET pg_baton.clock_offset');
	return $n;
}

# ---- views do not hold up replay, not even in a transaction that stays open
more();
catch_up($primary, $standby);
my $viewer = session($standby);
$viewer->query('BEGIN');
for my $view (qw(queues queue_stats queue_counters in_flight segments health))
{
	cmp_ok($viewer->query("SELECT count(*) FROM baton.$view"), '>=', 0, "baton.$view answers");
	is( $viewer->query(
			q{SELECT string_agg(DISTINCT c.relname, ' ') FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
			  WHERE l.pid = pg_backend_pid() AND c.relname ~ '^q\d+_\d+(_map)?$'}),
		'', "baton.$view holds no segment afterwards");
}
is($viewer->query("SELECT * FROM baton.check('q')"), '', 'check');
is($viewer->query("SELECT obstacle FROM baton.explain_message('q', 1)"), 'none', 'explain_message');
is($viewer->query(q{SELECT string_agg(DISTINCT c.relname, ' ') FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
	WHERE l.pid = pg_backend_pid() AND c.relname ~ '^q\d+_\d+(_map)?$'}), '', 'nor do they');
# a snapshot of its own, from before the truncation, and nothing looked at yet
my $old = session($standby);
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($old->query('SELECT count(*) FROM pg_database WHERE datname = current_database()'), 1, 'a snapshot on the standby');
work();
cmp_ok(rotate(), '>=', 1, 'the segment is reclaimed on the primary');
catch_up($primary, $standby);
pass('and on the standby, beside an open transaction that has looked at every view');
is($viewer->query("SELECT settled FROM baton.segments WHERE queue = 'q' AND segment = 0"), 0, 'as the views say');

# ---- the old snapshot
$old->query('SAVEPOINT s');
for (
	[ SELECT => 'SELECT count(*) FROM baton_data.q1_0' ],
	[ COPY => 'COPY baton_data.q1_0 TO STDOUT' ],
	[ LOCK => 'LOCK TABLE baton_data.q1_0 IN ACCESS SHARE MODE' ],
	[ 'the view' => 'SELECT count(*) FROM baton_queue.q' ])
{
	refused_with($old, $_->[1], '40001', "a snapshot from before the truncation, on the standby: $_->[0]");
	$old->query('ROLLBACK TO s');
}
$old->query('ROLLBACK');
is($old->query('SELECT count(*) FROM baton_data.q1_0'), 0, 'a new one reads');
$viewer->query('COMMIT');

# ---- who reads a segment holds up replay, for as long as PostgreSQL is told to let him
more();
catch_up($primary, $standby);
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 300ms');
$standby->reload;
my $reader = session($standby);
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($reader->query('SELECT count(*) FROM baton_queue.q'), 500, 'a reader of messages on the standby');
work();
cmp_ok(rotate(), '>=', 1, 'its segment is reclaimed on the primary');
catch_up($primary, $standby);
my $answer = $reader->try('SELECT count(*) FROM baton_queue.q');
like($answer->state, qr/^(40001|57P01|lost)$/, 'the reader is stopped by PostgreSQL, loudly');

# ---- so truncations are kept apart
$primary->append_conf('postgresql.conf', "pg_baton.rotate_min_interval = 1h");
$primary->reload;
wait_until(sub { $p->query('SHOW pg_baton.rotate_min_interval') eq '1h' }, 'the interval');
more();
work();
is(rotate(), 0, 'no second truncation within rotate_min_interval');
is($p->query("SELECT count(*) >= 1 FROM baton.segments WHERE queue = 'q' AND state = 'drained'"), 't', 'although there is a drained segment');
is_sound($primary, 'q');

# ---- with feedback, what a reader there can see is not truncated here: replay goes on, however long he reads
$primary->append_conf('postgresql.conf', "pg_baton.rotate_min_interval = 0\nwal_receiver_status_interval = 1\n");
$primary->reload;
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1\nmax_standby_streaming_delay = -1\n");
$standby->restart;
$p->query("SELECT baton.create_queue('f', segments => 3, segment_bytes => 65536)");
sub turn
{
	$p->query("SELECT count(*) FROM baton.enqueue_batch('f', array_fill(to_jsonb(repeat('x', 700)), ARRAY[200]))");
	1 while $p->query("SELECT count(*) FROM baton.take('f', 1000)") > 0;
	return;
}
sub rotate_f
{
	$p->query("SET pg_baton.clock_offset = '1h'");
	my $n = $p->query("SELECT baton_internal.rotate('f')");
	$p->query('RESET pg_baton.clock_offset');
	return $n;
}
$p->query("SELECT count(*) FROM baton.enqueue_batch('f', array_fill(to_jsonb(repeat('x', 700)), ARRAY[200]))");
catch_up($primary, $standby);
$reader = session($standby, name => 'reader with feedback');
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($reader->query('SELECT count(*) FROM baton_queue.f'), 200, 'a reader of messages on a standby with feedback');
ok(wait_until(sub { $p->query("SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL") == 1 }, 'the feedback'), 'holds back the horizon here');
1 while $p->query("SELECT count(*) FROM baton.take('f', 1000)") > 0;
turn();
is(rotate_f(), 0, 'nothing is truncated that he can see');
catch_up($primary, $standby);
is($reader->query('SELECT count(*) FROM baton_data.q2_0'), 200, 'replay goes on, and he sees what he saw');
$p->query("SET pg_baton.clock_offset = '1h'");
like($p->query("SELECT kept_by FROM baton.segments WHERE queue = 'f' AND segment = 0"), qr/horizon/, 'baton.segments says what keeps the segment');
$p->query('RESET pg_baton.clock_offset');
is($p->query("SELECT count(*) FROM baton.horizon WHERE kind IN ('standby', 'replication slot')"), 1, 'and baton.horizon who');
# but only up to the budget of the ring
turn() for 1 .. 3;
cmp_ok(rotate_f(), '>=', 1, 'when the ring is full it is truncated all the same');
my $lsn = $p->query('SELECT pg_current_wal_insert_lsn()');
$p->query("SELECT id FROM baton.enqueue('f', '1')");
is($reader->query('SELECT count(*) FROM baton_data.q2_0'), 200, 'which waits on the standby for the reader, as long as it is told to');
$reader->query('COMMIT');
catch_up($primary, $standby);
pass('and goes on when he is through');

# ---- hold_rotation is for those who read there for long
cmp_ok($p->query("SELECT extract(epoch FROM baton.hold_rotation('3 h', 'f') - now())"), '>', 10000, 'rotation is held on the primary');
catch_up($primary, $standby);
$reader = session($standby, name => 'dump');
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $seen = $reader->query('SELECT count(*) FROM baton_queue.f');
turn() for 1 .. 4;
is(rotate_f(), 0, 'a full ring does not change that');
my $file = "$PostgreSQL::Test::Utils::tmp_check/standby_dump.sql";
is((run_tool($standby, 'pg_dump', '-f', $file, 'postgres'))[0], 0, 'a dump of the standby');
catch_up($primary, $standby);
is($reader->query('SELECT count(*) FROM baton_data.q2_0 UNION ALL SELECT 0') ne '', 1, 'and replay goes on');
$reader->query('COMMIT');
$p->query("SELECT baton.hold_rotation('0', 'f')");
ok(wait_until(sub { rotate_f() >= 1 }, 'the truncation'), 'afterwards the ring is reclaimed');
is_sound($primary, 'f');
done_testing();
