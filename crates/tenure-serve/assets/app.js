// The dashboard: one stream of events, three views.

import { $, h, say } from "./dom.js";
import { Feed, is_token, token } from "./feed.js";
import { Force } from "./force.js";
import { clock, named, plural, time, trip, visible } from "./format.js";
import { LockPage } from "./lock.js";
import { Model } from "./model.js";
import { StorePage } from "./store.js";
import { Table } from "./table.js";

const model = new Model();
const table = new Table(model, (name) => { location.hash = `#/lock/${encodeURIComponent(name)}`; });
const force = new Force(toast);
const lock_page = new LockPage(model, force);
const store_page = new StorePage(model);
const feed = new Feed({ event: received, state: connected, login, refused: (why) => lock_page.refuse(why) });
let health = null, link = "connecting", refusal = null, more = false, view = "locks";
let pending = false;

/** How long the last events took, for tests and the curious: `tenure.costs`. */
const costs = [];
window.tenure = { costs, model };

function received(name, data) {
  const started = performance.now();
  if (name === "hello") force.is_allowed = data.right === "act";
  if (name === "snapshot") {
    model.snapshot(data);
    ({ more, health } = data);
  }
  if (name === "change") {
    model.change(data);
    if (data.more != null) more = data.more;
    if (data.health) health = merge(health, data.health);
  }
  if (name === "health") health = merge(health, data);
  if (name === "lock" && view === "lock") lock_page.update(data);
  if (name === "health" && view === "store") show_store();
  schedule();
  costs.push(performance.now() - started);
  if (costs.length > 200) costs.shift();
}

function merge(old, data) {
  const trips = old?.round_trips_us ?? [];
  const next = data.round_trips_us ?? (data.round_trip_us == null ? trips : [...trips, data.round_trip_us].slice(-60));
  return { ...old, ...data, round_trips_us: next };
}

/** Draws once for all events of a frame. */
function schedule() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    const started = performance.now();
    draw();
    costs.push(performance.now() - started);
  });
}

function draw() {
  if (view === "locks") {
    table.draw(true);
    summarise();
  }
  if (view === "store") show_store();
  show_pulse();
}

function show_store() {
  store_page.update(health, model.counts(), more);
}

function summarise() {
  const counts = model.counts();
  const fact = (name, value, tone = "") => h("div", { class: tone }, h("dd", {}, value.toLocaleString("en")), h("dt", {}, name));
  const facts = [fact("locks", counts.locks), fact("holders", counts.holders), fact("waiting", counts.waiting, counts.waiting ? "warn" : ""), fact("stuck", counts.stuck, counts.stuck ? "bad" : "")];
  if (counts.unreadable) facts.push(fact("unreadable", counts.unreadable, "bad"));
  const text = facts.map((it) => it.textContent + it.className).join();
  if ($("summary").dataset.text !== text) {
    $("summary").dataset.text = text;
    $("summary").replaceChildren(...facts);
  }
  const shown = model.shown.length;
  const is_filtered = shown !== counts.locks;
  say($("count"), (is_filtered ? `${shown.toLocaleString("en")} of ${plural(counts.locks, "lock")}` : plural(shown, "lock")) + (more ? ", and more that are not shown" : ""));
  const empty = !model.is_read ? "Reading the store…" : is_filtered ? "No lock fits the search." : "No lock is held or wanted.";
  say($("empty"), empty);
  $("empty").hidden = shown > 0;
}

function show_pulse() {
  const dot = document.querySelector("#pulse .dot");
  const is_down = health?.up === false;
  dot.className = `dot ${link !== "live" ? "warn" : is_down ? "bad" : "good"}`;
  say($("pulse-text"), link !== "live" ? (link === "away" ? "the server is away" : "connecting") : is_down ? "the store is down" : `live · ${trip(health?.round_trip_us)}`);
  const away = refusal == null ? "The server of this page does not answer." : `The server of this page refuses: ${visible(refusal)}.`;
  const problem = link === "away" ? `${away} What is shown is old.`
    : is_down ? `The store cannot be read since ${clock(health.since_ms)} (${time(model.now() - health.since_ms)}): ${visible(health.error ?? "")}. What is shown is old.` : "";
  $("banner").hidden = !problem;
  say($("banner"), problem);
}

function connected(word, why = null) {
  [link, refusal] = [word, why];
  schedule();
}

function login(is_wrong) {
  return new Promise((done) => {
    $("login-error").hidden = !is_wrong;
    say($("login-error"), "That token is not accepted.");
    $("login-token").value = "";
    $("login").showModal();
    $("login-form").onsubmit = (event) => {
      const text = $("login-token").value.trim();
      if (!is_token(text)) {
        event.preventDefault();
        say($("login-error"), "A token has no spaces, and only letters, digits and signs that ASCII has.");
        $("login-error").hidden = false;
        return;
      }
      token.set(text);
      $("login").onclose = null;
      $("login").close();
      done();
    };
    $("login").oncancel = (event) => event.preventDefault();
    // Browsers close it all the same if the user insists. Nothing can be shown without a token.
    $("login").onclose = () => $("login").showModal();
  });
}

function toast(text) {
  say($("toast"), text);
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("toast").hidden = true; }, 4000);
}

function route() {
  const hash = location.hash;
  let lock = null;
  if (hash.startsWith("#/lock/")) {
    try {
      lock = decodeURIComponent(hash.slice(7));
    } catch {
      lock = hash.slice(7);
    }
  }
  view = lock != null ? "lock" : hash === "#/store" ? "store" : "locks";
  for (const it of ["locks", "lock", "store"]) $(`view-${it}`).hidden = it !== view;
  $("nav-locks").toggleAttribute("aria-current", view !== "store");
  $("nav-store").toggleAttribute("aria-current", view === "store");
  document.title = lock != null ? `${named(lock)} – Tenure` : view === "store" ? "Store – Tenure" : "Tenure";
  if (lock != null) lock_page.show(lock);
  if (feed.lock !== lock || !feed.generation) feed.open(lock);
  draw();
  if (route.is_second && document.activeElement !== $("search")) {
    if (view === "locks" && table.focused) table.focus(model.shown.findIndex((it) => it.name === table.focused));
    else $("main").focus({ preventScroll: true });
  }
  route.is_second = true;
}

function filter() {
  model.filter = { text: $("search").value, kind: $("kind").value, which: $("which").value };
  $("scroller").scrollTop = 0;
  table.refresh();
  summarise();
}

for (const id of ["search", "kind", "which"]) $(id).addEventListener("input", filter);
$("tools").addEventListener("submit", (event) => {
  event.preventDefault();
  table.focus(0);
});
$("search").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") { event.preventDefault(); table.focus(0); }
  if (event.key === "Escape") { $("search").value = ""; filter(); }
});
document.addEventListener("keydown", (event) => {
  const is_typing = event.target.closest("input, textarea, select, dialog");
  if (is_typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    if (view !== "locks") {
      location.hash = "#/";
      route();
    }
    $("search").focus();
  }
  if (event.key === "Escape" && view !== "locks") location.hash = "#/";
});
$("theme").addEventListener("click", () => {
  const next = { undefined: "light", light: "dark", dark: undefined }[document.documentElement.dataset.theme];
  set_theme(next);
});

function set_theme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    if (theme) localStorage.setItem("tenure-theme", theme);
    else localStorage.removeItem("tenure-theme");
  } catch { /* private windows may refuse */ }
  const name = theme ?? "automatic";
  $("theme").setAttribute("aria-label", `Colours: ${name}`);
  $("theme").title = `Colours: ${name}`;
  say($("theme"), { light: "☀", dark: "☾" }[theme] ?? "◐");
}

try {
  set_theme(localStorage.getItem("tenure-theme") ?? undefined);
} catch { /* as above */ }
setInterval(() => {
  if (document.hidden) return;
  if (view === "locks") {
    // A lock is stuck, or its lease about to end, by the passing of time alone.
    if (model.is_filtered_by_time()) table.refresh();
    table.tick();
    summarise();
  }
  if (view === "lock") lock_page.tick();
  show_pulse();
}, 1000);
addEventListener("hashchange", route);
route();
