# Settings that somebody makes for the whole server, a database or a role, and that are not meant for a queue: no worker and no
# verb is disturbed. Our own settings are picked up by reload; the switches stop and start everything; without workers, maintain()
# does it all.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'settings', conf => "max_worker_processes = 16\nautovacuum = off\npg_baton.mover_naptime = 50ms\npg_baton.retention_naptime = 50ms\npg_baton.rotate_min_interval = 0\npg_baton.sweep_interval = 500ms\n");
my $admin = session($node, name => 'admin', options => '-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off');
$admin->query($_) for 'CREATE ROLE shop LOGIN', 'GRANT USAGE, CREATE ON SCHEMA baton_queue TO shop';
my $options = "backoff => '0 s', max_attempts => 1, lease => '1 h', min_lease => '100 ms', segments => 2, segment_bytes => 65536";
session($node, user => 'shop')->query("SELECT baton.create_queue('q', $options)");
my $segment = $admin->query(q{SELECT 'baton_data.q' || value || '_' FROM baton.describe_queue('q') WHERE option = 'id'});

# All that could end or change somebody's transactions. The timeouts are too short for any worker, the nap of one included;
# sessions of the application have longer ones, which a verb does not reach.
my %hostile = (
	statement_timeout => '20ms', lock_timeout => '1ms', idle_in_transaction_session_timeout => '20ms', default_transaction_isolation => 'serializable',
	default_transaction_deferrable => 'on', default_transaction_read_only => 'on', synchronous_commit => 'off', search_path => 'nowhere', max_parallel_workers_per_gather => 8,
	zero_damaged_pages => 'on', enable_seqscan => 'off', enable_indexscan => 'off', work_mem => '64kB', bytea_output => 'escape',
	IntervalStyle => 'sql_standard', DateStyle => 'German');
# a session is under this one while it is being opened already, on a machine that may be busy
$hostile{transaction_timeout} = '500ms' if $admin->query("SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'") == 1;
my %patient = (default_transaction_read_only => 'off', map { $_ => '15s' } grep { /timeout/ } keys %hostile);
my $patient = join ' ', '-c jit=off', map { "-c $_=$patient{$_}" } keys %patient;

# work(NAME): a day of the queue, in a session of its owner's, with everything that the workers are for
sub work
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $s = session($node, user => 'shop', options => $patient);
	my @errors;
	my $do = sub { my $a = $s->try($_[0]); push @errors, $_[0] . ': ' . $a->message unless $a->ok; return $a->rows; };
	$do->("SELECT id FROM baton.enqueue('q', '1')") for 1 .. 4;
	my @token = map { $do->("SELECT token FROM baton.claim('q', 'w', lease => '1 h')") } 1, 2;
	my $lapses = $do->("SELECT id FROM baton.claim('q', 'w', lease => '100 ms')");
	$do->("SELECT baton.start('$token[0]')");
	$do->("SELECT baton.extend('$token[0]', '1 h')");
	$do->($_) for 'BEGIN', "SELECT baton.ack('$token[0]')", 'COMMIT';
	$do->("SELECT outcome FROM baton.hand_back(ARRAY['$token[1]'])");
	$do->("SELECT count(*) FROM baton.take('q', 10)");
	my $reason = $do->("CALL baton.wait('q', '100 ms')");
	push @errors, "wait said $reason" if $reason !~ /^(?:timeout|statement_timeout)$/;
	is("@errors", '', "$name: no verb is disturbed");
	ok(wait_until(sub { $admin->query("SELECT count(*) FROM baton.quarantined('q') WHERE id = $lapses") == 1 }, 'the message'), "$name: the mover works");
	my $epochs = "SELECT sum(epoch) FROM generate_series(0, 1) n, baton_internal.map_meta(('$segment' || n)::regclass)";
	my $epoch = $admin->query($epochs);
	# two segments' worth of messages whose lease is short, so that they can go at once
	for (1 .. 2)
	{
		$admin->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill(to_jsonb(repeat('x', 700)), ARRAY[150]))");
		my $n = $admin->query("WITH c AS MATERIALIZED (SELECT token FROM baton.claim('q', 'w', 1000, '2 s')) SELECT baton.ack_batch(array_agg(token)) FROM c");
	}
	$node->append_conf('postgresql.conf', "pg_baton.clock_offset = '2h'");
	$node->reload;
	ok(wait_until(sub { $admin->query($epochs) > $epoch }, 'rotation'), "$name: retention works");
	$node->append_conf('postgresql.conf', 'pg_baton.clock_offset = 0');
	$node->reload;
	wait_until(sub { $admin->query('SHOW pg_baton.clock_offset') eq '0' }, 'the clock');
	return;
}
work('as it is');
$node->append_conf('postgresql.conf', join '', map { "$_ = '$hostile{$_}'\n" } sort keys %hostile);
$node->reload;
work('for the whole server');
for my $where ('DATABASE postgres', 'ROLE shop', 'ROLE shop IN DATABASE postgres', 'ROLE CURRENT_USER')
{
	# CURRENT_USER: the bootstrap superuser, as whom the workers run
	my %set = (%hostile, $where =~ /shop/ ? %patient : ());
	$admin->query("ALTER $where SET $_ = '$set{$_}'") for sort keys %set;
}
$admin->quit;
$node->restart;
$admin = session($node, name => 'admin', options => "$patient -c default_transaction_isolation=read\\ committed");
my $timed_out = sub { my $log = slurp_file($node->logfile); return $log =~ /pg_baton (?:mover|retention).*(?:timeout|ERROR|FATAL)|WARNING:  pg_baton/ };
is($admin->query("SELECT rolsuper FROM pg_roles WHERE oid = 10"), 't', 'workers run as the bootstrap superuser');
ok(wait_for_workers($node, 'postgres'), 'for databases and roles: the workers start');
is($admin->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_baton (mover|retention)' AND application_name ~ '^pg_baton'"), 2, 'under their own names');
work('for databases and roles');
ok(!$timed_out->(), 'no worker has met an error');

# ---- what is ours is picked up by reload
my $runs = sub { return $admin->query("SELECT runs FROM baton_internal.worker_status() WHERE worker = '$_[0]' AND step = 'queues'") };
# set(LINES): and they are in force, in the sessions at least
sub set { my ($lines) = @_; $node->append_conf('postgresql.conf', $lines); $node->reload; return; }
$admin->query("ALTER $_ RESET ALL") for 'DATABASE postgres', 'ROLE shop', 'ROLE shop IN DATABASE postgres', 'ROLE CURRENT_USER';
set("pg_baton.mover_naptime = 1h\npg_baton.retention_naptime = 1h");
for my $kind ('mover', 'retention')
{
	my $before = -1;
	ok(wait_until(sub { my $now = $runs->($kind); my $same = $now == $before; $before = $now; return $same if !$same; $admin->query('SELECT pg_sleep(0.2)'); $runs->($kind) == $now }, "the $kind to sleep"), "$kind: naps for longer");
}
my %before = map { $_ => $runs->($_) } 'mover', 'retention';
set("pg_baton.mover_naptime = 50ms\npg_baton.retention_naptime = 50ms");
ok(wait_until(sub { $runs->($_) > $before{$_} + 3 }, $_), "$_: and for less, without a restart") for 'mover', 'retention';

# ---- the switches
my $w = session($node, user => 'shop', options => $patient);
set('pg_baton.claims = off');
ok(wait_until(sub { $w->query('SHOW pg_baton.claims') eq 'off' }, 'the switch'), 'claims = off');
$w->query("SELECT id FROM baton.enqueue('q', '1')");
is($w->query("SELECT count(*) FROM baton.claim('q')"), 0, 'claims = off: a claim comes back empty');
ok(work_goes_on($node, 'postgres'), 'claims = off: the workers work');
set('pg_baton.enabled = off');
ok(wait_until(sub { $w->query('SHOW pg_baton.enabled') eq 'off' }, 'the switch'), 'enabled = off');
refused_with($w, "SELECT id FROM baton.enqueue('q', '1')", '55000', 'enabled = off: verbs refuse');
ok(wait_until(sub { my %now = map { $_ => $runs->($_) } 'mover', 'retention'; $admin->query('SELECT pg_sleep(0.2)'); $now{mover} == $runs->('mover') && $now{retention} == $runs->('retention') }, 'them to stand still'),
	'enabled = off: the workers stand still');
is(workers_of($node, 'postgres'), 'mover retention', 'enabled = off: but are there');
is($admin->query("SELECT string_agg(DISTINCT state || ' ' || (detail ~ 'stands still'), ' ') FROM baton.health WHERE item IN ('mover', 'retention')"), 'ok true', 'enabled = off: health does not call them late');
set("pg_baton.enabled = on\npg_baton.claims = on");
ok(work_goes_on($node, 'postgres'), 'on again: the workers work');
ok(wait_until(sub { $w->query('SHOW pg_baton.claims') eq 'on' }, 'the switch'), 'on again');
is($w->query("SELECT count(*) FROM baton.take('q', 10)"), 1, 'and verbs do');
ok(!$timed_out->(), 'no worker has met an error');

# ---- without workers
$_->quit for $admin, $w;
$node->append_conf('postgresql.conf', "pg_baton.workers = off\ndefault_transaction_isolation = 'read committed'\ndefault_transaction_read_only = off");
$node->restart;
$admin = session($node, name => 'admin', options => $patient);
is($admin->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^pg_baton'"), 0, 'workers = off: none is there');
like($admin->query("SELECT state, detail FROM baton.health WHERE item = 'launcher'"), qr/^warning\|.*CALL baton\.maintain\(\)/, 'workers = off: health says what to do instead');
$admin->query("SELECT id FROM baton.enqueue('q', '1')");
my $id = $admin->query("SELECT id FROM baton.claim('q', lease => '100 ms')");
my $epochs = "SELECT sum(epoch) FROM generate_series(0, 1) n, baton_internal.map_meta(('$segment' || n)::regclass)";
my $epoch = $admin->query($epochs);
$admin->query("SET pg_baton.clock_offset = '3h'");
$admin->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill(to_jsonb(repeat('x', 700)), ARRAY[150]))");
$admin->query("SELECT count(*) FROM baton.take('q', 1000)");
$admin->query("SELECT id FROM baton.enqueue('q', '1')");
$admin->query("SET pg_baton.clock_offset = '6h'");
ok(wait_until(sub { $admin->query('CALL baton.maintain()'); $admin->query("SELECT count(*) FROM baton.quarantined('q') WHERE id = $id") == 1 && $admin->query($epochs) > $epoch }, 'all of it'),
	'workers = off: maintain() quarantines and reclaims');
is($admin->query("SELECT * FROM baton.check('q')"), '', 'check finds nothing');
done_testing();
