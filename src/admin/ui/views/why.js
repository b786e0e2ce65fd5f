// "Why was this URL refused?": one decision, by the id that the crawler received or by its trace.

import { api } from "../api.js";
import { field, fill, h } from "../dom.js";
import { visible } from "../format.js";
import { details, factsOf, isMasked } from "./line.js";
import { failed, tryLink, verdict } from "./verdict.js";

/** A field for an id, with the decision below it. */
export class WhyRefused {
  constructor() {
    this.input = h("input", {
      name: "decision",
      type: "search",
      required: true,
      placeholder: "9f3c01ab-1f, or 32 hex digits of a trace",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.found = h("div");
    this.said = h("p.hidden", { role: "status" });
    this.element = h(
      "details.why-refused",
      h("summary", "Why was this URL refused?"),
      h(
        "form.bar-of-filters",
        { onsubmit: (event) => this.submit(event), "aria-label": "One decision" },
        field("Crawl-Decision header of the response, or a trace id", this.input),
        h("button", { type: "submit" }, "Look up"),
      ),
      this.said,
      this.found,
    );
  }

  submit(event) {
    event.preventDefault();
    return this.ask();
  }

  /** Shows the decision of a link: refusals have one (`admin.public_url`). */
  lookUp(id) {
    this.element.open = true;
    this.input.value = id;
    return this.ask();
  }

  async ask() {
    const id = this.input.value.trim().replace(/^crawl-decision:\s*/i, "");
    const turn = (this.turn = {});
    try {
      const line = await api.decision(id);
      if (turn === this.turn) this.show(line);
    } catch (error) {
      if (turn === this.turn) fill(this.found, failed("This decision cannot be shown", error));
    }
  }

  show({ facts: known, others, ...line }) {
    const facts = line.method === "CONNECT" ? factsOf(line) : known;
    fill(
      this.found,
      h("p", verdict(line.verdict), " ", h("strong", visible(line.rule ?? line.reason ?? "")), " "),
      facts && !isMasked(facts.url) && h("p", tryLink(facts, "Explain this decision")),
      others?.length
        ? h(
            "p.quiet",
            "Other decisions of this trace: ",
            others.map((id) => [this.other(id), " "]),
          )
        : null,
      details(line),
    );
    fill(this.said, `${visible(line.verdict)}, ${visible(line.rule ?? line.reason ?? "")}`);
  }

  other(id) {
    const lookUp = () => {
      this.input.value = id;
      this.element.querySelector("form").requestSubmit();
    };
    return h("button.plain", { type: "button", onclick: lookUp }, visible(id));
  }
}
