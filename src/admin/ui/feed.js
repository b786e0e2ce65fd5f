// The data that all views share: the status of the proxy, polled every two seconds; the samples that the proxy has kept
// of the last hour; and the policy, requested when the status shows that it changed. Nothing is requested while the page
// is hidden.

import { api } from "./api.js";

const EVERY_MS = 2000;
// The status does not show a reload without changes, so the policy is polled too.
const POLICY_EVERY_MS = 60_000;
const HISTORY_MS = 3_600_000;
// After a longer time without a status, the proxy's samples are requested again: the page was hidden.
const HIDDEN_MS = 30_000;
// Quantiles are computed over the last minute, since over two seconds they would jump.
const QUANTILE_MS = 60_000;

/**
 * Calls `ask` repeatedly while the page is visible, and returns the function that ends this. Its `.now()` calls `ask`
 * at once, or after the call in progress, since the query may have changed.
 */
export function poll(ask, every) {
  let timer = 0;
  let ended = false;
  let underWay = false;
  let again = false;
  const turn = async () => {
    clearTimeout(timer);
    again = underWay;
    if (ended || underWay || document.hidden) return;
    underWay = true;
    try {
      await ask();
    } catch (error) {
      console.error(error);
    } finally {
      underWay = false;
      if (!ended) timer = setTimeout(turn, again ? 0 : every);
    }
  };
  const seen = () => !document.hidden && turn();
  document.addEventListener("visibilitychange", seen);
  turn();
  const stop = () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
  stop.now = turn;
  return stop;
}

/** The status over time. Listeners are called after each response and each failure. */
export const feed = {
  status: null,
  policy: null,
  failure: null,
  policyFailure: null,
  /** The time of the last response, in ms. */
  answered: 0,
  /** Samples `{ at, allow, reject, reasons, timings }`, oldest first. */
  history: [],
  /** The `started_at` of the process whose samples are in `history`. */
  process: null,
  listeners: new Set(),

  start() {
    this.polling = poll(() => this.ask(), EVERY_MS);
    this.policyPolling = poll(() => this.askPolicy(), POLICY_EVERY_MS);
  },

  on(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  },

  notify() {
    for (const listener of this.listeners) {
      try {
        listener();
      } catch (error) {
        // An error in one view must not affect the others.
        console.error(error);
      }
    }
  },

  async ask() {
    try {
      const status = await api.status();
      const before = this.status;
      this.failure = null;
      this.answered = Date.now();
      this.status = status;
      const hidden = Date.now() - (this.history.at(-1)?.at ?? 0) > HIDDEN_MS;
      if (this.process !== status.started_at || hidden) await this.askHistory(status);
      this.addSample(status);
      const changed = before && policyKey(before) !== policyKey(status);
      if (changed || this.policyFailure) this.policyPolling?.now();
    } catch (error) {
      this.failure = error;
    }
    this.notify();
  },

  async askPolicy() {
    try {
      this.policy = await api.policy();
      this.policyFailure = null;
    } catch (error) {
      this.policyFailure = error;
    }
    this.notify();
  },

  /**
   * Starts with the samples that the proxy has kept, after a restart of it or a gap. If it does not answer, they are
   * requested again.
   */
  async askHistory(status) {
    // The clocks of the proxy and of the browser may differ.
    const ahead = Date.parse(status.started_at) + status.uptime_ms - Date.now();
    const { samples } = await api.history();
    this.process = status.started_at;
    this.history.length = 0;
    for (const { at, reasons, ...sample } of samples) {
      this.history.push({ ...sample, at: Date.parse(at) - ahead, reasons: new Map(Object.entries(reasons)) });
    }
  },

  addSample(status) {
    const { allow = 0, reject = 0, shadow_reject = 0, by_reason = [] } = status.decisions ?? {};
    const reasons = new Map();
    for (const row of by_reason) {
      if (row.verdict === "reject") reasons.set(row.reason, (reasons.get(row.reason) ?? 0) + row.count);
    }
    const timings = Object.fromEntries(
      Object.entries(status.timings ?? {}).map(([name, timing]) => [name, timing.counts]),
    );
    const rows = new Map(by_reason.map((row) => [reasonKey(row), row.count]));
    const at = Date.now();
    // The last of the proxy's samples may be milliseconds ahead.
    while (this.history.length && this.history.at(-1).at >= at) this.history.pop();
    this.history.push({ at, allow: allow + shadow_reject, reject, reasons, timings, rows });
    while (this.history.length > 2 && at - this.history[0].at > HISTORY_MS) this.history.shift();
  },
};

/** Returns a key that changes when a reload succeeds or fails. */
function policyKey(status) {
  return JSON.stringify([status.started_at, status.policy, status.last_reload, status.warnings]);
}

/** Returns the key of a row of `by_reason`. */
export function reasonKey(row) {
  return `${row.verdict} ${row.stage} ${row.reason}`;
}

/** Returns the first sample that is not older than `ms`. */
export function since(history, ms) {
  const from = (history.at(-1)?.at ?? 0) - ms;
  return history.find((sample) => sample.at >= from) ?? history[0];
}

/** Returns the rates of the last `ms`: `{ allow, reject }` per second, or null before there are two samples. */
export function rates(history, ms = 10_000) {
  const last = history.at(-1);
  const first = since(history, ms);
  if (!last || !first || last.at <= first.at) return null;
  const seconds = (last.at - first.at) / 1000;
  return { allow: (last.allow - first.allow) / seconds, reject: (last.reject - first.reject) / seconds };
}

/**
 * Returns the quantile `q` of request durations between two samples, in ms; `{ under }` or `{ over }` if only a bound
 * is known; null if there were no requests.
 */
export function quantile(bounds, before, after, q) {
  const counts = after.map((value, at) => value - (before?.[at] ?? 0));
  const total = counts.at(-1) ?? 0;
  if (total <= 0) return null;
  const rank = q * total;
  const at = counts.findIndex((value) => value >= rank);
  const upper = bounds[at];
  if (upper === null || upper === undefined) return { over: bounds.at(-2) ?? 0 };
  if (at === 0) return { under: upper };
  const lower = bounds[at - 1];
  const below = counts[at - 1];
  return lower + ((upper - lower) * (rank - below)) / Math.max(1, counts[at] - below);
}

/** Returns the quantile `q` of a timing over the minute that ends with sample `at`. */
export function timing(history, bounds, name, q, at = history.length - 1) {
  const last = history[at]?.timings[name];
  if (!last || !bounds) return null;
  let from = at;
  while (from > 0 && history[at].at - history[from - 1].at <= QUANTILE_MS) from -= 1;
  if (from === at) return null;
  return quantile(bounds, history[from].timings[name], last, q);
}
