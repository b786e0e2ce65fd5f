// Crawlers: who uses the proxy, how much of it is refused, and if they trust its certificates.

import { api } from "../api.js";
import { field, fill, h, since, write } from "../dom.js";
import { feed, poll } from "../feed.js";
import { count, percent, plural, rate, visible } from "../format.js";
import { KeptTable, sortRows } from "../table.js";
import { decisionsLink, showError } from "./verdict.js";

const EVERY_MS = 3000;
const TYPED_MS = 300;
// The reasons of refusals that a row names.
const MOST_REASONS = 3;
// A shorter time is too short for a rate.
const SHORTEST_SPAN_MS = 2000;

const COLUMNS = [
  { name: "Crawler", key: "crawler", sorted: "ascending" },
  { name: "Space", key: "space", sorted: "ascending" },
  { name: "Requests/s", kind: "number", key: "rate", sorted: "descending", title: "In the last minute" },
  { name: "Requests", kind: "number", key: "requests", sorted: "descending", title: "Since the start" },
  { name: "Refused", kind: "number", key: "refused", sorted: "descending", title: "Since the start" },
  { name: "Refused, last hour", kind: "number", key: "hour", sorted: "descending", title: "The share of its requests" },
  { name: "Why" },
  { name: "Our certificates", key: "trust", sorted: "ascending", title: "Does it trust the certificate authority?" },
  { name: "Last seen", key: "seen", sorted: "descending" },
];

const TRUST = {
  trusted: ["good", "trusted"],
  distrusted: ["bad", "rejected"],
  partly: ["warn", "partly rejected"],
  unknown: ["other", "no handshake yet"],
};
const TRUST_ORDER = ["distrusted", "partly", "unknown", "trusted"];

const VALUES = {
  crawler: (row) => row.crawler,
  space: (row) => row.space,
  rate: perSecond,
  requests,
  refused: (row) => row.reject,
  hour: (row) => (all(row.last_hour) ? row.last_hour.reject / all(row.last_hour) : null),
  trust: (row) => (row.tls ? TRUST_ORDER.indexOf(row.tls.trust) : null),
  seen: (row) => (row.last_seen ? Date.parse(row.last_seen) : null),
};

function requests(row) {
  return row.allow === null ? null : row.allow + row.shadow_reject + row.reject;
}

function all(recent) {
  return recent ? recent.allow + recent.reject : 0;
}

function perSecond({ last_minute: recent }) {
  return recent && recent.span_ms >= SHORTEST_SPAN_MS ? (all(recent) * 1000) / recent.span_ms : null;
}

/** Creates the view; the address contains the filter and the order. */
export function crawlers(main, query) {
  return new Crawlers(main, query);
}

class Crawlers {
  constructor(main, query) {
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.distrust = h("div");
    this.table = new KeptTable("Crawlers", COLUMNS, {
      key: (row) => row.crawler,
      make: crawlerRow,
      sort: (sort, order) => this.go({ sort, order }),
    });
    this.text = h("input", {
      type: "search",
      placeholder: "name, space, profile or reason",
      "data-first": "",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.none = h("p.quiet", { hidden: true }, "No crawler matches.");
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "crawlers-title" },
        h("div.panel-head", h("h1", { id: "crawlers-title" }, "Crawlers"), this.summary),
        h(
          "form.bar-of-filters",
          { oninput: () => this.typed(), onsubmit: (event) => event.preventDefault() },
          field("Find", this.text),
        ),
        this.trouble,
        this.distrust,
        this.table.element,
        this.none,
        h(
          "p.quiet",
          "Crawlers are defined under ",
          h("code", "crawlers:"),
          " of the ",
          h("a", { href: "#/configuration?text=crawlers" }, "configuration"),
          ". Requests of other clients count as ",
          h("code", "anonymous"),
          ".",
        ),
      ),
    );
    this.read(query);
    this.end = poll(() => this.load(), EVERY_MS);
  }

  read(query) {
    const sort = query.get("sort") ?? "requests";
    const column = this.table.columnOf(sort) ?? this.table.columnOf("requests");
    this.asked = { text: query.get("text") ?? "", sort: column.key, order: query.get("order") ?? column.sorted };
    if (this.text !== document.activeElement) this.text.value = this.asked.text;
  }

  query(query) {
    this.read(query);
    if (this.found) this.show();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.go({ text: this.text.value.trim() }), TYPED_MS);
  }

  go(change) {
    const { text, sort, order } = { ...this.asked, ...change };
    const usual = { text: "", sort: "requests", order: this.table.columnOf(sort).sorted };
    const asked = Object.entries({ text, sort, order }).filter(([name, given]) => given !== usual[name]);
    const query = new URLSearchParams(asked);
    history.replaceState(null, "", `#/crawlers${query.size ? `?${query}` : ""}`);
    this.query(query);
  }

  async load() {
    const what = "The crawlers cannot be shown";
    try {
      this.found = await api.crawlers();
      this.show();
      showError(this.trouble, what, null);
    } catch (error) {
      showError(this.trouble, what, error);
    }
  }

  show() {
    const { found, asked } = this;
    const text = asked.text.toLowerCase();
    const fits = (row) => JSON.stringify([row.crawler, row.space, row.profile, row.reasons]).toLowerCase().includes(text);
    const rows = sortRows(found.crawlers.filter(fits), VALUES[asked.sort], asked.order);
    const configured = found.crawlers.filter((row) => row.configured).length;
    const counted = found.metrics === "none" ? "; not counted (telemetry.metrics: none)" : "";
    write(this.summary, `${plural(configured, "crawler")} configured${counted}`);
    this.table.sorted(asked.sort, asked.order);
    this.table.show(rows);
    this.none.hidden = rows.length > 0;
    this.showDistrust(found.crawlers);
  }

  /** Names the crawlers that reject the proxy's certificates, and what to do. */
  showDistrust(rows) {
    const names = rows.filter((row) => row.tls?.trust === "distrusted").map((row) => row.crawler);
    const said = names.join(" ");
    if (this.said === said) return;
    this.said = said;
    const words = h(
      "div.notice.warn",
      h("strong", `The proxy's certificates are rejected by ${visible(names.join(", "))}.`),
      " Its requests over HTTPS fail. Let it trust ",
      h("a", { href: "/ca.pem" }, "the certificate authority"),
      "; ",
      h("code", "crawlgate env"),
      " prints the settings of common clients.",
    );
    fill(this.distrust, names.length ? words : null);
  }

  close() {
    clearTimeout(this.timer);
    this.end();
  }
}

function crawlerRow(row) {
  const cells = Object.fromEntries(
    ["space", "rate", "requests", "refused", "hour", "why", "trust", "seen"].map((name) => [name, h("td")]),
  );
  for (const name of ["rate", "requests", "refused", "hour"]) cells[name].className = "number";
  cells.seen.className = "quiet";
  const about = [
    row.profile && `profile ${row.profile}`,
    row.robots_agent && `robots.txt: ${row.robots_agent}`,
    row.may.length > 0 && `may ${row.may.join(", ")}`,
    !row.configured && "clients without a name",
  ].filter(Boolean);
  const name = h(
    "th.rule-name",
    { scope: "row" },
    h("span.id", decisionsLink({ crawler: row.crawler }, visible(row.crawler))),
    about.length > 0 && h("span.about", visible(about.join("; "))),
  );
  const element = h("tr", { data: { crawler: row.crawler } }, name, Object.values(cells));
  const said = {};
  // Cells with elements are replaced only when they change, so that the focus stays.
  const put = (cell, value, make) => {
    const next = JSON.stringify(value);
    if (said[cell] === next) return;
    said[cell] = next;
    fill(cells[cell], make());
  };
  const why = new Reasons(cells.why, row.crawler);
  const update = (now) => {
    write(cells.space, now.space === null ? "" : visible(now.space));
    write(cells.rate, rate(perSecond(now)));
    write(cells.requests, count(requests(now)));
    write(cells.refused, count(now.reject));
    write(cells.hour, now.last_hour ? percent(now.last_hour.reject, all(now.last_hour)) : "–");
    why.show(now);
    const intercepts = feed.status?.https?.intercept ?? true;
    put("trust", [now.tls, intercepts], () => trustOf(now.tls, intercepts));
    put("seen", now.last_seen, () => since(now.last_seen));
  };
  return { element, update };
}

/** The most frequent reasons of a crawler's refusals. Links are kept while their reason is, so that the focus stays. */
class Reasons {
  constructor(cell, crawler) {
    Object.assign(this, { cell, crawler, counts: new Map() });
  }

  show(now) {
    const reasons = Object.entries(now.reasons ?? {}).sort(([, a], [, b]) => b - a);
    const shown = reasons.slice(0, MOST_REASONS);
    const names = JSON.stringify([shown.map(([reason]) => reason), reasons.length]);
    if (names !== this.names) {
      this.names = names;
      this.counts = new Map(shown.map(([reason]) => [reason, h("span")]));
      const links = shown.map(([reason]) => [
        decisionsLink({ crawler: this.crawler, reason }, visible(reason)),
        " ",
        this.counts.get(reason),
        " ",
      ]);
      fill(this.cell, links, reasons.length > shown.length && `and ${reasons.length - shown.length} more`);
    }
    for (const [reason, number] of shown) write(this.counts.get(reason), count(number));
  }
}

function trustOf(tls, intercepts) {
  if (!intercepts) return h("span.quiet", "not needed");
  if (!tls) return "–";
  const [kind, words] = TRUST[tls.trust] ?? ["other", tls.trust];
  const failed = Object.entries(tls.failures).filter(([, number]) => number > 0);
  const detail = [
    tls.handshakes > 0 && plural(tls.handshakes, "handshake"),
    ...failed.map(([cause, number]) => `${count(number)} ${cause === "distrust" ? "rejected" : cause}`),
  ].filter(Boolean);
  return [
    h("span.mark", { class: `mark ${kind}` }, visible(words)),
    detail.length > 0 && h("span.quiet", ` ${visible(detail.join(", "))}`),
  ];
}
