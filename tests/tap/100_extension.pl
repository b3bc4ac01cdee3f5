# The extension comes and goes: workers are there where it is, and nowhere else, whatever way it came or went, and whichever
# of those were rolled back. They never stand in the way of the command.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('extension', conf => "max_worker_processes = 24\nlog_min_messages = debug1\npg_baton.launcher_naptime = 100ms\npg_baton.mover_naptime = 50ms\npg_baton.retention_naptime = 50ms\n");
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
# the database that things happen in
$sql->('CREATE DATABASE there');
my $s = session($node, database => 'there');
my $launcher = $sql->("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_baton launcher'");

# A probe is over in no time; the log says that it was started.
my $probed = 0;
sub probes { my @all = slurp_file($node->logfile) =~ /starting background worker process "pg_baton mover there"/g; return scalar @all; }
$probed = probes();

# ---- CREATE EXTENSION
$s->query('BEGIN');
$s->query('CREATE EXTENSION pg_baton');
$s->query('ROLLBACK');
is(workers_of($node, 'there'), '', 'CREATE EXTENSION, rolled back: no workers');
$s->query('BEGIN');
$s->query('SAVEPOINT one');
$s->query('CREATE EXTENSION pg_baton');
$s->query('ROLLBACK TO one');
$s->query('CREATE TABLE other (id int)');
$s->query('COMMIT');
ok(wait_until(sub { probes() > $probed }, 'a probe'), 'rolled back to a savepoint: a look');
ok(wait_for_workers($node, 'there', ''), 'and no workers');
$s->query('CREATE EXTENSION pg_baton');
ok(wait_for_workers($node, 'there'), 'CREATE EXTENSION, committed: both workers are there');
ok(work_goes_on($node, 'there'), 'and work');

# ---- DROP EXTENSION, by all its names
$s->query("SELECT baton.create_queue('q', backoff => '0 s')");
my %pid = map { split /\|/ } split /\n/, $sql->("SELECT backend_type, pid FROM pg_stat_activity WHERE datname = 'there' AND backend_type ~ '^pg_baton'");
$s->query('BEGIN');
$s->query('DROP EXTENSION pg_baton CASCADE');
# Their steps find the extension locked and do not wait for it.
is($sql->("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.datname = 'there' AND a.backend_type ~ 'pg_baton' AND NOT l.granted"),
	0, 'DROP EXTENSION, open: no worker waits');
$s->query('ROLLBACK');
ok(work_goes_on($node, 'there'), 'rolled back: work goes on');
is_deeply(
	{ map { split /\|/ } split /\n/, $sql->("SELECT backend_type, pid FROM pg_stat_activity WHERE datname = 'there' AND backend_type ~ '^pg_baton'") },
	\%pid, 'by the same processes');
is(session($node, database => 'there')->query("SELECT id FROM baton.enqueue('q', '1')"), 1, 'and so do verbs');

$sql->('CREATE ROLE owner SUPERUSER');
for (
	[ 'DROP EXTENSION', 'DROP EXTENSION pg_baton CASCADE' ],
	[ 'DROP EXTENSION in a transaction with CREATE', 'BEGIN', 'DROP EXTENSION pg_baton CASCADE', 'CREATE EXTENSION pg_baton', 'COMMIT', 'DROP EXTENSION pg_baton CASCADE' ],
	[ 'DROP OWNED', 'DROP OWNED BY owner CASCADE' ],
	[ 'CASCADE from another extension', 'DROP EXTENSION plpgsql CASCADE', 'CREATE EXTENSION plpgsql' ])
{
	my ($name, @commands) = @$_;
	my $f = session($node, database => 'there');
	if ($f->query("SELECT count(*) FROM pg_extension WHERE extname = 'pg_baton'") == 0)
	{
		$f->query('SET ROLE owner');
		$f->query('CREATE EXTENSION pg_baton');
		$f->query('RESET ROLE');
	}
	ok(wait_for_workers($node, 'there'), "$name: there are workers");
	ok(work_goes_on($node, 'there'), "$name: which work");
	$f->query($_) for @commands;
	ok(wait_for_workers($node, 'there', ''), "$name: they leave");
}

# Nobody is sent there again to look, though the launcher looks at the databases all the time.
$probed = probes();
my $looks = q{SELECT runs FROM baton_internal.worker_status() WHERE worker = 'launcher' AND step = 'databases'};
my $before = $sql->($looks);
ok(wait_until(sub { $sql->($looks) > $before + 5 }, 'the launcher'), 'the launcher goes on');
is(probes(), $probed, 'and sends nobody where the extension is not');

# ---- prepared: whoever commits it later calls nobody
$s = session($node, database => 'there');
$probed = probes();
$s->query('BEGIN');
$s->query('CREATE EXTENSION pg_baton');
$s->query("PREPARE TRANSACTION 'create'");
# the look at PREPARE finds nothing yet
ok(wait_until(sub { probes() > $probed }, 'a probe'), 'CREATE EXTENSION, prepared: not there yet');
ok(wait_for_workers($node, 'there', ''), 'no workers');
session($node, database => 'there')->query("COMMIT PREPARED 'create'");
ok(wait_for_workers($node, 'there'), 'COMMIT PREPARED: both workers are there');
$s->query('BEGIN');
$s->query('DROP EXTENSION pg_baton CASCADE');
$s->query("PREPARE TRANSACTION 'drop'");
session($node, database => 'there')->query("ROLLBACK PREPARED 'drop'");
ok(work_goes_on($node, 'there'), 'DROP EXTENSION, prepared and rolled back: work goes on');
$s->query('BEGIN');
$s->query('DROP EXTENSION pg_baton CASCADE');
$s->query("PREPARE TRANSACTION 'drop'");
session($node, database => 'there')->query("COMMIT PREPARED 'drop'");
ok(wait_for_workers($node, 'there', ''), 'and committed: they leave');

# ---- the SQL of a later version than the library
my $scripts = extension_folder($node);
SKIP:
{
	skip 'this PostgreSQL loads no staged extension', 8 unless defined $scripts;
	$s = session($node, database => 'there');
	$s->query('CREATE EXTENSION pg_baton');
	$s->query("SELECT baton.create_queue('q', backoff => '0 s')");
	wait_for_workers($node, 'there');
	my $version = $s->query("SELECT extversion FROM pg_extension WHERE extname = 'pg_baton'");
	my @scripts = map { "$scripts/pg_baton--$_.sql" } "$version--99.0.0", "99.0.0--$version";
	append_to_file($_, "SELECT 1;\n") for @scripts;
	$s->query("ALTER EXTENSION pg_baton UPDATE TO '99.0.0'");
	unlink $scripts[0];
	my $standing = q{SELECT count(DISTINCT w.worker) FROM baton_internal.worker_status() w JOIN pg_database d ON d.oid = w.database
		WHERE d.datname = 'there' AND w.state = 'standing by'};
	ok(wait_until(sub { $s->query($standing) == 2 }, 'both to stand by'), 'SQL newer than the library: the workers stand by');
	my $log = slurp_file($node->logfile);
	my @warnings = $log =~ /WARNING:.*newer than the loaded library/g;
	is(scalar @warnings, 1, 'and say so once');
	like($log, qr/HINT:  Restart the server to load the newer library/, 'with what to do');
	is($s->query("SELECT string_agg(DISTINCT state, ' ') FROM baton.health WHERE item IN ('mover', 'retention')"), 'error', 'health says it for as long as it is so');
	like($s->query("SELECT detail FROM baton.health WHERE item = 'mover'"), qr/restart the server/, 'and what to do');
	is($s->query("SELECT id FROM baton.enqueue('q', '1')"), 1, 'verbs go on as far as they know what they find');
	is($s->query("SELECT baton.ack((SELECT token FROM baton.claim('q')))"), 'acked', 'claims, too');
	$s->query("ALTER EXTENSION pg_baton UPDATE TO '$version'");
	unlink $scripts[1];
	ok(work_goes_on($node, 'there'), 'once they fit again, work goes on');
}

is($sql->("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_baton launcher'"), $launcher, 'all under one launcher');
is(server_crashes($node), 0, 'nothing crashed');
my @errors = grep { /pg_baton (?:mover|retention|launcher)/ && /ERROR|FATAL|WARNING/ } split /\n/, slurp_file($node->logfile);
is("@errors", '', 'no worker has met an error');
done_testing();
