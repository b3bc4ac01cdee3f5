# What is left in old segments is moved, and the tables that all queues share take turns: each message is in exactly one place
# whatever dies, tokens of claims that were moved go on working after a crash and after a promotion, and the workers do it all by
# themselves.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'survivors', streaming => 1,
	conf => "pg_baton.workers = off\npg_baton.rotate_min_interval = 0\nautovacuum = off\nmax_prepared_transactions = 5\n");
my $s;
sub fresh { $s = session($node, name => 'main'); return; }
fresh();
my $in_long = q{SELECT count(*) FROM (VALUES (0), (1)) v (t), LATERAL baton_internal.map_slots(('baton_data.long_' || t)::regclass) s WHERE s.resolved <> 'gone'};

# leave(QUEUE): a full segment of which nine messages are left: three that were released, two for later, four claims. The ring has
# no empty segment. Returns the tokens of the claims.
sub leave
{
	my ($queue) = @_;
	$s->query("SELECT baton.create_queue('$queue', segments => 2, segment_bytes => 65536, backoff => '0', lease => '1 s')");
	$s->query("SELECT count(*) FROM baton.enqueue_batch('$queue', array_fill(to_jsonb(repeat('x', 700)), ARRAY[$_]))") for 300, 10;
	my @claimed = map { [ split /\|/ ] } split /\n/, $s->query("SELECT token, id FROM baton.claim('$queue', 'w', 9, '1 h')");
	$s->query("SELECT count(*) FROM baton.take('$queue', 1000)");
	my @settle = map { "'$_->[0]'" } @claimed[ 0 .. 4 ];
	$s->query("SELECT count(*) FROM baton.settle(ARRAY[" . join(',', @settle) . "], '{release}', '{0 s,0 s,0 s,40 s,50 s}')");
	return @claimed[ 5 .. 8 ];
}
sub left { my ($queue) = @_; return $s->query("SELECT unsettled FROM baton.segments WHERE queue = '$queue' AND segment = 0") }
# In two seconds, when the leases of what was taken are over. (After a crash everything has to be offered once more before
# ready messages are moved.)
sub maintain
{
	my ($queue) = @_;
	$s->query("SELECT count(*) FROM baton.claim('$queue', 'nobody', classes => '{none}')");
	$s->query("SET pg_baton.clock_offset = '2 s'");
	$s->query("CALL baton.maintain('$queue')");
	$s->query('RESET pg_baton.clock_offset');
	return;
}

# all_there(QUEUE, NAME, claims): each message in one place, each token good; and then worked off
sub all_there
{
	my ($queue, $name, @claims) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($s->query("SELECT string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (SELECT state, count(*) || ' ' || count(DISTINCT id) AS n FROM baton_queue.\"$queue\" GROUP BY state) c"),
		'claimed 4 4, ready 3 3, scheduled 2 2', "$name: each message is in one place");
	is_sound($node, $queue, "$name: sound");
	is($s->query("SELECT string_agg(outcome, ' ') FROM baton.settle(ARRAY[" . join(',', map { "'$_->[0]'" } @claims) . "], '{ack,release,ack,quarantine}')"),
		'acked released acked quarantined', "$name: the tokens work");
	my $got = $s->query("SELECT count(*) || ' ' || count(DISTINCT id) FROM (SELECT id FROM baton.take('$queue', 100) UNION ALL SELECT id FROM baton.take('$queue', 100)) t");
	is($got, '4 4', "$name: what is ready is handed out once");
	return;
}

# ---- the mover of survivors dies at each point
for my $point (qw(move-marked move-deleted move-written))
{
	my @claims = leave($point);
	my $v = session($node, name => 'victim');
	$v->query("SET pg_baton.clock_offset = '2 s'");
	$v->query("SET pg_baton.debug_point = '$point:panic'");
	$v->send("CALL baton.maintain('$point')");
	ok($v->answer->lost, "$point: the server dies");
	come_back($node, $s);
	fresh();
	is(left($point), 9, "$point: nothing was moved");
	wait_until(sub { maintain($point); left($point) == 0 }, 'the next attempt');
	is(left($point), 0, "$point: the next attempt does it");
	all_there($point, $point, @claims);
}

# ---- while it brings back claims that have ended; while it truncates
for my $point (qw(long-return move-written rotate_locked rotate_truncated))
{
	my $queue = "again $point";
	my @claims = leave($queue);
	wait_until(sub { maintain($queue); left($queue) == 0 }, 'the move') unless $point =~ /rotate/;
	my $v = session($node, name => 'victim');
	$v->query("SET pg_baton.clock_offset = '" . ($point =~ /rotate/ ? '2 s' : '61 min') . "'");
	$v->query("SET pg_baton.debug_point = '$point:panic'");
	# (the truncation may have to wait for a snapshot, of the statistics collector or whose ever)
	my $died = wait_until(sub { $v->try("CALL baton.maintain('$queue')")->lost }, 'the victim to come to it');
	ok($died, "$point: the server dies");
	come_back($node, $s);
	fresh();
	all_there($queue, $point, @claims) if $point =~ /rotate/;
	next if $point =~ /rotate/;
	is($s->query("SELECT count(*) || ' ' || count(DISTINCT id) FROM baton_queue.\"$queue\""), '9 9', "$point: each message is in one place");
	is_sound($node, $queue, "$point: sound");
	$s->query("SET pg_baton.clock_offset = '61 min'");
	wait_until(sub { $s->query("CALL baton.maintain('$queue')"); $s->query("SELECT count(*) FROM baton_queue.\"$queue\" WHERE state = 'ready'") == 9 }, 'all to be ready');
	is($s->query("SELECT count(*) || ' ' || count(DISTINCT id) || ' ' || max(failures) FROM baton.take('$queue', 100)"), '9 9 1', "$point: handed out once, the ended leases counted");
	$s->query('RESET pg_baton.clock_offset');
}
is($s->query($in_long), 0, 'nothing is left in the long segments');

# ---- a crash after what a token was told
{
	my @claims = leave('told');
	wait_until(sub { maintain('told'); left('told') == 0 }, 'the move');
	my $until = $s->query("SELECT baton.extend('$claims[0][0]', '2 h')");
	is($s->query("SELECT baton.ack('$claims[1][0]')"), 'acked', 'acknowledged in a long segment');
	crash_and_start($node);
	fresh();
	is($s->query("SELECT lease_until = '$until' FROM baton_queue.told WHERE id = $claims[0][1]"), 't', 'after a crash the lease is as long as was said');
	is($s->query("SELECT outcome FROM baton.settle(ARRAY['$claims[1][0]'], '{ack}')"), 'already_settled', 'and what was acknowledged is');
	is($s->query("SELECT baton.ack('$claims[0][0]')"), 'acked', 'the token works');
	is_sound($node, 'told');
}

# ---- the workers do it: when the ring has room, after move_after
$node->append_conf('postgresql.conf', "pg_baton.workers = on\npg_baton.retention_naptime = 100ms\npg_baton.sweep_interval = 100ms\npg_baton.move_after = 1h\n");
$node->restart;
fresh();
$s->query("SELECT baton.create_queue('room', segments => 3, segment_bytes => 65536, lease => '1 s')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('room', array_fill(to_jsonb(repeat('x', 700)), ARRAY[$_]))") for 300, 10;
my ($token, $id) = split /\|/, $s->query("SELECT token, id FROM baton.claim('room', 'w', 1, '1 h')");
$s->query("SELECT count(*) FROM baton.take('room', 1000)");
my $runs = q{SELECT runs FROM baton_internal.worker_status() WHERE worker = 'retention' AND step = 'move'};
my $before = $s->query($runs) || 0;
ok(wait_until(sub { ($s->query($runs) || 0) > $before + 2 }, 'the step'), 'the retention worker looks at what is left');
is(left('room'), 1, 'while the ring has room it stays');
$node->append_conf('postgresql.conf', "pg_baton.move_after = 0\n");
$node->reload;
ok(wait_until(sub { left('room') == 0 }, 'the move'), 'after move_after it is moved');
is($s->query(qq{SELECT count(*) FROM baton_data.long_0 WHERE id = $id AND queue_id = (SELECT id FROM baton_internal.queue WHERE name = 'room')}), 1, 'to a long segment');
ok(wait_until(sub { $s->query("SELECT state FROM baton.segments WHERE queue = 'room' AND segment = 0") eq 'empty' }, 'the truncation'), 'and its segment is reclaimed');

# ---- promotion
my $standby = standby_of($node, 'standby');
my ($other) = split /\|/, $s->query("SELECT token FROM baton.enqueue('room', '1') e, baton.claim('room', 'w', 1, '1 h')");
$s->query("SELECT id FROM baton.enqueue('room', '2')");
catch_up($node, $standby);
my $r = session($standby, name => 'reader');
is($r->query("SELECT state || ' ' || worker FROM baton_queue.room WHERE id = $id"), 'claimed w', 'the standby shows it');
is($r->query("SELECT count(*) FROM baton.in_flight WHERE id = $id"), 1, 'in in_flight, too');
refused_with($r, "SELECT baton.ack('$token')", '25006', 'and refuses its token');
$standby->promote;
$r = session($standby, name => 'new primary');
wait_until(sub { $r->query('SELECT pg_is_in_recovery()') eq 'f' }, 'the promotion');
is($r->query("SELECT baton.ack('$token')"), 'acked', 'after its promotion the token works');
is($r->query("SELECT outcome FROM baton.settle(ARRAY['$token'], '{ack}')"), 'already_settled', 'once');
is_sound($standby, 'room');
$standby->stop('immediate');

# ---- the long segments take turns, and shared tables are reclaimed
$s->query("SELECT baton.create_queue('long', segments => 2, segment_bytes => 2097152, lease => '1 s')");
my $large = 'to_jsonb((SELECT string_agg(md5(random()::text), $$$$) FROM generate_series(1, 220) WHERE i > 0))';
my @kept;
for my $round (1 .. 4)
{
	$s->query("SELECT count(*) FROM baton.enqueue_batch('long', ARRAY(SELECT $large FROM generate_series(1, 100) i))");
	$s->query("SELECT count(*) FROM baton.enqueue_batch('long', array_fill(to_jsonb(repeat('x', 700)), ARRAY[$_]))") for 5000, 10;
	push @kept, split /\n/, $s->query("SELECT token FROM baton.claim('long', 'w', 100, '1 h')");
	1 while $s->query("SELECT count(*) FROM baton.take('long', 1000)") > 0;
	ok(wait_until(sub { left_in_ring() == 0 }, 'the claims to be moved'), "round $round: what is left is moved");
	is($s->query("SELECT count(*) FROM baton_queue.long WHERE state = 'claimed'"), scalar(@kept), "round $round: all claims are there");
	# all but two of these end
	my @end = splice @kept, -98;
	is($s->query("SELECT baton.ack_batch(ARRAY[" . join(',', map { "'$_'" } @end) . "])"), 98, 'and can be settled');
}
sub left_in_ring { return $s->query("SELECT coalesce(sum(unsettled), 0) FROM baton.segments WHERE queue = 'long' AND state <> 'writing'") }
ok( wait_until(sub { $s->query('SELECT sum(pg_table_size(format($$baton_data.long_%s$$, n)::regclass)) FROM generate_series(0, 1) n') < 1500000 }, 'the truncation'),
	'what has ended in the long segments is reclaimed, although some claims go on');
is($s->query("SELECT baton.ack_batch(ARRAY[" . join(',', map { "'$_'" } @kept) . "])"), scalar(@kept), 'their tokens work, wherever they were moved');
is_sound($node, 'long');
$s->query("SELECT count(*) FROM baton.enqueue_batch('long', array_fill(to_jsonb(repeat('x', 700)), ARRAY[3000]), delays => '{2 h}')");
my $later = 'SELECT sum(pg_table_size(format($$baton_data.later_%s$$, n)::regclass)) FROM generate_series(0, 17) n';
cmp_ok($s->query($later), '>', 2000000, 'three thousand messages are due in two hours');
$node->safe_psql('postgres', "ALTER SYSTEM SET pg_baton.clock_offset = '2h'");
$node->reload;
wait_until(sub { $s->query('SHOW pg_baton.clock_offset') eq '2h' }, 'the clock');
$s->query("SELECT baton.hold_rotation('1 h', 'room')");
ok(wait_until(sub { $s->query("SELECT count(*) FROM baton_internal.later_message") == 0 }, 'the mover'), 'they come due');
my $rounds = q{SELECT runs FROM baton_internal.worker_status() WHERE worker = 'retention' AND step = 'shared tables'};
my $seen = $s->query($rounds);
wait_until(sub { $s->query($rounds) > $seen + 5 }, 'some rounds');
cmp_ok($s->query($later), '>', 2000000, 'while any queue holds rotation nothing that all share is truncated');
$s->query("SELECT baton.hold_rotation('0', 'room')");
ok(wait_until(sub { $s->query($later) < 1000000 }, 'the truncation'), 'and the bucket that they were in is reclaimed');
is($s->query("SELECT count(*) FROM baton_queue.long"), 3000, 'all are there');
is_sound($node, 'long');
done_testing();
