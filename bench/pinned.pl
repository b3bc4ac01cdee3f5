#!/usr/bin/perl
# pinned.pl [--seconds N] [--loop claim_ack|settle_and_claim] [--batch N] [--allow-no-fsync]
#
# Throughput per tenth of both queues while one transaction somewhere keeps a snapshot open: what every SKIP LOCKED
# queue meets as soon as somebody runs a long report, and what this project is for. On the server that PGHOST, PGPORT,
# PGUSER and PGDATABASE name; `make demo-pinned` makes one. bench/results/pinned.json gets the figures.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::Bin/lib";
use Bench;
use Getopt::Long;

my ($seconds, $loop, $batch, $allow_no_fsync) = (45, 'claim_ack', 1, 0);
GetOptions('seconds=f' => \$seconds, 'loop=s' => \$loop, 'batch=i' => \$batch, 'allow-no-fsync' => \$allow_no_fsync)
  or exit 2;

build_driver();
prepare_server(allow_no_fsync => $allow_no_fsync);
my $facts = server_facts();
print_facts($facts);
create_textbook();
my $run = pinned_run($seconds, loop => $loop, batch => $batch);
print_pinned($run);
write_results('pinned', { facts => $facts, pinned => $run });
drop_everything();
