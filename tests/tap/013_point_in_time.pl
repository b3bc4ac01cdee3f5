# A physical copy that was recovered to an earlier moment. What was confirmed until then is there; tokens of claims made later
# on the original never match what the copy hands out; and a copy that is not meant to work can be kept from it.
use strict;
use warnings;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('original');
$node->init(has_archiving => 1, allows_streaming => 1, extra => [ '--locale=C.UTF-8', '-E', 'UTF8' ]);
$node->append_conf('postgresql.conf', "autovacuum = off\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_baton');
my $s = session($node);
$s->query("SELECT baton.create_queue('q', backoff => '0 s')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('q', '{1,2,3,4,5,6}')");
$node->backup('base');
my $claim = sub { return split /\|/, $s->query("SELECT token, id, generation, fence FROM baton.claim('q', 'w', lease => '1 h')") };
my ($before, $before_id) = $claim->();
my ($acked) = $claim->();
$s->query("SELECT baton.ack('$acked')");
$s->query("SELECT id FROM baton.enqueue('q', '\"in time\"')");
$s->query("SELECT pg_create_restore_point('then')");
my ($after, $after_id, $after_generation, $fence) = $claim->();
is($s->query("SELECT baton.ack('$before')"), 'acked', 'the original goes on');
$s->query("SELECT id FROM baton.enqueue('q', '\"too late\"')");
my $file = $s->query('SELECT pg_walfile_name(pg_current_wal_insert_lsn())');
$s->query('SELECT pg_switch_wal()');
$node->poll_query_until('postgres', "SELECT last_archived_wal >= '$file' FROM pg_stat_archiver")
  or BAIL_OUT('nothing is archived');

sub copy
{
	my ($name, $conf) = @_;
	my $copy = PostgreSQL::Test::Cluster->new($name);
	$copy->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	$copy->append_conf('postgresql.conf', "recovery_target_name = 'then'\nrecovery_target_action = promote\narchive_mode = off\n$conf");
	$copy->start;
	$copy->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or BAIL_OUT('recovery does not end');
	return $copy;
}

# ---- a copy that takes over
my $copy = copy('copy', '');
my $c = session($copy);
is($c->query("SELECT string_agg(payload::text, ' ' ORDER BY id) FROM baton_queue.q"), '1 3 4 5 6 "in time"', 'what was confirmed until then is there');
is_sound($copy, 'q');
is($c->query("SELECT outcome FROM baton.settle(ARRAY['$after'], '{ack}')"), 'stale_generation', 'a token of a later claim is refused');
my %got = map { my ($id, $g) = split /\|/; ($id => $g) } split /\n/, $c->query("SELECT id, generation FROM baton.claim('q', 'copy', 10, '1 h')");
is($got{$after_id}, $after_generation, 'its message is handed out under the same number');
is($c->query("SELECT outcome FROM baton.settle(ARRAY['$after'], '{ack}')"), 'stale_generation', 'and the later token does not match that claim');
ok(!exists $got{$before_id}, 'a claim from before is held');
is($c->query("SELECT outcome FROM baton.settle(ARRAY['$acked'], '{ack}')"), 'already_settled', 'what was settled before stays so');
is($c->query("SELECT baton.ack('$before')"), 'acked', 'a token from before settles: a physical copy cannot be told from the original');
is_sound($copy, 'q');

# ---- a copy that must not work
my $clone = copy('clone', "pg_baton.claims = off\n");
$c = session($clone);
is($c->query("SELECT count(*) FROM baton.claim('q', 'clone', 10)"), 0, 'pg_baton.claims = off: nothing is handed out');
is($c->query("SELECT baton.why_empty('q')"), 'disabled', 'and why_empty says so');
$clone->append_conf('postgresql.conf', 'pg_baton.enabled = off');
$clone->reload;
ok(wait_until(sub { $c->try("SELECT baton.start('$before')")->state eq '55000' }, 'the switch'), 'pg_baton.enabled = off: no verb works');
$clone->append_conf('postgresql.conf', "pg_baton.enabled = on\npg_baton.claims = on");
$clone->reload;
ok(wait_until(sub { $c->try("SELECT baton.fence('q')")->ok }, 'the switch'), 'fence');
is($c->query("SELECT outcome FROM baton.settle(ARRAY['$before'], '{ack}')"), 'stale_epoch', 'kills every token at once');
is($c->query("SELECT count(*) FROM baton.take('q', 10)"), 6, 'and everything is handed out');
is_sound($clone, 'q');
done_testing();
