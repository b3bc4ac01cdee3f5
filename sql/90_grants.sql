-- Everybody may name what is in baton and baton_queue. The verbs check the caller's privileges on the queue's view
-- themselves, and the views show only queues that their reader may look at.
GRANT USAGE ON SCHEMA baton, baton_queue TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA baton TO PUBLIC;

-- Nobody may name anything in baton_internal or baton_data: no USAGE. What is granted below is used through views and
-- functions whose text was looked up when they were made; each of these filters or checks for itself.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA baton_internal FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    baton_internal.map_slots(regclass),
    baton_internal.map_meta(regclass),
    baton_internal.map_counts(regclass),
    baton_internal.map_claims(regclass),
    baton_internal.kept_by(regclass),
    baton_internal.shared_messages(integer),
    baton_internal.shared_counts(integer),
    baton_internal.long_held(),
    baton_internal.queue_counters(integer),
    baton_internal.worker_status(),
    baton_internal.require_look(text),
    baton_internal.at_home(bigint, oid),
    baton_internal.library_version(),
    baton_internal.message_state(text, timestamptz),
    baton_internal.is_unsettled(text),
    baton_internal.token_is_well_formed(text)
    TO PUBLIC;
GRANT SELECT ON baton_internal.visible_quarantined, baton_internal.visible_evidence, baton_internal.visible_queue TO PUBLIC;
