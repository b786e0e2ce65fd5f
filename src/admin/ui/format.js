// Formatting of numbers, times and texts. Nothing here touches the page.

const whole = new Intl.NumberFormat("en-GB");
const short = new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 1 });

/** Formats a count as 12,345; as a dash if it is not known. */
export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** Formats a count as 12.3k, for narrow places. */
export function compact(value) {
  return value === null || value === undefined ? "–" : short.format(value);
}

/** Formats a rate in events per second, with the significant digits. */
export function rate(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  if (value < 0.01) return "<0.01";
  return value < 1 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : whole.format(Math.round(value));
}

/** Formats a share as 12.3 %. */
export function percent(part, of) {
  if (!of) return "–";
  const share = (100 * part) / of;
  return `${share > 0 && share < 0.1 ? "<0.1" : share.toFixed(share < 10 ? 1 : 0)} %`;
}

/** Formats milliseconds as 850 ms, 1.3 s, 2 min, 3 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms";
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${Number(seconds.toFixed(seconds < 10 ? 1 : 0))} s`;
  const minutes = seconds / 60;
  if (minutes < 60) return `${Math.round(minutes)} min`;
  const hours = minutes / 60;
  return hours < 48 ? `${Math.round(hours)} h` : `${Math.round(hours / 24)} d`;
}

/** Returns the time of day of an RFC 3339 time, in the time zone of the browser. */
export function clock(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? "–" : time.toLocaleTimeString("en-GB");
}

/** Returns day and time, or only the time if it is of today. */
export function dateTime(text) {
  const time = text ? new Date(text) : null;
  if (!time || Number.isNaN(time.getTime())) return "–";
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString("en-GB") : time.toLocaleString("en-GB");
}

/** Returns "3 min ago" or "just now", and "never" without a time. */
export function ago(text, now = Date.now()) {
  if (!text) return "never";
  const ms = now - new Date(text).getTime();
  return ms < 2000 ? "just now" : `${duration(1000 * Math.round(ms / 1000))} ago`;
}

/** Formats bytes in powers of 1024. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let left = value;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${at && left < 10 ? left.toFixed(1) : Math.round(left)} ${units[at]}`;
}

// Control characters, direction marks, and characters without width, with which a URL could look like another one.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** Returns an untrusted text with its invisible characters escaped. */
export function visible(text) {
  return String(text).replace(INVISIBLE, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

/** Formats any value of a document on one line. */
export function value(of) {
  if (of === null || of === undefined) return "–";
  return visible(typeof of === "string" ? of : JSON.stringify(of));
}

/** Formats a count with its noun: 1 rule, 2 rules. */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
