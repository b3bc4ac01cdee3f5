# Dumps of a part of a database, and dumps made by those who are no superusers: what each has, what it takes to make one, and
# what becomes of it elsewhere. (What a whole dump has: 021_restore.pl.)
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('parts');
my $folder = $PostgreSQL::Test::Utils::tmp_check;
$node->safe_psql(
	'postgres', q{
	CREATE ROLE shop LOGIN; CREATE ROLE dumper LOGIN IN ROLE pg_read_all_data;
	GRANT CREATE ON SCHEMA baton_queue, public TO shop});
my $shop = session($node, user => 'shop');
$shop->query("SELECT baton.create_queue('orders', retention => '1 day')");
$shop->query('CREATE TABLE parcel (id integer PRIMARY KEY, weight integer)');
$shop->query('CREATE TABLE parcel_log (id integer, token baton.token)');
$shop->query(q{CREATE TRIGGER parcel_outbox AFTER INSERT ON parcel REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('orders')});
$shop->query('CREATE VIEW waiting AS SELECT id, state FROM baton_queue.orders');
$shop->query('INSERT INTO parcel SELECT n, n FROM generate_series(1, 20) n');
$shop->query("SELECT count(*) FROM baton.enqueue_batch('orders', array_fill('\"later\"'::jsonb, ARRAY[3]), delays => '{1 h}')");
$shop->query("SELECT baton.quarantine(token, 'broken') FROM baton.claim('orders', 'w', 1)");
$shop->query("SELECT baton.ack(token) FROM baton.claim('orders', 'w', 2)");
$shop->query("SELECT count(*) FROM baton.claim('orders', 'w', 3, '1 h')");

# dump(NAME, ARGUMENT, ...): the file; undef and the complaint when pg_dump fails
sub dump_to
{
	my ($name, @how) = @_;
	my ($status, undef, $err) = run_tool($node, 'pg_dump', '-f', "$folder/$name.sql", @how, 'postgres');
	return $status == 0 ? ("$folder/$name.sql", $err) : (undef, $err);
}

# restore(FILE, DATABASE, prepare => SQL, user => ...): makes the database; (exit status, complaint)
sub restore
{
	my ($file, $database, %opt) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, $opt{prepare}) if $opt{prepare};
	my ($status, undef, $err) = run_tool($node, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', $opt{user} // getpwuid($<), '-f', $file, '-d', $database);
	return ($status, $err);
}
my $counts = q{SELECT (SELECT count(*) FROM baton_queue.orders), (SELECT count(*) FROM baton.quarantined('orders')), (SELECT count(*) FROM public.parcel)};
my $all = $node->safe_psql('postgres', $counts);
is($all, '20|1|20', 'what there is');

# ---- who may dump
my ($file, $err) = dump_to('owner', '-U', 'shop');
is($file, undef, 'the owner of a queue cannot dump the database');
like($err, qr/permission denied for schema baton_data/, 'because nobody may name what is in baton_data');
(undef, $err) = dump_to('owner', '-U', 'shop', '-n', 'baton_data');
like($err, qr/permission denied for schema baton_data/, 'nor the segments alone');
($file, $err) = dump_to('reader', '-U', 'dumper');
ok(defined $file, 'a member of pg_read_all_data can') or diag($err);
my ($status) = restore($file, 'reader');
is($status, 0, 'it restores');
is($node->safe_psql('reader', $counts), $all, 'and has everything');
unlike(slurp_file($file), qr/COPY baton_internal.token_key/, 'but not the key of the tokens');
($status, $err) = restore($file, 'by_owner', user => 'shop', prepare => 'GRANT CREATE ON DATABASE by_owner TO shop');
isnt($status, 0, 'the owner of a queue cannot restore it');
like($err, qr/permission denied to create extension "pg_baton"/, 'because he cannot make the extension');

# ---- business tables alone, by their owner
($file, $err) = dump_to('business', '-U', 'shop', '-t', 'public.*');
ok(defined $file, '-t public.*, by the owner of the business tables') or diag($err);
($status, $err) = restore($file, 'business_alone', user => 'shop', prepare => 'GRANT CREATE ON SCHEMA public TO shop');
isnt($status, 0, 'what is built on pg_baton does not restore without it');
like($err, qr/(?:schema "baton" does not exist|baton\.token)/, 'and psql says so');
my $installed = q{CREATE EXTENSION pg_baton; GRANT CREATE ON SCHEMA baton_queue, public TO shop; SET SESSION AUTHORIZATION shop; SELECT baton.create_queue('orders')};
($status, $err) = restore($file, 'business', user => 'shop', prepare => $installed);
is($status, 0, 'with the extension and the queue it does') or diag($err);
is($node->safe_psql('business', $counts), '0|0|20', 'the rows are there, and no message');
is($node->safe_psql('business', "INSERT INTO parcel VALUES (21, 21); SELECT count(*) FROM baton.take('orders')"), 1, 'the outbox works');

# ---- the messages, by the owner of the queue: as new ones
my $columns = 'message_id, routing_key, message_class, headers, not_before, expires_at, payload, payload_bytes, payload_ref';
for ([ 'postgres', 'TO' ], [ 'business', 'FROM' ])
{
	my ($database, $way) = @$_;
	my $what = $way eq 'TO' ? "(SELECT $columns FROM baton_queue.orders ORDER BY id)" : "baton_queue.orders ($columns)";
	my ($status, undef, $err) = run_tool($node, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-U', 'shop', '-d', $database, '-c', "\\copy $what $way '$folder/orders.copy'");
	is($status, 0, "COPY $way the view, by the owner") or diag($err);
}
is($node->safe_psql('business', "SELECT count(*), count(*) FILTER (WHERE state = 'scheduled') FROM baton_queue.orders"), '20|3', 'all messages are there, those for later too');

# ---- the queues alone
($file, $err) = dump_to('queues', '-U', 'dumper', '-e', 'pg_baton', '-n', 'baton_data', '-n', 'baton_queue');
ok(defined $file, '-e pg_baton -n baton_data -n baton_queue') or diag($err);
($status, $err) = restore($file, 'queues');
is($status, 0, 'restores into an empty database') or diag($err);
is($node->safe_psql('queues', $counts =~ s/public\.parcel/pg_catalog.pg_am WHERE false/r), '20|1|0', 'with everything of the queues');
is($node->safe_psql('queues', q{SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace}), 0, 'and nothing else');
is($node->safe_psql('queues', q{SELECT string_agg(state, ' ') FROM baton.queues}), 'restored', 'idle');
is($node->safe_psql('queues', q{SELECT baton.adopt(); SELECT count(*) FROM baton.take('orders', 100)}), "1\n17", 'until it is adopted');

# ---- segments without definitions, definitions without messages, structure without data
($file) = dump_to('segments', '-n', 'baton_data');
($status, $err) = restore($file, 'segments_alone');
like($err, qr/schema "baton_data" does not exist/, '-n baton_data is nothing by itself');
($status, $err) = restore($file, 'segments', prepare => $installed =~ s/; SET SESSION.*//r);
is($status, 0, 'with the extension it restores') or diag($err);
is($node->safe_psql('segments', 'SELECT count(*) FROM baton.queues'), 0, 'to tables of no queue');
is($node->safe_psql('segments', q{SELECT string_agg(kind || ' ' || object, ', ') FROM baton.uninstall() WHERE detail = 'of no queue'}),
	'segment baton_data.q1_0, segment baton_data.q1_1, segment baton_data.q1_2, sequence baton_data.q1_id', 'which uninstall lists');
is($node->safe_psql('segments', q{SELECT baton.create_queue('orders'); SELECT count(*) FROM baton.enqueue('orders', '1'); SELECT count(*) FROM baton.take('orders', 10)}),
	"t\n1\n1", 'and which are in nobody\'s way');

($file, $err) = dump_to('without', '-N', 'baton_data', '-N', 'baton_queue');
ok(defined $file, '-N baton_data -N baton_queue') or diag($err);
($status, $err) = restore($file, 'without');
like($err, qr/relation "baton_queue\.orders" does not exist/, 'a view on a queue is missed');
$node->safe_psql('postgres', 'DROP VIEW waiting');
($file) = dump_to('without', '-N', 'baton_data', '-N', 'baton_queue');
($status, $err) = restore($file, 'without_messages');
is($status, 0, 'without one it restores') or diag($err);
is($node->safe_psql('without_messages', 'SELECT count(*) FROM baton.queues'), 0, 'no queue is there');
like($node->safe_psql('without_messages', "SELECT detail FROM baton.health WHERE item = 'views'"), qr/baton_queue\.orders/, 'health says what is missing');
is($node->safe_psql('without_messages', "SELECT baton.drop_queue('orders', discard => true)"), 't', 'what is left is dropped');
is($node->safe_psql('without_messages', "SELECT baton.create_queue('orders'); SELECT count(*) FROM baton.enqueue('orders', '1'); SELECT count(*) FROM baton.take('orders')"),
	"t\n1\n1", 'and a new one of that name works');

($file) = dump_to('structure', '-s');
# or the outbox would enqueue for each row of the business table that comes in
my ($data) = dump_to('data', '-a', '--disable-triggers');
($status, $err) = restore($file, 'structure');
is($status, 0, '-s restores') or diag($err);
like($node->safe_psql('structure', q{SELECT string_agg(kind || ' ' || object, ', ') FROM baton.uninstall() WHERE action = 'in the way'}), qr/view baton_queue\.orders/,
	'to views and tables of no queue: the definitions are data');
($status, undef, $err) = run_tool($node, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $data, '-d', 'structure');
is($status, 0, '-a --disable-triggers makes it whole') or diag($err);
is($node->safe_psql('structure', $counts), '20|1|20', 'everything is there');
is($node->safe_psql('structure', q{SELECT * FROM baton.check('orders')}), '', 'check finds nothing');
is($node->safe_psql('structure', q{SELECT baton.adopt(); SELECT count(*) FROM baton.take('orders', 100)}), "1\n17", 'and it works');

# ---- without owners and privileges
($file) = dump_to('bare', '--no-owner', '--no-acl');
($status, $err) = restore($file, 'bare');
is($status, 0, '--no-owner --no-acl restores') or diag($err);
my $me = $node->safe_psql('bare', 'SELECT current_user');
is($node->safe_psql('bare', 'SELECT owner, state FROM baton.queues'), "$me|restored", 'queues belong to who restored them');
is($node->safe_psql('bare', q{SELECT baton.adopt(); SELECT count(*) FROM baton.take('orders', 100)}), "1\n17", 'and work');
done_testing();
