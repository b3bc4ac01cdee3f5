# Logical replication of a whole database to another cluster, as for a change of major version: what would be dropped from
# the stream is refused; what arrives is another cluster's work until it is activated; nothing is worked off on both sides.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $old = new_node('blue', streaming => 'logical', conf => "max_worker_processes = 20\npg_baton.rotate_min_interval = 0\npg_baton.rotate_grace = 0\n");
my $new = new_node('green', streaming => 'logical', conf => "max_worker_processes = 20\n");
my ($o, $n) = map { session($_) } $old, $new;
for my $s ($o, $n)
{
	$s->query("SELECT baton.create_queue('keyed', replicable => true, backoff => '0 s', segments => 2)");
	$s->query("SELECT baton.create_queue('plain', segments => 2)");
	$s->query("SELECT baton.create_queue('turning', replicable => true, segments => 2, segment_bytes => 65536)");
	$s->query('CREATE TABLE effect (id bigint PRIMARY KEY, by text)');
}

# ---- published for deletes without an identity
$o->query("SELECT count(*) FROM baton.enqueue_batch('plain', '{1,2,3}')");
my $token = $o->query("SELECT token FROM baton.claim('plain', lease => '1 h')");
$o->query('CREATE PUBLICATION everything FOR ALL TABLES');
refused_with($o, "SELECT baton.ack('$token')", '55000', 'under FOR ALL TABLES an ack without replica identity is refused');
refused_with($o, "SELECT outcome FROM baton.settle(ARRAY['$token'], '{ack}')", '55000', 'in the form that reports too');
refused_with($o, "SELECT baton.quarantine('$token')", '55000', 'and a quarantine');
refused_with($o, "SELECT id FROM baton.take('plain')", '55000', 'and a take');
is($o->query("SELECT state FROM baton_queue.plain WHERE lease_until > now() + interval '30 min'"), 'claimed', 'the claim is as it was');
is($o->query("SELECT state FROM baton.health WHERE item = 'publication'"), 'error', 'health says so');
is_sound($old, 'plain');
$o->query('DROP PUBLICATION everything');
$o->query('CREATE PUBLICATION inserts FOR ALL TABLES WITH (publish = $$insert$$)');
is($o->query("SELECT baton.ack('$token')"), 'acked', 'where deletes are not published it works');
$o->query('DROP PUBLICATION inserts');

# ---- a queue with a key
$o->query("CREATE PUBLICATION work FOR TABLES IN SCHEMA baton_data, TABLE effect");
$o->query("SELECT count(*) FROM baton.enqueue_batch('keyed', array_fill('{\"a\": 1}'::jsonb, ARRAY[20]))");
my $connection = $old->connstr('postgres');
$n->query("CREATE SUBSCRIPTION green CONNECTION \$\$$connection\$\$ PUBLICATION work");
ok(wait_until(sub { $n->query('SELECT count(*) FROM baton_queue.keyed') == 20 }, 'the copy'), 'the messages arrive');
is($n->query("SELECT string_agg(DISTINCT state, ' ') FROM baton_queue.keyed"), 'foreign', "and are another cluster's");
is($n->query("SELECT count(*) FROM baton.claim('keyed', 'w', 100)"), 0, 'nobody here gets them');
is($n->query("SELECT count(*) FROM baton.take('keyed', 100)"), 0, 'nor by take');

sub work
{
	my ($s, $by, $count) = @_;
	return $s->query("WITH m AS (SELECT token, id FROM baton.claim('keyed', '$by', $count, '1 h')), e AS (INSERT INTO effect SELECT id, '$by' FROM m RETURNING id)"
		  . " SELECT count(*) FROM m, e WHERE m.id = e.id AND baton.ack(m.token) = 'acked'");
}
is(work($o, 'blue', 5), 5, 'five are worked off at the publisher');
ok(wait_until(sub { $n->query('SELECT count(*) FROM baton_queue.keyed') == 15 && $n->query('SELECT count(*) FROM effect') == 5 }, 'the deletes'), 'and go from the subscriber, their effects come');
$o->query("SELECT count(*) FROM baton.enqueue_batch('keyed', array_fill('2'::jsonb, ARRAY[5]))");
ok(wait_until(sub { $n->query('SELECT count(*) FROM baton_queue.keyed') == 20 }, 'five more'), 'five more arrive');
is_sound($old, 'keyed');

# ---- a segment that is reclaimed at the publisher is not emptied at the subscriber: what it holds there is not the same work
$n->query("INSERT INTO baton_data.q3_0 (id, payload) VALUES (1000000, '1')");
$o->query("SELECT count(*) FROM baton.enqueue_batch('turning', array_fill(to_jsonb(repeat('x', 700)), ARRAY[500]))");
1 while $o->query("SELECT count(*) FROM baton.take('turning', 1000)") > 0;
$o->query("SET pg_baton.clock_offset = '1h'");
my $epoch = "SELECT epoch FROM baton_internal.map_meta('baton_data.q3_0')";
my $before = $o->query($epoch);
ok(wait_until(sub { $o->query("SELECT baton_internal.rotate('turning')"); $o->query($epoch) > $before }, 'the rotation'), 'a segment is reclaimed at the publisher');
$o->query('RESET pg_baton.clock_offset');
$old->wait_for_catchup('green', 'replay', $o->query('SELECT pg_current_wal_insert_lsn()'));
is($n->query('SELECT string_agg(id::text, $$ $$) FROM baton_data.q3_0'), '1000000', 'at the subscriber only what was settled has gone');

# ---- the change: claims stop here, what is under way is finished or given back, and then it goes on there
my $late = $o->query("SELECT token FROM baton.claim('keyed', 'blue', lease => '1 h')");
$old->append_conf('postgresql.conf', 'pg_baton.claims = off');
$old->reload;
ok(wait_until(sub { $o->query("SELECT count(*) FROM baton.claim('keyed')") == 0 }, 'claims to stop'), 'pg_baton.claims = off at the publisher');
is($o->query("SELECT baton.ack('$late')"), 'acked', 'what is under way is settled');
$o->query("INSERT INTO effect VALUES (0, 'blue')");
my $lsn = $o->query('SELECT pg_current_wal_lsn()');
$old->wait_for_catchup('green', 'replay', $lsn);
$n->query('DROP SUBSCRIPTION green');
my $left = $n->query('SELECT count(*) FROM baton_queue.keyed');
is($left, 19, 'what is left has arrived');
# ids are given out by a sequence, which logical replication does not carry
$n->query("SELECT setval('baton_data.q1_id', (SELECT max(id) FROM baton_queue.keyed))");
# (slots of rows that were deleted before are among them, and are cleared by the next look)
cmp_ok($n->query("SELECT baton.activate('keyed')"), '>=', 19, 'activate');
my $id = $n->query("SELECT id FROM baton.enqueue('keyed', '3')");
cmp_ok($id, '>', 25, 'new ids are above those that arrived');
is($n->query("SELECT outcome FROM baton.settle(ARRAY['$late'], '{ack}')"), 'invalid_token', 'a token of the publisher is refused');
my $done = 0;
wait_until(sub { $done += work($n, 'green', 100); $done >= 20 }, 'all to be worked off');
is($done, 20, 'everything else is worked off here');
is($n->query("SELECT count(*) || ' ' || count(DISTINCT id) FROM effect WHERE id > 0"), '25 25', 'each message once, on one side or the other');
is_sound($new, 'keyed');
done_testing();
