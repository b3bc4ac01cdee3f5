# What a claimer puts back wakes somebody: a waiting session may have looked while the claimer held the only work there
# was, and gone to sleep. Nothing else would wake it here: there are no workers, and it looks for itself once an hour.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../support/perl";
use BatonTest;
use Test::More;

my $node = new_node('put_back', conf => "pg_baton.workers = off\npg_baton.wait_recheck = '1h'\npg_baton.sweep_interval = '1h'\n");
$node->safe_psql('postgres', "SELECT baton.create_queue('q')");

my $asleep = sub {
	my ($s) = @_;
	return $node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NULL'
		. " AND wait_event_type = 'Extension' AND pid = " . $s->pid) eq '1';
};

# how the claimer gives up what it holds => what ends its claim
my %ends = (
	cancelled => sub { my ($c) = @_; $node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $c->pid . ')') },
	terminated => sub { my ($c) = @_; $node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $c->pid . ')') });

for my $how (sort keys %ends)
{
	$node->safe_psql('postgres', qq(SELECT id FROM baton.enqueue('q', '{}')));
	my $gate = session($node);
	$gate->query('SELECT pg_advisory_lock(47728, 1)');
	my $claimer = session($node);
	$claimer->query("SET pg_baton.debug_point = 'claim-reserved:wait'");
	$claimer->send("SELECT token FROM baton.claim('q')");
	wait_until(sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") eq '1' }, "the claimer holds the message ($how)");
	my $waiter = session($node);
	$waiter->send("CALL baton.wait('q', '1 h')");
	wait_until(sub { $asleep->($waiter) }, "the waiter sleeps ($how)");
	ok(!$waiter->ready, "nothing to claim while another session holds the message ($how)");
	$ends{$how}->($claimer);
	is($waiter->answer->rows, 'ready', "$how: what goes back wakes a waiting session");
	is($waiter->query("SELECT count(*) FROM baton.take('q')"), '1', "$how: and it can be claimed");
	$gate->quit;
	$waiter->quit;
}

# A claim that stops at its limit of bytes puts the rest of its range back.
$node->safe_psql('postgres', q(SELECT count(*) FROM baton.enqueue_batch('q', ARRAY['{"n": 1}', '{"n": 2}', '{"n": 3}']::jsonb[])));
my $gate = session($node);
$gate->query('SELECT pg_advisory_lock(47728, 1)');
my $claimer = session($node);
$claimer->query("SET pg_baton.debug_point = 'claim-looked:wait'");
$claimer->send("SELECT count(*) FROM baton.claim('q', max_items => 10, max_bytes => 30)");
wait_until(sub {
	$node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") eq '1' }, 'the claimer has looked');
my $waiter = session($node);
$waiter->send("CALL baton.wait('q', '1 h')");
wait_until(sub { $asleep->($waiter) }, 'the waiter sleeps');
$gate->quit;
my $claimed = $claimer->answer->rows;
cmp_ok($claimed, '<', 3, 'the claim stopped at its limit');
is($waiter->answer->rows, 'ready', 'what it put back wakes a waiting session');

is_sound($node, 'q');
done_testing();
