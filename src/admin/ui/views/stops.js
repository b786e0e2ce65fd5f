// Stops: the active ones, the form that adds one, and the button that lifts one.

import { api } from "../api.js";
import { closeDialog, confirm, field, fill, h, openDialog, select, table } from "../dom.js";
import { dateTime, visible } from "../format.js";
import { failed } from "./verdict.js";

/** The active stops, each with a button that lifts it; with `host`, only those that may apply to it. */
export class Stops {
  constructor(host) {
    this.host = host;
    this.list = h("div");
    this.trouble = h("div");
    this.element = h(
      "section.panel",
      { "aria-labelledby": "stops-title" },
      h("h2", { id: "stops-title" }, "Stops"),
      this.trouble,
      this.list,
    );
  }

  async load() {
    const { stops } = await api.stops();
    const shown = this.host ? stops.filter((stop) => mayApply(stop.what, this.host)) : stops;
    const said = JSON.stringify(shown);
    if (said === this.said) return;
    this.said = said;
    if (!shown.length) {
      fill(
        this.list,
        h(
          "p.quiet",
          "Nothing is stopped. A stop makes requests wait and then be refused, until it is lifted or expires.",
        ),
      );
      return;
    }
    const rows = shown.map((stop) =>
      h(
        "tr",
        h("th.mono", { scope: "row" }, visible(stop.what)),
        h("td", visible(stop.reason)),
        h("td", dateTime(stop.since)),
        h("td", stop.until ? dateTime(stop.until) : "until it is lifted"),
        h(
          "td",
          h(
            "button",
            {
              type: "button",
              "aria-label": `Lift the stop of ${visible(stop.what)}`,
              onclick: () => this.lift(stop),
            },
            "Lift",
          ),
        ),
      ),
    );
    const columns = ["What", "Why", "Since", "Until"].map((name) => ({ name }));
    fill(
      this.list,
      table("Active stops", [...columns, { name: "", head: h("span.hidden", "Actions") }], h("tbody", rows)),
    );
  }

  async lift(stop) {
    const confirmed = await confirm("Lift the stop", h("p", `The stop of ${visible(stop.what)} ends at once.`), "Lift");
    if (!confirmed) return;
    try {
      await api.lift(stop.id);
      fill(this.trouble);
      await this.load();
    } catch (error) {
      fill(this.trouble, failed("The stop was not lifted", error));
    }
  }
}

/** Returns true for a stop of the host, of a domain above it, or of a crawler or rule, which may apply to any host. */
function mayApply(what, host) {
  const [, kind, name] = /^(?:(host|domain|crawler|rule):)?(.*)$/u.exec(what) ?? [];
  if (kind === "crawler" || kind === "rule") return true;
  const bare = host.replace(/^([^:]*|\[.*\]):\d+$/u, "$1");
  return name === bare || name === host || (kind === "domain" && bare.endsWith(`.${name}`));
}

const DURATIONS = [
  ["10m", "10 minutes"],
  ["1h", "1 hour"],
  ["6h", "6 hours"],
  ["1d", "1 day"],
  ["7d", "7 days"],
  ["", "until it is lifted"],
];

/** Opens the form that adds a stop; `done` is called after one was added. */
export function askStop({ what }, done) {
  const input = h("input", {
    name: "what",
    type: "text",
    value: what,
    required: true,
    placeholder: "www.example.com, crawler:NAME or rule:ID",
    autocomplete: "off",
    spellcheck: "false",
  });
  const reason = h("input", {
    name: "reason",
    type: "text",
    required: true,
    placeholder: "the site asked us to",
    autocomplete: "off",
  });
  const lasts = select({ name: "for", value: "1h" }, DURATIONS);
  const said = h("div", { role: "status" });
  const send = h("button.danger", { type: "submit" }, "Stop it");
  const press = async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    send.disabled = true;
    const body = {
      what: input.value.trim(),
      reason: reason.value.trim(),
      ...(lasts.value ? { for: lasts.value } : {}),
    };
    try {
      const stop = await api.stop(body);
      if (stop.warnings?.length) {
        // The stop exists already; sending the form again would add a second one.
        send.hidden = true;
        fill(
          said,
          h(
            "div.notice.warn",
            "The stop is active. ",
            stop.warnings.map((words) => h("div", visible(words))),
          ),
        );
      } else closeDialog();
      done();
    } catch (error) {
      fill(said, failed("Not stopped", error));
      send.disabled = false;
    }
  };
  const form = h(
    "form.result",
    { onsubmit: press },
    h(
      "p.quiet",
      "Requests to it wait, and are refused with the reason ",
      h("code", "stopped"),
      " after a while. Others are not affected.",
    ),
    field("What", input),
    field("Why", reason),
    field("For", lasts),
    said,
    h("div.actions", send, h("button", { type: "button", onclick: closeDialog }, "Close")),
  );
  openDialog("Stop", form);
  (what ? reason : input).focus();
}
