# A streaming standby: its pages are the primary's, byte for byte; verbs refuse there and views answer; after promotion
# the tokens of claims it has seen work, those it never saw do not, and the workers start by themselves.
use strict;
use warnings;
use BatonLoad;
use BatonPages;
use BatonTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# wal_consistency_checking adds an image of each page to each record, and the standby compares its own result with it: a
# record put together by hand that replays to something else stops the standby.
my $primary = new_node(
	'primary',
	streaming => 1,
	conf => q{
wal_consistency_checking = 'generic'
max_wal_size = 256MB
checkpoint_timeout = 1h
pg_baton.rotate_min_interval = 100ms
pg_baton.rotate_grace = 200ms
pg_baton.retention_naptime = 100ms
});
BatonLoad::make_tables($primary);
$primary->safe_psql('postgres', "SELECT baton.create_queue('before', max_attempts => 3)");
my $standby = standby_of($primary, 'standby', conf => "wal_consistency_checking = 'generic'\nhot_standby_feedback = off\n");
my $p = session($primary);
my $q = sub { return $p->query($_[0]) };

# ---- everything that writes to a map or a segment, in every form
$q->("SELECT baton.create_queue('q', segment_bytes => 65536, max_attempts => 1000)");
$q->("SELECT baton.create_queue('lost', durability => 'volatile')");
$q->("SELECT baton.create_queue('copied', replicable => true)");
$q->("SELECT baton.create_queue('timer')");
$q->("SELECT id FROM baton.enqueue('copied', '1')");
my $load = BatonLoad->start($primary, queue => 'q', producers => 2, workers => 2, takers => 1, padding => 1000);
$load->wait_for(acked => 300);
$q->("SELECT baton_internal.sweep('q')");
$load->stop;
BatonLoad::drain($primary, 'q');
# Time passes and the drained segments are reclaimed, then there is more.
$primary->append_conf('postgresql.conf', "pg_baton.clock_offset = '5h'");
$primary->reload;
wait_until(sub { $q->("SELECT max(epoch) - min(epoch) > 2 FROM baton.segments WHERE queue = 'q'") eq 't' }, 'a segment to be reclaimed');
$load = BatonLoad->start($primary, queue => 'q', producers => 1, workers => 1, padding => 5000);
$load->wait_for(acked => 50);
$load->stop;
$q->(
	q{SELECT count(*) FROM baton.enqueue_batch('before', (SELECT array_agg(to_jsonb(repeat(md5(n::text), 400))) FROM generate_series(1, 20) n),
	     message_ids => (SELECT array_agg('m' || n) FROM generate_series(1, 20) n), routing_keys => '{key}', headers => '{"{}"}', delays => '{0 s}')});
$q->("SELECT id FROM baton.enqueue('before', '{\"later\": true}', routing_key => 'k', delay => '1 h', expires_at => clock_timestamp() + '1 d')");
my @tokens = split /\n/, $q->("SELECT token FROM baton.claim('before', 'worker', 12)");
$q->("SELECT baton.start('$tokens[0]')");
$q->("SELECT baton.extend('$tokens[0]', '5 min')");
$q->("SELECT state FROM baton.release('$tokens[1]', delay => '3 s', reason => 'busy', error => '{\"code\": 5}')");
$q->("SELECT state FROM baton.release('$tokens[2]', delay => '0 s', failed => false)");
$q->("SELECT baton.quarantine('$tokens[3]', 'odd')");
$q->("SELECT outcome FROM baton.hand_back(ARRAY['$tokens[4]'])");
$q->("SELECT outcome FROM baton.settle(ARRAY['$tokens[5]','$tokens[6]'], '{ack,release}')");
$q->("SELECT outcome FROM baton.settle_and_claim('before', ARRAY['$tokens[7]'])");
$p->try($_) for 'BEGIN', "SELECT id FROM baton.claim('before')", 'ROLLBACK';
$p->try($_) for 'BEGIN', "SELECT id FROM baton.take('before')", "SELECT baton.ack('$tokens[8]')", 'ROLLBACK';
$p->try($_) for 'BEGIN', "SELECT id FROM baton.enqueue('before', '1')", 'SAVEPOINT s', "SELECT baton.ack('$tokens[8]')", 'ROLLBACK TO s', 'COMMIT';
$p->try($_) for 'BEGIN', "SELECT id FROM baton.enqueue('before', '1')", "PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'";
$q->("DELETE FROM baton_data.q1_0 WHERE id IN (SELECT id FROM baton_data.q1_0 ORDER BY id DESC LIMIT 1)");
# VACUUM clears its slot as soon as no snapshot, of a worker for one, can see the row any more.
wait_until(sub { $q->('VACUUM baton_data.q1_0'); $q->("SELECT count(*) FROM baton_internal.map_slots('baton_data.q1_0') WHERE kind = 'purged'") == 1 }, 'VACUUM to clear the slot');
$q->("SELECT baton_internal.sweep('before')");
is($q->("SELECT baton.fence('copied')"), 0, 'fence with nothing claimed');
my $epoch = $q->("SELECT epoch FROM baton_internal.map_meta('baton_data.q1_1')");
$q->('REINDEX INDEX baton_data.q1_1_map');
cmp_ok($q->("SELECT epoch FROM baton_internal.map_meta('baton_data.q1_1')"), '>', $epoch, 'a rebuilt map has a later epoch');
is_sound($primary, $_) for qw(before q copied);
wait_until(sub { $q->('SELECT count(*) FROM baton_internal.worker_name') > 2 }, 'names of workers to be saved');

# ---- the pages
$primary->append_conf('postgresql.conf', "pg_baton.enabled = off");
$primary->reload;    # the workers stand still: nothing is written between the two checkpoints
wait_until(sub { $q->("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton' AND xact_start IS NOT NULL") == 0 }, 'the workers to stand still');
$q->('CHECKPOINT');
catch_up($primary, $standby);
$standby->safe_psql('postgres', 'CHECKPOINT');
my %kind = map { split /\|/ } split /\n/, $q->(
	q{SELECT c.oid::regclass, CASE WHEN a.amname = 'baton_lease' THEN 'map' ELSE 'heap' END
	  FROM pg_class c JOIN pg_am a ON a.oid = c.relam
	  WHERE c.relpersistence = 'p' AND a.amname IN ('baton_lease', 'heap')
	    AND (c.relnamespace = 'baton_data'::regnamespace OR c.relnamespace = 'baton_internal'::regnamespace
	         OR c.oid IN (SELECT reltoastrelid FROM pg_class WHERE relnamespace = 'baton_data'::regnamespace))});
my (%pages, @different);
for my $relation (sort keys %kind)
{
	my ($n, @d) = BatonPages::compare($primary, $standby, $relation, $kind{$relation});
	$pages{ $kind{$relation} } += $n;
	push @different, @d;
}
is("@different", '', 'every page of the primary is the same on the standby');
cmp_ok($pages{map}, '>', 12, "pages of maps ($pages{map})");
cmp_ok($pages{heap}, '>', 30, "pages of segments ($pages{heap})");
# A standby that met a difference would have stopped.
is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'the standby has found no inconsistent page');
unlike(slurp_file($standby->logfile), qr/inconsistent page|FATAL/, 'nor says anything of it in its log');
$primary->append_conf('postgresql.conf', "pg_baton.enabled = on\npg_baton.clock_offset = 0");
$primary->reload;
wait_until(sub { $q->('SHOW pg_baton.enabled') eq 'on' }, 'the switch');

# ---- verbs refuse, views answer
my $s = session($standby);
my $token = $tokens[9];
refused_with($s, $_->[1], '25006', "on a standby: $_->[0]")
  for (
	[ enqueue => "SELECT id FROM baton.enqueue('before', '1')" ],
	[ enqueue_bytes => "SELECT id FROM baton.enqueue_bytes('before', '\\x01')" ],
	[ enqueue_batch => "SELECT id FROM baton.enqueue_batch('before', '{1}')" ],
	[ enqueue_batch_bytes => "SELECT id FROM baton.enqueue_batch_bytes('before', ARRAY['\\x01'::bytea])" ],
	[ INSERT => "INSERT INTO baton_queue.before (payload) VALUES ('1')" ],
	[ claim => "SELECT id FROM baton.claim('before')" ],
	[ take => "SELECT id FROM baton.take('before')" ],
	[ wait => "CALL baton.wait('before')" ],
	[ wait_any => "CALL baton.wait_any('{before}')" ],
	[ why_empty => "SELECT baton.why_empty('before')" ],
	[ start => "SELECT baton.start('$token')" ],
	[ extend => "SELECT baton.extend('$token')" ],
	[ extend_batch => "SELECT outcome FROM baton.extend_batch(ARRAY['$token'])" ],
	[ ack => "SELECT baton.ack('$token')" ],
	[ ack_batch => "SELECT baton.ack_batch(ARRAY['$token'])" ],
	[ release => "SELECT state FROM baton.release('$token')" ],
	[ hand_back => "SELECT outcome FROM baton.hand_back(ARRAY['$token'])" ],
	[ quarantine => "SELECT baton.quarantine('$token')" ],
	[ settle => "SELECT outcome FROM baton.settle(ARRAY['$token'], '{ack}')" ],
	[ settle_and_claim => "SELECT outcome FROM baton.settle_and_claim('before', ARRAY['$token'])" ],
	[ create_queue => "SELECT baton.create_queue('other')" ],
	[ alter_queue => "SELECT baton.alter_queue('before', max_attempts => 2)" ],
	[ drop_queue => "SELECT baton.drop_queue('before', discard => true)" ],
	[ fence => "SELECT baton.fence('before')" ],
	[ adopt => "SELECT baton.adopt('before')" ],
	[ activate => "SELECT baton.activate('before')" ],
	[ pause => "SELECT baton.pause('before')" ],
	[ resume => "SELECT baton.resume('before')" ],
	[ maintain => "CALL baton.maintain()" ],
	[ sweep => "SELECT baton_internal.sweep('before')" ],
	[ rotate => "SELECT baton_internal.rotate('before')" ]);
catch_up($primary, $standby);
for my $look (
	'SELECT name, state, durability, segments FROM baton.queues',
	'SELECT queue, ready, scheduled, claimed, settling, quarantined FROM baton.queue_stats',
	'SELECT queue, id, state, worker, generation, failures FROM baton.in_flight ORDER BY 1, 2',
	'SELECT queue, segment, state, unsettled, settled, open_seq, epoch FROM baton.segments',
	'SELECT id, state, generation, failures, worker, lease_until, md5(payload::text) FROM baton_queue.before ORDER BY id',
	"SELECT * FROM baton.quarantined('before')", "SELECT * FROM baton.evidence('before', 2)",
	"SELECT * FROM baton.describe_queue('before')", "SELECT baton.backlog('before')", "SELECT obstacle FROM baton.explain_message('before', 1)")
{
	# The volatile queue has no content on a standby, and must not keep the others from being seen.
	my $where = $look =~ /FROM baton\.(queues|queue_stats|in_flight|segments)\b/ ? ($1 eq 'queues' ? "name <> 'lost'" : "queue <> 'lost'") : '';
	my ($mine, $theirs) = map { $_->try($where ? "SELECT * FROM ($look) v WHERE $where" : $look) } $p, $s;
	is($theirs->state . $theirs->rows, $mine->state . $mine->rows, "on a standby: $look") or diag($theirs->message);
}
is($s->query('SELECT count(*) > 5 FROM baton.health'), 't', 'on a standby: health');
is($s->query("SELECT * FROM baton.check('before')"), '', 'on a standby: check');
is($s->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton'"), 0, 'on a standby: no workers');

# Hints that a look makes on a standby must not be there after the promotion: replay goes on without telling them.
$q->("SELECT id FROM baton.enqueue('timer', '1')");
catch_up($primary, $standby);
is($s->query("SELECT appended FROM baton.describe_queue('timer') o, baton_internal.lane_hints(('baton_data.q' || o.value || '_0')::regclass) WHERE o.option = 'id'"),
	1, 'on a standby: hints of a lane');
$q->("SELECT id FROM baton.enqueue('timer', '2')");

# ---- promotion
$q->("SELECT id FROM baton.enqueue_batch('before', array_fill('7'::jsonb, ARRAY[5]), message_ids => '{p}')");
my ($seen, $seen_id) = split /\|/, $q->("SELECT token, id FROM baton.claim('before', 'w', lease => '10 min')");
$p->query('BEGIN');
my ($open, $open_id) = split /\|/, $q->("SELECT token, id FROM baton.claim('before', 'w', lease => '10 min')");
$q->("SELECT baton.ack('$open')");    # a settlement that the failover cuts off
catch_up($primary, $standby);
my $p2 = session($primary);
$p2->query("SELECT id FROM baton.enqueue('timer', '8', delay => '1 h')");
catch_up($primary, $standby);
$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
$standby->reload;
wait_until(sub { $p2->query('SELECT count(*) FROM pg_stat_replication') == 0 }, 'the standby to be cut off');
my ($unseen, $unseen_id, $unseen_generation) = split /\|/, $p2->query("SELECT token, id, generation FROM baton.claim('before', 'w', lease => '10 min')");
my $acked_after = $p2->query("SELECT baton.ack('$seen')");
kill_server($primary);
$standby->promote;

my $n = session($standby);
my $w = session($standby, name => 'waiter');
is($n->query("SELECT outcome FROM baton.settle(ARRAY['$unseen'], '{ack}')"), 'stale_generation', 'promoted: the token of a claim that was lost is refused');
my %again = map { my ($i, $g) = split /\|/; ($i => $g) } split /\n/, $n->query("SELECT id, generation FROM baton.claim('before', 'new', 100, '10 min')");
is($again{$unseen_id}, $unseen_generation, 'promoted: its message is handed out, under the same number');
is($n->query("SELECT outcome FROM baton.settle(ARRAY['$unseen'], '{ack}')"), 'stale_generation', 'promoted: and the lost token does not match it');
ok(!exists $again{$seen_id}, 'promoted: a replicated claim holds its message');
is($n->query("SELECT baton.ack('$seen')"), 'acked', 'promoted: and its token settles (the ack on the old primary was lost)');
ok(!exists $again{$open_id}, 'promoted: a claim whose settlement was cut off holds its message');
is($n->query("SELECT baton.ack('$open')"), 'acked', 'promoted: and its token settles');
ok(wait_until(sub { $n->query("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'baton' AND datname = 'postgres'") == 2 }, 'the workers'),
	'promoted: mover and retention start by themselves');
is($n->query("SELECT count(*) FROM baton.take('timer', 10)"), 2, 'promoted: what is ready of a queue that was looked at before');
$w->send("CALL baton.wait('timer', '5 min')");
ok(wait_until(sub { $n->query("SELECT waiting FROM baton.queue_stats WHERE queue = 'timer'") == 1 }, 'the waiter'), 'promoted: one waits for what is due later');
$standby->append_conf('postgresql.conf', "pg_baton.clock_offset = '2h'");
$standby->reload;
is($w->answer->rows, 'ready', 'promoted: and is woken when it is due');
$n->query("SELECT baton.ack_batch((SELECT array_agg(token) FROM baton.claim('before', 'new', 100)))");
is($n->query("SELECT id FROM baton.enqueue('lost', '1')"), 1, 'promoted: the volatile queue is empty and works');
is($n->query("SELECT id FROM baton.take('lost')"), 1, 'promoted: and hands out');
is_sound($standby, $_, "promoted: check('$_') finds nothing") for qw(before q copied timer lost);
done_testing();
