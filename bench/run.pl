#!/usr/bin/perl
# run.pl [--long] [--rounds N] [--seconds N] [--pinned-seconds N] [--only SECTION,...] [--strict] [--allow-no-fsync]
# run.pl --pinned ...                     is pinned.pl
#
# pg_baton beside the textbook queue (textbook.sql) on one server, in one run, in interleaved rounds: each workload is
# measured on one and at once on the other, so that whatever else the machine does meets both. Each figure is the
# median of the rounds, with the least and the most below it; a ratio is one of medians. Then what explains them: WAL
# bytes per message and verb, buffers per claim, dead rows. On the server that PGHOST, PGPORT, PGUSER and PGDATABASE
# name; `make bench` makes one. The default takes less than five minutes; --long measures longer, and the deep backlog
# at 10 million messages. bench/results/latest.json gets everything. --strict: a missed goal is an exit status of 1.
# Sections: load, counters, deep, wake, pinned.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/lib";
use Bench;
use Getopt::Long;
use JSON::PP;
use List::Util qw(max min sum0);
use POSIX qw(strftime);
use Time::HiRes qw(time);

my %o = (rounds => 3, seconds => 2.5, 'pinned-seconds' => 20, only => 'load,counters,deep,wake,pinned');
exec $^X, "$FindBin::Bin/pinned.pl", grep { $_ ne '--pinned' } @ARGV if grep { $_ eq '--pinned' } @ARGV;
GetOptions(\%o, 'long', 'rounds=i', 'seconds=f', 'pinned-seconds=f', 'only=s', 'strict', 'allow-no-fsync', 'loop=s')
  or exit 2;
if ($o{long})
{
	$o{rounds} = 5 if $o{rounds} == 3;
	$o{seconds} = 10 if $o{seconds} == 2.5;
	$o{'pinned-seconds'} = 45 if $o{'pinned-seconds'} == 20;
}
my %section = map { $_ => 1 } split /,/, $o{only};
my %depth = $o{long}
  ? (ready => 10_000_000, claimed => 1_000_000, scheduled => 1_000_000, dead => 1_000_000)
  : (ready => 200_000, claimed => 100_000, scheduled => 20_000, dead => 100_000);
my $start = time;
my (%results, @goals);

build_driver();
prepare_server(allow_no_fsync => $o{'allow-no-fsync'});
$results{facts} = server_facts();
$results{facts}{at} = strftime('%Y-%m-%dT%H:%M:%SZ', gmtime);
print_facts($results{facts});
printf "payload: 200 bytes of JSON with two keys; %d interleaved rounds of %s s per workload\n", $o{rounds}, $o{seconds};
create_textbook();

load_section() if $section{load};
counters_section() if $section{counters};
deep_section() if $section{deep};
wake_section() if $section{wake};
pinned_section() if $section{pinned};
summary();
drop_everything();
exit($o{strict} && grep({ !$_->{met} } @goals) ? 1 : 0);

# Notes a goal and says whether it is met. $at_least: the value has to reach the limit, or else must not exceed it.
sub goal
{
	my ($what, $value, $at_least, $limit, $text) = @_;
	my $met = defined $value && ($at_least ? $value >= $limit : $value <= $limit);
	push @goals, { what => $what, value => $value, goal => $text, met => $met ? JSON::PP::true : JSON::PP::false };
	return "$text  " . ($met ? 'met' : 'NOT MET');
}

# --- throughput ---------------------------------------------------------------------------------------------------

sub load_section
{
	# key, title, connections, batch, loop of pg_baton, key of the textbook figure it is held against, least ratio
	my @rows = (
		[ 'enqueue_batch', 'enqueue, batches of 100, 4 connections', 'enqueue_batch', 1.8 ],
		[ 'enqueue_single', 'enqueue one at a time, 8 connections', 'enqueue_single', 1.5 ],
		[ 'claim_ack_batch', 'claim+ack, batches of 100, 4 conn.', 'claim_ack_batch', 5 ],
		[ 'claim_ack_single', 'claim+ack one at a time, 4 conn.', 'claim_ack_single', 1.3 ],
		[ 'claim_ack_unflushed', '  claim_flush => off', 'claim_ack_single', 2 ],
		[ 'settle_and_claim', '  settle_and_claim', 'claim_ack_single', 2.3 ],
		[ 'settle_and_claim_8', '  settle_and_claim, 8 connections', 'claim_ack_single_8', 2.3 ],
	);
	my (%runs, $batch_backlog, $single_backlog);
	$batch_backlog = int(150_000 * $o{seconds});
	$single_backlog = int(30_000 * $o{seconds});
	my $measure = sub {
		my ($key, $system, @arguments) = @_;
		say_step("  $key, $system");
		settle_tables($system) if $key =~ /claim/;
		my $figures = driver('load', '--system' => $system, '--seconds' => $o{seconds}, @arguments);
		push @{ $runs{$key}{$system} }, $figures;
		return $figures->{messages_per_s};
	};
	my $both = sub { my @arguments = @_; $measure->($arguments[0], $_, @arguments[ 1 .. $#arguments ]) for 'baton', 'textbook' };
	for my $round (1 .. $o{rounds})
	{
		say_step("round $round");
		reset_queue($_) for 'baton', 'textbook';
		psql('CHECKPOINT');
		$both->('enqueue_batch', '--loop' => 'enqueue', '--batch' => 100);

		reset_queue($_), fill_queue($_, $batch_backlog) for 'baton', 'textbook';
		psql('CHECKPOINT');
		$both->('claim_ack_batch', '--loop' => 'claim_ack', '--batch' => 100);
		# both have the same backlog; it should outlast the faster one in the next round
		$batch_backlog = max($batch_backlog, int(1.3 * $o{seconds} * $runs{claim_ack_batch}{baton}[-1]{messages_per_s}));

		reset_queue($_), fill_queue($_, $single_backlog) for 'baton', 'textbook';
		psql('CHECKPOINT');
		$both->('enqueue_single', '--loop' => 'enqueue', '--connections' => 8);
		my @claim_ack = ('--loop' => 'claim_ack');
		$both->('claim_ack_single', @claim_ack);
		psql("SELECT baton.alter_queue('bench', claim_flush => false)");
		$measure->('claim_ack_unflushed', 'baton', @claim_ack);
		psql("SELECT baton.alter_queue('bench', claim_flush => true)");
		$measure->('settle_and_claim', 'baton', '--loop' => 'settle_and_claim');
		$measure->('settle_and_claim_8', 'baton', '--loop' => 'settle_and_claim', '--connections' => 8);
		$measure->('claim_ack_single_8', 'textbook', @claim_ack, '--connections' => 8);
		$measure->('delete_and_read', 'textbook', '--loop' => 'settle_and_claim');
		my $claimed = sum0(map { $runs{$_}{baton}[-1]{messages} } qw(claim_ack_single claim_ack_unflushed settle_and_claim settle_and_claim_8));
		$single_backlog = max($single_backlog, int(1.3 * $claimed));
	}

	printf "\n%-40s %12s %12s %7s  %s\n", 'messages per second', 'pg_baton', 'textbook', 'ratio', 'goal';
	my $figures = sub {
		my ($key, $system) = @_;
		return map { $_->{messages_per_s} } @{ $runs{$key}{$system} // [] };
	};
	my $range = sub { my @v = @_; return sprintf '%s-%s', short(min @v), short(max @v); };
	for my $row (@rows)
	{
		my ($key, $title, $against, $least) = @$row;
		my @baton = $figures->($key, 'baton');
		my @textbook = $figures->($against, 'textbook');
		my $ratio = median(@baton) / median(@textbook);
		printf "%-40s %12s %12s %6.2fx  %s\n", $title, commas(median(@baton)), commas(median(@textbook)), $ratio,
		  goal($title =~ s/^\s+/claim+ack one at a time, /r, $ratio, 1, $least, ">= ${least}x");
		my $drained = grep { $_->{drained} } @{ $runs{$key}{baton} };
		printf "%-40s %12s %12s%s\n", '', $range->(@baton), $range->(@textbook),
		  $drained ? "          (backlog used up in $drained of $o{rounds} rounds)" : '';
		$results{load}{$key} = {
			title => $title =~ s/^\s+//r, ratio => $ratio, goal => $least,
			baton_median_per_s => median(@baton), textbook_median_per_s => median(@textbook),
			rounds => $runs{$key}, textbook_key => $against,
		};
	}
	my @combined = $figures->('delete_and_read', 'textbook');
	printf "%-40s %12s %12s\n%-40s %12s %12s\n", '  textbook: delete and read in one call', '', commas(median(@combined)), '', '', $range->(@combined);
	$results{load}{$_} = { rounds => $runs{$_} } for qw(claim_ack_single_8 delete_and_read);

	# Of the server's processes only; says the same on a busy machine as on a quiet one, nearly.
	printf "\n%-40s %12s %12s %7s\n", 'server CPU, microseconds per message', 'pg_baton', 'textbook', 'ratio';
	for my $row (@rows)
	{
		my ($key, $title, $against) = @$row;
		my ($baton, $textbook) = map { median(map { $_->{server_cpu_us_per_message} } @$_) } $runs{$key}{baton}, $runs{$against}{textbook};
		next unless $baton && $textbook;
		printf "%-40s %12.1f %12.1f %6.2fx\n", $title, $baton, $textbook, $textbook / $baton;
		$results{load}{$key}{server_cpu_us_per_message} = { baton => $baton, textbook => $textbook };
	}
}

sub short
{
	my ($v) = @_;
	return $v >= 100_000 ? sprintf('%.0fk', $v / 1000) : $v >= 10_000 ? sprintf('%.1fk', $v / 1000) : commas($v);
}

# --- counters -----------------------------------------------------------------------------------------------------

sub counters_section
{
	say_step('counters: WAL');
	my %wal;
	for my $batch (1, 100)
	{
		for my $system ('baton', 'textbook')
		{
			reset_queue($system);
			# a little work first, so that what a table or a map costs once is not counted
			fill_queue($system, 1000);
			driver('load', '--system' => $system, '--loop' => 'claim_ack', '--batch' => 100, '--seconds' => 5);
			settle_tables($system);
			psql('CHECKPOINT');
			driver('phases', '--system' => $system, '--batch' => $batch, '--iterations' => 60);
			$wal{$system}{$batch} =
			  driver('phases', '--system' => $system, '--batch' => $batch, '--iterations' => $batch == 1 ? 300 : 100);
		}
	}
	$results{wal_bytes_per_message} = \%wal;
	printf "\n%-40s %9s %9s %9s %9s %9s\n", 'WAL bytes per message', 'enqueue', 'claim', 'extend', 'ack', 'life';
	for my $batch (1, 100)
	{
		for my $system ('baton', 'textbook')
		{
			my $w = $wal{$system}{$batch};
			printf "%-40s %9s %9s %9s %9s %9s\n",
			  ($system eq 'baton' ? 'pg_baton' : 'textbook') . ($batch == 1 ? ', one at a time' : ", batches of $batch"),
			  (map { defined $w->{$_} ? commas($w->{$_}) : '-' } qw(enqueue claim extend ack)),
			  commas($w->{enqueue} + $w->{claim} + $w->{ack});
		}
	}

	say_step('counters: buffers');
	# what the next situations claim and settle comes off it
	my $backlog = $depth{ready} + $depth{claimed} + $depth{dead};
	my @situations = (
		[ 'small', '3,000 ready', sub { my $s = shift; reset_queue($s); fill_queue($s, 3000); } ],
		[ 'backlog', commas($backlog) . ' ready', sub { my $s = shift; reset_queue($s); fill_queue($s, $backlog); } ],
		[ 'in_flight', ' + ' . commas($depth{claimed}) . ' claimed', sub { claim_and_hold(shift, $depth{claimed}); } ],
		[ 'dead', ' + ' . commas($depth{dead}) . ' settled under a snapshot', undef ],
	);
	my %buffers;
	for my $system ('baton', 'textbook')
	{
		for my $situation (@situations)
		{
			my ($key, $title, $make) = @$situation;
			say_step("  $system, $title");
			my $holder;
			if ($make) { $make->($system); settle_tables($system); }
			else { $holder = hold_snapshot(); settle_many($system, $depth{dead}); }
			$buffers{$system}{$key} = { 1 => buffers_per_claim($system, 1), 100 => buffers_per_claim($system, 100) };
			release_snapshot($holder) if $holder;
		}
	}
	$results{buffers_per_claim} = \%buffers;
	printf "\n%-40s %12s %12s %12s %12s\n", 'buffers touched per claim', 'pg_baton', 'textbook', 'pg_baton', 'textbook';
	printf "%-40s %12s %12s %12s %12s\n", '', 'of 1', 'of 1', 'of 100', 'of 100';
	for my $situation (@situations)
	{
		printf "%-40s %12s %12s %12s %12s\n", $situation->[1],
		  map { my $n = $_; map { commas($buffers{$_}{ $situation->[0] }{$n}) } 'baton', 'textbook' } 1, 100;
	}
	my $b = $buffers{baton};
	my $worst = max(map { $b->{$_}{1} } keys %$b) / max(1, $b->{small}{1});
	print "  a claim of one, the worst of these beside the small queue: ",
	  sprintf('%.2fx  ', $worst), goal('buffers per claim, whatever the depth', $worst, 0, 1.2, '<= 1.2x'), "\n";
}

sub claim_and_hold
{
	my ($system, $count, $queue) = @_;
	$queue //= 'bench';
	my $call = $system eq 'textbook' ? 'textbook.read(1000, 3600)' : "baton.claim('$queue', 'holder', 1000, '1 h')";
	psql(join "\n", map { "SELECT count(*) FROM $call;" } 1 .. $count / 1000);
}

# What was claimed and acknowledged at the head of the queue while somebody looked at it.
sub settle_many
{
	my ($system, $count) = @_;
	my $sql = $system eq 'textbook'
	  ? 'SELECT count(*) FROM textbook.delete_batch(ARRAY(SELECT id FROM textbook.read(1000, 300)));'
	  : "SELECT baton.ack_batch(ARRAY(SELECT token FROM baton.claim('bench', 'bench', 1000, '300 s')));";
	psql(join "\n", ($sql) x ($count / 1000));
}

sub buffers_per_claim
{
	my ($system, $count) = @_;
	my $claim = $system eq 'textbook' ? "textbook.read($count, 300)" : "baton.claim('bench', 'bench', $count, '300 s')";
	my $answer = psql("SELECT count(*) FROM $claim;\n" x 3 . "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM $claim;\n" x 9);
	$answer =~ s/^\d+\n//gm;    # the counts of the first three
	my @plans = JSON::PP->new->incr_parse($answer);
	my @short = grep { $_->[0]{Plan}{"Actual Rows"} != $count } @plans;
	die "bench: $system: a claim of $count came up short\n" if @short || @plans != 9;
	return median(map { $_->[0]{Plan}{"Shared Hit Blocks"} + $_->[0]{Plan}{"Shared Read Blocks"} } @plans);
}

# --- depth --------------------------------------------------------------------------------------------------------

# Without flushes, whose noise would hide what is looked for: they cost the same at any depth.
sub deep_section
{
	say_step('deep backlog');
	my @options = (options => "durability => 'async', claim_flush => false");
	reset_queue('baton', queue => $_, @options) for 'small', 'deep';
	fill_queue('baton', 1000, queue => 'small');
	fill_queue('baton', $depth{claimed}, queue => 'deep');
	claim_and_hold('baton', $depth{claimed}, 'deep');
	fill_queue('baton', $depth{ready}, queue => 'deep');
	my $scheduled = psql(join("\n",
		map { "SELECT count(*) FROM baton.enqueue_batch('deep', array_fill('{\"later\": true}'::jsonb, ARRAY[1000]), delays => '{1 day}');" }
		  1 .. $depth{scheduled} / 1000), may_fail => 1);
	my $what = sprintf '%s ready, %s claimed, %s', commas($depth{ready}), commas($depth{claimed}),
	  defined $scheduled ? commas($depth{scheduled}) . ' scheduled' : 'none scheduled (not available)';
	my @rounds = map { driver('verbs', '--queue' => 'small', '--queue' => 'deep', '--iterations' => $o{long} ? 10_000 : 2000) } 1 .. 5;
	printf "\n%-40s %12s %12s %7s  %s\n", 'latency, ms (flushes left out)', 'small', 'deep', 'ratio', 'goal';
	print "  deep: $what; small: 1,000 ready\n";
	my %deep = (what => $what);
	for my $verb (sort keys %{ $rounds[0]{deep} })
	{
		for my $quantile ('p50_ms', 'p99_ms')
		{
			my ($small, $deep) = map { my $q = $_; median(map { $_->{$q}{$verb}{$quantile} } @rounds) } 'small', 'deep';
			my $ratio = $small > 0 ? $deep / $small : 0;
			my $name = $verb . ' ' . $quantile =~ s/_ms//r;
			printf "%-40s %12.3f %12.3f %6.2fx  %s\n", "  $name", $small, $deep, $ratio,
			  $quantile eq 'p99_ms' ? goal("$name, deep beside small", $ratio, 0, 1.2, '<= 1.2x') : '';
			$deep{$verb}{$quantile} = { small => $small, deep => $deep, ratio => $ratio };
		}
	}
	$results{deep} = \%deep;
	psql("SELECT baton.drop_queue('$_', discard => true)") for 'small', 'deep';
}

# --- waking -------------------------------------------------------------------------------------------------------

sub wake_section
{
	say_step('wake-up latency');
	printf "\n%-40s %8s %8s %8s %8s\n", 'commit of an enqueue to delivery, ms', 'p50', 'p90', 'p99', 'max';
	for my $flush ('false', 'true')
	{
		reset_queue('baton', queue => 'wake', options => "claim_flush => $flush");
		my $w = driver('wake', '--queue' => 'wake', '--rate' => 1000, '--seconds' => $o{long} ? 30 : 5,
			'--producers' => 8, '--workers' => 8);
		my $name = $flush eq 'true' ? 'claims flushed (the default)' : 'claim_flush => off';
		my $l = $w->{from_commit_answered};
		printf "%-40s %8.3f %8.3f %8.3f %8.3f\n", sprintf('  %s, %s/s', $name, commas($w->{per_s})),
		  map { $l->{$_} } qw(p50_ms p90_ms p99_ms max_ms);
		my $s = $w->{from_commit_sent};
		printf "%-40s %8.3f %8.3f %8.3f %8.3f\n", '    with the flush of the commit itself',
		  map { $s->{$_} } qw(p50_ms p90_ms p99_ms max_ms);
		print '    ', goal("wake-up p50, $name", $l->{p50_ms}, 0, 1, 'p50 < 1 ms'), '; ',
		  goal("wake-up p99, $name", $l->{p99_ms}, 0, 5, 'p99 < 5 ms'), "\n";
		print "    $w->{undelivered} messages were not delivered\n" if $w->{undelivered};
		$results{wake}{ $flush eq 'true' ? 'flushed' : 'unflushed' } = $w;
	}
	psql("SELECT baton.drop_queue('wake', discard => true)");
}

# --- a pinned snapshot --------------------------------------------------------------------------------------------

sub pinned_section
{
	my $run = pinned_run($o{'pinned-seconds'}, loop => $o{loop});
	$results{pinned} = $run;
	print_pinned($run);
	print '  ', goal('pinned: last tenth / first tenth', $run->{baton}{last_to_first}, 1, 0.9, 'last tenth >= 0.9 x first'), "\n";
	print '  ', goal('pinned: times textbook at the end', $run->{ratio_at_end}, 1, 12, '>= 12x at the end'),
	  $run->{seconds} < 45 ? "  (stated for 45 s; this was $run->{seconds} s)" : '', "\n";
	my $worst = max(0, map { $_->{segment} || $_->{table} =~ /^textbook\./ ? 0 : $_->{dead_rows} } @{ $run->{baton}{dead_rows} });
	print '  ', goal('pinned: dead rows outside the segments', $worst, 0, 10_000, '<= 10,000 dead rows in any table but segments'), "\n";
}

sub summary
{
	$results{goals} = \@goals;
	$results{seconds_in_all} = time - $start;
	my @missed = grep { !$_->{met} } @goals;
	printf "\n%d of %d goals met, in %d s.%s\n", @goals - @missed, scalar @goals, $results{seconds_in_all},
	  @missed ? ' Missed:' : '';
	printf "  %-60s %8.2f  %s\n", $_->{what}, $_->{value} // 0, $_->{goal} for @missed;
	write_results('latest', \%results);
}
