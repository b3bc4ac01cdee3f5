# A verb that fails, is cancelled, is terminated or dies at each point where it can be stopped: nothing is lost, nothing is
# done twice, what it had reserved goes back, and the server goes on by itself.
use strict;
use warnings;
use BatonLoad;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'faults', conf => "pg_baton.rotate_min_interval = 0\npg_baton.rotate_grace = 0\npg_baton.retention_naptime = '1h'\nautovacuum = off\nsynchronous_commit = off\n");
BatonLoad::make_tables($node);
my ($s, $gate);
sub sessions { $s = session($node, name => 'main'); $gate = session($node, name => 'gate'); return; }
sessions();
$s->query("SELECT baton.create_queue('q', backoff => '0 s', max_attempts => 1000, segment_bytes => 65536)");
$s->query("SELECT baton.create_queue('ring', backoff => '0 s', segments => 2, segment_bytes => 65536)");

my %call = (
	'claim-reserved' => "SELECT count(*) FROM baton.claim('q', 'w', 3, '10 min')",
	'claim-looked' => "SELECT count(*) FROM baton.claim('q', 'w', 3, '10 min')",
	'claim-reserved take' => "SELECT count(*) FROM baton.take('q', 3)",
	'claim-looked take' => "SELECT count(*) FROM baton.take('q', 3)",
	'settle-read ack' => "SELECT baton.ack('%s')",
	'revoke-written' => "SELECT baton.revoke('q', (SELECT id FROM baton.in_flight WHERE worker = 'holder'), true, '0 s')",
	'end-claim revoke' => "SELECT baton.revoke('q', (SELECT id FROM baton.in_flight WHERE worker = 'holder'), true, '0 s')",
	'reschedule-looked' => "SELECT state FROM baton.reschedule('q', (SELECT max(id) FROM baton_queue.q WHERE state = 'ready'), '20 s')",
	'move-deleted reschedule' => "SELECT state FROM baton.reschedule('q', (SELECT max(id) FROM baton_queue.q WHERE state = 'ready'), '50 min')",
	'settle-rows ack' => "SELECT baton.ack('%s')",
	'settle-rows release' => "SELECT state FROM baton.release('%s', '0 s')",
	'settle-rows quarantine' => "SELECT baton.quarantine('%s')",
	'settle-rows settle_and_claim' => "SELECT token FROM baton.settle_and_claim('q', ARRAY['%s'], max_items => 2, lease => '10 min')",
	'rotate_locked' => "SELECT baton_internal.rotate('ring')",
	'rotate_truncated' => "SELECT baton_internal.rotate('ring')");

# how it ends: what is done to a session that is stopped at the point, and how that session ends
my %how = (
	error => undef,
	cancelled => sub { $s->query('SELECT pg_cancel_backend(' . $_[0]->pid . ')') },
	terminated => sub { $s->query('SELECT pg_terminate_backend(' . $_[0]->pid . ')') },
	'client killed' => sub { $_[0]->kill_client; $gate->query('SELECT pg_advisory_unlock_all()') },
	killed => sub { kill 'KILL', $_[0]->pid },
	panic => undef);

# Leases are ended by a clock that is ahead, and segments reclaimed by one that is further ahead.
# prepare(POINT): ten messages in the queue, one of them claimed; a drained segment in the ring; the statement to run
sub prepare
{
	my ($point) = @_;
	$s->query("SET pg_baton.clock_offset = '2h'");
	1 while $s->query("SELECT count(*) FROM baton.take('q', 1000)") > 0;
	1 while $s->query("SELECT count(*) FROM baton.take('ring', 1000)") > 0;
	$s->query('RESET pg_baton.clock_offset');
	my @ids = split /\n/, $s->query("SELECT id FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[10]))");
	my $token = $s->query("SELECT token FROM baton.claim('q', 'holder', lease => '10 min')");
	if ($point =~ /rotate/)
	{
		for (1 .. 2)
		{
			$s->query("SELECT count(*) FROM baton.enqueue_batch('ring', array_fill(to_jsonb(repeat('x', 700)), ARRAY[300]))");
			1 while $s->query("SELECT count(*) FROM baton.take('ring', 1000)") > 0;
		}
		$s->query("SELECT count(*) FROM baton.enqueue_batch('ring', array_fill('1'::jsonb, ARRAY[5]))");
	}
	return ($call{$point} =~ s/%s/$token/r, $token, @ids);
}

my $crashes = 0;
for my $point (sort keys %call)
{
	for my $how (sort keys %how)
	{
		my $name = "$point, $how";
		my ($sql, $token, @ids) = prepare($point);
		my $ring = $s->query("SELECT count(*) FROM baton_queue.ring");
		my ($debug) = $point =~ /^(\S+)/;
		my $action = $how{$how} ? 'wait' : $how;
		my $v = session($node, name => 'victim');
		$v->query("SET pg_baton.debug_point = '$debug:$action'");
		$v->query("SET pg_baton.clock_offset = '5h'") if $point =~ /rotate/;
		my $crashing = $how =~ /^(killed|panic)$/;
		if ($how{$how})
		{
			$gate->query('SELECT pg_advisory_lock(47728, 1)');
			$v->send($sql);
			wait_until(sub { $s->query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1 }, "$name: to be stopped")
			  or diag($v->ready ? $v->answer->message : 'still running');
			$how{$how}->($v);
		}
		else { $v->send($sql); }
		if ($how ne 'client killed')
		{
			my $answer = $v->answer;
			like($answer->state, $how eq 'error' ? qr/^XX000$/ : $how eq 'cancelled' ? qr/^57014$/ : qr/^(57P0\d|lost|XX000)$/, "$name: the session is told");
		}
		if ($crashing)
		{
			$crashes++;
			come_back($node, $gate);
			sessions();
		}
		$gate->query('SELECT pg_advisory_unlock_all()');
		wait_until(sub { $s->query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim' AND state <> 'idle'") == 0 }, "$name: the session to end");
		$v->quit if $v->{process};

		# With nothing confirmed a killed client's verb may have happened; all others have not.
		my %left = map { split /\|/ } split /\n/, $s->query("SELECT id, state FROM baton_queue.q");
		my $done = $how eq 'client killed' ? '(or it has happened)' : '';
		my $missing = join ' ', grep { !exists $left{$_} } @ids;
		if ($how eq 'client killed') { cmp_ok(scalar(keys %left), '>=', 7, "$name: no message is lost $done"); }
		else { is($missing, '', "$name: no message is lost"); }
		is_sound($node, 'q', "$name: the map is sound");
		if ($point =~ /rotate/)
		{
			is($s->query("SELECT count(*) FROM baton_queue.ring"), $ring, "$name: nor one of the ring");
			is_sound($node, 'ring', "$name: its map is sound");
			$s->query("SET pg_baton.clock_offset = '5h'");
			ok(wait_until(sub { $s->query("SELECT baton_internal.rotate('ring')"); $s->query("SELECT count(*) FROM baton.segments WHERE queue = 'ring' AND state = 'drained'") == 0 }, 'the ring to turn'),
				"$name: the ring turns afterwards");
			$s->query('RESET pg_baton.clock_offset');
			next;
		}
		if ($how ne 'client killed')
		{
			# A claim that failed inside the verb counts no failure; one that was cut off with its transaction counts one.
			my $settled = $s->query("SELECT outcome FROM baton.settle(ARRAY['$token'], '{release_unfailed}', '{0 s}')");
			is($settled, 'released', "$name: the claim that was there before settles");
		}
		# Everything comes back without its lease having to end, as long as the server has not forgotten who held it.
		$s->query("SET pg_baton.clock_offset = '1h'") if $crashing || $how eq 'client killed';
		my %got;
		wait_until(sub { $got{$_}++ for split /\n/, $s->query("SELECT id FROM baton.claim('q', 'after', 100, '5 h')"); keys %got == keys %left }, "$name: everything to be handed out");
		is(join(' ', sort keys %got), join(' ', sort keys %left), "$name: everything is handed out again");
		is(join(' ', grep { $_ > 1 } values %got), '', "$name: once");
		$s->query('RESET pg_baton.clock_offset');
		$s->query("SELECT baton.fence('q')");
	}
}
cmp_ok($crashes, '>=', 16, "$crashes crashes");
ok( wait_until(sub { $s->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton' AND datname = 'postgres'") == 2 }, 'the workers'),
	'the workers have come back by themselves');

# ---- storms: sessions of a load are cancelled at random moments, the end of their transactions among them, and terminated.
# An error in a callback at commit, abort or prepare would take the server down.
my $before = server_crashes($node);
$s->query("SELECT baton.create_queue('storm', backoff => '0 s', max_attempts => 60000, claim_ceiling => 60000, segment_bytes => 65536)");
my $victims = q{SELECT pid FROM pg_stat_activity WHERE application_name ~ '^(producers|workers|takers)' AND state = 'active' ORDER BY random() LIMIT 1};
my $load = BatonLoad->start($node, queue => 'storm', producers => 2, workers => 2, takers => 2, tolerate => qr/57014/);
my $cancelled = 0;
until ($load->count('acked') > 600 && $cancelled > 400)
{
	$cancelled += $s->query("SELECT count(*) FROM ($victims) v WHERE pg_cancel_backend(pid)") for 1 .. 20;
	$s->query('SELECT pg_sleep(0.005)');
	last unless $s->query('SELECT 1');
}
$load->stop;
is(server_crashes($node), $before, "no crash in $cancelled cancels");
is_sound($node, 'storm');
for my $round (1 .. 4)
{
	my $load = BatonLoad->start($node, queue => 'storm', producers => 2, workers => 2, takers => 1, tolerate => qr/57014/);
	$load->wait_for(acked => 20);
	wait_until(sub { $s->query("SELECT count(*) FROM (SELECT pid FROM pg_stat_activity WHERE application_name ~ '^(producers|workers|takers)') v WHERE pg_terminate_backend(pid)") == 0 },
		'all to be terminated');
	$load->stop;
}
is(server_crashes($node), $before, 'nor in four rounds of terminations');
is_sound($node, 'storm');
BatonLoad::drain($node, 'storm');
BatonLoad::books_balance($node, 'storm', 'and every message had its effect once');
done_testing();
