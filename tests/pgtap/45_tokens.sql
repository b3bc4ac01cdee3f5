-- Tokens: garbage, every flipped bit, other databases, other queues; no oracle about what was wrong with one.
\ir prelude.psql

SELECT plan(43);
SELECT baton.create_queue('q') \gset
SELECT put('q', 20) AS first \gset
SELECT hold('a', 'q') \g /dev/null
SELECT hold('b', 'q') \g /dev/null

CREATE FUNCTION raw(token text) RETURNS bytea LANGUAGE sql AS $$ SELECT decode(translate(substr(token, 3), '-_', '+/'), 'base64') $$;
CREATE FUNCTION cooked(raw bytea) RETURNS text LANGUAGE sql AS $$ SELECT 'b1' || translate(replace(encode(raw, 'base64'), E'\n', ''), '+/', '-_') $$;
SELECT is(length(raw(tok('a'))), 63, '63 bytes');
SELECT is(cooked(raw(tok('a'))), tok('a'), 'in base64url');

-- what is no token at all
SELECT is_empty($$SELECT v, o.outcome FROM (VALUES (''), ('b1'), ('x'), (' '), ('b1' || repeat('A', 84)), (repeat('b1', 43)), ('b1' || repeat('=', 84)), ('42'), ('{"token": 1}'), (repeat('x', 100000)),
    (E'b1\n'), ('ü'), ('NULL')) t (v), LATERAL baton.settle(ARRAY[v], '{ack}') o WHERE o.outcome <> 'invalid_token'$$, 'garbage');
SELECT is((SELECT outcome FROM baton.settle('{NULL}', '{ack}')), 'invalid_token', 'null in an array');
SELECT is_empty($$SELECT n FROM generate_series(0, 85) n, LATERAL baton.settle(ARRAY[left(tok('a'), n)], '{ack}') o WHERE o.outcome <> 'invalid_token'$$, 'cut off anywhere');
SELECT is_empty($$SELECT v, o.outcome FROM (VALUES (tok('a') || 'A'), (' ' || tok('a')), (tok('a') || ' '), (upper(tok('a'))), (lower(tok('a'))), (tok('a') || tok('b')), (left(tok('a'), 43) || right(tok('b'), 43)),
    (E'\t' || tok('a')), ('b2' || substr(tok('a'), 3)), (reverse(tok('a')))) t (v), LATERAL baton.settle(ARRAY[v], '{ack}') o WHERE o.outcome <> 'invalid_token' AND v <> tok('a')$$, 'added to, trimmed, folded, spliced');

-- T61: every bit of it
SELECT is((SELECT count(*)::int FROM generate_series(0, 503) n WHERE cooked(set_bit(raw(tok('a')), n, 1 - get_bit(raw(tok('a')), n))) <> tok('a')), 504, '504 tokens that differ in one bit');
CREATE FUNCTION flipped() RETURNS text[] LANGUAGE sql AS $$ SELECT array_agg(cooked(set_bit(raw(tok('a')), n, 1 - get_bit(raw(tok('a')), n)))) FROM generate_series(0, 503) n $$;
SELECT results_eq($$SELECT DISTINCT outcome FROM baton.settle(flipped(), '{ack}')$$, $$VALUES ('invalid_token')$$, 'settle refuses all of them');
SELECT results_eq($$SELECT DISTINCT outcome FROM baton.extend_batch(flipped(), '5 min')$$, $$VALUES ('invalid_token')$$, 'extend_batch');
SELECT results_eq($$SELECT DISTINCT outcome FROM baton.hand_back(flipped())$$, $$VALUES ('invalid_token')$$, 'hand_back');
SELECT alike(error_of('SELECT baton.ack_batch(flipped())'), 'QB004: ack_batch refused: 504 of 504 tokens%', 'ack_batch');
-- every byte of the text
CREATE TABLE bytes AS SELECT overlay(tok('a') PLACING c FROM place) AS token FROM generate_series(1, 86) place,
    LATERAL regexp_split_to_table('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= !~', '') c;
SELECT is((SELECT string_agg(DISTINCT outcome, ',') FROM (SELECT array_agg(token) t FROM bytes WHERE token <> tok('a')) a, LATERAL baton.settle(a.t, '{release}') s), 'invalid_token', 'every other character in every place');
SELECT is(state_of('q', (h('a')).id), 'claimed', 'the claim is as it was');
SELECT is(failures_of('q', (h('a')).id), 0, 'no failure was counted');

-- what each verb says of one
CREATE TABLE verbs (call text, verb text);
INSERT INTO verbs VALUES ('SELECT baton.ack(%L)', 'ack'), ('SELECT baton.extend(%L)', 'extend'), ('SELECT baton.extend(%L, ''1 s'')', 'extend'), ('SELECT baton.start(%L)', 'start'),
    ('SELECT FROM baton.release(%L)', 'release'), ('SELECT FROM baton.release(%L, ''1 h'')', 'release'), ('SELECT baton.quarantine(%L)', 'quarantine'), ('SELECT baton.ack_batch(ARRAY[%L])', 'ack_batch');
SELECT is(error_of(format(call, 'rubbish')), format(E'QB004: %s refused: not a token of this database\nDETAIL: invalid_token: not a token of this database.\nHINT: Pass the token exactly as baton.claim returned it, in the same database.', verb), call) FROM verbs;
SELECT is_empty($$SELECT call, e FROM verbs, LATERAL error_of(format(call, (flipped())[1])) e WHERE e IS DISTINCT FROM error_of(format(call, 'rubbish'))$$, 'a forgery is told no more than rubbish: a flipped database');
SELECT is_empty($$SELECT call, e FROM verbs, LATERAL error_of(format(call, (flipped())[504])) e WHERE e IS DISTINCT FROM error_of(format(call, 'rubbish'))$$, 'a flipped tag');
SELECT is(head_of(format('SELECT baton.ack(%L)', cooked(set_byte(raw(tok('a')), 4, (get_byte(raw(tok('a')), 4) + 1) % 256)))), 'QB004: ack refused: not a token of this database', 'another queue''s number: not even that there is none');
-- no message of any error contains a token
SELECT is_empty($$SELECT call, e FROM verbs, LATERAL error_of(format(call, (flipped())[100])) e WHERE strpos(e, (flipped())[100]) > 0$$, 'tokens are not repeated in errors');

-- two messages: one token settles one
SELECT is(baton.ack(tok('b')), 'acked', 'the other token');
SELECT is(state_of('q', (h('a')).id), 'claimed', 'settled its own message only');

-- another database
SELECT current_database() AS here \gset
SELECT :'here' || '_x' AS other \gset
SELECT format('CREATE DATABASE %I', :'other') \gexec
\setenv PGTAP_OTHER :other
\set quiet `psql -X -q -d "$PGTAP_OTHER" -c "SET client_min_messages = error" -c "CREATE EXTENSION pg_baton"`
\set made `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT baton.create_queue('q')"`
\set sent `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT count(*) FROM baton.enqueue_batch('q', '{1,2,3}')"`
\set foreign `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT token FROM baton.claim('q')"`
SELECT is(length(:'foreign'), 86, 'a token of another database');
SELECT is(head_of(format('SELECT baton.ack(%L)', :'foreign')), 'QB004: ack refused: not a token of this database', 'is none of ours');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[:'foreign'], '{ack}')), 'invalid_token', 'settle says the same');
SELECT tok('a') AS ours \gset
\setenv PGTAP_TOKEN :ours
\set outcome `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT outcome FROM baton.settle(ARRAY['$PGTAP_TOKEN'], '{ack}')"`
SELECT is(:'outcome'::text, 'invalid_token', 'nor ours one of theirs');
\setenv PGTAP_TOKEN :foreign
\set outcome `psql -X -A -t -q -d "$PGTAP_OTHER" -c "SELECT outcome FROM baton.settle(ARRAY['$PGTAP_TOKEN'], '{ack}')"`
SELECT is(:'outcome'::text, 'acked', 'there it is good');
SELECT format('DROP DATABASE %I WITH (FORCE)', :'other') \gexec
-- the same key in another database (a template copy): the database's number tells them apart
SELECT is((SELECT count(*)::int FROM baton_internal.token_key), 1, 'one key');
SELECT is((SELECT get_byte(raw(tok('a')), 0) + get_byte(raw(tok('a')), 1) * 256 + get_byte(raw(tok('a')), 2) * 65536)::bigint, (SELECT oid::bigint & 16777215 FROM pg_database WHERE datname = current_database()), 'the database is in the token');

-- no two are alike
CREATE TABLE all_tokens AS SELECT token FROM baton.claim('q', max_items => 18);
SELECT is((SELECT count(DISTINCT token)::int FROM all_tokens), 18, 'every token is another');
SELECT is((SELECT count(DISTINCT substr(token, 60, 27))::int FROM all_tokens), 18, 'in its nonce and tag too');
SELECT is(baton.ack_batch(ARRAY(SELECT token FROM all_tokens)), 18, 'and all are good');

-- the domain
CREATE TABLE jobs (t baton.token);
INSERT INTO jobs VALUES (tok('a'));
SELECT is((SELECT baton.ack(t) FROM jobs), 'acked', 'a column of type baton.token');
SELECT is((SELECT outcome FROM baton.settle(ARRAY(SELECT t FROM jobs)::text[], '{ack}')), 'already_settled', 'an array of them');
SELECT is(head_of($$INSERT INTO jobs VALUES ('rubbish')$$), '23514: value for domain baton.token violates check constraint "well_formed"', 'keeps out what is none');

SELECT sound('q');
SELECT ok(baton.drop_queue('q'), 'dropped');
SELECT * FROM finish();
