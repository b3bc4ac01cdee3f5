#!/usr/bin/perl
# due.pl [--messages N] [--seconds S] [--allow-no-fsync]
#
# How late messages come that wait for their due time in their slots (soon due, or released with a delay): at workers in
# baton.wait, and at workers that LISTEN and claim only when they are told. First alone, then beside what keeps the mover
# busy: leases that end all the time in a map of a million messages, and messages that expire by the thousand. On the server that
# PGHOST, PGPORT, PGUSER and PGDATABASE name; `make bench-due` makes one.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Bench;
use Getopt::Long;
use Time::HiRes qw(time sleep);

my ($messages, $seconds, $allow_no_fsync) = (2000, 10, 0);
GetOptions('messages=i' => \$messages, 'seconds=f' => \$seconds, 'allow-no-fsync' => \$allow_no_fsync) or exit 2;

build_driver();
prepare_server(allow_no_fsync => $allow_no_fsync);
my %results = (facts => server_facts());
print_facts($results{facts});
psql(<<'SQL');
SELECT baton.create_queue('due', backoff => '0 s', notify => true);
SELECT baton.create_queue('beside', lease => '1 s', max_attempts => 60000, claim_ceiling => 2000000000);
SQL

# So many messages fall due one by one while workers wait for them; then all at one moment.
sub fall_due
{
	my ($name, $loop, $at_once) = @_;
	my $step = $at_once ? "interval '2 s'" : "interval '1 s' + random() * interval '1 s' * ($seconds - 2)";
	psql(<<"SQL");
WITH due AS MATERIALIZED (SELECT now() + $step AS due FROM generate_series(1, $messages))
SELECT count(*) FROM (SELECT array_agg(to_jsonb(extract(epoch FROM due))) AS payloads, array_agg(due) AS dues FROM due) d,
       LATERAL baton.enqueue_batch('due', d.payloads, not_befores => d.dues) e;
SQL
	my $r = driver('due', '--loop' => $loop, '--queue' => 'due', '--workers' => 4, '--seconds' => $seconds);
	printf "%-44s %-7s %9d %6d %8.2f %8.2f %8.2f %8d\n", $name, $loop, $r->{late}{count}, $r->{early}, @{ $r->{late} }{qw(p50_ms p99_ms max_ms)},
	  $r->{wakings};
	$results{$name}{$loop} = $r;
	return;
}

# Runs statements over and over in a session of its own, until it is killed.
sub keep_doing
{
	my ($sql) = @_;
	my $pid = open my $in, '|-', 'psql', '-XAtq', '-o', '/dev/null';
	$in->autoflush(1);
	print $in "\\set ON_ERROR_STOP 0\n$sql\n\\watch 0.05\n";
	return { pid => $pid, in => $in };
}
sub stop_doing { my ($w) = @_; kill 'KILL', $w->{pid}; close $w->{in}; return; }

printf "\n%-44s %-7s %9s %6s %8s %8s %8s %8s\n", "$messages messages fall due", 'by', 'delivered', 'early', 'p50 ms', 'p99 ms', 'max ms', 'wakings';
for my $loop ('wait', 'listen')
{
	fall_due('one by one', $loop, 0);
	fall_due('all at once', $loop, 1);
}

psql("SELECT count(*) FROM baton.enqueue_batch('beside', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 100000) i))") for 1 .. 10;
my $claims = keep_doing("SELECT count(*) FROM baton.claim('beside', max_items => 2000, lease => '500 ms')");
sleep 2;
fall_due('beside leases that end, a million in line', $_, 0) for 'wait', 'listen';
my $dying = keep_doing("SELECT count(*) FROM baton.enqueue_batch('beside', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 5000) i), expires_ats => ARRAY[clock_timestamp() + '500 ms'::interval])");
sleep 2;
fall_due('and messages that expire', $_, 0) for 'wait', 'listen';
stop_doing($_) for $claims, $dying;
my $expired = psql("SELECT expired FROM baton.queue_counters WHERE queue = 'beside'");
printf "  %s messages have expired meanwhile\n", commas($expired);

write_results('due', \%results);
psql("SELECT baton.drop_queue('$_', discard => true)") for qw(due beside);
