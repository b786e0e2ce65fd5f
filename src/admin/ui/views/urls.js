// URLs: the records of the ledger, and one of them in detail.

import { api } from "../api.js";
import { empty, field, fill, h, label, openDialog, select, since, table, write } from "../dom.js";
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
const TIMES = new Set([
  "first_seen",
  "last_seen",
  "last_fetched",
  "last_error",
  "last_changed",
  "removed_at",
  "pending_since",
]);
const COLUMNS = ["URL", "Crawler", "Status", "Code", "Last request"];
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
    );
    this.query(query);
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
    label(rows, COLUMNS);
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
    const columns = COLUMNS.map((name) => ({ name, kind: name === "Code" ? "number" : null }));
    fill(this.box, table("URLs", columns, this.rows));
  }

  row(record) {
    const open = h("button.link", { type: "button", onclick: () => detail(record) }, visible(record.url));
    return h(
      "tr",
      h("th.url", { scope: "row" }, open),
      h("td", visible(record.crawler)),
      h("td", status(record.status)),
      h("td.number", record.code ?? ""),
      h("td.quiet", since(record.last_seen)),
    );
  }

  close() {
    clearTimeout(this.timer);
    this.turn = null;
  }
}

function status(word) {
  const kind = word === "ACCEPTED" ? "allow" : "reject";
  return h("span", { class: `mark ${kind}` }, visible(word.replace("REJECTED_", "")));
}

/** Shows the whole record of one URL. */
export function detail(record) {
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
