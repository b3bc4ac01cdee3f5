# Session-bound claims, in every way a session can end: closed, terminated, its client killed, an error while it goes, a
# restart, a crash of the server; and what a standby makes of them. The exit itself must go on, whatever happens.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('bound', streaming => 1, conf => "autovacuum = off\n");
my $s = session($node);
$s->query("SELECT baton.create_queue('q', backoff => '0', lease => '30 min')");
$s->query("SELECT baton.create_queue('other', backoff => '0', lease => '30 min')");

# holder(QUEUE, ...): a session with a bound claim of one message of each queue; the session and the tokens
sub holder
{
	my (@queues) = @_;
	my $h = session($node);
	$h->query('SET pg_baton.session_claims = on');
	my @tokens;
	for (@queues)
	{
		$s->query("SELECT baton.enqueue('$_', '1')");
		push @tokens, $h->query("SELECT token FROM baton.claim('$_', 'bound')");
	}
	return ($h, @tokens);
}

# outcome(TOKEN): what extending it would answer
sub outcome { my ($token) = @_; return $s->query("SELECT outcome FROM baton.extend_batch(ARRAY['$token'])") }

# is_gone(SESSION)
sub is_gone
{
	my ($h) = @_;
	my $pid = $h->pid;
	return wait_until(sub { $s->query("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, "backend $pid to go");
}

# over(NAME, TOKEN): the claim has ended, and its message is there once, with a failure; takes it
sub over
{
	my ($name, $token, $queue) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(outcome($token), 'lease_expired', "$name: the token is refused");
	is($s->query("SELECT id IS NOT NULL, failures FROM baton.take('" . ($queue // 'q') . "', 10)"), 't|1', "$name: the message is there, with a failure");
	return;
}

# ---- ways to go
my ($h, $token) = holder('q');
$h->quit;
is_gone($h);
over('closed', $token);

($h, $token) = holder('q');
$s->query('SELECT pg_terminate_backend(' . $h->pid . ')');
is_gone($h);
over('terminated', $token);

($h, $token) = holder('q');
$h->kill_client;
is_gone($h);
over('client killed', $token);

($h, $token) = holder('q');
$h->query('BEGIN');
$h->query("SELECT baton.ack('$token')");
is(outcome($token), 'settling', 'idle in a transaction that settles');
$h->query("SET idle_in_transaction_session_timeout = '10 ms'");
is_gone($h);
over('timed out', $token);

($h, $token) = holder('q');
$h->query('CREATE TEMP TABLE t (i int)');
$h->send("SELECT pg_sleep(600) FROM baton.enqueue('q', '\"never\"')");
wait_until(sub { $s->query('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $h->pid) eq 'PgSleep' }, 'the statement to run');
$s->query('SELECT pg_terminate_backend(' . $h->pid . ')');
is_gone($h);
over('in the middle of a statement', $token);

# ---- its tokens are anybody's who has them: a settlement that another session has begun stands or falls by itself
for my $end (qw(COMMIT ROLLBACK))
{
	($h, $token) = holder('q');
	$s->query('BEGIN');
	$s->query("SELECT baton.ack('$token')");
	$h->quit;
	wait_until(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $h->pid) == 0 }, 'the backend to go');
	is($node->safe_psql('postgres', "SELECT count(*) FROM baton.take('q')"), 0, "settled elsewhere: the message is not handed out");
	$s->query($end);
	is(outcome($token), $end eq 'COMMIT' ? 'already_settled' : 'extended', "settled elsewhere, $end: what came of it");
}
$s->query("SELECT baton.ack('$token')");

# ---- a session that goes waits for nobody
my $other;
($h, $token, $other) = holder('q', 'other');
my $locker = session($node);
$locker->query('BEGIN');
$locker->query('LOCK TABLE baton_data.q1_0 IN ACCESS EXCLUSIVE MODE');
$h->quit;
ok(is_gone($h), 'locked: the session goes all the same');
$locker->query('ROLLBACK');
is(outcome($token), 'extended', 'locked: the claim that could not be reached runs on');
over('locked: the other queue', $other, 'other');
$s->query("SELECT baton.ack('$token')");

# ---- errors while it goes
for my $point ('exit-claims', 'end-claim')
{
	($h, $token, $other) = holder('q', 'other');
	$h->query("SET pg_baton.debug_point = '$point:error'");
	$h->quit;
	ok(is_gone($h), "$point: the session goes all the same");
	is(outcome($token) . ' ' . outcome($other), 'extended extended', "$point: its claims run on");
	$s->query("SELECT baton.ack('$_')") for $token, $other;
}
($h, $token, $other) = holder('q', 'other');
$h->query("SET pg_baton.debug_point = 'exit-evidence:error'");
$h->quit;
is_gone($h);
over('an error in the evidence', $token);
over('an error in the evidence: and in the next', $other, 'other');
like(slurp_file($node->logfile), qr/FATAL: .*exit-evidence/, 'the error is in the log');

# ---- a restart ends sessions in good order
($h, $token) = holder('q');
$s->query("SELECT baton.enqueue('q', '2')");
my $unbound = $s->query("SELECT token FROM baton.claim('q', 'unbound')");
$s->quit;
$node->restart;
$s = session($node);
$h->quit;
is(outcome($unbound), 'extended', 'restart: an ordinary claim goes on');
$s->query("SELECT baton.ack('$unbound')");
over('restart', $token);

# ---- a crash: nobody is left to say so, and nobody is left to hold the claim
($h, $token) = holder('q');
$s->query("SELECT baton.enqueue('q', '2')");
$unbound = $s->query("SELECT token FROM baton.claim('q', 'unbound')");
my $prepared = session($node);
$prepared->query('SET pg_baton.session_claims = on');
$s->query("SELECT baton.enqueue('other', '3')");
my $in_doubt = $prepared->query("SELECT token FROM baton.claim('other')");
$_->quit for $s;
crash_and_start($node);
$s = session($node);
$_->quit for $h, $prepared;
is($s->query('SELECT count(*), bool_or(session_bound) FROM baton.in_flight'), '1|f', 'crash: only the ordinary claim is in flight');
is($s->query("SELECT ready, claimed FROM baton.queue_stats WHERE queue = 'q'"), '1|1', 'crash: the other message is ready');
is($s->query("SELECT state FROM baton_queue.other"), 'ready', 'crash: as the view says');
is($s->query("SELECT obstacle FROM baton.explain_message('other', (SELECT id FROM baton_queue.other))"), 'none', 'crash: and explain_message');
my @refused = map { $s->try($_)->state } "SELECT baton.ack('$token')", "SELECT baton.extend('$token')", "SELECT baton.start('$token')", "SELECT baton.release('$token')";
is("@refused", 'QB002 QB002 QB002 QB002', 'crash: the token can do nothing');
is($s->query("SELECT outcome FROM baton.hand_back(ARRAY['$token'])"), 'lease_expired', 'crash: not even hand back');
is($s->query("SELECT baton.revoke('q', (SELECT id FROM baton_queue.q WHERE state = 'ready'))"), 'not_claimed', 'crash: nothing to revoke');
is(outcome($unbound), 'extended', 'crash: an ordinary claim goes on');
$s->query("SELECT baton.ack('$unbound')");
over('crash', $token);
over('crash: another queue', $in_doubt, 'other');
is_sound($node, $_) for 'q', 'other';

# One backend that is killed takes all sessions with it.
($h, $token) = holder('q');
my $victim = session($node);
kill 'KILL', $victim->pid;
wait_until(sub { $h->try('SELECT 1')->lost }, 'the other session to be cut off');
$node->poll_query_until('postgres', 'SELECT true');
$_->quit for $s, $victim, $h;
$s = session($node);
over('a backend that was killed', $token);

# ---- a standby
my $standby = standby_of($node, 'standby');
($h, $token) = holder('q');
$s->query("SELECT baton.enqueue('other', '4')");
catch_up($node, $standby);
is($standby->safe_psql('postgres', "SELECT session_bound FROM baton.in_flight"), 't', 'standby: the claim is in flight');
$standby->restart;
is($standby->safe_psql('postgres', "SELECT state, session_bound FROM baton.in_flight"), 'claimed|t', 'standby: also when it has been restarted, since the session is on the primary');
my $other_token = $h->query("SELECT token FROM baton.claim('other')");
catch_up($node, $standby);
kill_server($node);
$standby->promote;
$_->quit for $s, $h;
$node = $standby;
$s = session($standby);
is(outcome($other_token), 'extended', 'promoted: a claim from after the start of the standby runs to the end of its lease');
over('promoted: one from before the restart of the standby', $token);
$s->quit;
$standby->stop;

done_testing();
