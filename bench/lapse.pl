#!/usr/bin/perl
# lapse.pl [--messages N] [--workers W] [--batch B] [--spread LIST] [--lease S] [--backlog N] [--allow-no-fsync]
#
# Very many leases end at one moment (a network was cut, a fleet of workers died): how fast their messages come back to
# workers in baton.wait, for each value of pg_baton.lapse_spread (a tenth of the lease bounds it); and how long lease_grace
# and a look for one message take. --backlog: settled messages in the same map before them. On the server that PGHOST,
# PGPORT, PGUSER and PGDATABASE name; `make bench-lapse` makes one.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Bench;
use Getopt::Long;
use Time::HiRes qw(time sleep);

my ($messages, $workers, $batch, $backlog, $lease, $spread, $allow_no_fsync) = (100_000, 8, 20, 0, 20, '0,1s,2s', 0);
GetOptions('messages=i' => \$messages, 'workers=i' => \$workers, 'batch=i' => \$batch, 'backlog=i' => \$backlog, 'spread=s' => \$spread, 'lease=i' => \$lease,
	'allow-no-fsync' => \$allow_no_fsync) or exit 2;
build_driver();
prepare_server(allow_no_fsync => $allow_no_fsync);
print_facts(server_facts());

sub fill
{
	my ($queue, $n) = @_;
	psql(<<"SQL");
SELECT sum(n) FROM generate_series(1, ceil($n / 10000.0)::int) i,
       LATERAL (SELECT count(*) AS n FROM baton.enqueue_batch('$queue', array_fill('{"work": 1}'::jsonb, ARRAY[least(10000, $n - (i - 1) * 10000)]))) e;
SQL
	return;
}

my $script = "/tmp/lapse.$$.sql";
open my $fh, '>', $script or die "$script: $!\n";
print $fh "CALL baton.wait('lapse', '1 s');\nSELECT count(*) FROM baton.claim('lapse', 'w' || :client_id, $batch, '1 h');\n";
close $fh;

printf "\n%s claims end at one moment; %d workers in wait, claiming %d at a time\n", commas($messages), $workers, $batch;
for my $s (split /,/, $spread)
{
	psql("SELECT baton.drop_queue('lapse', true, true)");
	psql("SELECT baton.create_queue('lapse', max_attempts => 100, max_lease => '12 h', segment_bytes => 1099511627776)");
	psql("ALTER SYSTEM SET pg_baton.lapse_spread = '$s';\nSELECT pg_reload_conf()");
	if ($backlog)
	{
		fill('lapse', $backlog);
		psql("DO \$\$ BEGIN LOOP PERFORM FROM baton.take('lapse', 10000); EXIT WHEN NOT FOUND; COMMIT; END LOOP; END \$\$");
	}
	fill('lapse', $messages);
	my $started = time();
	psql(<<"SQL");
DO \$\$ BEGIN LOOP PERFORM FROM baton.claim('lapse', 'dead', 10000, '$lease s'); EXIT WHEN NOT FOUND; COMMIT; END LOOP; END \$\$
SQL
	my $t = time();
	my $grace = psql("SELECT extended FROM baton.lease_grace('lapse', '1 s')");
	printf "\nlapse_spread = %s: %s claims; lease_grace over all of them took %.0f ms\n", $s, commas($grace), (time() - $t) * 1000;
	my $id = psql("SELECT max(id) - $messages / 2 FROM baton_queue.lapse");
	$t = time();
	psql("SELECT obstacle FROM baton.explain_message('lapse', $id)");
	printf "explain_message of one of them took %.1f ms, with the start of psql\n", (time() - $t) * 1000;
	my $pid = fork() // die "fork: $!\n";
	if (!$pid)
	{
		open STDOUT, '>', '/dev/null';
		open STDERR, '>', '/dev/null';
		exec 'pgbench', '-n', '-c', $workers, '-j', 2, '-T', $lease + 60, '-f', $script;
	}
	# the counter says which claims were of messages whose lease had ended
	my (@rate, $before, $first);
	my $watch = sub { return psql("SELECT expired_leases FROM baton.queue_counters WHERE queue = 'lapse'") };
	my $base = $watch->();
	my $last = 0;
	while ($last < $messages && time() - $started < $lease + 90)
	{
		my $n = $watch->() - $base;
		push @rate, [ time(), $n ] if $n > 0 || @rate;
		$last = $n;
		sleep 0.1;
	}
	kill 'TERM', $pid;
	waitpid $pid, 0;
	my $t0 = $rate[0][0] - 0.1;
	printf "first to last in %.1f s; messages claimed by then, per tenth:", $rate[-1][0] - $t0;
	for my $tenth (1 .. 10)
	{
		my $until = $t0 + ($rate[-1][0] - $t0) * $tenth / 10;
		my ($n) = map { $_->[1] } grep { $_->[0] >= $until } @rate;
		printf ' %s', commas($n // $rate[-1][1]);
	}
	my $dead = psql("SELECT count(*) FROM baton.in_flight WHERE queue = 'lapse' AND worker = 'dead'");
	my $most = 0;
	for my $i (1 .. $#rate) { my $r = ($rate[$i][1] - $rate[ $i - 1 ][1]) / ($rate[$i][0] - $rate[ $i - 1 ][0]); $most = $r if $r > $most; }
	printf "\nmost in a tenth of a second: %s/s; still held by the dead: %s\n", commas(int $most), commas($dead);
}
unlink $script;
psql("SELECT baton.drop_queue('lapse', true, true);\nALTER SYSTEM RESET pg_baton.lapse_spread;\nSELECT pg_reload_conf()");
