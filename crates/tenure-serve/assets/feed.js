// The stream of events, read by fetch because the token belongs into a header. It is opened again whenever it ends.

const KEY = "tenure-token";
const LONGEST_PAUSE = 5000;
/** A server says something every 15 s. One that is frozen, or behind a network that is gone, ends no connection. */
const SILENCE = 20000;

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
};

/** Others cannot be sent in a header. */
export const is_token = (text) => /^[!-~]+$/.test(text);

export function headers() {
  const value = token.get();
  return value && is_token(value) ? { Authorization: `Bearer ${value}` } : {};
}

/** The server answers, and has a reason not to serve. */
class Refused extends Error {}

async function reason(answer) {
  try {
    return (await answer.json()).detail;
  } catch {
    return `it answers with the status ${answer.status}`;
  }
}

export class Feed {
  /** Handlers: `event(name, data)`, `state(word, why)` with connecting, live or away, and why the server refuses if it says so, `login(is_wrong)`, which resolves with a new token, and `refused(why)` if there can be no such lock. */
  constructor(handlers) {
    this.handlers = handlers;
    this.generation = 0;
    this.pause = 0;
  }

  /** Follows the state; with a name, that lock, too. */
  open(lock) {
    this.lock = lock;
    this.is_refused = false;
    this.generation += 1;
    this.abort?.abort();
    this.run(this.generation);
  }

  async run(generation) {
    const is_current = () => generation === this.generation;
    while (is_current()) {
      const abort = new AbortController();
      this.abort = abort;
      let why = null, is_answered = false;
      try {
        is_answered = await this.read(abort, is_current);
      } catch (error) {
        // The server is away, or another lock is followed.
        if (error instanceof Refused) why = error.message;
      }
      // What could not be shown must not keep the connection open.
      abort.abort();
      // The alarm is that of the connection which has taken the place of this one.
      if (!is_current()) return;
      clearTimeout(this.silence);
      if (is_answered) continue;
      this.handlers.state("away", why);
      await new Promise((done) => setTimeout(done, this.pause * (0.5 + Math.random() / 2)));
      this.pause = Math.min(LONGEST_PAUSE, Math.max(200, this.pause * 2));
    }
  }

  /** Ends the connection unless something arrives in time. */
  watch(abort) {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => abort.abort(), SILENCE);
  }

  /** True if it is to be opened again at once. */
  async read(abort, is_current) {
    const query = this.lock == null || this.is_refused ? "" : `?lock=${encodeURIComponent(this.lock)}`;
    this.watch(abort);
    const answer = await fetch(`/v1/state${query}`, { headers: headers(), signal: abort.signal, cache: "no-store" });
    if (answer.status === 401) {
      clearTimeout(this.silence);
      await this.handlers.login(token.get() != null);
      this.pause = 0;
      return true;
    }
    if (answer.status === 400 && query) {
      // The rest of the page lives on.
      this.is_refused = true;
      this.pause = 0;
      const { detail } = await answer.json();
      if (is_current()) this.handlers.refused(detail);
      return true;
    }
    if (!answer.ok) throw new Refused(await reason(answer));
    this.pause = 0;
    this.handlers.state("live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parts = [];
    let carry = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || !is_current()) return false;
      this.watch(abort);
      // A large event comes in many pieces, which are joined once, at its end. The two line breaks that end it may be apart.
      let rest = carry + value, end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        parts.push(rest.slice(0, end));
        this.handle(parts.join(""));
        parts.length = 0;
        rest = rest.slice(end + 2);
      }
      carry = rest.endsWith("\n") ? "\n" : "";
      if (carry) rest = rest.slice(0, -1);
      if (rest) parts.push(rest);
    }
  }

  handle(text) {
    let name = "message", data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (!data) return;
    if (name === "refused") throw new Refused(JSON.parse(data).detail);
    this.handlers.event(name, JSON.parse(data));
  }
}
