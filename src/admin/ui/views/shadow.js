// Shadow: the rules in shadow mode and the shadow policy: what they would change, with examples.

import { api } from "../api.js";
import { empty, fill, h, label, table, write } from "../dom.js";
import { feed, poll } from "../feed.js";
import { count, dateTime, percent, plural, visible } from "../format.js";
import { KeptTable } from "../table.js";
import { askChange, changed, effectOf } from "./rollout.js";
import { decisionsLink, problemList, showError, tryLink } from "./verdict.js";

const EVERY_MS = 3000;

/** Creates the view. */
export function shadow(main) {
  return new Shadow(main);
}

const RULE_COLUMNS = [
  { name: "Rule" },
  { name: "Space" },
  { name: "Evaluated", kind: "number" },
  { name: "Matched", kind: "number" },
  { name: "Would refuse", kind: "number" },
  { name: "Share", kind: "number" },
  { name: "Would admit", kind: "number" },
];

class Shadow {
  constructor(main) {
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.policy = new ShadowPolicy(() => this.end.now());
    this.box = h("div");
    this.table = new KeptTable("Rules in shadow mode", RULE_COLUMNS, { key: (entry) => entry.rule, make: ruleRow });
    this.examples = new Examples("Examples of the rules in shadow mode");
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "shadow-title" },
        h("div.panel-head", h("h1", { id: "shadow-title" }, "Shadow"), this.summary),
        h("p.quiet", "Rules and policies in shadow are evaluated, counted and logged, but change no answer."),
        this.trouble,
        this.policy.element,
      ),
      h(
        "section.panel",
        { "aria-labelledby": "shadow-rules-title" },
        h("h2", { id: "shadow-rules-title" }, "Rules in shadow mode"),
        this.box,
        this.examples.element,
      ),
    );
    this.end = poll(() => this.load(), EVERY_MS);
  }

  async load() {
    const what = "The shadows cannot be shown";
    try {
      this.show(await api.shadow());
      showError(this.trouble, what, null);
    } catch (error) {
      showError(this.trouble, what, error);
    }
  }

  show(found) {
    const { rules, shadow_policy: policy } = found;
    write(
      this.summary,
      `${plural(rules.length, "rule")} of ${visible(found.policy)}@${visible(found.revision)}; ${policy ? "1 shadow policy" : "no shadow policy"}`,
    );
    this.policy.show(policy, found);
    if (rules.length) {
      if (!this.table.element.isConnected) fill(this.box, this.table.element);
      this.table.show(rules);
    } else if (!this.none) {
      this.table.clear();
      fill(this.box, empty("No rule is in shadow mode.", "Set ", h("code", "mode: shadow"), " on a rule to see what it would refuse."));
    }
    this.none = !rules.length;
    this.examples.show(rules.flatMap((entry) => examplesOf(entry, entry.rule)));
  }

  close() {
    this.end();
  }
}

function ruleRow(entry) {
  const cells = {
    evaluated: h("td.number"),
    matched: h("td.number"),
    refuse: h("td.number"),
    share: h("td.number"),
    admit: h("td.number"),
  };
  const element = h(
    "tr",
    { data: { rule: entry.rule } },
    h(
      "th.rule-name",
      { scope: "row" },
      h("span.id", decisionsLink({ rule: entry.rule }, visible(entry.rule))),
      entry.about && h("span.about", visible(entry.about)),
    ),
    h("td", entry.space ? visible(entry.space) : ""),
    Object.values(cells),
  );
  const update = (now) => {
    write(cells.evaluated, count(now.judged));
    write(cells.matched, count(now.matched));
    write(cells.refuse, count(now.would_refuse.total));
    write(cells.share, percent(now.would_refuse.total, now.judged));
    write(cells.admit, count(now.would_admit.total));
  };
  return { element, update };
}

/** The shadow policy: its totals by rule and reason, its last reload, and examples. */
class ShadowPolicy {
  constructor(reload) {
    this.reload = reload;
    this.note = h("div", { role: "status" });
    this.facts = h("dl.facts");
    this.changes = h("div");
    this.problems = h("div");
    this.examples = new Examples("Examples of the shadow policy");
    this.none = empty(
      "There is no shadow policy.",
      h("code", "crawlgate shadow set PATH"),
      " sets one, without a restart: it is evaluated beside the active policy. ",
      h("code", "policy.shadow"),
      " of the configuration names one from the start.",
    );
    const buttons = h(
      "div.panel-head",
      h("h2", "Shadow policy"),
      h("button", { type: "button", id: "promote", onclick: () => this.promote() }, "Promote …"),
      h("button", { type: "button", id: "clear-shadow", onclick: () => this.clear() }, "Clear …"),
    );
    this.whole = h("div", buttons, this.facts, this.problems, this.changes, this.examples.element);
    this.element = h("div", { id: "shadow-policy" });
  }

  show(entry, active) {
    const wanted = entry ? this.whole : this.none;
    if (this.element.lastChild !== wanted) fill(this.element, this.note, wanted);
    this.entry = entry;
    this.active = active;
    if (!entry) return;
    const said = JSON.stringify(entry);
    if (said === this.said) return;
    this.said = said;
    const rows = [
      ["Shadow policy", `${visible(entry.policy)}@${visible(entry.revision)}`],
      ["Compared with", `${visible(active.policy)}@${visible(active.revision)}`],
      ["Evaluated", plural(entry.judged, "request")],
      ["Admitted, would refuse", `${count(entry.would_refuse.total)} (${percent(entry.would_refuse.total, entry.judged)})`],
      ["Refused, would admit", `${count(entry.would_admit.total)} (${percent(entry.would_admit.total, entry.judged)})`],
    ];
    const { set } = entry;
    const by = set && [set.user, set.address].filter(Boolean).join(", ");
    if (set) rows.push(["Set", `${dateTime(set.at)}${by ? ` by ${visible(by)}` : ""}${set.reason ? `: ${visible(set.reason)}` : ""}`]);
    else rows.push(["Set", "by policy.shadow of the configuration"]);
    fill(
      this.facts,
      rows.map(([name, given]) => h("div", h("dt", name), h("dd", given))),
    );
    const last = entry.last_reload;
    fill(
      this.problems,
      last?.problems?.length
        ? [h("p", `Its last reload, ${dateTime(last.at)}: ${visible(last.result)}.`), problemList(last.problems)]
        : null,
    );
    fill(this.changes, changesOf(entry));
    this.examples.show(examplesOf(entry, null));
  }

  /** Makes the shadow policy the active one: that which the dialog shows, or none. */
  promote() {
    const { entry, active } = this;
    const content = h(
      "div",
      h("p", "The shadow policy becomes the active one at once. Its files are written where ", h("code", "policy.path"), " names them."),
      fromTo(nameOf(active), nameOf(entry)),
      h("p", "As a shadow, it has shown what will change:"),
      effectOf(entry),
    );
    const send = (reason) => api.promote({ revision: entry.revision, reason });
    askChange({ title: "Promote the shadow policy", content, action: "Promote" }, send, (answer) => this.done(answer));
  }

  clear() {
    const { entry } = this;
    const content = h("p", `${nameOf(entry)} is no longer evaluated, and what it would have changed is forgotten. The active policy stays.`);
    askChange(
      { title: "Clear the shadow policy", content, action: "Clear", required: false },
      (reason) => api.clearShadow(reason),
      (answer) => this.done(answer),
    );
  }

  done(answer) {
    fill(this.note, changed(answer));
    feed.askPolicy();
    this.reload();
  }
}

/** Returns what the dialogs about a change say: the policies before and after it. */
function fromTo(before, after) {
  return h(
    "dl.facts",
    h("div", h("dt", "Active now"), h("dd.mono", before)),
    h("div", h("dt", "Then"), h("dd.mono", after)),
  );
}

function nameOf({ policy, revision }) {
  return `${visible(policy)}@${visible(revision)}`;
}

/** Shows how many decisions each rule of the shadow policy would change. */
function changesOf(entry) {
  const parts = [
    ["would refuse", entry.would_refuse],
    ["would admit", entry.would_admit],
  ];
  const rows = parts.flatMap(([change, tally]) => [
    ...Object.entries(tally.rules).map(([rule, number]) => ({ change, cause: `rule ${rule}`, number })),
    ...Object.entries(tally.reasons)
      .filter(([reason]) => reason !== "rule")
      .map(([reason, number]) => ({ change, cause: reason, number })),
  ]);
  rows.sort((one, other) => other.number - one.number);
  if (!rows.length) return null;
  const body = h(
    "tbody",
    rows.map((row) =>
      h("tr", h("th", { scope: "row" }, visible(row.cause)), h("td", changeMark(row.change)), h("td.number", count(row.number))),
    ),
  );
  return table("Changed decisions", [{ name: "Cause" }, { name: "Change" }, { name: "Requests", kind: "number" }], body);
}

function changeMark(change) {
  return h("span.mark", { class: `mark ${change === "would refuse" ? "reject" : "allow"}` }, change);
}

function examplesOf(entry, rule) {
  const refused = (entry.would_refuse?.examples ?? []).map((one) => ({ ...one, change: "would refuse" }));
  const admitted = (entry.would_admit?.examples ?? []).map((one) => ({ ...one, change: "would admit" }));
  return [...refused, ...admitted].map((one) => ({ ...one, cause: rule ?? one.rule ?? one.reason }));
}

const EXAMPLE_COLUMNS = ["URL", "Change", "By", "Crawler", "When"];

/** The latest requests that a shadow would have decided otherwise. */
class Examples {
  constructor(caption) {
    this.rows = h("tbody");
    this.summary = h("summary");
    this.element = h(
      "details.examples",
      { hidden: true, open: true },
      this.summary,
      table(
        caption,
        EXAMPLE_COLUMNS.map((name) => ({ name })),
        this.rows,
      ),
    );
  }

  show(list) {
    const sorted = [...list].sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
    const said = JSON.stringify(sorted);
    // The rows are not replaced while one has the focus.
    if (said === this.said || this.rows.contains(document.activeElement)) return;
    this.said = said;
    this.element.hidden = !sorted.length;
    write(this.summary, `The latest ${plural(sorted.length, "example")}`);
    const rows = sorted.map(exampleRow);
    label(rows, EXAMPLE_COLUMNS);
    this.rows.replaceChildren(...rows);
  }
}

function exampleRow(one) {
  return h(
    "tr",
    h(
      "th.url",
      { scope: "row" },
      one.url ? tryLink({ url: one.url, crawler: one.crawler }, visible(one.url)) : visible(one.host ?? "not recorded"),
    ),
    h("td", changeMark(one.change)),
    h("td.mono", visible(one.cause ?? "")),
    h("td", visible(one.crawler ?? "")),
    h("td.quiet", dateTime(one.at)),
  );
}
