// The locks as the server has sent them, and those that the user wants to see, in order.

const STUCK = 60_000;
const ENDING = 5_000;

export const ORDERS = {
  name: { label: "Name", key: (it) => it.name },
  kind: { label: "Kind", key: (it) => it.kind ?? "" },
  holder: { label: "Holder", key: (it) => it.search.slice(it.name.length) },
  held: { label: "Held for", key: (it) => it.since },
  lease: { label: "Lease left", key: (it) => it.until },
  fence: { label: "Fence", key: (it) => it.fence },
  waiting: { label: "Waiting", key: (it) => -it.waiting },
};

export class Model {
  constructor() {
    this.locks = new Map();
    this.filter = { text: "", kind: "", which: "" };
    this.order = "name";
    this.is_reversed = false;
    this.shown = [];
    this.skew = 0;
    this.is_read = false;
  }

  /** The server's time. */
  now() {
    return Date.now() + this.skew;
  }

  snapshot(data) {
    const before = this.locks;
    this.locks = new Map();
    this.tick(data.at_ms);
    for (const lock of data.locks) this.put(lock, data.at_ms, before.get(lock.name));
    this.is_read = true;
    this.select();
  }

  /** Applies a change, and says whether the table must be ordered again. */
  change(data) {
    this.tick(data.at_ms);
    for (const lock of data.set ?? []) this.put(lock, data.at_ms, this.locks.get(lock.name));
    for (const name of data.gone ?? []) this.locks.delete(name);
    for (const [name, leases] of data.renewed ?? []) {
      const lock = this.locks.get(name);
      if (!lock) continue;
      lock.holders.forEach((holder, at) => {
        if (leases[at] != null) holder.lease_left_ms = leases[at];
      });
      describe(lock, data.at_ms, lock);
    }
    this.is_read = true;
    const is_new = Boolean(data.set || data.gone || (data.renewed && this.order === "lease"));
    if (is_new) this.select();
    return is_new;
  }

  /** The smallest difference of the clocks seen is the most exact one. */
  tick(at_ms) {
    if (!at_ms) return;
    const skew = at_ms - Date.now();
    this.skew = this.is_read ? Math.max(this.skew - 5, skew) : skew;
  }

  put(lock, at_ms, before) {
    describe(lock, at_ms, before);
    this.locks.set(lock.name, lock);
  }

  select() {
    const { text, kind, which } = this.filter;
    const words = text.toLowerCase();
    const now = this.now();
    const shown = [];
    for (const lock of this.locks.values()) {
      if (words && !lock.search.includes(words)) continue;
      if (kind && lock.kind !== kind) continue;
      if (which === "waited" && !lock.waiting) continue;
      if (which === "stuck" && !is_stuck(lock, now)) continue;
      if (which === "ending" && !is_ending(lock, now)) continue;
      shown.push(lock);
    }
    const { key } = ORDERS[this.order];
    const sign = this.is_reversed ? -1 : 1;
    for (const lock of shown) lock.key = key(lock);
    shown.sort((a, b) => sign * compare(a.key, b.key) || compare(a.name, b.name));
    this.shown = shown;
  }

  is_filtered_by_time() {
    return ["stuck", "ending"].includes(this.filter.which);
  }

  counts() {
    const now = this.now();
    const counts = { locks: this.locks.size, holders: 0, waiting: 0, stuck: 0, unreadable: 0 };
    for (const lock of this.locks.values()) {
      counts.holders += lock.holding;
      counts.waiting += lock.waiting;
      if (is_stuck(lock, now)) counts.stuck += 1;
      if (lock.trouble) counts.unreadable += 1;
    }
    return counts;
  }
}

/** Waited for, and not handed over for a while. */
export function is_stuck(lock, now) {
  return lock.waiting > 0 && lock.holding > 0 && now - lock.since > STUCK;
}

export function is_ending(lock, now) {
  return lock.holding > 0 && lock.until - now < Math.min(ENDING, lock.full / 4);
}

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** What the table needs, computed once: since when, until when, and the text that a search looks at. */
function describe(lock, at_ms, before) {
  let since = Infinity, until = Infinity;
  for (const holder of lock.holders) {
    since = Math.min(since, holder.since_ms ?? Infinity);
    until = Math.min(until, at_ms + holder.lease_left_ms);
  }
  lock.since = since;
  lock.until = until;
  const left = until - at_ms;
  const is_same = before?.holders[0]?.fence === lock.holders[0]?.fence;
  // The whole lease is not known: the longest time that was left is taken for it.
  lock.full = Math.max(is_same && before?.full ? before.full : 0, Number.isFinite(left) ? left : 0, 1);
  lock.fence = lock.holders[0]?.fence ?? 0;
  if (before === lock) return;
  const about = lock.holders.map(({ about }) => `${about.program}@${about.host} ${about.note ?? ""}`);
  lock.search = `${lock.name} ${about.join(" ")}`.toLowerCase();
}
