-- What README.md and docs/operations.md say a message costs, measured: psql -X -q -f tests/docs/costs.sql
-- Best on a server that does nothing else. Makes and drops the queue costs. The first write to a page after a checkpoint
-- logs the whole page; so much is written here that it hardly counts.
\set ON_ERROR_STOP 1
\pset tuples_only on
\pset format unaligned
SELECT FROM baton.create_queue('costs');
SELECT 'baton_data.q' || value || '_0' AS segment FROM baton.describe_queue('costs') WHERE option = 'id' \gset

SELECT pg_current_wal_insert_lsn() AS before \gset
DO $$
BEGIN
    FOR i IN 1..1000 LOOP
        PERFORM FROM baton.enqueue_batch('costs', ARRAY(SELECT jsonb_build_object('n', n, 'pad', repeat('x', 170))
                                                        FROM generate_series(1, 100) n));
        COMMIT;
    END LOOP;
END $$;
SELECT format('enqueue, in batches of 100: %s bytes of WAL a message', round((pg_current_wal_insert_lsn() - :'before') / 100000));
SELECT format('on disk: %s bytes a message, %s of them in the lease map', pg_total_relation_size(:'segment') / 100000, pg_indexes_size(:'segment') / 100000);

SELECT 'claim of one among 100,000:';
SELECT count(*) FROM baton.claim('costs') \g /dev/null
EXPLAIN (ANALYZE, BUFFERS, WAL, COSTS off, TIMING off, SUMMARY off) SELECT token FROM baton.claim('costs');

SELECT pg_current_wal_insert_lsn() AS before \gset
DO $$
BEGIN
    FOR i IN 1..500 LOOP
        PERFORM FROM baton.claim('costs', max_items => 100);
        COMMIT;
    END LOOP;
END $$;
SELECT format('claim, in batches of 100: %s bytes of WAL a message', round((pg_current_wal_insert_lsn() - :'before') / 50000));

CREATE TEMPORARY TABLE held AS SELECT row_number() OVER () AS n, token FROM baton.claim('costs', max_items => 10000);
SELECT pg_current_wal_insert_lsn() AS before \gset
DO $$
BEGIN
    FOR i IN 0..99 LOOP
        PERFORM baton.ack_batch(ARRAY(SELECT token FROM held WHERE (n - 1) / 100 = i));
        COMMIT;
    END LOOP;
END $$;
SELECT format('ack, in batches of 100: %s bytes of WAL a message', round((pg_current_wal_insert_lsn() - :'before') / 10000));

-- the same acknowledgements again, of messages that are kept
SELECT FROM baton.alter_queue('costs', retention => '1 day');
DROP TABLE held;
CREATE TEMPORARY TABLE held AS SELECT row_number() OVER () AS n, token FROM baton.claim('costs', max_items => 10000);
SELECT pg_current_wal_insert_lsn() AS before \gset
DO $$
BEGIN
    FOR i IN 0..99 LOOP
        PERFORM baton.ack_batch(ARRAY(SELECT token FROM held WHERE (n - 1) / 100 = i));
        COMMIT;
    END LOOP;
END $$;
SELECT format('ack with retention, in batches of 100: %s bytes of WAL a message', round((pg_current_wal_insert_lsn() - :'before') / 10000));
SELECT format('retained: %s bytes a message', round(sum(pg_relation_size(c.oid)) / 10000)) FROM pg_class c
WHERE c.relnamespace = 'baton_data'::regnamespace AND c.relname ~ '^retained_\d+$';

-- median over calls, for settled messages that are and are not kept
CREATE PROCEDURE pg_temp.time_acks(INOUT us numeric) LANGUAGE plpgsql AS $$
DECLARE
    tokens text[];
    start timestamptz;
    times float8[] := '{}';
BEGIN
    FOR i IN 1..150 LOOP
        SELECT array_agg(token) INTO tokens FROM baton.claim('costs', max_items => 100);
        COMMIT;
        start := clock_timestamp();
        PERFORM baton.ack_batch(tokens);
        COMMIT;
        times := times || EXTRACT(epoch FROM clock_timestamp() - start)::float8;
    END LOOP;
    us := (SELECT round((percentile_cont(0.5) WITHIN GROUP (ORDER BY t) * 1e4)::numeric, 2) FROM unnest(times) t);
END $$;
SET synchronous_commit = off;
SELECT FROM baton.alter_queue('costs', durability => 'async', retention => '0');
SELECT 'ack, in batches of 100: microseconds a message, without and with retention:';
CALL pg_temp.time_acks(NULL);
SELECT FROM baton.alter_queue('costs', retention => '1 day');
CALL pg_temp.time_acks(NULL);
SELECT FROM baton.drop_queue('costs', discard => true);
