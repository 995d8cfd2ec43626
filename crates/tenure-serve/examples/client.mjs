// A lock over HTTP, with what Node has: node client.mjs NAME
import { once } from "node:events";

const server = process.env.TENURE_SERVER ?? "http://127.0.0.1:7878";
const token = process.env.TENURE_SERVE_TOKEN;

async function call(name, operation, body) {
  const answer = await fetch(`${server}/v1/locks/${encodeURIComponent(name)}/${operation}`, {
    method: "POST",
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    body: JSON.stringify(body),
  });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.detail);
  return data;
}

const name = process.argv[2];
const lock = await call(name, "acquire", { wait_ms: 10_000, lease_ms: 30_000, note: "client.mjs" });
try {
  console.log(`held with fence ${lock.fence}`);
  await once(process.stdin, "data"); // the work; call renew before lease_ms is over
  await call(name, "renew", { handle: lock.handle });
} finally {
  await call(name, "release", { handle: lock.handle });
}
console.log("released");
process.exit(0);
