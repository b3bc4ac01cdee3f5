# A volatile queue: its segments and maps are unlogged. A crash empties them, and the queue works on; a clean restart keeps them.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('volatile', conf => "autovacuum = off\n");
my $s = session($node);
$s->query("SELECT baton.create_queue('v', durability => 'volatile')");
$s->query("SELECT baton.create_queue('l')");
is($s->query("SELECT string_agg(DISTINCT relpersistence::text, '') FROM pg_class WHERE relname ~ '^q1_\\d+(_map)?\$'"), 'u', 'its segments and maps are unlogged');

sub fill
{
	my ($queue) = @_;
	$s->query("SELECT count(*) FROM baton.enqueue_batch('$queue', array_fill('1'::jsonb, ARRAY[300]))");
	return split /\n/, $s->query("SELECT token FROM baton.claim('$queue', 'w', 3, '1 h')");
}
my @v = fill('v');
my @l = fill('l');
$s->query("SELECT baton.ack('$v[0]')");
is_sound($node, 'v');

# ---- a clean restart
$node->restart;
$s = session($node);
is($s->query("SELECT count(*) FROM baton_queue.v"), 299, 'a clean restart keeps its messages');
is($s->query("SELECT baton.ack('$v[1]')"), 'acked', 'and its claims');
is($s->query("SELECT outcome FROM baton.settle(ARRAY['$v[0]'], '{ack}')"), 'already_settled', 'and what was settled');
my $last = $s->query("SELECT max(id) FROM baton_queue.v");

# ---- a crash, and another one before anybody has used the queue again
for my $round ('a crash', 'another crash')
{
	crash_and_start($node);
	$s = session($node);
	is($s->query("SELECT count(*) FROM baton_queue.l"), 300, "$round: the logged queue has its messages");
	is($s->query("SELECT state FROM baton.queues WHERE name = 'v'"), 'active', "$round: views answer");
	is($s->query("SELECT ready, claimed FROM baton.queue_stats WHERE queue = 'v'"), '0|0', "$round: the volatile one is empty");
	is_sound($node, 'v');
}
is($s->query("SELECT outcome FROM baton.settle(ARRAY['$v[2]'], '{ack}')"), 'stale_epoch', 'a token of a claim that is gone is refused');
is($s->query("SELECT baton.ack('$l[2]')"), 'acked', 'one of the logged queue settles');
is($s->query("SELECT baton.why_empty('v')"), 'empty', 'why_empty');

# the first users of an emptied map, at once: one of them makes its metapage
crash_and_start($node);
$s = session($node);
my $gate = session($node);
$gate->query('BEGIN');
$gate->query("LOCK TABLE baton_data.q1_0 IN ACCESS EXCLUSIVE MODE");
my @first = map { session($node, name => 'first') } 1 .. 6;
$first[$_]->send($_ % 2 ? "SELECT count(*) FROM baton.claim('v')" : "SELECT id FROM baton.enqueue('v', '1')") for 0 .. 5;
wait_until(sub { $s->query("SELECT count(*) FROM pg_locks WHERE relation = 'baton_data.q1_0'::regclass AND NOT granted") == 6 }, 'six to wait');
$gate->query('COMMIT');
my @answers = map { $_->answer } @first;
is(join(' ', map { $_->state } @answers), join(' ', ('00000') x 6), 'six sessions that use it first');
my @ids = sort { $a <=> $b } map { $answers[$_]->rows } grep { !($_ % 2) } 0 .. 5;
cmp_ok($ids[0], '>', $last, 'ids go on upward');
is_sound($node, 'v');
$s->query("SET pg_baton.clock_offset = '1h'");
is($s->query("SELECT count(*) FROM baton.take('v', 10)"), 3, 'and everything that was enqueued is handed out');
$s->query('RESET pg_baton.clock_offset');

# ---- rewrites
@v = fill('v');
$s->query('ALTER TABLE baton_data.q1_0 SET LOGGED');
is($s->query("SELECT outcome FROM baton.settle(ARRAY['$v[0]'], '{ack}')"), 'stale_epoch', 'SET LOGGED builds the map anew');
is($s->query("SELECT count(*) FROM baton.claim('v', 'w', 1000, '1 h')"), 300, 'and everything is ready again');
is_sound($node, 'v');
crash_and_start($node);
$s = session($node);
is($s->query("SELECT count(*) FROM baton_queue.v"), 300, 'a logged segment of a volatile queue survives a crash');
is_sound($node, 'v');
$s->query('ALTER TABLE baton_data.q1_0 SET UNLOGGED');
crash_and_start($node);
$s = session($node);
is($s->query("SELECT count(*) FROM baton_queue.v"), 0, 'and an unlogged one does not');
is($s->query("SELECT count(*) FROM baton.take('v')"), 0, 'a claim works');
$s->query("SELECT id FROM baton.enqueue('v', '1')");
is($s->query("SELECT count(*) FROM baton.take('v')"), 1, 'and an enqueue');
is_sound($node, $_) for qw(v l);
done_testing();
