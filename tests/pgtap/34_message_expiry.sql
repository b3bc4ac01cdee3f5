-- expires_at: never handed out late, removed although nobody claims (the mover's step, here by CALL maintain), counted, or
-- kept in quarantine; what it means for leases, extensions and releases.
\ir prelude.psql
SELECT plan(84);

CREATE FUNCTION mortal(queue text, life interval, n integer = 1, delay interval = NULL) RETURNS bigint LANGUAGE sql AS $$
    SELECT min(e.id) FROM baton.enqueue_batch(queue, ARRAY(SELECT to_jsonb(i) FROM generate_series(1, n) i), delays => ARRAY[mortal.delay],
                                              expires_ats => ARRAY[clock_timestamp() + life]) e
$$;
-- How many slots of a queue are settled as expired.
CREATE FUNCTION expired_slots(queue text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    SELECT sum(k.n) INTO n FROM baton.segments g,
        LATERAL (SELECT count(*) AS n FROM baton_internal.map_slots(segment(expired_slots.queue, g.segment)::regclass) s WHERE s.kind = 'expired' AND s.state IN ('gone', 'settling')) k
    WHERE g.queue = expired_slots.queue;
    RETURN n;
END $$;
CREATE FUNCTION counted(queue text) RETURNS bigint LANGUAGE sql AS $$ SELECT c.expired FROM baton.queue_counters c WHERE c.queue = counted.queue $$;

-- ready: removed without a claim, to the millisecond and no earlier
SELECT baton.create_queue('q', lease => '30 s', backoff => '0') \gset
SELECT mortal('q', '1 min', 3) AS first \gset
SELECT put('q', 2) AS lasting \gset
CALL baton.maintain('q');
SELECT is(state_of('q', :first), 'ready', 'before its time nothing happens');
SET pg_baton.clock_offset = 59000;
CALL baton.maintain('q');
SELECT is((SELECT ready FROM baton.queue_stats), 5::bigint, 'nor a second before');
SET pg_baton.clock_offset = 61000;
SELECT row_eq($$SELECT ready, expired FROM baton.queue_stats WHERE queue = 'q'$$, ROW(2::bigint, 3::bigint), 'afterwards it is not counted as ready, swept or not');
SELECT is(state_of('q', :first), 'expired', 'and shown as what it is');
SELECT is(baton.backlog('q'), 2::double precision, 'and no backlog');
SELECT is((SELECT unsettled FROM baton.segments WHERE queue = 'q' AND segment = 0), 5::bigint, 'its segment is not done with it');
SELECT is((SELECT count(*)::int FROM baton_queue.q WHERE state = 'expired'), 3, 'three of them in the view');
CALL baton.maintain('q');
SELECT row_eq($$SELECT ready, expired FROM baton.queue_stats WHERE queue = 'q'$$, ROW(2::bigint, 0::bigint), 'swept');
SELECT is((SELECT count(*)::int FROM baton_queue.q), 2, 'gone from the view');
SELECT is((SELECT count(*)::int FROM baton_data.quarantined), 0, 'dropped');
SELECT is(expired_slots('q'), 3::bigint, 'three slots say so');
SELECT is(counted('q'), 3::bigint, 'three are counted');
SELECT is((SELECT string_agg(obstacle || coalesce(': ' || detail, ''), '; ') FROM baton.explain_message('q', :first)), 'settled: expired', 'explain_message knows');
SELECT set_eq($$SELECT id FROM baton.claim('q', max_items => 10)$$, ARRAY[:lasting, :lasting + 1], 'the others are handed out');
RESET pg_baton.clock_offset;
SELECT sound('q');

-- the claim looks at the clock when it takes the message
SELECT baton.create_queue('late', lease => '30 s', backoff => '0') \gset
SELECT mortal('late', '1 min') AS m \gset
SET pg_baton.clock_offset = 61000;
SELECT is((SELECT count(*)::int FROM baton.claim('late')), 0, 'never handed out late');
SELECT is((SELECT count(*)::int FROM baton.take('late')), 0, 'nor taken');
SELECT is(expired_slots('late'), 1::bigint, 'the claim that met it has settled it');
SELECT is(counted('late'), 1::bigint, 'counted once');
RESET pg_baton.clock_offset;
SELECT mortal('late', '1 min') AS m \gset
SELECT is(baton.why_empty('late'), NULL, 'there is something');
SET pg_baton.clock_offset = 61000;
SELECT is(baton.why_empty('late'), 'empty', 'and then no more');
CALL baton.maintain('late');
RESET pg_baton.clock_offset;

-- scheduled
SELECT mortal('late', '2 min', delay => '1 min') AS m \gset
SET pg_baton.clock_offset = 30000;
CALL baton.maintain('late');
SELECT is(state_of('late', :m), 'scheduled', 'scheduled, alive');
SET pg_baton.clock_offset = 121000;
SELECT is(state_of('late', :m), 'expired', 'due and over');
CALL baton.maintain('late');
SELECT is(state_of('late', :m), 'gone', 'swept');
RESET pg_baton.clock_offset;

-- claimed: a live claim is not ended; at the end of the lease the message is expired and not ready
SELECT mortal('late', '10 s', 3) AS m \gset
SELECT hold('a', 'late', '30 s') \g /dev/null
SELECT hold('b', 'late', '30 s') \g /dev/null
SELECT hold('c', 'late', '30 s') \g /dev/null
SET pg_baton.clock_offset = 11000;
CALL baton.maintain('late');
SELECT row_eq($$SELECT ready, claimed, expired FROM baton.queue_stats WHERE queue = 'late'$$, ROW(0::bigint, 3::bigint, 0::bigint), 'held: still claimed');
SELECT is(baton.ack(tok('a')), 'acked', 'an ack before the deadline counts');
SELECT ok(baton.extend(tok('b'), '60 s') > clock_timestamp() + '60 s', 'by default a lease may run beyond it');
SET pg_baton.clock_offset = 31000;
SELECT row_eq($$SELECT ready, claimed, expired FROM baton.queue_stats WHERE queue = 'late'$$, ROW(0::bigint, 1::bigint, 1::bigint), 'its lease is over: expired, not ready');
SELECT is(state_of('late', :m + 2), 'expired', 'in the view as well');
CALL baton.maintain('late');
SELECT is(state_of('late', :m + 2), 'gone', 'swept at the end of its lease');
SELECT is(state_of('late', :m + 1), 'claimed', 'the extended one is not');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('c')], '{ack}')), 'already_settled', 'its token is refused');
SELECT alike(error_of(format('SELECT baton.ack(%L)', tok('c'))), '%removed, because it had expired%HINT: Roll back%', 'with the reason, and not as if it had succeeded');
SELECT is(baton.ack(tok('b')), 'acked', 'and the extended one is acknowledged');
RESET pg_baton.clock_offset;

-- hand_back and a claim that is rolled back leave it to the next look
SELECT mortal('late', '10 s', 2) AS m \gset
SELECT hold('a', 'late', '30 s') \g /dev/null
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT outcome FROM baton.hand_back(ARRAY[tok('a')])), 'handed_back', 'handed back too late');
SELECT is(state_of('late', :m), 'expired', 'is not ready');
CALL baton.maintain('late');
SELECT is((SELECT count(*)::int FROM baton_queue.late), 0, 'and swept');
RESET pg_baton.clock_offset;

-- release
SELECT mortal('late', '10 s', 6) AS m \gset
SELECT hold('r' || i, 'late', '30 s') FROM generate_series(1, 6) i \g /dev/null
SELECT row_eq(format($$SELECT state, nullif(not_before, not_before), failures FROM baton.release(%L, '5 s')$$, tok('r1')), ROW('scheduled'::text, NULL::timestamptz, 1), 'a delay that ends before it');
SELECT row_eq(format($$SELECT * FROM baton.release(%L, '10 s', reason => 'later')$$, tok('r2')), ROW('expired'::text, NULL::timestamptz, 1), 'one that does not: over at once');
SELECT is(state_of('late', :m + 1), 'gone', 'and gone');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('r3')], '{release_unfailed}', '{1 h}')), 'expired', 'settle says so as well');
BEGIN;
SELECT is((SELECT state FROM baton.release(tok('r4'), '1 h')), 'expired', 'in a transaction');
SELECT is(state_of('late', :m + 3), 'gone', 'gone for the transaction');
ROLLBACK;
SELECT is(state_of('late', :m + 3), 'claimed', 'that is rolled back');
SELECT is((SELECT state FROM baton.release(tok('r4'), '0 s')), 'ready', 'released in time, it is ready');
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT state FROM baton.release(tok('r5'))), 'expired', 'past its expiry there is no coming back');
SELECT is(state_of('late', :m), 'expired', 'the scheduled one is over as well');
SELECT is((SELECT outcome FROM baton.settle_and_claim('late', ARRAY[tok('r6')], '{release}') WHERE ord = 1), 'expired', 'in settle_and_claim neither');
CALL baton.maintain('late');
SELECT is((SELECT count(*)::int FROM baton_queue.late), 0, 'all gone');
RESET pg_baton.clock_offset;
SELECT is((SELECT count(*)::int FROM baton_data.quarantined), 0, 'nothing kept');
SELECT is(counted('late'), 13::bigint, 'all counted, the one that was rolled back too');
-- the last failure quarantines, with its evidence
SELECT baton.alter_queue('late', max_attempts => 1) \gset
SELECT mortal('late', '10 s') AS m \gset
SELECT hold('a', 'late', '30 s') \g /dev/null
SET pg_baton.clock_offset = 11000;
SELECT is((SELECT state FROM baton.release(tok('a'), reason => 'no')), 'quarantined', 'the last failure quarantines it');
RESET pg_baton.clock_offset;
SELECT sound('late');
DELETE FROM baton_data.quarantined;

-- expired => keep
SELECT baton.create_queue('kept', expired => 'keep', backoff => '0', max_attempts => 5) \gset
SELECT mortal('kept', '10 s', 4) AS m \gset
SELECT hold('k1', 'kept', '5 s') \g /dev/null
SELECT hold('k2', 'kept', '30 s') \g /dev/null
SET pg_baton.clock_offset = 11000;
SELECT row_eq(format($$SELECT state, failures FROM baton.release(%L, reason => 'why', error => '{"e": 1}')$$, tok('k2')), ROW('expired'::text, 1), 'released too late');
SELECT count(*) FROM baton.claim('kept') \g /dev/null
CALL baton.maintain('kept');
SELECT results_eq($$SELECT id - (SELECT min(id) FROM baton.quarantined('kept')), cause, failures, reason, error FROM baton.quarantined('kept') ORDER BY id$$,
    $$VALUES (0::bigint, 'expired', 1, NULL, NULL::jsonb), (1, 'expired', 1, 'why', '{"e": 1}'), (2, 'expired', 0, NULL, NULL), (3, 'expired', 0, NULL, NULL)$$, 'kept in quarantine, with what is known of each');
SELECT is((SELECT count(*)::int FROM baton_queue.kept), 0, 'and nowhere else');
SELECT is((SELECT count(*)::int FROM baton_data.quarantined WHERE expires_at IS NOT NULL), 0, 'for good');
SELECT is((SELECT c.expired FROM baton.queue_counters c WHERE queue = 'kept'), 4::bigint, 'counted');
SELECT is((SELECT string_agg(obstacle, ' ') FROM baton.explain_message('kept', :m)), 'quarantined', 'explain_message knows');
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('k1')], '{ack}')), 'already_settled', 'its token is refused');
RESET pg_baton.clock_offset;
SELECT sound('kept');

-- a hold: nothing is dropped
SELECT baton.hold('q', 'case 1') \gset
SELECT mortal('q', '10 s', 2) AS m \gset
SET pg_baton.clock_offset = 11000;
SELECT count(*) FROM baton.claim('q', max_items => 10) \g /dev/null
CALL baton.maintain();
SELECT is((SELECT count(*)::int FROM baton.quarantined('q') WHERE cause = 'expired'), 2, 'while a queue is held, what expires is kept');
RESET pg_baton.clock_offset;
SELECT baton.unhold('q') \gset

-- quarantined messages expire too
SELECT baton.create_queue('aside', backoff => '0') \gset
SELECT mortal('aside', '10 min', 2) AS m \gset
SELECT put('aside') AS plain \gset
SELECT hold('d' || i, 'aside') FROM generate_series(1, 3) i \g /dev/null
SELECT baton.quarantine(tok('d' || i), 'aside') FROM generate_series(1, 3) i \g /dev/null
SELECT mortal('kept', '10 min') AS m2 \gset
SELECT hold('d', 'kept') \g /dev/null
SELECT baton.quarantine(tok('d'), 'aside') \g /dev/null
SET pg_baton.clock_offset = 599000;
CALL baton.maintain();
SELECT is((SELECT count(*)::int FROM baton.quarantined('aside')), 3, 'not before their time');
SET pg_baton.clock_offset = 601000;
SELECT baton.hold('aside', 'case 2') \gset
CALL baton.maintain();
SELECT is((SELECT count(*)::int FROM baton.quarantined('aside')), 3, 'nor while the queue is held');
SELECT baton.unhold('aside') \gset
CALL baton.maintain();
SELECT results_eq($$SELECT id FROM baton.quarantined('aside')$$, ARRAY[:plain::bigint], 'then they are removed');
SELECT is((SELECT count(*)::int FROM baton.quarantined('kept')), 5, 'but not where the queue keeps them');
SELECT is(counted('aside'), 2::bigint, 'counted');
RESET pg_baton.clock_offset;

-- expiry_ends_lease
SELECT baton.create_queue('cut', lease => '1 min', expiry_ends_lease => true) \gset
SELECT FROM baton.enqueue('cut', '1', expires_at => clock_timestamp() + '20 s');
SELECT hold('x', 'cut') \g /dev/null
SELECT is((h('x')).lease_until, (h('x')).expires_at, 'a lease ends with its message');
SELECT alike(error_of(format($$SELECT baton.extend(%L)$$, tok('x'))), E'53400: extend refused: the lease cannot be extended beyond the message''s expiry\nDETAIL: %expiry_exceeded: the message expires in __._ s%', 'and cannot be extended beyond it');
SELECT FROM baton.enqueue('cut', '2', expires_at => clock_timestamp() + '20 s');
SELECT put('cut') \g /dev/null
SELECT hold('y', 'cut', '5 s') \g /dev/null
SELECT ok((h('y')).lease_until < clock_timestamp() + '6 s', 'a shorter one stays as it is');
SELECT ok(baton.extend(tok('y'), '10 s') > clock_timestamp() + '9 s', 'and can be extended up to it');
SELECT hold('z', 'cut') \g /dev/null
SELECT ok((h('z')).lease_until > clock_timestamp() + '59 s', 'messages that do not expire have the whole lease');
SET pg_baton.clock_offset = 20001;
SELECT is((SELECT outcome FROM baton.settle(ARRAY[tok('x')], '{ack}')), 'lease_expired', 'there is no ack after it');
CALL baton.maintain('cut');
SELECT row_eq($$SELECT ready, claimed FROM baton.queue_stats WHERE queue = 'cut'$$, ROW(0::bigint, 1::bigint), 'swept with the lease');
RESET pg_baton.clock_offset;

-- a rebuilt map, rows that plain SQL brings: the row says
SELECT baton.create_queue('raw') \gset
SELECT segment('raw') AS seg \gset
SELECT mortal('raw', '10 s', 2) AS m \gset
SELECT put('raw') \g /dev/null
INSERT INTO :seg (id, enqueued_at, expires_at, payload) VALUES (100, now(), now() + '10 s', '1'), (101, now(), NULL, '2');
SET client_min_messages = error;
REINDEX TABLE :seg;
SET client_min_messages = warning;
INSERT INTO :seg (id, enqueued_at, expires_at, payload) VALUES (102, now(), now() + '10 s', '1');
SELECT setval(replace(:'seg', '_0', '_id'), 200) \g /dev/null
SET pg_baton.clock_offset = 11000;
SELECT row_eq($$SELECT ready, expired FROM baton.queue_stats WHERE queue = 'raw'$$, ROW(2::bigint, 4::bigint), 'slots made from rows know that they expire');
CALL baton.maintain('raw');
SELECT row_eq($$SELECT ready, expired FROM baton.queue_stats WHERE queue = 'raw'$$, ROW(2::bigint, 0::bigint), 'and are swept');
RESET pg_baton.clock_offset;
SELECT sound('raw');

-- a row that plain SQL has deleted, one that cannot be settled, many
SELECT mortal('raw', '10 s', 1000) AS m \gset
DELETE FROM :seg WHERE id = :m + 1;
CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poisoned'; END $$;
SELECT baton.alter_queue('raw', expired => 'keep') \gset
ALTER TABLE baton_data.quarantined ADD CONSTRAINT poison CHECK (id <> 0) NOT VALID;
INSERT INTO baton_data.quarantined (queue_id, id, generation, failures, quarantined_at, cause, message)
    SELECT value::int, :m + 2, 1, 0, now(), 'verb', ROW(1, now(), NULL, NULL, 1, NULL, 1, 0, 5, NULL, NULL, NULL, NULL, NULL, '1', NULL)::baton.message
    FROM baton.describe_queue('raw') WHERE option = 'id';
SET pg_baton.clock_offset = 11000;
SET client_min_messages = error;
CALL baton.maintain('raw');
SET client_min_messages = warning;
SELECT is((SELECT count(*)::int FROM baton.quarantined('raw') WHERE cause = 'expired'), 998, 'one that fails does not keep the others from it');
SELECT is(state_of('raw', :m + 2), 'expired', 'it stays');
SELECT is(state_of('raw', :m + 1), 'gone', 'the deleted one is nobody''s');
DELETE FROM baton_data.quarantined WHERE id = :m + 2;
CALL baton.maintain('raw');
SELECT is(state_of('raw', :m + 2), 'gone', 'and goes when it can');
RESET pg_baton.clock_offset;

-- a copy that is not meant to work decides nothing
SELECT mortal('raw', '10 s') AS m \gset
UPDATE baton_internal.queue SET home_system = 1 WHERE name = 'raw';
SELECT baton.alter_queue('raw') \gset
SET pg_baton.clock_offset = 11000;
CALL baton.maintain('raw');
SELECT is(state_of('raw', :m), 'expired', 'a copy that nobody has adopted leaves it alone');
SELECT baton.adopt('raw') \gset
CALL baton.maintain('raw');
SELECT is(state_of('raw', :m), 'gone', 'adopted, it is swept');
RESET pg_baton.clock_offset;

SELECT is_empty($$SELECT name FROM baton.queues WHERE NOT baton.drop_queue(name, discard => true)$$, 'dropped');
SELECT * FROM finish();
