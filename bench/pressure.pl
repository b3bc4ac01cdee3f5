#!/usr/bin/perl
# pressure.pl [--seconds N] [--rate N] [--segments N] [--segment-mb N] [--no-pin] [--standby off|on] [--allow-no-fsync] [--strict]
#
# A queue under load while one transaction somewhere keeps a snapshot open: disk use against the budget of its ring, dead rows
# of every table, catalogs included, and what a claim takes from minute to minute. The load is --rate messages a second (default
# 1000), enqueued by tens: most for now, some for later (in a slot and in due-time buckets); four workers claim by tens and
# acknowledge, release with and without delay, and set aside; one claims one at a time and holds it for half a minute; and one
# claim is held from the first second to the last. So that a busy neighbour on the machine is not taken for a slower queue, a
# session that only counts to 2,000 is timed alongside, and the processor time of the workers' sessions is read (on the
# server's own machine). --standby makes a streaming standby with hot_standby_feedback off or on,
# where a reader of the queue has a transaction open all the time, and says how far its replay is behind. On the server that
# PGHOST, PGPORT, PGUSER and PGDATABASE name; `make bench-pressure` makes one. bench/results/pressure.json gets all samples.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/lib";
use Bench;
use File::Path qw(remove_tree);
use Getopt::Long;
use IPC::Open2;
use JSON::PP;
use List::Util qw(max min);
use POSIX qw(_exit strftime);
use Time::HiRes qw(time sleep);

my %o = (seconds => 600, rate => 1000, segments => 5, 'segment-mb' => 16, pin => 1);
GetOptions(\%o, 'seconds=i', 'rate=i', 'segments=i', 'segment-mb=i', 'pin!', 'standby=s', 'allow-no-fsync', 'strict') or exit 2;
my $queue = 'pressure';
my $batch = 10;
my $every = 5;  # seconds between two samples

# ---- a psql that stays: commands in, lines out

sub open_session
{
	my ($app, @options) = @_;
	local $ENV{PGAPPNAME} = $app;
	my $pid = open2(my $out, my $in, 'psql', '-XAtq', @options);
	$in->autoflush(1);
	return { pid => $pid, in => $in, out => $out, mark => 0 };
}

# Lines that the commands print; undef when the session has gone.
sub ask
{
	my ($s, $commands) = @_;
	my $mark = 'done ' . ++$s->{mark};
	local $SIG{PIPE} = 'IGNORE';
	print { $s->{in} } "$commands\n\\echo $mark\n" or return undef;
	my @lines;
	my $out = $s->{out};
	while (defined(my $line = <$out>))
	{
		chomp $line;
		return \@lines if $line eq $mark;
		push @lines, $line;
	}
	return undef;
}

sub close_session { my ($s) = @_; close $s->{in}; waitpid $s->{pid}, 0; }

# ---- the load: one process each, which writes what it measured to a file

my $folder = "/tmp/baton_pressure.$$";
my $start;
my @children;
sub child
{
	my ($name, $body) = @_;
	my $pid = fork // die "bench: fork: $!\n";
	if ($pid) { push @children, $pid; return; }
	open my $log, '>', "$folder/$name" or _exit(1);
	eval { $body->($log, open_session("pressure $name")); 1 } or print STDERR "bench: $name: $@";
	close $log;
	_exit(0);
}

sub over { return time >= $start + $o{seconds} }

sub produce
{
	my ($log, $s, $rate) = @_;
	my $sent = 0;
	until (over())
	{
		my $wait = $start + $sent / $rate - time;
		sleep $wait if $wait > 0;
		ask($s, "SELECT count(id) FROM pressure.produce($batch);") or die "the session has gone\n";
		$sent += $batch;
		print $log "sent $batch ", time - $start, "\n";
	}
}

# Processor time of a process of this machine, in seconds.
sub cpu_of
{
	my ($pid) = @_;
	open my $f, '<', "/proc/$pid/stat" or return undef;
	my @v = split ' ', (<$f> // '') =~ s/^.*\) //r;
	return @v > 12 ? ($v[11] + $v[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK()) : undef;
}

sub work
{
	my ($log, $s) = @_;
	my ($pid) = @{ ask($s, 'SELECT pg_backend_pid();') // [] };
	my $local = ($ENV{PGHOST} // '/') =~ m{^/};
	my $read = 0;
	until (over())
	{
		if ($local && time > $read + 1 && defined(my $cpu = cpu_of($pid)))
		{
			$read = time;
			print $log "cpu $cpu ", time - $start, " $pid\n";
		}
		my $lines = ask($s, "\\timing on\nSELECT count(*) AS n, array_agg(token) AS tokens FROM baton.claim('$queue', 'worker', $batch, '30 s') \\gset\n\\timing off\n\\echo :n")
		  or die "the session has gone\n";
		my ($ms) = map { /^Time: ([\d.]+) ms/ ? $1 : () } @$lines;
		my ($n) = map { /^(\d+)$/ ? $1 : () } @$lines;
		print $log "claim $ms ", time - $start, " $n\n" if defined $ms && $n;
		if ($n) { ask($s, "SELECT pressure.finish(:'tokens');"); }
		else { sleep 0.02; }
	}
}

# What the machine lets any session have.
sub count_up
{
	my ($log, $s) = @_;
	until (over())
	{
		my $lines = ask($s, "\\timing on\nSELECT count(*) FROM generate_series(1, 2000);\n\\timing off") or die "the session has gone\n";
		my ($ms) = map { /^Time: ([\d.]+) ms/ ? $1 : () } @$lines;
		print $log "control $ms ", time - $start, "\n" if defined $ms;
		sleep 0.02;
	}
}

# One at a time, each held for half a minute.
sub hold
{
	my ($log, $s) = @_;
	my @held;
	until (over())
	{
		my ($token) = @{ ask($s, "SELECT token FROM baton.claim('$queue', 'holder', 1, '45 s');") // [] };
		push @held, [ time, $token ] if $token;
		while (@held && (time - $held[0][0] > 30))
		{
			my $h = shift @held;
			ask($s, "SELECT outcome FROM baton.settle(ARRAY['$h->[1]'], '{ack}');");
		}
		sleep 1;
	}
}

sub hold_one
{
	my ($log, $s) = @_;
	my $token;
	until ($token || over())
	{
		($token) = @{ ask($s, "SELECT token FROM baton.claim('$queue', 'one', 1, '1 h');") // [] };
		sleep 0.05;
	}
	return unless $token;
	sleep 1 until over();
	my ($outcome) = @{ ask($s, "SELECT outcome FROM baton.settle(ARRAY['$token'], '{ack}');") // [] };
	print $log "outcome ", $outcome // '?', "\n";
}

# ---- a standby and its reader

my $standby;
sub as_server { return $> == 0 ? ('runuser', '-u', 'postgres', '--', @_) : @_ }
sub bindir { my $b = `pg_config --bindir`; chomp $b; return $b }

sub start_standby
{
	my ($feedback) = @_;
	my $data = "$ENV{PGHOST}/standby";
	my $port = ($ENV{PGPORT} // 5432) + 1;
	system(as_server(bindir() . '/pg_basebackup', '-D', $data, '-R', '-c', 'fast', '-X', 'stream', '-h', $ENV{PGHOST}, '-p', $ENV{PGPORT} // 5432, '-U', 'postgres')) == 0
	  or die "bench: no base backup\n";
	system(as_server(bindir() . '/pg_ctl', '-D', $data, '-l', "$ENV{PGHOST}/standby.log", '-w', '-s',
			'-o', "-p $port -c hot_standby_feedback=$feedback -c wal_receiver_status_interval=1 -c shared_buffers=128MB", 'start')) == 0
	  or die "bench: the standby did not start\n";
	$standby = { data => $data, port => $port };
}

sub stop_standby
{
	return unless $standby;
	system(as_server(bindir() . '/pg_ctl', '-D', $standby->{data}, '-m', 'immediate', '-s', 'stop'));
	remove_tree($standby->{data});
}

sub read_on_standby
{
	my ($log) = @_;
	local $ENV{PGPORT} = $standby->{port};
	open STDERR, '>', '/dev/null';  # that it is stopped is what is counted
	until (over())
	{
		my $s = open_session('pressure reader', '-v', 'ON_ERROR_STOP=1');
		my $begun = time;
		my $lines = ask($s, "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM baton_queue.$queue;");
		$lines = ask($s, "SELECT count(*) FROM baton_queue.$queue;") while $lines && !over() && sleep 1;
		print $log "reader ", time - $begun, ' ', ($lines ? 'ended' : 'stopped by the server'), "\n";
		close_session($s);
		sleep 0.2;
	}
}

# ---- samples

my $sample_sql = <<"SQL";
SELECT pg_stat_clear_snapshot() \\g /dev/null
SELECT 'disk', coalesce(sum(pg_table_size(c.oid)), 0), coalesce(sum(pg_indexes_size(c.oid)), 0)
FROM baton_internal.queue q JOIN pg_class c ON c.relnamespace = 'baton_data'::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'q' || q.id || '\\_%' WHERE q.name = '$queue';
SELECT 'shared', coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c WHERE c.relnamespace = 'baton_data'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^(later|long|retained)_';
SELECT 'dead', s.schemaname || '.' || s.relname, s.n_dead_tup FROM pg_stat_all_tables s
WHERE s.schemaname <> 'pressure' AND NOT (s.schemaname = 'baton_data' AND s.relname ~ '^(q\\d+|later|long|retained)_\\d+\$') AND s.schemaname <> 'pg_toast'
ORDER BY s.n_dead_tup DESC LIMIT 3;
SELECT 'state', ready, scheduled, claimed, quarantined FROM baton.queue_stats WHERE queue = '$queue';
SELECT 'ring', string_agg(state, ' ' ORDER BY segment) FROM baton.segments WHERE queue = '$queue';
SELECT 'lag', coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0), coalesce(max(extract(epoch FROM replay_lag)), 0) FROM pg_stat_replication;
SQL

sub take_sample
{
	my ($s) = @_;
	my $lines = ask($s, $sample_sql) or die "bench: the server has gone\n";
	my %sample = (at => time - $start, dead => {});
	for (map { [ split /\|/ ] } @$lines)
	{
		my ($what, @v) = @$_;
		if ($what eq 'disk') { @sample{qw(heap_bytes map_bytes)} = map { $_ + 0 } @v }
		elsif ($what eq 'shared') { $sample{shared_bytes} = $v[0] + 0 }
		elsif ($what eq 'dead') { $sample{dead}{ $v[0] } = $v[1] + 0 }
		elsif ($what eq 'state') { @sample{qw(ready scheduled claimed quarantined)} = map { $_ + 0 } @v }
		elsif ($what eq 'ring') { $sample{ring} = $v[0] }
		elsif ($what eq 'lag') { @sample{qw(lag_bytes lag_seconds)} = map { $_ + 0 } @v }
	}
	return \%sample;
}

sub percentile { my ($p, @v) = @_; return undef unless @v; @v = sort { $a <=> $b } @v; return $v[ int($p * $#v + 0.5) ]; }
sub mb { return sprintf '%.1f', $_[0] / 2**20 }

# ---- the run

build_driver();
prepare_server(allow_no_fsync => $o{'allow-no-fsync'});
my $facts = server_facts();
print_facts($facts);
mkdir $folder or die "bench: $folder: $!\n";
my $budget = $o{segments} * $o{'segment-mb'} * 2**20;
psql(<<"SQL");
SELECT baton.create_queue('$queue', segments => $o{segments}, segment_bytes => @{[$o{'segment-mb'} * 2**20]}, backoff => '2 s', max_attempts => 50);
CREATE SCHEMA pressure;
CREATE FUNCTION pressure.produce(n integer) RETURNS TABLE (id bigint) LANGUAGE sql AS \$\$
    SELECT e.id FROM baton.enqueue_batch('$queue', ARRAY(SELECT jsonb_build_object('order', i, 'note', repeat(md5(random()::text), 5)) FROM generate_series(1, n) i),
        delays => ARRAY(SELECT CASE WHEN r < 0.95 THEN '0 s' WHEN r < 0.98 THEN '20 s' ELSE '100 s' END::interval FROM (SELECT random() + 0 * i AS r FROM generate_series(1, n) i) x)) e \$\$;
CREATE FUNCTION pressure.finish(tokens text[]) RETURNS bigint LANGUAGE sql AS \$\$
    WITH v AS (SELECT array_agg(CASE WHEN r < 0.95 THEN 'ack' WHEN r < 0.98 THEN 'release' WHEN r < 0.998 THEN 'release_unfailed' ELSE 'quarantine' END) AS verdicts,
                      array_agg(CASE WHEN r < 0.98 THEN NULL WHEN r < 0.99 THEN '5 s' ELSE '100 s' END::interval) AS delays
               FROM (SELECT random() + 0 * length(t) AS r FROM unnest(tokens) t) x)
    SELECT count(*) FROM v, LATERAL baton.settle(tokens, v.verdicts, v.delays) \$\$;
SQL
start_standby($o{standby}) if $o{standby};
my $pin = $o{pin} ? hold_snapshot() : undef;
my $sampler = open_session('pressure sampler');
printf "%d messages/s for %d s, ring of %d segments of %d MB (budget %s MB)%s%s\n", $o{rate}, $o{seconds}, $o{segments}, $o{'segment-mb'}, mb($budget),
  $pin ? ', a snapshot held throughout' : '', $o{standby} ? ", a standby with hot_standby_feedback = $o{standby} and a reader" : '';
$start = time + 0.5;
child("producer$_", sub { produce($_[0], $_[1], $o{rate} / 2) }) for 1 .. 2;
child("worker$_", \&work) for 1 .. 4;
child('control', \&count_up);
child('holder', \&hold);
child('one', \&hold_one);
child('reader', sub { close_session($_[1]); read_on_standby($_[0]) }) if $standby;
my @samples;
printf "%7s %9s %9s %9s %8s %8s %8s  %-34s %s\n", 'second', 'heap MB', 'map MB', 'shared MB', 'ready', 'sched.', 'claimed', 'most dead rows, segments apart', $standby ? 'replay behind' : '';
until (over())
{
	sleep max(0, $start + (@samples + 1) * $every - time);
	push @samples, my $x = take_sample($sampler);
	next unless @samples % 6 == 0;
	my ($worst) = sort { $x->{dead}{$b} <=> $x->{dead}{$a} } keys %{ $x->{dead} };
	printf "%7.0f %9s %9s %9s %8d %8d %8d  %-34s %s\n", $x->{at}, mb($x->{heap_bytes}), mb($x->{map_bytes}), mb($x->{shared_bytes}), @$x{qw(ready scheduled claimed)},
	  sprintf('%s %s', $worst // '-', commas($worst ? $x->{dead}{$worst} : 0)), $standby ? sprintf('%s MB, %.1f s', mb($x->{lag_bytes}), $x->{lag_seconds}) : '';
}
waitpid $_, 0 for @children;

# ---- what it was

my (@claims, @control, %cpu, $sent, $done, @readers, $outcome);
for my $file (glob "$folder/*")
{
	open my $f, '<', $file or next;
	while (<$f>)
	{
		my @w = split;
		if ($w[0] eq 'claim') { push @claims, [ $w[2], $w[1], $w[3] ]; $done += $w[3]; }
		elsif ($w[0] eq 'control') { push @control, [ $w[2], $w[1] ] }
		elsif ($w[0] eq 'cpu') { push @{ $cpu{ $w[3] } }, [ $w[2], $w[1] ] }
		elsif ($w[0] eq 'sent') { $sent += $w[1] }
		elsif ($w[0] eq 'reader') { push @readers, { seconds => $w[1] + 0, end => $w[2] } }
		elsif ($w[0] eq 'outcome') { $outcome = $w[1] }
	}
}
remove_tree($folder);
my $minutes = max(1, int($o{seconds} / 60));
my $length = $o{seconds} / $minutes;
my $by_minute = sub { my ($p, @rows) = @_; map { my $m = $_; percentile($p, map { $_->[1] } grep { $_->[0] >= $m * $length && $_->[0] < ($m + 1) * $length } @rows) } 0 .. $minutes - 1 };
my @p50 = $by_minute->(0.5, @claims);
my @p99 = $by_minute->(0.99, @claims);
my @control_p99 = $by_minute->(0.99, @control);
# Processor time of the workers' sessions, each between its first and last reading of the minute, for each message.
my @cpu_us = map {
	my ($from, $to) = ($_ * $length, ($_ + 1) * $length);
	my ($spent, $span) = (0, 0);
	for my $of (values %cpu)
	{
		my @in = grep { $_->[0] >= $from && $_->[0] < $to } @$of or next;
		$spent += $in[-1][1] - $in[0][1];
		$span += ($in[-1][0] - $in[0][0]) / keys %cpu;
	}
	my $messages = 0;
	$messages += $_->[2] for grep { $_->[0] >= $from && $_->[0] < $to } @claims;
	$span > 0 && $messages > 0 ? 1e6 * $spent / ($messages * $span / $length) : undef;
} 0 .. $minutes - 1;
print "\nby minute", ' ' x 42, join(' ', map { sprintf '%7d', $_ } 1 .. $minutes), "\n";
for my $row ([ "p50 of a claim of $batch, ms", @p50 ], [ "p99 of a claim of $batch, ms", @p99 ], [ 'p99 of the session that only counts, ms', @control_p99 ],
	[ 'processor time of the workers\' sessions a message, us', @cpu_us ])
{
	my ($what, @v) = @$row;
	printf "  %-49s%s\n", $what, join ' ', map { defined $_ ? sprintf '%7.2f', $_ : '      -' } @v;
}
my $peak = max map { $_->{heap_bytes} } @samples;
my $peak_all = max map { $_->{heap_bytes} + $_->{map_bytes} } @samples;
my %worst;
for my $x (@samples) { $worst{$_} = max($worst{$_} // 0, $x->{dead}{$_}) for keys %{ $x->{dead} } }
my ($most) = sort { $worst{$b} <=> $worst{$a} } keys %worst;
my $ratio = $p99[0] ? $p99[-1] / $p99[0] : undef;
my @goals = (
	{ what => 'disk: messages at their peak, of the budget', value => $peak / $budget, limit => 1.25 },
	{ what => "dead rows of any table but segments ($most)", value => $worst{$most}, limit => 10_000 },
	{ what => 'p99 of a claim, last minute to first', value => $ratio, limit => 1.2 });
printf "\nenqueued %s, claimed %s; the claim that was held throughout: %s\n", commas($sent), commas($done), $outcome // '?';
printf "at its peak %s MB of messages, %s MB with the maps; truncations are seen in baton.segments: %s\n", mb($peak), mb($peak_all), $samples[-1]{ring};
if ($standby)
{
	my $stopped = grep { $_->{end} eq 'stopped' } @readers;
	printf "replay behind at most %s MB, %.1f s; %d transactions of the reader, %d stopped by the server, the longest %.0f s\n",
	  mb(max map { $_->{lag_bytes} } @samples), max(map { $_->{lag_seconds} } @samples), scalar @readers, $stopped, max(map { $_->{seconds} } @readers);
}
my $missed = 0;
for my $g (@goals)
{
	my $met = defined $g->{value} && $g->{value} <= $g->{limit};
	$missed++ unless $met;
	$g->{met} = $met ? JSON::PP::true : JSON::PP::false;
	printf "%-60s %10.2f  (goal: at most %s)  %s\n", $g->{what}, $g->{value} // 0, $g->{limit}, $met ? 'met' : 'NOT MET';
}
write_results('pressure', { facts => $facts, options => \%o, at => strftime('%Y-%m-%dT%H:%M:%SZ', gmtime), samples => \@samples,
		p50_ms => \@p50, p99_ms => \@p99, control_p99_ms => \@control_p99, cpu_us => \@cpu_us, goals => \@goals, readers => \@readers, enqueued => $sent, claimed => $done });
close_session($sampler);
release_snapshot($pin) if $pin;
stop_standby();
my $problems = psql("SELECT string_agg(c::text, '; ') FROM baton.check('$queue') c");
print "baton.check: ", ($problems eq '' ? 'sound' : $problems), "\n";
psql("SELECT baton.drop_queue('$queue', discard => true);\nDROP SCHEMA pressure CASCADE;");
exit($o{strict} && ($missed || $problems ne '') ? 1 : 0);
