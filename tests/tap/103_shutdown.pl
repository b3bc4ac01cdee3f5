# The server stops when it is told to, whatever our processes are in the middle of, and also while nothing can be replicated;
# workers do not wait for a standby at all, so one that is gone stops nobody else's work.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'shutdown', streaming => 1,
	conf => "max_worker_processes = 16\nautovacuum = off\npg_baton.mover_naptime = 10ms\npg_baton.retention_naptime = 10ms\npg_baton.sweep_interval = 100ms\n");
my $s = session($node);
$s->query("SELECT baton.create_queue('$_', backoff => '0 s', max_attempts => 1, min_lease => '100 ms')") for 'replicated', 'plain', 'big';

# A map that takes long to read: the workers have not done with it when they begin anew.
$s->query("SELECT count(*) FROM baton.enqueue_batch('big', array_fill('1'::jsonb, ARRAY[10000]))") for 1 .. 6;
1 while $s->query("SELECT count(*) FROM baton.claim('big', 'w', 10000, '1 h')");

# busy(MODE): sessions in the middle of everything, and then the stop
sub busy
{
	my ($mode) = @_;
	my @in = map { session($node, name => $_) } 'waits', 'holds a claim', 'holds a lock', 'enqueues';
	$in[0]->send("CALL baton.wait('plain', '1 h')");
	$in[1]->query($_) for 'BEGIN', "SELECT id FROM baton.claim('big')";
	$in[2]->query($_) for 'BEGIN', 'LOCK TABLE baton_data.q1_0';    # workers come to it, and do not wait long
	$in[3]->query($_) for 'BEGIN', "SELECT id FROM baton.enqueue('plain', '1')";
	ok(work_goes_on($node, 'postgres'), "$mode: the workers work");
	$s->quit;
	is($node->stop($mode, fail_ok => 1), 1, "$mode: the server stops");
	undef @in;
	$node->start;
	$s = session($node);
	ok(wait_for_workers($node, 'postgres') && work_goes_on($node, 'postgres'), "$mode: and afterwards all is as before");
	is($s->query("SELECT count(*) FROM baton_queue.big WHERE state = 'claimed'"), 60000, "$mode: every claim is there");
	is($s->query("SELECT count(*) FROM baton_queue.plain"), 0, "$mode: and nothing that was not committed");
	return;
}
busy($_) for 'fast', 'immediate';
my $log = slurp_file($node->logfile);
unlike($log, qr/was terminated by signal|PANIC|TRAP:/, 'nobody has died of it');

# ---- a synchronous standby that is not there
$s->query("SELECT baton.alter_queue('replicated', durability => 'replicated')");
$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'");
$node->reload;
my %stuck = map { $_ => session($node, name => $_) } 'enqueue', 'ack';
# careless sessions cannot weaken what the queue promises
$stuck{$_} = session($node, name => $_, options => "-c synchronous_commit=$_") for 'off', 'local';
my $o = session($node, name => 'other', options => '-c synchronous_commit=local');
$o->query("SELECT id FROM baton.enqueue('plain', '1')");
my $ack = $o->query("SELECT token FROM baton.claim('plain', lease => '1 h')");
my $waits = q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = '%s'};
# messages of that queue, which the server has and no standby
for my $who ('off', 'local', 'enqueue')
{
	$stuck{$who}->send("SELECT id FROM baton.enqueue('replicated', '1')");
	ok(wait_until(sub { $o->query(sprintf $waits, $who) == 1 }, $who), "an enqueue waits for the standby: $who");
	$o->query('SELECT pg_cancel_backend(' . $stuck{$who}->pid . ')');
	like($stuck{$who}->answer->message, qr/canceling wait for synchronous replication/, "$who, cancelled: committed here, and it says so");
}
is($stuck{$_}->query('SHOW synchronous_commit'), $_, "$_: the setting is as it was") for 'off', 'local';
$stuck{off}->query("SELECT id FROM baton.enqueue('plain', '1')");
ok(!$stuck{off}->lost, 'and in other queues it does not wait');
is($o->query("SELECT count(*) FROM baton.claim('replicated', 'w', 10, '100 ms')"), 3, 'a claim does not');
# their only lease is over meanwhile; the mover quarantines them
ok(wait_until(sub { $o->query("SELECT count(*) FROM baton.quarantined('replicated')") == 3 }, 'the messages to be quarantined'), 'the mover does not wait for it');
$stuck{ack}->send("SELECT baton.ack('$ack')");
ok(wait_until(sub { $o->query(sprintf $waits, 'ack') == 1 }, 'ack'), 'nor does it matter who else does');
ok(work_goes_on($node, 'postgres'), 'work goes on');
is($o->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'pg_baton' AND wait_event = 'SyncRep'"), 0, 'no worker waits');
$_->quit for $s, $o;
$_->quit for @stuck{ 'off', 'local' };
is($node->stop('fast', fail_ok => 1), 1, 'the server stops');
undef %stuck;
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->start;
$s = session($node);
is($s->query("SELECT count(*) FROM baton.quarantined('replicated')"), 3, 'what it has done is there');
is($s->query("SELECT outcome FROM baton.settle(ARRAY['$ack'], '{ack}')"), 'already_settled', 'what waited was committed');
is_sound($node, $_) for 'replicated', 'plain', 'big';
done_testing();
