# What administrators run over a whole database, beside a queue at work: vacuumdb, reindexdb, clusterdb, pg_amcheck. Nothing is
# lost or done twice, and nothing is left behind; a rebuilt map makes everything unsettled ready again and fences old tokens.
# What is CONCURRENTLY passes over maps and does the rest.
use strict;
use warnings;
use BatonLoad;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'maintenance', streaming => 'logical', conf => "pg_baton.rotate_min_interval = 100ms\npg_baton.rotate_grace = 0\npg_baton.retention_naptime = 100ms\n");
BatonLoad::make_tables($node);
my $s = session($node);
$s->query("SELECT baton.create_queue('q', segment_bytes => 65536, max_attempts => 1000, lease => '3 s')");
$s->query("SELECT baton.create_queue('held')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('held', array_fill('1'::jsonb, ARRAY[200]))");

my $debris = q{SELECT string_agg(c.relname, ' ') FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
	WHERE NOT (i.indisvalid AND i.indisready AND i.indislive) OR c.relname ~ '_cc(new|old)'};
my $maps = q{SELECT count(*), count(DISTINCT indrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'baton_lease'};
my $before = $s->query($maps);
like($before, qr/^(\d+)\|\1$/, 'a map for each segment, and no second one');
$s->query('CREATE TABLE business (id integer PRIMARY KEY, note text); CREATE MATERIALIZED VIEW summary AS SELECT * FROM business; CREATE UNIQUE INDEX summary_id ON summary (id)');
# which indexes a command builds anew, apart from maps and what belongs to their tables
my $indexes = q{SELECT string_agg(c.relname || ' ' || c.relfilenode, ', ' ORDER BY c.relname) FROM pg_class c
	WHERE c.relname IN ('business_pkey', 'summary_id', 'quarantined_pkey', 'evidence_message_idx')};

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
	# command, does it rebuild maps, what it says of them
	[ [ 'vacuumdb', '-d', 'postgres' ], 0 ],
	[ [ 'vacuumdb', '-d', 'postgres', '--analyze' ], 0 ],
	[ [ 'vacuumdb', '-d', 'postgres', '--freeze' ], 0 ],
	[ [ 'reindexdb', '-d', 'postgres' ], 1, qr/WARNING: +lease map "q2_0_map" was built anew: 200 unsettled messages are ready again/ ],
	[ [ 'vacuumdb', '-d', 'postgres', '--full' ], 1, qr/WARNING: +lease map "q2_0_map" was built anew: 200 unsettled messages are ready again/ ],
	[ [ 'reindexdb', '-d', 'postgres', '--concurrently' ], 0, qr/WARNING: +cannot reindex lease maps concurrently, skipping all tables that have one/ ],
	[ [ 'reindexdb', '-d', 'postgres', '--concurrently', '-j', '2' ], 0, qr/WARNING: +cannot reindex lease maps concurrently, skipping table "q1_0"/ ],
	[ [ 'reindexdb', '-d', 'postgres', '--concurrently', '-S', 'baton_data' ], 0, qr/WARNING: +cannot reindex lease maps concurrently/ ],
	[ [ 'clusterdb', '-d', 'postgres' ], 0 ],
	[ [ 'reindexdb', '-d', 'postgres', '-S', 'baton_data' ], 1, qr/WARNING: +lease map "q2_0_map" was built anew/ ])
{
	my ($command, $rebuilds, $says) = @$_;
	my $name = join ' ', @$command;
	hold();
	my $acked = $load->count('acked');
	my %files = map { split / / } split /, /, $s->query($indexes);
	my ($status, undef, $err) = run_tool($node, @$command);
	is($status, 0, "$name") or diag($err);
	like($err, $says, "$name says what it does to maps") if $says;
	if ($name =~ /reindexdb/)
	{
		my %new = map { split / / } split /, /, $s->query($indexes);
		my @kept = grep { $new{$_} == $files{$_} } sort keys %new;
		is("@kept", $name =~ /-S baton_data/ ? 'business_pkey summary_id' : '', "$name: every other index is built anew");
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
	[ 'REINDEX TABLE CONCURRENTLY in a transaction' => 'BEGIN; REINDEX TABLE CONCURRENTLY baton_data.q1_0', qr/^25001$/ ],
	[ 'REINDEX DATABASE CONCURRENTLY in a transaction' => 'BEGIN; REINDEX DATABASE CONCURRENTLY postgres', qr/^25001$/ ],
	[ 'REINDEX DATABASE CONCURRENTLY of another' => 'REINDEX DATABASE CONCURRENTLY template1', qr/^0A000$/ ],
	[ 'UPDATE of a row' => "UPDATE baton_data.q2_0 SET message_class = 'x'", qr/^(0A000|55000)$/ ],
	[ 'INSERT ON CONFLICT' => 'INSERT INTO baton_data.q2_0 (id) VALUES (1) ON CONFLICT (id) DO NOTHING', qr/^42P10$/ ])
{
	my ($name, $sql, $state) = @$_;
	like($s->try($sql)->state, $state, "$name is refused");
	$s->query('ROLLBACK') if $sql =~ /^BEGIN/;
	is($s->query($debris), '', "$name leaves nothing behind");
}
is($s->query($maps), $before, 'the maps are there, one each');

# pg_repack copies tables by triggers, which verbs do not fire: it must not get as far as that
SKIP:
{
	my $repack = $node->config_data('--bindir') . '/pg_repack';
	skip 'pg_repack is not installed', 1 if !-x $repack || $s->query("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_repack'") == 0;
	$s->query('CREATE EXTENSION pg_repack');
	$s->query("SELECT baton.create_queue('published', replicable => true)");
	hold();
	my $leftover = q{SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'repack'::regnamespace AND relkind = 'r'};
	for (
		[ [ '-t', 'baton_data.q2_0' ], qr/must have a primary key/ ],
		[ [ '-t', 'baton_data.q3_0' ], qr/cannot have a lease map/ ],
		[ [ '-t', 'baton_data.later_0' ], qr/cannot have a lease map/ ],
		[ [ '-x', '-t', 'baton_data.q2_0' ], qr/a lease map cannot be built concurrently/ ],
		[ [ '-c', 'public' ], qr/repacking table "public.business"/ ])
	{
		my ($how, $says) = @$_;
		my $name = "pg_repack @$how";
		my ($status, $out, $err) = run_tool($node, 'pg_repack', '-k', '-d', 'postgres', @$how);
		like("$out$err", $says, $name);
		is($s->query($debris), '', "$name leaves nothing behind");
		is($s->query($leftover), '', "$name: nor a table of its own");
		is($s->query("SELECT count(*) FROM pg_trigger WHERE tgname ~ 'repack'"), 0, "$name: nor a trigger");
	}
	is($s->query("SELECT string_agg(DISTINCT outcome, ' ') FROM baton.settle(ARRAY['" . join("','", @held) . "'], '{release_unfailed}', '{0 s}')"), 'released',
		'pg_repack: tokens of before settle');
	is_sound($node, 'held');
	$s->query("SELECT baton.drop_queue('published')");
	$s->query('DROP EXTENSION pg_repack');
}

# where the server has it, REPACK is what VACUUM FULL is; the concurrent form makes a table of its own first
if ($s->query("SELECT to_regclass('pg_catalog.pg_stat_progress_repack') IS NOT NULL") eq 't')
{
	for my $table (qw(q2_0 later_0))
	{
		like($s->try("REPACK (CONCURRENTLY) baton_data.$table")->state, qr/^(0A000|42809|55000)$/, "REPACK (CONCURRENTLY) of $table is refused");
		is($s->query($debris), '', 'and leaves nothing behind');
	}
	is($s->try('REPACK baton_data.q2_0')->state, '00000', 'REPACK');
	is_sound($node, 'held');
}

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
			$s->query("SELECT count(*) FROM baton_internal.map_slots('baton_data.q2_0') WHERE id <= 3 AND state = 'gone'") == 3;
		},
		'the slots to be cleared'),
	'VACUUM clears the slots of deleted rows, once nobody can see them');
is_sound($node, 'held');
is($s->query("SELECT count(*) FROM baton.take('held', 1000) WHERE id <= 3"), 0, 'which are not handed out');
is(server_crashes($node), 0, 'nothing crashed');
done_testing();
