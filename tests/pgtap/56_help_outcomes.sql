-- The manual and the table of outcomes: complete, true, and what the verbs really answer and raise.
\ir prelude.psql

SELECT plan(52);
SELECT baton.create_queue('q', lease => '30 s', max_lease => '30 s', max_lifetime => '40 s', backoff => '0') \gset
SELECT current_database() AS gid \gset

-- outcomes(): the table
SELECT results_eq('SELECT outcome, sqlstate FROM baton.outcomes()', $$VALUES
    ('acked', '00000'), ('released', '00000'), ('scheduled', '00000'), ('quarantined', '00000'), ('handed_back', '00000'), ('extended', '00000'), ('started', '00000'), ('expired', '00000'), ('revoked', '00000'),
    ('stale_generation', 'QB001'), ('lease_expired', 'QB002'), ('already_settled', 'QB003'), ('invalid_token', 'QB004'), ('stale_epoch', 'QB008'), ('settling', '55P03'),
    ('forbidden', '42501'), ('lifetime_exceeded', '53400'), ('expiry_exceeded', '53400'), ('not_started', '55000'), ('already_started', '55000'), ('not_claimed', '55000'), ('not_found', '42704')$$, 'outcomes() is the promised table');
SELECT is_empty('SELECT * FROM baton.outcomes() WHERE meaning IS NULL OR length(meaning) < 10', 'each with a meaning');

-- what is raised has the SQLSTATE of the outcome that settle reports, and its meaning as message
SELECT put('q', 20) AS first \gset
-- one token for each refusal
SELECT hold('fenced', 'q') \g /dev/null
SELECT baton.fence('q') \g /dev/null
SELECT hold('settled', 'q') \g /dev/null
SELECT baton.ack(tok('settled')) \g /dev/null
SELECT count(*) FROM baton.take('q', 100) \g /dev/null
SELECT put('q', 1) AS first \gset
SELECT hold('stale', 'q') \g /dev/null
SELECT outcome FROM baton.hand_back(ARRAY[tok('stale')]) \g /dev/null
SELECT hold('stale2', 'q') \g /dev/null
SELECT put('q', 3) AS first \gset
SELECT hold('settling', 'q') \g /dev/null
BEGIN;
SELECT baton.ack(tok('settling')) \g /dev/null
PREPARE TRANSACTION :'gid';
SELECT hold('expired', 'q', '1 s') \g /dev/null
SET pg_baton.clock_offset = 1500;
SET pg_baton.settle_timeout = 0;
DROP ROLE IF EXISTS baton_test_nobody;
CREATE ROLE baton_test_nobody;
GRANT SELECT ON held TO baton_test_nobody;
SELECT hold('forbidden', 'q') \g /dev/null

CREATE TABLE refusals (outcome text, token text, role text);
INSERT INTO refusals VALUES ('stale_generation', tok('stale'), 'none'), ('lease_expired', tok('expired'), 'none'), ('already_settled', tok('settled'), 'none'), ('invalid_token', 'rubbish', 'none'),
    ('stale_epoch', tok('fenced'), 'none'), ('settling', tok('settling'), 'none'), ('forbidden', tok('forbidden'), 'baton_test_nobody');
SELECT is(value_as(role, format('SELECT outcome FROM baton.settle(ARRAY[%L], %L)', token, '{ack}')), outcome, 'settle reports ' || outcome) FROM refusals;
SELECT is(value_as(role, format('SELECT outcome FROM baton.extend_batch(ARRAY[%L])', token)), outcome, 'extend_batch reports ' || outcome) FROM refusals;
SELECT is(value_as(role, format('SELECT outcome FROM baton.hand_back(ARRAY[%L])', token)), outcome, 'hand_back reports ' || outcome) FROM refusals;
SELECT is_empty($$SELECT r.outcome, v.verb, e.answer FROM refusals r CROSS JOIN (VALUES ('ack', 'SELECT baton.ack(%L)'), ('release', 'SELECT FROM baton.release(%L)'), ('quarantine', 'SELECT baton.quarantine(%L)'),
        ('extend', 'SELECT baton.extend(%L)'), ('start', 'SELECT baton.start(%L)'), ('ack_batch', 'SELECT baton.ack_batch(ARRAY[%L])')) v (verb, call),
    LATERAL error_as(r.role, format(v.call, r.token)) e (answer), baton.outcomes() o
    WHERE o.outcome = r.outcome AND split_part(e.answer, E'\n', 1) <> format('%s: %s refused: %s', o.sqlstate, v.verb, o.meaning)$$, 'the verbs that raise: SQLSTATE and meaning of the same outcome');
SELECT is_empty($$SELECT r.outcome, e.answer FROM refusals r, LATERAL error_as(r.role, format('SELECT baton.ack(%L)', r.token)) e (answer)
    WHERE e.answer !~ (E'\nDETAIL: .*' || r.outcome || ': ') OR e.answer !~ E'\nHINT: '$$, 'DETAIL names the outcome word, HINT says what to do');
RESET pg_baton.clock_offset;
RESET pg_baton.settle_timeout;
ROLLBACK PREPARED :'gid';
SELECT put('q', 3) AS first \gset
SELECT hold('life', 'q', '30 s') \g /dev/null
SET pg_baton.clock_offset = 20000;
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('life')], '30 s')), 'lifetime_exceeded', 'extend_batch reports lifetime_exceeded');
SELECT is(head_of($$SELECT baton.extend(tok('life'), '30 s')$$), (SELECT format('%s: extend refused: %s', sqlstate, meaning) FROM baton.outcomes() WHERE outcome = 'lifetime_exceeded'), 'and extend raises it');
RESET pg_baton.clock_offset;
SELECT baton.create_queue('mortal', lease => '10 s', expiry_ends_lease => true) \gset
SELECT FROM baton.enqueue('mortal', '1', expires_at => clock_timestamp() + '1 min');
SELECT hold('mortal', 'mortal') \g /dev/null
SELECT is((SELECT outcome FROM baton.extend_batch(ARRAY[tok('mortal')], '2 min')), 'expiry_exceeded', 'extend_batch reports expiry_exceeded');
SELECT is(head_of($$SELECT baton.extend(tok('mortal'), '2 min')$$), (SELECT format('%s: extend refused: %s', sqlstate, meaning) FROM baton.outcomes() WHERE outcome = 'expiry_exceeded'), 'and extend raises it');
-- and the successes
SELECT is(baton.ack(tok('life')), 'acked', 'ack answers acked');
CREATE TABLE answers (answer text);
SELECT hold('x' || i, 'q') FROM generate_series(1, 2) i \g /dev/null
INSERT INTO answers SELECT outcome FROM baton.extend_batch(ARRAY[tok('x1')]);
INSERT INTO answers SELECT outcome FROM baton.hand_back(ARRAY[tok('x1')]);
SELECT hold('x1', 'q') \g /dev/null
INSERT INTO answers SELECT baton.revoke('q', (h('x1')).id);
INSERT INTO answers SELECT outcome FROM baton.settle(ARRAY[tok('x2')], '{release}', '{1 h}');
SELECT put('q', 3) AS first \gset
SELECT hold('y' || i, 'q') FROM generate_series(1, 3) i \g /dev/null
INSERT INTO answers SELECT outcome FROM baton.settle(ARRAY[tok('y1'), tok('y2'), tok('y3')], '{ack,release,quarantine}', '{0}');
SELECT FROM baton.enqueue('mortal', '1', expires_at => clock_timestamp() + '1 min');
SELECT hold('z', 'mortal') \g /dev/null
INSERT INTO answers SELECT outcome FROM baton.settle(ARRAY[tok('z')], '{release}', '{1 h}');
SELECT set_eq('SELECT answer FROM answers', $$SELECT outcome FROM baton.outcomes() WHERE sqlstate = '00000' AND outcome <> 'started'$$, 'every success word is answered by some verb (start answers with the deadline)');

-- help
SELECT isnt_empty('SELECT * FROM baton.help()', 'help without a topic');
CREATE TABLE topics AS SELECT (regexp_match(h, '^  ([a-z]+)  '))[1] AS topic FROM baton.help() h WHERE h ~ '^  [a-z]+  ';
SELECT set_eq('SELECT topic FROM topics', '{enqueue,claim,settle,admin,views,privileges,outcomes,settings}'::text[], 'lists its topics');
SELECT is_empty('SELECT topic FROM topics WHERE NOT EXISTS (SELECT FROM baton.help(topic))', 'every topic has a page');
SELECT set_eq($$SELECT * FROM baton.help('ENQUEUE')$$, $$SELECT * FROM baton.help('enqueue')$$, 'in capitals too');
SELECT is(error_of($$SELECT * FROM baton.help('nonsense')$$), E'22023: no help on "nonsense"\nHINT: SELECT * FROM baton.help() lists the topics.', 'no such topic');
SELECT is((SELECT count(*)::int FROM baton.help('outcomes')), (SELECT count(*)::int FROM baton.outcomes()), 'the page on outcomes is the table');
SELECT is_empty('SELECT topic, h FROM topics, baton.help(topic) h WHERE length(h) > 100 AND topic <> ''outcomes''', 'made to be read at 100 columns');
-- every function and setting that is named is there, and every verb is named
CREATE TABLE pages AS SELECT topic, h FROM (SELECT topic FROM topics UNION ALL SELECT NULL) t, baton.help(topic) h;
SELECT is_empty($$SELECT DISTINCT m[1] FROM pages, regexp_matches(h, 'baton\.([a-z_]+)\(', 'g') m WHERE NOT EXISTS (SELECT FROM pg_proc WHERE proname = m[1] AND pronamespace = 'baton'::regnamespace)$$, 'every function named is there');
SELECT is_empty($$SELECT DISTINCT m[1] FROM pages, regexp_matches(h, 'TABLE baton\.([a-z_]+)', 'g') m WHERE NOT EXISTS (SELECT FROM pg_class WHERE relname = m[1] AND relnamespace = 'baton'::regnamespace)$$, 'every view');
SELECT is_empty($$SELECT DISTINCT m[1] FROM pages, regexp_matches(h, '(pg_baton\.[a-z_]+)', 'g') m WHERE NOT EXISTS (SELECT FROM pg_settings WHERE name = m[1]) AND m[1] <> 'pg_baton.'$$, 'every setting');
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'baton'::regnamespace AND proname NOT IN ('help', 'maintain', 'enqueue_batch_bytes') AND NOT EXISTS (SELECT FROM pages WHERE h ~ ('\m' || proname || '\M'))$$, 'every verb is in it');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'baton'::regnamespace AND relkind = 'v' AND NOT EXISTS (SELECT FROM pages WHERE h ~ ('baton\.' || relname || '\M'))$$, 'every view is in it');
-- its examples run
CREATE TABLE orders (id integer); CREATE TABLE old_orders (id integer);
SELECT baton.create_queue('mail') \gset
CREATE FUNCTION statements(topic text) RETURNS TABLE (n bigint, statement text) LANGUAGE sql AS $$
    SELECT ordinality, regexp_replace(s, '^\s+', '') FROM regexp_split_to_table((SELECT string_agg(regexp_replace(h, '\s+--.*$|;\s+[a-z].*$', ';'), E'\n') FROM baton.help(statements.topic) h WHERE h ~ '^  '), ';') WITH ORDINALITY r (s, ordinality)
    WHERE btrim(s, E' \n') <> '' $$;
CREATE TABLE tried (topic text, statement text, answer text);
DO $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT t.topic, s.statement FROM (VALUES (1, 'admin'), (2, 'enqueue'), (3, 'claim'), (4, 'settle'), (5, 'views'), (6, 'privileges')) t (o, topic), statements(t.topic) s
             WHERE s.statement !~* '^(COPY|CALL|TABLE baton_queue)' ORDER BY t.o, s.n LOOP
        IF r.statement ~ '<token>' THEN
            PERFORM FROM baton.enqueue_batch('orders', '{1,2,3,4}');
            r.statement := replace(r.statement, '<token>', coalesce((SELECT token FROM baton.claim('orders')), '<token>'));
        END IF;
        IF r.statement ~ 'drop_queue' THEN CONTINUE; END IF;
        r.statement := regexp_replace(r.statement, '^(GRANT .* TO )\w+$', '\1baton_test_nobody');
        INSERT INTO tried VALUES (r.topic, r.statement, error_of(r.statement));
        IF r.statement ~ 'baton.create_queue' THEN PERFORM FROM baton.enqueue_batch('orders', '{1,2,3,4,5,6,7,8,9}'); END IF;
    END LOOP;
END $$;
SELECT cmp_ok((SELECT count(*)::int FROM tried), '>', 35, 'the examples of the pages');
SELECT is_empty($$SELECT * FROM tried WHERE answer <> 'no error' AND NOT (statement ~ '<token>' OR answer ~ '^QB')$$, 'they run as they are written');
SELECT is_empty($$SELECT * FROM tried WHERE answer ~ '^(42|22|0A)'$$, 'none of them is wrong SQL');

SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'baton'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL$$, 'every public function has a comment');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'baton'::regnamespace AND relkind = 'v' AND obj_description(oid, 'pg_class') IS NULL$$, 'every view');
SELECT is_empty($$SELECT typname FROM pg_type t WHERE typnamespace = 'baton'::regnamespace AND typname IN ('message', 'delivery', 'token') AND obj_description(oid, 'pg_type') IS NULL$$, 'every type');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name LIKE 'pg_baton.%' AND (short_desc IS NULL OR short_desc = '')$$, 'every setting says what it does');

SELECT sound('q');
SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
DROP OWNED BY baton_test_nobody;
DROP ROLE baton_test_nobody;
SELECT * FROM finish();
