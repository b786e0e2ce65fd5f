// Events: what the proxy reported about itself, the events of the ledger, and its sweep.

import { api } from "../api.js";
import { confirm, empty, field, fill, h, label, openDialog, select, since, table, withCode, write } from "../dom.js";
import { poll } from "../feed.js";
import { count, dateTime, percent, plural, visible } from "../format.js";
import { detail } from "./urls.js";
import { decisionsLink, failed, showError } from "./verdict.js";

const MESSAGES_EVERY_MS = 3000;
const LEDGER_EVERY_MS = 3000;
const MOST = 100;
// The proxy keeps as many.
const MOST_MESSAGES = 500;
const AREAS = ["policy", "stops", "hosts", "ledger", "tls", "log", "spans", "process"];
const LEVELS = [
  ["", "all"],
  ["warn", "warnings and errors"],
  ["error", "errors"],
];
const LEVEL_MARKS = { error: "bad", warn: "warn", info: "other" };
const COLUMNS = ["When", "Level", "About", "Message"];
const LEVEL_WORDS = { error: "error", warn: "warning", info: "info" };

/** Creates the view; the address contains the filters. */
export function events(main, query) {
  return new Events(main, query);
}

class Events {
  constructor(main, query) {
    this.messages = new Messages();
    this.sweep = new Sweep();
    this.feed = new LedgerEvents();
    fill(main, this.messages.element, this.sweep.element, this.feed.element);
    this.query(query);
    this.ends = [
      poll(() => this.messages.load(), MESSAGES_EVERY_MS),
      poll(() => this.sweep.load(), LEDGER_EVERY_MS),
      poll(() => this.feed.load(), LEDGER_EVERY_MS),
    ];
  }

  query(query) {
    this.messages.query(query);
  }

  close() {
    for (const end of this.ends) end();
    this.messages.close();
    this.feed.close();
  }
}

/** The messages of the process, latest first. */
class Messages {
  constructor() {
    this.kept = [];
    this.next = 0;
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.rows = h("tbody");
    this.box = h("div");
    this.text = h("input", {
      name: "text",
      type: "search",
      placeholder: "part of the message",
      "data-first": "",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.area = select({ name: "area" }, [["", "all"], ...AREAS.map((name) => [name, name])]);
    this.level = select({ name: "level" }, LEVELS);
    this.table = table(
      "Messages, latest first",
      COLUMNS.map((name) => ({ name })),
      this.rows,
    );
    this.table.classList.add("messages");
    this.element = h(
      "section.panel",
      { "aria-labelledby": "messages-title" },
      h("div.panel-head", h("h1", { id: "messages-title" }, "Events"), this.summary),
      h(
        "form.bar-of-filters",
        { oninput: () => this.typed(), onsubmit: (event) => event.preventDefault(), "aria-label": "Filter messages" },
        field("Find", this.text),
        field("About", this.area),
        field("Level", this.level),
      ),
      this.trouble,
      this.box,
    );
  }

  query(query) {
    for (const [name, input] of this.inputs()) if (input !== document.activeElement) input.value = query.get(name) ?? "";
    this.show();
  }

  inputs() {
    return [
      ["text", this.text],
      ["area", this.area],
      ["level", this.level],
    ];
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const given = this.inputs().map(([name, input]) => [name, input.value.trim()]);
      const query = new URLSearchParams(given.filter(([, text]) => text));
      history.replaceState(null, "", `#/events${query.size ? `?${query}` : ""}`);
      this.show();
    }, 200);
  }

  async load() {
    const what = "The messages cannot be shown";
    try {
      const found = await api.messages({ after: this.next });
      showError(this.trouble, what, null);
      // After a restart of the proxy, numbers begin again.
      const restarted = await this.isRestarted(found);
      if (!found.messages.length && !restarted && this.loaded) return;
      this.loaded = true;
      this.next = found.next;
      this.kept = [...(restarted ? [] : this.kept), ...found.messages].slice(-MOST_MESSAGES);
      this.show();
    } catch (error) {
      showError(this.trouble, what, error);
    }
  }

  /** Returns true if the process is another one, and its messages have to be read from the first. */
  async isRestarted(found) {
    if (found.messages.length || this.next === 0) return false;
    const { messages } = await api.messages({ after: 0 });
    const last = messages.at(-1)?.id ?? 0;
    if (last >= this.next) return false;
    found.messages = messages;
    found.next = last;
    return true;
  }

  show() {
    const text = this.text.value.trim().toLowerCase();
    const levels = { "": ["info", "warn", "error"], warn: ["warn", "error"], error: ["error"] }[this.level.value];
    const fits = (one) =>
      levels.includes(one.level) &&
      (!this.area.value || one.area === this.area.value) &&
      one.text.toLowerCase().includes(text);
    const shown = this.kept.filter(fits).reverse();
    if (this.loaded) write(this.summary, `the latest ${plural(this.kept.length, "message")} of the proxy`);
    if (!shown.length) {
      const filtered = text || this.area.value || this.level.value;
      const words = filtered
        ? ["No message matches.", "Clear the filters to see all messages."]
        : ["No messages.", "Reloads, stops, sweeps and failures appear here, as on the proxy's standard error."];
      if (this.loaded) fill(this.box, empty(...words));
      return;
    }
    this.rows.replaceChildren(...shown.map((one) => this.row(one)));
    label(this.rows.rows, COLUMNS);
    if (!this.table.isConnected) fill(this.box, this.table);
  }

  row(one) {
    return h(
      "tr",
      h("td.quiet", { title: one.at }, dateTime(one.at)),
      h("td", h("span.mark", { class: `mark ${LEVEL_MARKS[one.level]}` }, LEVEL_WORDS[one.level] ?? visible(one.level))),
      h("td.quiet", visible(one.area)),
      h("td.words", withCode(visible(one.text))),
    );
  }

  close() {
    clearTimeout(this.timer);
  }
}

const PHASES = { running: "running", done: "finished" };

/** The sweep of the ledger: a dry run that only counts, and the sweep, which asks first and says what it would change. */
class Sweep {
  constructor() {
    this.said = h("div", { role: "status" });
    this.facts = h("div");
    this.held = h("div");
    this.dry = h("button", { type: "button", id: "sweep-dry", onclick: () => this.start(true) }, "Dry run");
    this.real = h("button", { type: "button", id: "sweep", onclick: () => this.ask() }, "Sweep …");
    this.element = h(
      "section.panel",
      { "aria-labelledby": "sweep-title", hidden: true },
      h(
        "div.panel-head",
        h("h2", { id: "sweep-title" }, "Sweep of the ledger"),
        this.dry,
        this.real,
        h("span.quiet", "evaluates every known URL by the active policy"),
      ),
      this.said,
      this.held,
      this.facts,
    );
  }

  async load() {
    try {
      this.show(await api.ledger());
    } catch (error) {
      // Without a ledger, there is nothing to sweep. The events below say so.
      this.element.hidden = error.status === 404;
      if (!this.element.hidden) fill(this.facts, failed("The ledger cannot be shown", error));
    }
  }

  show(ledger) {
    this.element.hidden = false;
    this.ledger = ledger;
    const { sweep } = ledger;
    const running = sweep?.state === "running";
    this.dry.disabled = running;
    this.real.disabled = running;
    const shown = JSON.stringify([sweep, ledger.held_removals, ledger.urls]);
    if (shown === this.shown) return;
    this.shown = shown;
    fill(this.facts, sweep ? sweepOf(sweep) : h("p.quiet", `Not swept since the start; ${plural(ledger.urls, "URL")} known.`));
    fill(this.held, ledger.held_removals.length ? this.heldRemovals(ledger.held_removals) : null);
  }

  /** Starts a sweep. The poll shows its progress. */
  async start(dryRun) {
    try {
      const { sweep } = await api.sweep(dryRun);
      fill(this.said);
      this.show({ ...this.ledger, sweep });
    } catch (error) {
      fill(this.said, failed(dryRun ? "The dry run was not started" : "The sweep was not started", error));
    }
  }

  /** Asks before a sweep, with the numbers of the last dry run under this policy. */
  async ask() {
    const { sweep, urls } = this.ledger;
    const known = sweep?.dry_run && sweep.state === "done" ? sweep : null;
    const content = h(
      "div",
      known
        ? [
            h("p", `The dry run under revision ${visible(known.revision)} found:`),
            h(
              "ul",
              h("li", `${plural(known.removed, "URL")} would leave the index (760)`),
              h("li", `${plural(known.moved, "URL")} would be refused here and stay (761)`),
            ),
          ]
        : h("p", "There is no finished dry run: the number of URLs that would leave the index is not known. Start a dry run first to see it."),
      h(
        "p",
        `All ${plural(urls, "URL")} of the ledger are evaluated. Removals are ordered after the grace time, and those above the limit of ledger.removal_guard are held until they are confirmed.`,
      ),
    );
    if (await confirm("Sweep the ledger", content, "Sweep", { danger: true })) await this.start(false);
  }

  heldRemovals(list) {
    const rows = list.map((one) =>
      h(
        "tr",
        h("th", { scope: "row" }, visible(one.cause)),
        h("td.number", count(one.held)),
        h("td.number", `${count(one.ordered)} of ${count(one.limit)}`),
        h("td.quiet", since(one.since)),
        h(
          "td",
          h(
            "button.danger",
            { type: "button", "aria-label": `Confirm the removals of ${visible(one.cause)}`, onclick: () => this.release(one) },
            "Confirm …",
          ),
        ),
      ),
    );
    const columns = [
      { name: "Removals held" },
      { name: "URLs", kind: "number" },
      { name: "Ordered in 24 hours", kind: "number" },
      { name: "Since" },
      { name: "", head: h("span.hidden", "Actions") },
    ];
    return h(
      "div.notice.warn",
      h("strong", "Removals are held: one cause would remove more URLs than the limit allows."),
      h("p", "If it is a mistake, load the previous policy: nothing that is held has left the index."),
      table("Removals that are held", columns, h("tbody", rows)),
    );
  }

  async release(one) {
    const content = h(
      "p",
      `${plural(one.held, "URL")} leave the index, because of: ${visible(one.cause)}. This cause is not limited for the next 24 hours.`,
    );
    if (!(await confirm("Confirm the removals", content, "Remove them", { danger: true }))) return;
    try {
      await api.confirmRemovals(one.account);
      fill(this.said);
      await this.load();
    } catch (error) {
      fill(this.said, failed("The removals were not confirmed", error));
    }
  }
}

function sweepOf(sweep) {
  const name = sweep.dry_run ? "Dry run" : "Sweep";
  const done = `${count(sweep.looked_at)} of ${plural(sweep.total, "URL")} (${percent(sweep.looked_at, sweep.total || 1)})`;
  const would = sweep.dry_run ? "would leave" : "left";
  const rows = [
    [`${name} ${PHASES[sweep.state] ?? visible(sweep.state)}`, done],
    ["Policy", visible(sweep.revision)],
    [`${capital(would)} the index (760)`, count(sweep.removed)],
    ["In another space, stay (761)", count(sweep.moved)],
    ["Already 760 or 761, or pending", count(sweep.unchanged)],
    ["Refused otherwise, stay", count(sweep.refused)],
    ["Allowed", count(sweep.allowed)],
  ];
  const gaps = sweep.gaps.slice(0, MOST).map((gap) =>
    h(
      "tr",
      h("th.url", { scope: "row" }, visible(gap.url)),
      h("td.number", gap.code ?? ""),
      h("td", visible(gap.crawler)),
      h("td", gap.rule ? decisionsLink({ rule: gap.rule }, visible(gap.rule)) : ""),
    ),
  );
  const columns = [{ name: "URL" }, { name: "Code", kind: "number" }, { name: "Crawler" }, { name: "Rule" }];
  return [
    h(
      "dl.facts",
      rows.map(([term, given]) => h("div", h("dt", term), h("dd", given))),
    ),
    gaps.length
      ? h(
          "details",
          h("summary", `${plural(sweep.gaps.length, "URL")} newly refused`),
          table("URLs newly refused", columns, h("tbody", gaps)),
        )
      : null,
  ];
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Returns why an event was ordered; of a permanent error the kind says it, so it is the origin's status. */
function reasonOf(event) {
  if (event.why !== event.kind) return visible(event.why.replaceAll("_", " "));
  return event.status ? `the origin answers ${event.status}` : "";
}

const KINDS = [
  ["", "all"],
  ["removal", "removals"],
  ["permanent_error", "permanent errors"],
  ["moved", "moved"],
  ["restored", "restored"],
];

/** The events of the ledger, latest first. */
class LedgerEvents {
  constructor() {
    this.box = h("div");
    this.trouble = h("div");
    this.kind = select({ name: "kind", "aria-label": "Kind of event" }, KINDS);
    this.kind.addEventListener("change", () => this.load(true));
    this.element = h(
      "section.panel",
      { "aria-labelledby": "events-title" },
      h("div.panel-head", h("h2", { id: "events-title" }, "Events of the ledger"), h("span.check", this.kind)),
      this.trouble,
      this.box,
    );
  }

  async load(asked = false) {
    const turn = (this.turn = {});
    const what = "The events cannot be shown";
    try {
      const { last_event: last } = await api.ledger();
      const kind = this.kind.value;
      if (turn !== this.turn || (!asked && last === this.last)) return;
      // The latest hundred of one kind may reach back further than the latest hundred of all.
      const after = Math.max(0, last - (kind ? 1000 : MOST));
      const found = await api.events([["after", after], ["limit", 1000], ...(kind ? [["kind", kind]] : [])]);
      if (turn !== this.turn) return;
      this.last = last;
      showError(this.trouble, what, null);
      this.rows(found.events.reverse().slice(0, MOST));
    } catch (error) {
      if (turn !== this.turn) return;
      if (error.status === 404) fill(this.box, empty("There is no ledger.", visible(error.message)));
      else showError(this.trouble, what, error);
    }
  }

  rows(list) {
    if (!list.length) {
      fill(this.box, empty("No events.", "An event is added when a URL is removed, restored, fails permanently or moves."));
      return;
    }
    const columns = ["URL", "What", "Why", "Crawler", "Rule", "When"].map((name) => ({ name }));
    const rows = list.map((event) =>
      h(
        "tr",
        h(
          "th.url",
          { scope: "row" },
          h("button.link", { type: "button", onclick: () => this.open(event) }, visible(event.url)),
        ),
        h("td", KINDS.find(([name]) => name === event.kind)?.[1].replace(/s$/, "") ?? visible(event.kind)),
        h("td", reasonOf(event)),
        h("td", visible(event.crawler)),
        h("td", visible(event.rule ?? "")),
        h("td.quiet", since(event.at)),
      ),
    );
    fill(this.box, table("Events of the ledger", columns, h("tbody", rows)));
  }

  /** Shows the record of the URL of an event. */
  async open({ url, crawler }) {
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
    this.turn = null;
  }
}
