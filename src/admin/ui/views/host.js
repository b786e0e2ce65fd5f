// One host: its queue, its pace, and its robots.txt with the line that decides about a URL.

import { api } from "../api.js";
import { empty, field, fill, h, since } from "../dom.js";
import { poll } from "../feed.js";
import { count, duration, value, visible } from "../format.js";
import { askStop, Stops } from "./stops.js";
import { robotsOf } from "./robots.js";
import { decisionsLink, nodeLink, ofHost, showError, tryLink } from "./verdict.js";

const EVERY_MS = 3000;

/** Returns true for an address that is paced in addition to its hosts. No URL, filter or stop can name it. */
export function isAddress(name) {
  return name.startsWith("@");
}

/** Formats the used and the allowed slots. */
export function slots(row) {
  return row.slots ? `${row.slots.used} of ${row.slots.of ?? "–"}` : "–";
}

/** Formats the time until the next request may be sent. */
export function next(row) {
  const ms = row.next_in_ms ?? null;
  return ms === null ? "–" : ms ? duration(ms) : "now";
}

export class Host {
  constructor(main, name, query) {
    this.name = name;
    this.trouble = h("div");
    this.owner = h("div");
    this.facts = h("div");
    this.robots = h("div");
    this.stops = new Stops(name);
    this.url = h("input", {
      name: "url",
      type: "text",
      placeholder: `http://${name}/`,
      "data-first": "",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.agent = h("input", {
      name: "agent",
      type: "text",
      placeholder: "* (any)",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.wrong = h("div");
    const stop =
      !isAddress(name) &&
      h(
        "button.danger",
        { type: "button", onclick: () => askStop({ what: name }, () => this.end.now()) },
        "Stop …",
      );
    fill(
      main,
      h("p", h("a", { href: "#/hosts" }, "All hosts")),
      h(
        "section.panel",
        { "aria-labelledby": "host-title" },
        h(
          "div.panel-head",
          h("h1.url", { id: "host-title" }, visible(name)),
          !isAddress(name) && decisionsLink(ofHost(name), "Decisions"),
          !isAddress(name) && tryLink({ url: `http://${name}/` }, "Try a URL"),
          stop,
        ),
        this.trouble,
        this.owner,
        this.facts,
      ),
      this.stops.element,
      h(
        "section.panel",
        { "aria-labelledby": "robots-title" },
        h("h2", { id: "robots-title" }, "robots.txt"),
        h(
          "form.bar-of-filters",
          { onsubmit: (event) => this.submit(event) },
          field("URL to check", this.url),
          field("Agent", this.agent),
          h("button", { type: "submit" }, "Check"),
        ),
        this.wrong,
        this.robots,
      ),
    );
    this.query(query);
    this.end = poll(() => this.load(), EVERY_MS);
  }

  submit(event) {
    event.preventDefault();
    const given = [
      ["host", this.name],
      ["url", this.url.value.trim()],
      ["agent", this.agent.value.trim()],
    ];
    const query = new URLSearchParams(given.filter(([, text]) => text));
    history.replaceState(null, "", `#/hosts?${query}`);
    this.query(query);
  }

  query(query) {
    this.asked = { url: query.get("url") ?? "", agent: query.get("agent") ?? "" };
    if (this.url !== document.activeElement) this.url.value = this.asked.url;
    if (this.agent !== document.activeElement) this.agent.value = this.asked.agent;
    this.end?.now();
  }

  async load() {
    const { asked } = this;
    const what = "The host cannot be shown";
    try {
      const [found] = await Promise.all([this.request(asked), this.stops.load()]);
      if (asked !== this.asked) return;
      showError(this.trouble, what, null);
      this.show(found);
    } catch (error) {
      if (asked !== this.asked) return;
      if (error.status === 404) this.showNone();
      else if (error.status === 421) this.showElsewhere(error.document?.owner);
      else showError(this.trouble, what, error);
    }
  }

  /** Requests the host. If the URL is invalid, the host is shown without a decision. */
  async request(asked) {
    const given = Object.entries(asked).filter(([, text]) => text);
    try {
      const found = await api.host(this.name, given);
      showError(this.wrong, "", null);
      return found;
    } catch (error) {
      if (error.status !== 400 || !given.length) throw error;
      const found = await api.host(this.name, []);
      if (asked === this.asked) showError(this.wrong, "This URL cannot be checked", error);
      return found;
    }
  }

  showNone() {
    showError(this.trouble, "", null);
    this.showOwner(null);
    fill(
      this.facts,
      empty("This host is not tracked.", "It had no recent requests, and its robots.txt is not known."),
    );
    fill(this.robots);
    this.said = null;
  }

  showElsewhere(owner) {
    showError(this.trouble, "", null);
    this.showOwner(owner);
    fill(this.facts);
    fill(this.robots);
    this.said = null;
  }

  /** Names the owner if it is another node of the fleet. Written again only if it changes. */
  showOwner(owner) {
    const said = owner && !owner.here ? JSON.stringify(owner) : "";
    if ((this.owner.dataset.said ?? "") === said) return;
    this.owner.dataset.said = said;
    const link = said && nodeLink(owner, `#/hosts?${new URLSearchParams({ host: this.name })}`);
    const words = "Another node of the fleet owns this host; only that one has its queue, pace and robots.txt: ";
    fill(this.owner, said ? h("p.notice.warn", words, link) : null);
  }

  show(found) {
    this.showOwner(found.owner);
    fill(this.facts, factsOf(found));
    const list = found.robots ?? [];
    // The text changes only with another fetch, so its length is enough to compare.
    const said = JSON.stringify([this.asked.url, list.map((one) => ({ ...one, text: one.text?.length }))]);
    if (said === this.said) return;
    this.said = said;
    fill(this.robots, robotsOf(list, this.asked.url));
    this.robots.querySelector("[data-decides]")?.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.end();
  }
}

function factsOf(found) {
  const host = found.host && typeof found.host === "object" ? found.host : found;
  const rest = host.resting;
  const rows = [
    ["Stopped", found.stopped || host.stopped ? "yes: no requests are sent" : "no"],
    ...(found.paced_as && found.paced_as !== host.host ? [["Paced as", visible(found.paced_as)]] : []),
    ["Waiting", count(host.waiting)],
    ["Slots", slots(host)],
    ["Next in", next(host)],
    ["Delay", duration(host.delay_ms)],
    ["Backoff", rest ? `${duration(rest.for_ms)} left: ${visible(rest.why ?? "")}` : "no"],
    ["Last request", host.last_request ? since(host.last_request) : "–"],
    ["Errors in a row", count(host.errors_in_row)],
    ...Object.entries(host.crawlers_waiting ?? {}).map(([name, waiting]) => [
      `Waiting: ${visible(name)}`,
      count(waiting),
    ]),
  ];
  return [facts(rows), part("Pace", found.pace), part("Adaptive", found.adaptive), part("Refusing connections", found.dead)];
}

function facts(rows) {
  return h(
    "dl.facts",
    rows.map(([name, given]) => h("div", h("dt", name), h("dd", given))),
  );
}

/** Shows a range of factors, such as that of `jitter`, or any other value. */
function rangeOr(given) {
  return Array.isArray(given) && given.length === 2 ? `${value(given[0])} to ${value(given[1])} times` : value(given);
}

/** Shows an object of the response. Names may end in their unit: `delay_ms`. */
function part(title, of) {
  if (!of) return null;
  const rows = Object.entries(of)
    .filter(([, given]) => given !== null)
    .map(([name, given]) => {
      const isTime = name.endsWith("_ms") && typeof given === "number";
      return [visible(name.replace(/_ms$/, "").replaceAll("_", " ")), isTime ? duration(given) : rangeOr(given)];
    });
  return [h("h3", title), facts(rows)];
}
