# Dumps carry the work and not the leases. Restored into another cluster or another database, every message is there once,
# nothing is handed out before adopt(), tokens of the original are refused, and ids and fencing numbers go on upward.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use utf8;

my $roles = 'CREATE ROLE shop LOGIN; CREATE ROLE worker LOGIN; CREATE ROLE support LOGIN;';
my $source = new_node('source');
my $odd = 'My "Queue" 😀';
(my $quoted = $odd) =~ s/"/""/g;
$source->safe_psql('postgres', "$roles GRANT CREATE ON SCHEMA baton_queue TO shop");
my $s = session($source, user => 'shop');
$s->query("SELECT baton.create_queue('orders', lease => '45 s', max_attempts => 7, segments => 4)");
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
my @owed = map { $source->safe_psql('postgres', $_) } $messages, $aside, $said;
is(scalar(split /\n/, $owed[0]), 20 + 5 + 1 + 1 + 1 - 2 - 2, 'the dump owes so many messages');

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
# Fencing numbers begin with an epoch that is not below the clock in seconds. Here maps are built faster than one a second.
wait_until(sub { time() - 946684800 > ($later >> 32) }, 'the clock to pass the epochs of the original');

my $target = new_node('target', extension => 0, conf => 'max_worker_processes = 32');
$target->safe_psql('postgres', $roles);

# restored(NODE, DATABASE, NAME): everything that must be true of a copy
sub restored
{
	my ($node, $database, $name) = @_;
	my $sql = sub { return $node->safe_psql($database, $_[0]) };
	my @got = map { $sql->($_) } $messages, $aside, $said;
	is($got[0], $owed[0], "$name: every message is there once");
	is($got[1], $owed[1], "$name: the quarantined ones too");
	is($got[2], $owed[2], "$name: and what was said about them");
	is($sql->("SELECT string_agg(DISTINCT state, ' ') FROM baton_queue.orders"), 'ready scheduled', "$name: no lease has come along");
	is($sql->("SELECT count(*) FROM baton_queue.orders WHERE state = 'scheduled'"), 5, "$name: what was enqueued for later is for later");
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
	is($w->query("SELECT count(*), count(DISTINCT id), min(failures), max(failures) FROM got"), '19|19|0|0', "$name: everything that is due is handed out once");
	cmp_ok($w->query('SELECT min(fence) FROM got'), '>', $later, "$name: with higher fencing numbers than any that the original has given out");
	is($w->query('SELECT baton.ack_batch((SELECT array_agg(token) FROM got))'), 19, "$name: and settled");
	is(session($node, database => $database, user => 'shop')->query("SELECT count(*) FROM baton.take('$odd')"), 1, "$name: from a queue with any name");
	is($sql->("SELECT * FROM baton.check('orders')"), '', "$name: check finds nothing");
	is($owner->query("SELECT baton.create_queue('another')"), 't', "$name: another queue can be made");
	ok( wait_until(sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton' AND datname = '$database'") > 0 }, 'a worker'),
		"$name: workers come by themselves");
	return;
}

for my $where ([ $target, 'new cluster' ], [ $source, 'other database' ])
{
	my ($node, $what) = @$where;
	for (
		[ 'plain', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/plain.sql" ],
		[ 'custom', 'pg_restore', '--exit-on-error', "$folder/custom.dump" ],
		[ 'directory', 'pg_restore', '-j', '2', "$folder/directory" ],
		[ 'inserts', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-1', '-f', "$folder/inserts.sql" ])
	{
		my ($format, @command) = @$_;
		next if $what eq 'other database' && $format !~ /custom/;
		$node->safe_psql('postgres', "CREATE DATABASE $format");
		my ($status, undef, $err) = run_tool($node, @command, '-d', $format);
		is($status, 0, "$what, $format: restores without an error") or diag($err);
		restored($node, $format, "$what, $format");
	}
}

# ---- parts of a database
my ($status, $out, $err) = run_tool($source, 'pg_dump', '-n', 'public', 'postgres');
is($status, 0, '-n public');
unlike($out, qr/baton_/, '-n public: nothing of the queues');
($status, undef, $err) = run_tool($source, 'pg_dump', '-N', 'baton_data', '-N', 'baton_queue', '-f', "$folder/without.sql", 'postgres');
is($status, 0, '-N baton_data -N baton_queue') or diag($err);
$target->safe_psql('postgres', 'CREATE DATABASE without');
($status, undef, $err) = run_tool($target, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$folder/without.sql", '-d', 'without');
is($status, 0, '-N: restores without an error') or diag($err);
is($target->safe_psql('without', 'SELECT count(*) FROM baton.queues'), 0, '-N: no queue is there');
like($target->safe_psql('without', "SELECT detail FROM baton.health WHERE item = 'views'"), qr/baton_queue\.orders/, '-N: health says what is missing');
is($target->safe_psql('without', "SELECT baton.drop_queue('orders', discard => true)"), 't', '-N: what is left is dropped');
is($target->safe_psql('without', "SELECT baton.create_queue('orders'); SELECT count(*) FROM baton.enqueue('orders', '1'); SELECT count(*) FROM baton.take('orders')"),
	"t\n1\n1", '-N: and a new one of that name works');
done_testing();
