// What all views know: the state of the proxy each two seconds, ten minutes of it, and the policy, which is asked for when
// the state says that it changed. Nothing is asked for while the page is hidden.

import { api } from "./api.js";

const EVERY_MS = 2000;
// A reload that changes nothing is not seen in the state.
const POLICY_EVERY_MS = 60_000;
const KEPT_MS = 600_000;
// Quantiles are those of the last minute: of two seconds they would jump.
const QUANTILE_MS = 60_000;

/**
 * Asks again and again while the page is seen; returns what ends it. `ask` may be called at once with `.now()`; if one is
 * under way then, it is called once more after it, since the question may be another.
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

/** The state over time. `changed` listeners are called after each answer, and after each failure. */
export const feed = {
  status: null,
  policy: null,
  failure: null,
  policyFailure: null,
  /** When the state was last answered, in ms. */
  answered: 0,
  /** Samples `{ at, allow, reject, counts }`, oldest first. */
  history: [],
  listeners: new Set(),

  start() {
    this.polling = poll(() => this.ask(), EVERY_MS);
    this.policyPolling = poll(() => this.askPolicy(), POLICY_EVERY_MS);
  },

  on(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  },

  tell() {
    for (const listener of this.listeners) {
      try {
        listener();
      } catch (error) {
        // A view that cannot show this must not take the others with it.
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
      this.remember(status, before);
      const changed = before && aboutPolicy(before) !== aboutPolicy(status);
      if (changed || this.policyFailure) this.policyPolling?.now();
    } catch (error) {
      this.failure = error;
    }
    this.tell();
  },

  async askPolicy() {
    try {
      this.policy = await api.policy();
      this.policyFailure = null;
    } catch (error) {
      this.policyFailure = error;
    }
    this.tell();
  },

  remember(status, before) {
    if (before && before.started_at !== status.started_at) this.history.length = 0;
    const at = Date.now();
    const { allow = 0, reject = 0, shadow_reject = 0, by_reason = [] } = status.decisions ?? {};
    const reasons = new Map(by_reason.map((row) => [reasonKey(row), row.count]));
    this.history.push({ at, allow: allow + shadow_reject, reject, counts: status.latency?.counts ?? [], reasons });
    while (this.history.length > 2 && at - this.history[0].at > KEPT_MS) this.history.shift();
  },
};

/** What changes when a reload succeeds or fails. */
function aboutPolicy(status) {
  return JSON.stringify([status.started_at, status.policy, status.last_reload, status.warnings]);
}

/** What tells one row of `by_reason` from another. */
export function reasonKey(row) {
  return `${row.verdict} ${row.stage} ${row.reason}`;
}

/** The first sample that is not older than this. */
export function since(history, ms) {
  const from = (history.at(-1)?.at ?? 0) - ms;
  return history.find((sample) => sample.at >= from) ?? history[0];
}

/** Rates between the last samples: `{ allow, reject }` a second, null before there are two. */
export function rates(history, ms = 10_000) {
  const last = history.at(-1);
  const first = since(history, ms);
  if (!last || !first || last.at <= first.at) return null;
  const seconds = (last.at - first.at) / 1000;
  return { allow: (last.allow - first.allow) / seconds, reject: (last.reject - first.reject) / seconds };
}

/**
 * The quantile `q` of request durations between two samples, in ms; `{ under }` or `{ over }` where only a bound is known;
 * null if there were no requests.
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

/** p50 and p95 of the minute that ends with sample `at`. */
export function latencies(history, bounds, at = history.length - 1) {
  const last = history[at];
  if (!last || !bounds) return { p50: null, p95: null };
  let from = at;
  while (from > 0 && last.at - history[from - 1].at <= QUANTILE_MS) from -= 1;
  if (from === at) return { p50: null, p95: null };
  const before = history[from].counts;
  return { p50: quantile(bounds, before, last.counts, 0.5), p95: quantile(bounds, before, last.counts, 0.95) };
}
