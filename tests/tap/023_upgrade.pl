# pg_upgrade carries queues with their leases; without the library preloaded a table of a queue is still a table.
use strict;
use warnings;
use BatonTest;
use Cwd 'getcwd';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $old = new_node('old', conf => "autovacuum = off\n");
my $s = session($old);
$s->query("SELECT baton.create_queue('q', backoff => '0 s')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[300]))");
my @token = split /\n/, $s->query("SELECT token FROM baton.claim('q', 'w', 5, '10 h')");
$s->query("SELECT baton.ack('$token[0]')");
$s->query("SELECT state FROM baton.release('$token[1]', '0 s')");
my $messages = 'SELECT string_agg(concat_ws($$,$$, id, state, generation, failures), $$ $$ ORDER BY id) FROM baton_queue.q';
my $before = $s->query($messages);

# What looks, answers or says why not, whatever is held at the time.
sub look_at_everything
{
	my ($when) = @_;
	my $s = session($old);
	for (
		'TABLE baton_queue.q',
		(map { "TABLE baton.$_" } split /\n/, $s->query("SELECT viewname FROM pg_views WHERE schemaname = 'baton'")),
		(map { "SELECT * FROM baton.$_" } "check('q')", "explain_message('q', 3)", "quarantined('q')", "evidence('q', 3)", "backlog('q')", "why_empty('q')", "describe_queue('q')", 'uninstall()', 'outcomes()'),
		map { "SELECT * FROM $_('baton_data.q1_0')" } split /\n/, $s->query("SELECT oid::regproc FROM pg_proc WHERE proargtypes::text = 'regclass'::regtype::oid::text AND pronamespace = 'baton_internal'::regnamespace"))
	{
		my $answer = $s->try($_);
		like($answer->state, qr/^(?:00000|55000)$/, "$when: $_") or diag($answer->message);
	}
	return;
}

# ---- a server that has lost the line in its configuration
$s->quit;
$old->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$old->restart;
$s = session($old);
my $refused = refused_with($s, "SELECT baton.ack('$token[2]')", '55000', 'without preload a verb is refused');
like($refused->message, qr/shared_preload_libraries/, 'and says what is missing');
refused_with($s, "SELECT id FROM baton.enqueue('q', '1')", '55000', 'enqueue too');
$refused = refused_with(do { $old->safe_psql('postgres', 'CREATE DATABASE fresh'); session($old, database => 'fresh') }, 'CREATE EXTENSION pg_baton', '55000', 'and CREATE EXTENSION');
like($refused->message, qr/shared_preload_libraries = 'pg_baton'.*restart/s, 'with the line to add, and the word restart');
is($s->try('INSERT INTO baton_data.q1_0 (id, payload) VALUES (1000, $$"by hand"$$)')->state, '00000', 'a row can be inserted');
is($s->try('VACUUM baton_data.q1_0')->state, '00000', 'a segment vacuumed');
is($s->try('VACUUM FULL baton_data.q1_1')->state, '00000', 'rewritten');
is($s->try('REINDEX INDEX baton_data.q1_2_map')->state, '00000', 'its map rebuilt');
is($s->query('SELECT count(*) FROM baton_data.q1_0'), 300, 'and read');
my ($status, $out, $err) = run_tool($old, 'pg_dump', '-f', '/dev/null', 'postgres');
is($status, 0, 'and dumped') or diag($err);
look_at_everything('without preload');
$s->quit;
$old->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_baton'");
$old->restart;
$s = session($old);
is($s->query($messages), "$before 1000,ready,0,0", 'with it, everything is there, leases too, and the row that was inserted is work');
is($s->query("SELECT problem FROM baton.check('q')"), 'id_beyond_sequence', 'whose id is above the sequence');
$s->query("SELECT setval('baton_data.q1_id', 1000)");
is_sound($old, 'q');
my $fence = $s->query("SELECT max(fence) FROM baton.claim('q', 'w', 1, '10 h')");
$before = $s->query($messages);

# ---- pages that a crash left behind when a map had grown and nothing had been logged yet
my $map = $old->data_dir . '/' . $s->query("SELECT pg_relation_filepath('baton_data.q1_0_map')");
$s->quit;
$old->stop;
open my $fh, '>>', $map or die "$map: $!";
print $fh "\0" x (3 * 8192);
close $fh;
$old->start;
$s = session($old);
is($s->query($messages), $before, 'empty pages at the end of a map are nothing');
is_sound($old, 'q');
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('2'::jsonb, ARRAY[500]))");
is_sound($old, 'q');
is($s->try('VACUUM baton_data.q1_0')->state, '00000', 'VACUUM passes over them');
is($s->try("SELECT baton_internal.sweep('q')")->state, '00000', 'a sweep too');
$before = $s->query($messages);
$s->quit;
$old->stop;

# ---- pg_upgrade
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(extra => [ '--locale=C.UTF-8', '-E', 'UTF8' ]);
my ($from, $to) = map { $_->data_dir } $old, $new;
my $bindir = $new->config_data('--bindir');
my $here = getcwd();
# what pg_upgrade starts: the server with -b. The library is loaded, and starts nothing that would work or write.
PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-D', $from, '-l', $old->logfile, '-o', '-b --cluster-name=old', 'start');
is($old->safe_psql('postgres', "SELECT string_agg(backend_type, ' ') FROM pg_stat_activity WHERE backend_type ~ 'pg_baton'"), '', 'in the mode of pg_upgrade there are no workers');
is($old->safe_psql('postgres', $messages), $before, 'and the queue can be read');
look_at_everything('in the mode of pg_upgrade');
PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-D', $from, 'stop');

chdir $PostgreSQL::Test::Utils::tmp_check or die;
local $ENV{PGHOST} = $new->host;
for my $check (1, 0)
{
	my ($stdout, $stderr);
	my $ok = IPC::Run::run(
		[ $new->installed_command('pg_upgrade'), '--no-sync', ($check ? '--check' : ()), '-d', $from, '-D', $to, '-b', $bindir, '-B', $bindir, '-p', $old->port, '-P', $new->port, '-s', $new->host ],
		'>', \$stdout, '2>', \$stderr);
	ok($ok, $check ? 'pg_upgrade --check' : 'pg_upgrade') or diag($stdout, $stderr);
}
chdir $here;
$new->start;
my $n = session($new);
is($n->query($messages), $before, 'every message is there with its lease');
is($n->query("SELECT * FROM baton.check('q')"), '', 'check finds nothing');
is($n->query("SELECT baton.why_empty('q')"), 'restored', 'it is another cluster, and says so');
is($n->query("SELECT count(*) FROM baton.claim('q', 'w', 10)"), 0, 'and hands out nothing');
is($n->query('SELECT baton.adopt()'), 1, 'until it is adopted');
is($n->query("SELECT baton.ack('$token[2]')"), 'acked', 'the token of a claim that was carried over settles');
is($n->query("SELECT outcome FROM baton.settle(ARRAY['$token[0]'], '{ack}')"), 'already_settled', 'one that was spent is spent');
cmp_ok($n->query("SELECT min(fence) >> 32 FROM baton.claim('q', 'w', 1, '10 h')"), '>=', $fence >> 32, 'fencing numbers go on');
is($n->query("SELECT count(*) > 700 FROM baton.claim('q', 'w', 1000)"), 't', 'and everything that is ready is handed out');
is_sound($new, 'q');
done_testing();
