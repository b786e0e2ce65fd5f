// Hosts: waiting requests, pace and backoff of each host, and a button that stops one.

import { api } from "../api.js";
import { empty, field, fill, h, write } from "../dom.js";
import { poll } from "../feed.js";
import { ago, count, duration, plural, visible } from "../format.js";
import { KeptTable } from "../table.js";
import { Host, isAddress, next, slots } from "./host.js";
import { askStop, Stops } from "./stops.js";
import { hostLink, nodeLink, showError } from "./verdict.js";

const EVERY_MS = 3000;
const TYPED_MS = 300;
const MOST = 200;
const COLUMNS = [
  { name: "Host", key: "name", sorted: "ascending" },
  { name: "Waiting", kind: "number", key: "waiting", sorted: "descending" },
  { name: "Slots", kind: "number" },
  { name: "Next in", kind: "number", key: "next", sorted: "ascending" },
  { name: "Delay", kind: "number" },
  { name: "Backoff", key: "rest", sorted: "descending" },
  { name: "Last request" },
  { name: "Errors in a row", kind: "number" },
  { name: "", title: "Actions" },
];

/** The cells between the name and the button: class and text. */
const CELLS = [
  ["number", (row) => count(row.waiting)],
  ["number", slots],
  ["number", next],
  ["number", (row) => duration(row.delay_ms)],
  ["rests", backoff],
  ["quiet", (row) => (row.last_request ? ago(row.last_request) : "–")],
  ["number", (row) => (row.errors_in_row ? count(row.errors_in_row) : "")],
];

function backoff(row) {
  if (row.stopped) return "stopped";
  return row.resting ? `${duration(row.resting.for_ms)} left, ${visible(row.resting.why ?? "")}` : "";
}

/** Creates the view: the table, or one host if the address names it. */
export function hosts(main, query) {
  return new Hosts(main, query);
}

class Hosts {
  constructor(main, query) {
    this.main = main;
    this.query(query);
  }

  query(query) {
    const host = query.get("host");
    if (host && this.detail?.name === host) {
      this.detail.query(query);
      return;
    }
    if (!host && this.list) {
      this.list.query(query);
      return;
    }
    this.close();
    if (host) this.detail = new Host(this.main, host, query);
    else this.list = new List(this.main, query);
  }

  close() {
    this.detail?.close();
    this.list?.close();
    this.detail = null;
    this.list = null;
  }
}

class List {
  constructor(main, query) {
    this.summary = h("span.quiet", "loading");
    this.scope = h("div");
    this.trouble = h("div");
    this.box = h("div");
    this.table = new KeptTable("Tracked hosts", COLUMNS, {
      key: (row) => row.host,
      make: (row) => this.row(row),
      sort: (sort) => this.go({ sort }),
    });
    this.stops = new Stops();
    this.text = h("input", {
      type: "search",
      placeholder: "part of the name",
      "data-first": "",
      autocomplete: "off",
      spellcheck: "false",
    });
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "hosts-title" },
        h("div.panel-head", h("h1", { id: "hosts-title" }, "Hosts"), this.summary),
        this.scope,
        h(
          "form.bar-of-filters",
          { oninput: () => this.typed(), onsubmit: (event) => event.preventDefault() },
          field("Find", this.text),
          h("button", { type: "button", onclick: () => askStop({ what: "" }, () => this.stops.load()) }, "Stop …"),
        ),
        this.trouble,
        this.box,
      ),
      this.stops.element,
    );
    this.read(query);
    this.end = poll(() => this.load(), EVERY_MS);
  }

  read(query) {
    this.asked = { sort: query.get("sort") ?? "waiting", q: query.get("q") ?? "" };
    if (this.text !== document.activeElement) this.text.value = this.asked.q;
  }

  query(query) {
    this.read(query);
    this.end.now();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.go({ q: this.text.value.trim() }), TYPED_MS);
  }

  go(change) {
    const asked = Object.entries({ ...this.asked, ...change }).filter(
      ([name, given]) => given && !(name === "sort" && given === "waiting"),
    );
    const query = new URLSearchParams(asked);
    history.replaceState(null, "", `#/hosts${query.size ? `?${query}` : ""}`);
    this.query(query);
  }

  async load() {
    const { asked } = this;
    const query = Object.entries({ ...asked, limit: MOST }).filter(([, given]) => given);
    const what = "The hosts cannot be shown";
    try {
      const [found] = await Promise.all([api.hosts(query), this.stops.load()]);
      // The query may have changed meanwhile.
      if (asked !== this.asked) return;
      this.show(found);
      showError(this.trouble, what, null);
    } catch (error) {
      if (asked === this.asked) showError(this.trouble, what, error);
    }
  }

  show(found) {
    const rows = found.hosts;
    this.showScope(found.fleet);
    const more = found.total > rows.length ? `, ${rows.length} shown` : "";
    write(this.summary, `${plural(found.total, "host")}${this.asked.q ? " match" : " tracked"}${more}`);
    if (!rows.length) {
      const words = this.asked.q
        ? ["No host matches.", "Clear the field to see all tracked hosts."]
        : [
            "No host is tracked.",
            "A host appears with its first request and disappears some time after its last.",
          ];
      fill(this.box, empty(...words));
      return;
    }
    if (!this.table.element.isConnected) fill(this.box, this.table.element);
    this.table.sorted(this.asked.sort);
    this.table.show(rows);
  }

  /** In a fleet: whose hosts these are, and who has the others. Written again only if it changes. */
  showScope(fleet) {
    const said = fleet?.others.length ? JSON.stringify(fleet) : "";
    if ((this.scope.dataset.said ?? "") === said) return;
    this.scope.dataset.said = said;
    if (!said) {
      fill(this.scope);
      return;
    }
    const { own, of_others, unowned } = fleet.partitions;
    const others = fleet.others.map((other, at) => [at ? ", " : "", nodeLink(other, "#/hosts")]);
    fill(
      this.scope,
      h(
        "p.quiet",
        `The hosts of ${visible(fleet.node)}, which owns ${count(own)} of ${count(own + of_others + unowned)} partitions. `,
        "The others are shown by ",
        others,
        ".",
      ),
    );
  }

  row(row) {
    const stop = h(
      "button.plain",
      {
        type: "button",
        "aria-label": `Stop ${visible(row.host)}`,
        onclick: () => askStop({ what: row.host }, () => this.end.now()),
      },
      "Stop",
    );
    const cells = CELLS.map(([kind]) => h("td", { class: kind }));
    const element = h("tr", h("th.url", { scope: "row" }, hostLink(row.host)), cells, h("td", stop));
    const update = (now) => {
      cells.forEach((cell, at) => write(cell, CELLS[at][1](now)));
      stop.hidden = Boolean(now.stopped) || isAddress(now.host);
    };
    return { element, update };
  }

  close() {
    this.end();
    clearTimeout(this.timer);
  }
}
