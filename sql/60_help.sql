-- The manual that is always at hand: SELECT * FROM baton.help();
CREATE FUNCTION baton.help(topic text DEFAULT NULL) RETURNS SETOF text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE ROWS 30
    SET search_path = pg_catalog, pg_temp
AS $help$
DECLARE
    page text;
BEGIN
    page := CASE lower(coalesce(topic, ''))
    WHEN '' THEN $$
pg_baton: a work queue with leases and fenced acknowledgement.

  SELECT baton.create_queue('orders');
  SELECT * FROM baton.enqueue('orders', '{"order": 1}');           -- in your own transaction
  SELECT * FROM baton.claim('orders', worker => 'w1', max_items => 10, lease => '1 min');
  SELECT baton.ack('<token>');                                     -- in the transaction of its effect

Topics: SELECT * FROM baton.help('enqueue');
  enqueue      putting work in: single, batches, INSERT, COPY, outbox trigger
  claim        taking work under lease, waiting for it
  settle       ack, release, quarantine, hand_back, extend, start
  admin        making, changing, pausing, moving and dropping queues
  views        looking: queues, queue_stats, in_flight, segments, health, explain_message
  privileges   what each grant allows
  outcomes     what the verbs answer, with SQLSTATEs (or SELECT * FROM baton.outcomes())
  settings     pg_baton.* in postgresql.conf
$$
    WHEN 'enqueue' THEN $$
Joins your transaction: commit makes the work visible, rollback makes it never have been.

  SELECT * FROM baton.enqueue('orders', '{"order": 1}');
  SELECT * FROM baton.enqueue('orders', '{"order": 2}', routing_key => 'c-7', delay => '10 min');
  SELECT * FROM baton.enqueue_bytes('orders', '\x00ff');
  SELECT * FROM baton.enqueue_batch('orders', ARRAY['{"order": 3}', '{"order": 4}']::jsonb[]);
  INSERT INTO baton_queue.orders (payload) SELECT to_jsonb(o) FROM old_orders o;
  COPY baton_queue.orders (payload) FROM STDIN;

Work from a business table, once per statement:
  CREATE TRIGGER orders_outbox AFTER INSERT ON orders REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION baton.outbox('orders');

delay or not_before: not handed out before. expires_at: not handed out after.
$$
    WHEN 'claim' THEN $$
Acts at once: a claim is not undone by your rollback; it then counts as a failure.

  SELECT * FROM baton.claim('orders', worker => 'w1', max_items => 10, lease => '1 min');
  SELECT * FROM baton.take('orders');      -- claim and settle: commit = done, rollback = back
  CALL baton.wait('orders');               -- sleep until there is something; holds no snapshot
  CALL baton.wait_any(ARRAY['orders', 'mail']);
  SELECT baton.channel('orders');          -- LISTEN to it, if the queue has notify => true
  SELECT baton.why_empty('orders');

Use claim and take in FROM, and without LIMIT: max_items is the limit.
$$
    WHEN 'settle' THEN $$
Join your transaction: ack, release, quarantine, settle. Act at once: start, extend, hand_back.

  SELECT baton.ack('<token>');
  SELECT baton.ack_batch(ARRAY['<token>', '<token>']);
  SELECT * FROM baton.release('<token>', reason => 'rate limited', delay => '30 s');
  SELECT * FROM baton.release('<token>', failed => false, delay => '0 s');
  SELECT baton.quarantine('<token>', 'unknown currency');
  SELECT * FROM baton.hand_back(ARRAY['<token>']);                 -- not started, counts no failure
  SELECT baton.start('<token>');
  SELECT baton.extend('<token>', '5 min');                         -- deadline = now + 5 min
  SELECT * FROM baton.settle(ARRAY['<token>', '<token>'], ARRAY['ack', 'release']);
  SELECT * FROM baton.settle_and_claim('orders', ARRAY['<token>'], worker => 'w1');

ack, release, quarantine, extend and start raise when the token is fenced, so that the transaction
with the effect rolls back; settle, extend_batch and hand_back answer with one outcome per token.
$$
    WHEN 'admin' THEN $$
  SELECT baton.create_queue('orders', lease => '1 min', max_attempts => 5);
  SELECT baton.alter_queue('orders', backoff => '5 s');
  SELECT * FROM baton.describe_queue('orders');                    -- every option
  SELECT baton.pause('orders');     SELECT baton.resume('orders');
  SELECT baton.fence('orders');                                    -- kill every token at once
  SELECT baton.revoke('orders', 42);                               -- take one from its worker
  SELECT * FROM baton.lease_grace('orders', '5 min');              -- all leases: so much longer
  SELECT r.* FROM baton_queue.orders o, baton.reschedule('orders', o.id, '0 s') r
    WHERE o.state = 'scheduled';                                   -- what waits: now
  SELECT baton.adopt('orders');                                    -- this copy is meant to work
  SELECT baton.activate('orders');                                 -- replicated work is ready
  SELECT * FROM baton.replay('orders', from_time => '2026-11-30 08:00');              -- dry run
  SELECT baton.hold('orders', 'case 4711');     SELECT baton.unhold('orders');
  SELECT baton.hold_rotation('2 h', 'orders');                     -- no truncation: for a dump
  SELECT baton.drop_queue('orders');                               -- refuses while work is in it
  SELECT * FROM baton.check('orders');                             -- no row: sound
  SELECT * FROM baton.uninstall();                                 -- what it would drop: all

create_queue needs CREATE on schema baton_queue; revoke and reschedule, DELETE on the queue's
view;
uninstall, ownership of the extension; the others, ownership of the queue's view.
$$
    WHEN 'views' THEN $$
  TABLE baton.queues;            what there is and whether it works
  TABLE baton.queue_stats;       messages by state, exact (reads the maps)
  TABLE baton.queue_counters;    what happened since server start
  TABLE baton.in_flight;         who holds what, for how long, started or not
  TABLE baton.segments;          the ring of work tables of each queue
  TABLE baton.health;            what an operator should know
  TABLE baton.horizon;           what keeps rows from being reclaimed
  TABLE baton.audit;             who took work away, destroyed or overruled something
  TABLE baton_queue.orders;      the unsettled messages of a queue
  SELECT * FROM baton.explain_message('orders', 42);               -- why does it not run
  SELECT * FROM baton.quarantined('orders');
  SELECT * FROM baton.retained('orders', from_time => now() - interval '1 hour');
  SELECT * FROM baton.evidence('orders', 42);                      -- what failed attempts said
  SELECT baton.backlog('orders');                                  -- for autoscalers
$$
    WHEN 'privileges' THEN $$
A queue's privileges are those of its view:

  GRANT INSERT ON baton_queue.orders TO shop;                      -- may enqueue
  GRANT UPDATE ON baton_queue.orders TO worker;                    -- may claim, take, settle
  GRANT SELECT ON baton_queue.orders TO support;                   -- may look
  GRANT SELECT (id, state, worker, lease_until) ON baton_queue.orders TO oncall;     -- no payloads
  GRANT DELETE ON baton_queue.orders TO chief;                     -- may revoke, purge, redrive
  GRANT CREATE ON SCHEMA baton_queue TO shop;                      -- may make queues

Settling takes the token as well. The owner of the view may alter and drop the queue.
pg_monitor may read every view, without payloads.
$$
    WHEN 'settings' THEN $$
  pg_baton.enabled = on               kill switch for every verb and worker (reload)
  pg_baton.claims = on                off: claims come back empty (reload)
  pg_baton.session_claims = off       on: claims of this session end with it
  pg_baton.settle_timeout = 5s        longest wait of a settlement for another of its message
  pg_baton.wait_recheck = 1s          a waiting session looks for itself at least this often

All of them: SELECT name, setting, unit, short_desc FROM pg_settings WHERE name LIKE 'pg_baton.%';
$$
    END;
    IF lower(topic) = 'outcomes' THEN
        RETURN QUERY SELECT format('%-18s %s  %s', o.outcome, o.sqlstate, o.meaning) FROM baton.outcomes() o;
    ELSIF page IS NULL THEN
        RAISE EXCEPTION 'no help on "%"', topic
            USING ERRCODE = '22023', HINT = 'SELECT * FROM baton.help() lists the topics.';
    ELSE
        RETURN QUERY SELECT regexp_split_to_table(trim(both E'\n' from page), E'\n');
    END IF;
END
$help$;
COMMENT ON FUNCTION baton.help IS 'short manual; SELECT * FROM baton.help() lists the topics';
