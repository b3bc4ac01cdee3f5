# Recovery needs nothing of ours: a standby and a crashed server replay the log of maps with the library not loaded at all.
use strict;
use warnings;
use BatonLoad;
use BatonPages;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', streaming => 1, conf => "autovacuum = off\nmax_wal_size = 1GB\n");
BatonLoad::make_tables($primary);
my $sql = sub { return $primary->safe_psql('postgres', $_[0]) };
$sql->("SELECT baton.create_queue('q', segment_bytes => 65536, max_attempts => 1000)");
my $path = $sql->('SHOW dynamic_library_path');
my $standby = standby_of($primary, 'standby', conf => "shared_preload_libraries = ''\ndynamic_library_path = '\$libdir'\n");
is($standby->safe_psql('postgres', 'SHOW shared_preload_libraries'), '', 'the standby has no library preloaded');
isnt($standby->psql('postgres', "SELECT baton.enqueue('q', '1')"), 0, 'and cannot load it');

my $load = BatonLoad->start($primary, queue => 'q', producers => 2, workers => 2, takers => 1);
$load->wait_for(acked => 200);
$sql->('CHECKPOINT');
$load->wait_for(acked => 400);
$load->stop;
$sql->('REINDEX INDEX baton_data.q1_2_map');
my ($token, $id) = split /\|/, $sql->("SELECT token, id FROM baton.claim('q', 'w', lease => '1 h')");
$sql->("INSERT INTO effect VALUES ('q', $id, 'token')");

# ---- the standby has replayed the same pages
$primary->append_conf('postgresql.conf', 'pg_baton.enabled = off');
$primary->reload;
wait_until(sub { $sql->("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton' AND xact_start IS NOT NULL") == 0 }, 'the workers to stand still');
$sql->('CHECKPOINT');
catch_up($primary, $standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
my ($pages, @different) = (0);
for my $segment (0 .. 2)
{
	for (['map', "baton_data.q1_${segment}_map"], ['heap', "baton_data.q1_$segment"])
	{
		my ($n, @d) = BatonPages::compare($primary, $standby, reverse @$_);
		$pages += $n;
		push @different, @d;
	}
}
is("@different", '', "$pages pages are the same on the standby without the library");

# ---- a crash, and recovery without the library
my $slots = q{SELECT string_agg(concat_ws(',', tid, id, generation, failures, key_hash, resolved, claimed_at, started_at), ' ' ORDER BY block, idx)
	FROM baton_internal.map_slots('baton_data.q1_0')};
my $before = $sql->($slots);
cmp_ok(length $before, '>', 1000, 'there are slots to compare');
$primary->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
crash_and_start($primary);
is($sql->('SHOW shared_preload_libraries'), '', 'the crashed server has come up without the library');
like(slurp_file($primary->logfile), qr/redo done/, 'and has recovered');
$primary->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_baton'\npg_baton.enabled = on");
$primary->restart;
is($sql->($slots), $before, 'the slots are as they were');
is_sound($primary, 'q');

# ---- the standby is promoted, and gets the library afterwards
catch_up($primary, $standby);
kill_server($primary);
$standby->promote;
isnt($standby->psql('postgres', "SELECT baton.ack('$token')"), 0, 'promoted without the library: verbs do not work');
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_baton'\ndynamic_library_path = '$path'");
$standby->restart;
is($standby->safe_psql('postgres', "SELECT baton.ack('$token')"), 'acked', 'with the library: the token of a replicated claim settles');
BatonLoad::drain($standby, 'q');
BatonLoad::books_balance($standby, 'q', 'every message had its effect once');
is_sound($standby, 'q');
done_testing();
