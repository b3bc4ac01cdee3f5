# Slots whose transaction the commit log no longer knows. PostgreSQL cuts the log off when every table is frozen; nobody tells
# the map. Then the row is the truth, and no verb, sweep or view may fail with "could not access status of transaction".
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Without workers: their sweeps would write every outcome into its slot long before.
my $node = new_node('old', conf => "pg_baton.workers = off\nautovacuum = off\npg_baton.sweep_interval = '10h'\n");
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my %id;
my %token;

# One message in each state that carries a transaction, in queue QUEUE
sub all_states
{
	my ($queue) = @_;
	my $s = session($node);
	$s->query("SELECT baton.create_queue('$queue', lease => '1 h')");
	my $new = sub { return $s->query("SELECT id FROM baton.enqueue('$queue', '1')") };
	my $claim = sub { return $s->query("SELECT token FROM baton.claim('$queue', 'w')") };
	for my $what (qw(acked ack_aborted released release_aborted quarantined))
	{
		$id{$queue}{$what} = $new->();
		$token{$queue}{$what} = $claim->();
	}
	my %verb = (
		acked => "SELECT baton.ack('%s')", ack_aborted => "SELECT baton.ack('%s')",
		released => "SELECT state FROM baton.release('%s', '0 s')", release_aborted => "SELECT state FROM baton.release('%s', '0 s')",
		quarantined => "SELECT baton.quarantine('%s')");
	for my $what (sort keys %verb)
	{
		$s->query('BEGIN');
		$s->query(sprintf $verb{$what}, $token{$queue}{$what});
		$s->query($what =~ /aborted/ ? 'ROLLBACK' : 'COMMIT');
	}
	$id{$queue}{taken} = $new->();
	# a released message is ready too: the take gets the one that comes first in line, so hold the others back
	$s->query("SELECT count(*) FROM baton.pause('$queue')");
	$id{$queue}{enqueued} = $new->();
	$s->query('BEGIN');
	$id{$queue}{enqueue_aborted} = $new->();
	$s->query('ROLLBACK');
	return $s;
}

sub slot_states { my ($queue) = @_; return $sql->("SELECT string_agg(state, ' ' ORDER BY id) FROM baton_internal.map_slots('baton_data.$queue')") }

# pass_by(VACUUM): millions of transactions, after which every database is frozen and the commit log cut off
my $segments = 0;

sub pass_by
{
	my ($vacuum) = @_;
	$node->stop;
	# the next segment of the commit log (1,048,576 transactions), and the first id in it
	$segments += 3;
	my $file = sprintf '%s/pg_xact/%04X', $node->data_dir, $segments;
	open my $fh, '>', $file or die "$file: $!";
	print $fh "\0" x (32 * 8192);
	close $fh;
	system_or_bail($node->installed_command('pg_resetwal'), '-x', $segments * 1048576, '-D', $node->data_dir);
	$node->start;
	$node->safe_psql('postgres', 'ALTER DATABASE template0 ALLOW_CONNECTIONS true');
	$node->safe_psql($_, 'VACUUM FREEZE') for qw(template0 template1);
	$node->safe_psql('postgres', $vacuum);
	$node->safe_psql($_, 'VACUUM FREEZE pg_database') for qw(postgres);
	return;
}

my $s = all_states('rows');
my ($old_xid) = $sql->("SELECT min(xid::text::bigint) FROM baton_internal.map_slots('baton_data.q1_0')");
my $before = slot_states('q1_0');
like($before, qr/inserted/, "slots with an open outcome: $before");
like($before, qr/settling/, 'of settlements too');
$s->quit;
# as autovacuum does it in an emergency, and whoever is in a hurry: without looking at indexes
pass_by('VACUUM (FREEZE, INDEX_CLEANUP off)');
ok(!-e $node->data_dir . '/pg_xact/0000', 'the commit log has been cut off');
is($sql->("SELECT pg_xact_status('$old_xid')"), '', 'and knows nothing of them');
is(slot_states('q1_0'), $before, 'no slot was looked at');

sub as_they_are
{
	my ($queue, $segment, $name) = @_;
	my %i = %{ $id{$queue} };
	my %t = %{ $token{$queue} };
	is_sound($node, $queue, "$name: check finds nothing");
	is($sql->("SELECT string_agg(id::text, ' ' ORDER BY id) FROM baton_queue.$queue"),
		join(' ', sort { $a <=> $b } @i{qw(ack_aborted released release_aborted taken enqueued)}), "$name: the messages that are there");
	like($sql->("SELECT detail FROM baton.health WHERE item = 'queues'"), qr/may look at/, "$name: health answers");
	# A release that was rolled back looks like one that was not: its message comes back early, and its token is fenced.
	my @held = ($i{ack_aborted}, $name =~ /VACUUM/ ? $i{release_aborted} : ());
	is($sql->("SELECT string_agg(id || ' ' || state, ', ' ORDER BY id) FROM baton.in_flight WHERE queue = '$queue'"),
		join(', ', map { "$_ claimed" } @held), "$name: in_flight answers");
	my $s = session($node);
	$s->query("SELECT baton.resume('$queue')");
	is($s->query("SELECT outcome FROM baton.settle(ARRAY['$t{acked}'], '{ack}')"), 'already_settled', "$name: a token of then, acked");
	is($s->query("SELECT outcome FROM baton.settle(ARRAY['$t{quarantined}'], '{ack}')"), 'already_settled', "$name: a token of then, quarantined");
	$s->query("SET pg_baton.clock_offset = '5 h'");
	my %got;
	ok( wait_until(
			sub {
				$got{$_}++ for split /\n/, $s->query("SELECT id FROM baton.take('$queue', 100)");
				$s->query("SELECT baton_internal.sweep('$queue')");
				keys %got >= 5;
			},
			'five messages'),
		"$name: claims and sweeps work");
	is(join(' ', sort { $a <=> $b } keys %got), join(' ', sort { $a <=> $b } @i{qw(ack_aborted released release_aborted taken enqueued)}),
		"$name: what was not finished is handed out");
	is(join(' ', grep { $_ != 1 } values %got), '', "$name: once");
	is_sound($node, $queue, "$name: check finds nothing afterwards");
	$s->query("SELECT id FROM baton.enqueue('$queue', '2')");
	is($s->query("SELECT count(*) FROM baton.take('$queue')"), 1, "$name: and it goes on");
	return;
}
as_they_are('rows', 'q1_0', 'the row decides');

# ---- an ordinary VACUUM looks first
$s = all_states('vacuumed');
$before = slot_states('q2_0');
like($before, qr/inserted.*settling|settling.*inserted/, 'open outcomes again');
$s->quit;
pass_by('VACUUM FREEZE');
ok(!-e $node->data_dir . '/pg_xact/0003', 'the commit log has been cut off again');
my $after = slot_states('q2_0');
unlike($after, qr/inserted|settling/, "VACUUM has written every outcome down: $after");
as_they_are('vacuumed', 'q2_0', 'after VACUUM');
is(server_crashes($node), 0, 'nothing crashed');
unlike(slurp_file($node->logfile), qr/could not access status of transaction/, 'nobody asked the commit log in vain');
done_testing();
