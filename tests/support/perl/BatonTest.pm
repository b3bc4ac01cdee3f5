# What the TAP tests share. PostgreSQL::Test::Cluster makes the nodes; TEMP_CONFIG (set by tests/support/tap.sh) makes
# each of them find and preload the pg_baton under test.
package BatonTest;

use strict;
use warnings;
use BatonSession;
use Exporter 'import';
use IPC::Run ();
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(new_node standby_of catch_up wait_until kill_server crash_and_start come_back without_checksums server_crashes
  session background reap is_sound refused_with run_tool extension_folder workers_of wait_for_workers work_goes_on);

# new_node(NAME, option => value ...): a running node with the extension in database postgres.
#   conf => 'lines of postgresql.conf'    streaming => 1 (or 'logical')    extension => 0    start => 0
#   checksums => 1: pages carry checksums
#   fsync => 1: for tests that pull the plug; nodes have it off by default
# The server comes back by itself after a crash of a backend, unlike PostgreSQL's own test nodes.
sub new_node
{
	my ($name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(
		allows_streaming => $opt{streaming} // 0,
		extra => [ '--locale=C.UTF-8', '-E', 'UTF8', $opt{checksums} ? '-k' : () ]);
	$node->append_conf('postgresql.conf', "restart_after_crash = on\n");
	$node->append_conf('postgresql.conf', "fsync = on\n") if $opt{fsync};
	$node->append_conf('postgresql.conf', $opt{conf}) if defined $opt{conf};
	return $node if defined $opt{start} && !$opt{start};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_baton') unless defined $opt{extension} && !$opt{extension};
	return $node;
}

# standby_of(PRIMARY, NAME, conf => ...): a running streaming standby; PRIMARY was made with streaming => 1
sub standby_of
{
	my ($primary, $name, %opt) = @_;
	my $backup = "for_$name";
	$primary->backup($backup);
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, $backup, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $opt{conf}) if defined $opt{conf};
	$standby->start;
	return $standby;
}

# catch_up(PRIMARY, STANDBY): everything logged so far is replayed, also what no commit has flushed yet
sub catch_up
{
	my ($primary, $standby) = @_;
	my $lsn = $primary->safe_psql('postgres', "SELECT pg_logical_emit_message(true, 'baton', 'catch up')");
	$primary->wait_for_catchup($standby, 'replay', $lsn);
	return;
}

# session(NODE, name => ..., database => ..., user => ...): a session that stays open (BatonSession)
sub session { my ($node, @opt) = @_; return BatonSession->new($node, @opt) }

# background(CODE): runs CODE in a process of its own, which ends with what it returns; its id. The process runs none of
# the test's END blocks: nodes belong to the test alone.
sub background
{
	my ($code) = @_;
	my $pid = fork() // die "fork: $!";
	return $pid if $pid;
	my $status = eval { $code->() };
	warn $@ if $@;
	POSIX::_exit($@ ? 99 : $status // 0);
}

# reap(PID, ...): waits for them, with a deadline; those that failed
sub reap
{
	my @failed;
	for my $pid (@_)
	{
		my $done = 0;
		wait_until(sub { $done = waitpid($pid, POSIX::WNOHANG()); $done != 0 }, "process $pid to end") or kill 'KILL', $pid;
		push @failed, $pid if $done != $pid || $? != 0;
	}
	return @failed;
}

# is_sound(NODE, QUEUE, NAME): a test: slots and rows agree
sub is_sound
{
	my ($node, $queue, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $quoted = $queue =~ s/'/''/gr;
	is($node->safe_psql('postgres', "SELECT * FROM baton.check('$quoted')"), '', $name // "check('$queue') finds nothing");
	return;
}

# refused_with(SESSION, SQL, SQLSTATE, NAME): a test; the answer
sub refused_with
{
	my ($session, $sql, $state, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $answer = $session->try($sql);
	is($answer->state, $state, $name) or diag("$sql\n" . $answer->message . $answer->rows);
	return $answer;
}

# run_tool(NODE, COMMAND, ARGUMENT, ...): one of PostgreSQL's programs against the node; (exit status, output, errors)
sub run_tool
{
	my ($node, $program, @arguments) = @_;
	local %ENV = $node->_get_env();
	my ($out, $err) = ('', '');
	IPC::Run::run([ $node->installed_command($program), '-h', $node->host, '-p', $node->port, @arguments ], '<', \'', '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

# extension_folder(NODE): where the staged install keeps control file and scripts; undef when the node uses the system's
sub extension_folder
{
	my ($node) = @_;
	my $conf = slurp_file($node->data_dir . '/postgresql.conf');
	return undef unless $conf =~ /^extension_(?:destdir|control_path)/m;
	return "$ENV{TESTDIR}/stage" . $node->config_data('--sharedir') . '/extension';
}

# workers_of(NODE, DATABASE): which of our workers are connected to it, 'mover retention' when both are
sub workers_of
{
	my ($node, $database) = @_;
	return $node->safe_psql(
		'postgres', qq{SELECT string_agg(substr(backend_type, 10), ' ' ORDER BY backend_type) FROM pg_stat_activity
			WHERE datname = '$database' AND backend_type ~ '^pg_baton '});
}

# wait_for_workers(NODE, DATABASE, WHICH): true once there are these and no others; both, when not said
sub wait_for_workers
{
	my ($node, $database, $which) = @_;
	$which //= 'mover retention';
	return wait_until(sub { workers_of($node, $database) eq $which }, "workers of $database: '$which'");
}

# work_goes_on(NODE, DATABASE): true once both workers have done a step that began after the call
sub work_goes_on
{
	my ($node, $database) = @_;
	my $now = $node->safe_psql($database, 'SELECT clock_timestamp()');
	return wait_until(
		sub {
			$node->safe_psql(
				$database, qq{SELECT count(DISTINCT w.worker) FROM baton_internal.worker_status() w
					JOIN pg_database d ON d.oid = w.database AND d.datname = current_database() WHERE w.last_success > '$now'}) == 2;
		},
		"work in $database");
}

# wait_until(CODE, WHAT, SECONDS): true as soon as CODE returns true, false (with a note) when it never did
sub wait_until
{
	my ($code, $what, $seconds) = @_;
	$seconds //= $PostgreSQL::Test::Utils::timeout_default;
	my $deadline = time() + $seconds;
	while (1)
	{
		return 1 if $code->();
		last if time() > $deadline;
		usleep(20_000);
	}
	diag("gave up after $seconds s: " . ($what // 'wait_until'));
	return 0;
}

# kill_server(NODE): kill -9 of the postmaster and of all its children, as near as a test gets to the power failing
sub kill_server
{
	my ($node) = @_;
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	my @children = split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children");
	$node->kill9;
	kill 'KILL', @children;
	wait_until(sub { !grep { is_running($_) } $postmaster, @children }, 'the killed processes to be gone')
	  or BAIL_OUT('a killed server lives on');
	# Whoever adopted them may take seconds to notice, and a number that is still in use would keep the server from starting.
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	return;
}

# not gone, nor dead and only waiting for its parent to notice
sub is_running
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/stat" or return 0;
	my $stat = <$fh> // return 0;
	return $stat !~ /\) [ZX] /;
}

# crash_and_start(NODE): that, and then recovery
sub crash_and_start
{
	my ($node) = @_;
	kill_server($node);
	$node->start;
	return;
}

# come_back(NODE, SESSION): a backend has died, and the server starts anew by itself. Until it has noticed it takes new
# sessions, which then die too: SESSION is one of before, another than the victim, that tells.
# (A server that is not there yet breaks the pipe to psql, which raises.)
sub come_back
{
	my ($node, $session) = @_;
	return wait_until(sub { $session->try('SELECT 1')->lost }, 'the crash to be noticed')
	  && wait_until(sub { eval { $node->psql('postgres', 'SELECT 1') == 0 } }, 'the server to come back');
}

# without_checksums(NODE): which is stopped, and whose pages the test is about to change by hand. From 18 on a cluster has
# checksums unless one says otherwise.
sub without_checksums
{
	my ($node) = @_;
	my ($out) = run_command([ $node->installed_command('pg_controldata'), $node->data_dir ]);
	return if $out =~ /^Data page checksum version: +0/m;
	system_or_bail($node->installed_command('pg_checksums'), '--disable', '--no-sync', '-D', $node->data_dir);
	return;
}

# server_crashes(NODE): how often, by its log, a process of the server died of a signal
sub server_crashes
{
	my ($node) = @_;
	my $log = slurp_file($node->logfile);
	my @all = $log =~ /was terminated by signal|PANIC:|TRAP:/g;
	return scalar @all;
}

1;
