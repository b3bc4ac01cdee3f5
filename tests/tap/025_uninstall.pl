# uninstall in a database at work: it waits for who is at it, nobody crashes, nothing is left, neither in the catalog nor on
# disk, and the workers leave. Other databases go on. A crash before its commit undoes it, and one after does not.
use strict;
use warnings;
use BatonLoad;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('uninstall', conf => "deadlock_timeout = 50ms\n");
BatonLoad::make_tables($node);
$node->safe_psql('postgres', 'CREATE DATABASE other; CREATE ROLE shop; GRANT CREATE ON SCHEMA baton_queue TO shop');
my $other = session($node, database => 'other');
$other->query('CREATE EXTENSION pg_baton');
$other->query("SELECT baton.create_queue('q')");
my $s = session($node);

sub fill
{
	$s->query("SELECT baton.create_queue('q', segment_bytes => 65536)");
	$s->query("SELECT baton.create_queue('fast', durability => 'volatile')");
	$s->query('SET SESSION AUTHORIZATION shop');
	$s->query("SELECT baton.create_queue('mine', replicable => true)");
	$s->query('RESET SESSION AUTHORIZATION');
	return;
}

# workers(DATABASE): how many are there
sub workers
{
	my ($database) = @_;
	return $node->safe_psql('other', "SELECT count(*) FROM pg_stat_activity WHERE datname = '$database' AND backend_type ~ 'pg_baton'");
}

my $ours = q{SELECT (SELECT count(*) FROM pg_class WHERE relname ~ '^q\d+_|baton' OR relnamespace::regnamespace::text ~ 'baton'),
	(SELECT count(*) FROM pg_namespace WHERE nspname ~ 'baton'), (SELECT count(*) FROM pg_proc WHERE probin ~ 'pg_baton'),
	(SELECT count(*) FROM pg_type WHERE typname ~ '^_?q\d+_'), (SELECT count(*) FROM pg_extension WHERE extname = 'pg_baton'),
	(SELECT count(*) FROM pg_shdepend d JOIN pg_database b ON b.oid = d.dbid AND b.datname = current_database() WHERE d.refobjid = 'shop'::regrole)};

fill();
ok(wait_until(sub { workers('postgres') >= 2 && workers('other') >= 2 }, 'workers'), 'both databases have workers');
$s->query("SELECT count(*) FROM baton.enqueue_batch('mine', array_fill('1'::jsonb, ARRAY[20]))");
my @files = map { $node->data_dir . "/$_" } split /\n/,
  $s->query("SELECT pg_relation_filepath(oid) FROM pg_class WHERE relnamespace::regnamespace::text ~ '^baton' AND pg_relation_filepath(oid) IS NOT NULL");
cmp_ok(scalar @files, '>', 20, 'there are files');
my ($gone) = $s->query("SELECT count(*) FROM baton.uninstall() WHERE action = 'drop'");
is($gone, 4, 'a look: three queues and the extension');

# ---- a crash before the commit
$s->query('BEGIN');
is($s->query("SELECT count(*) FROM baton.uninstall(dry_run => false, discard => true) WHERE action = 'dropped'"), 4, 'done, and not committed');
is($s->query($ours), '0|0|0|0|0|0', 'its own transaction finds nothing any more');
$node->safe_psql('other', 'CHECKPOINT');
crash_and_start($node);
$s->quit;
$other->quit;
$s = session($node);
$other = session($node, database => 'other');
is($s->query("SELECT count(*) FROM baton.take('mine', 100)"), 20, 'after the crash all is there');
is_sound($node, $_) for qw(q mine fast);
ok(wait_until(sub { workers('postgres') >= 2 }, 'workers'), 'the workers too');

# ---- under load, with sessions that wait
my $load = BatonLoad->start($node, queue => 'q', producers => 2, workers => 2, takers => 1, tolerate => qr/ERROR: +(?:42P01|42704|42883|40P01|QB008)/, until => qr/ERROR: +3F000/);
$load->wait_for(acked => 100);
my $waiting = session($node);
$waiting->send("CALL baton.wait('mine', '1 min')");
my $holder = session($node);
$holder->query('BEGIN');
$holder->query("SELECT id FROM baton.enqueue('mine', '1')");
$s->send("SELECT count(*) FROM baton.uninstall(dry_run => false, discard => true) WHERE action = 'dropped'");
ok(wait_until(sub { $other->query("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $s->pid) == 1 }, 'uninstall to wait'), 'it waits for an open transaction');
ok(!$s->ready, 'and is not done');
$holder->query('COMMIT');
# A session of the load may have locked two segments the other way round.
my $answer = $s->answer;
for (1 .. 20)
{
	last if $answer->state ne '40P01';
	$answer = $s->try("SELECT count(*) FROM baton.uninstall(dry_run => false, discard => true) WHERE action = 'dropped'");
}
is($answer->rows, 4, 'then it is done') or diag($answer->message);
my $woken = $waiting->answer;
like($woken->state, qr/^(?:3F000|42P01|42704|55000|00000)$/, 'a session that waited has ended') or diag($woken->message);
is($s->query($ours), '0|0|0|0|0|0', 'nothing is left');
$load->stop;
ok(wait_until(sub { workers('postgres') == 0 }, 'the workers to leave'), 'the workers have left');
cmp_ok(workers('other'), '>=', 2, 'those of the other database stay');
$other->query("SELECT count(*) FROM baton.enqueue('q', '1')");
is($other->query("SELECT count(*) FROM baton.take('q')"), 1, 'and it works');
$node->safe_psql('other', 'CHECKPOINT');
is(join(' ', grep { -s $_ } @files), '', 'nor is there anything on disk');
is($s->try('DROP ROLE shop')->state, '00000', 'roles can go');

# ---- a crash after the commit
crash_and_start($node);
$s->quit;
$s = session($node);
is($s->query($ours =~ s/WHERE d.refobjid.*/)/r), '0|0|0|0|0|0', 'a crash brings nothing back');

# ---- reinstalled, and both in one transaction
$s->query('CREATE ROLE shop');
$s->query('CREATE EXTENSION pg_baton');
$s->query('GRANT CREATE ON SCHEMA baton_queue TO shop');
fill();
$s->query('BEGIN');
$s->query('SELECT count(*) FROM baton.uninstall(dry_run => false)');
$s->query('CREATE EXTENSION pg_baton');
$s->query('GRANT CREATE ON SCHEMA baton_queue TO shop');
fill();
$s->query('COMMIT');
ok(wait_until(sub { workers('postgres') >= 2 }, 'workers'), 'workers come again');
$s->query("SELECT count(*) FROM baton.enqueue_batch('$_', array_fill('1'::jsonb, ARRAY[20]))") for qw(q fast mine);
is($s->query("SELECT count(*) FROM baton.take('$_', 100)"), 20, "$_ works") for qw(q fast mine);
is_sound($node, $_) for qw(q mine fast);
is(server_crashes($node), 0, 'nothing crashed by itself');
done_testing();
