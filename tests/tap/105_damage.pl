# What is broken in one queue stays there: a segment that somebody dropped, pages of a map that cannot be read or have been lost,
# a message that cannot be read, a table that somebody keeps locked, an owner who is gone. The workers go on with all others, say
# what is wrong, and take up the queue again when it has been mended.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'damage', conf => q{
max_worker_processes = 16
autovacuum = off
pg_baton.mover_naptime = 50ms
pg_baton.retention_naptime = 50ms
pg_baton.rotate_min_interval = 0
pg_baton.sweep_interval = 200ms
});
my $s = session($node);
$s->query("SELECT baton.create_queue('$_', backoff => '0 s', max_attempts => 1, lease => '100 ms', min_lease => '100 ms', segments => 2, segment_bytes => 65536)")
  for qw(lost torn zeroed locked fine);
$s->query("SELECT baton.create_queue('unreadable', backoff => '100 ms', max_attempts => 2, min_lease => '100 ms', segments => 2)");
my %id = map { split /\|/ } split /\n/, $s->query("SELECT name, o.value FROM baton.queues q, baton.describe_queue(q.name) o WHERE o.option = 'id'");

# due(QUEUE): a message whose only lease is over at once, for the mover alone to quarantine
sub due
{
	my ($queue) = @_;
	$s->query("SELECT id FROM baton.enqueue('$queue', '1')");
	return $s->query("SELECT id FROM baton.claim('$queue', 'w', lease => '100 ms')");
}
sub quarantined { my ($queue, $id) = @_; return $s->query("SELECT count(*) FROM baton.quarantined('$queue') WHERE id = $id") == 1; }

# others_go_on(NAME): the mover and retention do all their work for the queue that is sound
sub others_go_on
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $id = due('fine');
	# not from the view, which reads all queues' maps
	my $epochs = "SELECT sum(epoch) FROM generate_series(0, 1) n, baton_internal.map_meta(('baton_data.q$id{fine}_' || n)::regclass)";
	my $epoch = $s->query($epochs);
	for (1 .. 2)
	{
		$s->query("SELECT count(*) FROM baton.enqueue_batch('fine', array_fill(to_jsonb(repeat('x', 700)), ARRAY[150]))");
		1 while $s->query("SELECT count(*) FROM baton.take('fine', 1000)") > 0;
	}
	ok(wait_until(sub { quarantined('fine', $id) }, 'the mover'), "$name: the mover works for the others");
	ok(wait_until(sub { $s->query($epochs) > $epoch }, 'retention'), "$name: retention, too");
	return;
}
# says(ITEM, PATTERN, NAME): health does
sub says
{
	my ($item, $pattern, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = '';
	ok(wait_until(sub { ($said = $s->query("SELECT state, detail FROM baton.health WHERE item = '$item'")) =~ $pattern }, 'health'), $name) or diag($said);
	return;
}
others_go_on('before');

# ---- a segment is dropped, and the view with it
due('lost');
$s->query("DROP TABLE baton_data.q$id{lost}_1 CASCADE");
others_go_on('a lost segment');
says('views', qr/^error.*no view baton_queue\.lost/, 'a lost segment: health names the queue');
is($s->query("SELECT baton.drop_queue('lost', discard => true)"), 't', 'a lost segment: what is left can be dropped');

# ---- somebody keeps a segment locked
my $left = due('locked');
my $l = session($node);
$l->query($_) for 'BEGIN', "LOCK TABLE baton_data.q$id{locked}_0";
ok(wait_until(sub { slurp_file($node->logfile) =~ /WARNING:.*step "sweep" failed: canceling statement due to lock timeout/ }, 'the mover'), 'a locked segment: the mover comes to it, and does not wait long');
others_go_on('a locked segment');
$l->query('ROLLBACK');
ok(wait_until(sub { quarantined('locked', $left) }, 'the message'), 'a segment that was locked: its message, too, in the end');

# ---- the owner is renamed, and then replaced
$s->query($_) for 'CREATE ROLE shop', 'GRANT USAGE, CREATE ON SCHEMA baton_queue TO shop', 'SET ROLE shop', "SELECT baton.create_queue('of_shop', max_attempts => 1, min_lease => '100 ms', segments => 2, segment_bytes => 65536)", 'RESET ROLE';
$s->query('ALTER ROLE shop RENAME TO store');
my $mine = due('of_shop');
ok(wait_until(sub { quarantined('of_shop', $mine) }, 'the message'), 'the owner is renamed: work goes on');
$s->query('DELETE FROM baton_data.quarantined');
# all that it owns goes to somebody else, one table after the other: in between, view and segments differ
$s->query('CREATE ROLE heir');
$s->query('ALTER TABLE baton_queue.of_shop OWNER TO heir');
$mine = $s->query("SELECT id FROM baton.enqueue('fine', '1')");
others_go_on('a view with another owner than the segments');
$s->query('REASSIGN OWNED BY store TO heir');
$s->query('DROP OWNED BY store');
$s->query('DROP ROLE store');
$mine = due('of_shop');
ok(wait_until(sub { quarantined('of_shop', $mine) }, 'the message'), 'the owner is gone and another has it all: work goes on');

# ---- pages that are damaged while the server is down
$s->query("SELECT count(*) FROM baton.enqueue_batch('$_', array_fill(to_jsonb(repeat('x', 200)), ARRAY[400]))") for 'torn', 'zeroed';
# All that can be seen of the segment whose page will be lost is settled, and it is not the one being written.
is($s->query("SELECT count(*) FROM baton.$_"), 127, "a page of slots: $_") for "take('zeroed', 127)", "claim('zeroed', 'w', 127, '1 h')";
is($s->query("SELECT count(*) FROM baton.take('zeroed', 1000)"), 400 - 254, 'and all others');
$s->query("SELECT id FROM baton.enqueue('zeroed', '1')");
$s->query(q{SELECT count(*) FROM baton.enqueue_batch('unreadable', ARRAY(SELECT to_jsonb((SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400) g WHERE n > 0)) FROM generate_series(1, 3) n))});
$s->query('CHECKPOINT');
my %block = (
	torn => [ 2, "\xff", $s->query("SELECT pg_relation_filepath('baton_data.q$id{torn}_0_map')") ],
	zeroed => [ 2, "\0", $s->query("SELECT pg_relation_filepath('baton_data.q$id{zeroed}_0_map')") ],
	unreadable => [ 0, "\xff", $s->query("SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'baton_data.q$id{unreadable}_0'::regclass") ]);
$_->quit for $s, $l;
$node->stop;
for (values %block)
{
	my ($number, $byte, $file) = @$_;
	open my $fh, '+<', $node->data_dir . "/$file" or die "$file: $!";
	seek $fh, 8192 * $number, 0;
	print $fh $byte x 8192;
	close $fh;
}
$node->start;
$s = session($node);
for my $queue ('torn', 'zeroed')
{
	my $what = $queue eq 'torn' ? qr/^XX001$/ : qr/^XX002$/;
	my $answer;
	wait_until(sub { $answer = $s->try("SELECT count(*) FROM baton.take('$queue', 500)"); !$answer->ok || $answer->rows eq '0' }, 'the damaged page');
	like($answer->state, $what, "a $queue page: a claim says so, and does not come back empty") or diag($answer->rows);
}
others_go_on('damaged pages');
says('retention: rotate', qr/^error.*queue $id{zeroed}: block 2 of lease map "q$id{zeroed}_0_map" is not a page of its lane/, 'a lost page: health says so');
is($s->query("SELECT count(*) FROM baton_data.q$id{zeroed}_0"), 127, 'a lost page: the segment is not taken for settled');
for my $queue ('torn', 'zeroed')
{
	$s->query("REINDEX INDEX baton_data.q$id{$queue}_0_map");
	my ($owed, $got) = ($s->query("SELECT (SELECT count(*) FROM baton_data.q$id{$queue}_0) + (SELECT count(*) FROM baton_data.q$id{$queue}_1)"), 0);
	cmp_ok($owed, '>=', 128, "a $queue page, mended: there is work");
	wait_until(sub { ($got += $s->query("SELECT count(*) FROM baton.take('$queue', 500)")) == $owed }, 'all of it');
	is($got, $owed, "a $queue page, mended: and all of it is handed out");
	is_sound($node, $queue);
}

# ---- one message cannot be read: it uses up its attempts, the others of its queue do not, and it stays where it is
my %seen;
ok( wait_until(
		sub {
			my $answer = $s->try("SELECT id FROM baton.claim('unreadable', 'w', 10, '1 h')");
			$seen{$_}++ for split /\n/, $answer->ok ? $answer->rows : '';
			return keys %seen == 2;
		},
		'the others'),
	'an unreadable message: the others of its queue are handed out');
is(join(' ', sort keys %seen), '2 3', 'an unreadable message: all of them, once');
ok(wait_until(sub { $s->query("SELECT max(failures) FROM baton_queue.unreadable WHERE id IN (2, 3)") == 0 && $s->query('SELECT failures FROM baton_queue.unreadable WHERE id = 1') >= 1 }, 'failures'),
	'an unreadable message: it counts failures, the others none');
$s->query("SELECT baton.fence('unreadable')");
$s->query("SELECT baton.alter_queue('unreadable', max_attempts => 1)");
for my $id (2, 3) { $s->try("SELECT id FROM baton.claim('unreadable', 'w', 1, '100 ms')") until $s->query("SELECT count(*) FROM baton_queue.unreadable WHERE id = $id AND state = 'claimed'") || quarantined('unreadable', $id); }
ok(wait_until(sub { quarantined('unreadable', 2) && quarantined('unreadable', 3) }, 'both to be quarantined'), 'an unreadable message: those that used up their attempts with it are quarantined');
says('mover: exhausted', qr/^error.*invalid page/, 'an unreadable message: health says what keeps it from being quarantined');
is($s->query("SELECT id FROM baton.enqueue('unreadable', '4')"), 4, 'an unreadable message: its queue goes on');
$s->query("SELECT baton_internal.sweep('unreadable')");    # so that the claim meets the first one as well
my $later = $s->try("SELECT id FROM baton.take('unreadable', 10)");
is($later->message . $later->rows, '4', 'an unreadable message: with what comes later');
others_go_on('an unreadable message');

is(server_crashes($node), 0, 'nothing crashed');
is($s->query("SELECT string_agg(item, ', ') FROM baton.health WHERE item IN ('launcher', 'mover', 'retention') AND state <> 'ok'"), '', 'no worker was late or missing for any of this');
done_testing();
