# The server dies (SIGKILL of all its processes) in the middle of load, again and again. What it had confirmed must be
# there afterwards: no confirmed enqueue lost, no confirmed ack undone, flushed claims still held by their tokens; and
# what was not confirmed is either done or not, with its effect.
use strict;
use warnings;
use BatonLoad;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Killing processes does not lose what the kernel has, so fsync may stay off. Checkpoints come often, so that recovery
# starts from pages in every state, and small segments make the ring turn under the load. With wal_consistency_checking
# recovery compares each map page with what it was: a record put together by hand that replays to something else ends it.
my $node = new_node(
	'crash',
	checksums => 1,
	conf => q{
wal_consistency_checking = 'generic'
max_wal_size = 48MB
min_wal_size = 32MB
pg_baton.rotate_min_interval = 100ms
pg_baton.rotate_grace = 500ms
pg_baton.retention_naptime = 100ms
});
BatonLoad::make_tables($node);
$node->safe_psql('postgres', "SELECT baton.create_queue('q', segment_bytes => 65536, max_attempts => 1000)");

my ($enqueued, $acked, $held) = (0, 0, 0);
for my $round (1 .. 8)
{
	my $load = BatonLoad->start($node, queue => 'q', producers => 2, workers => 2, takers => 1, padding => 1000);
	$load->wait_for(enqueued => 400);
	$load->wait_for(acked => 200);
	$node->safe_psql('postgres', 'CHECKPOINT') if $round == 2;
	kill_server($node);
	$load->stop;
	$node->start;
	my $seen = $load->seen;
	my @ids = keys %$seen;
	my $s = session($node);

	my %unsettled = map { $_ => 1 } split /\n/, $s->query('SELECT id FROM baton_queue.q');
	my %effect = map { $_ => 1 } split /\n/, $s->query("SELECT id FROM effect");
	my %made = map { $_ => 1 } split /\n/, $s->query("SELECT id FROM made");
	my @lost = grep { $seen->{$_}{state} ne 'acked' && !$unsettled{$_} && !$effect{$_} } @ids;
	is("@lost", '', "round $round: no confirmed enqueue is lost");
	my @undone = grep { $seen->{$_}{state} eq 'acked' && ($unsettled{$_} || !$effect{$_}) } @ids;
	is("@undone", '', "round $round: no confirmed ack is undone");
	my @both = grep { $effect{$_} && $unsettled{$_} } keys %made;
	is("@both", '', "round $round: nothing is there with its effect done");
	my @phantom = grep { !$made{$_} } keys %unsettled, keys %effect;
	is("@phantom", '', "round $round: nothing is there that was rolled back");
	is_sound($node, 'q', "round $round: the map is sound");

	my %claimed = map { $_ => $seen->{$_} } grep { $seen->{$_}{state} eq 'claimed' } @ids;
	my %again = map { split /\|/ } split /\n/, $s->query("SELECT id, token FROM baton.claim('q', 'other', 10000, '1 min')");
	$s->query("SELECT count(*) FROM baton.hand_back(ARRAY['" . join("','", values %again) . "'])");
	my @twice = grep { $again{$_} } keys %claimed;
	is("@twice", '', "round $round: claims that were confirmed still hold their messages");
	my @refused;
	for my $id (keys %claimed)
	{
		my $a = $s->try("WITH a AS (SELECT baton.ack('$claimed{$id}{token}')) INSERT INTO effect SELECT 'q', $id, 'late' FROM a");
		push @refused, "$id: " . $a->message unless $a->ok;
	}
	is("@refused", '', "round $round: their tokens settle");
	my @old = grep { $seen->{$_}{state} eq 'acked' && $seen->{$_}{token} } @ids;
	my %answer;
	$answer{$_}++
	  for split /\n/, $s->query("SELECT outcome FROM baton.settle(ARRAY['" . join("','", map { $seen->{$_}{token} } @old) . "'], '{ack}')");
	delete @answer{qw(already_settled stale_epoch)};
	is(join(' ', %answer), '', "round $round: tokens of confirmed acks are spent");
	$enqueued += @ids;
	$acked += grep { $seen->{$_}{state} eq 'acked' } @ids;
	$held += keys %claimed;
	# Time passes, so that the leases which the spent tokens were told are over, and segments can be reclaimed (draining is
	# two hours ahead).
	BatonLoad::drain($node, 'q') if $round == 3;
	$s->quit;
	$node->append_conf('postgresql.conf', "pg_baton.clock_offset = '" . 3 * $round . "h'");
	$node->reload;
	wait_until(
		sub {
			$node->safe_psql('postgres', "SELECT count(*) = 0 FROM baton.segments WHERE queue = 'q' AND state = 'drained'") eq 't';
		},
		'drained segments to be reclaimed');
}
cmp_ok($held, '>', 0, "the rounds met claims that were held ($enqueued enqueued, $acked acked, $held held)");
cmp_ok($node->safe_psql('postgres', "SELECT max(epoch) - min(epoch) FROM baton.segments WHERE queue = 'q'"),
	'>', 2, 'and segments that had been reclaimed');
BatonLoad::drain($node, 'q');
BatonLoad::books_balance($node, 'q', 'in the end every message had its effect once');
is_sound($node, 'q');
$node->stop;
command_ok([ $node->installed_command('pg_checksums'), '--check', '-D', $node->data_dir ], 'every page has the right checksum');
done_testing();
