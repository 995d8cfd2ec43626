// Text for people. Names and notes of others are hostile: what controls, hides or reorders text is shown as its number.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}\u2800]/gu;
/** Spaces that browsers leave out, and those that only look like one. */
const SPACES = /^ | $| (?= )|(?! )\p{Zs}/gu;
/** What looks like the number of a character, and is not. */
const NUMBERS = /\\(?=u\{)/gu;

const number = (it) => `\\u{${it.codePointAt(0).toString(16)}}`;

export function visible(text) {
  return String(text).replace(HIDDEN, number);
}

/** The name of a lock: two that differ look different. */
export function named(name) {
  return visible(name.replace(NUMBERS, number)).replace(SPACES, number);
}

export function who(about) {
  if (!about) return "";
  const pid = about.pid ? `[${about.pid}]` : "";
  return visible(`${about.program}${pid}@${about.host}`);
}

export function time(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${two(seconds % 60)}s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h ${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86400)}d ${two(Math.floor(seconds / 3600) % 24)}h`;
}

export function left(ms) {
  if (ms <= 0) return "0s";
  return ms < 10000 ? `${(ms / 1000).toFixed(1)}s` : time(ms);
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}

export function trip(us) {
  if (us == null) return "–";
  return us < 1000 ? `${us} µs` : `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms`;
}

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let value = count, unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}
