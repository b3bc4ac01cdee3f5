# What administrators run over a whole database, beside a queue at work: vacuumdb, reindexdb, clusterdb, pg_amcheck. Nothing is
# lost or done twice, and nothing is left behind; a rebuilt map makes everything unsettled ready again and fences old tokens.
use strict;
use warnings;
use BatonLoad;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'maintenance', conf => "pg_baton.rotate_min_interval = 100ms\npg_baton.rotate_grace = 0\npg_baton.retention_naptime = 100ms\n");
BatonLoad::make_tables($node);
my $s = session($node);
$s->query("SELECT baton.create_queue('q', segment_bytes => 65536, max_attempts => 1000, lease => '3 s')");
$s->query("SELECT baton.create_queue('held')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('held', array_fill('1'::jsonb, ARRAY[200]))");

my $debris = q{SELECT string_agg(c.relname, ' ') FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
	WHERE NOT (i.indisvalid AND i.indisready AND i.indislive) OR c.relname ~ '_cc(new|old)'};
my $maps = q{SELECT count(*), count(DISTINCT indrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'baton_lease'};
my $before = $s->query($maps);
is($before, '6|6', 'a map for each segment');

# claims of the other queue: which commands end them
my @held;
my $epoch;
sub hold
{
	@held = split /\n/, $s->query("SELECT token FROM baton.claim('held', 'w', 5, '1 h')");
	$epoch = $s->query("SELECT sum(epoch) FROM baton.segments WHERE queue = 'held'");
	return;
}

my $load = BatonLoad->start($node, queue => 'q', producers => 1, workers => 2, takers => 1, lease => '3 s', tolerate => qr/QB00[128]/);
$load->wait_for(acked => 50);
for (
	# command, does it rebuild maps, does it succeed
	[ [ 'vacuumdb', '-d', 'postgres' ], 0, 1 ],
	[ [ 'vacuumdb', '-d', 'postgres', '--analyze' ], 0, 1 ],
	[ [ 'vacuumdb', '-d', 'postgres', '--freeze' ], 0, 1 ],
	[ [ 'reindexdb', '-d', 'postgres' ], 1, 1 ],
	[ [ 'vacuumdb', '-d', 'postgres', '--full' ], 1, 1 ],
	[ [ 'reindexdb', '-d', 'postgres', '--concurrently' ], 0, 0 ],
	[ [ 'reindexdb', '-d', 'postgres', '--concurrently', '-S', 'baton_data' ], 0, 0 ],
	[ [ 'clusterdb', '-d', 'postgres' ], 0, 1 ],
	[ [ 'reindexdb', '-d', 'postgres', '-S', 'baton_data' ], 1, 1 ])
{
	my ($command, $rebuilds, $works) = @$_;
	my $name = join ' ', @$command;
	hold();
	my $acked = $load->count('acked');
	my ($status, undef, $err) = run_tool($node, @$command);
	if ($works) { is($status, 0, "$name") or diag($err); }
	else
	{
		isnt($status, 0, "$name fails");
		like($err, qr/a lease map cannot be built concurrently/, "$name says why");
	}
	is($s->query($debris), '', "$name leaves nothing behind");
	is($s->query($maps), $before, "$name: the maps are there, one each");
	my $now = $s->query("SELECT sum(epoch) FROM baton.segments WHERE queue = 'held'");
	my %answers = map { $_ => 1 } split /\n/, $s->query("SELECT outcome FROM baton.settle(ARRAY['" . join("','", @held) . "'], '{release_unfailed}', '{0 s}')");
	if ($rebuilds)
	{
		cmp_ok($now, '>', $epoch, "$name builds maps anew");
		is(join(' ', keys %answers), 'stale_epoch', "$name: tokens of before are refused");
	}
	else
	{
		is($now, $epoch, "$name leaves maps alone");
		is(join(' ', keys %answers), 'released', "$name: tokens of before settle");
	}
	is($s->query("SELECT count(*) FROM baton_queue.held WHERE state = 'ready'"), 200, "$name: every message is ready");
	is_sound($node, 'held');
	ok($load->wait_for(acked => $acked + 20), "$name: the other queue works on");
}
$load->stop;
is_sound($node, 'q');
BatonLoad::drain($node, 'q');
BatonLoad::books_balance($node, 'q', 'every message had its effect once');

# pg_amcheck looks at tables and at B-trees; a map must not upset it
my ($status, $out, $err) = run_tool($node, 'pg_amcheck', '--install-missing', '-d', 'postgres', '-s', 'baton_data');
is($status, 0, 'pg_amcheck') or diag("$out$err");

# what is refused, by hand
for (
	[ 'CLUSTER on the map' => 'CLUSTER baton_data.q1_0 USING q1_0_map', qr/^(0A000|42809)$/ ],
	[ 'DROP INDEX' => 'DROP INDEX baton_data.q1_0_map', qr/^55000$/ ],
	[ 'DROP INDEX CONCURRENTLY' => 'DROP INDEX CONCURRENTLY baton_data.q1_0_map', qr/^55000$/ ],
	[ 'a second map' => 'CREATE INDEX again ON baton_data.q1_0 USING baton_lease (id, lane, generation, failures, not_before, routing_key)', qr/^55000$/ ],
	[ 'a concurrent one' => 'CREATE INDEX CONCURRENTLY again ON baton_data.q1_0 USING baton_lease (id, lane, generation, failures, not_before, routing_key)', qr/^0A000$/ ],
	[ 'a map elsewhere' => 'CREATE INDEX again ON made USING baton_lease (id)', qr/^42809$/ ],
	[ 'REINDEX CONCURRENTLY' => 'REINDEX INDEX CONCURRENTLY baton_data.q1_0_map', qr/^0A000$/ ],
	[ 'REINDEX TABLE CONCURRENTLY' => 'REINDEX TABLE CONCURRENTLY baton_data.q1_0', qr/^0A000$/ ],
	[ 'UPDATE of a row' => "UPDATE baton_data.q2_0 SET message_class = 'x'", qr/^(0A000|55000)$/ ],
	[ 'INSERT ON CONFLICT' => 'INSERT INTO baton_data.q2_0 (id) VALUES (1) ON CONFLICT (id) DO NOTHING', qr/^42P10$/ ])
{
	my ($name, $sql, $state) = @$_;
	like($s->try($sql)->state, $state, "$name is refused");
	is($s->query($debris), '', "$name leaves nothing behind");
}
is($s->query($maps), $before, 'the maps are there, one each');

# A user's own index would miss what verbs write below the executor: they refuse to, rather than let it answer wrongly.
is($s->try('CREATE INDEX mine ON baton_data.q2_0 (message_id)')->state, '00000', 'an index of a user');
my $refused = refused_with($s, "SELECT id FROM baton.enqueue('held', '1', message_id => 'mine')", '55000', 'an enqueue does not leave it incomplete');
like($refused->message, qr/index "mine" on segment "q2_0" is not supported.*Drop it/s, 'and says what to do');
$s->query('DROP INDEX baton_data.mine');
is($s->try("SELECT id FROM baton.enqueue('held', '1', message_id => 'mine')")->state, '00000', 'then it works again');
is_sound($node, 'held');

# a row that plain SQL deletes is work that is gone; VACUUM then clears its slot
$s->query('DELETE FROM baton_data.q2_0 WHERE id <= 3');
ok( wait_until(
		sub {
			$s->query('VACUUM baton_data.q2_0');
			$s->query("SELECT count(*) FROM baton_internal.map_slots('baton_data.q2_0') WHERE id <= 3 AND kind = 'purged'") == 3;
		},
		'the slots to be cleared'),
	'VACUUM clears the slots of deleted rows, once nobody can see them');
is_sound($node, 'held');
is($s->query("SELECT count(*) FROM baton.take('held', 1000) WHERE id <= 3"), 0, 'which are not handed out');
is(server_crashes($node), 0, 'nothing crashed');
done_testing();
