// node-pg: literals and parameters without casts, and the worker loop of README.md.
import { packageOrSkip, readmeModule, same } from "./lib/check.mjs";

const pg = await packageOrSkip("pg");
const db = new pg.Client({ host: process.env.PGHOST });
await db.connect();

const rows = async (sql, ...parameters) => (await db.query({ text: sql, values: parameters, rowMode: "array" })).rows;
const one = async (sql, ...parameters) => (await rows(sql, ...parameters))[0];

same("create_queue", [true], await one("SELECT baton.create_queue($1, backoff => $2)", "node_pg", "0 s"));
same("enqueue, literals", ["1"], await one(`SELECT id FROM baton.enqueue('node_pg', '{"n": 1}')`));
same("enqueue, object", ["2", "ready"], await one("SELECT * FROM baton.enqueue($1, $2)", "node_pg", { n: 2 }));
same("enqueue, text", ["3"], await one("SELECT id FROM baton.enqueue($1, $2, headers => $3)", "node_pg", '{"n": 3}', {}));
same("enqueue_batch, objects", [[1, "4"], [2, "5"]], await rows("SELECT ord, id FROM baton.enqueue_batch($1, $2)", "node_pg", [{ n: 4 }, { n: 5 }]));
same("enqueue_batch, texts", [["6"], ["7"]], await rows("SELECT id FROM baton.enqueue_batch($1, $2, routing_keys => $3)", "node_pg", ["6", "7"], ["a", "b"]));
same("enqueue_bytes", ["8"], await one("SELECT id FROM baton.enqueue_bytes($1, $2)", "node_pg", Buffer.from([0, 255])));

same("claim, literals", [["1", { n: 1 }]], await rows("SELECT id, payload FROM baton.claim('node_pg', 'w1', lease => '1 min')"));
const claimed = await rows("SELECT token, id, payload FROM baton.claim($1, $2, max_items => $3, lease => $4)", "node_pg", "w1", 10, "1 min");
same("claim", ["2", "3", "4", "5", "6", "7", "8"], claimed.map((r) => r[1]));
same("payload", { n: 5 }, claimed[3][2]);
const token = claimed.map((r) => r[0]);
same("ack", ["acked"], await one("SELECT baton.ack($1)", token[0]));
same("ack_batch", [2], await one("SELECT baton.ack_batch($1)", token.slice(1, 3)));
same("release", ["ready", null, 1], await one("SELECT * FROM baton.release($1, delay => $2, reason => $3)", token[3], "0 s", "again"));
same("settle", [[1, "acked"], [2, "scheduled"], [3, "already_settled"]],
  await rows("SELECT * FROM baton.settle($1, $2, delays => $3, reasons => $4)", [token[4], token[5], token[0]],
    ["ack", "release", "ack"], [null, "1 h", null], [null, "later", null]));
same("hand_back", [[1, "handed_back"]], await rows("SELECT * FROM baton.hand_back($1)", [token[6]]));
same("wait", ["ready"], await one("CALL baton.wait($1, $2)", "node_pg", "5 s"));
same("wait, literals", ["ready"], await one("CALL baton.wait('node_pg')"));
same("wait_any", ["node_pg"], await one("CALL baton.wait_any($1, $2)", ["node_pg"], "5 s"));
same("take", ["5", "8"], (await rows("SELECT id FROM baton.take($1, $2)", "node_pg", 10)).map((r) => r[0]).sort());
same("ack twice", "QB003", await one("SELECT baton.ack($1)", token[0]).then(() => "no error", (error) => error.code));
same("check", [], await rows("SELECT * FROM baton.check('node_pg')"));

// LISTEN instead of wait: a consumer that claims only when it is told, until nothing is left
await one("SELECT baton.create_queue($1, notify => true)", "Notified js");
const [channel] = await one("SELECT baton.channel($1)", "Notified js");
const told = [];
let tell = () => {};
db.on("notification", (n) => { told.push(n.payload); tell(); });
await db.query("LISTEN " + channel);
const producer = new pg.Client({ host: process.env.PGHOST });
await producer.connect();
await producer.query("BEGIN");
for (let i = 0; i < 1000; i++) await producer.query("SELECT baton.enqueue($1, $2)", ["Notified js", i]);
await producer.query("COMMIT");
await producer.end();
const deadline = Date.now() + 60000;
let got = 0;
for (let seen = 0; got < 1000 && Date.now() < deadline; ) {
  if (told.length === seen) await new Promise((resolve) => { tell = resolve; setTimeout(resolve, 1000); });
  if (told.length === seen) continue;
  seen = told.length;
  for (let n; (n = (await rows("SELECT id FROM baton.take($1, 100)", "Notified js")).length) > 0; ) got += n;
}
same("told, and taken", 1000, got);
same("few notifications", true, told.length < 20);
same("with the queue's name", ["Notified js"], [...new Set(told)]);
await db.query("UNLISTEN *");

// the worker loop
const { work } = await readmeModule("js", "readme_loop.mjs");
await one("SELECT baton.create_queue('loop_js', backoff => '0.1 s')");
await db.query("CREATE TABLE ledger_js (n int)");
await rows("SELECT id FROM baton.enqueue_batch('loop_js', $1)", Array.from({ length: 20 }, (_, n) => String(n)));
let done = 0;
const failed = [];
await work("loop_js", async (connection, n) => {
  await connection.query("INSERT INTO ledger_js VALUES ($1)", [n]);
  if (n === 7 && failed.length === 0) {
    failed.push(n);
    throw new Error("seven, for the first time");
  }
  done++;
}, () => done === 20);
same("effects", Array.from({ length: 20 }, (_, n) => [n]), await rows("SELECT n FROM ledger_js ORDER BY n"));
same("failed", [7], failed);
same("left", [], await rows("SELECT id FROM baton_queue.loop_js"));
same("reason", [["Error: seven, for the first time"]], await rows("SELECT reason FROM baton.evidence('loop_js', 8)"));
same("check", [], await rows("SELECT * FROM baton.check('loop_js')"));
await db.end();
