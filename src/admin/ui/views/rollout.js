// Changes of the policy in force: promoting or clearing the shadow policy, and going back to an earlier one.

import { api } from "../api.js";
import { closeDialog, empty, field, fill, h, openDialog, since, table } from "../dom.js";
import { feed } from "../feed.js";
import { dateTime, plural, visible } from "../format.js";
import { failed, problemList } from "./verdict.js";

/**
 * Opens a dialog that says what will change and asks for the reason, which is recorded. `send(reason)` makes the change;
 * `done(answer)` is called after it.
 */
export function askChange({ title, content, action, required = true }, send, done) {
  const reason = h("input", {
    name: "reason",
    type: "text",
    required,
    maxlength: 200,
    placeholder: required ? "the shop team has agreed" : "optional",
    autocomplete: "off",
  });
  const said = h("div", { role: "status" });
  const button = h("button.danger", { type: "submit" }, action);
  const submit = async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    try {
      const answer = await send(reason.value.trim());
      closeDialog();
      done(answer);
    } catch (error) {
      fill(said, failed("Not changed", error), problemList(error.document?.problems));
      button.disabled = false;
    }
  };
  const actions = h("div.actions", button, h("button", { type: "button", onclick: closeDialog }, "Cancel"));
  openDialog(title, h("form.result", { onsubmit: submit }, content, field("Why (recorded)", reason), said, actions));
  reason.focus();
}

/** Returns the words about a change that was made, with the warnings of the policy. */
export function changed(answer) {
  // No result within 20 s.
  if (answer.result === "pending") {
    return h(
      "div.notice.warn",
      h("strong", "The change takes long, and goes on."),
      " Until it ends, others are refused. Its result will be shown here and in the history of the policy.",
    );
  }
  const words = {
    promoted: "Promoted: it is the active policy now.",
    cleared: "The shadow policy is cleared.",
    rolled_back: "Rolled back: the earlier policy is active again.",
  };
  const written = answer.written?.length ? ` Written: ${answer.written.join(", ")}.` : "";
  return h(
    "div.notice.good",
    h("strong", words[answer.result] ?? visible(answer.result)),
    visible(written),
    problemList(answer.problems),
  );
}

const HOW = {
  start: "at the start",
  reload: "reloaded",
  promote: "promoted",
  rollback: "rolled back",
};

/** The policies that were in force, the latest first, each with a button that brings it back. */
export class History {
  constructor() {
    this.said = h("div", { role: "status" });
    this.box = h("div");
    this.element = h(
      "section.panel",
      { "aria-labelledby": "history-title" },
      h("h2", { id: "history-title" }, "History"),
      this.said,
      this.box,
    );
  }

  async load() {
    const turn = (this.turn = {});
    try {
      const { policies } = await api.policyHistory();
      if (turn === this.turn) this.show(policies);
    } catch (error) {
      if (turn !== this.turn) return;
      // Without store.path, no policy is kept.
      fill(this.box, error.status === 409 ? empty("No history.", visible(error.message)) : failed("The history cannot be shown", error));
    }
  }

  show(policies) {
    const said = JSON.stringify(policies);
    if (said === this.shown) return;
    this.shown = said;
    if (!policies.length) {
      fill(this.box, empty("No history.", "Each policy that comes in force is added here."));
      return;
    }
    const rows = policies.map((one) =>
      h(
        "tr",
        h("th.mono", { scope: "row" }, `${visible(one.policy)}@${visible(one.revision)}`),
        h("td", dateTime(one.at)),
        h("td", visible(HOW[one.how] ?? one.how)),
        h("td", visible([one.user, one.address].filter(Boolean).join(", "))),
        h("td.words", visible(one.reason ?? "")),
        h("td", one.active ? h("span.mark.good", "active") : this.button(one)),
      ),
    );
    const columns = ["Policy", "In force since", "How", "By", "Why"].map((name) => ({ name }));
    fill(
      this.box,
      table("Policies that were in force", [...columns, { name: "", head: h("span.hidden", "Actions") }], h("tbody", rows)),
    );
  }

  button(one) {
    if (!one.kept) return h("span.quiet", "no longer kept");
    return h(
      "button",
      { type: "button", "aria-label": `Roll back to ${visible(one.revision)}`, onclick: () => this.ask(one) },
      "Roll back …",
    );
  }

  ask(one) {
    const active = feed.status?.policy;
    const content = h(
      "div",
      h("p", "The files of this policy are written where ", h("code", "policy.path"), " names them, and it is active at once."),
      h(
        "dl.facts",
        h("div", h("dt", "Active now"), h("dd.mono", active ? `${visible(active.name)}@${visible(active.revision)}` : "–")),
        h("div", h("dt", "Then"), h("dd.mono", `${visible(one.policy)}@${visible(one.revision)}`)),
        h("div", h("dt", "It was in force from"), h("dd", dateTime(one.at), " (", since(one.at), ")")),
      ),
    );
    const send = (reason) => api.rollBack({ revision: one.revision, reason });
    askChange({ title: "Roll back", content, action: "Roll back" }, send, (answer) => {
      fill(this.said, changed(answer));
      feed.askPolicy();
      this.load();
    });
  }
}

/** Returns the words of the dialogs about the shadow policy: the numbers of decisions that it would change. */
export function effectOf(entry) {
  return h(
    "ul",
    h("li", `${plural(entry.would_refuse.total, "admitted request")} would have been refused`),
    h("li", `${plural(entry.would_admit.total, "refused request")} would have been admitted`),
    h("li", `of ${plural(entry.judged, "request")} since it was loaded`),
  );
}
