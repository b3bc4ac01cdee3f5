# How much log each verb writes, in bytes for each message. The bounds are a little above what the records put together by
# hand come to: an image of the page, a record more for each message, or a comparison of whole pages would break them.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Nobody else writes: no workers, no autovacuum, no background activity of replication. Full page images come once after each
# checkpoint and are PostgreSQL's own.
my $node = new_node('wal', conf => "pg_baton.workers = off\nautovacuum = off\nfull_page_writes = off\nwal_compression = off\ncheckpoint_timeout = 1h\nmax_wal_size = 4GB\n");
my $s = session($node);
$s->query("SELECT baton.create_queue('q', max_attempts => 1000, backoff => '0 s', segment_bytes => 1000000000)");
my $n = 200;
my $payload = q('{"order": ") . 'x' x 185 . q("}');

# written(WHAT, SQL, ...): bytes that the statements write, each in a transaction of its own
sub written
{
	my (@sql) = @_;
	my $from = $s->query('SELECT pg_current_wal_insert_lsn()');
	$s->query(join ";\n", @sql);
	return $s->query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$from')::bigint");
}

sub at_most
{
	my ($what, $bound, $messages, @sql) = @_;
	my $bytes = written(@sql) / $messages;
	cmp_ok($bytes, '<=', $bound, sprintf '%s: %.0f bytes a message', $what, $bytes);
	return;
}
sub claimed { my ($n) = @_; return split /\n/, $s->query("SELECT token FROM baton.claim('q', 'w', $n, '1 h')") }
sub quoted { return join ',', map { "'$_'" } @_ }

# the first of each kind fills caches, extends files and takes values of sequences
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill($payload" . "::jsonb, ARRAY[500]))");
$s->query("SELECT baton.ack('$_')") for claimed(2);
$s->query("SELECT state FROM baton.release('$_', '0 s')") for claimed(1);
$s->query("SELECT outcome FROM baton.hand_back(ARRAY['$_'])") for claimed(1);
$s->query("SELECT count(*) FROM baton.take('q', 1000)");

at_most('enqueue, one at a time', 450, $n, ("SELECT id FROM baton.enqueue('q', $payload)") x $n);
my $batch = "SELECT count(*) FROM baton.enqueue_batch('q', array_fill($payload" . "::jsonb, ARRAY[100]))";
at_most('enqueue, a hundred at a time', 310, 1000, ($batch) x 10);

at_most('claim, one at a time', 100, $n, ("SELECT token FROM baton.claim('q', 'w', 1, '1 h')") x $n);
at_most('claim, a hundred at a time', 46, 100, "SELECT count(*) FROM baton.claim('q', 'w', 100, '1 h')");

my @t = claimed(100);
at_most('start', 100, 100, map { "SELECT baton.start('$_')" } @t);
at_most('extend', 100, 100, map { "SELECT baton.extend('$_', '2 h')" } @t);
at_most('extend, a hundred at a time', 50, 100, 'SELECT count(*) FROM baton.extend_batch(ARRAY[' . quoted(@t) . "], '3 h')");
at_most('ack, one at a time', 170, 100, map { "SELECT baton.ack('$_')" } @t);
@t = claimed(100);
at_most('ack, a hundred at a time', 78, 100, 'SELECT baton.ack_batch(ARRAY[' . quoted(@t) . '])');
@t = claimed(100);
at_most('release, one at a time', 145, 100, map { "SELECT state FROM baton.release('$_', '0 s', failed => false)" } @t);
@t = claimed(100);
at_most('hand_back, one at a time', 100, 100, map { "SELECT outcome FROM baton.hand_back(ARRAY['$_'])" } @t);
at_most('take, a hundred at a time', 118, 100, "SELECT count(*) FROM baton.take('q', 100)");
my ($token) = claimed(1);
my $from = $s->query('SELECT pg_current_wal_insert_lsn()');
$token = $s->query("SELECT token FROM baton.settle_and_claim('q', ARRAY['$token'], lease => '1 h') WHERE token IS NOT NULL") for 1 .. 100;
my $bytes = $s->query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$from')::bigint") / 100;
cmp_ok($bytes, '<=', 250, sprintf 'settle_and_claim, one at a time: %.0f bytes a message', $bytes);

# ---- what writes nothing
1 while $s->query("SELECT count(*) FROM baton.take('q', 1000)") > 0;
$s->query("SELECT count(*) FROM baton.claim('q', 'w', 10)");
is(written(("SELECT count(*) FROM baton.claim('q', 'w', 10)") x 50), 0, 'a claim that finds nothing writes nothing');
is(written(("SELECT count(*) FROM baton.take('q', 10)") x 50), 0, 'nor does a take');
is(written(("CALL baton.wait('q', '1 ms')") x 20), 0, 'nor does waiting');
# PostgreSQL prunes a page of a table, a catalog among them, when it is read; then there is nothing left to prune
my @looks = ('SELECT count(*) FROM baton.queue_stats', 'SELECT count(*) FROM baton.in_flight', 'SELECT count(*) FROM baton.segments', "SELECT count(*) FROM baton.check('q')");
$s->query($_) for @looks;
is(written(@looks), 0, 'nor do views and check');
@t = claimed(1);
$s->query("SELECT id FROM baton.enqueue('q', '1', delay => '1 h')");
$s->query("SELECT count(*) FROM baton.claim('q', 'w', 10)");
is(written(("SELECT count(*) FROM baton.claim('q', 'w', 10)") x 50), 0, 'nor does one that finds only what is for later');
is($s->try("SELECT baton.ack('b1" . 'A' x 84 . "')")->state, 'QB004', '(a refused token)');
is(written("SELECT outcome FROM baton.settle(ARRAY['b1" . 'A' x 84 . "'], '{ack}')"), 0, 'nor does a refused token');
is_sound($node, 'q');
done_testing();
