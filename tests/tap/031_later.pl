# Scheduled messages in due-time buckets: moved by the mover when they come due, in exactly one place whatever dies, found
# again after a restart, and not missed when their enqueue commits late.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('later', conf => "pg_baton.mover_naptime = 100\nmax_prepared_transactions = 5\nsynchronous_commit = off\n");
my $s;
sub fresh { $s = session($node, name => 'main'); return; }
fresh();

# the clock of all processes, workers included
sub set_clock
{
	my ($offset) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET pg_baton.clock_offset = '$offset'");
	$node->reload;
	return;
}
sub clock { set_clock(@_); fresh(); return; }
sub later { return $s->query('SELECT count(*) FROM baton_internal.later_message') }
sub all_moved { my ($name) = @_; return ok(wait_until(sub { later() == 0 }, 'the mover to move them'), $name) }
my @got;
sub handed_out
{
	my ($queue, $wanted, $name) = @_;
	@got = ();
	wait_until(sub { push @got, split /\n/, $s->query("SELECT id FROM baton.take('$queue', 1000)"); @got >= $wanted }, 'all to be handed out');
	is(scalar @got, $wanted, "$name: all are handed out");
	my %times;
	$times{$_}++ for @got;
	is(join(' ', grep { $times{$_} > 1 } keys %times), '', "$name: once");
	return;
}

# ---- the mover does it, in time, for a waiting worker
$s->query("SELECT baton.create_queue('q', lease => '10 min', backoff => '0')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 700) i), delays => '{2 h}')");
is(later(), 700, 'they wait in a bucket');
my $w = session($node, name => 'waiter');
$w->query("SET pg_baton.wait_recheck = '1h'");
$w->send("CALL baton.wait('q', '60 s')");
clock('2h');
like($w->answer->rows, qr/ready/, 'a waiting worker is woken');
all_moved('all are moved, in more than one batch');
handed_out('q', 700, 'moved by the mover');
is_sound($node, 'q');

# ---- hints and the mover's memory lost
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 20) i), delays => '{1 h}')");
crash_and_start($node);
fresh();
is(later(), 20, 'a crash loses none');
clock('3h');
all_moved('and the new mover finds them');
handed_out('q', 20, 'after a crash');

# ---- committed when the mover has long read the lane
my $open = session($node, name => 'open');
$open->query('BEGIN');
$open->query("SELECT FROM baton.enqueue('q', '\"open\"', delay => '1 h')");
my $prepared = session($node, name => 'prepared');
$prepared->query('BEGIN');
$prepared->query("SELECT FROM baton.enqueue('q', '\"prepared\"', delay => '1 h')");
$prepared->query("PREPARE TRANSACTION 'p'");
$s->query("SELECT FROM baton.enqueue('q', '\"control\"', delay => '1 h')");
clock('4h');
ok(wait_until(sub { later() == 0 }, 'the control'), 'what is committed is moved');
handed_out('q', 1, 'the control');
$open->query('COMMIT');
$prepared->query("COMMIT PREPARED 'p'");
handed_out('q', 2, 'committed late');
is_sound($node, 'q');

# ---- the mover dies at each point
for my $point (qw(move-marked move-deleted move-written))
{
	$s->query("SELECT count(*) FROM baton.enqueue_batch('q', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 9) i), delays => '{1 h}')");
	my $before = server_crashes($node);
	my ($hours) = $s->query('SHOW pg_baton.clock_offset') =~ /(\d+)h/;
	$node->append_conf('postgresql.conf', "pg_baton.debug_point = '$point:panic'\n");
	set_clock(($hours + 1) . 'h');
	ok(wait_until(sub { server_crashes($node) > $before }, 'the mover to die'), "$point: the mover dies");
	$node->append_conf('postgresql.conf', "pg_baton.debug_point = ''\n");
	# Wherever the server is in its recovery, this one has read the file.
	crash_and_start($node);
	fresh();
	is($s->query('SELECT count(*) FROM baton_queue.q'), 9, "$point: each message is in one place");
	handed_out('q', 9, $point);
	is($s->query('SELECT count(*) FROM baton_internal.later_message'), 0, "$point: and none is left behind");
	is_sound($node, 'q', "$point: sound");
}

# ---- a claim that helps itself dies, fails, or is cut off
$node->append_conf('postgresql.conf', "pg_baton.workers = off\n");
$node->safe_psql('postgres', 'ALTER SYSTEM RESET pg_baton.clock_offset');
$node->restart;
fresh();
for my $point (qw(move-marked move-deleted move-written))
{
	for my $how (qw(error terminated panic))
	{
		my $name = "$point, $how";
		$s->query("SELECT baton.create_queue('$name', lease => '10 min', backoff => '0')");
		$s->query("SELECT count(*) FROM baton.enqueue_batch('$name', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 9) i), delays => '{2 h}')");
		my $v = session($node, name => 'victim');
		$v->query("SET pg_baton.clock_offset = '3h'");
		$v->query("SET pg_baton.debug_point = '$point:" . ($how eq 'terminated' ? 'wait' : $how) . "'");
		$s->query('SELECT pg_advisory_lock(47728, 1)') if $how eq 'terminated';
		$v->send("SELECT count(*) FROM baton.claim('$name')");
		if ($how eq 'terminated')
		{
			wait_until(sub { $s->query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1 }, 'the victim to stop');
			$s->query('SELECT pg_terminate_backend(' . $v->pid . ')');
		}
		isnt($v->answer->state, '', "$name: the claim fails");
		if ($how eq 'panic')
		{
			come_back($node, $s);
			fresh();
		}
		$s->query('SELECT pg_advisory_unlock_all()');
		is($s->query("SELECT count(*) FROM baton_queue.\"$name\""), 9, "$name: each is in one place");
		is_sound($node, $name, "$name: sound");
		$s->query("SET pg_baton.clock_offset = '3h'");
		handed_out($name, 9, $name);
		$s->query('RESET pg_baton.clock_offset');
	}
}

done_testing();
