// Configuration: the settings in force, and where each comes from.

import { api } from "../api.js";
import { empty, field, fill, h, since, table, write } from "../dom.js";
import { feed } from "../feed.js";
import { plural, visible } from "../format.js";
import { showError } from "./verdict.js";

const TYPED_MS = 200;

/** Creates the view; the address contains the filter. */
export function configuration(main, query) {
  return new Configuration(main, query);
}

class Configuration {
  constructor(main, query) {
    this.summary = h("span.quiet", "loading");
    this.trouble = h("div");
    this.facts = h("dl.facts");
    this.box = h("div");
    this.text = h("input", {
      type: "search",
      placeholder: "key, value or description",
      "data-first": "",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.changed = h("input", { type: "checkbox", name: "changed" });
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "configuration-title" },
        h("div.panel-head", h("h1", { id: "configuration-title" }, "Configuration"), this.summary),
        this.trouble,
        this.facts,
        h(
          "form.bar-of-filters",
          { oninput: () => this.typed(), onsubmit: (event) => event.preventDefault(), "aria-label": "Filter settings" },
          field("Find", this.text),
          h("label.check.beside", this.changed, "only those that differ from the default"),
        ),
        this.box,
        h("p.quiet", "A change of the file takes effect at the next start. The policy is reloaded without one."),
      ),
    );
    this.query(query);
    this.end = feed.on(() => this.showFacts());
    this.load();
  }

  query(query) {
    if (this.text !== document.activeElement) this.text.value = query.get("text") ?? "";
    this.changed.checked = query.get("changed") === "true";
    if (this.found) this.show();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const text = this.text.value.trim();
      const asked = [...(text ? [["text", text]] : []), ...(this.changed.checked ? [["changed", "true"]] : [])];
      const query = new URLSearchParams(asked);
      history.replaceState(null, "", `#/configuration${query.size ? `?${query}` : ""}`);
      this.show();
    }, TYPED_MS);
  }

  async load() {
    const turn = (this.turn = {});
    const what = "The configuration cannot be shown";
    try {
      const found = await api.config();
      if (turn !== this.turn) return;
      this.found = found;
      this.process = feed.status?.started_at;
      showError(this.trouble, what, null);
      this.showFacts();
      this.show();
    } catch (error) {
      if (turn === this.turn) showError(this.trouble, what, error);
    }
  }

  /** Shows what matters most. A restart may have changed all of it. */
  showFacts() {
    const { status } = feed;
    if (!status || !this.found) return;
    if (this.process && this.process !== status.started_at) {
      this.process = null;
      this.load();
      return;
    }
    this.process = status.started_at;
    const { https } = status;
    const said = JSON.stringify([status.version, status.listeners, https, status.policy_path, status.decision_log]);
    if (said === this.said) return;
    this.said = said;
    const listeners = status.listeners.map((one) =>
      h("div.mono", `${visible(one.address)}${one.crawler ? ` (${visible(one.crawler)})` : ""}`),
    );
    const rows = [
      ["Version", visible(status.version)],
      ["Started", since(status.started_at)],
      ["Configuration file", mono(this.found.file ?? "none: all defaults")],
      ["Policy", mono(status.policy_path ?? "built in")],
      ["Listeners for crawlers", listeners],
      [
        "HTTPS",
        https.intercept
          ? ["evaluated by URL; clients trust ", h("a", { href: "/ca.pem" }, "this certificate authority")]
          : "evaluated by host only (tls.intercept: false)",
      ],
      ["Decision log", mono(status.decision_log)],
      ["Metrics", status.metrics === "none" ? "off" : h("a", { href: "/metrics" }, "/metrics")],
    ];
    fill(
      this.facts,
      rows.map(([name, given]) => h("div", h("dt", name), h("dd", given))),
    );
  }

  show() {
    const { file, settings } = this.found;
    const text = this.text.value.trim().toLowerCase();
    const fits = (one) =>
      (!this.changed.checked || differs(one)) &&
      [one.key, one.about, words(one.value)].some((part) => part.toLowerCase().includes(text));
    const shown = settings.filter(fits);
    const set = settings.filter((one) => one.source !== "default").length;
    write(this.summary, `${plural(settings.length, "setting")}, ${set} set, ${settings.filter(differs).length} not at the default`);
    if (!shown.length) {
      fill(this.box, empty("No setting matches.", "Clear the field to see all settings."));
      return;
    }
    const groups = Map.groupBy
      ? Map.groupBy(shown, section)
      : shown.reduce((all, one) => all.set(section(one), [...(all.get(section(one)) ?? []), one]), new Map());
    fill(
      this.box,
      [...groups].map(([name, rows]) => [h("h2.group", visible(name)), sectionTable(name, rows, file)]),
    );
  }

  close() {
    clearTimeout(this.timer);
    this.turn = null;
    this.end();
  }
}

/** Returns the section of a setting. Settings of the top level are those of clients. */
function section({ key }) {
  return key.includes(".") ? key.split(".")[0] : "clients";
}

function differs(one) {
  return one.source !== "default" && JSON.stringify(one.value) !== JSON.stringify(one.default);
}

const COLUMNS = ["Setting", "Value", "Default", "From"].map((name) => ({ name }));

function sectionTable(name, rows, file) {
  const body = h(
    "tbody",
    rows.map((one) =>
      h(
        "tr",
        { class: differs(one) ? "set" : null, data: { setting: one.key } },
        h("th.rule-name", { scope: "row" }, h("span.id", visible(one.key)), h("span.about", visible(one.about))),
        h("td.setting", valueOf(one.value)),
        h("td.setting.quiet", visible(words(one.default))),
        h("td.quiet", place(one, file)),
      ),
    ),
  );
  return table(`Settings: ${visible(name)}`, COLUMNS, body);
}

function place(one, file) {
  if (one.source === "command_line") return h("span.mono", visible(one.option));
  if (one.source !== "file") return "default";
  const name = (file ?? "").split("/").at(-1);
  return h("span.mono", { title: visible(file ?? "") }, `${visible(name)}:${one.line}`);
}

/** Shows a path or a URL, which may wrap after each slash. */
function mono(text) {
  const parts = visible(text).split(/(?<=\/)/);
  return h("span.mono", parts.flatMap((part, at) => (at ? [h("wbr"), part] : [part])));
}

/** Returns a value on one line. */
function words(of) {
  if (of === null) return "–";
  if (Array.isArray(of)) return of.length ? of.map(words).join(", ") : "none";
  if (typeof of !== "object") return String(of);
  return Object.entries(of)
    .map(([name, given]) => `${name}: ${words(given)}`)
    .join("; ");
}

/** Shows a value; each item of a list on a line of its own. */
function valueOf(of) {
  if (!Array.isArray(of) || !of.length) return visible(words(of));
  return of.map((item) => h("div", visible(words(item))));
}
