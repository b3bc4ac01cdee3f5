#!/usr/bin/env bash
# psql: literals without casts, and psql's own variables in the place of parameters.
set -euo pipefail

command -v psql > /dev/null || { echo "psql is not to be had"; exit 77; }

q() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
is() { # WHAT EXPECTED ACTUAL
  [ "$2" = "$3" ] || { printf '%s: expected %s, got %s\n' "$1" "$2" "$3"; exit 1; }
}
say() { printf '%s' "$1" | q "${@:2}"; }

is create_queue t "$(say "SELECT baton.create_queue('psql', backoff => '0 s')")"
is enqueue 1 "$(say "SELECT id FROM baton.enqueue('psql', '{\"n\": 1}')")"
is "enqueue with variables" "2|ready" "$(say "SELECT * FROM baton.enqueue(:'queue', :'payload', headers => :'payload')" -v queue=psql -v payload='{"n": 2}')"
is enqueue_batch "3 4" "$(say "SELECT id FROM baton.enqueue_batch('psql', '{3,4}', routing_keys => '{a,b}')" | xargs)"
is "enqueue_batch, one value for all" "5 6" "$(say "SELECT id FROM baton.enqueue_batch('psql', '{5,6}', message_classes => '{mail}')" | xargs)"
is enqueue_bytes 7 "$(say "SELECT id FROM baton.enqueue_bytes('psql', '\\x00ff')")"

mapfile -t token < <(say "SELECT token FROM baton.claim('psql', 'w1', max_items => 7, lease => '1 min') ORDER BY id")
is claim 7 "${#token[@]}"
is ack acked "$(say "SELECT baton.ack('${token[0]}')")"
is "ack with a variable" acked "$(say "SELECT baton.ack(:'token')" -v token="${token[1]}")"
is ack_batch 2 "$(say "SELECT baton.ack_batch(ARRAY['${token[2]}', '${token[3]}'])")"
is "release, now" "ready||1" "$(say "SELECT * FROM baton.release('${token[4]}', '0 s', reason => 'again')")"
is "release, not a failure" scheduled "$(say "SELECT state FROM baton.release('${token[5]}', delay => '1 h', failed => false)")"
is settle "1|acked 2|already_settled 3|invalid_token" \
  "$(say "SELECT * FROM baton.settle(ARRAY['${token[6]}', '${token[0]}', 'x'], '{ack}')" | xargs)"
is wait ready "$(say "CALL baton.wait('psql')")"
is "wait with a variable" ready "$(say "CALL baton.wait(:'queue', '1 s')" -v queue=psql)"
is wait_any psql "$(say "CALL baton.wait_any('{psql}', '1 s')")"
is "the message that was released" "5|1" "$(say "SELECT id, failures FROM baton.take('psql')")"
is "wait, nothing there" timeout "$(say "CALL baton.wait('psql', '0.05 s')")"
is "ack twice" QB003 "$(psql -X -q -A -t -v VERBOSITY=sqlstate -c "SELECT baton.ack('${token[0]}')" 2>&1 | sed 's/^ERROR:  //')"
is check "" "$(say "SELECT * FROM baton.check('psql')")"
