-- The outbox trigger: the new rows of a business table become messages, once per statement, in its transaction.
\ir prelude.psql

SELECT plan(39);
SELECT baton.create_queue('q', max_payload_bytes => 1000) \gset
SELECT baton.create_queue('MyQueue') \gset
CREATE TABLE orders (id integer PRIMARY KEY, customer text, amount numeric, note text, "Odd Name" jsonb, at timestamptz, doubled numeric GENERATED ALWAYS AS (amount * 2) STORED);
CREATE TRIGGER outbox AFTER INSERT ON orders REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q');

INSERT INTO orders VALUES (1, 'ann', 1.50, NULL, '{"x": [1]}', '2024-02-29 12:00+00');
SELECT is((SELECT payload - 'at' FROM baton.claim('q')), '{"id": 1, "customer": "ann", "amount": 1.50, "note": null, "Odd Name": {"x": [1]}, "doubled": 3.00}', 'the row as JSON');
INSERT INTO orders (id, note) SELECT i, 'bulk' FROM generate_series(2, 1801) i;
SELECT results_eq($$SELECT (payload ->> 'id')::int FROM baton.take('q', 10000)$$, 'SELECT generate_series(2, 1801)', 'one message per row, in order');
COPY orders (id, note) FROM PROGRAM 'seq 2001 2600 | sed s/$/\\tcopied/';
SELECT is((SELECT count(*)::int FROM baton.take('q', 10000) WHERE payload ->> 'note' = 'copied'), 600, 'COPY');
INSERT INTO orders (id) SELECT 1 WHERE false;
SELECT is(baton.why_empty('q'), 'empty', 'no rows, no messages');
INSERT INTO orders (id) VALUES (1), (3000) ON CONFLICT DO NOTHING;
SELECT is((SELECT string_agg(payload ->> 'id', ',') FROM baton.take('q', 10)), '3000', 'ON CONFLICT: only what was inserted');
UPDATE orders SET note = 'changed' WHERE id = 1;
DELETE FROM orders WHERE id = 3000;
SELECT is(baton.why_empty('q'), 'empty', 'an AFTER INSERT trigger says nothing of UPDATE and DELETE');
MERGE INTO orders o USING (VALUES (1), (3001)) v (id) ON v.id = o.id WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT (id) VALUES (v.id);
SELECT is((SELECT string_agg(payload ->> 'id', ',') FROM baton.take('q', 10)), '3001', 'MERGE: only what was inserted');

-- the business transaction's own
BEGIN;
INSERT INTO orders (id) VALUES (4000);
ROLLBACK;
SELECT is(baton.why_empty('q'), 'empty', 'rolled back with it');
BEGIN;
INSERT INTO orders (id) VALUES (4001);
SAVEPOINT s;
INSERT INTO orders (id) VALUES (4002);
ROLLBACK TO s;
INSERT INTO orders (id) VALUES (4003);
COMMIT;
SELECT is((SELECT string_agg(payload ->> 'id', ',') FROM baton.take('q', 10)), '4001,4003', 'savepoints');
SELECT is(head_of($$INSERT INTO orders (id, note) VALUES (5000, repeat('x', 2000))$$), '22023: payload is too large', 'what the queue refuses');
SELECT is((SELECT count(*)::int FROM orders WHERE id = 5000), 0, 'is not written either');
SELECT is(head_of($$INSERT INTO orders (id, note) SELECT i, CASE WHEN i = 6700 THEN repeat('x', 2000) END FROM generate_series(6000, 6999) i$$), '22023: payload is too large', 'one of a thousand');
SELECT is(baton.why_empty('q'), 'empty', 'none is enqueued');

-- the routing key
CREATE TRIGGER keyed AFTER INSERT ON orders REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('MyQueue', 'customer');
INSERT INTO orders (id, customer) VALUES (7000, 'bob'), (7001, NULL), (7002, '');
SELECT results_eq($$SELECT routing_key FROM baton.take('MyQueue', 10)$$, $$VALUES ('bob'), (NULL), ('')$$, 'a column as routing key; case of the queue''s name kept');
SELECT is((SELECT count(*)::int FROM baton.take('q', 10) WHERE routing_key IS NULL), 3, 'two triggers, two queues');
SELECT is(head_of($$INSERT INTO orders (id, customer) VALUES (7003, repeat('x', 256))$$), '22023: routing_key is too long', 'a key that is too long');
DROP TRIGGER keyed ON orders;
CREATE TRIGGER keyed AFTER INSERT ON orders REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('MyQueue', 'id');
INSERT INTO orders (id) VALUES (7010);
SELECT is((SELECT routing_key FROM baton.take('MyQueue', 10)), '7010', 'a key of another type is its text');
DROP TRIGGER keyed ON orders;

-- AFTER UPDATE: the rows as they are then
CREATE TRIGGER updated AFTER UPDATE ON orders REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('MyQueue');
UPDATE orders SET note = 'u' WHERE id IN (7000, 7001);
SELECT is((SELECT string_agg(payload ->> 'note', ',') FROM baton.take('MyQueue', 10)), 'u,u', 'AFTER UPDATE: the new rows');

-- partitioned and inherited tables
CREATE TABLE parts (id integer, region text) PARTITION BY LIST (region);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a');
CREATE TABLE parts_b (region text, id integer);
ALTER TABLE parts ATTACH PARTITION parts_b FOR VALUES IN ('b');
CREATE TRIGGER o AFTER INSERT ON parts REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('MyQueue', 'region');
INSERT INTO parts VALUES (1, 'a'), (2, 'b');
SELECT results_eq($$SELECT payload, routing_key FROM baton.take('MyQueue', 10)$$, $$VALUES ('{"id": 1, "region": "a"}'::jsonb, 'a'), ('{"id": 2, "region": "b"}', 'b')$$, 'a partitioned table, columns in another order');

-- dropped columns, and a table that has none
SELECT ok(count(*) > 0, 'emptied') FROM baton.take('q', 100);
ALTER TABLE orders DROP COLUMN note, DROP COLUMN customer;
INSERT INTO orders (id) VALUES (8000);
SELECT is((SELECT payload ? 'note' FROM baton.take('q', 10)), false, 'dropped columns are not in it');
SELECT is(head_of($$CREATE TRIGGER gone AFTER INSERT ON orders REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('MyQueue', 'customer')$$), 'no error', 'a trigger with a column that is gone');
SELECT is(head_of($$INSERT INTO orders (id) VALUES (8001)$$), '42703: column "customer" of the outbox trigger does not exist', 'says so when it fires');
DROP TRIGGER gone ON orders;
CREATE TABLE nothing ();
CREATE TRIGGER o AFTER INSERT ON nothing REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q');
INSERT INTO nothing DEFAULT VALUES;
SELECT is((SELECT payload FROM baton.take('q', 10)), '{}', 'a table without columns');

-- declared wrongly: said when it fires
CREATE TABLE t (i integer);
CREATE FUNCTION fires(declaration text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE 'CREATE TRIGGER wrong ' || declaration;
    answer := error_of('INSERT INTO t VALUES (1)');
    DROP TRIGGER wrong ON t;
    RETURN answer;
END $$;
SELECT is(fires($$AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION baton.outbox('q')$$), '39P01: baton.outbox must be an AFTER … FOR EACH STATEMENT trigger', 'FOR EACH ROW');
SELECT is(fires($$BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q')$$), '39P01: baton.outbox must be an AFTER … FOR EACH STATEMENT trigger', 'BEFORE');
SELECT is(fires($$AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q')$$), E'39P01: baton.outbox needs the new rows\nHINT: Add REFERENCING NEW TABLE AS new_rows to CREATE TRIGGER.', 'without the new rows');
SELECT is(fires($$AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox()$$), '39P01: baton.outbox takes the queue''s name and, optionally, the column of the routing key', 'without a queue');
SELECT is(fires($$AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('q', 'i', 'x')$$), '39P01: baton.outbox takes the queue''s name and, optionally, the column of the routing key', 'with too much');
SELECT is(fires($$AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('none')$$), E'42704: queue "none" does not exist\nHINT: SELECT name FROM baton.queues lists the queues you may see.', 'with a queue that is not there');
SELECT is(fires(format('AFTER INSERT ON t REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox(%L)', repeat('x', 64))), format(E'42704: queue "%s" does not exist\nHINT: SELECT name FROM baton.queues lists the queues you may see.', repeat('x', 64)), 'with a name that is too long');
SELECT is(head_of('SELECT baton.outbox()'), '39P01: baton.outbox must be an AFTER … FOR EACH STATEMENT trigger', 'called as a function');
SELECT alike(head_of(format('SELECT baton_internal.%I()', f)), '39P01: only for the views in schema baton_queue', 'called as a function: ' || f) FROM unnest('{view_insert,view_insert_done}'::text[]) f;
SELECT alike(head_of('SELECT baton_internal.view_refuse()'), '0A000: messages are not updated directly', 'called as a function: view_refuse');

-- a queue that is dropped
SELECT ok(baton.drop_queue('MyQueue', discard => true), 'dropped');
SELECT is(head_of($$INSERT INTO parts VALUES (3, 'a')$$), '42704: queue "MyQueue" does not exist', 'the business transaction fails, it does not lose its message');

SELECT sound('q');
SELECT ok(baton.drop_queue('q', discard => true), 'dropped');
SELECT * FROM finish();
