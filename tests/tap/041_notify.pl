# NOTIFY for queues that ask for it: whenever work becomes ready, few for much, and again while it lies there. A listener
# that claims only when it is told gets everything.
use strict;
use warnings;
use utf8;
use BatonTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'time';

my $node = new_node('notify', conf => "pg_baton.mover_naptime = '100ms'\npg_baton.sweep_interval = '1h'\npg_baton.launcher_naptime = '200ms'\n");
my $s = session($node);
my $listener = session($node);
my (%channel, %heard);

sub quoted { return $_[0] =~ s/'/''/gr }

sub make_queue
{
	my ($name, $options) = @_;
	my $q = quoted($name);
	# The option comes when somebody listens, or the first word could be said before.
	$s->query("SELECT baton.create_queue('$q'$options)");
	$channel{$name} = $s->query("SELECT baton.channel('$q')");
	$listener->query("LISTEN $channel{$name}");
	$s->query("SELECT baton.alter_queue('$q', notify => true)");
	return;
}

# set_interval(TIME): after which what is not taken is told again
sub set_interval
{
	my ($time) = @_;
	$s->query("ALTER SYSTEM SET pg_baton.sweep_interval = '$time'");
	$s->query('SELECT pg_reload_conf()');
	return;
}

# heard(QUEUE): how often the listener has been told by now; psql prints what it was told behind the answer to a statement
sub heard
{
	my ($name) = @_;
	for (split /\n/, $listener->query('SELECT 1'))
	{
		next unless /^Asynchronous notification "(\w+)" with payload "(.*)" received/;
		BAIL_OUT("$1 is not the channel of $2") if $1 ne ($channel{$2} // '');
		$heard{$2}++;
	}
	return $heard{$name} // 0;
}

# told(QUEUE, WHAT, CODE): CODE, and then a NOTIFY
sub told
{
	my ($name, $what, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = heard($name);
	$code->();
	return ok(wait_until(sub { heard($name) > $before }, "a NOTIFY: $what"), "$name: $what");
}

# claim_when_told(QUEUE, N, SEEN): ids of N messages that are claimed when a NOTIFY has come, one more than SEEN, and never
# otherwise. SEEN is of before the work was there.
sub claim_when_told
{
	my ($name, $n, $seen) = @_;
	my $q = quoted($name);
	my @ids;
	wait_until(sub {
			return 0 if heard($name) == $seen;
			$seen = heard($name);
			while (my @got = split /\n/, $s->query("SELECT id FROM baton.take('$q', 7)")) { push @ids, @got; }
			return @ids >= $n;
		}, "$n messages of $name");
	return @ids;
}

# ---- queues of any name; what is there already when the option is new
for my $name ('q', 'MyQueue', q{a"b 'c}, 'Ü' x 31 . 'x')
{
	told($name, 'told once when it begins to ask', sub { make_queue($name, '') });
	told($name, 'an enqueue', sub { $s->query("SELECT baton.enqueue('" . quoted($name) . "', '1')") });
	is($s->query("SELECT count(*) FROM baton.take('" . quoted($name) . "')"), 1, "$name: which can be taken");
}
$s->query('SELECT baton.create_queue($$plain$$)');
$s->query('SELECT baton.enqueue($$plain$$, $$1$$)');
$channel{plain} = $s->query('SELECT baton.channel($$plain$$)');
$listener->query("LISTEN $channel{plain}");
told('plain', 'altered, with work in it', sub { $s->query('SELECT baton.alter_queue($$plain$$, notify => true)') });
told('plain', 'and repeated while nobody takes it', sub { set_interval('300ms') });
set_interval('1h');
is($s->query('SELECT count(*) FROM baton.take($$plain$$)'), 1, 'taken');

# ---- few for much
make_queue('much', '');
ok(wait_until(sub { heard('much') > 0 }, 'the first'), 'told once');
my $before = heard('much');
my $start = time;
$s->query('DO $$BEGIN FOR i IN 1..10000 LOOP PERFORM baton.enqueue($x$much$x$, $x$1$x$); END LOOP; END$$');
ok(wait_until(sub { heard('much') > $before }, 'a NOTIFY'), '10,000 enqueues in a transaction are told');
my $taken = 0;
while (my $n = $s->query("SELECT count(*) FROM baton.take('much', 10000)")) { $taken += $n; }
is($taken, 10000, 'all are there');
cmp_ok(heard('much') - $before, '<=', 2, 'by one NOTIFY');
$before = heard('much');
$start = time;
$s->query("SELECT baton.enqueue('much', '1')") for 1 .. 1000;
ok(wait_until(sub { heard('much') > $before }, 'a NOTIFY'), '1,000 transactions are told');
cmp_ok(heard('much') - $before, '<=', 2 + int((time - $start) / 0.05), 'at most every 50 ms');
1 while $s->query("SELECT count(*) FROM baton.take('much', 1000)") > 0;

# ---- every way in which work becomes ready
make_queue('ways', ", backoff => '200 ms', lease => '1 s', min_lease => '100 ms'");
ok(wait_until(sub { heard('ways') > 0 }, 'the first'), 'told once');
my $token;
my $claim = sub { $token = $s->query("SELECT token FROM baton.claim('ways', lease => '$_[0]')") };
my @ways = (
	[ 'an enqueue', sub { $s->query("SELECT baton.enqueue('ways', '1')") } ],
	[ 'a batch through the view', sub { $s->query("INSERT INTO baton_queue.ways (payload) SELECT to_jsonb(i) FROM generate_series(1, 20) i") }, 20 ],
	[ 'due a moment later', sub { $s->query("SELECT baton.enqueue('ways', '1', delay => '400 ms')") } ],
	[ 'due one after the other', sub { $s->query("SELECT baton.enqueue('ways', '1', delay => i * interval '30 ms') FROM generate_series(1, 30) i") }, 30 ],
	[ 'released', sub { $s->query("SELECT baton.enqueue('ways', '1')"); $claim->('1 min'); $s->query("SELECT baton.release('$token', '0')") } ],
	[ 'released with a delay', sub { $s->query("SELECT baton.enqueue('ways', '1')"); $claim->('1 min'); $s->query("SELECT baton.release('$token', '300 ms')") } ],
	[ 'handed back', sub { $s->query("SELECT baton.enqueue('ways', '1')"); $claim->('1 min'); $s->query("SELECT baton.hand_back(ARRAY['$token'])") } ],
	[ 'its lease has ended', sub { $s->query("SELECT baton.enqueue('ways', '1')"); $claim->('300 ms') } ],
	[ 'its claim was rolled back', sub { $s->query("SELECT baton.enqueue('ways', '1')"); $s->query('BEGIN'); $claim->('1 min'); $s->query('ROLLBACK') } ],
	[ 'prepared and committed', sub { $s->query('BEGIN'); $s->query("SELECT baton.enqueue('ways', '1')"); $s->query("PREPARE TRANSACTION 'p'"); $s->query("COMMIT PREPARED 'p'") } ],
	[ 'all claims are fenced', sub { $s->query("SELECT baton.enqueue('ways', '1')"); $claim->('1 min'); $s->query("SELECT baton.fence('ways')") } ]);
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
$_->quit for $s, $listener;
$node->restart;
($s, $listener) = (session($node), session($node));
$listener->query("LISTEN $_") for values %channel;
for (@ways)
{
	my ($what, $code, $n) = @$_;
	my $seen = heard('ways');
	$code->();
	is(scalar claim_when_told('ways', $n // 1, $seen), $n // 1, "ready: $what");
}

# a claim that fails gives back what others may have looked for in vain
told('ways', 'an enqueue', sub { $s->query("SELECT baton.enqueue('ways', '1')") });
told('ways', 'a claim has failed', sub {
		$s->query("SET pg_baton.debug_point = 'claim-reserved:error'");
		is($s->try("SELECT * FROM baton.claim('ways')")->state, 'XX000', 'a claim that fails');
		$s->query('RESET pg_baton.debug_point');
	});
is($s->query("SELECT count(*) FROM baton.take('ways')"), 1, 'and leaves the message to others');

# ---- the mover dies; the option is taken back
my $told = heard('ways');
$s->query("SELECT baton.enqueue('ways', '1')");
wait_until(sub { heard('ways') > $told }, 'the NOTIFY of this mover');
$told = heard('ways');
$s->query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pg_baton mover'});
is(scalar claim_when_told('ways', 1, $told), 1, 'told by the next mover');
$s->query("SELECT baton.alter_queue('ways', notify => false)");
ok(wait_until(sub {
			my $seen = heard('ways');
			$s->query("SELECT baton.enqueue(n, '1') FROM unnest('{ways,q}'::text[]) n");
			my $other = heard('q');
			wait_until(sub { heard('q') > $other }, 'the other one');
			return heard('ways') == $seen;
		}, 'silence'), 'no longer asked, it is silent');
is_sound($node, $_) for qw(ways much q);
$s->quit;
$listener->quit;
$node->stop;
done_testing();
