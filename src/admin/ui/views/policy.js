// Policy: the active policy, its last reload, and the changes of that reload.

import { api } from "../api.js";
import { empty, fill, h, since, table, write } from "../dom.js";
import { feed } from "../feed.js";
import { dateTime, plural, value, visible } from "../format.js";
import { History } from "./rollout.js";
import { failed, problemList, showError } from "./verdict.js";

/** Creates the view. */
export function policy(main) {
  return new Policy(main);
}

class Policy {
  constructor(main) {
    this.said = h("div", { role: "status" });
    this.button = h(
      "button.main",
      { type: "button", "data-first": "", id: "reload", onclick: () => this.reload() },
      "Reload",
    );
    this.facts = h("div", h("p.quiet", "loading"));
    this.trouble = h("div");
    this.last = h("div");
    this.diff = h("div");
    this.history = new History();
    fill(
      main,
      h(
        "section.panel",
        { "aria-labelledby": "policy-title" },
        h(
          "div.panel-head",
          h("h1", { id: "policy-title" }, "Policy"),
          this.button,
          h("span.quiet", "reads the files again"),
        ),
        this.said,
        this.trouble,
        this.facts,
      ),
      h(
        "section.panel",
        { "aria-labelledby": "last-title" },
        h("h2", { id: "last-title" }, "Last reload"),
        this.last,
      ),
      h(
        "section.panel",
        { "aria-labelledby": "diff-title" },
        h("h2", { id: "diff-title" }, "Changes of the last reload"),
        this.diff,
      ),
      this.history.element,
    );
    this.end = feed.on(() => this.show());
    this.show();
  }

  show() {
    const { policy: loaded, policyFailure } = feed;
    showError(this.trouble, "The policy cannot be shown", policyFailure);
    if (this.diffFailed && !feed.failure) this.showDiff();
    if (!loaded) return;
    const said = JSON.stringify([
      loaded.name,
      loaded.revision,
      loaded.loaded_at,
      loaded.files,
      loaded.last_reload,
      loaded.previous,
    ]);
    if (said === this.shown) return;
    this.shown = said;
    fill(this.facts, factsOf(loaded));
    fill(this.last, lastReload(loaded.last_reload));
    this.history.load();
    // Without a previous policy there is no difference to request.
    if (loaded.previous) this.showDiff();
    else fill(this.diff, noDifference());
  }

  async showDiff() {
    const turn = (this.turn = {});
    this.diffFailed = false;
    try {
      const found = await api.policyDiff();
      if (turn === this.turn) fill(this.diff, diffOf(found));
    } catch (error) {
      if (turn !== this.turn) return;
      // It is requested again after the next response of the status.
      this.diffFailed = error.status !== 404;
      fill(this.diff, this.diffFailed ? failed("The difference cannot be shown", error) : noDifference());
    }
  }

  async reload() {
    this.button.disabled = true;
    write(this.button, "Reloading");
    try {
      const done = await api.reload();
      const words =
        done.result === "loaded"
          ? `Loaded: ${visible(done.policy)}@${visible(done.revision)} is active.`
          : (done.detail ?? "Unchanged: the files are the same as those of the active policy.");
      fill(
        this.said,
        h("div.notice.good", h("strong", visible(words)), problemList(done.problems)),
        shadowProblems(done.shadow),
      );
    } catch (error) {
      // The banner of the page lists the problems.
      const above = error.document?.problems?.length ? ". The problems are listed above." : "";
      fill(this.said, failed("Not loaded", error, above), shadowProblems(error.document?.shadow));
    }
    this.button.disabled = false;
    write(this.button, "Reload");
    this.button.focus();
    await feed.askPolicy();
  }

  close() {
    this.end();
  }
}

/** Shows the problems of the shadow policy, which is reloaded with the active one but may fail on its own. */
function shadowProblems(shadow) {
  if (!shadow?.problems?.length) return null;
  return h(
    "div.notice.warn",
    h("strong", `The shadow policy${shadow.result ? `: ${visible(shadow.result)}` : ""}.`),
    problemList(shadow.problems),
  );
}

function factsOf(loaded) {
  const rules = loaded.rules_total ?? loaded.rules?.length ?? 0;
  const rows = [
    ["Active", `${visible(loaded.name)}@${visible(loaded.revision)}`],
    ["Loaded", loaded.loaded_at ? [`${dateTime(loaded.loaded_at)} (`, since(loaded.loaded_at), ")"] : "–"],
    [
      "Previous",
      loaded.previous ? `${visible(loaded.previous.name)}@${visible(loaded.previous.revision)}` : "none",
    ],
    ["Default", visible(loaded.disposition ?? "–")],
    ["Rules", h("a", { href: "#/rules" }, plural(rules, "rule"))],
    ["Files", loaded.files?.length ? loaded.files.map((file) => h("div.mono", visible(file))) : "built in"],
  ];
  return h(
    "dl.facts",
    rows.map(([name, given]) => h("div", h("dt", name), h("dd", given))),
  );
}

const RESULTS = { loaded: "good", unchanged: "other", refused: "bad" };

function lastReload(last) {
  if (!last)
    return empty(
      "No reload yet.",
      "The policy is the one loaded at the start. It is loaded again when its files change, on SIGHUP, or with the button above.",
    );
  return h(
    "div",
    h(
      "p",
      h("span.mark", { class: `mark ${RESULTS[last.result]}` }, visible(last.result)),
      ` ${dateTime(last.at)} (`,
      since(last.at),
      `), by ${visible(last.trigger)}`,
    ),
    last.result === "refused"
      ? h("p.quiet", "Its problems are listed at the top of this page.")
      : (problemList(last.problems) ?? h("p.quiet", "No problems.")),
  );
}

function noDifference() {
  return empty(
    "There is nothing to compare with.",
    "No other policy has been active since the proxy started. After a reload that changes the policy, the difference is shown here.",
  );
}

function diffOf(diff) {
  const { before, after } = diff;
  const name = (of) => h("span.mono", `${visible(of.name)}@${visible(of.revision)}`);
  return h(
    "div",
    h("p", "From ", name(before), " to ", name(after), ", ", since(after.loaded_at)),
    diff.rules?.length ? rulesChanged(diff.rules) : h("p.quiet", "No rule changed."),
    diff.options?.length ? optionsChanged(diff.options) : null,
    diff.lists?.length ? listsChanged(diff.lists) : null,
    (diff.files ?? []).map(fileChanged),
    diff.cut ? h("p.quiet", "The rest is left out: it is too long for this page.") : null,
  );
}

const CHANGES = { added: "good", removed: "bad", changed: "warn", moved: "other" };

function rulesChanged(rules) {
  const rows = rules.map((one) =>
    h(
      "tr",
      h("th.mono", { scope: "row" }, visible(one.id)),
      h("td", h("span.mark", { class: `mark ${CHANGES[one.change]}` }, visible(one.change))),
      h("td.mono", value(one.before)),
      h("td.mono", value(one.after)),
    ),
  );
  return [
    h("h3", "Rules"),
    table(
      "Rules that changed",
      [{ name: "Rule" }, { name: "Change" }, { name: "Before" }, { name: "After" }],
      h("tbody", rows),
    ),
  ];
}

function optionsChanged(options) {
  const rows = options.map((one) =>
    h(
      "tr",
      h("th.mono", { scope: "row" }, visible(one.option)),
      h("td.mono", value(one.before)),
      h("td.mono", value(one.after)),
    ),
  );
  return [
    h("h3", "Options"),
    table("Options that changed", [{ name: "Option" }, { name: "Before" }, { name: "After" }], h("tbody", rows)),
  ];
}

function listsChanged(lists) {
  const rows = lists.map((one) =>
    h(
      "tr",
      h("th.mono", { scope: "row" }, visible(one.list)),
      h("td", h("span.mark", { class: `mark ${CHANGES[one.change]}` }, visible(one.change))),
      h("td.mono", value(one.before)),
      h("td.mono", value(one.after)),
    ),
  );
  const columns = [{ name: "List" }, { name: "Change" }, { name: "Before" }, { name: "After" }];
  return [h("h3", "Lists"), table("Lists that changed", columns, h("tbody", rows))];
}

const SIGNS = { added: "+", removed: "−", same: "" };

function fileChanged(file) {
  if (!file.lines?.length)
    return [
      h("h3.mono", visible(file.path)),
      h(
        "p.quiet",
        "This file changed. Its lines are not shown, since its text is too long or the limit for this page is reached.",
      ),
    ];
  const rows = (file.lines ?? []).map((line) =>
    h(
      "tr",
      { class: line.kind },
      h("td.n", line.before ?? ""),
      h("td.n", line.after ?? ""),
      h("td", SIGNS[line.kind] ?? ""),
      h("td.t", visible(line.text)),
    ),
  );
  const head = ["before", "after", "change", "text"].map((name) =>
    h("th", { scope: "col" }, h("span.hidden", name)),
  );
  return [
    h("h3.mono", visible(file.path)),
    h(
      "div.scroll",
      { role: "region", tabindex: "0", "aria-label": `Lines of ${visible(file.path)}` },
      h("table.lines", h("thead.hidden", h("tr", head)), h("tbody", rows)),
    ),
    file.cut && h("p.quiet", "Further lines are left out: there are too many."),
  ];
}
