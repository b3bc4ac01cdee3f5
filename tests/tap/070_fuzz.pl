# Random tokens, envelopes and arguments, several thousand. The server stays up, refuses with a typed error, and leaves
# everything as it was. BATON_SEED=n repeats a run.
use strict;
use warnings;
use BatonTest;
use BatonToken;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{BATON_SEED} // (time() ^ $$);
srand($seed);
note "BATON_SEED=$seed";
my $node = new_node('fuzz', conf => "log_statement = none\nlog_min_messages = fatal\npg_baton.settle_timeout = 10ms\n");
my $s = session($node);
sub any { return $_[ rand @_ ] }
sub quote { my ($x) = @_; $x =~ s/'/''/g; return "'$x'" }

# what a statement comes to: its SQLSTATE, and its rows if it has worked; undone where it has not
$s->query(
	q{CREATE FUNCTION attempt(sql text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE
	    r text;
	BEGIN
	    EXECUTE 'SELECT string_agg(t::text, E'' '') FROM (' || sql || ') t' INTO r;
	    RETURN 'ok ' || coalesce(r, '');
	EXCEPTION WHEN OTHERS THEN
	    RETURN SQLSTATE || ' ' || SQLERRM;
	END $$});
$s->query("SELECT baton.create_queue('q', max_attempts => 1000, backoff => '0 s', max_payload_bytes => 10000, max_headers_bytes => 1000)");
$s->query("SELECT baton.create_queue('other')");
$s->query("SELECT count(*) FROM baton.enqueue_batch('$_', array_fill('1'::jsonb, ARRAY[300]))") for 'q', 'other';

# attempts(SQL, ...): the answers, many at a time
sub attempts
{
	my (@sql) = @_;
	my @answers;
	while (my @some = splice @sql, 0, 250)
	{
		my $list = join ', ', map { my $n = $_; '(' . $n . ', ' . quote($some[$n]) . ')' } 0 .. $#some;
		my $rows = $s->query("SELECT replace(left(attempt(q), 300), E'\\n', ' ') FROM (VALUES $list) v (n, q) ORDER BY n");
		push @answers, split /\n/, $rows, -1;
	}
	return @answers;
}

# ---- tokens
my @tokens = split /\n/, $s->query("SELECT token FROM baton.claim('q', 'w', 20, '1 h')");
my $state = q{SELECT md5(string_agg(concat_ws(',', id, resolved, generation, failures, deadline, started_at), ' ' ORDER BY block, idx)) FROM baton_internal.map_slots('baton_data.q1_0')};
my $before = $s->query($state);
my $key = BatonToken::key($node, 'postgres');
is(BatonToken::seal($key, BatonToken::open($tokens[0])), $tokens[0], 'the test seals tokens as the server does');

my @chars = ('A' .. 'Z', 'a' .. 'z', '0' .. '9', '-', '_');
my @mutations = (
	sub { my ($t) = @_; substr($t, rand length $t, 1) = any(@chars); $t },
	sub { my ($t) = @_; substr($t, rand length $t, 1) = any(' ', '=', '+', '/', "'", '\\', '%s', 'é', '€', "\t"); $t },
	sub { my ($t) = @_; substr($t, rand length $t, int rand 20) = ''; $t },
	sub { my ($t) = @_; substr($t, rand length $t, 0) = join '', map { any(@chars) } 1 .. rand 40; $t },
	sub { my ($t) = @_; my $u = any(@tokens); my $n = rand length $t; substr($t, 0, $n) . substr($u, $n) },
	sub { join '', map { any(@chars) } 1 .. 86 },
	sub { 'b1' . join '', map { any(@chars) } 1 .. 84 },
	sub { any('', 'b1', 'b1' . 'A' x 84, 'b1' . '_' x 84, 'A' x 100000, "\x{1}", '0', 'null', '{}') },
	sub { my ($t) = @_; uc $t });
my %valid = map { $_ => 1 } @tokens;
my @mutants = grep { !$valid{$_} } map { any(@mutations)->(any(@tokens)) } 1 .. 3000;
utf8::encode($_), utf8::decode($_) for @mutants;
my %outcome;
my @left = @mutants;
while (my @some = splice @left, 0, 500)
{
	my $list = join ', ', map { quote($_) } @some;
	$outcome{$_}++ for split /\n/, $s->query("SELECT outcome FROM baton.settle(ARRAY[$list], ARRAY['" . any(qw(ack release release_unfailed quarantine)) . "'], '{0 s}')");
	$outcome{$_}++ for split /\n/, $s->query("SELECT outcome FROM baton.hand_back(ARRAY[$list])");
	$outcome{$_}++ for split /\n/, $s->query("SELECT outcome FROM baton.extend_batch(ARRAY[$list], '30 s')");
}
is(join(' ', sort keys %outcome), 'invalid_token', scalar(@mutants) . ' mutated tokens, in array forms');
my %answers;
$answers{ substr $_, 0, 5 }++
  for attempts(map { my $t = quote($_); any("SELECT baton.ack($t)", "SELECT baton.start($t)", "SELECT baton.extend($t)", "SELECT baton.quarantine($t, 'x')",
		"SELECT state FROM baton.release($t)", "SELECT baton.ack_batch(ARRAY[$t, " . quote(any(@tokens)) . "])", "SELECT token FROM baton.settle_and_claim('other', ARRAY[$t], lease => '1 s') WHERE outcome <> 'invalid_token'") } @mutants[ 0 .. 1499 ]);
is(join(' ', sort grep { $_ !~ /^ok/ } keys %answers), 'QB004', 'single forms');
is($s->query($state), $before, 'no message has changed');
my $a = $s->try("SELECT outcome FROM baton.settle(ARRAY[NULL, '', '$tokens[0]']::text[], '{release_unfailed}', '{1 h}')");
like($a->rows . $a->state, qr/invalid_token\ninvalid_token\nscheduled|22023|22004/, 'nulls among tokens');

# tokens with the right tag and wrong fields: the code behind the tag
my %deciding = map { $_ => 1 } qw(database queue incarnation segment epoch block index id nonce);
my @sealed;
for (1 .. 2500)
{
	my $f = BatonToken::open(any(@tokens[ 1 .. 19 ]));
	my @changed = map { any(@BatonToken::fields) } 1 .. 1 + int rand 3;
	for my $field (@changed)
	{
		my $old = $f->{$field};
		$f->{$field} = any(0, 1, 2, 3, $old + 1, $old - 1, 125, 126, 127, 128, 254, 255, 256, 65535, 0x7fffffff, 0xffffffff, 0xfffffffe, 1 << 40, int rand(1 << 31), ($old ^ (1 << int rand 32)));
		$f->{$field} = $old + 1 if $f->{$field} == $old;
	}
	my $text = BatonToken::seal($key, $f);
	# fields that were cut to their width may have become what they were
	my $g = BatonToken::open($text);
	my ($as_it_was) = grep { my $t = BatonToken::open($_); !grep { $deciding{$_} && $t->{$_} != $g->{$_} } @BatonToken::fields } @tokens;
	push @sealed, $text unless $as_it_was;
}
%outcome = ();
@left = @sealed;
while (my @some = splice @left, 0, 500)
{
	my $list = join ', ', map { quote($_) } @some;
	$outcome{$_}++ for split /\n/, $s->query("SELECT outcome FROM baton.settle(ARRAY[$list], '{ack}')");
	$outcome{$_}++ for split /\n/, $s->query("SELECT outcome FROM baton.extend_batch(ARRAY[$list])");
}
is(join(' ', grep { !/^(invalid_token|stale_epoch|stale_generation|already_settled)$/ } sort keys %outcome), '', scalar(@sealed) . ' tokens with a right tag and wrong fields are refused')
  or diag(join ' ', %outcome);
cmp_ok($outcome{stale_epoch} // 0, '>', 100, '(some of them reached the map)');
cmp_ok($outcome{stale_generation} // 0, '>', 20, '(and slots)');
%answers = ();
$answers{ substr $_, 0, 5 }++ for attempts(map { my $t = quote($_); any("SELECT baton.ack($t)", "SELECT baton.start($t)", "SELECT state FROM baton.release($t, '1 s')") } @sealed[ 0 .. 999 ]);
is(join(' ', grep { !/^QB00[1348]$/ } sort keys %answers), '', 'in single forms too');

# the same token many times in one call
is($s->query("SELECT string_agg(DISTINCT outcome || ':' || n, ' ' ORDER BY outcome || ':' || n) FROM (SELECT outcome, count(*) n FROM baton.settle(array_fill('$tokens[1]'::text, ARRAY[5000]), '{ack}') GROUP BY 1) o"),
	'acked:1 already_settled:4999', 'one token five thousand times in one call settles once');
is_sound($node, 'q');

# ---- envelopes
my @text = ("''", "'a'", "repeat('x', 255)", "repeat('x', 256)", "repeat('é', 200)", "repeat('x', 3000)", 'NULL', "E'\\t\\n'", "'😀'", "'\"\\\\'", "repeat('x', 100000)");
my @json = (
	"'{}'", "'null'", "'[]'", "'\"\"'", "'1e1000'", "'-0'", "'{\"a\": {\"b\": [1, 2, {\"c\": null}]}}'", "to_jsonb(repeat('x', 9000))", "to_jsonb(repeat('x', 10001))",
	'NULL', "to_jsonb(repeat('é', 6000))", "'{\"a\": \"\\u0000\"}'", "'{'", "''", "('[' || repeat('[', 6000) || repeat(']', 6000) || ']')::jsonb",
	"(SELECT jsonb_object_agg(n, n) FROM generate_series(1, 500) n)");
my @interval = ("'0 s'", "'1 s'", "'-1 s'", "'1 month'", "'1000000 days'", "'178000000 years'", "'2147483647 days'", "'-2147483648 days'", 'NULL', "'1 us'", "'30 days'", "'31 days'", "'00:00:00.0000001'", "''", "'x'");
my @time = ("'infinity'", "'-infinity'", "clock_timestamp() + '1 h'", "clock_timestamp() - '1 h'", "'294276-12-31'", "'4713-01-01 BC'", 'NULL', "clock_timestamp() + '29 days'", "'epoch'", "'x'");
my @int = (-2147483648, -1, 0, 1, 2, 5, 10, 11, 100000, 2147483647, 'NULL', "'x'", "'1.5'");
my %parameter = (
	message_id => \@text, routing_key => \@text, message_class => \@text, payload_ref => \@text, priority => \@int, headers => \@json, delay => \@interval,
	not_before => \@time, expires_at => \@time);
my @queues = ("'q'", "'q'", "'q'", "'q'", "'other'", "'no such queue'", "''", 'NULL', "repeat('q', 64)", "'Q'", "'q; DROP TABLE x'", "'q '");
my $arguments = sub {
	return join '', map { ", $_ => " . any(@{ $parameter{$_} }) } grep { rand() < 0.25 } keys %parameter;
};
my $arrays = sub {
	my %of = (message_ids => 'text', routing_keys => 'text', message_classes => 'text', payload_refs => 'text', priorities => 'integer', headers => 'jsonb',
		delays => 'interval', not_befores => 'timestamptz', expires_ats => 'timestamptz');
	my %from = (text => \@text, integer => \@int, jsonb => \@json, interval => \@interval, timestamptz => \@time);
	return join '', map {
		my $type = $of{$_};
		my $form = rand();
		", $_ => " . ($form < 0.1 ? 'NULL' : $form < 0.15 ? "'{}'" : $form < 0.2 ? "ARRAY[ARRAY[NULL], ARRAY[NULL]]::${type}[]" : 'ARRAY[' . join(', ', map { any(@{ $from{$type} }) } 1 .. any(1, 1, 2, 3, 4)) . "]::${type}[]")
	} grep { rand() < 0.2 } keys %of;
};
my @enqueues = map {
	my $q = any(@queues);
	my $form = rand();
	$form < 0.5 ? "SELECT id, state FROM baton.enqueue($q, " . any(@json) . $arguments->() . ')'
	: $form < 0.6 ? "SELECT id, state FROM baton.enqueue_bytes($q, " . any("''", "'\\x00'", 'NULL', "decode(repeat('ff', 9999), 'hex')", "decode(repeat('ff', 10001), 'hex')") . $arguments->() . ')'
	: $form < 0.9 ? "SELECT ord, id FROM baton.enqueue_batch($q, " . any("'{}'", 'NULL', "'{1,2,3}'", "'{1,NULL,3}'", "'{{1,2},{3,4}}'", 'ARRAY[' . any(@json) . ", '2', '3']::jsonb[]") . $arrays->() . ')'
	: "SELECT ord, id FROM baton.enqueue_batch_bytes($q, ARRAY['a', " . any("'b'", 'NULL', "decode(repeat('ff', 10001), 'hex')") . ", 'c']::bytea[]" . $arrays->() . ')'
} 1 .. 3000;
my $count = $s->query("SELECT count(*) FROM baton_queue.q");
my @said = attempts(@enqueues);
is(scalar(@said), scalar(@enqueues), scalar(@enqueues) . ' enqueues have been answered');
# invalid values and their kinds, limits, unsupported, no such queue; never an internal error
my $typed = qr/^(?:ok|22\w{3}|0A000|42704|53400|54\w{3}|23502|42804) /;
my @untyped = grep { $said[$_] !~ $typed } 0 .. $#said;
is(scalar(@untyped), 0, 'each with success or a typed error') or diag(map { "$enqueues[$_]\n  $said[$_]\n" } @untyped[ 0 .. ($#untyped > 5 ? 5 : $#untyped) ]);
my $worked = grep { /^ok \(/ } @said;
cmp_ok($worked, '>', 100, "$worked of them worked");
my $into_q = 0;
for my $n (0 .. $#said) { $into_q += () = $said[$n] =~ /\(\d+,/g if $said[$n] =~ /^ok/ && $enqueues[$n] =~ /^SELECT \w+, \w+ FROM baton\.\w+\('q',/; }
is($s->query("SELECT count(*) FROM baton_queue.q") - $count, $into_q, 'those that failed left nothing');
is_sound($node, $_) for 'q', 'other';

# ---- the other arguments
my @calls = map {
	my $q = any(@queues);
	my $worker = any('NULL', @text);
	any(
		"SELECT id FROM baton.claim($q, $worker, " . any(@int, 1, 1, 1) . ', ' . any(@interval, "'1 h'", "'1 h'") . ', ' . any('NULL', 'NULL', "'{}'", "'{a,NULL}'", "'{{a,b}}'") . ', ' . any('NULL', 'NULL', @int) . ')',
		"SELECT id FROM baton.take($q, " . any(@int, 1, 1, 1) . ", $worker)",
		"SELECT outcome FROM baton.settle(ARRAY[" . join(',', map { quote(any(@tokens, any(@mutants))) } 1 .. any(1, 2, 3)) . '], ARRAY[' . join(',', map { any(map { "'$_'" } qw(release_unfailed ack nonsense), '') } 1 .. any(1, 2, 3)) . ']::text[], ARRAY[' . any(@interval) . ']::interval[], ARRAY[' . any(@text) . '])',
		'SELECT state FROM baton.release(' . quote(any(@tokens)) . ', ' . any(@interval) . ', ' . any(@text) . ', ' . any('true', 'false', 'NULL') . ', ' . any(@json) . ')',
		'SELECT baton.extend(' . quote(any(@tokens)) . ', ' . any(@interval) . ')',
		'SELECT baton.quarantine(' . quote(any(@mutants)) . ', ' . any(@text) . ', ' . any(@json) . ')',
		"SELECT baton.why_empty($q, $worker)", "SELECT baton.backlog($q)", "SELECT problem FROM baton.check($q)", "SELECT obstacle FROM baton.explain_message($q, " . any(@int) . ')',
		"SELECT option FROM baton.describe_queue($q)", "SELECT id FROM baton.quarantined($q)", "SELECT at FROM baton.evidence($q, " . any(@int) . ')',
		"SELECT baton.create_queue(" . any("''", 'NULL', "repeat('x', 64)", "repeat('é', 32)", "'q'", 'NULL::text') . ', lease => ' . any(@interval) . ', max_attempts => ' . any(@int) . ', segments => ' . any(@int) . ')',
		"SELECT baton.alter_queue($q, lease => " . any(@interval) . ', backoff => ' . any("'-1 s'", "'1 month'", "'x'") . ', max_attempts => ' . any(@int) . ')',
		"SELECT baton.help(" . any(@text) . ')', "SELECT baton.adopt($q)", "SELECT baton.activate($q)", "SELECT baton.drop_queue(" . any("'no such queue'", "''", 'NULL') . ', ' . any('true', 'false', 'NULL') . ')')
} 1 .. 2500;
my @answered = attempts(@calls);
$typed = qr/^(?:ok|22\w{3}|0A000|42704|42710|53400|54\w{3}|23502|42804|42883|55000|55P03|QB00\d|42P01) /;
@untyped = grep { $answered[$_] !~ $typed } 0 .. $#answered;
is(scalar(@untyped), 0, scalar(@calls) . ' calls of other functions: success or a typed error')
  or diag(map { "$calls[$_]\n  $answered[$_]\n" } @untyped[ 0 .. ($#untyped > 5 ? 5 : $#untyped) ]);
is_sound($node, $_) for 'q', 'other';
# ---- a function in the select list is expanded for each of its columns: it must be called once all the same
my $last = $s->query("SELECT max(id) FROM baton_queue.q");
for ("SELECT (baton.enqueue('q', '1')).*", "SELECT (baton.enqueue_bytes('q', 'x')).*", "SELECT (baton.enqueue_batch('q', '{1}')).*", "SELECT (e).* FROM (SELECT baton.enqueue('q', '1') e OFFSET 0) x")
{
	$s->query($_);
	is($s->query("SELECT count(*) FROM baton_queue.q WHERE id > $last"), 1, "$_ enqueues one message");
	$last = $s->query("SELECT max(id) FROM baton_queue.q");
}
my ($token, $failed) = split /\|/, $s->query("SELECT token, failures FROM baton.claim('q', 'w', lease => '1 h')");
my ($failures) = $s->query("SELECT (baton.release('$token', '1 h')).*") =~ /\|(\d+)$/;
is($failures, $failed + 1, 'a release in the select list counts one failure');
is($s->query("SELECT count(*) FROM (SELECT (baton.settle(ARRAY['$token'], '{ack}')).*) x"), 1, 'settle too is called once');

is(server_crashes($node), 0, 'the server is up and nothing has crashed');
is($s->query('SELECT 1'), 1, 'and the session is the same');
diag("BATON_SEED=$seed") unless Test::More->builder->is_passing;
done_testing();
