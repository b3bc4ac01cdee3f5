# No room for another page: an enqueue fails and has never been, while claims and settlements, which need no new page, work
# the queue off; what they free is used again, and nothing is lost or done twice. The limit is one on the size of files, which
# the server's processes meet as they would a full disk.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'there is no prlimit' if system('prlimit --version >/dev/null 2>&1') != 0;

my $node = new_node('full', conf => "pg_baton.retention_naptime = '100ms'\npg_baton.rotate_min_interval = '100ms'\nautovacuum = off\nmax_wal_size = '256MB'\n");
my $s = session($node);
$s->query("SELECT baton.create_queue('q', backoff => '0 s')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[10]))");
$s->quit;

# above the size of a WAL file, so that only tables meet it
my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
is(system('prlimit', '--pid', $postmaster, '--fsize=' . 24 * 1024 * 1024), 0, 'no file grows beyond 24 MB from now on');
$s = session($node);
my $batch = "SELECT count(*) FROM baton.enqueue_batch('q', array_fill(to_jsonb(repeat(md5('x'), 30)), ARRAY[1000]))";
my $confirmed = 10;
my $answer;
for (1 .. 200)
{
	$answer = $s->try($batch);
	last unless $answer->ok;
	$confirmed += 1000;
}
like($answer->state, qr/^(53100|54000|58030|XX000)$/, 'an enqueue that finds no room fails');
like($answer->message, qr/could not extend file/, 'and says so');
cmp_ok($confirmed, '>', 10_000, 'after many that did not');
is($s->query('SELECT count(*) FROM baton_queue.q'), $confirmed, 'what was confirmed is there, and nothing else');
is_sound($node, 'q');

$s->query('CREATE TEMP TABLE got (id bigint)');
sub work_off
{
	my ($most) = @_;
	my $n = 0;
	while ($n < $most)
	{
		my ($claimed, $acked) = split /\|/, $s->query("WITH c AS MATERIALIZED (SELECT token, id FROM baton.claim('q', 'w', 1000, '10 min')), k AS (INSERT INTO got SELECT id FROM c)"
			. " SELECT (SELECT count(*) FROM c), (SELECT count(*) FROM baton.settle(ARRAY(SELECT token FROM c), '{ack}') WHERE outcome = 'acked')");
		last unless $claimed;
		is($acked, $claimed, 'what is claimed can be acknowledged') if $acked != $claimed;
		$n += $claimed;
	}
	return $n;
}
is(work_off(1e9), $confirmed, 'a full disk keeps nobody from claiming and acknowledging');
ok(wait_until(sub { $s->try($batch)->ok }, 'room'), 'what is worked off makes room');
$confirmed += 1000;
while ($s->query('SELECT count(*) FROM baton_queue.q') > 0) { work_off(1e9); }
is($s->query('SELECT count(*), count(DISTINCT id) FROM got'), "$confirmed|$confirmed", 'each message was done once');
is_sound($node, 'q');

done_testing();
