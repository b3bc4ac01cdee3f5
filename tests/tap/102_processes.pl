# Each process of ours is killed, terminated and cancelled, and so is a backend in the middle of each kind of command: everything
# comes back by itself, nobody's work is left undone, and a cancel between two steps ends nothing.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# A launcher that died is started after 5 s by the postmaster; our own waits are short here.
my $node = new_node(
	'processes', conf => "max_worker_processes = 16\npg_baton.launcher_naptime = 100ms\npg_baton.mover_naptime = 50ms\npg_baton.retention_naptime = 50ms\npg_baton.sweep_interval = 500ms\n");
my $s = session($node);
$s->query("SELECT baton.create_queue('q', backoff => '0 s', max_attempts => 1, lease => '1 s', min_lease => '100 ms', segment_bytes => 65536)");
wait_for_workers($node, 'postgres') or BAIL_OUT('no workers');
sub pid_of { return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_baton $_[0]'") }

# due(): a message whose only lease ends at once; nobody claims it, so that the mover alone quarantines it
sub due { $s->query("SELECT id FROM baton.enqueue('q', '1')"); return $s->query("SELECT id FROM baton.claim('q', 'w', lease => '100 ms')"); }
# done(ID): it is quarantined
sub done { my ($id) = @_; return wait_until(sub { $s->query("SELECT count(*) FROM baton.quarantined('q') WHERE id = $id") == 1 }, "message $id to be quarantined"); }
ok(done(due()), 'the mover works');

# ---- cancelled: the launcher, and workers between two steps. Nothing may come of it, so something else has to show that it
# has arrived: a worker does one thing after the other.
for my $kind ('launcher', 'mover', 'retention')
{
	my $pid = pid_of($kind);
	for (1 .. 20) { $s->query("SELECT pg_cancel_backend($pid)"); $s->query('SELECT pg_sleep(0.01)'); }
	my $id = due();
	ok(work_goes_on($node, 'postgres') && done($id), "$kind, cancelled again and again: work goes on");
	is(pid_of($kind), $pid, "$kind, cancelled: it is the same process");
}

# ---- terminated
for my $kind ('mover', 'retention')
{
	my $pid = pid_of($kind);
	my $other = pid_of($kind eq 'mover' ? 'retention' : 'mover');
	$s->query("SELECT pg_terminate_backend($pid, 10000)");
	my $id = due();
	ok(wait_until(sub { pid_of($kind) !~ /^(?:$pid)?$/ }, "another $kind"), "$kind, terminated: another one comes");
	ok(done($id), "$kind, terminated: work goes on");
	is(pid_of($kind eq 'mover' ? 'retention' : 'mover'), $other, "$kind, terminated: the other has not noticed");
}
# The workers of a launcher that is gone go on until there is another, which then has its own: never two of a kind.
my %pid = map { $_ => pid_of($_) } 'launcher', 'mover', 'retention';
$s->query("SELECT pg_terminate_backend($pid{launcher}, 10000)");
ok(done(due()), 'launcher, terminated: the workers go on');
is($s->query("SELECT state FROM baton.health WHERE item = 'launcher'"), 'error', 'health says that it is missing');
is($s->query("SELECT count(*) FROM baton.health WHERE item IN ('mover', 'retention') AND state = 'ok'"), 2, 'and that the others are there');
my $most = 0;
ok( wait_until(
		sub {
			my ($n, $new) = split /\|/, $s->query("SELECT count(*), count(*) FILTER (WHERE pid NOT IN ($pid{mover}, $pid{retention})) FROM pg_stat_activity WHERE backend_type IN ('pg_baton mover', 'pg_baton retention')");
			$most = $n if $n > $most;
			return $new == 2;
		},
		'workers of the new launcher'),
	'launcher, terminated: the next one has workers of its own');
cmp_ok($most, '<=', 2, 'never more than one of a kind');
ok(work_goes_on($node, 'postgres') && done(due()), 'which work');

# ---- killed: the server starts anew, and everything with it
my $crashes = 0;
for my $kind ('launcher', 'mover', 'retention', 'a backend')
{
	my $left = due();
	my $victim = session($node, name => 'victim');
	$victim->query($_) for 'BEGIN', "SELECT id FROM baton.enqueue('q', '1')", "SELECT id FROM baton.take('q')";
	my $started = $s->query('SELECT pg_postmaster_start_time()');
	kill 'KILL', $kind eq 'a backend' ? $victim->pid : pid_of($kind);
	come_back($node, $s);
	$s = session($node);
	is($s->query('SELECT pg_postmaster_start_time()'), $started, "$kind, killed: the server comes back by itself");
	ok(wait_for_workers($node, 'postgres'), "$kind, killed: so do the workers");
	ok(work_goes_on($node, 'postgres'), "$kind, killed: they work");
	# Hints start anew: what is left from before is found by the claim that comes by first.
	my $new = due();
	ok(done($left) && done($new), "$kind, killed: on what was there before and on what is new");
}

# ---- databases that a dead backend had kept from having workers
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION pg_baton');
for my $how ('terminated', 'killed')
{
	wait_for_workers($node, 'other');
	my $r = session($node);
	$r->query($_) for 'BEGIN', 'ALTER DATABASE other RENAME TO another';
	is(workers_of($node, 'other'), '', "a RENAME is open: no workers");
	if ($how eq 'killed') { kill 'KILL', $r->pid; come_back($node, $s); }
	else { $s->query('SELECT pg_terminate_backend(' . $r->pid . ')'); }
	ok(wait_for_workers($node, 'other'), "its session is $how: they are back");
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|stuck/, 'nothing but what was killed has died');
is_sound($node, 'q');
done_testing();
