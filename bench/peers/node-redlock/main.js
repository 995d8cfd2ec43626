// Locks with node-redlock, on one server or, by the Redlock algorithm, on several.
"use strict";

const { parseArgs } = require("node:util");
const { once } = require("node:events");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");
// The package does not export its own description.
const version = require("./node_modules/redlock/package.json").version.replace(/^v/, "");

const LEASE_MS = 10_000;
// More sections are thinned out: the line stays short enough to be read at once.
const MOST = 50_000;

const text = { type: "string" };
const { values } = parseArgs({
  options: {
    url: text, work: text, callers: text, seconds: text, "warm-seconds": text,
    "section-ms": text, "pause-ms": text, name: text, count: text, "poll-us": text,
  },
});
const options = {
  urls: values.url.split(","),
  work: values.work ?? "pairs",
  callers: Number(values.callers ?? 1),
  seconds: Number(values.seconds ?? 1),
  sectionMs: Number(values["section-ms"] ?? 0),
  pauseMs: Number(values["pause-ms"] ?? 0),
  prefix: values.name ?? "peers",
  count: Number(values.count ?? 1000),
};
const warming = {
  ...options,
  work: "pairs",
  seconds: Number(values["warm-seconds"] ?? 0.2),
  sectionMs: 0,
  pauseMs: 0,
  prefix: `${options.prefix}/warm/${process.pid}`,
};

// Nanoseconds of the clock that all processes of a machine share. A number holds them for a hundred days since the machine's start.
const now = () => Number(process.hrtime.bigint());

// A timer of Node is up to a millisecond late, so this blocks the thread: only one caller of a process has sections that take time.
const clock = new Int32Array(new SharedArrayBuffer(4));
const pass = (ms) => ms > 0 && Atomics.wait(clock, 0, 0, ms);

const clients = options.urls.map((url) => new Redis(url, { enableAutoPipelining: options.callers > 1 }));
const redlock = new Redlock(clients, {
  retryCount: -1,
  // Whole milliseconds, of which a timer takes one at least.
  retryDelay: Math.round(Number(values["poll-us"] ?? 500) / 1000),
  retryJitter: 1,
});
redlock.on("error", () => {});

function nextName({ work, prefix, count }, caller, numbers, end) {
  if (work === "names") {
    const number = numbers.next++;
    return number < count ? `${prefix}/${number}` : undefined;
  }
  if (now() >= end) return undefined;
  return work === "shared" ? prefix : `${prefix}/${caller}`;
}

async function call(work, caller, numbers, end, times) {
  for (;;) {
    const name = nextName(work, caller, numbers, end);
    if (name === undefined) return;
    const asked = now();
    const lock = await redlock.acquire([name], LEASE_MS);
    const acquired = now();
    pass(work.sectionMs);
    const releasing = now();
    await lock.release();
    times.push([asked, acquired - asked, releasing - acquired, now() - releasing]);
    pass(work.pauseMs);
  }
}

async function run(work) {
  const times = [];
  const numbers = { next: 0 };
  const end = now() + work.seconds * 1e9;
  const calls = Array.from({ length: work.callers }, (_, caller) => call(work, caller, numbers, end, times));
  await Promise.all(calls);
  return times;
}

async function main() {
  await run(warming);
  console.log("ready");
  await once(process.stdin, "data");
  const begin = now();
  const all = await run(options);
  const seconds = (now() - begin) / 1e9;
  const every = Math.max(1, Math.ceil(all.length / MOST));
  const times = all.filter((_, index) => index % every === 0);
  const line = JSON.stringify({ version, sections: all.length, seconds, every, times });
  process.stdout.write(`${line}\n`, () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
