#!/usr/bin/perl
# later.pl [--scheduled N] [--wave N] [--allow-no-fsync]
#
# What scheduled messages cost. A few messages come due at waiting workers: how late they are, and what the mover uses of a
# processor meanwhile; with nothing else scheduled, beside N that are due later (default: a million), and with a snapshot
# pinned after 300,000 have passed through the due-time buckets. Then a wave of messages that are all due at once
# (--wave, default 100,000), with enqueue and claim going on. On the server that PGHOST, PGPORT, PGUSER and PGDATABASE
# name, whose settings it changes: only for a throwaway cluster; `make bench-later` makes one.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Bench;
use Getopt::Long;
use IPC::Open2;
use List::Util qw(max sum0);
use Time::HiRes qw(time sleep);

my ($scheduled, $wave, $allow_no_fsync) = (1_000_000, 100_000, 0);
GetOptions('scheduled=i' => \$scheduled, 'wave=i' => \$wave, 'allow-no-fsync' => \$allow_no_fsync) or exit 2;

build_driver();
prepare_server(allow_no_fsync => $allow_no_fsync);
psql("ALTER SYSTEM SET pg_baton.soon = '20s';\nSELECT pg_reload_conf()");
my $facts = server_facts();
print_facts($facts);
my %results = (facts => $facts);

sub percentile { my ($p, @v) = @_; return undef unless @v; @v = sort { $a <=> $b } @v; return $v[ int($p * $#v + 0.5) ]; }
sub mover_ticks
{
	my $pid = psql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_baton mover' AND datname = current_database() LIMIT 1");
	return 0 unless $pid && open my $f, '<', "/proc/$pid/stat";
	my @field = split ' ', <$f> =~ s/^.*\) //r;
	return $field[11] + $field[12];
}
sub buckets { return psql('SELECT count(*) FROM baton_internal.later_message') }

# A worker: waits, claims, and says for each message how late it came, by the server's clock. Ends with its input.
sub start_worker
{
	my ($queue, $rounds) = @_;
	my $pid = open2(my $out, my $in, 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1');
	print $in "SET pg_baton.wait_recheck = '1h';\n";
	print $in "CALL baton.wait('$queue', '6 s');\n"
	  . "SELECT 'late', extract(epoch FROM clock_timestamp()) - payload::float8 FROM baton.take('$queue', 20);\n" for 1 .. $rounds;
	close $in;
	return { pid => $pid, out => $out };
}
sub finish_worker { my ($w) = @_; my $out = $w->{out}; my @late = map { /^late\|(.*)/ ? $1 : () } <$out>; waitpid $w->{pid}, 0; return @late; }

# 400 messages due in 22 to 32 s, one by one.
sub few_come_due
{
	my ($name) = @_;
	Bench::say_step($name);
	psql("SELECT baton.create_queue('few', if_not_exists => true)");
	psql(<<'SQL');
SELECT count(*) FROM generate_series(1, 400) i,
       LATERAL (SELECT clock_timestamp() + '22 s' + random() * interval '10 s' AS due WHERE i > 0) d,
       LATERAL baton.enqueue('few', to_jsonb(extract(epoch FROM d.due)), not_before => d.due) e;
SQL
	my ($ticks, $start) = (mover_ticks(), time);
	my @workers = map { start_worker('few', 200) } 1 .. 4;
	while (time - $start < 40) { sleep 1; last if psql("SELECT count(*) FROM baton_queue.few") == 0; }
	my $seconds = time - $start;
	my $cpu = mover_ticks() - $ticks;
	kill 'TERM', map { $_->{pid} } @workers;
	my @late = map { finish_worker($_) } @workers;
	my %r = (
		delivered => scalar @late, early => scalar(grep { $_ < 0 } @late),
		p50_ms => 1000 * (percentile(0.5, @late) // 0), p99_ms => 1000 * (percentile(0.99, @late) // 0), max_ms => 1000 * (max(@late) // 0),
		mover_cpu_percent => $cpu / $seconds);
	printf "%-46s %9d %6d %8.2f %8.2f %8.2f %9.2f\n", $name, @r{qw(delivered early p50_ms p99_ms max_ms mover_cpu_percent)};
	$results{few}{$name} = \%r;
	return \%r;
}

printf "\n%-46s %9s %6s %8s %8s %8s %9s\n", '400 messages come due within 10 s', 'delivered', 'early', 'p50 ms', 'p99 ms', 'max ms', 'mover %';
few_come_due('nothing else is scheduled');

psql("SELECT baton.create_queue('many', max_delay => '30 days')");
my $load = time;
for (my $n = 0; $n < $scheduled; $n += 10_000)
{
	psql(<<'SQL');
SELECT count(*) FROM baton.enqueue_batch('many', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 10000) i),
    delays => ARRAY(SELECT interval '1 h' + random() * interval '29 days' FROM generate_series(1, 10000)));
SQL
}
printf "  %s scheduled over 30 days, %s a second\n", commas($scheduled), commas(int($scheduled / (time - $load)));
$results{load_per_s} = $scheduled / (time - $load);
few_come_due('beside ' . commas($scheduled) . ' due later');

my $holder = hold_snapshot();
psql("SELECT baton.create_queue('passing')");
for (1 .. 30) { psql("SELECT count(*) FROM baton.enqueue_batch('passing', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 10000) i), delays => '{22 s}')"); }
my $deadline = time + 120;
while (time < $deadline && psql("SELECT scheduled FROM baton.queue_stats WHERE queue = 'passing'") > 0) { psql("SELECT count(*) FROM baton.take('passing', 1000)"); }
1 while psql("SELECT count(*) FROM baton.take('passing', 1000)") > 0;
few_come_due('and a snapshot pinned while 300,000 passed');
release_snapshot($holder);

# ---- a wave
psql("SELECT baton.create_queue('wave')");
psql("SELECT baton.create_queue('beside')");
my $due = psql("SELECT clock_timestamp() + '" . (30 + $wave / 20_000) . " s'");
for (my $n = 0; $n < $wave; $n += 10_000)
{
	psql("SELECT count(*) FROM baton.enqueue_batch('wave', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 10000) i), delays => ARRAY['$due'::timestamptz - clock_timestamp()])");
}
sub beside
{
	my ($seconds) = @_;
	my (@enqueue, @claim);
	my $end = time + $seconds;
	my $pid = open2(my $out, my $in, 'psql', '-XAtq');
	$in->autoflush(1);
	while (time < $end)
	{
		my $t = time;
		print $in "SELECT id FROM baton.enqueue('beside', '1');\n"; <$out>;
		push @enqueue, time - $t; $t = time;
		print $in "SELECT id FROM baton.take('beside');\n"; <$out>;
		push @claim, time - $t;
	}
	close $in; waitpid $pid, 0;
	return (enqueue_p50_ms => 1000 * percentile(0.5, @enqueue), enqueue_p99_ms => 1000 * percentile(0.99, @enqueue),
		take_p50_ms => 1000 * percentile(0.5, @claim), take_p99_ms => 1000 * percentile(0.99, @claim), calls => scalar @enqueue);
}
my %before = beside(5);
my $left = psql("SELECT extract(epoch FROM '$due'::timestamptz - clock_timestamp())");
sleep $left - 2 if $left > 2;
my $start = time;
my %during = beside(5);
my $moved;
while (time - $start < 120) { $moved = time - $start; last if psql("SELECT scheduled FROM baton.queue_stats WHERE queue = 'wave'") == 0; sleep 0.2; }
printf "\nA wave of %s due at once: moved and due within %.1f s from 2 s before it was due.\n", commas($wave), $moved;
printf "%-24s %12s %12s %12s %12s %8s\n", 'another queue meanwhile', 'enqueue p50', 'enqueue p99', 'take p50', 'take p99', 'calls';
printf "%-24s %9.2f ms %9.2f ms %9.2f ms %9.2f ms %8d\n", $_->[0], @{ $_->[1] }{qw(enqueue_p50_ms enqueue_p99_ms take_p50_ms take_p99_ms calls)}
  for [ 'before', \%before ], [ 'during', \%during ];
$results{wave} = { messages => $wave, seconds => $moved, before => \%before, during => \%during };

psql("ALTER SYSTEM RESET pg_baton.soon;\nSELECT pg_reload_conf()");
write_results('later', \%results);
psql("SELECT baton.drop_queue('$_', discard => true)") for qw(few many passing wave beside);
