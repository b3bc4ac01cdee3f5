"""psycopg2: literals and parameters. It writes parameters into the statement, and a list as ARRAY['…', …], which is
text[] to the server: arrays of another type need a cast, for any function."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
from readme import same, skip

try:
    import psycopg2 as driver
except ImportError as error:
    skip(f"psycopg2 is not to be had: {error}")

db = driver.connect("")
db.autocommit = True
cursor = db.cursor()


def rows(sql, *parameters):
    cursor.execute(sql, parameters or None)
    return cursor.fetchall()


def one(sql, *parameters):
    return rows(sql, *parameters)[0]


same("create_queue", (True,), one("SELECT baton.create_queue(%s, backoff => %s)", "psycopg2", "0 s"))
same("enqueue, literals", (1,), one("""SELECT id FROM baton.enqueue('psycopg2', '{"n": 1}')"""))
same("enqueue", (2, "ready"), one("SELECT * FROM baton.enqueue(%s, %s)", "psycopg2", '{"n": 2}'))
same("enqueue_batch", [(1, 3), (2, 4)], rows("SELECT ord, id FROM baton.enqueue_batch(%s, %s::jsonb[])", "psycopg2", ['{"n": 3}', "4"]))
same("enqueue_batch, texts", [(5,), (6,)], rows("SELECT id FROM baton.enqueue_batch(%s, '{5,6}', routing_keys => %s)", "psycopg2", ["a", "b"]))
same("claim, literals", [(1, {"n": 1})], rows("SELECT id, payload FROM baton.claim('psycopg2', 'w1', lease => '1 min')"))
claimed = rows("SELECT token, id FROM baton.claim(%s, %s, max_items => %s, lease => %s)", "psycopg2", "w1", 10, "1 min")
same("claim", [2, 3, 4, 5, 6], [r[1] for r in claimed])
token = [r[0] for r in claimed]
same("ack", ("acked",), one("SELECT baton.ack(%s)", token[0]))
same("ack_batch", (2,), one("SELECT baton.ack_batch(%s)", token[1:3]))
same("release", ("ready", None, 1), one("SELECT * FROM baton.release(%s, delay => %s, reason => %s)", token[3], "0 s", "again"))
same("settle", [(1, "acked"), (2, "already_settled")],
     rows("SELECT * FROM baton.settle(%s, %s, reasons => %s)", [token[4], token[0]], ["ack", "release"], [None, "late"]))
same("wait", ("ready",), one("CALL baton.wait(%s, %s)", "psycopg2", "5 s"))
same("wait, literals", ("ready",), one("CALL baton.wait('psycopg2')"))
same("take", [(5, 1)], rows("SELECT id, failures FROM baton.take(%s)", "psycopg2"))
try:
    rows("SELECT baton.ack(%s)", token[0])
    same("ack twice", "an error", "none")
except driver.Error as error:
    same("ack twice", "QB003", error.pgcode)
same("check", [], rows("SELECT * FROM baton.check('psycopg2')"))
