// A table of any length: only the rows that are seen exist.

import { $, h, say, shrink } from "./dom.js";
import { left, named, time, visible, who } from "./format.js";
import { ORDERS, is_ending, is_stuck } from "./model.js";

const EXTRA = 6;

export class Table {
  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.rows = new Map();
    this.spare = [];
    this.focused = null;
    this.scroller = $("scroller");
    this.runway = $("runway");
    this.make_head();
    this.scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    this.runway.addEventListener("keydown", (event) => this.key(event));
    this.runway.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.measure()).observe(this.scroller);
  }

  make_head() {
    const names = { name: "c-name", kind: "c-kind", holder: "c-holder", held: "c-held right", lease: "c-lease", fence: "c-fence right", waiting: "c-wait right" };
    this.columns = Object.entries(ORDERS).map(([order, { label }]) => {
      const button = h("button", { type: "button", onclick: () => this.sort(order) }, label);
      const cell = h("div", { role: "columnheader", class: names[order].replace("c-name", "") }, button);
      $("order").append(h("option", { value: order }, `by ${label.toLowerCase()}`));
      return [order, cell];
    });
    $("head").append(...this.columns.map(([, cell]) => cell));
    $("order").addEventListener("change", () => this.sort($("order").value, false));
    this.mark_order();
  }

  sort(order, turn = true) {
    const { model } = this;
    model.is_reversed = turn && model.order === order && !model.is_reversed;
    model.order = order;
    this.mark_order();
    this.refresh();
  }

  mark_order() {
    for (const [order, cell] of this.columns) {
      const sort = order !== this.model.order ? "none" : this.model.is_reversed ? "descending" : "ascending";
      cell.setAttribute("aria-sort", sort);
    }
    $("order").value = this.model.order;
  }

  measure() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const row = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
    this.height = Math.round(rem * row);
    document.documentElement.style.setProperty("--gutter", `${this.scroller.offsetWidth - this.scroller.clientWidth}px`);
    for (const row of this.rows.values()) row.at = -1;
    this.draw();
  }

  /** Orders the locks again, and draws. */
  refresh() {
    this.model.select();
    this.draw(true);
  }

  draw(with_values = false) {
    const { shown } = this.model;
    if (!this.height) return;
    this.runway.style.height = `${shown.length * this.height}px`;
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / this.height) - EXTRA);
    const last = Math.min(shown.length, Math.ceil((top + this.scroller.clientHeight) / this.height) + EXTRA);
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(shown[at].name, at);
    for (const [name, row] of this.rows) {
      if (!wanted.has(name)) {
        this.rows.delete(name);
        if (row.element === document.activeElement) this.scroller.focus({ preventScroll: true });
        row.element.hidden = true;
        this.spare.push(row);
      }
    }
    for (const [name, at] of wanted) {
      let row = this.rows.get(name);
      const is_new = !row;
      if (is_new) {
        row = this.spare.pop() ?? this.make_row();
        this.rows.set(name, row);
        row.lock = null;
        row.element.hidden = false;
      }
      if (row.at !== at) {
        row.at = at;
        row.element.style.transform = `translateY(${at * this.height}px)`;
        row.element.setAttribute("aria-rowindex", at + 2);
      }
      if (is_new || with_values || row.lock !== shown[at]) this.write(row, shown[at]);
    }
    $("table").setAttribute("aria-rowcount", shown.length + 1);
    this.keep_focusable();
  }

  make_row() {
    const cell = (name, ...children) => h("div", { class: `cell ${name}`, role: "cell" }, ...children);
    const row = { at: -1 };
    row.name = cell("c-name text");
    row.kind = cell("c-kind");
    row.who = h("span", { class: "text" });
    row.note = h("span", { class: "note text" });
    row.holder = cell("c-holder", row.who, row.note);
    row.held = cell("c-held right num");
    row.fill = h("div", { class: "fill" });
    row.left = h("span", { class: "left" });
    row.lease = cell("c-lease", h("div", { class: "lease" }, h("div", { class: "track", "aria-hidden": "true" }, row.fill), row.left));
    row.fence = cell("c-fence right");
    row.waiting = h("span");
    row.wait = cell("c-wait right", row.waiting);
    row.element = h("div", { class: "row", role: "row", tabindex: "-1" }, row.name, row.kind, row.holder, row.held, row.lease, row.fence, row.wait);
    this.runway.append(row.element);
    return row;
  }

  write(row, lock) {
    const is_other = row.lock !== lock;
    row.lock = lock;
    if (is_other) {
      const name = named(lock.name);
      say(row.name, name);
      row.element.title = name;
      row.element.dataset.name = lock.name;
      say(row.kind, lock.kind ?? "unknown");
      this.write_holder(row, lock);
      say(row.fence, lock.fence ? String(lock.fence) : "–");
      say(row.waiting, String(lock.waiting));
      row.wait.classList.toggle("some", lock.waiting > 0);
      row.wait.classList.toggle("none", lock.waiting === 0);
      row.waiting.setAttribute("aria-label", `${lock.waiting} waiting`);
    }
    if (row.until !== lock.until || is_other) {
      row.until = lock.until;
      shrink(row.fill, lock.until - this.model.now(), lock.full);
    }
    this.age(row);
  }

  write_holder(row, lock) {
    const [first] = lock.holders;
    const more = lock.holding > 1 ? ` +${lock.holding - 1}` : "";
    say(row.who, lock.trouble ? visible(lock.trouble) : first ? who(first.about) + more : "not held");
    say(row.note, first?.about.note ? visible(first.about.note) : "");
  }

  /** What changes with time alone. */
  age(row) {
    const { lock } = row;
    const now = this.model.now();
    const is_held = lock.holding > 0 && Number.isFinite(lock.since);
    say(row.held, is_held ? time(now - lock.since) : "–");
    say(row.left, is_held ? left(lock.until - now) : "–");
    row.element.classList.toggle("stuck", is_stuck(lock, now));
    row.lease.classList.toggle("ending", is_ending(lock, now));
  }

  tick() {
    for (const row of this.rows.values()) this.age(row);
  }

  /** One row can be reached by the Tab key. */
  keep_focusable() {
    let focusable = null, first = null;
    for (const row of this.rows.values()) {
      row.element.tabIndex = -1;
      if (row.lock.name === this.focused) focusable = row;
      if (!first || row.at < first.at) first = row;
    }
    (focusable ?? first)?.element.setAttribute("tabindex", "0");
  }

  focus(at) {
    const { shown } = this.model;
    if (!shown.length) return;
    const to = Math.min(shown.length - 1, Math.max(0, at));
    const top = to * this.height;
    const view = this.scroller;
    if (top < view.scrollTop) view.scrollTop = top;
    if (top + this.height > view.scrollTop + view.clientHeight) view.scrollTop = top + this.height - view.clientHeight;
    this.focused = shown[to].name;
    this.draw();
    this.rows.get(this.focused)?.element.focus({ preventScroll: true });
  }

  key(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    const at = [...this.rows.values()].find((it) => it.element === row)?.at ?? 0;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") this.open(row.dataset.name);
    else if (event.key in steps) this.focus(at + steps[event.key]);
    else return;
    event.preventDefault();
  }

  click(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    this.focused = row.dataset.name;
    this.open(row.dataset.name);
  }
}
