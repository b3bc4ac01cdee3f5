# What databases go through: copied, renamed, moved, dropped, made templates, closed. Our workers are never what such a command
# fails for; when it fails or is rolled back they come back, and a copy of a database gets workers of its own.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('databases', conf => "max_worker_processes = 24\nlog_min_messages = debug1\npg_baton.mover_naptime = 50ms\npg_baton.retention_naptime = 50ms\n");
my $sql = sub { return $node->safe_psql('postgres', $_[0]) };
my $s = session($node);
my $oid = sub { return $sql->("SELECT oid FROM pg_database WHERE datname = '$_[0]'") };
# started(DATABASE): how often a mover was started there
sub started { my ($database) = @_; my @all = slurp_file($node->logfile) =~ /starting background worker process "pg_baton mover $database"/g; return scalar @all; }

$sql->('CREATE DATABASE shop');
$node->safe_psql('shop', "CREATE EXTENSION pg_baton");
ok(wait_for_workers($node, 'shop'), 'workers');

# ---- a copy, of another database and of one's own
$node->safe_psql('shop', q{
	SELECT baton.create_queue('q', backoff => '0 s');
	SELECT count(*) FROM baton.enqueue_batch('q', '{1,2,3}')});
my $token = $node->safe_psql('shop', "SELECT token FROM baton.claim('q', 'w', lease => '1 h')");
for my $from ('postgres', 'shop')
{
	my $copy = "copy_from_$from";
	my $c = session($node, database => $from);
	is($c->try("CREATE DATABASE $copy TEMPLATE shop")->state, '00000', "CREATE DATABASE TEMPLATE, with workers attached, from $from");
	ok(wait_for_workers($node, $copy), "$from: the copy gets workers");
	ok(work_goes_on($node, $_), "$from: work goes on in $_") for 'shop', $copy;
	my $q = session($node, database => $copy);
	is($q->query('SELECT state FROM baton.queues'), 'restored', "$from: the queue of the copy waits to be adopted");
	is($q->query("SELECT count(*) FROM baton.claim('q', max_items => 10)"), 0, "$from: and hands out nothing");
	refused_with($q, "SELECT baton.ack('$token')", 'QB004', "$from: the original's token is refused");
	is($q->query('SELECT baton.adopt()'), 1, "$from: adopted");
	is($q->query("SELECT count(*) FROM baton.take('q', 10)"), 2, "$from: it hands out what was ready");
	refused_with($q, "SELECT baton.ack('$token')", 'QB004', "$from: the original's token is refused still");
	is_sound_in($copy);
}
is($node->safe_psql('shop', "SELECT baton.ack('$token')"), 'acked', 'the original settles it');

sub is_sound_in { my ($database) = @_; is($node->safe_psql($database, "SELECT * FROM baton.check('q')"), '', "$database is sound"); return; }

# A copy of template1 with the extension: workers, and none in the template itself.
$node->safe_psql('template1', 'CREATE EXTENSION pg_baton');
is($s->try('CREATE DATABASE plain')->state, '00000', 'CREATE DATABASE, the extension being in template1');
ok(wait_for_workers($node, 'plain'), 'the new database gets workers');
is(workers_of($node, 'template1'), '', 'template1 has none');
# with workers in template1 as well
$sql->('ALTER DATABASE template1 IS_TEMPLATE false');
ok(wait_for_workers($node, 'template1'), 'template1, being no template, has workers');
is($s->try('CREATE DATABASE yet_another')->state, '00000', 'which leave for a copy that does not name it');
$sql->('ALTER DATABASE template1 IS_TEMPLATE true');
ok(wait_for_workers($node, 'template1', ''), 'as a template it has none');

# ---- RENAME: alone, in a transaction block, rolled back, failing
my $shop = $oid->('shop');
is($s->try('ALTER DATABASE shop RENAME TO store')->state, '00000', 'RENAME');
ok(wait_for_workers($node, 'store'), 'workers are back under the new name');
is($sql->("SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^pg_baton .* store\$'"), 2, 'and call it by that name');
$s->query('BEGIN');
is($s->try('ALTER DATABASE store RENAME TO depot')->state, '00000', 'RENAME in a transaction block');
is($s->try('ALTER DATABASE plain RENAME TO store')->state, '00000', 'and another');
$s->query('ROLLBACK');
ok(wait_for_workers($node, $_), "rolled back: $_ has workers again") for 'store', 'plain';
ok(work_goes_on($node, 'store'), 'which work');
$s->query($_) for 'BEGIN', 'SAVEPOINT one', 'ALTER DATABASE store RENAME TO depot', 'ROLLBACK TO one', 'COMMIT';
ok(wait_for_workers($node, 'store'), 'rolled back to a savepoint: workers are back');
$s->query($_) for 'BEGIN', 'ALTER DATABASE store RENAME TO swap', 'ALTER DATABASE plain RENAME TO store', 'ALTER DATABASE swap RENAME TO plain', 'COMMIT';
ok(wait_for_workers($node, $_), "two names swapped: $_ has workers") for 'store', 'plain';
is($oid->('plain'), $shop, 'under each other\'s names');
like($s->try('ALTER DATABASE plain RENAME TO store')->message, qr/already exists/, 'a RENAME that fails');
ok(work_goes_on($node, 'plain'), 'leaves it working');
# whoever may not give the command does not stop anybody's work
$sql->('CREATE ROLE stranger LOGIN');
my %pid = map { $_ => 1 } split /\n/, $sql->("SELECT pid FROM pg_stat_activity WHERE datname IN ('plain', 'shop') AND backend_type ~ '^pg_baton'");
my $stranger = session($node, user => 'stranger');
for my $command ('DROP DATABASE plain', 'ALTER DATABASE plain RENAME TO shop', 'CREATE DATABASE mine TEMPLATE plain', 'ALTER DATABASE plain SET TABLESPACE pg_default', 'DROP DATABASE plain WITH (FORCE)')
{
	is($stranger->try($command)->state, '42501', "not his: $command");
}
is_deeply({ map { $_ => 1 } split /\n/, $sql->("SELECT pid FROM pg_stat_activity WHERE datname IN ('plain', 'shop') AND backend_type ~ '^pg_baton'") },
	\%pid, 'and no worker has noticed');

# ---- SET TABLESPACE
$s->query('SET allow_in_place_tablespaces = on');
$s->query("CREATE TABLESPACE elsewhere LOCATION ''");
is($s->try('ALTER DATABASE plain SET TABLESPACE elsewhere')->state, '00000', 'SET TABLESPACE');
ok(wait_for_workers($node, 'plain'), 'workers are back');
ok(work_goes_on($node, 'plain'), 'and work');
is_sound_in('plain');
is($s->try('ALTER DATABASE plain SET TABLESPACE nowhere')->state, '42704', 'one that fails');
ok(work_goes_on($node, 'plain'), 'leaves it working');
is($s->try('ALTER DATABASE plain CONNECTION LIMIT 0')->state, '00000', 'CONNECTION LIMIT 0');
ok(work_goes_on($node, 'plain'), 'does not concern workers');

# ---- IS_TEMPLATE, ALLOW_CONNECTIONS
for my $option ('IS_TEMPLATE true', 'ALLOW_CONNECTIONS false')
{
	my $undo = $option =~ /true/ ? $option =~ s/true/false/r : $option =~ s/false/true/r;
	$s->query($_) for 'BEGIN', "ALTER DATABASE plain $option", 'ROLLBACK';
	ok(work_goes_on($node, 'plain'), "$option, rolled back: work goes on");
	is($s->try("ALTER DATABASE plain $option")->state, '00000', $option);
	ok(wait_for_workers($node, 'plain', ''), "$option: the workers leave");
	my $before = started('plain');
	is($s->try("CREATE DATABASE from_closed TEMPLATE plain")->state, '00000', "$option: it can be copied");
	ok(wait_for_workers($node, 'from_closed'), "$option: the copy has workers");
	is(started('plain'), $before, "$option: and nobody was started in the original");
	$s->query('DROP DATABASE from_closed');
	is($s->try("ALTER DATABASE plain $undo")->state, '00000', $undo);
	ok(wait_for_workers($node, 'plain'), "$undo: they are back");
}

# ---- DROP: one that fails, one that cannot be, and one that works
$node->safe_psql('plain', "CREATE SUBSCRIPTION sub CONNECTION '' PUBLICATION none WITH (connect = false)");
is($s->try('DROP DATABASE plain')->state, '55006', 'a DROP that fails after the workers have left');
ok(work_goes_on($node, 'plain'), 'they are back');
$node->safe_psql('plain', 'ALTER SUBSCRIPTION sub SET (slot_name = NONE); DROP SUBSCRIPTION sub');
$s->query('BEGIN');
is($s->try('DROP DATABASE plain')->state, '25001', 'one in a transaction block');
$s->query('ROLLBACK');
ok(work_goes_on($node, 'plain'), 'leaves it working');
my $in = session($node, database => 'plain');
$in->query('BEGIN');
$s->send('DROP DATABASE plain');
ok(wait_for_workers($node, 'plain', ''), 'the workers leave for one that a session is in the way of');
$sql->('SELECT pg_cancel_backend(' . $s->pid . ')');
is($s->answer->state, '57014', 'which is cancelled');
ok(wait_for_workers($node, 'plain'), 'they are back');
$in->quit;
my $before = started('plain');
is($s->try($_)->state, '00000', $_) for 'DROP DATABASE IF EXISTS not_there', 'DROP DATABASE copy_from_shop', 'DROP DATABASE plain WITH (FORCE)';
ok(wait_until(sub { $sql->("SELECT count(*) FROM baton_internal.worker_status() WHERE database = $shop") == 0 }, 'its slots to be free'), 'nothing is left of a dropped one');
is(started('plain'), $before, 'and nobody was sent there again');

# ---- DROP of any database waits until every process has closed its files: waiters and workers, which do
my $w = session($node, database => 'store');
$w->query("SELECT baton.create_queue('w')");
$w->send("CALL baton.wait('w', '1 h')");
wait_until(sub { $sql->("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND pid = " . $w->pid) == 1 }, 'a waiting session');
# workers that sleep for as long as they may
$node->append_conf('postgresql.conf', "pg_baton.mover_naptime = 1h\npg_baton.retention_naptime = 1h\npg_baton.launcher_naptime = 1h");
$node->reload;
ok(wait_until(sub { $sql->("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_baton' AND state <> 'idle'") == 0 }, 'them to sleep'), 'all sleep');
$sql->('CREATE DATABASE unconcerned STRATEGY file_copy');
is($s->try('DROP DATABASE unconcerned')->state, '00000', 'DROP of another database goes through');
is($s->try('DROP TABLESPACE elsewhere')->state, '00000', 'and of a tablespace');
ok(!$w->ready, 'while the session waits on');
$w->quit;

my @errors = grep { /pg_baton (?:mover|retention|launcher)/ && /ERROR|FATAL|WARNING/ } split /\n/, slurp_file($node->logfile);
is("@errors", '', 'no worker has met an error, or had to be ended');
is(server_crashes($node), 0, 'nothing crashed');
done_testing();
