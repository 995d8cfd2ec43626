// The page of the store: its health, the findings of the doctor, and its servers.

import { $, h, svg } from "./dom.js";
import { bytes, plural, time, trip, visible } from "./format.js";

const FORMS = { single: "one server", sentinel: "Sentinels", cluster: "a cluster", quorum: "a quorum", local: "a folder of this machine", memory: "inside a process" };
const TAGS = { fine: "good", warning: "warn", problem: "bad" };
const ORDER = { problem: 0, warning: 1, fine: 2 };

export class StorePage {
  constructor(model) {
    this.model = model;
    this.root = $("view-store");
  }

  update(health, counts, more) {
    if (!health) return;
    this.health = health;
    const topology = health.topology;
    const fact = (name, value, ...extra) => h("div", {}, ...extra, h("dd", { class: "text" }, value), h("dt", {}, name));
    const memory = (topology?.nodes ?? []).filter((it) => it.memory != null);
    const used = memory.reduce((sum, it) => sum + it.memory, 0);
    const since = health.since_ms ? `, for ${time(this.model.now() - health.since_ms)}` : "";
    const clocks = (health.findings ?? []).find((it) => it.topic === "clock" || it.topic === "clocks");
    const facts = h("dl", { class: "facts" },
      fact(`store${since}`, health.up === false ? "down" : health.up ? "up" : "unknown"),
      fact("form", FORMS[topology?.form] ?? topology?.form ?? "–"),
      h("div", {}, spark(health.round_trips_us), h("dd", {}, trip(health.round_trip_us)), h("dt", {}, "round trip")),
      fact("to read all locks", health.read_ms == null ? "–" : `${health.read_ms} ms`),
      fact(memory.length > 1 ? `memory of ${memory.length} servers` : "memory", memory.length ? bytes(used) : "–"),
      fact("clock", clocks ? (clocks.severity === "fine" ? "in step" : "differs") : "–"),
      fact("locks", more ? `${counts.locks.toLocaleString("en")}+` : counts.locks.toLocaleString("en")));
    this.root.replaceChildren(h("div", { class: "sheet" },
      h("div", { class: "title" }, h("h1", {}, "Store")), facts,
      h("div", { class: "grid" }, servers(topology), findings(health.findings ?? []))));
  }
}

function spark(values = []) {
  if (values.length < 2) return null;
  const most = Math.max(...values, 1);
  const points = values.map((it, at) => `${(at / (values.length - 1)) * 100},${20 - (it / most) * 18}`).join(" ");
  return svg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("polyline", { class: "spark", points }));
}

function findings(list) {
  const sorted = list.toSorted((a, b) => ORDER[a.severity] - ORDER[b.severity]);
  const items = sorted.map((it) => h("li", { class: "finding" },
    h("span", { class: `tag ${TAGS[it.severity]}` }, it.severity), h("span", { class: "who" }, it.topic),
    h("p", { class: "text" }, visible(it.found)), it.advice && h("p", { class: "advice text" }, visible(it.advice))));
  const content = items.length ? h("ul", {}, ...items) : h("p", {}, "The store has not been examined yet.");
  return h("section", { class: "card wide", "aria-label": "Doctor" }, h("h2", {}, "Doctor", h("span", { class: "muted" }, "once a minute")), content);
}

function servers(topology) {
  if (!topology?.nodes.length) return null;
  const { nodes, form } = topology;
  const slots = nodes.reduce((sum, it) => sum + (it.slots ?? 0), 0);
  const roots = nodes.filter((it) => it.role === "primary" || !nodes.some((other) => other !== it && other.name === it.of));
  const tree = roots.filter((it) => it.role !== "sentinel").map((it) => node(it, nodes, slots));
  const sentinels = nodes.filter((it) => it.role === "sentinel").map((it) => node(it, [], 0));
  const up = nodes.filter((it) => it.up).length;
  const text = form === "quorum" ? `${up} of ${nodes.length} vote, ${Math.floor(nodes.length / 2) + 1} decide` : `${up} of ${plural(nodes.length, "server")} up`;
  return h("section", { class: "card wide", "aria-label": "Servers" }, h("h2", {}, "Servers", h("span", { class: "muted" }, text)),
    h("div", { class: "map" }, ...tree, ...sentinels));
}

function node(it, all, slots) {
  const replicas = it.role === "primary" ? all.filter((other) => other.role === "replica" && other.of === it.name) : [];
  const memory = it.memory == null ? null : bytes(it.memory) + (it.memory_limit ? ` of ${bytes(it.memory_limit)}` : "");
  const facts = [it.version, memory, it.slots != null && plural(it.slots, "slot"), it.role === "sentinel" && it.of && `names ${it.of}`].filter(Boolean);
  let bar = null;
  if (slots) {
    const share = h("i");
    share.style.width = `${((it.slots ?? 0) / slots) * 100}%`;
    bar = h("div", { class: "slots", "aria-hidden": "true" }, share);
  }
  return h("div", { class: `node ${it.up ? "" : "down"}` },
    h("div", { class: "who text" }, h("span", {}, visible(it.name)), h("span", { class: `tag ${it.up ? "plain" : "bad"}` }, it.up ? it.role : `${it.role}, down`)),
    facts.length ? h("div", { class: "sub" }, visible(facts.join(" · "))) : null,
    it.error && h("div", { class: "sub text" }, visible(it.error)), bar, ...replicas.map((replica) => node(replica, [], 0)));
}

