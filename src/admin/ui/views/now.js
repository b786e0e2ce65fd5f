// Now: rates of allowed and rejected requests, latency, reasons, and each decision as it is made.

import { Chart } from "../chart.js";
import { empty, fill, h, write } from "../dom.js";
import { feed, rates, reasonKey, since, timing } from "../feed.js";
import { compact, count, duration, percent, rate, visible } from "../format.js";
import { KeptTable } from "../table.js";
import { Decisions } from "./decisions.js";
import { decisionsLink, verdict } from "./verdict.js";

const MINUTE = 60_000;
/** Shorter times are drawn like this one. */
const SHORTEST_MS = 0.1;
const COLLECTING = "Collecting data: the first rates appear in a few seconds. Charts show the last hour.";

/** Creates the view; under the name `decisions`, the list without the overview. */
export function now(main, query, name) {
  const alone = name === "decisions";
  const overview = alone ? null : new Overview();
  const decisions = new Decisions(query, { alone });
  fill(main, h("h1.hidden", alone ? "Decisions" : "Now"), overview?.element, decisions.element);
  overview?.start();
  return {
    query: (query) => decisions.query(query),
    pause: () => decisions.pause(),
    close: () => {
      overview?.close();
      decisions.close();
    },
  };
}

// Name, value, and the note below it.
const TILES = [
  ["Allowed", (s) => `${rate(s.rates?.allow)}/s`, (s) => `${count(s.allow)} in total`],
  ["Rejected", (s) => `${rate(s.rates?.reject)}/s`, (s) => `${count(s.status.decisions.reject)} in total`],
  [
    "Reject ratio",
    (s) => percent(s.recent.reject, s.recent.all),
    (s) => `${percent(s.status.decisions.reject, s.all)} in total`,
  ],
  ["Origins p50", (s) => bounded(s.origin), () => "until they answer"],
  ["Decision p95", (s) => bounded(s.decision), () => "by the policy"],
  ["In flight", (s) => count(s.status.inflight), (s) => `${count(s.status.connections)} connections`],
  ["Held", (s) => count(s.status.held), (s) => `p95 ${bounded(s.waits)}`],
  ["Tunnels", (s) => count(s.status.tunnels), () => "open"],
  ["Backing off", (s) => count(s.status.hosts?.backing_off), (s) => `of ${count(s.status.hosts?.tracked)} hosts`],
];

/** Formats a latency, of which only a bound may be known. */
function bounded(ms) {
  if (ms?.under !== undefined) return `< ${duration(ms.under)}`;
  return ms?.over !== undefined ? `> ${duration(ms.over)}` : duration(ms);
}

/** Returns a latency as a point of a chart with a logarithmic scale, which has no 0. */
function point(ms) {
  const known = ms?.under ?? ms?.over ?? ms;
  return known === null ? null : Math.max(known, SHORTEST_MS);
}

/** Formats a power of ten of milliseconds, the mark of an axis. */
function decade(ms) {
  return ms < 1000 ? `${Number(ms.toPrecision(1))} ms` : `${Math.round(ms / 1000)} s`;
}

/** The colours and strokes of the refusals in the chart; either tells them apart. */
const STROKES = { solid: undefined, dashed: [7, 4], dotted: [2, 3] };
const REASON_SERIES = [
  { colour: "--reason-1", stroke: "solid" },
  { colour: "--reason-2", stroke: "dashed" },
  { colour: "--reason-3", stroke: "dotted" },
  { colour: "--reason-4", stroke: "solid" },
  { colour: "--reason-5", stroke: "dashed" },
  { colour: "--reason-6", stroke: "dotted" },
];
/** The series of all reasons without one of their own. */
const OTHER = "other reasons";

const REASON_COLUMNS = [
  { name: "Reason" },
  { name: "Stage" },
  { name: "Last minute", kind: "number" },
  { name: "Total", kind: "number" },
  { name: "", title: "Share" },
];

class Overview {
  constructor() {
    this.tiles = TILES.map(([name, show, below]) => {
      const [value, note] = [h("dd.value", "–"), h("dd.note", "")];
      return { element: h("div.tile", h("dt", name), value, note), value, note, show, below };
    });
    this.requests = h("div.chart");
    this.reasonKeys = h("span.keys");
    this.reasonSlots = [];
    this.latency = h("div.chart");
    this.reasons = h("div");
    this.table = new KeptTable("Rejections by reason", REASON_COLUMNS, { key: reasonKey, make: reasonRow });
    this.waits = h("p.quiet.waits", COLLECTING);
    this.element = h(
      "section",
      { "aria-label": "Rates" },
      h(
        "dl.tiles",
        this.tiles.map((tile) => tile.element),
      ),
      h(
        "div.columns",
        h(
          "div.panel",
          h("h2", "Requests per second ", key("allow", "allowed"), this.reasonKeys),
          this.requests,
        ),
        h("div.panel", h("h2", "Time per request ", key("accent", "origins p50"), key("shadow dashed", "held p95")), this.latency),
        h("div.panel.reasons", h("h2", "Rejections by reason"), this.reasons),
      ),
      this.waits,
    );
    this.redraw = () => this.charts?.forEach((chart) => chart.draw());
  }

  /** Called once the element is in the page, since charts need its width. */
  start() {
    this.charts = [
      this.requestsChart(),
      new Chart(
        this.latency,
        [
          { label: "origins p50", colour: "--accent", show: duration, mark: decade },
          { label: "held p95", colour: "--shadow", show: duration, dash: STROKES.dashed },
        ],
        { logarithmic: true },
      ),
    ];
    this.end = feed.on(() => this.show());
    addEventListener("theme", this.redraw);
    this.show();
  }

  /** Creates the chart of the allowed requests and of the refusals by reason. */
  requestsChart() {
    const reasons = this.reasonSlots.map((reason, at) => ({ reason, ...REASON_SERIES[at] })).filter((one) => one.reason);
    return new Chart(this.requests, [
      { label: "allowed", colour: "--allow", fill: true, show: rate, mark: compact },
      ...reasons.map((one) => ({ label: one.reason, colour: one.colour, dash: STROKES[one.stroke], show: rate })),
    ]);
  }

  /** Draws other reasons if those with the most refusals in the last hour have changed. */
  chooseReasons(history) {
    const [first, last] = [history[0].reasons, history.at(-1).reasons];
    const counts = [...last].map(([reason, number]) => [reason, number - (first.get(reason) ?? 0)]);
    const most = counts.filter(([, number]) => number > 0).sort(([, one], [, other]) => other - one);
    const named = most.length > REASON_SERIES.length ? most.slice(0, REASON_SERIES.length - 1) : most;
    const wanted = named.map(([reason]) => reason);
    if (most.length > named.length) wanted.push(OTHER);
    const kept = this.reasonSlots.map((reason) => (wanted.includes(reason) ? reason : null));
    // A reason keeps its colour while it is drawn.
    for (const reason of wanted.filter((one) => !kept.includes(one))) {
      const free = kept.indexOf(null);
      kept[free < 0 ? kept.length : free] = reason;
    }
    if (kept.join() === this.reasonSlots.join()) return;
    this.reasonSlots = kept;
    fill(
      this.reasonKeys,
      kept.map((reason, at) => reason && key(`reason-${at + 1} ${REASON_SERIES[at].stroke}`, visible(reason))),
    );
    this.charts[0].close();
    this.charts[0] = this.requestsChart();
  }

  close() {
    this.end();
    removeEventListener("theme", this.redraw);
    this.charts.forEach((chart) => chart.close());
  }

  show() {
    const { status, history } = feed;
    if (!status || !history.length) return;
    if (!status.decisions) return this.uncounted();
    const { allow = 0, shadow_reject = 0, reject = 0 } = status.decisions ?? {};
    const last = history.at(-1);
    const first = since(history, MINUTE);
    const recent = {
      reject: last.reject - first.reject,
      all: last.allow + last.reject - first.allow - first.reject,
    };
    const seen = {
      status,
      rates: rates(history),
      recent,
      allow: allow + shadow_reject,
      all: allow + shadow_reject + reject,
      origin: timing(history, status.timings?.origin.le_ms, "origin", 0.5),
      waits: timing(history, status.timings?.held.le_ms, "held", 0.95),
      decision: timing(history, status.timings?.decision.le_ms, "decision", 0.95),
    };
    for (const tile of this.tiles) {
      write(tile.value, tile.show(seen));
      write(tile.note, tile.below(seen));
    }
    if (this.none) fill(this.waits, COLLECTING);
    this.none = false;
    this.waits.hidden = history.length > 1;
    this.draw(history, status.timings);
    this.showReasons(status, history);
  }

  /** Shows that nothing is counted (`telemetry.metrics: none`). Decisions are still shown. */
  uncounted() {
    if (this.none) return;
    this.none = true;
    this.waits.hidden = false;
    for (const tile of this.tiles) {
      write(tile.value, "–");
      write(tile.note, "not counted");
    }
    fill(
      this.waits,
      "Metrics are off: the configuration has ",
      h("code", "telemetry.metrics: none"),
      ". Decisions are still shown below.",
    );
    fill(this.reasons, empty("Metrics are off.", "Each decision below shows its reason."));
  }

  draw(history, timings) {
    this.chooseReasons(history);
    const times = history.slice(1).map((sample) => sample.at / 1000);
    const perSecond = (of) =>
      history.slice(1).map((sample, at) => {
        const before = history[at];
        return Math.max(0, ((of(sample) - of(before)) * 1000) / (sample.at - before.at));
      });
    const quantiles = (name, q) =>
      history.slice(1).map((_, at) => point(timing(history, timings?.[name].le_ms, name, q, at + 1)));
    const drawn = this.reasonSlots.filter(Boolean);
    const named = new Set(drawn);
    const ofReason = (sample, reason) => {
      if (reason !== OTHER) return sample.reasons.get(reason) ?? 0;
      let sum = 0;
      for (const [other, number] of sample.reasons) if (!named.has(other)) sum += number;
      return sum;
    };
    const refusals = drawn.map((reason) => perSecond((sample) => ofReason(sample, reason)));
    this.charts[0].show([times, perSecond((sample) => sample.allow), ...refusals]);
    this.charts[1].show([times, quantiles("origin", 0.5), quantiles("held", 0.95)]);
  }

  showReasons(status, history) {
    const rows = (status.decisions?.by_reason ?? []).filter((row) => row.verdict !== "allow");
    rows.sort((a, b) => b.count - a.count);
    if (!rows.length) {
      fill(
        this.reasons,
        empty(
          "Nothing has been rejected yet.",
          "Send a crawler through the proxy, or use ",
          h("a", { href: "#/try" }, "Try a URL"),
          ".",
        ),
      );
      return;
    }
    // Samples of the time before the page was opened have no stages.
    const first = since(
      history.filter((sample) => sample.rows),
      MINUTE,
    );
    if (!first) return;
    const seconds = (history.at(-1).at - first.at) / 1000;
    const shown = rows.map((row) => {
      const came = row.count - (first.rows.get(reasonKey(row)) ?? 0);
      return { ...row, perSecond: seconds ? came / seconds : null, share: row.count / rows[0].count };
    });
    if (!this.table.element.isConnected) fill(this.reasons, this.table.element);
    this.table.show(shown);
  }
}

function reasonRow(row) {
  const query = { verdict: row.verdict, stage: row.stage, reason: row.reason };
  const cells = { perSecond: h("td.number"), count: h("td.number") };
  const bar = meter();
  const element = h(
    "tr",
    h("th", { scope: "row" }, decisionsLink(query, visible(row.reason))),
    h("td", row.verdict === "reject" ? visible(row.stage) : verdict(row.verdict)),
    Object.values(cells),
    h("td.bar", bar.element),
  );
  const update = (now) => {
    write(cells.perSecond, `${rate(now.perSecond)}/s`);
    write(cells.count, count(now.count));
    bar.show(now.share);
  };
  return { element, update };
}

function key(colour, words) {
  return h("span.key", { class: `key of-${colour}` }, words);
}

/** Creates a bar that shows a share: an SVG, since the content security policy forbids style attributes. */
function meter() {
  const make = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const bar = make("rect", { height: "100%", rx: "2" });
  const element = make("svg", { "aria-hidden": "true", class: "meter" });
  element.append(bar);
  return { element, show: (share) => bar.setAttribute("width", `${100 * share}%`) };
}
