// Try a URL: the decision of the active policy about given facts, with rules, options and the response.

import { api } from "../api.js";
import { feed } from "../feed.js";
import { empty, field, fill, h, select, suggestions, write } from "../dom.js";
import { WhyRefused } from "./why.js";
import { explained } from "./explained.js";
import { failed } from "./verdict.js";

const PROFILES = [
  "generic",
  "strict-http",
  "scrapy",
  "crawlee",
  "browsertrix",
  "warcprox",
  "heritrix",
  "nutch",
  "stormcrawler",
  "norconex",
  "cloudview",
  "httpx",
  "newspaper",
  "lychee",
];
const DESTS = [
  ["", "not known"],
  ["navigation", "a page of its own"],
  ["embed", "part of another page"],
];
const NUMBERS = new Set(["depth", "year", "status", "size"]);
const CHECKS = new Set(["tunnel", "known", "fetch"]);
// Lines of "name: value".
const LINES = new Set(["headers", "usage"]);
// Fields whose spaces are significant.
const WHOLE = new Set(["title", "body_prefix"]);
const MORE = [
  "content_type",
  "status",
  "size",
  "referer",
  "depth",
  "dest",
  "address",
  "title",
  "meta_robots",
  "canonical",
  "headers",
  "usage",
  "license",
  "body_prefix",
  "tunnel",
  "known",
  "year",
];
const FACTS = ["url", "crawler", "method", "profile", "user_agent", "fetch", ...MORE];

/** Creates the view; the address contains the facts. */
export function tryUrl(main, query) {
  return new Try(main, query);
}

class Try {
  constructor(main, query) {
    this.result = h("div.result");
    // A screen reader announces only the verdict, not the whole explanation.
    this.said = h("p.hidden", { role: "status" });
    this.button = h("button.main", { type: "submit" }, "Try");
    this.form = this.fields();
    this.why = new WhyRefused();
    fill(
      main,
      h(
        "div.try",
        h(
          "section.panel",
          { "aria-labelledby": "try-title" },
          h("div.panel-head", h("h1", { id: "try-title" }, "Try a URL")),
          this.form,
          this.why.element,
        ),
        h("div", this.said, this.result),
      ),
    );
    this.end = feed.on(() => this.suggest());
    this.suggest();
    this.query(query);
  }

  fields() {
    const text = (name, hint = "", type = "text") =>
      h("input", { name, type, placeholder: hint, autocomplete: "off", spellcheck: "false" });
    const number = (name, hint) => h("input", { name, type: "number", min: 0, placeholder: hint });
    this.crawlers = suggestions("try-crawlers", []);
    const url = h("textarea", {
      name: "url",
      rows: 3,
      required: true,
      placeholder: "http://www.example.com/files/old.zip",
      "data-first": "",
      spellcheck: "false",
      onkeydown: enterSends,
    });
    this.more = h(
      "details",
      h("summary", "More facts"),
      h(
        "div.result",
        h(
          "p.quiet",
          "Stages run as far as the facts allow: a status or type adds the response stage, a title the document stage.",
        ),
        h(
          "div.pair",
          field("Status", number("status", "200")),
          field("Content type", text("content_type", "text/html")),
        ),
        h(
          "div.pair",
          field("Size in bytes", number("size", "not known")),
          field("Depth", number("depth", "not known")),
        ),
        h(
          "div.pair",
          field("Loaded as", select({ name: "dest" }, DESTS)),
          field("Address", text("address", "192.0.2.1")),
        ),
        h("div.pair", field("Referer", text("referer")), field("Year", number("year", "this year"))),
        field("User-Agent, for robots.txt", text("user_agent")),
        field(
          "Response headers",
          h("textarea", { name: "headers", rows: 2, placeholder: "name: value, one per line", spellcheck: "false" }),
        ),
        field(
          "Usage preferences of the site",
          h("textarea", {
            name: "usage",
            rows: 2,
            placeholder: "train-ai: deny, one per line (allow, deny, unset)",
            spellcheck: "false",
          }),
        ),
        field("License of the site, by robots.txt", text("license", "http://www.example.com/license.xml")),
        field("Title", text("title")),
        field("Beginning of the body", h("textarea", { name: "body_prefix", rows: 2, spellcheck: "false" })),
        h(
          "div.pair",
          field("Robots meta tag", text("meta_robots", "noindex")),
          field("Canonical URL", text("canonical")),
        ),
        h("div.actions", check("tunnel", "opaque tunnel (CONNECT)"), check("known", "known to the ledger")),
      ),
    );
    return h(
      "form",
      { onsubmit: (event) => this.submit(event), "aria-label": "Facts" },
      field("URL", url),
      h(
        "div.pair",
        field(
          "Crawler",
          h("input", {
            name: "crawler",
            type: "text",
            list: "try-crawlers",
            placeholder: "anonymous",
            autocomplete: "off",
          }),
        ),
        field("Method", h("input", { name: "method", type: "text", placeholder: "GET", autocomplete: "off" })),
      ),
      field(
        "Profile",
        select({ name: "profile" }, [["", "the crawler's own"], ...PROFILES.map((name) => [name, name])]),
      ),
      check("fetch", "look the name up and fetch robots.txt, if not cached"),
      this.more,
      h(
        "div.actions",
        this.button,
        h("button.plain", { type: "button", onclick: () => (location.hash = "#/try") }, "Clear"),
      ),
      this.crawlers,
    );
  }

  suggest() {
    const names = (feed.status?.decisions?.by_crawler ?? []).map((row) => row.crawler);
    const said = names.join("\n");
    if (this.crawlers.dataset.said === said) return;
    this.crawlers.dataset.said = said;
    fill(
      this.crawlers,
      names.map((name) => h("option", { value: name })),
    );
  }

  submit(event) {
    event.preventDefault();
    const query = new URLSearchParams(this.given());
    const hash = `#/try?${query}`;
    if (location.hash === hash) this.ask();
    else location.hash = hash;
  }

  /** Returns the filled fields as `[name, text]`. */
  given() {
    const inputs = FACTS.map((name) => this.form.elements[name]);
    const filled = inputs.filter((input) => (input.type === "checkbox" ? input.checked : input.value.trim()));
    const text = (input) => (WHOLE.has(input.name) ? input.value : input.value.trim());
    return filled.map((input) => [input.name, input.type === "checkbox" ? "true" : text(input)]);
  }

  /** Fills the form from the address, and requests the explanation if there is a URL. */
  query(query) {
    for (const name of FACTS) {
      const input = this.form.elements[name];
      const given = query.get(name) ?? "";
      if (input.type === "checkbox") input.checked = given === "true";
      else if (input.value !== given) input.value = given;
    }
    if (MORE.some((name) => query.get(name)) || query.get("user_agent")) this.more.open = true;
    if (query.get("decision")) this.why.lookUp(query.get("decision"));
    if (query.get("url")) this.ask();
    else
      fill(
        this.result,
        h(
          "div.panel",
          empty(
            "Enter a URL.",
            "The page then shows which rule decides about it, and why, and what the proxy would do now. Other facts are optional.",
          ),
        ),
      );
  }

  async ask() {
    const turn = (this.turn = {});
    try {
      const found = await api.explain(facts(this.given()));
      if (turn === this.turn) this.show(found);
    } catch (error) {
      if (turn === this.turn) fill(this.result, failed("The facts cannot be evaluated", error));
    }
  }

  show(found) {
    fill(this.result, explained(found));
    const texts = [".said", "#wire-summary"].map((one) => this.result.querySelector(one)?.textContent ?? "");
    write(this.said, texts.join(". "));
  }

  close() {
    this.end();
    this.turn = null;
  }
}

function check(name, words) {
  return h("label.check", h("input", { type: "checkbox", name }), words);
}

/** Submits the form at Enter, since a URL has no line breaks. */
function enterSends(event) {
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  event.target.form.requestSubmit();
}

function facts(given) {
  const read = ([name, text]) => {
    if (NUMBERS.has(name)) return [name, Number(text)];
    if (CHECKS.has(name)) return [name, true];
    return [name, LINES.has(name) ? named(text) : text];
  };
  return Object.fromEntries(given.map(read));
}

/** Parses `name: value` lines. A repeated name gets a list, and names are in lower case. */
function named(text) {
  const found = Object.create(null);
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const at = line.indexOf(":");
    const name = (at < 0 ? line : line.slice(0, at)).trim().toLowerCase();
    const given = at < 0 ? "" : line.slice(at + 1).trim();
    found[name] = name in found ? [found[name], given].flat() : given;
  }
  return found;
}
