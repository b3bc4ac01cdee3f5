# Behind PgBouncer in transaction mode: no verb needs the session that another one ran in. Skipped where there is no pgbouncer.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
plan skip_all => 'there is no pgbouncer' unless $pgbouncer;

my $node = new_node('pooled', conf => "autovacuum = off\n");
$node->safe_psql('postgres', "SELECT baton.create_queue('q', backoff => '0 s')");
my $folder = $PostgreSQL::Test::Utils::tmp_check . '/pooler';
mkdir $folder;
# three connections to the server for all clients
my $port = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$folder/users", "\"postgres\" \"\"\n");
append_to_file(
	"$folder/pgbouncer.ini", join "\n", '[databases]', '* = host=' . $node->host . ' port=' . $node->port . ' user=' . $node->safe_psql('postgres', 'SELECT current_user'),
	'[pgbouncer]', "listen_port = $port", 'unix_socket_dir = ' . $node->host, 'listen_addr =', 'auth_type = any', "auth_file = $folder/users",
	'pool_mode = transaction', 'default_pool_size = 3', 'ignore_startup_parameters = extra_float_digits,options', "logfile = $folder/log", "pidfile = $folder/pid", '');
my $pid = fork() // die "fork: $!";
if (!$pid)
{
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	exec $pgbouncer, '-q', "$folder/pgbouncer.ini" or POSIX::_exit(1);
}
END { if ($pid) { local $?; kill 'TERM', $pid; waitpid $pid, 0; } }

# what a session needs to know of a node
package Pooled { sub host { $_[0]{node}->host } sub port { $_[0]{port} } sub installed_command { my $s = shift; return $s->{node}->installed_command(@_) } }
my $pooled = bless { node => $node, port => $port }, 'Pooled';
ok(wait_until(sub { -S $node->host . "/.s.PGSQL.$port" }, 'pgbouncer'), 'pgbouncer is there');
my @c = map { session($pooled, name => "client$_") } 1 .. 8;
my %server;
# each holds a transaction for a moment, so that the pool hands them different connections
for my $n (0 .. 2) { $c[$n]->query('BEGIN'); $server{ $c[$n]->query('SELECT pg_backend_pid()') } = 1; }
$_->query('COMMIT') for @c[ 0 .. 2 ];
is(scalar(keys %server), 3, 'three connections to the server');

# ---- every verb in a transaction of its own, wherever it runs
my %token;
for my $n (1 .. 60)
{
	my $client = $c[ $n % 8 ];
	my $id = $client->query("SELECT id FROM baton.enqueue('q', '$n')");
	my $other = $c[ ($n * 3 + 1) % 8 ];
	$other->query('BEGIN');    # keeps a connection busy, so that the next statement runs on another one
	$other->query('SELECT 1');
	my $claimer = $c[ ($n * 5 + 2) % 8 ];
	$claimer = $c[ ($n * 5 + 3) % 8 ] if $claimer == $other;
	my ($token, $got) = split /\|/, $claimer->query("SELECT token, id FROM baton.claim('q', 'w', lease => '10 min')");
	$token{$got} = $token;
	$other->query('COMMIT');
}
is(scalar(keys %token), 60, 'sixty claims');
my $settled = 0;
for my $id (sort { $a <=> $b } keys %token)
{
	my $client = $c[ $id % 8 ];
	$client->query('BEGIN');
	$client->query("SELECT baton.start('$token{$id}')");
	$client->query("SELECT baton.extend('$token{$id}', '1 min')");
	$settled++ if $client->query("SELECT baton.ack('$token{$id}')") eq 'acked';
	$client->query('COMMIT');
}
is($settled, 60, 'sixty acks, with tokens that other connections were given');
is($c[0]->query("SELECT baton.why_empty('q')"), 'empty', 'why_empty needs no session');

# ---- waiting takes one of the connections, and gives it back
$c[0]->send("CALL baton.wait('q', '3 min')");
wait_until(sub { $node->safe_psql('postgres', "SELECT waiting FROM baton.queue_stats WHERE queue = 'q'") == 1 }, 'the waiter');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE query ~ 'baton.wait' AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL"), 0, 'a waiter holds no snapshot');
is($c[1]->query('SELECT 1'), 1, 'other clients go on');
$c[1]->query("SELECT id FROM baton.enqueue('q', '\"woken\"')");
is($c[0]->answer->rows, 'ready', 'it is woken by the commit of another client');
is($c[2]->query("SELECT count(*) FROM baton.take('q')"), 1, 'and somebody takes the message');
$c[3]->query('BEGIN');
is($c[3]->try("CALL baton.wait('q', '1 s')")->state, '25001', 'it is refused in a transaction block');
$c[3]->query('ROLLBACK');

# ---- rollback on whichever connection
$c[4]->query("SELECT id FROM baton.enqueue('q', '\"again\"')");
$c[5]->query('BEGIN');
is($c[5]->query("SELECT count(*) FROM baton.take('q')"), 1, 'taken');
$c[5]->query('ROLLBACK');
my $again = 0;
ok(wait_until(sub { ($again += $c[6]->query("SELECT count(*) FROM baton.take('q')")) > 0 }, 'the message'), 'what was rolled back is handed out to another client');
$_->quit for @c;
is_sound($node, 'q');
done_testing();
