# Load that remembers what the server has confirmed. Producers enqueue and note the id in a table in one transaction;
# workers claim and settle, with the effect in the transaction of the ack. Every process writes down what it is about to
# do and what was confirmed, so that after a crash each message's last confirmed state is known.
#
#   BatonLoad::make_tables($node);            tables made(queue, id) and effect(queue, id, how)
#   my $load = BatonLoad->start($node, queue => 'q', producers => 2, workers => 2, takers => 1, rollbacks => 1);
#   $load->wait_for(enqueued => 500);         until so much is confirmed
#   $load->stop;                              the processes end after their current step, or because the server is gone
#   my $seen = $load->seen;                   { id => { state => ..., token => ..., generation => ... } }, see below
#   $load->count('acked')
#   BatonLoad::drain($node, 'q');             settles everything that is left, leases or not
#   BatonLoad::books_balance($node, 'q', NAME)     made = effect, nothing twice, nothing left
package BatonLoad;

use strict;
use warnings;
use BatonSession;
use BatonTest qw(wait_until background reap);
use PostgreSQL::Test::Utils;
use Test::More;

my $loads = 0;

sub make_tables
{
	my ($node) = @_;
	$node->safe_psql(
		'postgres', q{
		CREATE TABLE made (queue text NOT NULL, id bigint NOT NULL);
		CREATE TABLE effect (queue text NOT NULL, id bigint NOT NULL, how text NOT NULL)});
	return;
}

sub start
{
	my ($class, $node, %opt) = @_;
	my $l = bless {
		node => $node, queue => $opt{queue}, pids => [], logs => [],
		name => "load$$." . ++$loads, rollbacks => $opt{rollbacks} // 1, lease => $opt{lease} // '2 min', batch => $opt{batch} // 4,
		tolerate => $opt{tolerate}, until => $opt{until},
		payload => sprintf '{"n": "%s"}', 'x' x ($opt{padding} // 1)
	}, $class;
	$l->{stop_file} = "$PostgreSQL::Test::Utils::tmp_check/$l->{name}.stop";
	my %body = (producers => \&produce, workers => \&work, takers => \&take);
	for my $kind (qw(producers workers takers))
	{
		for my $i (1 .. $opt{$kind} // 0)
		{
			my $log = "$PostgreSQL::Test::Utils::tmp_check/$l->{name}.$kind.$i.log";
			push @{ $l->{logs} }, $log;
			push @{ $l->{pids} }, background(sub { $l->run($body{$kind}, $log, "$kind$i") });
		}
	}
	return $l;
}

# (The files of a load carry the number of the test process: several tests share the folder.)
#
# One process. It ends when it is told to, or when the server is gone; any error of SQL is a failure of the test, unless
# the pattern "tolerate" of the load says that it may happen: then the step is rolled back, and its outcome unknown. The
# pattern "until" of the load says which error ends a process in good order.
sub run
{
	my ($l, $step, $log, $name) = @_;
	srand($$);
	open my $fh, '>', $log or die "$log: $!";
	my $s = eval { BatonSession->new($l->{node}, name => $name) } or return 0;
	until (-e $l->{stop_file})
	{
		eval { $step->($l, $s, sub { syswrite $fh, join(' ', @_) . "\n" }, $name); 1 } or do
		{
			return 0 if $s->lost || $@ =~ /connection lost|57P0[123]/ || ($l->{until} && $@ =~ $l->{until});
			if ($l->{tolerate} && $@ =~ $l->{tolerate})
			{
				# A cancellation may hit the ROLLBACK as well.
				1 until $s->try('ROLLBACK')->ok || $s->lost;
				next;
			}
			syswrite $fh, "error $@\n";
			return 1;
		};
	}
	return 0;
}

sub produce
{
	my ($l, $s, $log) = @_;
	$s->query('BEGIN');
	my @ids = split /\n/, $s->query(
		"WITH m AS (SELECT id FROM baton.enqueue('$l->{queue}', '$l->{payload}') UNION ALL"
		  . " SELECT id FROM baton.enqueue_batch('$l->{queue}', array_fill('$l->{payload}'::jsonb, ARRAY[3])))"
		  . " INSERT INTO made SELECT '$l->{queue}', id FROM m RETURNING id");
	if ($l->{rollbacks} && rand() < 0.15)
	{
		$s->query('ROLLBACK');
		return;
	}
	$s->query('COMMIT');
	$log->('enqueued', @ids);
	return;
}

sub work
{
	my ($l, $s, $log, $name) = @_;
	my @got = split /\n/, $s->query(
		"SELECT id, token, generation FROM baton.claim('$l->{queue}', '$name', $l->{batch}, '$l->{lease}')");
	$s->query("CALL baton.wait('$l->{queue}', '50 ms')") unless @got;
	$log->('claimed', split /\|/) for @got;
	for (@got)
	{
		my ($id, $token) = split /\|/;
		my $dice = rand();
		if ($dice < 0.05) { next; }    # held
		if ($dice < 0.10)
		{
			$log->('trying', $id);
			$s->query("SELECT baton.extend('$token', '3 min')");
			$log->('extended', $id);
		}
		if ($dice < 0.15)
		{
			$log->('trying', $id);
			$s->query("SELECT outcome FROM baton.hand_back(ARRAY['$token'])");
			$log->('returned', $id);
		}
		elsif ($dice < 0.20)
		{
			$log->('trying', $id);
			$s->query("SELECT state FROM baton.release('$token', delay => '0 s', failed => false)");
			$log->('returned', $id);
		}
		elsif ($l->{rollbacks} && $dice < 0.25)
		{
			$s->query("BEGIN");
			$s->query("SELECT baton.ack('$token')");
			$s->query("ROLLBACK");
		}
		else
		{
			$log->('trying', $id);
			$s->query('BEGIN');
			$s->query("INSERT INTO effect VALUES ('$l->{queue}', $id, 'ack')");
			$s->query("SELECT baton.ack('$token')");
			$s->query('COMMIT');
			$log->('acked', $id);
		}
	}
	return;
}

sub take
{
	my ($l, $s, $log) = @_;
	$s->query('BEGIN');
	my @ids = split /\n/,
	  $s->query("INSERT INTO effect SELECT '$l->{queue}', id, 'take' FROM baton.take('$l->{queue}', $l->{batch}) RETURNING id");
	$log->('trying', @ids) if @ids;
	$s->query('COMMIT');
	$log->('acked', @ids) if @ids;
	$s->query("CALL baton.wait('$l->{queue}', '50 ms')") unless @ids;
	return;
}

sub events
{
	my ($l) = @_;
	my @events;
	for my $log (grep { -e } @{ $l->{logs} })
	{
		my @lines = split /\n/, slurp_file($log);
		my @errors = grep { /^error / } @lines;
		die "$log: @lines" if @errors;
		push @events, map { [split / /] } @lines;
	}
	return @events;
}

# reads on where it stopped the last time
sub count
{
	my ($l, $kind) = @_;
	for my $log (grep { -e } @{ $l->{logs} })
	{
		open my $fh, '<', $log or die "$log: $!";
		seek $fh, $l->{at}{$log} // 0, 0;
		while (my $line = <$fh>)
		{
			last if $line !~ /\n\z/;
			$l->{at}{$log} = tell $fh;
			my ($event, @rest) = split ' ', $line;
			die "$log: $line" if $event eq 'error';
			$l->{counts}{$event} += $event eq 'claimed' ? 1 : @rest;
		}
	}
	return $l->{counts}{$kind} // 0;
}

sub wait_for
{
	my ($l, $kind, $n) = @_;
	return wait_until(sub { $l->count($kind) >= $n }, "$n messages to be $kind");
}

sub stop
{
	my ($l) = @_;
	open my $fh, '>', $l->{stop_file};
	close $fh;
	my @failed = reap(@{ $l->{pids} });
	$l->{pids} = [];
	$l->events;
	die 'a process of the load failed' if @failed;
	return;
}

# What was confirmed of each message. state: ready (enqueued), claimed (nothing was tried afterwards), acked; 'unknown'
# when something had been sent and was not answered, or when the message had been given back and may be anywhere.
sub seen
{
	my ($l) = @_;
	my %seen;
	for my $e (grep { $_->[0] eq 'enqueued' } $l->events)
	{
		my (undef, @ids) = @$e;
		$seen{$_} = { state => 'ready' } for @ids;
	}
	# The generations order the claims of a message over all processes; what a worker did with its claim follows in its own log.
	for my $log (grep { -e } @{ $l->{logs} })
	{
		my %mine;
		for (split /\n/, slurp_file($log))
		{
			my ($kind, @rest) = split / /;
			if ($kind eq 'claimed')
			{
				my ($id, $token, $generation) = @rest;
				$mine{$id} = { state => 'claimed', token => $token, generation => $generation };
				my $old = $seen{$id};
				$seen{$id} = $mine{$id} if !$old || $old->{state} eq 'ready' || ($old->{generation} // 0) < $generation;
			}
			elsif ($kind eq 'acked')
			{
				for my $id (@rest)
				{
					$seen{$id} = $mine{$id} // { generation => 1 << 40 };
					$seen{$id}{state} = 'acked';
					$seen{$id}{generation} = 1 << 40;
				}
			}
			elsif ($kind eq 'extended') { $mine{ $rest[0] }{state} = 'claimed'; }
			elsif ($kind eq 'trying' || $kind eq 'returned')
			{
				for my $id (@rest) { ($mine{$id} // {})->{state} = 'unknown'; }
			}
		}
	}
	return \%seen;
}

# Settles whatever is left in the queue, in a session whose clock is so far ahead that every lease is over.
sub drain
{
	my ($node, $queue) = @_;
	my $s = BatonSession->new($node, name => 'drain');
	$s->query("SELECT set_config('pg_baton.clock_offset', (setting::int + 7200000)::text, false) FROM pg_settings WHERE name = 'pg_baton.clock_offset'");
	my $left;
	wait_until(
		sub {
			while (1)
			{
				$s->query('BEGIN');
				my $n = $s->query(
					"WITH m AS (INSERT INTO effect SELECT '$queue', id, 'drain' FROM baton.take('$queue', 200) RETURNING 1) SELECT count(*) FROM m");
				$s->query('COMMIT');
				last if $n == 0;
			}
			$s->query("SELECT baton_internal.sweep('$queue')");
			$left = $s->query(qq{SELECT count(*) FROM baton_queue."$queue"});
			return $left == 0;
		},
		"queue $queue to be empty") or diag($s->query("SELECT * FROM baton.queue_stats") . "\n$left left");
	return;
}

sub books_balance
{
	my ($node, $queue, $name) = @_;
	my $made = $node->safe_psql('postgres', "SELECT count(*) FROM made WHERE queue = '$queue'");
	my $lost = $node->safe_psql('postgres',
		"SELECT count(*) FROM made m WHERE queue = '$queue' AND NOT EXISTS (SELECT FROM effect e WHERE e.queue = m.queue AND e.id = m.id)");
	my $doubled = $node->safe_psql('postgres',
		"SELECT count(*) FROM (SELECT 1 FROM effect WHERE queue = '$queue' GROUP BY id HAVING count(*) > 1) d");
	my $phantom = $node->safe_psql('postgres',
		"SELECT count(*) FROM effect e WHERE queue = '$queue' AND NOT EXISTS (SELECT FROM made m WHERE e.queue = m.queue AND e.id = m.id)");
	is("$lost lost, $doubled doubled, $phantom of nothing", '0 lost, 0 doubled, 0 of nothing', "$name ($made messages)");
	return;
}

1;
