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
done_testing();
