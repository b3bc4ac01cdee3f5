# Three hundred queues where shared memory has room for the hints of a few: hints are given up and made again all the time,
# which may cost a look more, and never a message or a token. A dump of all of them works with default settings.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $queues = 300;
my $node = new_node(
	'many', conf => q{
pg_baton.max_lanes = 64
pg_baton.max_queues = 64
pg_baton.sweep_interval = 1s
pg_baton.mover_naptime = 100ms
autovacuum = off
});
my $s = session($node);
# each in a transaction of its own, in one round trip
$s->query(join ";\n", map { "SELECT baton.create_queue('queue $_', segments => 2, backoff => '0 s', max_attempts => 1000)" } 1 .. $queues);
is($s->query('SELECT count(*) FROM baton.queues'), $queues, "$queues queues");
$s->query("CREATE TABLE effect (queue text, id bigint)");
$s->query("SELECT count(*) FROM generate_series(1, $queues) n, baton.enqueue_batch('queue ' || n, '{1,2,3,4}')");
is($s->query('SELECT sum(ready) FROM baton.queue_stats'), 4 * $queues, 'four messages in each');

# Workers that each hold a claim while others, and they themselves, push its lane's hints out; every token must settle.
my $body = sub {
	my ($worker) = @_;
	srand($worker);
	my $w = session($node, name => "worker $worker");
	my (%held, $refused);
	for my $round (1 .. 500)
	{
		my $n = 1 + int rand $queues;
		if (my $token = delete $held{$n})
		{
			my $verb = rand() < 0.3 ? 'release_unfailed' : 'ack';
			my $outcome = $w->query("WITH s AS (SELECT outcome FROM baton.settle(ARRAY['$token->[0]'], '{$verb}', '{0 s}')), e AS"
				  . " (INSERT INTO effect SELECT 'queue $n', $token->[1] FROM s WHERE outcome = 'acked') SELECT outcome FROM s");
			$refused .= "$n: $outcome " unless $outcome =~ /^(acked|released)$/;
		}
		my $got = $w->query("SELECT token, id FROM baton.claim('queue $n', 'w$worker', lease => '1 h')");
		$held{$n} = [ split /\|/, $got ] if $got ne '';
	}
	for my $n (keys %held)
	{
		my $outcome = $w->query("SELECT outcome FROM baton.settle(ARRAY['$held{$n}[0]'], '{release_unfailed}', '{0 s}')");
		$refused .= "$n: $outcome " unless $outcome eq 'released';
	}
	append_to_file("$PostgreSQL::Test::Utils::tmp_check/many.refused", $refused) if $refused;
	return $refused ? 1 : 0;
};
my @workers = map { my $i = $_; background(sub { $body->($i) }) } 1 .. 4;
is(scalar(reap(@workers)), 0, 'every token that was held while its hints went settles');
my $refused = "$PostgreSQL::Test::Utils::tmp_check/many.refused";
diag(slurp_file($refused)) if -e $refused;

# a waiter of a queue whose counters may have been given up as well
my $w = session($node, name => 'waiter');
$s->query("SELECT count(*) FROM baton.take('queue 250', 10)");
$w->send("CALL baton.wait('queue 250', '3 min')");
$s->query("SELECT count(*) FROM generate_series(1, $queues) n, LATERAL (SELECT baton.why_empty('queue ' || n)) y");
$s->query("SELECT id FROM baton.enqueue('queue 250', '\"woken\"')");
is($w->answer->rows, 'ready', 'a waiter is woken');

# ---- the dump
my $owed = q{SELECT md5(string_agg(q.name || m.ids, ' ' ORDER BY q.name)) FROM baton.queues q,
	LATERAL (SELECT COALESCE(string_agg(id::text, ',' ORDER BY id), '-') AS ids FROM messages(q.name)) m};
my $messages = q{CREATE FUNCTION messages(queue text) RETURNS TABLE (id bigint) LANGUAGE plpgsql AS
	'BEGIN RETURN QUERY EXECUTE format(''SELECT id FROM baton_queue.%I'', queue); END'};
$s->query($messages);
my $before = $s->query($owed);
my $file = "$PostgreSQL::Test::Utils::tmp_check/many.dump";
my ($status, undef, $err) = run_tool($node, 'pg_dump', '-Fc', '-Z', '0', '-f', $file, 'postgres');
is($status, 0, "pg_dump of $queues queues") or diag($err);
$node->safe_psql('postgres', 'CREATE DATABASE copy');
($status, undef, $err) = run_tool($node, 'pg_restore', '--exit-on-error', '-d', 'copy', $file);
is($status, 0, 'pg_restore') or diag($err);
is($node->safe_psql('copy', $owed), $before, 'every message of every queue is there');
is($node->safe_psql('copy', 'SELECT baton.adopt()'), $queues, 'all of them are adopted');

# ---- everything is found in the end
my %left = map { $_ => 1 } 1 .. $queues;
wait_until(
	sub {
		for my $n (sort { $a <=> $b } keys %left)
		{
			$s->query("INSERT INTO effect SELECT 'queue $n', id FROM baton.take('queue $n', 100)");
			delete $left{$n} if $s->query(qq{SELECT count(*) FROM baton_queue."queue $n"}) == 0;
		}
		return !%left;
	},
	'every queue to be empty') or diag(join ' ', keys %left);
is($s->query("SELECT count(*) - count(DISTINCT (queue, id)) FROM effect"), 0, 'no message twice');
is($s->query("SELECT count(*) FROM effect WHERE queue <> 'queue 250'"), 4 * ($queues - 1), 'and none missing');
is($s->query("SELECT string_agg(c.problem, ' ') FROM generate_series(1, $queues) n, baton.check('queue ' || n) c"), '', 'check finds nothing in any queue');
is(server_crashes($node), 0, 'nothing crashed');
done_testing();
