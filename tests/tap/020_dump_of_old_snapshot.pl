# A dump owes what its snapshot saw. Segments are reclaimed by TRUNCATE, which no snapshot survives: so a dump either finds
# every message (nothing that somebody can see is reclaimed), or fails loudly with 40001 (the ring was full and the grace
# over). Never does it find nothing and say nothing.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Rotation only when the test says so.
my $node = new_node(
	'dump', conf => "pg_baton.workers = off\npg_baton.rotate_grace = 0\npg_baton.rotate_min_interval = 0\nautovacuum = off\n");
my $s = session($node);
my $files = 0;

# more(QUEUE): a batch that fills a segment, so that the next one goes to the next
sub more
{
	my ($queue) = @_;
	return $s->query("SELECT count(*) FROM baton.enqueue_batch('$queue', array_fill(to_jsonb(repeat('x', 700)), ARRAY[500]))");
}

# burst(QUEUE): works off all of it, each message with its effect; some is released first, some quarantined
sub burst
{
	my ($queue) = @_;
	$s->query('BEGIN');
	$s->query("CREATE TEMP TABLE got ON COMMIT DROP AS SELECT token, id FROM baton.claim('$queue', 'w', 100)");
	$s->query("SELECT count(*) FROM baton.settle((SELECT array_agg(token) FROM got), (SELECT array_agg(CASE id % 10 WHEN 0 THEN 'quarantine' ELSE 'release_unfailed' END) FROM got), '{0 s}')");
	$s->query('COMMIT');
	my $n;
	do
	{
		$n = $s->query("WITH m AS (INSERT INTO effect SELECT '$queue', id FROM baton.take('$queue', 1000) RETURNING 1) SELECT count(*) FROM m");
	} while ($n > 0);
	return $s->query(qq{SELECT count(*) FROM baton_queue."$queue"});
}

# in an hour, when the leases that tokens were told are over
sub rotate
{
	my ($queue) = @_;
	$s->query("SET pg_baton.clock_offset = '1h'");
	my $n = $s->query("SELECT baton_internal.rotate('$queue')");
	$s->query('RESET pg_baton.clock_offset');
	return $n;
}

sub dump_at
{
	my ($snapshot) = @_;
	my $file = "$PostgreSQL::Test::Utils::tmp_check/dump" . ++$files . '.sql';
	my ($status, undef, $err) = run_tool($node, 'pg_dump', '-f', $file, ($snapshot ? "--snapshot=$snapshot" : ()), 'postgres');
	return ($status, $err, $file);
}

sub restored_is
{
	my ($file, $query, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $database = "copy$files";
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my ($status, undef, $err) = run_tool($node, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $database);
	is($status, 0, "$name: restores") or diag($err);
	is($node->safe_psql($database, $query), $expected, "$name: what the snapshot owed is there");
	return;
}

my $owed = q{SELECT (SELECT concat_ws(' ', count(*), min(id), max(id), sum(id)) FROM baton_queue.q), (SELECT count(*) FROM effect WHERE queue = 'q'),
	(SELECT count(*) FROM baton.quarantined('q'))};
$node->safe_psql(
	'postgres', q{
	CREATE TABLE early (x int);
	CREATE TABLE effect (queue text, id bigint);
	SELECT baton.create_queue('q', segments => 3, segment_bytes => 65536);
	SELECT baton.create_queue('other', segments => 3, segment_bytes => 65536)});
more('q');
my $old = session($node, name => 'dump');
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $snapshot = $old->query('SELECT pg_export_snapshot()');
my $at_snapshot = $s->query($owed);
like($at_snapshot, qr/^500 1 500 125250\|0\|0$/, 'the snapshot owes 500 messages');

# ---- everything is settled, and the segment stays as long as the snapshot
is(burst('q'), 0, 'the queue is worked off');
is($s->query("SELECT count(*) FROM baton.quarantined('q')"), 10, 'some were moved to quarantine');
is(rotate('q'), 0, 'the segment is not reclaimed while somebody can see its messages');
my ($status, $err, $file) = dump_at($snapshot);
is($status, 0, 'pg_dump --snapshot after the burst') or diag($err);
restored_is($file, $owed, $at_snapshot, 'pg_dump --snapshot after the burst');

# ---- the same with everything written to
more('q');
burst('q');
is(rotate('q'), 0, 'nor while the ring has room');
($status, $err, $file) = dump_at($snapshot);
is($status, 0, 'pg_dump --snapshot after two bursts') or diag($err);
restored_is($file, $owed, $at_snapshot, 'pg_dump --snapshot after two bursts');

# ---- the ring is full and the grace is over: reclaimed all the same, and loudly
more('q');
burst('q');
cmp_ok(rotate('q'), '>=', 1, 'a full ring is reclaimed under a pinned horizon');
($status, $err, undef) = dump_at($snapshot);
isnt($status, 0, 'pg_dump --snapshot fails');
like($err, qr/segment "q1_\d" was reclaimed after this transaction's snapshot was taken/, 'and says why');
$old->query('SAVEPOINT s');
for (
	[ 'LOCK TABLE' => 'LOCK TABLE baton_data.q1_0 IN ACCESS SHARE MODE' ],
	[ 'COPY TO' => 'COPY baton_data.q1_0 TO STDOUT' ],
	[ 'COPY (SELECT)' => 'COPY (SELECT * FROM baton_data.q1_0) TO STDOUT' ],
	[ 'SELECT' => 'SELECT count(*) FROM baton_data.q1_0' ],
	[ 'SELECT from the view' => 'SELECT count(*) FROM baton_queue.q' ],
	[ 'a subquery' => 'SELECT EXISTS (SELECT FROM baton_data.q1_0)' ],
	[ 'a prepared statement' => 'EXECUTE p' ],
	[ 'a cursor' => 'DECLARE c CURSOR FOR SELECT id FROM baton_data.q1_0' ],
	[ 'a function' => 'SELECT look()' ])
{
	my ($what, $sql) = @$_;
	if ($sql =~ /EXECUTE/) { $old->query('PREPARE p AS SELECT count(*) FROM baton_data.q1_0'); }
	if ($sql =~ /look/)
	{
		$s->query(q{CREATE OR REPLACE FUNCTION look() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM baton_data.q1_0); END'});
	}
	refused_with($old, $sql, '40001', "a reader with the old snapshot: $what");
	$old->query('ROLLBACK TO s');
}
is($old->query('SELECT count(*) FROM baton_queue.other'), 0, 'another queue is read with the same snapshot');
is($s->query('SELECT count(*) FROM baton_data.q1_0'), 0, 'a younger snapshot reads the reclaimed segment');
my $young = session($node);
$young->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($young->query('SELECT count(*) FROM baton_data.q1_0'), 0, 'a younger REPEATABLE READ snapshot too');
$young->query('COMMIT');
my $now = $s->query($owed);
($status, $err, $file) = dump_at();
is($status, 0, 'a new dump') or diag($err);
restored_is($file, $owed, $now, 'a new dump');
$old->query('ROLLBACK');
is($old->query('SELECT count(*) FROM baton_data.q1_0'), 0, 'the same session with a new snapshot');

# ---- pg_dump has its snapshot and waits for its locks while all that happens
more('other');
my $blocker = session($node);
$blocker->query('BEGIN');
$blocker->query('LOCK TABLE early IN ACCESS EXCLUSIVE MODE');
my $log = "$PostgreSQL::Test::Utils::tmp_check/late.err";
my $pid = background(
	sub {
		my ($status, $err) = dump_at();
		append_to_file($log, "$status\n$err");
		return 0;
	});
ok( wait_until(sub { $s->query("SELECT count(*) FROM pg_locks WHERE relation = 'early'::regclass AND NOT granted") == 1 }, 'pg_dump to wait'),
	'pg_dump has its snapshot and waits for a lock');
do { more('other'); burst('other') } for 1 .. 3;
cmp_ok(rotate('other'), '>=', 1, 'meanwhile a segment is reclaimed');
$blocker->query('ROLLBACK');
is(join(' ', reap($pid)), '', 'pg_dump has ended');
my ($late, $said) = split /\n/, slurp_file($log), 2;
isnt($late, 0, 'a pg_dump that was late with its locks fails');
like($said, qr/segment "q2_\d" was reclaimed after/, 'and says why');

# ---- a dump that has its locks keeps its segments
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[10]))");
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$old->query('SELECT 1');
$old->query("LOCK TABLE baton_data.q1_$_ IN ACCESS SHARE MODE") for 0 .. 2;
do { more('q'); burst('q') } for 1 .. 4;
is(rotate('q'), 0, 'no segment is reclaimed that somebody has locked, however full the ring');
is($old->query('SELECT count(*) FROM (SELECT FROM baton_data.q1_0 UNION ALL SELECT FROM baton_data.q1_1 UNION ALL SELECT FROM baton_data.q1_2) m') >= 10,
	1, 'and it finds what it owes');
$old->query('COMMIT');
cmp_ok(rotate('q'), '>=', 1, 'they are reclaimed afterwards');
is_sound($node, $_) for qw(q other);
done_testing();
