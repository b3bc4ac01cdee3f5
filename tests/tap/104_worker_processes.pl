# Too few worker processes for all databases: said once, movers first, databases take turns, and when there is room again
# everybody has workers, which is said once as well. Others' use of the processes does not matter more than ours.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# One process is the launcher's, one that of logical replication: three are left for workers. A turn lasts as long as the
# launcher's nap.
my @databases = map { "d$_" } 1 .. 4;
my $node = new_node(
	'few', extension => 0,
	conf => "max_worker_processes = 5\nautovacuum = off\npg_baton.launcher_naptime = 300ms\npg_baton.mover_naptime = 50ms\npg_baton.retention_naptime = 50ms\n");
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $log = sub { my ($what) = @_; my @all = slurp_file($node->logfile) =~ /$what/g; return scalar @all; };
my ($full, $enough) = (qr/LOG:  pg_baton found no free background worker for database/, qr/LOG:  pg_baton has workers for all its databases again/);

$sql->("CREATE DATABASE $_") for @databases;
# one database fits
$node->safe_psql('d1', 'CREATE EXTENSION pg_baton');
ok(wait_for_workers($node, 'd1'), 'one database has both workers');
is($log->($full), 0, 'nothing to be said');

# ---- four do not
$node->safe_psql($_, 'CREATE EXTENSION pg_baton') for @databases[ 1 .. 3 ];
my (%turns, %last);
ok( wait_until(
		sub {
			my %now = map { split /\|/ } split /\n/, $sql->("SELECT datname, pid FROM pg_stat_activity WHERE backend_type = 'pg_baton mover'");
			for (keys %now) { $turns{$_}++ if $now{$_} ne ($last{$_} // ''); $last{$_} = $now{$_}; }
			return !grep { ($turns{$_} // 0) < 2 } @databases;
		},
		'two turns for everybody'),
	'every database has its turn, and another');
is($log->($full), 1, 'the log says so once');
like(slurp_file($node->logfile), qr/Increase max_worker_processes by two for each database/, 'with what to do');
ok( wait_until(sub { $node->safe_psql('d1', "SELECT state, detail FROM baton.health WHERE item = 'launcher'") =~ /^warning\|.*max_worker_processes/ }, 'health to say so'),
	'health says so as long as it is so');
cmp_ok($sql->("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_baton (mover|retention)'"), '<=', 3, 'no more than there is room for');

# Work is done in all of them: a message whose only lease is over is quarantined though nobody claims.
for my $d (@databases)
{
	$node->safe_psql($d, q{SELECT baton.create_queue('q', max_attempts => 1, min_lease => '100 ms');
		SELECT id FROM baton.enqueue('q', '1'); SELECT id FROM baton.claim('q', lease => '100 ms')});
}
ok(wait_until(sub { $node->safe_psql($_, "SELECT count(*) FROM baton.quarantined('q')") == 1 }, "$_"), "$_: its mover has done its work") for @databases;

# ---- room again
$sql->("DROP DATABASE $_") for @databases[ 1 .. 3 ];
ok(wait_for_workers($node, 'd1'), 'with fewer databases the one that is left has both workers');
ok(wait_until(sub { $log->($enough) == 1 }, 'the log to say so'), 'and the log says so, once');
ok(work_goes_on($node, 'd1'), 'work goes on');
is($node->safe_psql('d1', "SELECT state FROM baton.health WHERE item = 'launcher'"), 'ok', 'health has nothing to say');
is($log->($full), 1, 'nothing else was said meanwhile');

# ---- others take the processes: parallel query, before ours are there
$node->stop;
$node->append_conf('postgresql.conf', "max_worker_processes = 2\n");
$node->start;
ok(wait_until(sub { $log->($full) == 2 }, 'the log to say so'), 'no process at all: the log says so once more');
is($node->safe_psql('d1', "SELECT state FROM baton.health WHERE item = 'mover'"), 'warning', 'health says that there is no mover');
is($node->safe_psql('d1', "SELECT id FROM baton.enqueue('q', '2'); SELECT count(*) FROM baton.take('q', 10)"), "2\n1", 'verbs do not need one');
$node->append_conf('postgresql.conf', "max_worker_processes = 3\n");
$node->restart;
ok(wait_for_workers($node, 'd1', 'mover'), 'one process: the mover has it');
my $rotated = q{SELECT count(*) FROM baton_internal.worker_status() WHERE worker = 'mover' AND step = 'rotate' AND last_success IS NOT NULL};
ok(wait_until(sub { $node->safe_psql('d1', $rotated) == 1 }, 'the mover to do the work of retention'), 'and does the other\'s work');
is(server_crashes($node), 0, 'nothing crashed');
done_testing();

