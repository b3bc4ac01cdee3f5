# What run.pl and pinned.pl share: the server, the two queues, the load generator, figures and bars.
package Bench;

use strict;
use warnings;
use utf8;
use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use File::Path qw(make_path);
use IPC::Open2;
use JSON::PP;
use List::Util qw(max min sum0);

our @EXPORT = qw(
	$ROOT say_step psql driver build_driver prepare_server server_facts print_facts reset_queue fill_queue settle_tables
	create_textbook drop_everything hold_snapshot release_snapshot pinned_run print_pinned dead_rows print_dead_rows
	median commas write_results flush_ms
);

our $ROOT = abs_path(dirname(__FILE__) . '/../..');
my $driver = "$ROOT/build-bench/driver";

# 200 bytes, as driver.cpp writes them.
my $payload = '{"order": 1, "note": "';
$payload .= 'x' x (198 - length $payload) . '"}';

binmode STDOUT, ':encoding(UTF-8)';
binmode STDERR, ':encoding(UTF-8)';
$| = 1;

sub say_step { print STDERR "@_\n" if -t STDERR || $ENV{BENCH_VERBOSE}; }

# --- the server ---------------------------------------------------------------------------------------------------

# Runs SQL statements one by one (each its own transaction) and returns what they print, unaligned.
sub psql
{
	my ($sql, %option) = @_;
	my @command = ('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', '-');
	my $pid = open2(my $out, my $in, @command);
	binmode $in, ':encoding(UTF-8)';
	print $in "SET client_min_messages = warning;\n$sql\n";
	close $in;
	my $answer = do { local $/; <$out> } // '';
	waitpid $pid, 0;
	if ($? != 0)
	{
		return undef if $option{may_fail};
		die "bench: psql failed at: $sql\n";
	}
	chomp $answer;
	return $answer;
}

# The settings that would otherwise be measured instead of the queues. Only a throwaway cluster is changed (one that
# tests/support/with_server.sh made, which says so in BATON_CLUSTER); a server of yours is taken as it is.
sub prepare_server
{
	my %option = @_;
	if (my $cluster = $ENV{BATON_CLUSTER})
	{
		my $buffers_mb = min(1024, int(memory_mb() / 4));
		system("$ROOT/tests/support/server.sh", 'restart', '--name', $cluster,
			'-c', "shared_buffers=${buffers_mb}MB", '-c', 'max_wal_size=8GB', '-c', 'checkpoint_timeout=1h',
			'-c', 'min_wal_size=1GB') == 0
		  or die "bench: the cluster did not restart\n";
	}
	my $fsync = psql('SHOW fsync');
	die "bench: fsync is off: nothing that is measured here would mean anything\n"
	  if $fsync ne 'on' && !$option{allow_no_fsync};
}

sub memory_mb
{
	open my $f, '<', '/proc/meminfo' or return 4096;
	while (<$f>) { return $1 / 1024 if /^MemTotal:\s+(\d+) kB/ }
	return 4096;
}

sub cpu_count
{
	open my $f, '<', '/proc/cpuinfo' or return undef;
	return scalar grep { /^processor\s*:/ } <$f>;
}

# The median time of a transaction that writes a few bytes of WAL, from one connection.
sub flush_ms { return driver('flush', '--seconds' => shift)->{p50_ms}; }

sub server_facts
{
	my @names = qw(server_version shared_buffers fsync synchronous_commit full_page_writes wal_level wal_compression
	  max_wal_size checkpoint_timeout autovacuum);
	my %facts = map { $_ => psql("SHOW $_") } @names;
	return {
		settings => \%facts,
		cpus => cpu_count(),
		load_average => load_average(),
		commit_flush_p50_ms => flush_ms(1),
		pg_baton => psql("SELECT extversion FROM pg_extension WHERE extname = 'pg_baton'"),
	};
}

sub load_average
{
	open my $f, '<', '/proc/loadavg' or return undef;
	return (split ' ', <$f>)[0] + 0;
}

sub print_facts
{
	my ($facts) = @_;
	my $s = $facts->{settings};
	printf "PostgreSQL %s, pg_baton %s; %s CPUs, load %s before the start; one commit flushed in %.2f ms\n",
	  $s->{server_version}, $facts->{pg_baton}, $facts->{cpus} // '?', $facts->{load_average} // '?',
	  $facts->{commit_flush_p50_ms};
	print "the same server and settings for both: ",
	  join(', ', map { "$_ = $s->{$_}" } qw(fsync synchronous_commit full_page_writes shared_buffers)), ",\n  ",
	  join(', ', map { "$_ = $s->{$_}" } qw(wal_level max_wal_size checkpoint_timeout autovacuum)), "\n";
}

# --- the load generator -------------------------------------------------------------------------------------------

sub build_driver
{
	# a make above this one must not lend it its options
	local @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES)};
	delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES)};
	system('make', '-s', '-C', "$ROOT/bench", "BUILD=$ROOT/build-bench") == 0
	  or die "bench: bench/driver.cpp did not build (it needs g++ and libpq's headers)\n";
}

sub driver
{
	my @arguments = @_;
	open my $out, '-|', $driver, @arguments or die "bench: cannot run $driver\n";
	my $text = do { local $/; <$out> };
	close $out or die "bench: driver @arguments failed\n";
	return decode_json($text);
}

# --- the two queues -----------------------------------------------------------------------------------------------

sub create_textbook
{
	open my $f, '<:encoding(UTF-8)', "$ROOT/bench/textbook.sql" or die "bench: no bench/textbook.sql\n";
	psql(do { local $/; <$f> });
}

sub reset_queue
{
	my ($system, %option) = @_;
	if ($system eq 'textbook') { psql('TRUNCATE textbook.message'); return; }
	my $queue = $option{queue} // 'bench';
	my $extra = $option{options} ? ", $option{options}" : '';
	psql("SELECT baton.drop_queue('$queue', if_exists => true, discard => true);\nSELECT baton.create_queue('$queue'$extra);");
}

sub drop_everything
{
	psql("SELECT baton.drop_queue('$_', if_exists => true, discard => true)", may_fail => 1)
	  for qw(bench small deep wake);
	psql('DROP SCHEMA IF EXISTS textbook CASCADE');
}

# Puts at least $count messages in, by as large batches as each side likes, 100,000 per transaction.
sub fill_queue
{
	my ($system, $count, %option) = @_;
	my $queue = $option{queue} // 'bench';
	my $call = $system eq 'textbook' ? 'textbook.send_batch(p)' : "baton.enqueue_batch('$queue', p)";
	my $sql = '';
	for (my $left = $count; $left > 0; $left -= 100_000)
	{
		my $calls = int((min($left, 100_000) + 999) / 1000);
		$sql .= "SELECT count(c) FROM (SELECT $call AS c FROM (SELECT array_fill('$payload'::jsonb, ARRAY[1000]) AS p) AS a, generate_series(1, $calls)) AS s;\n";
	}
	psql($sql);
}

# What either side may expect of its surroundings before its claims are measured: no dead rows, true statistics.
sub settle_tables
{
	my ($system) = @_;
	psql('VACUUM (ANALYZE) textbook.message') if $system eq 'textbook';
}

# --- a pinned snapshot --------------------------------------------------------------------------------------------

# A session with a snapshot and nothing else, like a report that runs all afternoon. Returns what ends it.
sub hold_snapshot
{
	my $pid = open2(my $out, my $in, 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1');
	$in->autoflush(1);
	print $in "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 'held', backend_xmin FROM pg_stat_activity WHERE pid = pg_backend_pid();\n";
	my $line = <$out> // '';
	die "bench: no snapshot: $line\n" unless $line =~ /^held\|\d+/;
	return { pid => $pid, in => $in, out => $out };
}

sub release_snapshot
{
	my ($holder) = @_;
	print { $holder->{in} } "ROLLBACK;\n";
	close $holder->{in};
	waitpid $holder->{pid}, 0;
}

# Throughput of both queues under one snapshot, which is taken when both backlogs are in place and vacuumed, and held to
# the end. They take turns, a tenth of their time each, so that a disk or a neighbour that is slow for a while is slow
# for both. The backlog is the same for both and outlasts the faster one.
sub pinned_run
{
	my ($seconds, %option) = @_;
	my $loop = $option{loop} // 'claim_ack';
	my @load = ('load', '--connections' => 4, '--batch' => $option{batch} // 1);
	say_step('pinned: how fast is it');
	reset_queue($_), fill_queue($_, 50_000) for 'baton', 'textbook';
	settle_tables('textbook');
	my $fastest = max(map { driver(@load, '--system' => $_, '--loop' => $loop, '--seconds' => 2)->{messages_per_s} } 'baton', 'textbook');
	my $backlog = 20_000 + int(2 * $seconds * $fastest);
	say_step('pinned: a backlog of ' . commas($backlog));
	reset_queue($_), fill_queue($_, $backlog), settle_tables($_) for 'baton', 'textbook';
	psql('CHECKPOINT');
	my $holder = hold_snapshot();
	my (%tenths, %drained, @flush_ms);
	for my $tenth (1 .. 10)
	{
		say_step("pinned: tenth $tenth");
		push @flush_ms, flush_ms(0.2);
		for my $system ('baton', 'textbook')
		{
			my $part = driver(@load, '--system' => $system, '--loop' => $loop, '--seconds' => $seconds / 10);
			push @{ $tenths{$system} }, $part->{messages_per_s};
			$drained{$system} ||= $part->{drained};
		}
	}
	my %run = map {
		my $t = $tenths{$_};
		$_ => {
			per_tenth_per_s => $t, last_to_first => $t->[0] > 0 ? $t->[9] / $t->[0] : undef,
			drained => $drained{$_} ? JSON::PP::true : JSON::PP::false, dead_rows => dead_rows($_),
		}
	} 'baton', 'textbook';
	release_snapshot($holder);
	my $end = $tenths{textbook}[9];
	return {
		seconds => $seconds, connections => 4, batch => $option{batch} // 1, backlog => $backlog, loop => $loop, %run,
		commit_flush_p50_ms => \@flush_ms, ratio_at_end => $end > 0 ? $tenths{baton}[9] / $end : undef,
	};
}

# Dead row versions per table as the server counts them, more than a few only, and what the tables have grown to: the
# textbook queue's tables, or, for pg_baton, all others.
sub dead_rows
{
	my ($system) = @_;
	my $whose = $system eq "textbook" ? "=" : "<>";
	my $json = psql(<<"SQL");
SELECT pg_stat_clear_snapshot();
SELECT coalesce(json_agg(t), '[]') FROM (
    SELECT s.schemaname || '.' || s.relname AS table, s.n_dead_tup AS dead_rows, s.n_live_tup AS live_rows,
           pg_table_size(s.relid) AS bytes, s.schemaname = 'baton_data' AND EXISTS (
               SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
               WHERE i.indrelid = s.relid AND a.amname = 'baton_lease') AS segment
    FROM pg_stat_all_tables AS s
    WHERE s.n_dead_tup > 100 AND s.schemaname $whose 'textbook'
    ORDER BY s.n_dead_tup DESC
    LIMIT 20) AS t
SQL
	$json =~ s/^\s*//;
	return decode_json($json);
}

sub print_dead_rows
{
	my ($rows) = @_;
	print "  dead rows at its end: ", (@$rows ? '' : 'none'), "\n";
	printf "    %-44s %12s dead  %9.1f MB%s\n", $_->{table}, commas($_->{dead_rows}), $_->{bytes} / 2**20,
	  $_->{segment} ? '  (segment: reclaimed by rotation)' : ''
	  for @$rows;
}

# --- figures and bars ---------------------------------------------------------------------------------------------

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return undef unless @sorted;
	return @sorted % 2 ? $sorted[$#sorted / 2] : ($sorted[@sorted / 2 - 1] + $sorted[@sorted / 2]) / 2;
}

sub commas
{
	my $text = reverse sprintf '%.0f', shift;
	$text =~ s/(\d{3})(?=\d)/$1,/g;
	return scalar reverse $text;
}

sub bar
{
	my ($value, $most, $width) = @_;
	my $eighths = $most > 0 ? int($value / $most * $width * 8 + 0.5) : 0;
	$eighths = 1 if $eighths == 0 && $value > 0;
	my @part = ('', map { chr(0x2590 - $_) } 1 .. 7);
	return "\x{2588}" x int($eighths / 8) . $part[$eighths % 8];
}

sub print_pinned
{
	my ($run) = @_;
	my $most = max(map { @{ $run->{$_}{per_tenth_per_s} } } qw(baton textbook));
	my @flush_ms = @{ $run->{commit_flush_p50_ms} };
	my $is_uneven = max(@flush_ms) > 2 * min(@flush_ms);
	my $in_one = $run->{loop} eq 'settle_and_claim';
	my %title = (
		baton => 'pg_baton' . ($in_one ? ' (settle_and_claim)' : ''),
		textbook => 'textbook queue' . ($in_one ? ' (delete and read in one call)' : ''),
	);
	printf "\nOne transaction holds a snapshot while 4 workers claim and acknowledge %s at a time, for %s s on each\n"
	  . "queue, in turns. One commit was flushed in %.2f to %.2f ms meanwhile.\n",
	  $run->{batch} == 1 ? 'one message' : "$run->{batch} messages", $run->{seconds},
	  min(@flush_ms), max(@flush_ms);
	print "That is uneven: part of what the bars show is the disk.\n" if $is_uneven;
	print "Messages per second in each tenth of that time:\n";
	for my $system ('baton', 'textbook')
	{
		print "\n$title{$system}\n";
		my @tenths = @{ $run->{$system}{per_tenth_per_s} };
		printf "  %2d  %s %s%s\n", $_ + 1, bar($tenths[$_], $most, 60), commas($tenths[$_]),
		  $is_uneven ? sprintf(" (flush %.2f ms)", $flush_ms[$_]) : ""
		  for 0 .. $#tenths;
		printf "  last tenth / first tenth: %.2f%s\n", $run->{$system}{last_to_first},
		  $run->{$system}{drained} ? '   (the backlog ran dry: not a fair figure)' : '';
		print_dead_rows($run->{$system}{dead_rows});
	}
	printf "\nIn the last tenth pg_baton is %.1f times as fast.\n", $run->{ratio_at_end} // 0;
}

sub write_results
{
	my ($name, $results) = @_;
	make_path("$ROOT/bench/results");
	my $path = "$ROOT/bench/results/$name.json";
	open my $f, '>:raw', "$path.tmp" or die "bench: cannot write $path: $!\n";
	print $f JSON::PP->new->utf8->canonical->pretty->encode($results);
	close $f;
	rename "$path.tmp", $path or die "bench: cannot write $path: $!\n";
	print "\nbench/results/$name.json has all figures.\n";
}

1;
