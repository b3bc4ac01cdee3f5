# ALTER EXTENSION UPDATE from each earlier version, under the new library: before it everything works as it did, the
# update loses neither a message nor a claim, and what it leaves is the same as a fresh install, object by object.
use strict;
use warnings;
use BatonTest;
use File::Copy 'copy';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @earlier = map { m{--([\d.]+)\.sql$} } sort glob "$ENV{TESTDIR}/tests/upgrade/pg_baton--*.sql";
my $node = new_node('update', extension => 0);
my $scripts = extension_folder($node);
plan skip_all => 'this PostgreSQL loads no staged extension' unless defined $scripts;
for (@earlier)
{
	copy("$ENV{TESTDIR}/tests/upgrade/pg_baton--$_.sql", $scripts) or die "$scripts: $!";
}
my $objects = slurp_file("$ENV{TESTDIR}/tests/upgrade/objects.sql");
my $current = $node->safe_psql('postgres', "SELECT default_version FROM pg_available_extensions WHERE name = 'pg_baton'");

# make_queues(SESSION): every kind of queue, the last by somebody else
sub make_queues
{
	my ($s) = @_;
	$s->query("SELECT baton.create_queue('q', backoff => '0 s', max_attempts => 3)");
	$s->query("SELECT baton.create_queue('published', replicable => true)");
	$s->query("SELECT baton.create_queue('kept lightly', durability => 'volatile')");
	$s->query('GRANT CREATE ON SCHEMA baton_queue TO shop');
	$s->query('SET SESSION AUTHORIZATION shop');
	$s->query("SELECT baton.create_queue('mine', lease => '45 s')");
	$s->query('RESET SESSION AUTHORIZATION');
	return;
}

# same(GOT, EXPECTED, NAME): a test on two lists of lines, which prints the lines that only one of them has
sub same
{
	my ($got, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%got, %expected);
	$got{$_}++ for @$got;
	$expected{$_}++ for @$expected;
	my @differences = sort { substr($a, 2) cmp substr($b, 2) }
	  ((map { "- $_" } grep { !$got{$_} } @$expected), (map { "+ $_" } grep { !$expected{$_} } @$got));
	ok(!@differences, $name) or diag(join "\n", "- only fresh, + only upgraded", @differences);
	return;
}

# objects(DATABASE): the facts of tests/upgrade/objects.sql, each of which may have several lines
sub objects
{
	my ($database) = @_;
	my $s = session($node, database => $database);
	my $facts = $s->query('SET search_path = pg_catalog; ' . $objects =~ s/SELECT line\n/SELECT line || '\x01'\n/r);
	return split /\x01\n?/, $facts;
}

$node->safe_psql('postgres', 'CREATE ROLE shop; CREATE DATABASE fresh');
my $f = session($node, database => 'fresh');
$f->query('CREATE EXTENSION pg_baton');
make_queues($f);
my @fresh = objects('fresh');
cmp_ok(scalar @fresh, '>', 300, 'the fresh database has been read');
isnt($earlier[0], undef, 'there are earlier versions');

for my $version (@earlier)
{
	my $database = "from_$version";
	$node->safe_psql('postgres', qq{CREATE DATABASE "$database"});
	my $s = session($node, database => $database);
	$s->query("CREATE EXTENSION pg_baton VERSION '$version'");
	make_queues($s);

	# ---- the earlier SQL under the new library
	like($s->query("SELECT detail FROM baton.health WHERE item = 'version'"), qr/ALTER EXTENSION pg_baton UPDATE/, "$version: health says what is to be done");
	ok( wait_until(sub { $s->query("SELECT count(*) FROM baton_internal.worker_status() w JOIN pg_database d ON d.oid = w.database AND d.datname = current_database() WHERE w.last_success IS NOT NULL") >= 2 },
			'workers'),
		"$version: the workers work");
	$s->query("SELECT count(*) FROM baton.enqueue_batch('q', (SELECT array_agg(to_jsonb(n)) FROM generate_series(1, 40) n))");
	$s->query(q{INSERT INTO baton_queue.q (payload) VALUES ('41')});
	$s->query("SELECT id FROM baton.enqueue_bytes('q', '\\x2a')");
	$s->query("SELECT count(*) FROM baton.enqueue_batch('q', array_fill('\"later\"'::jsonb, ARRAY[3]), delays => '{1 h}')");
	$s->query("SELECT count(*) FROM baton.enqueue_batch('$_', array_fill('1'::jsonb, ARRAY[3]))") for 'published', 'kept lightly', 'mine';
	my @token = split /\n/, $s->query("SELECT token FROM baton.claim('q', 'w', 12, '10 min')");
	is($s->query("SELECT baton.ack('$token[0]')"), 'acked', "$version: ack");
	is($s->query("SELECT baton.quarantine('$token[1]', 'unreadable')"), 'quarantined', "$version: quarantine");
	is($s->query("SELECT state FROM baton.release('$token[2]', '0 s', 'busy')"), 'ready', "$version: release");
	is($s->query("SELECT state FROM baton.release('$token[3]', '2 h')"), 'scheduled', "$version: release for later");
	is($s->query("SELECT outcome FROM baton.hand_back(ARRAY['$token[4]'])"), 'handed_back', "$version: hand_back");
	is($s->try("SELECT baton.start('$token[5]')")->state, '00000', "$version: start");
	is($s->try("SELECT baton.extend('$token[5]', '20 min')")->state, '00000', "$version: extend");
	is($s->query("SELECT count(*) FROM baton.take('q', 2)"), 2, "$version: take");
	is($s->query("SELECT string_agg(coalesce(outcome, 'claimed'), ' ' ORDER BY outcome) FROM baton.settle_and_claim('q', ARRAY['$token[6]'], worker => 'w', lease => '10 min')"), 'acked claimed', "$version: settle_and_claim");
	is($s->query("CALL baton.wait('q', '5 s')"), 'ready', "$version: wait");
	is($s->try("CALL baton.maintain()")->state, '00000', "$version: maintain");
	is($s->query("SELECT baton.create_queue('short')"), 't', "$version: create_queue");
	is($s->try("SELECT baton.alter_queue('short', lease => '1 min')")->state, '00000', "$version: alter_queue");
	is($s->query("SELECT value FROM baton.describe_queue('short') WHERE option = 'lease'"), '00:01:00', "$version: describe_queue");
	is($s->query("SELECT baton.drop_queue('short')"), 't', "$version: drop_queue");
	is($s->try("TABLE baton.$_")->state, '00000', "$version: view $_") for split /\n/, $s->query("SELECT viewname FROM pg_views WHERE schemaname = 'baton'");
	is($s->query("SELECT count(*) FROM baton.health WHERE state = 'error'"), 0, "$version: health finds no error");
	is($s->try("SELECT * FROM baton.explain_message('q', 1)")->state, '00000', "$version: explain_message");
	is($s->query("SELECT * FROM baton.check('q')"), '', "$version: check finds nothing");

	# ---- a crash in the middle of the update: after some of its commands, and when all is done but the commit
	my $state = 'SELECT string_agg(concat_ws($$,$$, id, state, generation, failures), $$ $$ ORDER BY id) FROM baton_queue.q';
	my $before = $s->query($state);
	my $aside = $s->query("SELECT id, reason, generation FROM baton.quarantined('q')");
	$s->query(q{
		CREATE SEQUENCE command;
		CREATE FUNCTION stop_at() RETURNS event_trigger LANGUAGE plpgsql AS $f$
		BEGIN
			IF nextval('public.command') = current_setting('stop.at')::int THEN PERFORM pg_advisory_lock(47728, 2); END IF;
		END $f$;
		CREATE EVENT TRIGGER stop_at ON ddl_command_end EXECUTE FUNCTION stop_at()});
	for my $at (3, 40, 'commit')
	{
		my $holder = session($node, database => $database);
		my $updater = session($node, database => $database);
		$holder->query('SELECT pg_advisory_lock(47728, 2)');
		$updater->query("SET stop.at = '" . ($at eq 'commit' ? 0 : $at) . "'; SELECT setval('command', 1, false); BEGIN");
		$updater->send('ALTER EXTENSION pg_baton UPDATE');
		if ($at eq 'commit') { is($updater->answer->state, '00000', "$version: the update, not committed") }
		else
		{
			ok( wait_until(sub { $updater->ready || $holder->query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1 }, "command $at")
					&& !$updater->ready,
				"$version: the update, stopped after command $at");
		}
		$node->safe_psql('postgres', 'CHECKPOINT');    # so that all of it is on disk
		crash_and_start($node);
		$_->quit for $holder, $updater, $s;
		$s = session($node, database => $database);
		is($s->query("SELECT extversion FROM pg_extension WHERE extname = 'pg_baton'"), $version, "$version: after a crash there the version is the earlier one");
		is($s->query($state), $before, "$version: with all messages and their leases");
	}
	$s->query("SELECT count(*) FROM baton.enqueue_batch('kept lightly', array_fill('1'::jsonb, ARRAY[3]))");
	$s->query('DROP EVENT TRIGGER stop_at; DROP FUNCTION stop_at(); DROP SEQUENCE command');
	is($s->query("SELECT baton.ack('$token[7]')"), 'acked', "$version: and it works");
	$before = $s->query($state);
	$s->query('BEGIN');
	$s->query("CREATE OR REPLACE FUNCTION baton_internal.library_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN '0.0.9'");
	my $refused = refused_with($s, 'ALTER EXTENSION pg_baton UPDATE', 'QB009', "$version: no update under a library that is older");
	like($refused->message, qr/Restart the server/, "$version: and the hint says what to do");
	$s->query('ROLLBACK');

	$s->query('BEGIN');
	$s->query('ALTER TABLE baton_data.q2_1 RENAME TO elsewhere');
	is($s->try('ALTER EXTENSION pg_baton UPDATE')->state, '00000', "$version: a damaged queue is not in the way");
	$s->query('ROLLBACK');

	# ---- a dump of before, restored where the earlier version is not to be had
	my ($status, $dump, $err) = run_tool($node, 'pg_dump', '-d', $database);
	is($status, 0, "$version: pg_dump") or diag($err);
	append_to_file(my $file = "$PostgreSQL::Test::Utils::tmp_check/$version.sql", $dump);
	$node->safe_psql('postgres', qq{CREATE DATABASE "restored_$version"});
	($status, undef, $err) = run_tool($node, 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', "restored_$version");
	is($status, 0, "$version: it restores with the coming version") or diag($err);
	my $r = session($node, database => "restored_$version");
	is($r->query('SELECT baton.adopt()'), 4, "$version: the copy is adopted");
	same([ objects("restored_$version") ], \@fresh, "$version: restored equals fresh");
	is($r->query("SELECT string_agg(id::text, ' ' ORDER BY id) FROM baton_queue.q"), $s->query("SELECT string_agg(id::text, ' ' ORDER BY id) FROM baton_queue.q"),
		"$version: and has the messages");

	# ---- the update
	is($s->try('ALTER EXTENSION pg_baton UPDATE')->state, '00000', "$version: ALTER EXTENSION UPDATE");
	is($s->query($state), $before, "$version: every message is there with its lease");
	is($s->query("SELECT id, reason, generation FROM baton.quarantined('q')"), $aside, "$version: the quarantined one too");
	is($s->query("SELECT state FROM baton.health WHERE item = 'version'"), 'ok', "$version: health finds it in order");
	same([ objects($database) ], \@fresh, "$version: upgraded equals fresh");
	is($s->query("SELECT baton.ack('$token[8]')"), 'acked', "$version: a token from before settles");
	is($s->query("SELECT outcome FROM baton.settle(ARRAY['$token[5]'], ARRAY['ack'])"), 'acked', "$version: so does one that was started and extended");
	refused_with($s, "SELECT baton.ack('$token[0]')", 'QB003', "$version: what was settled before the update stays settled");
	is($s->query("SELECT baton.create_queue('new', if_not_exists => true)"), 't', "$version: a queue is made");
	# what is claimed comes back when its lease is over, what is scheduled when it is due
	$s->query("SET pg_baton.clock_offset = '3h'");
	my %seen;
	for my $queue ('q', 'published', 'kept lightly', 'mine')
	{
		my $n = $s->query("WITH m AS MATERIALIZED (SELECT id FROM baton.take('$queue', 1000)) SELECT count(*), count(DISTINCT id) FROM m");
		# put in, less acked (5), quarantined (1) and taken (2)
		my $owed = $queue eq 'q' ? 40 + 1 + 1 + 3 - 5 - 1 - 2 : 3;
		is($n, "$owed|$owed", "$version: all that was in $queue is handed out once");
	}
	$s->query('RESET pg_baton.clock_offset');
	is($s->query("SELECT count(*) FROM baton_queue.q"), 0, "$version: nothing is left");
	is($s->query("SELECT * FROM baton.check('$_')"), '', "$version: check finds nothing in $_") for 'q', 'published', 'kept lightly', 'mine';
}
done_testing();
