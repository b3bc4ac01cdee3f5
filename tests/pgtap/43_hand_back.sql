-- hand_back: work that was not started; at once, and it never counts as a failure.
\ir prelude.psql

SELECT plan(28);
SELECT baton.create_queue('q', max_attempts => 2) \gset
SELECT put('q', 5) AS first \gset

SELECT hold('a', 'q') \g /dev/null
SELECT results_eq($$SELECT ord, outcome FROM baton.hand_back(ARRAY[tok('a')])$$, $$VALUES (1, 'handed_back')$$, 'handed back');
SELECT row_eq(format('SELECT state, generation, failures, worker, lease_until, not_before FROM baton_queue.q WHERE id = %s', :first), ROW('ready'::text, 1::bigint, 0, NULL::text, NULL::timestamptz, NULL::timestamptz), 'ready at once, no failure');
SELECT is(hold('b', 'q'), :first, 'the next claim gets it');
SELECT is((h('b')).generation, 2::bigint, 'the generation goes on');
SELECT cmp_ok((h('b')).fence, '>', (h('a')).fence, 'so does the fence number');

-- the old token
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a')])), 'stale_generation', 'handed back again, after another claim');
SELECT is(state_of('q', :first), 'claimed', 'the new claim is untouched');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('b')])), 'handed_back', 'handed back');
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('b')])), 'already_settled', 'and again, before another claim');
SELECT alike(error_of($$SELECT baton.ack(tok('b'))$$), 'QB003: ack refused%already_settled: the message was handed back.%', 'ack says how it came back');

-- at once: whatever becomes of the transaction
SELECT hold('c', 'q') \g /dev/null
BEGIN;
SELECT outcome FROM baton.hand_back(ARRAY[tok('c')]) \g /dev/null
ROLLBACK;
SELECT is(state_of('q', (h('c')).id), 'ready', 'a rollback does not undo it');
BEGIN;
SELECT hold('d', 'q') \g /dev/null
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('d')])), 'handed_back', 'claimed and handed back in one transaction');
ROLLBACK;
SELECT is((SELECT count(*)::int FROM baton.claim('q', max_items => 10)), 5, 'rolled back: it is not void as well, it can be claimed at once');
SELECT is((SELECT max(failures) FROM baton_queue.q), 0, 'without a failure');
SELECT baton.fence('q') \g /dev/null

-- many, in input order, one bad token affects no other
SELECT hold('x' || i, 'q') FROM generate_series(1, 4) i \g /dev/null
SELECT baton.ack(tok('x2')) \g /dev/null
SELECT results_eq($$SELECT ord, outcome FROM baton.hand_back(ARRAY[tok('x3'), 'rubbish', tok('x2'), NULL, tok('x1'), tok('x3')])$$,
    $$VALUES (1, 'handed_back'), (2, 'invalid_token'), (3, 'already_settled'), (4, 'invalid_token'), (5, 'handed_back'), (6, 'already_settled')$$, 'one outcome for each');
SELECT is_empty($$SELECT * FROM baton.hand_back('{}')$$, 'none');
SELECT is(head_of('SELECT FROM baton.hand_back(NULL)'), '22023: tokens must not be null', 'null');
SELECT is(head_of($$SELECT FROM baton.hand_back(array_fill('x'::text, ARRAY[100001]))$$), '22023: tokens has too many elements', 'too many');
SELECT is(head_of($$SELECT FROM baton.hand_back(ARRAY[['a'], ['b']])$$), '22023: tokens must have one dimension', 'two dimensions');
BEGIN READ ONLY;
SELECT is(head_of($$SELECT FROM baton.hand_back(ARRAY[tok('x4')])$$), '25006: cannot execute hand_back in a read-only transaction', 'read only');
ROLLBACK;

-- more often than attempts: it never counts
SELECT baton.create_queue('often', max_attempts => 1, claim_ceiling => 50) \gset
SELECT put('often') AS first \gset
CREATE FUNCTION back_and_forth(n integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    done integer := 0;
BEGIN
    FOR i IN 1..n LOOP
        done := done + (SELECT count(*) FROM (SELECT coalesce(array_agg(token), '{}') t FROM baton.claim('often', 'w' || i)) c, LATERAL baton.hand_back(c.t) b WHERE b.outcome = 'handed_back');
    END LOOP;
    RETURN done;
END $$;
SELECT is(back_and_forth(49), 49, 'claimed and handed back 49 times');
SELECT row_eq($$SELECT state, generation, failures FROM baton_queue.often$$, ROW('ready'::text, 49::bigint, 0), 'with one attempt allowed, it is still there');
SELECT is(back_and_forth(5), 1, 'until the claim ceiling');
SELECT is((SELECT cause FROM baton.quarantined('often')), 'claim_ceiling', 'quarantined by it');
-- nor does a message escape it that is moved between its claims
SELECT baton.create_queue('slow', max_attempts => 1, claim_ceiling => 3) \gset
SELECT put('slow') \g /dev/null
DO $$
DECLARE
    token text;
BEGIN
    FOR i IN 1..5 LOOP
        PERFORM set_config('pg_baton.clock_offset', i * 3 || ' min', false);
        FOR look IN 1..3 LOOP
            SELECT c.token INTO token FROM baton.claim('slow') c;
            COMMIT;
            EXIT WHEN token IS NOT NULL;
        END LOOP;
        EXIT WHEN token IS NULL;
        PERFORM baton.release(token, '2 min', failed => false);
        COMMIT;
    END LOOP;
END $$;
RESET pg_baton.clock_offset;
SELECT is((SELECT cause || ' ' || generation FROM baton.quarantined('slow')), 'claim_ceiling 3', 'nor does one escape it that waits in a bucket between its claims');

SELECT sound('q');
SELECT sound('often');
SELECT ok(baton.drop_queue('q', discard => true) AND baton.drop_queue('often', discard => true), 'dropped');
SELECT * FROM finish();
