# wait: a session that sleeps holds no snapshot, no transaction id and no lock; it is woken by whatever makes work ready, one
# session for each message; and a wake-up is not lost with the session that got it.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# No session looks for itself within the time of the test, and no worker helps: what wakes is the wake-up.
my $quiet = "pg_baton.wait_recheck = '1h'\npg_baton.sweep_interval = '1h'\n";
my $node = new_node('wait', conf => "${quiet}pg_baton.workers = off\nautovacuum = off\n");
my $s = session($node, name => 'main');
my $look = session($node, name => 'look');    # outside of any transaction: what it sees of other sessions is as of its first look
$s->query("SELECT baton.create_queue('q', backoff => '0 s', max_attempts => 1000, lease => '10 min', min_lease => '100 ms')");

sub sleeping
{
	my (@sessions) = @_;
	my $pids = join ',', map { $_->pid } @sessions;
	return $look->query("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND backend_xmin IS NULL AND pid IN ($pids)") == @sessions;
}

sub waiter
{
	my ($call) = @_;
	my $w = session($node, name => 'waiter');
	$w->send($call // "CALL baton.wait('q', '1 h')");
	wait_until(sub { sleeping($w) }, 'the waiter to sleep') or diag($look->query('SELECT * FROM pg_stat_activity WHERE pid = ' . $w->pid));
	return $w;
}
sub empty { 1 while $s->query("SELECT count(*) FROM baton.take('q', 1000)") > 0; return; }

# ---- what a sleeping session holds
my $w = waiter();
is($s->query('SELECT backend_xmin, backend_xid, state FROM pg_stat_activity WHERE pid = ' . $w->pid), '||active', 'no snapshot and no transaction id while waiting');
is($s->query("SELECT count(*) FROM pg_locks WHERE locktype <> 'virtualxid' AND pid = " . $w->pid), 0, 'and no lock');
my $xmin = $s->query('SELECT pg_snapshot_xmin(pg_current_snapshot())');
$s->query('SELECT pg_current_xact_id()') for 1 .. 3;
cmp_ok($s->query('SELECT pg_snapshot_xmin(pg_current_snapshot())'), '>', $xmin, 'the horizon moves on');
is($s->query("SELECT waiting FROM baton.queue_stats WHERE queue = 'q'"), 1, 'queue_stats counts it');

# ---- what wakes it
my ($id, $token);
my $claim = sub { my ($lease) = @_; return $s->query("SELECT token FROM baton.claim('q', 'w', lease => '$lease')") };
sub wakes
{
	my ($name, $before, @sql) = @_;
	empty();
	$before->() if $before;
	my $w = waiter();
	ok(!$w->ready, "$name: it sleeps before");
	for my $sql (@sql) { ref $sql ? $sql->() : $s->query($sql) }
	is($w->answer->rows, 'ready', "$name wakes it");
	is($w->query("SELECT count(*) FROM baton.claim('q', 'x', 10)") >= 1, 1, "$name: and there is something to claim");
	$w->query("SELECT baton.fence('q')");
	return;
}
$s->query("SELECT id FROM baton.enqueue('q', '1')");
is($w->answer->rows, 'ready', 'the commit of an enqueue wakes it');
wakes('commit of a transaction', undef, 'BEGIN', "SELECT id FROM baton.enqueue('q', '1')", sub { ok(!$w->{mark}, 'not before') }, 'COMMIT');
wakes('INSERT into the view', undef, q{INSERT INTO baton_queue.q (payload) VALUES ('1')});
wakes('enqueue with a due time that comes', undef, "SELECT id FROM baton.enqueue('q', '1', delay => '300 ms')");
wakes('due time of a message that was there', sub { $s->query("SELECT id FROM baton.enqueue('q', '1', delay => '500 ms')") });
wakes('end of a lease', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $claim->('500 ms') });
wakes('end of a lease that was made later', sub { $s->query("SELECT id FROM baton.enqueue_batch('q', '{1,2}')"); $claim->('10 min'); $claim->('10 min') },
	sub { $s->query("SELECT baton.fence('q')") });
wakes('rollback of a claim', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $s->query('BEGIN'); $claim->('10 min') }, 'ROLLBACK');
wakes('rollback of a take', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $s->query('BEGIN'); $s->query("SELECT id FROM baton.take('q')") }, 'ROLLBACK');
wakes('rollback to a savepoint before a claim', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $s->query($_) for 'BEGIN', 'SAVEPOINT a'; $claim->('10 min') },
	'ROLLBACK TO a', 'COMMIT');
wakes('release', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $token = $claim->('10 min') }, sub { $s->query("SELECT state FROM baton.release('$token', '0 s')") });
wakes('release with a delay', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $token = $claim->('10 min') },
	sub { $s->query("SELECT state FROM baton.release('$token', '300 ms')") });
wakes('resume', sub { $s->query($_) for "SELECT id FROM baton.enqueue('q', '1')", "SELECT baton.pause('q')" }, "SELECT baton.resume('q')");
wakes('resume in a transaction', sub { $s->query($_) for "SELECT id FROM baton.enqueue('q', '1')", "SELECT baton.pause('q')" },
	'BEGIN', "SELECT baton.resume('q')", 'COMMIT');
wakes('revoke', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $claim->('10 min') }, "SELECT baton.revoke('q', id) FROM baton.in_flight");
my $bound;
wakes('end of a session with a bound claim', sub { $bound = session($node); $s->query("SELECT id FROM baton.enqueue('q', '1')");
		$bound->query($_) for 'SET pg_baton.session_claims = on', "SELECT token FROM baton.claim('q')" }, sub { $bound->quit });
wakes('hand_back', sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $token = $claim->('10 min') }, sub { $s->query("SELECT outcome FROM baton.hand_back(ARRAY['$token'])") });
wakes('a row that was locked and is let go',
	sub { $s->query("SELECT id FROM baton.enqueue('q', '1')"); $s->query('BEGIN'); $s->query("SELECT count(*) FROM (SELECT FROM baton_data.q1_0 FOR UPDATE) r") }, 'COMMIT');

# ---- other ends
empty();
is($s->query("CALL baton.wait('q', '50 ms')"), 'timeout', 'timeout');
$s->query("SET statement_timeout = '700 ms'");
is($s->query("CALL baton.wait('q', '1 h')"), 'statement_timeout', 'a little before statement_timeout would cut it');
$s->query('RESET statement_timeout');
$s->query('BEGIN');
refused_with($s, "CALL baton.wait('q', '1 s')", '25001', 'refused in a transaction block');
$s->query('ROLLBACK');
refused_with($s, q{DO 'DECLARE r text; BEGIN CALL baton.wait(''q'', ''1 s'', r); EXCEPTION WHEN no_data_found THEN NULL; END'}, '25001', 'refused where it cannot end the transaction');
$w = waiter();
$s->query('SELECT pg_cancel_backend(' . $w->pid . ')');
is($w->answer->state, '57014', 'it can be cancelled');
is($s->query("SELECT waiting FROM baton.queue_stats WHERE queue = 'q'"), 0, 'and is no waiter then');
$w = waiter();
$s->query("SELECT baton.create_queue('short-lived')");
my $d = waiter("CALL baton.wait('short-lived', '1 h')");
$s->query("SELECT baton.drop_queue('short-lived')");
pass('a queue is dropped while somebody waits for it');
$s->query('SELECT pg_cancel_backend(' . $d->pid . ')');
like($d->answer->state, qr/^(42704|57014)$/, 'who then gets an error of his own');
$s->query("REVOKE ALL ON baton_queue.q FROM PUBLIC");
$s->query("SELECT id FROM baton.enqueue('q', '1')");
is($w->answer->rows, 'ready', 'the other one is woken as ever');

# ---- one waiter for each message
sub herd
{
	my ($n) = @_;
	empty();
	my @w = map { session($node, name => 'waiter') } 1 .. $n;
	$_->send("CALL baton.wait('q', '1 h')") for @w;
	wait_until(sub { sleeping(@w) }, 'all to sleep');
	return @w;
}
my @w = herd(12);
for my $round ([ 1, 1 ], [ 3, 4 ])
{
	my ($n, $sum) = @$round;
	$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[$n]))");
	wait_until(sub { scalar(grep { $_->ready } @w) >= $sum }, "$sum to be woken");
	# whoever else had been woken would have found the message too, which nobody has claimed yet
	$s->query("SELECT count(*) FROM baton.queue_stats") for 1 .. 20;
	is(scalar(grep { $_->ready } @w), $sum, "of 12 waiters $n more for $n messages");
	is($s->query("SELECT waiting FROM baton.queue_stats WHERE queue = 'q'"), 12 - $sum, 'the others sleep on');
}
# who was woken and goes away without having claimed passes it on
my ($woken) = grep { $_->ready } @w;
my @asleep = grep { !$_->ready } @w;
my $before = grep { $_->ready } @w;
$s->query('SELECT pg_terminate_backend(' . $woken->pid . ')');
ok(wait_until(sub { (grep { $_->ready } @asleep) == 1 }, 'another'), 'a woken session that is terminated before it claims wakes the next');
my ($second) = grep { $_->ready } @asleep;
@asleep = grep { !$_->ready } @asleep;
$second->kill_client;
ok(wait_until(sub { (grep { $_->ready } @asleep) == 1 }, 'another'), 'one whose client is killed too');
my ($third) = grep { $_->ready } @asleep;
@asleep = grep { !$_->ready } @asleep;
is($third->answer->rows, 'ready', 'the third');
$third->send("CALL baton.wait('q', '1 h')");
ok(wait_until(sub { (grep { $_->ready } @asleep) == 1 }, 'another'), 'one that waits again without having claimed too');
my ($fourth) = grep { $_->ready } @asleep;
@asleep = grep { !$_->ready } @asleep;
is($fourth->answer->rows, 'ready', 'the fourth');
$fourth->query("SELECT count(*) FROM baton.take('q', 1)");
$fourth->quit;
$s->query('SELECT count(*) FROM baton.queue_stats') for 1 .. 20;
is(scalar(grep { $_->ready } @asleep), 0, 'one that has claimed does not');
undef @w;
undef @asleep;
$_->kill_client for grep { $_->{process} } $third;

# Killed after it was woken and before it could say so: stopped meanwhile, so that it surely has not. PostgreSQL sets the
# latch of any session once, ten seconds after it was last idle, to report statistics; so it is the quickest that counts.
my $passed_on = 0;
my $quickest = 1000;
for my $attempt (1 .. 12)
{
	my ($stopped, $other) = herd(2);
	kill 'STOP', $stopped->pid;
	$s->query("SELECT id FROM baton.enqueue('q', '1')");
	# the wake-up went to one of them; the other one answers at once, the stopped one cannot
	my $went_to_other = 0;
	for (1 .. 50) { $went_to_other = 1, last if $other->ready; $s->query('SELECT pg_sleep(0.01)'); }
	$s->query('SELECT pg_terminate_backend(' . $stopped->pid . ')');
	kill 'CONT', $stopped->pid;
	next if $went_to_other;
	$passed_on++;
	my $from = time();
	ok(wait_until(sub { $other->ready }, 'the other'), 'the other one has found the message');
	$quickest = time() - $from if time() - $from < $quickest;
	last if $passed_on == 3;
}
cmp_ok($quickest, '<', 6, 'a session that is terminated after it was woken and before it looked wakes the next');

# ---- wait_any
$s->query("SELECT baton.create_queue('My \"Queue\"')");
empty();
$w = waiter(q{CALL baton.wait_any(ARRAY['q', 'My "Queue"'], '1 h')});
is($s->query('SELECT backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = ' . $w->pid), '|', 'wait_any holds no snapshot either');
$s->query(q{SELECT id FROM baton.enqueue('My "Queue"', '1')});
is($w->answer->rows, 'My "Queue"', 'wait_any says which, whatever it is called');
$w = waiter(q{CALL baton.wait_any(ARRAY['q'], '1 h')});
$s->query("SELECT id FROM baton.enqueue('q', '1')");
is($w->answer->rows, 'q', 'wait_any of one');

# ---- NOTIFY is nobody's business: sessions that listen change nothing, and nothing is sent
empty();
my @listeners = map { my $l = session($node, name => 'listener'); $l->query('LISTEN q'); $l->query('LISTEN baton'); $l } 1 .. 10;
my $sent = q{SELECT blks_zeroed + blks_hit + blks_read + blks_written FROM pg_stat_slru WHERE lower(name) = 'notify'};
my $notified = $s->query($sent);
$listeners[0]->query('BEGIN');
for (1 .. 5)
{
	my $w = waiter();
	$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('1'::jsonb, ARRAY[10]))");
	is($w->answer->rows, 'ready', 'a waiter is woken beside idle listeners');
	is($w->query("SELECT baton.ack_batch((SELECT array_agg(token) FROM baton.claim('q', 'w', 10)))"), 10, 'and works');
	$w->quit;
}
is($s->query($sent), $notified, 'no notification was sent');
$s->query("NOTIFY q, 'by hand'");
$listeners[1]->query('SELECT 1');
wait_until(sub { $s->query($sent) > $notified }, 'the counter');
cmp_ok($s->query($sent), '>', $notified, '(the counter counts those that are)');
is_sound($node, 'q');
done_testing();
