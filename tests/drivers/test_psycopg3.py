"""psycopg 3: literals and parameters without casts, and the worker loop of README.md."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
from readme import same, skip, snippet

try:
    import psycopg
    from psycopg.types.json import Jsonb
except ImportError as error:
    skip(f"psycopg 3 is not to be had: {error}")

db = psycopg.connect(autocommit=True)


def rows(sql, *parameters):
    return db.execute(sql, parameters).fetchall()


def one(sql, *parameters):
    return rows(sql, *parameters)[0]


same("create_queue", (True,), one("SELECT baton.create_queue(%s, backoff => %s)", "psycopg3", "0 s"))
same("enqueue, literals", (1,), one("""SELECT id FROM baton.enqueue('psycopg3', '{"n": 1}')"""))
same("enqueue, text", (2, "ready"), one("SELECT * FROM baton.enqueue(%s, %s)", "psycopg3", '{"n": 2}'))
same("enqueue, Jsonb", (3,), one("SELECT id FROM baton.enqueue(%s, %s, headers => %s)", "psycopg3", Jsonb({"n": 3}), Jsonb({})))
same("enqueue_batch, text", [(1, 4), (2, 5)], rows("SELECT ord, id FROM baton.enqueue_batch(%s, %s)", "psycopg3", ['{"n": 4}', "5"]))
same("enqueue_batch, Jsonb", [(6,), (7,)], rows("SELECT id FROM baton.enqueue_batch(%s, %s, routing_keys => %s)", "psycopg3", [Jsonb(6), Jsonb(7)], ["a", "b"]))
same("enqueue_bytes", (8,), one("SELECT id FROM baton.enqueue_bytes(%s, %s)", "psycopg3", b"\x00\xff"))

same("claim, literals", [(1, {"n": 1})], rows("SELECT id, payload FROM baton.claim('psycopg3', 'w1', lease => '1 min')"))
claimed = rows("SELECT token, id, payload_bytes FROM baton.claim(%s, %s, max_items => %s, lease => %s)", "psycopg3", "w1", 10, "1 min")
same("claim", [2, 3, 4, 5, 6, 7, 8], [r[1] for r in claimed])
same("bytes", b"\x00\xff", claimed[6][2])
token = [r[0] for r in claimed]
same("extend", True, one("SELECT baton.extend(%s, %s) > now()", token[0], "2 min")[0])
same("ack", ("acked",), one("SELECT baton.ack(%s)", token[0]))
same("ack_batch", (2,), one("SELECT baton.ack_batch(%s)", token[1:3]))
same("release", ("ready", None, 1), one("SELECT * FROM baton.release(%s, delay => %s, reason => %s)", token[3], "0 s", "again"))
same("settle", [(1, "acked"), (2, "scheduled"), (3, "already_settled")],
     rows("SELECT * FROM baton.settle(%s, %s, delays => %s, reasons => %s)", [token[4], token[5], token[0]],
          ["ack", "release", "ack"], [None, "1 h", None], [None, "later", None]))
same("hand_back", [(1, "handed_back")], rows("SELECT * FROM baton.hand_back(%s)", [token[6]]))
same("wait", ("ready",), one("CALL baton.wait(%s, %s)", "psycopg3", "5 s"))
same("wait, literals", ("ready",), one("CALL baton.wait('psycopg3')"))
same("wait_any", ("psycopg3",), one("CALL baton.wait_any(%s, %s)", ["psycopg3"], "5 s"))
same("take", [(5, 1), (8, 0)], sorted(rows("SELECT id, failures FROM baton.take(%s, %s)", "psycopg3", 10)))
same("wait, nothing there", ("timeout",), one("CALL baton.wait(%s, %s)", "psycopg3", "0.05 s"))
try:
    db.execute("SELECT baton.ack(%s)", (token[0],))
    same("ack twice", "an error", "none")
except psycopg.Error as error:
    same("ack twice", "QB003", error.sqlstate)
same("check", [], rows("SELECT * FROM baton.check('psycopg3')"))

# the worker loop
one("SELECT baton.create_queue('loop_py', backoff => '0.1 s')")
db.execute("CREATE TABLE ledger_py (n int)")
rows("SELECT id FROM baton.enqueue_batch('loop_py', %s)", [str(n) for n in range(20)])
loop = {}
exec(compile(snippet("python"), "README.md", "exec"), loop)
failed = []


def handle(connection, n):
    connection.execute("INSERT INTO ledger_py VALUES (%s)", (n,))
    if n == 7 and not failed:
        failed.append(n)
        raise RuntimeError("seven, for the first time")


loop["work"]("loop_py", handle, lambda: one("SELECT count(*) FROM ledger_py")[0] == 20)
same("effects", [(n,) for n in range(20)], rows("SELECT n FROM ledger_py ORDER BY n"))
same("failed", [7], failed)
same("left", [], rows("SELECT id FROM baton_queue.loop_py"))
same("reason", [("seven, for the first time",)], rows("SELECT reason FROM baton.evidence('loop_py', 8)"))
same("check", [], rows("SELECT * FROM baton.check('loop_py')"))

# the same loop, by a worker that once outlives its lease: fenced at ack, its effect rolled back
one("SELECT baton.create_queue('slow_py', lease => '0.3 s', backoff => '0 s')")
one("SELECT id FROM baton.enqueue('slow_py', '1')")
db.execute("CREATE TABLE slow_ledger_py (attempt int)")
attempts = []


def handle_slowly(connection, payload):
    attempts.append(payload)
    connection.execute("INSERT INTO slow_ledger_py VALUES (%s)", (len(attempts),))
    while len(attempts) == 1 and one("SELECT state FROM baton_queue.slow_py") == ("claimed",):
        time.sleep(0.05)


loop["work"]("slow_py", handle_slowly, lambda: rows("SELECT attempt FROM slow_ledger_py") != [])
same("effects of a slow worker", [(2,)], rows("SELECT attempt FROM slow_ledger_py"))
# by ack, which raised, and by settle, which only said so
same("refused", (2,), one("SELECT fenced FROM baton.queue_counters WHERE queue = 'slow_py'"))
