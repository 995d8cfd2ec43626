// The page of one lock: its holders, its queue, and what has happened to it.

import { $, h, say, shrink, svg } from "./dom.js";
import { clock, left, named, plural, time, visible, who } from "./format.js";

const WINDOW = 5 * 60_000;
const WORDS = { acquired: "acquired", "handed-over": "handed over", released: "released", "lease-ended": "lease ended", forced: "forced" };
const TAGS = { "lease-ended": "warn", forced: "bad", released: "plain" };

/** A store may have no fences, and not know since when a lock is held. */
const fenced = (fence) => fence == null ? "" : `fence ${fence}`;

export class LockPage {
  constructor(model, force) {
    this.model = model;
    this.force = force;
    this.root = $("view-lock");
  }

  show(name) {
    this.name = name;
    this.data = this.ids = this.queue_ids = this.last = null;
    this.rows = this.waiters = [];
    this.heading = h("h1", { class: "text" }, named(name));
    this.tags = h("span");
    this.button = h("button", { type: "button", class: "danger end", onclick: () => this.force.open(this.data.lock) }, "Force the release…");
    this.holders = h("ul", { class: "items", id: "holders" });
    this.queue = h("ol", { class: "items queue", id: "queue" });
    this.queue_count = h("span", { class: "muted" });
    this.plot = h("div", { class: "plot" });
    this.log = h("ol", { class: "log" });
    const card = (title, extra, ...children) => h("section", { class: "card", "aria-label": title }, h("h2", {}, title, extra), ...children);
    const history = card("The last minutes", null, this.plot, this.log);
    history.classList.add("wide");
    this.root.replaceChildren(h("div", { class: "sheet" },
      h("div", { class: "title" }, h("a", { class: "back", href: "#/" }, "← Locks"), this.heading, this.tags, this.button),
      this.grid = h("div", { class: "grid" }, card("Holders", null, this.holders), card("Queue", this.queue_count, this.queue), history)));
    this.button.hidden = true;
  }

  /** There can be no lock of this name. */
  refuse(why) {
    this.tags.replaceChildren(h("span", { class: "tag bad text" }, visible(why)));
    this.grid.hidden = true;
  }

  update(data) {
    if (data.lock.name !== this.name) return;
    this.data = data;
    const { lock } = data;
    const is_limited = lock.kind && lock.kind !== "mutex" && lock.kind !== "read-write lock";
    const kind = lock.kind ? lock.kind + (is_limited ? `, limit ${lock.limit}` : "") : lock.trouble ? "unknown" : "free";
    const tag = (name, text) => h("span", { class: `tag ${name} text` }, text);
    this.tags.replaceChildren(tag(lock.kind ? "" : "plain", kind),
      ...(lock.trouble ? [" ", tag("bad", visible(lock.trouble))] : []),
      ...(lock.disagreement ? [" ", tag("warn", visible(lock.disagreement))] : []));
    this.button.hidden = lock.holding === 0 || !this.force.is_allowed;
    this.write_holders(lock, data.at_ms);
    this.write_queue(lock);
    this.write_history(data);
    this.tick();
  }

  write_holders(lock, at_ms) {
    const absence = lock.trouble ? "unknown" : "not held";
    const ids = absence + lock.holders.map((it) => `${it.owner} ${it.fence}`).join();
    if (ids !== this.ids) {
      this.ids = ids;
      this.rows = lock.holders.map((holder) => this.make_holder(lock, holder));
      const more = lock.holding - lock.holders.length;
      const none = h("li", {}, h("span", { class: "muted" }, absence));
      this.holders.replaceChildren(...(this.rows.length ? this.rows.map((row) => row.item) : [none]),
        ...(more > 0 ? [h("li", {}, `and ${more} more`)] : []));
    }
    lock.holders.forEach((holder, at) => {
      const row = this.rows[at];
      const until = at_ms + holder.lease_left_ms;
      row.full = Math.max(row.full, holder.lease_left_ms, 1);
      if (Math.abs(until - row.until) > 250) {
        row.until = until;
        shrink(row.fill, until - this.model.now(), row.full);
      }
    });
  }

  make_holder(lock, holder) {
    const row = { since: holder.since_ms, until: 0, full: 1 };
    row.held = h("span", { class: "num" });
    row.fill = h("div", { class: "fill" });
    row.left = h("span", { class: "left" });
    const share = lock.kind === "read-write lock" ? (holder.permits === lock.limit ? "writes" : "reads")
      : lock.kind === "mutex" ? "" : plural(holder.permits, "permit");
    const lingers = holder.entries === 0 ? "released and kept for its least time" : "";
    const facts = [fenced(holder.fence), share, lingers].filter(Boolean);
    row.item = h("li", {},
      h("span", { class: "who text" }, who(holder.about)), row.held,
      holder.about.note && h("span", { class: "sub text" }, visible(holder.about.note)),
      facts.length ? h("span", { class: "sub mono" }, facts.join(", ")) : null,
      h("span", { class: "sub mono" }, `owner ${holder.owner}`),
      h("div", { class: "lease" }, h("div", { class: "track", "aria-hidden": "true" }, row.fill), row.left));
    return row;
  }

  write_queue(lock) {
    say(this.queue_count, lock.waiting ? plural(lock.waiting, "waiter") : "");
    const ids = lock.waiters.map((it) => it.owner).join() + lock.waiting;
    if (ids === this.queue_ids) return;
    this.queue_ids = ids;
    this.waiters = lock.waiters.map((waiter, at) => {
      const waits = h("span", { class: "num" });
      const item = h("li", {}, h("span", { class: "who text" }, h("span", { class: "place" }, `${at + 1}.`), who(waiter.about)), waits,
        waiter.about.note && h("span", { class: "sub text" }, visible(waiter.about.note)));
      return { item, waits, since: waiter.since_ms };
    });
    const more = lock.waiting - lock.waiters.length;
    const none = h("li", {}, h("span", { class: "muted" }, "no client waits"));
    this.queue.replaceChildren(...(this.waiters.length ? this.waiters.map((it) => it.item) : [none]),
      ...(more > 0 ? [h("li", {}, `and ${more} more`)] : []));
  }

  write_history(data) {
    const last = data.history.at(-1)?.id ?? 0;
    if (last === this.last && this.log.childElementCount) return;
    this.last = last;
    const lines = data.history.toReversed().map((it) => h("li", {},
      h("time", { class: "num muted", datetime: new Date(it.at_ms).toISOString() }, clock(it.at_ms)),
      h("span", {}, h("span", { class: `tag ${TAGS[it.event] ?? ""}` }, WORDS[it.event] ?? it.event)),
      h("span", { class: "whom text" }, who(it.about), it.reason ? h("span", { class: "muted" }, ` taken away by ${who(it.by)}: ${visible(it.reason)}`) : null),
      h("span", { class: "fence mono muted" }, fenced(it.fence))));
    const forced = data.lock.forced;
    const none = forced && !data.history.length
      ? h("li", {}, h("time", { class: "num muted" }, clock(forced.at_ms)), h("span", {}, h("span", { class: "tag bad" }, "forced")),
        h("span", { class: "whom text" }, `by ${who(forced.by)}: ${visible(forced.reason)}`))
      : h("li", {}, h("span", { class: "whom muted" }, "nothing has happened since this server watches"));
    this.log.replaceChildren(...(lines.length ? lines : [none]));
  }

  /** The holds of the last minutes, in as many lanes as there were at once. */
  draw() {
    const now = this.model.now();
    const from = now - WINDOW;
    // In pixels, so that texts have the size of the others on every screen.
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const LANE = Math.round(1.85 * rem), TOP = Math.round(0.5 * rem), FOOT = Math.round(1.6 * rem);
    const WIDTH = Math.max(240, this.plot.clientWidth - 2 * rem);
    const ended = this.data.history.filter((it) => ["released", "lease-ended", "forced"].includes(it.event))
      .map((it) => ({ from: it.since_ms ?? it.at_ms, to: it.at_ms, how: it.event, who: who(it.about), fence: it.fence }));
    const present = this.data.lock.holders.map((it) => ({ from: it.since_ms ?? now, to: now, how: "now", who: who(it.about), fence: it.fence }));
    const holds = [...ended, ...present].filter((it) => it.to > from).sort((a, b) => a.from - b.from);
    const lanes = [];
    for (const hold of holds) {
      hold.lane = lanes.findIndex((to) => to <= hold.from + 400);
      if (hold.lane < 0) hold.lane = lanes.push(0) - 1;
      lanes[hold.lane] = hold.to;
    }
    const count = Math.min(12, Math.max(1, lanes.length));
    const height = TOP + count * LANE + FOOT;
    const x = (at) => Math.max(0, ((at - from) / WINDOW) * WIDTH);
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${plural(holds.length, "hold")} in the last five minutes` });
    for (let minute = 0; minute <= 5; minute += 1) {
      const at = (minute / 5) * WIDTH;
      picture.append(svg("line", { class: "tick", x1: at, x2: at, y1: 0, y2: height - FOOT + 4 }),
        svg("text", { x: at, y: height - 3, "text-anchor": minute === 0 ? "start" : minute === 5 ? "end" : "middle" }, minute === 5 ? "now" : `−${5 - minute} min`));
    }
    for (const hold of holds.filter((it) => it.lane < count)) {
      const start = x(hold.from), width = Math.max(2, x(hold.to) - start - 1), y = TOP + hold.lane * LANE;
      const block = svg("rect", { class: `hold ${hold.how}`, x: start, y, width, height: LANE - 6, rx: 4 },
        svg("title", {}, `${[hold.who, fenced(hold.fence)].filter(Boolean).join(", ")}: ${clock(hold.from)} to ${hold.how === "now" ? "now" : clock(hold.to)} (${WORDS[hold.how] ?? "held"})`));
      picture.append(block);
      const letters = Math.floor(width / (rem * 0.52)) - 1;
      if (letters > 4 && hold.how === "now") {
        const text = hold.who.length > letters ? `${hold.who.slice(0, letters - 1)}…` : hold.who;
        picture.append(svg("text", { class: "label", x: start + 6, y: y + LANE / 2 + 1 }, text));
      }
    }
    const key = (how, text) => h("span", { class: how }, h("i"), text);
    this.plot.replaceChildren(picture, h("p", { class: "legend" }, key("now", "held now"), key("released", "released"), key("lease-ended", "lease ended"), key("forced", "forced")));
  }

  tick() {
    if (!this.data) return;
    const now = this.model.now();
    for (const row of this.rows) {
      say(row.held, row.since == null ? "" : `for ${time(now - row.since)}`);
      say(row.left, left(row.until - now));
      row.item.classList.toggle("ending", row.until - now < Math.min(5000, row.full / 4));
    }
    for (const waiter of this.waiters) say(waiter.waits, `for ${time(now - waiter.since)}`);
    this.draw();
  }
}
