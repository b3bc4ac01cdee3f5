// postgres.js: literals and parameters without casts.
import { packageOrSkip, same } from "./lib/check.mjs";

const postgres = await packageOrSkip("postgres");
const sql = postgres({ host: process.env.PGHOST, port: Number(process.env.PGPORT), max: 1, onnotice: () => {} });

const values = async (query) => [...(await query.values())];

same("create_queue", [[true]], await values(sql`SELECT baton.create_queue(${"postgres_js"}, backoff => ${"0 s"})`));
same("enqueue, literals", [["1"]], await values(sql`SELECT id FROM baton.enqueue('postgres_js', '{"n": 1}')`));
same("enqueue, object", [["2", "ready"]], await values(sql`SELECT * FROM baton.enqueue(${"postgres_js"}, ${{ n: 2 }})`));
same("enqueue, sql.json", [["3"]], await values(sql`SELECT id FROM baton.enqueue(${"postgres_js"}, ${sql.json({ n: 3 })}, headers => ${{}})`));
same("enqueue_batch", [["4"], ["5"]], await values(sql`SELECT id FROM baton.enqueue_batch(${"postgres_js"}, ${[{ n: 4 }, { n: 5 }]})`));
same("enqueue_batch, literals", [["6"], ["7"]], await values(sql`SELECT id FROM baton.enqueue_batch('postgres_js', '{6,7}', routing_keys => ${["a", "b"]})`));
same("enqueue_bytes", [["8"]], await values(sql`SELECT id FROM baton.enqueue_bytes(${"postgres_js"}, ${Buffer.from([0, 255])})`));

same("claim, literals", [["1", { n: 1 }]], await values(sql`SELECT id, payload FROM baton.claim('postgres_js', 'w1', lease => '1 min')`));
const claimed = await values(sql`SELECT token, id, payload FROM baton.claim(${"postgres_js"}, ${"w1"}, max_items => ${10}, lease => ${"1 min"})`);
same("claim", ["2", "3", "4", "5", "6", "7", "8"], claimed.map((r) => r[1]));
same("payload", { n: 5 }, claimed[3][2]);
const token = claimed.map((r) => r[0]);
same("ack", [["acked"]], await values(sql`SELECT baton.ack(${token[0]})`));
same("ack_batch", [[2]], await values(sql`SELECT baton.ack_batch(${token.slice(1, 3)})`));
same("release", [["ready", null, 1]], await values(sql`SELECT * FROM baton.release(${token[3]}, delay => ${"0 s"}, reason => ${"again"})`));
same("settle", [[1, "acked"], [2, "scheduled"]],
  await values(sql`SELECT * FROM baton.settle(${[token[4], token[5]]}, ${["ack", "release"]}, delays => ${["0 s", "1 h"]}, reasons => ${["", "later"]})`));
same("hand_back", [[1, "handed_back"]], await values(sql`SELECT * FROM baton.hand_back(${[token[6]]})`));
same("wait", [["ready"]], await values(sql`CALL baton.wait(${"postgres_js"}, ${"5 s"})`));
same("wait, literals", [["ready"]], await values(sql`CALL baton.wait('postgres_js')`));
same("take", ["5", "8"], (await values(sql`SELECT id FROM baton.take(${"postgres_js"}, ${10})`)).map((r) => r[0]).sort());
same("a transaction of a producer", [["9"]], await sql.begin(async (tx) => {
  await tx`CREATE TABLE postgres_js_order (id int)`;
  await tx`INSERT INTO postgres_js_order VALUES (${1})`;
  return [...(await tx`SELECT id FROM baton.enqueue(${"postgres_js"}, ${{ order: 1 }})`.values())];
}));
same("ack twice", "QB003", await sql`SELECT baton.ack(${token[0]})`.then(() => "no error", (error) => error.code));
same("check", [], await values(sql`SELECT * FROM baton.check('postgres_js')`));
await sql.end();
