// URLs: the records of the ledger, one of them in detail, and the feed of events.

import { api } from "../api.js";
import { empty, field, fill, h, openDialog, select, since, table, write } from "../dom.js";
import { count, dateTime, plural, value, visible } from "../format.js";
import { showError, tryLink } from "./verdict.js";

const MOST = 100;
const TYPED_MS = 300;
const STATUSES = [
  "ACCEPTED",
  "REJECTED_FILTER",
  "REJECTED_ROBOTS_TXT",
  "REJECTED_USAGE",
  "REJECTED_TOO_DEEP",
  "REJECTED_TRAP",
  "REJECTED_BUDGET",
  "REJECTED_PREMATURE",
  "REJECTED_UNMODIFIED",
  "REJECTED_DUPLICATE",
  "REJECTED_NONCANONICAL",
  "REJECTED_ROBOTS_META_NOINDEX",
  "REJECTED_NOTFOUND",
  "REJECTED_BAD_STATUS",
  "REJECTED_ERROR",
  "REJECTED_IMPORT",
  "REJECTED_ADDRESS",
];
const KINDS = [
  ["", "all"],
  ["removal", "removals"],
  ["permanent_error", "permanent errors"],
  ["moved", "moved"],
  ["restored", "restored"],
];
const TIMES = new Set([
  "first_seen",
  "last_seen",
  "last_fetched",
  "last_error",
  "last_changed",
  "removed_at",
  "pending_since",
]);
const FILTERS = ["crawler", "host", "status", "code", "prefix", "known"];

/** Creates the view; the address contains the filters. */
export function urls(main, query) {
  return new Urls(main, query);
}

class Urls {
  constructor(main, query) {
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.box = h("div");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.load(this.next) }, "More");
    this.rows = h("tbody");
    this.form = this.filters();
    this.feed = new Feed((url, crawler) => this.one(url, crawler));
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "urls-title" },
        h("div.panel-head", h("h1", { id: "urls-title" }, "URLs"), this.summary),
        this.form,
        this.trouble,
        this.box,
        h("p", this.more),
      ),
      this.feed.element,
    );
    this.query(query);
    this.feed.load();
  }

  filters() {
    const text = (name, hint, more = {}) =>
      h("input", { name, type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false", ...more });
    const statuses = [["", "any"], ...STATUSES.map((word) => [word, word.replace("REJECTED_", "")])];
    const known = [
      ["", "any"],
      ["true", "fetched"],
      ["false", "refused only"],
    ];
    return h(
      "form.bar-of-filters",
      { oninput: () => this.typed(), onsubmit: (event) => event.preventDefault(), "aria-label": "Filters" },
      field("URL, or its beginning", text("prefix", "http://www.example.com/", { "data-first": "" })),
      field("Host", text("host", "*. for subdomains")),
      field("Crawler", text("crawler", "any")),
      field("Status", select({ name: "status" }, statuses)),
      field("Code", text("code", "760", { inputmode: "numeric" })),
      field("Known", select({ name: "known" }, known)),
    );
  }

  query(query) {
    for (const name of FILTERS) {
      const input = this.form.elements[name];
      if (input !== document.activeElement) input.value = query.get(name) ?? "";
    }
    this.load(null);
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const given = FILTERS.map((name) => [name, this.form.elements[name].value.trim()]).filter(([, said]) => said);
      const query = new URLSearchParams(given);
      history.replaceState(null, "", `#/urls${query.size ? `?${query}` : ""}`);
      this.load(null);
    }, TYPED_MS);
  }

  asked() {
    const given = FILTERS.map((name) => [name, this.form.elements[name].value.trim()]);
    return given.filter(([, said]) => said);
  }

  /** Loads the first page, or the one after a key. */
  async load(after) {
    const turn = (this.turn = {});
    const what = "The URLs cannot be shown";
    try {
      const asked = [...this.asked(), ["limit", MOST]];
      const [found, stats] = await Promise.all([
        api.urls(after ? [...asked, ["after", after]] : asked),
        after ? null : api.ledger(),
      ]);
      if (turn !== this.turn) return;
      if (stats) this.total = stats.urls;
      this.show(found, after !== null);
      showError(this.trouble, what, null);
    } catch (error) {
      if (turn !== this.turn) return;
      write(this.summary, "");
      this.more.hidden = true;
      showError(this.trouble, what, error);
    }
  }

  show(found, more) {
    const rows = found.urls.map((record) => this.row(record));
    if (more) this.rows.append(...rows);
    else this.rows.replaceChildren(...rows);
    this.next = found.next;
    this.more.hidden = !found.next;
    write(this.summary, `${plural(this.total ?? 0, "URL")} in the ledger, ${count(this.rows.children.length)} shown`);
    if (!this.rows.children.length) {
      const words = found.next
        ? ["No match so far.", "The search reached its time limit; More continues it."]
        : this.asked().length
          ? ["No URL matches.", "Clear the fields to see all URLs."]
          : ["The ledger is empty.", "A URL is added when a request for it is answered, or when its refusal is logged."];
      fill(this.box, empty(...words));
      return;
    }
    if (this.rows.isConnected) return;
    const columns = ["URL", "Crawler", "Status", "Code", "Last request"].map((name) => ({ name }));
    fill(this.box, table("URLs", columns, this.rows));
  }

  row(record) {
    const open = h("button.plain", { type: "button", onclick: () => detail(record) }, visible(record.url));
    return h(
      "tr",
      h("th.url", { scope: "row" }, open),
      h("td", visible(record.crawler)),
      h("td", status(record.status)),
      h("td.number", record.code ?? ""),
      h("td.quiet", since(record.last_seen)),
    );
  }

  /** Shows the record of a URL that an event names. */
  async one(url, crawler) {
    try {
      const found = await api.urls([
        ["url", url],
        ["crawler", crawler],
      ]);
      if (found.urls.length) detail(found.urls[0]);
      else openDialog("URL", empty("The ledger no longer has this URL.", visible(url)));
    } catch (error) {
      showError(this.trouble, "The URL cannot be shown", error);
    }
  }

  close() {
    clearTimeout(this.timer);
    this.turn = null;
    this.feed.close();
  }
}

function status(word) {
  const kind = word === "ACCEPTED" ? "allowed" : "rejected";
  return h("span", { class: `mark ${kind}` }, visible(word.replace("REJECTED_", "")));
}

/** Shows the whole record of one URL. */
function detail(record) {
  const shown = Object.entries(record).filter(([, given]) => given !== null);
  const facts = {
    url: record.url,
    crawler: record.crawler === "anonymous" ? "" : record.crawler,
    known: record.known ? "true" : "",
    depth: record.depth,
  };
  openDialog(
    "URL",
    h(
      "div",
      h("p.links", tryLink(facts, "Why? Explain this URL")),
      h(
        "dl.fields",
        shown.map(([name, given]) => [h("dt", name), h("dd", TIMES.has(name) ? dateTime(given) : value(given))]),
      ),
    ),
  );
}

/** The feed of events, latest first. */
class Feed {
  constructor(show) {
    this.show = show;
    this.box = h("div");
    this.trouble = h("div");
    this.kind = select({ name: "kind", "aria-label": "Kind of event" }, KINDS);
    this.kind.addEventListener("change", () => this.load());
    this.element = h(
      "section.panel",
      { "aria-labelledby": "events-title" },
      h("div.panel-head", h("h2", { id: "events-title" }, "Events"), this.kind),
      this.trouble,
      this.box,
    );
  }

  async load() {
    const turn = (this.turn = {});
    try {
      const { last_event: last } = await api.ledger();
      const kind = this.kind.value;
      // The latest hundred of one kind may reach back further than the latest hundred of all.
      const after = Math.max(0, last - (kind ? 1000 : MOST));
      const found = await api.events([["after", after], ["limit", 1000], ...(kind ? [["kind", kind]] : [])]);
      if (turn !== this.turn) return;
      showError(this.trouble, "The events cannot be shown", null);
      this.rows(found.events.reverse().slice(0, MOST));
    } catch (error) {
      // If there is no ledger, the list above says so.
      if (turn === this.turn && error.status !== 404) showError(this.trouble, "The events cannot be shown", error);
    }
  }

  rows(events) {
    if (!events.length) {
      fill(this.box, empty("No events.", "An event is added when a URL is removed, restored, fails permanently or moves."));
      return;
    }
    const columns = ["URL", "What", "Why", "Crawler", "Rule", "When"].map((name) => ({ name }));
    const rows = events.map((event) =>
      h(
        "tr",
        h(
          "th.url",
          { scope: "row" },
          h(
            "button.plain",
            { type: "button", onclick: () => this.show(event.url, event.crawler) },
            visible(event.url),
          ),
        ),
        h("td", KINDS.find(([name]) => name === event.kind)?.[1].replace(/s$/, "") ?? visible(event.kind)),
        h("td", visible(event.why.replaceAll("_", " "))),
        h("td", visible(event.crawler)),
        h("td", visible(event.rule ?? "")),
        h("td.quiet", since(event.at)),
      ),
    );
    fill(this.box, table("Events", columns, h("tbody", rows)));
  }

  close() {
    this.turn = null;
  }
}
