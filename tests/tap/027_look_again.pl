# Between look and fence a sweep writes down that an enqueue has committed: the slot is no longer what the claim looked
# at. The claim looks again and takes that message, not the one behind it.
use strict;
use warnings;
use BatonTest;
use Test::More;

my $node = new_node('look_again', conf => "pg_baton.workers = off\npg_baton.sweep_interval = '1h'\n");
$node->safe_psql('postgres', "SELECT baton.create_queue('q')");
$node->safe_psql('postgres', qq(SELECT id FROM baton.enqueue('q', '$_'))) for 1 .. 3;

my $gate = session($node);
$gate->query('SELECT pg_advisory_lock(47728, 1)');
my $claimer = session($node);
$claimer->query("SET pg_baton.debug_point = 'claim-looked:wait'");
$claimer->send("SELECT id FROM baton.claim('q')");
wait_until(
	sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") eq '1' },
	'the claimer has looked');
$node->safe_psql('postgres', "SELECT baton_internal.sweep('q')");
is($node->safe_psql('postgres', "SELECT state FROM baton_internal.map_slots('baton_data.q1_0') ORDER BY id LIMIT 1"), 'ready', 'the sweep has changed the slot');
$gate->quit;
is($claimer->answer->rows, '1', 'the claim looks again and takes the first message');
is($node->safe_psql('postgres', "SELECT string_agg(id::text, ' ') FROM baton.take('q', 10)"), '2 3', 'the others come after it');
is_sound($node, 'q');
done_testing();
