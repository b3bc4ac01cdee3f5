# Who keeps rows from being reclaimed, by name: sessions, also those that only have a transaction id, prepared transactions,
# standbys with hot_standby_feedback, replication slots with and without anybody connected. And not those who do not.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('horizon', streaming => 'logical', conf => "max_prepared_transactions = 5\nautovacuum = off\npg_baton.workers = off\n");
$node->safe_psql('postgres', 'CREATE DATABASE other; CREATE TABLE t (id int)');
my $s = session($node);
my $state = sub { return $s->query("SELECT state FROM baton.health WHERE item = 'horizon'") };
# pinned(): kind and name of each, oldest first
sub pinned { return $s->query("SELECT string_agg(kind || ' ' || who, '; ') FROM baton.horizon") }
is(pinned(), '', 'nobody');
is($state->(), 'ok', 'which is fine');

# ---- sessions
my %open = map { $_ => session($node, name => $_) } 'reads', 'writes', 'idles';
$open{elsewhere} = session($node, name => 'elsewhere', database => 'other');
$open{$_}->query('BEGIN ISOLATION LEVEL REPEATABLE READ') for 'reads', 'elsewhere';
$open{$_}->query('SELECT 1') for 'reads', 'elsewhere';
$open{$_}->query('BEGIN') for 'writes', 'idles';
$open{writes}->query('INSERT INTO t VALUES (1)');
$open{idles}->query('SELECT 1');
like(pinned(), qr/^session postgres, reads, idle in transaction; session postgres, writes, idle in transaction$/, 'who has a snapshot, and who has a transaction id; not who has neither, nor who is in another database');
my $pid = $open{reads}->pid;
is($s->query("SELECT pid, remedy FROM baton.horizon WHERE who ~ 'reads'"), "$pid|SELECT pg_terminate_backend($pid)", 'with what ends it');
is($state->(), 'ok', 'for seconds that is fine');
my $remedy = $s->query("SELECT remedy FROM baton.horizon WHERE who ~ 'writes'");
$s->query($remedy);
ok(wait_until(sub { pinned() !~ /writes/ }, 'the session to end'), 'which it does');
$_->quit for values %open;
ok(wait_until(sub { pinned() eq '' }, 'them to end'), 'and nobody is left');

# ---- a prepared transaction
my $p = session($node);
$p->query($_) for 'BEGIN', 'INSERT INTO t VALUES (1)', "PREPARE TRANSACTION 'it''s'";
is(pinned(), "prepared transaction it's", 'a prepared transaction');
$s->query($s->query('SELECT remedy FROM baton.horizon'));
is(pinned(), '', 'and what ends it');
my $o = session($node, database => 'other');
$o->query($_) for 'CREATE TABLE t (id int)', 'BEGIN', 'INSERT INTO t VALUES (1)', "PREPARE TRANSACTION 'there'";
is(pinned(), '', 'in another database it is not in the way');
$o->query("ROLLBACK PREPARED 'there'");

# ---- a standby, through a slot and without one
my $reader;
my $standby = standby_of($node, 'reader', conf => "hot_standby_feedback = on\nwal_receiver_status_interval = 1\n");
$reader = session($standby);
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$reader->query('SELECT count(*) FROM t');
ok(wait_until(sub { pinned() =~ /standby reader/ }, 'its feedback'), 'a standby that sends feedback');
like($s->query("SELECT remedy FROM baton.horizon WHERE kind = 'standby'"), qr/hot_standby_feedback = off there/, 'and what ends it');
is($reader->query("SELECT state, detail FROM baton.health WHERE item = 'mover'"), 'ok|starts when this standby is promoted', 'on a standby there is no mover, and health says why');
is($reader->query("SELECT count(*) FROM baton.health WHERE item IN ('launcher', 'retention') AND state = 'ok'"), 2, 'nor any other');
$s->query("SELECT pg_create_physical_replication_slot('kept')");
$reader->quit;
$standby->append_conf('postgresql.conf', "primary_slot_name = 'kept'");
$standby->restart;
ok(wait_until(sub { pinned() =~ /replication slot kept(?!,)/ }, 'the slot'), 'through a slot it is the slot');
is($state->(), 'ok', 'which is fine while somebody is connected');
$standby->stop;
ok(wait_until(sub { pinned() eq 'replication slot kept, nobody connected' }, 'the standby to be gone'), 'the standby is gone, the slot keeps what it had');
is($state->(), 'warning', 'that is worth a warning');
like($s->query("SELECT detail FROM baton.health WHERE item = 'horizon'"), qr/replication slot kept.*TABLE baton\.horizon/, 'with who, and where it says what to do');
$remedy = $s->query('SELECT remedy FROM baton.horizon');
like($remedy, qr/SELECT pg_drop_replication_slot\('kept'\)$/, 'the remedy');
$s->query($remedy =~ s/^.*?(?=SELECT)//r);
is(pinned(), '', 'helps');

# ---- a logical slot keeps rows of catalogs only
$s->query("SELECT pg_create_logical_replication_slot('decoded', 'pgoutput')");
is(pinned(), 'replication slot (catalogs) decoded, nobody connected', 'a logical slot that nobody reads');
$s->query("SELECT pg_drop_replication_slot('decoded')");

# ---- does what it names keep segments? It does, and what it does not name does not.
$s->query("SELECT baton.create_queue('q', segments => 2, segment_bytes => 65536, lease => '100 ms', min_lease => '100 ms')");
my $epochs = q{SELECT sum(epoch) FROM baton.segments WHERE queue = 'q'};
my $turn = sub {
	$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill(to_jsonb(repeat('x', 700)), ARRAY[150]))");
	$s->query("SELECT count(*) FROM baton.take('q', 1000)");
	$s->query("SELECT id FROM baton.enqueue('q', '1')");
	return;
};
$o->query($_) for 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1';
$turn->();
my $before = $s->query($epochs);
ok(wait_until(sub { $s->query("SELECT baton_internal.rotate('q')"); $s->query($epochs) > $before }, 'rotation'), 'with a snapshot in another database a segment is reclaimed');
$p->query($_) for 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1';
like(pinned(), qr/^session/, 'with one here, it is named');
$turn->();
$s->query("SET pg_baton.clock_offset = '1h'");    # no lease is what keeps it
$s->query("SELECT baton_internal.rotate('q')") for 1 .. 3;
is($s->query("SELECT count(*) FROM baton.segments WHERE queue = 'q' AND state = 'drained'"), 1, 'and keeps the next segment');
$p->query('COMMIT');
ok(wait_until(sub { $s->query("SELECT baton_internal.rotate('q')"); $s->query("SELECT count(*) FROM baton.segments WHERE queue = 'q' AND state = 'drained'") == 0 }, 'rotation'), 'until it is over');
done_testing();
