// The live decisions: a filtered stream, newest first. The page has at most 500 rows, and lines that would be dropped
// at once are not even parsed, so a fast crawl does not slow the browser.

import { cards, empty, field, fill, h, label, select, suggestions, write } from "../dom.js";
import { feed } from "../feed.js";
import { clock, count, duration, plural, value, visible } from "../format.js";
import { follow, memory } from "../stream.js";
import { details } from "./line.js";
import { WhyRefused } from "./why.js";
import { failed, verdict } from "./verdict.js";

const ROWS = 500;
const RECENT = 200;
const DRAW_MS = 250;
// More at once would block the browser for a noticeable time.
const DRAWN_AT_ONCE = 100;
const TYPED_MS = 300;
// The API rejects longer values of a filter.
const MAX_LENGTH = 256;

/** All filters of the stream; those of `MORE` are under "More filters". */
const MORE = ["stage", "method", "status", "held"];
const FIELDS = ["url", "verdict", "reason", "rule", "crawler", "host", ...MORE];
const HELD_MS = /^\d+$/;
const VERDICTS = [
  ["", "any"],
  ["allow", "allowed"],
  ["reject", "rejected"],
  ["shadow_reject", "shadow"],
];
const COLUMNS = ["Time", "Verdict", "Why", "Status", "Crawler", "Method", "URL", "Held"];

export class Decisions {
  constructor(query, { alone }) {
    this.name = alone ? "decisions" : "now";
    this.body = h("tbody");
    this.paused = null;
    this.state = h("span", { role: "status" }, "connecting");
    this.counts = h("span.quiet");
    this.button = h("button", { type: "button", onclick: () => this.pause(), "aria-keyshortcuts": "p" }, "Pause");
    this.none = h("div");
    this.trouble = h("div");
    this.form = this.filters();
    const heads = COLUMNS.map((name) =>
      h("th", { scope: "col", class: name === "Held" || name === "Status" ? "number" : null }, name),
    );
    this.element = h(
      "section.panel.decisions",
      { "aria-labelledby": "decisions-title" },
      h(
        "div.panel-head",
        h("h2", { id: "decisions-title" }, "Decisions"),
        this.state,
        this.counts,
        this.button,
        this.elsewhere(alone),
      ),
      new WhyRefused().element,
      this.form,
      this.trouble,
      h(
        "div.scroll.rows",
        { role: "region", tabindex: "0", "aria-label": "Live decisions" },
        cards("Decisions, newest first", heads, this.body),
        this.none,
      ),
    );
    this.shown = () => this.visibility();
    document.addEventListener("visibilitychange", this.shown);
    this.ends = feed.on(() => this.suggest());
    this.query(query);
    this.suggest();
  }

  elsewhere(alone) {
    return alone
      ? h("a.aside", { href: "#/now" }, "Overview")
      : h("a.aside", { href: "#/decisions", id: "all-decisions" }, "All decisions");
  }

  filters() {
    const text = (name, hint, more = {}) =>
      h("input", {
        name,
        type: "search",
        placeholder: hint,
        autocomplete: "off",
        spellcheck: "false",
        maxlength: MAX_LENGTH,
        list: `of-${name}`,
        ...more,
      });
    this.lists = ["reason", "rule", "crawler"].map((name) => suggestions(`of-${name}`, []));
    this.chips = h("div.chips");
    this.more = h(
      "details.more-filters",
      h("summary", "More filters"),
      h(
        "div.filters",
        field("Stage", text("stage", "any", { list: null })),
        field("Method", text("method", "any", { list: null })),
        field("Status", text("status", "451", { list: null, inputmode: "numeric" })),
        field("Held for at least (ms)", text("held", "1000", { list: null, inputmode: "numeric" })),
      ),
    );
    return h(
      "form.filters",
      {
        "aria-label": "Filter decisions",
        oninput: () => this.typed(),
        onsubmit: (event) => event.preventDefault(),
      },
      field("URL", text("url", "part of it", { "data-first": "", list: null })),
      field("Verdict", select({ name: "verdict" }, VERDICTS)),
      field("Reason", text("reason", "any")),
      field("Rule", text("rule", "any")),
      field("Crawler", text("crawler", "any")),
      field("Host", text("host", "name or *.suffix", { list: null })),
      h("button.plain", { type: "button", onclick: () => this.go(new URLSearchParams()) }, "Clear"),
      this.more,
      this.chips,
      this.lists,
    );
  }

  suggest() {
    const { status, policy } = feed;
    const names = [
      (status?.decisions?.by_reason ?? []).map((row) => row.reason),
      (policy?.rules ?? []).map((rule) => rule.id),
      (status?.decisions?.by_crawler ?? []).map((row) => row.crawler),
    ];
    this.lists.forEach((list, at) => {
      const wanted = [...new Set(names[at])];
      if (wanted.join("\n") === list.dataset.said) return;
      list.dataset.said = wanted.join("\n");
      fill(
        list,
        wanted.map((name) => h("option", { value: name })),
      );
    });
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const query = new URLSearchParams();
      for (const name of FIELDS) {
        const given = this.form.elements[name].value.trim();
        if (given && fits(name, given)) query.append(name, given);
      }
      for (const [name, given] of this.others) query.append(name, given);
      this.go(query);
    }, TYPED_MS);
  }

  /** Writes the filters to the address, so that it can be shared. Typing adds nothing to the history. */
  go(query) {
    const asked = query.toString();
    history.replaceState(null, "", `#/${this.name}${asked ? `?${asked}` : ""}`);
    this.query(query);
  }

  /** Follows the decisions that match these filters. */
  query(query) {
    const asked = [...query].filter(([name, given]) => FIELDS.includes(name) && given);
    if (this.asked && JSON.stringify(asked) === JSON.stringify(this.asked)) return;
    this.asked = asked;
    for (const name of FIELDS) {
      const input = this.form.elements[name];
      const given = query.get(name) ?? "";
      if (input !== document.activeElement || !this.timer) input.value = given;
    }
    this.timer = 0;
    if (MORE.some((name) => query.get(name))) this.more.open = true;
    // A field shows one value; each further value of a key is a chip.
    const names = new Set();
    this.others = asked.filter(([name]) => names.has(name) || (names.add(name), false));
    fill(
      this.chips,
      this.others.map(([name, given]) => this.chip(name, given)),
    );
    this.open();
  }

  chip(name, given) {
    const gone = this.others.find(([n, g]) => n === name && g === given);
    const without = new URLSearchParams(this.asked.filter((one) => one !== gone));
    return h(
      "button.chip",
      {
        type: "button",
        "aria-label": `Remove the filter ${name} ${visible(given)}`,
        onclick: () => this.go(without),
      },
      `${name}: ${visible(given)} ×`,
    );
  }

  /** Starts over. If the user paused the list, it stays paused after the first rows. */
  open() {
    this.end?.();
    this.end = null;
    fill(this.body);
    fill(this.trouble);
    if (this.paused === "details") this.paused = null;
    Object.assign(this, { waiting: [], came: 0, lost: 0, live: "connecting", seen: memory(), first: true });
    this.start();
    clearInterval(this.drawing);
    this.drawing = setInterval(() => document.hidden || this.draw(), DRAW_MS);
    this.draw();
  }

  /** Continues the stream. A hidden page has no connection, since a browser allows six for all its tabs. */
  start() {
    if (document.hidden || this.end) return;
    this.end = follow(
      this.asked,
      RECENT,
      {
        lines: (texts) => this.take(texts),
        lost: (number) => (this.lost += number),
        gap: (ms) => this.take([`Disconnected for ${duration(ms)}: decisions of that time may be missing here.`]),
        state: (text, failure) => this.showState(text, failure),
      },
      this.seen,
    );
  }

  showState(text, failure) {
    this.live = text;
    const message = failure?.message ?? "";
    // During another attempt, the error stays and is not announced again.
    if (text !== "connecting" && message !== this.trouble.dataset.said) {
      this.trouble.dataset.said = message;
      fill(this.trouble, failure ? failed("The live decisions stopped", failure) : null);
    }
    this.draw();
  }

  take(texts) {
    this.came += texts.length;
    this.waiting.push(...texts);
    if (this.waiting.length > ROWS) this.waiting.splice(0, this.waiting.length - ROWS);
  }

  /** Pauses or resumes the rows, not the stream: new decisions are counted meanwhile. */
  pause(cause = "button") {
    if (this.paused) {
      this.paused = null;
    } else {
      this.paused = cause;
      this.came = 0;
    }
    this.draw();
  }

  visibility() {
    if (!document.hidden) return this.start();
    this.end?.();
    this.end = null;
    return undefined;
  }

  draw() {
    if ((!this.paused || this.first) && this.waiting.length) {
      this.first = false;
      this.came = 0;
      const rows = this.waiting
        .splice(0, DRAWN_AT_ONCE)
        .reverse()
        .map((text) => this.row(text));
      this.body.prepend(...rows);
      while (this.body.children.length > ROWS) this.body.lastElementChild.remove();
    }
    const lost = this.lost
      ? ` ${plural(this.lost, "line")} lost: there were more than this page could read; narrow the filter`
      : "";
    write(this.state, this.paused ? "paused" : this.live);
    // Outside of the status role, since this changes four times a second.
    write(this.counts, (this.paused ? `${count(this.came)} new since then` : "") + lost);
    write(this.button, this.paused ? "Resume" : "Pause");
    this.showNone();
  }

  showNone() {
    const nothing = !this.body.firstElementChild;
    const kind = !nothing ? "" : this.asked.length ? "filtered" : "all";
    if (this.none.dataset.kind === kind) return;
    this.none.dataset.kind = kind;
    const words = {
      "": null,
      filtered: empty("No recent decision matches these filters.", "New ones appear here as they are made."),
      all: empty(
        "No decisions yet.",
        "Point a crawler at the proxy's port; ",
        h("code", "crawlgate env"),
        " prints the settings.",
      ),
    };
    fill(this.none, words[kind]);
  }

  row(text) {
    let line;
    try {
      line = JSON.parse(text);
    } catch {
      const gap = h("tr", h("td", { colspan: COLUMNS.length }, visible(text)));
      label([gap], []);
      return gap;
    }
    const why = line.reason === "rule" || line.rule ? (line.rule ?? line.reason) : line.reason;
    const address = line.url ?? line.host;
    const button = h(
      "button.row-button",
      { type: "button", "aria-expanded": "false", title: value(line.ts) },
      clock(line.ts),
    );
    const row = h(
      "tr",
      { class: line.verdict },
      h("td", button),
      h("td", verdict(line.verdict)),
      h("td.why", { title: value(line.reason) }, visible(why ?? "–")),
      h("td.number", value(line.sent_status)),
      h("td", value(line.crawler)),
      h("td", value(line.method)),
      h("td.url", address ? visible(address) : h("span.quiet", "not recorded")),
      h("td.number", line.held_ms ? duration(line.held_ms) : ""),
    );
    label([row], COLUMNS);
    row.addEventListener("click", (event) => {
      // Selecting text with the pointer does not open the row. The keyboard (which has no click count) always does.
      const selecting = event.detail > 0 && getSelection().toString();
      if (!event.target.closest("a") && !selecting) this.toggle(row, button, line);
    });
    return row;
  }

  /** Opens or closes the details below a row. The list pauses while some are open. */
  toggle(row, button, line) {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) row.nextElementSibling.remove();
    else {
      const below = h("tr.details", h("td", { colspan: COLUMNS.length }, details(line)));
      label([below], []);
      row.after(below);
    }
    const any = this.body.querySelector("tr.details");
    if (!open && !this.paused) this.pause("details");
    else if (!any && this.paused === "details") this.pause();
  }

  close() {
    this.end?.();
    this.ends();
    clearInterval(this.drawing);
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.shown);
  }
}

/** Returns false for a number that is not fully typed, which the API would reject. */
function fits(name, given) {
  return (name !== "held" && name !== "status") || HELD_MS.test(given);
}
