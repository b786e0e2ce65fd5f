// Rules: the policy as a tree, with the counters of each rule and the effect of those in shadow mode. The proxy
// searches, sorts and counts; the page shows one part of the rules at a time, since there may be 100,000.

import { poll } from "../feed.js";
import { api } from "../api.js";
import { empty, field, fill, h, write } from "../dom.js";
import { ago, count, dateTime, plural, visible } from "../format.js";
import { sparkline } from "../sparkline.js";
import { KeptTable } from "../table.js";
import { decisionsLink, showError, tryLink } from "./verdict.js";

const EVERY_MS = 5000;
const MAX_DEPTH = 6;
const PAGE_ROWS = 100;
// The rules of a group whose decisions its link shows; each is a filter.
const MOST_INSIDE = 20;
const MAX_PAGE = 1_000_000;
const TYPED_MS = 300;

/** The groups of rules: the name in the address of the page, the words of the button, and the name in the API. */
const KEPT = [
  ["all", "all rules", "all"],
  ["dead", "never matched", "never_matched"],
  ["shadow", "in shadow", "shadow"],
  ["disabled", "disabled", "disabled"],
  ["rejecting", "with rejections", "rejecting"],
];

/** The state of the view when the address says nothing. */
const DEFAULTS = { text: "", kept: "all", sort: "tree", order: "", page: "1" };

/** A column with `sort` can be sorted; it is the name of the order in the API. */
const COLUMNS = [
  { name: "Rule", key: "tree", sort: "position", sorted: "ascending", title: "In the order of the policy" },
  { name: "Kind", key: "kind", sort: "kind", sorted: "ascending" },
  { name: "Condition", key: "condition", sort: "condition", sorted: "ascending" },
  number("Matched", "matched"),
  number("Rejected", "rejected"),
  number("Allowed", "allowed"),
  { name: "Last hour", kind: "number", key: "hour", sort: "last_hour", sorted: "descending", title: "Matches in the last hour" },
  { name: "Last match", key: "last", sort: "last_match", sorted: "descending" },
  { name: "In shadow", key: "shadow", sort: "shadow", sorted: "descending" },
];
/** The directions of the API. */
const ORDERS = { ascending: "asc", descending: "desc" };

function number(name, key) {
  return { name, key, sort: key, kind: "number", sorted: "descending", title: `Sort by ${name.toLowerCase()}` };
}

function isDead(rule) {
  return rule.mode !== "disabled" && rule.matched === 0;
}

/** Creates the view. */
export function rules(main, query) {
  return new Rules(main, query);
}

class Rules {
  constructor(main, query) {
    this.main = main;
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.shadowPolicy = h("div");
    this.box = h("div");
    this.part = h("span.quiet", { role: "status" });
    this.before = h("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.after = h("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.pages = h("div.actions", { role: "group", "aria-label": "Pages", hidden: true }, this.before, this.after, this.part);
    this.table = new KeptTable("Rules of the policy", COLUMNS, {
      key: (rule) => rule.id,
      make: (rule) => this.row(rule),
      sort: (sort, order) => this.go({ sort, order: order === this.table.columnOf(sort).sorted ? "" : order }),
    });
    this.read(query);
    this.text = h("input", {
      type: "search",
      name: "text",
      value: this.asked.text,
      placeholder: "id, about, condition or file",
      "data-first": "",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.kinds = h(
      "div.actions",
      { role: "group", "aria-label": "Which rules" },
      KEPT.map(([name, words]) => this.kind(name, words)),
    );
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "rules-title" },
        h("div.panel-head", h("h1", { id: "rules-title" }, "Rules"), this.summary),
        h(
          "form.bar-of-filters",
          { onsubmit: (event) => event.preventDefault(), oninput: () => this.typed() },
          field("Find", this.text),
          this.kinds,
        ),
        this.trouble,
        this.shadowPolicy,
        this.box,
        this.pages,
      ),
    );
    for (const button of this.kinds.children) press(button, button.dataset.kept === this.asked.kept);
    this.end = poll(() => this.load(), EVERY_MS);
  }

  read(query) {
    this.asked = Object.fromEntries(
      Object.entries(DEFAULTS).map(([name, given]) => [name, query.get(name) ?? given]),
    );
  }

  kind(name, words) {
    return h("button", { type: "button", data: { kept: name }, onclick: () => this.go({ kept: name }) }, words);
  }

  /** Searches when the last key was pressed some time ago. */
  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.go({}), TYPED_MS);
  }

  /** Shows other rules. Unless another page is asked for, it is the first one. */
  go(change) {
    const asked = { ...this.asked, text: this.text.value, page: DEFAULTS.page, ...change };
    const query = new URLSearchParams(
      Object.entries(asked).filter(([name, given]) => given && given !== DEFAULTS[name]),
    );
    history.replaceState(null, "", `#/rules${query.size ? `?${query}` : ""}`);
    this.query(query);
  }

  turn(pages) {
    this.go({ page: String(this.page() + pages) });
  }

  page() {
    return Math.min(MAX_PAGE, Math.max(1, Math.trunc(Number(this.asked.page)) || 1));
  }

  query(query) {
    clearTimeout(this.timer);
    this.read(query);
    if (this.text !== document.activeElement) this.text.value = this.asked.text;
    for (const button of this.kinds.children) press(button, button.dataset.kept === this.asked.kept);
    this.end.now();
  }

  /** Returns the parameters of the API. */
  wanted() {
    const group = KEPT.find(([name]) => name === this.asked.kept)?.[2] ?? "all";
    const { sort } = this.column();
    const offset = (this.page() - 1) * PAGE_ROWS;
    return { search: this.asked.text.trim(), group, sort, order: ORDERS[this.direction()], offset, limit: PAGE_ROWS };
  }

  /** Returns the column by which the rules are sorted. */
  column() {
    return COLUMNS.find((column) => column.key === this.asked.sort) ?? COLUMNS[0];
  }

  direction() {
    return ORDERS[this.asked.order] ? this.asked.order : this.column().sorted;
  }

  async load() {
    const what = "The rules cannot be shown";
    const asked = this.asked;
    try {
      const [found, shadow] = await Promise.all([api.policyRules(this.wanted()), api.shadow()]);
      // Another question was asked meanwhile; its answer follows.
      if (asked !== this.asked) return;
      this.take(found, shadow);
      showError(this.trouble, what, null);
    } catch (error) {
      showError(this.trouble, what, error);
    }
  }

  take(found, shadow) {
    // A reload starts over, since an id may now be another rule.
    const stamp = `${found.name}@${found.revision} ${found.loaded_at}`;
    if (this.stamp !== stamp) {
      this.stamp = stamp;
      this.table.clear();
    }
    this.found = found;
    this.shadow = shadow;
    this.shadows = new Map((shadow.rules ?? []).map((entry) => [entry.rule, entry]));
    // The rules became fewer.
    if (!found.rules.length && found.total) this.go({ page: String(Math.ceil(found.total / PAGE_ROWS)) });
    else this.show(found);
  }

  show(found) {
    const { all, never_matched: dead, not_counted: uncounted } = found.groups;
    const notCounted = uncounted ? `, ${count(uncounted)} not counted` : "";
    write(
      this.summary,
      `${plural(all, "rule")} of ${visible(found.name)}; ${count(dead)} never matched${notCounted}; default: ${visible(found.disposition ?? "allow")}`,
    );
    this.showShadowPolicy();
    this.showPages(found);
    if (!found.rules.length) {
      const words = all
        ? ["No rule matches.", "Choose \u201call rules\u201d and clear the field."]
        : ["This policy has no rules.", "Add rules under ", h("code", "rules:"), " in the policy file."];
      fill(this.box, empty(...words));
      return;
    }
    if (!this.table.element.isConnected) fill(this.box, this.table.element);
    this.table.sorted(this.column().key, this.direction());
    this.table.show(found.rules);
  }

  showPages(found) {
    const end = found.offset + found.rules.length;
    this.pages.hidden = found.total <= PAGE_ROWS;
    this.before.disabled = found.offset === 0;
    this.after.disabled = end >= found.total;
    write(this.part, found.rules.length ? `${count(found.offset + 1)} to ${count(end)} of ${count(found.total)}` : "");
  }

  row(rule) {
    const cells = {
      matched: h("td.number"),
      rejected: h("td.number"),
      allowed: h("td.number"),
      hour: h("td.number.trend"),
      last: h("td.quiet"),
      shadow: h("td"),
    };
    const depth = Math.min(rule.depth ?? 0, MAX_DEPTH);
    const row = h(
      "tr",
      { class: rule.mode, data: { rule: rule.id } },
      h(
        "th",
        { scope: "row", class: `rule-name depth-${depth}` },
        h("span.id", this.matches(rule)),
        rule.about && h("span.about", visible(rule.about)),
        rule.space && h("span.about", `space ${visible(rule.space)}`),
      ),
      h(
        "td",
        visible(rule.key ?? rule.kind ?? ""),
        rule.mode !== "enforce" && [" ", h("span.mark", { class: `mark ${rule.mode}` }, rule.mode)],
      ),
      h(
        "td",
        h("div.condition", visible(rule.condition ?? "")),
        rule.file && h("div.place", `${visible(rule.file)}:${rule.line}`),
      ),
      Object.values(cells),
    );
    const trend = { words: h("span"), line: sparkline() };
    fill(cells.hour, trend.line.element, trend.words);
    return { element: row, update: (now) => this.update(row, cells, trend, now) };
  }

  update(row, cells, trend, rule) {
    row.classList.toggle("dead", isDead(rule));
    write(cells.matched, count(rule.matched));
    write(cells.rejected, count(rule.rejected));
    write(cells.allowed, count(rule.allowed));
    write(trend.words, count(rule.last_hour));
    trend.line.show(rule.trend);
    write(cells.last, lastWords(rule));
    cells.last.title = rule.last_match ?? "";
    const entry = this.shadows.get(rule.id);
    if (entry) this.showShadow(cells.shadow, entry);
  }

  showShadow(cell, entry) {
    this.shadowEffects ??= new WeakMap();
    if (!this.shadowEffects.has(cell)) this.shadowEffects.set(cell, new ShadowEffect(cell));
    this.shadowEffects.get(cell).show(entry);
  }

  /** Links to the view of the shadow policy. */
  showShadowPolicy() {
    const entry = this.shadow?.shadow_policy;
    const said = entry ? `${entry.policy}@${entry.revision}` : "";
    if (said === this.shadowSaid) return;
    this.shadowSaid = said;
    const words = entry && h("p", h("a", { href: "#/shadow" }, `Shadow policy ${visible(said)}`), " is evaluated beside these rules.");
    fill(this.shadowPolicy, words);
  }

  /**
   * Links to the decisions of a rule. A group decides nothing itself: for it these are the decisions of the rules in it
   * that are shown.
   */
  matches(rule) {
    const inside = rule.kind === "group" ? this.rulesIn(rule.id).slice(0, MOST_INSIDE) : [];
    const named = inside.length ? inside : [rule.id];
    return decisionsLink(
      named.map((id) => ["rule", id]),
      visible(rule.id),
    );
  }

  rulesIn(id) {
    const children = this.found.rules.filter((rule) => rule.parent === id);
    return children.flatMap((rule) => (rule.kind === "group" ? this.rulesIn(rule.id) : [rule.id]));
  }

  close() {
    clearTimeout(this.timer);
    this.end();
  }
}

function press(button, pressed) {
  const now = String(pressed);
  if (button.getAttribute("aria-pressed") !== now) button.setAttribute("aria-pressed", now);
}

function lastWords(rule) {
  if (rule.mode === "disabled") return "disabled";
  if ((rule.matched ?? null) === null) return "not counted";
  return rule.matched === 0 ? "never" : ago(rule.last_match);
}

/** The effect that a rule or policy in shadow mode would have. Its elements are reused, so that the focus stays. */
class ShadowEffect {
  constructor(box) {
    this.words = h("span");
    this.of = h("span.quiet");
    this.summary = h("summary");
    this.list = h("ul");
    this.examples = h("details", { hidden: true }, this.summary, this.list);
    fill(box, this.words, this.of, this.examples);
  }

  show(entry) {
    const refuse = entry.would_refuse?.total ?? 0;
    const admit = entry.would_admit?.total ?? 0;
    write(this.words, `would refuse ${count(refuse)}${admit ? `, would admit ${count(admit)}` : ""}`);
    write(this.of, ` of ${count(entry.judged)}`);
    const list = [...(entry.would_refuse?.examples ?? []), ...(entry.would_admit?.examples ?? [])];
    const said = JSON.stringify(list);
    // The list is not replaced while it has the focus.
    if (said === this.said || this.list.contains(document.activeElement)) return;
    this.said = said;
    this.examples.hidden = !list.length;
    write(this.summary, plural(list.length, "example"));
    fill(this.list, examples(list));
  }
}

function examples(list) {
  return list.map((one) =>
    h(
      "li",
      h("span.quiet", `${dateTime(one.at)} `),
      one.url
        ? tryLink({ url: one.url, crawler: one.crawler }, h("span.mono", visible(one.url)))
        : visible(one.host ?? "–"),
    ),
  );
}
