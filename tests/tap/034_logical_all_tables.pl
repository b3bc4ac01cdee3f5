# A publication FOR ALL TABLES and a subscriber that was made from the schema: business tables go on replicating whatever the
# queues do (enqueue, settle, retain, quarantine, schedule, move, truncate, drop), and what has arrived is worked off once, on one
# side or the other.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = "max_worker_processes = 20\nwal_retrieve_retry_interval = 100ms\npg_baton.rotate_min_interval = 0\npg_baton.move_after = 0\n"
  . "pg_baton.retention_naptime = 100ms\npg_baton.sweep_interval = 100ms\nautovacuum = off\n";
my $old = new_node('blue', streaming => 'logical', conf => $conf);
my $new = new_node('green', streaming => 'logical', conf => $conf, extension => 0);
my $o = session($old);
$o->query('CREATE TABLE business (id bigint PRIMARY KEY, what text)');
$o->query('CREATE TABLE effect (id bigint, by text)');
$o->query("SELECT baton.create_queue('q', replicable => true, segments => 2, segment_bytes => 65536, lease => '1 s', max_lease => '6 h', backoff => '0 s', retention => '7 h')");
$o->query("SELECT baton.create_queue('gone', replicable => true)");
my $schema = "$PostgreSQL::Test::Utils::tmp_check/schema.sql";
is((run_tool($old, 'pg_dump', '--schema-only', '-f', $schema, 'postgres'))[0], 0, 'the schema');
my ($status, undef, $err) = run_tool($new, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $schema, '-d', 'postgres');
is($status, 0, 'makes the subscriber') or diag($err);
$o->query('CREATE PUBLICATION everything FOR ALL TABLES');
$o->query("SELECT id FROM baton.enqueue('q', '\"before\"')");
my $connection = $old->connstr('postgres');
my $n = session($new);
$n->query("CREATE SUBSCRIPTION green CONNECTION \$\$$connection\$\$ PUBLICATION everything");

my $marks = 0;
# business goes on: a row that is written now arrives
sub business_goes_on
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$marks++;
	$o->query("INSERT INTO business VALUES ($marks, '$what')");
	return ok(wait_until(sub { $n->query("SELECT count(*) FROM business WHERE id = $marks") == 1 }, $what), "business tables go on replicating: $what");
}
# everything that has been published until now is there
sub caught_up { $old->wait_for_catchup('green', 'replay', $o->query('SELECT pg_current_wal_insert_lsn()')); return; }
sub take_all { 1 while $o->query("WITH m AS (INSERT INTO effect SELECT id, 'blue' FROM baton.take('q', 1000) RETURNING 1) SELECT count(*) FROM m") > 0; return; }
my $fill = "SELECT count(*) FROM baton.enqueue_batch('q', array_fill(to_jsonb(repeat('x', 700)), ARRAY[%d]))";

business_goes_on('at the start');
# (the tables of which both sides have rows of their own, such as the key of tokens, cannot be copied, and need not be)
ok(wait_until(sub { $n->query(q{SELECT count(*) FROM pg_subscription_rel s JOIN pg_class c ON c.oid = s.srrelid
	WHERE s.srsubstate <> 'r' AND c.relname NOT IN ('token_key', 'retained_note')}) == 0 }, 'the tables to be copied'), 'the tables are copied');
is($n->query("SELECT string_agg(DISTINCT state, ' ') FROM baton_queue.q"), 'foreign', 'what was in the queue is there, and foreign');

# ---- settled in every way
$o->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 9) i))");
my @claims = map { [ split /\|/ ] } split /\n/, $o->query("SELECT token, id FROM baton.claim('q', 'w', 4, '1 min')");
my @t = map { $_->[0] } @claims;
$o->query("SELECT count(*) FROM baton.claim('q', 'w', 1, '5 h')");
is($o->query("SELECT string_agg(outcome, ' ' ORDER BY ord) FROM baton.settle(ARRAY['$t[0]','$t[1]','$t[2]','$t[3]'], '{ack,quarantine,release,release}', '{0 s,0 s,0 s,30 s}')"),
	'acked quarantined released scheduled', 'settled in every way');
$o->query("INSERT INTO effect SELECT id, 'blue' FROM baton.quarantined('q')");  # for this test: it has had its end
$o->query("INSERT INTO effect SELECT $claims[0][1], 'blue'");
business_goes_on('messages are settled');

# ---- scheduled
$o->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 20) i), delays => '{1 h}')");
$o->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 10) i), delays => '{3 h}')");
business_goes_on('messages are scheduled');
caught_up();
is($n->query('SELECT count(*) FROM baton_internal.later_message'), 30, 'they wait there in the same buckets');

# ---- moved, their segments reclaimed
$o->query(sprintf $fill, 300);
$o->query(sprintf $fill, 20);
$o->query("SELECT count(*) FROM baton.claim('q', 'w', 3, '5 h')");
take_all();
my $left = "SELECT coalesce(sum(unsettled), 0) FROM baton.segments WHERE queue = 'q' AND state = 'draining'";
ok(wait_until(sub { $o->query($left) == 0 && $o->query("SELECT count(*) FROM baton_data.long_0") >= 4 }, 'the move'), 'claims move to a long segment');
business_goes_on('messages are moved');
$old->safe_psql('postgres', "ALTER SYSTEM SET pg_baton.clock_offset = '61 min'");
$old->reload;
$o->query("SET pg_baton.clock_offset = '61 min'");
ok(wait_until(sub { $o->query("SELECT count(*) FROM baton_internal.later_message") == 10 }, 'the mover'), 'scheduled messages come due');
ok(wait_until(sub { $o->query("SELECT count(*) FROM baton.segments WHERE queue = 'q' AND state = 'empty'") >= 1 }, 'the truncation'), 'a segment is reclaimed');
business_goes_on('a segment is reclaimed');
$o->query("SELECT count(*) FROM baton.claim('q', 'w', 5, '5 h')");
caught_up();
my $there = q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM baton_queue.q};
my $sum = q{SELECT count(*) || ' ' || count(DISTINCT id) || ' ' || sum(id) FROM baton_queue.q};
is($n->query($sum), $o->query($sum), 'the subscriber has the messages that are not settled, each once, wherever they were moved');
is($n->query("SELECT string_agg(DISTINCT state, ' ') FROM baton_queue.q WHERE state NOT IN ('foreign', 'scheduled')"), '', 'all are foreign, or not due');
is($n->query("SELECT count(*) FROM baton.take('q', 100)"), 0, 'and nobody gets them');
cmp_ok($n->query("SELECT sum(pg_relation_size(format('baton_data.retained_%s', n)::regclass)) FROM generate_series(0, 35) n"), '>', 0, 'retained messages come, too');

# ---- a queue is dropped with all it has
my $g = $o->query("SELECT token FROM baton.enqueue_batch('gone', '{1,2,3}') e, LATERAL (SELECT token FROM baton.claim('gone') OFFSET 0) c LIMIT 1");
$o->query("SELECT count(*) FROM baton.enqueue_batch('gone', '{1,2,3}')");
$g = $o->query("SELECT token FROM baton.claim('gone')");
$o->query("SELECT state FROM baton.release('$g', reason => 'evidence')");
$o->query("SELECT id FROM baton.enqueue('gone', '1', delay => '1 d')");
is($o->query("SELECT baton.drop_queue('gone', discard => true)"), 't', 'a queue is dropped');
business_goes_on('a queue is dropped');
$o->query("SELECT baton.fence('q')");
business_goes_on('a queue is fenced');

# ---- the change
$o->query("SELECT baton.pause('q')");
caught_up();
$n->query('DROP SUBSCRIPTION green');
is($n->query("SELECT baton.adopt('q')"), 1, 'adopted');
$n->query("SELECT baton.resume('q')");
cmp_ok($n->query("SELECT baton.activate('q')"), '>', 0, 'and activated');
cmp_ok($n->query("SELECT id FROM baton.enqueue('q', '\"new\"')"), '>', $o->query('SELECT last_value FROM baton_data.q1_id'), 'new ids are above all that arrived');
my $owed = $o->query('SELECT count(*) FROM baton_queue.q') + 1;
$new->safe_psql('postgres', "ALTER SYSTEM SET pg_baton.clock_offset = '5 h'");
$new->reload;
$n->query("SET pg_baton.clock_offset = '5 h'");
my $done = 0;
wait_until(sub { $done += $n->query("WITH m AS (INSERT INTO effect SELECT id, 'green' FROM baton.take('q', 100) RETURNING 1) SELECT count(*) FROM m"); $done >= $owed }, 'all to be worked off');
is($done, $owed, 'everything that was left is worked off here');
is($n->query(q{SELECT string_agg(id || ' ' || by, ', ') FROM effect WHERE id IN (SELECT id FROM effect GROUP BY id HAVING count(*) > 1)}), '', 'none twice');
is($n->query("SELECT count(*) || ' ' || count(DISTINCT id) FROM effect"), $n->query("SELECT max(id) || ' ' || max(id) FROM effect"), 'each message once, on one side or the other');
# (slots of rows that were deleted before are settled by the next look at them)
ok(wait_until(sub { $n->query("SELECT count(*) FROM baton.claim('q')"); $n->query("SELECT count(*) FROM baton.check('q')") == 0 }, 'the rest'), 'sound');
is_sound($old, 'q');
done_testing();
