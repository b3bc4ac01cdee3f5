-- Sweeping: lapsed leases come back however they lie between others. Leases that end are interleaved with leases that go
-- on, so that each lapsed slot is a range of its own and the revisit list (128 ranges) fills up many times over.
\ir prelude.psql
SELECT plan(7);

SELECT baton.create_queue('q', lease => '1 s', max_lease => '10 h', max_attempts => 100);
SELECT put('q', 3000);

DO $$
BEGIN
    FOR i IN 1..1500 LOOP
        PERFORM token FROM baton.claim('q', 'short', 1, '1 s');
        PERFORM token FROM baton.claim('q', 'long', 1, '10 h');
    END LOOP;
END $$;
SELECT is((SELECT count(*)::int FROM baton.in_flight), 3000, 'all are held');

-- one minute later
SET pg_baton.clock_offset = 60000;
CREATE TABLE again AS SELECT id, failures, generation FROM baton.claim('q', 'again', 1) LIMIT 0;
DO $$
DECLARE
    got integer;
BEGIN
    -- A claim that comes up short sweeps; one sweep publishes no more than fits into the list.
    FOR i IN 1..200 LOOP
        INSERT INTO again SELECT id, failures, generation FROM baton.claim('q', 'again', 100, '10 h');
        GET DIAGNOSTICS got = ROW_COUNT;
        PERFORM baton_internal.sweep('q') WHERE got = 0;
    END LOOP;
END $$;
SELECT is((SELECT count(*)::int FROM again), 1500, 'every lapsed message is claimed again');
SELECT is((SELECT count(DISTINCT id)::int FROM again), 1500, 'and none twice');
SELECT is((SELECT count(*)::int FROM again WHERE failures <> 1 OR generation <> 2), 0, 'with its failure counted');

-- Much later, without anybody asking for a sweep: the deadlines that the sweeps met are not forgotten.
SET pg_baton.clock_offset = 43200000;
CREATE TABLE last AS SELECT id FROM again LIMIT 0;
DO $$
DECLARE
    got integer;
BEGIN
    FOR i IN 1..400 LOOP
        INSERT INTO last SELECT id FROM baton.claim('q', 'last', 100, '1 h');
        GET DIAGNOSTICS got = ROW_COUNT;
        EXIT WHEN got = 0;
    END LOOP;
END $$;
SELECT is((SELECT count(*)::int FROM last), 3000, 'all 3000 are claimed again when the long leases end');

SELECT is((SELECT count(*)::int FROM (SELECT baton.ack(token) FROM baton.claim('q', 'x', 10)) a), 0, 'nothing is left to claim');
SELECT sound('q');
SELECT * FROM finish();
