# Dumps carry the work and not the leases. Restored into another cluster or another database, every message is there once,
# nothing is handed out before adopt(), tokens of the original are refused, and ids and fencing numbers go on upward.
# (What a partial dump has, and what it takes to make one: 028_partial_dumps.pl.)
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use utf8;

my $roles = 'CREATE ROLE shop LOGIN; CREATE ROLE worker LOGIN; CREATE ROLE support LOGIN;';
# A minute behind, so that a copy at once has higher epochs than those that are given out here after the dump.
my $source = new_node('source', conf => "pg_baton.clock_offset = '-1min'\n");
$source->safe_psql('postgres', q{SELECT setval('baton_internal.epoch_seq', floor(extract(epoch FROM clock_timestamp() - '2000-01-01 00:00:00+00') - 60)::bigint)});
my $odd = 'My "Queue" 😀';
(my $quoted = $odd) =~ s/"/""/g;
$source->safe_psql('postgres', "$roles GRANT CREATE ON SCHEMA baton_queue TO shop");
my $s = session($source, user => 'shop');
$s->query("SELECT baton.create_queue('orders', lease => '45 s', max_attempts => 7, segments => 4, retention => '1 day')");
$s->query("SELECT baton.create_queue('$odd')");
$s->query('GRANT INSERT, UPDATE ON baton_queue.orders TO worker');
$s->query('GRANT SELECT (id, state) ON baton_queue.orders TO support');
$s->query(
	q{SELECT count(*) FROM baton.enqueue_batch('orders', (SELECT array_agg(to_jsonb(repeat(md5(n::text), 40 + n * 20))) FROM generate_series(1, 20) n),
		message_ids => (SELECT array_agg('m' || n) FROM generate_series(1, 20) n), routing_keys => '{key}', message_classes => '{big}',
		headers => '{"{\"h\": 1}"}', expires_ats => ARRAY[clock_timestamp() + '1 year'])});
$s->query("SELECT count(*) FROM baton.enqueue_batch('orders', array_fill('{\"later\": 1}'::jsonb, ARRAY[5]), delays => '{1 h}')");
$s->query("SELECT id FROM baton.enqueue_bytes('orders', '\\x00ff00')");
$s->query("SELECT id FROM baton.enqueue('orders', NULL, payload_ref => 's3://somewhere')");
$s->query("SELECT id FROM baton.enqueue('$odd', '\"😀\"')");
my @tokens = split /\n/, $s->query("SELECT token FROM baton.claim('orders', 'w1', 9, '10 min')");
my $fence = $s->query("SELECT max(fence) FROM baton.claim('orders', 'w1', 3, '10 min')");
$s->query("SELECT baton.ack_batch(ARRAY['$tokens[0]', '$tokens[1]'])");
$s->query("SELECT baton.quarantine('$_', 'unreadable', '{\"line\": 3}')") for @tokens[ 2, 3 ];
$s->query("SELECT state FROM baton.release('$tokens[4]', delay => '0 s', reason => 'busy')");
$s->query("SELECT state FROM baton.release('$tokens[5]', delay => '20 min')");
$s->query('BEGIN');
$s->query("SELECT baton.ack('$tokens[6]')");    # in progress while the dump is taken
my $messages = qq{SELECT id, message_id, routing_key, message_class, priority, enqueued_at, expires_at, headers, payload, payload_bytes, payload_ref
	FROM (TABLE baton_queue.orders UNION ALL TABLE baton_queue."$quoted") m ORDER BY id, payload};
my $aside = q{SELECT id, cause, reason, error, message_id, failures, generation FROM baton.quarantined('orders')};
my $said = q{SELECT id, e.* FROM generate_series(1, 30) id, baton.evidence('orders', id) e ORDER BY id};
# All rows of the tables that the extension gives to pg_dump, whatever is kept there; and what is for later, by its rows.
my $tables = q{SELECT string_agg(format('SELECT %L, count(*), md5(string_agg(t::text, chr(10) ORDER BY t::text)) FROM %s t', c, c), ' UNION ALL ' ORDER BY c::text)
	FROM pg_extension, unnest(extconfig::regclass[]) c WHERE extname = 'pg_baton' AND c::text !~ '_seq$'};
my $by_rows = q{SELECT string_agg(format('SELECT id FROM %s WHERE not_before > clock_timestamp()', oid::regclass), ' UNION ALL ')
	FROM pg_class WHERE reloftype = 'baton.message'::regtype AND relkind = 'r'};
sub owed
{
	my ($node, $database) = @_;
	my $sql = sub { return $node->safe_psql($database, $_[0]) };
	return (
		[ 'every message' => $sql->($messages) ], [ 'what is in quarantine' => $sql->($aside) ], [ 'what was said about messages' => $sql->($said) ],
		[ 'every table of the extension' => $sql->($sql->($tables) . ' ORDER BY 1') ]);
}
my @owed = owed($source, 'postgres');
my $for_later = $source->safe_psql('postgres', 'SELECT count(*) FROM (' . $source->safe_psql("postgres", $by_rows) . ') later');
is(scalar(split /\n/, $owed[0][1]), 20 + 5 + 1 + 1 + 1 - 2 - 2, 'the dump owes so many messages');
like($owed[3][1], qr/^baton_data.retained_\d+\|2\|/m, 'and two that are retained');

my $folder = $PostgreSQL::Test::Utils::tmp_check;
for (
	[ 'plain', '-f', "$folder/plain.sql" ],
	[ 'custom', '-Fc', '-f', "$folder/custom.dump" ],
	[ 'directory', '-Fd', '-j', '2', '-f', "$folder/directory" ],
	[ 'inserts', '--column-inserts', '-f', "$folder/inserts.sql" ])
{
	my ($what, @how) = @$_;
	my ($status, undef, $err) = run_tool($source, 'pg_dump', @how, 'postgres');
	is($status, 0, "pg_dump: $what") or diag($err);
}
# The original goes on: maps are rebuilt, and messages of the dump get higher fencing numbers than it knows of.
$s->query('COMMIT');
$s->query("SELECT baton.fence('orders')");
$source->safe_psql('postgres', "REINDEX INDEX baton_data.q1_$_" . '_map') for 0, 0, 0;
my $later = $s->query("SELECT max(fence) FROM baton.claim('orders', 'w2', 100, '10 min')");
cmp_ok($later, '>', $fence, 'a rebuilt map has higher fencing numbers');

my $target = new_node('target', extension => 0, conf => 'max_worker_processes = 32');
$target->safe_psql('postgres', $roles);

# restored(NODE, DATABASE, NAME): everything that must be true of a copy
sub restored
{
	my ($node, $database, $name) = @_;
	my $sql = sub { return $node->safe_psql($database, $_[0]) };
	my @got = owed($node, $database);
	is($got[$_][1], $owed[$_][1], "$name: $owed[$_][0] is there once") for 0 .. $#owed;
	is($sql->("SELECT string_agg(DISTINCT state, ' ') FROM baton_queue.orders"), 'ready scheduled', "$name: no lease has come along");
	is($sql->("SELECT count(*) FROM baton_queue.orders WHERE state = 'scheduled'"), $for_later, "$name: what was enqueued for later is for later");
	is($sql->("SELECT string_agg(option || '=' || value, ' ' ORDER BY option) FROM baton.describe_queue('orders') WHERE option IN ('lease', 'max_attempts', 'segments')"),
		'lease=00:00:45 max_attempts=7 segments=4', "$name: the queue's options");
	is($sql->("SELECT string_agg(DISTINCT owner::text, ' ') FROM baton.queues"), 'shop', "$name: the owner");
	is($sql->("SELECT * FROM baton.check('$_')"), '', "$name: check finds nothing") for 'orders', $odd;
	is($sql->("SELECT string_agg(DISTINCT state, ' ') FROM baton.queues"), 'restored', "$name: the queues say that they are copies");

	my $w = session($node, database => $database, user => 'worker');
	refused_with($w, "SELECT baton.ack('$tokens[7]')", 'QB004', "$name: a token of the original is refused");
	is($w->query("SELECT count(*) FROM baton.claim('orders', 'w', 100)"), 0, "$name: a claim gets nothing");
	is($w->query("SELECT count(*) FROM baton.take('orders', 100)"), 0, "$name: nor does take");
	is($w->query("SELECT baton.why_empty('orders')"), 'restored', "$name: because it is a copy");
	is($w->query("CALL baton.wait('orders', '100 ms')"), 'timeout', "$name: nor is there anything to wait for");
	is($w->try("SELECT baton.adopt('orders')")->state, '42501', "$name: a worker cannot adopt it");
	my $new = $w->query("SELECT id FROM baton.enqueue('orders', '\"new\"')");
	cmp_ok($new, '>', 27, "$name: ids go on upward");
	is($w->try('SELECT payload FROM baton_queue.orders')->state, '42501', "$name: grants are as they were, worker");
	is(session($node, database => $database, user => 'support')->query('SELECT count(*) > 0 FROM (SELECT id, state FROM baton_queue.orders) m'),
		't', "$name: grants are as they were, support");

	my $owner = session($node, database => $database, user => 'shop');
	is($owner->query('SELECT baton.adopt()'), 2, "$name: its owner adopts it, being no superuser");
	is($w->query("SELECT baton.why_empty('orders') IS NULL"), 't', "$name: then there is something to claim");
	is($w->try("SELECT baton.ack('$tokens[7]')")->state, 'QB004', "$name: a token of the original is refused still");
	$w->query('BEGIN');
	$w->query("CREATE TEMP TABLE got AS SELECT * FROM baton.claim('orders', 'w', 100, '10 min')");
	$w->query('COMMIT');
	is($w->query("SELECT count(*), count(DISTINCT id), min(failures), max(failures) FROM got"), join('|', (24 - $for_later) x 2, 0, 0), "$name: everything that is due is handed out once");
	cmp_ok($w->query('SELECT min(fence) FROM got'), '>', $later, "$name: with higher fencing numbers than any that the original has given out");
	is($w->query('SELECT baton.ack_batch((SELECT array_agg(token) FROM got))'), 24 - $for_later, "$name: and settled");
	is(session($node, database => $database, user => 'shop')->query("SELECT count(*) FROM baton.take('$odd')"), 1, "$name: from a queue with any name");
	my $super = session($node, database => $database);
	$super->query("SET pg_baton.clock_offset = '2h'");
	my $taken = 0;
	ok( wait_until(
			sub {
				$super->query('CALL baton.maintain()');
				$taken += $super->query("SELECT count(*) FROM baton.take('orders', 100)");
				return $taken >= $for_later;
			},
			'the later ones'),
		"$name: what is for later is handed out when its time has come");
	is($taken, $for_later, "$name: once");
	is($sql->("SELECT * FROM baton.check('orders')"), '', "$name: check finds nothing");
	is($owner->query("SELECT baton.create_queue('another')"), 't', "$name: another queue can be made");
	ok( wait_until(sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton' AND datname = '$database'") > 0 }, 'a worker'),
		"$name: workers come by themselves");
	return;
}

# what, format, node, database, command
for (
	[ 'new cluster', 'plain', $target, 'plain', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/plain.sql" ],
	[ 'new cluster', 'custom', $target, 'custom', 'pg_restore', '-j', '2', "$folder/custom.dump" ],
	[ 'new cluster', 'directory', $target, 'directory', 'pg_restore', '-j', '2', "$folder/directory" ],
	[ 'new cluster', 'inserts', $target, 'inserts', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-1', '-f', "$folder/inserts.sql" ],
	[ 'in place of a copy', 'custom', $target, 'custom', 'pg_restore', '--clean', '--if-exists', '-1', "$folder/custom.dump" ],
	[ 'other database', 'custom', $source, 'custom', 'pg_restore', '--exit-on-error', "$folder/custom.dump" ])
{
	my ($what, $format, $node, $database, @command) = @$_;
	# its own copies are later than itself, too
	if ($node == $source) { $source->append_conf('postgresql.conf', 'pg_baton.clock_offset = 0'); $source->reload; }
	if ($what =~ /in place/) { $node->safe_psql($database, "SELECT baton.drop_queue('another')"); }
	else { $node->safe_psql('postgres', "CREATE DATABASE $database"); }
	my ($status, undef, $err) = run_tool($node, @command, '-d', $database);
	is($status, 0, "$what, $format: restores without an error") or diag($err);
	restored($node, $database, "$what, $format");
}
done_testing();
