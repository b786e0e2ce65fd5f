// An explanation: the verdict, the rules one by one with their reasons, the response, the options, and a test case.

import { empty, fill, h, select, table } from "../dom.js";
import { plural, value, visible } from "../format.js";
import { decisionsLink } from "./verdict.js";

/** Shows the response of `POST /explain`, the most important parts first. */
export function explained(found) {
  return [outcome(found), rulesOf(found), answers(found), optionsOf(found), caseOf(found)];
}

const SAID = { allow: "Allowed", reject: "Rejected", undecided: "Undecided" };

function outcome(found) {
  const { decision, answer } = found;
  const rule = found.rules?.find((one) => one.rule === decision.rule);
  const by = decision.rule
    ? ["by the rule ", decisionsLink({ rule: decision.rule }, visible(decision.rule))]
    : [`: ${visible(reasonWords(decision))}`];
  return h(
    "section.panel.outcome",
    { class: `panel outcome ${decision.verdict}`, "aria-label": "Verdict" },
    h("p.said", SAID[decision.verdict] ?? visible(decision.verdict), decision.rule ? " " : "", by),
    rule?.about && h("p", visible(rule.about)),
    h("p.url", visible(found.url)),
    h(
      "p.quiet",
      `Stage ${visible(decision.stage)}, reason ${visible(decision.reason)}, ${visible(decision.crawl_status)}${answer?.status_line ? `; response ${visible(answer.status_line.replace("HTTP/1.1 ", ""))} (${visible(answer.profile)})` : ""}. Policy ${visible(decision.policy)}.`,
    ),
  );
}

function reasonWords(decision) {
  return decision.reason === "default" ? "no rule matches, so the default applies" : decision.reason;
}

const STATUS_MARKS = { matched: "warn", undecided: "undecided" };

function rulesOf(found) {
  const rules = found.rules ?? [];
  const leftOut = found.rules_left_out ?? 0;
  if (!rules.length && !leftOut) return h("section.panel", empty("This policy has no rules.", "The default applies."));
  const matched = rules.filter((one) => one.status === "matched").length;
  return h(
    "section.panel",
    { "aria-labelledby": "tree-title" },
    h(
      "div.panel-head",
      h("h2", { id: "tree-title" }, "Rules, in order"),
      h("span.quiet", `${matched} of ${rules.length + leftOut} matched`),
    ),
    leftOut > 0 && h("p.quiet", `${leftOut} other rules have no effect on this URL.`),
    h(
      "ol.tree",
      rules.map((one) => ruleLine(one, found.decision)),
    ),
  );
}

function ruleLine(one, decision) {
  const decided = one.rule === decision.rule;
  const depth = Math.min(one.depth ?? 0, 6);
  return h(
    "li",
    {
      class: `${decided ? "decided" : ""} ${decision.verdict === "allow" ? "for-allow" : ""}`.trim(),
      data: { rule: one.rule },
    },
    h(
      "span",
      h(
        "span.mark",
        { class: `mark ${one.shadow ? "shadow" : (STATUS_MARKS[one.status] ?? "")}` },
        visible(one.shadow ? "in shadow" : one.status),
      ),
    ),
    h(
      "span.name",
      { class: `name ${depth ? `depth-${depth}` : ""}` },
      h("strong.mono", visible(one.rule)),
      one.shadow && h("span.quiet", " in shadow mode, does not affect the decision"),
      decided && [" ", h("strong", "decides")],
      h("span.quiet", ` ${visible(one.key ?? "")} `),
      h("span.mono", visible(one.condition ?? "")),
    ),
    one.because?.length
      ? h(
          "ul.because",
          { "aria-label": "because", class: `because ${depth ? `depth-${depth}` : ""}` },
          one.because.map((ground) => h("li", visible(ground.text))),
        )
      : null,
  );
}

function answers(found) {
  const all = found.answers?.length ? found.answers : [found.answer];
  const wire = h("pre.wire", { tabindex: "0", "aria-label": "Response" });
  const show = (name) => fill(wire, wireText(all.find((one) => one.profile === name) ?? all[0]));
  const chosen = found.answer?.profile ?? all[0].profile;
  show(chosen);
  const choose = select(
    { name: "answer-profile", value: chosen, onchange: (event) => show(event.target.value) },
    all.map((one) => [one.profile, one.profile]),
  );
  return h(
    "section.panel",
    { "aria-labelledby": "wire-title" },
    h(
      "div.panel-head",
      h("h2", { id: "wire-title" }, "Response to the crawler"),
      h("label.check", "as profile", choose),
    ),
    wire,
  );
}

const KINDS = {
  closed: "The connection is closed without a response.",
  passed: "The origin's response, with these headers added:",
  tunnel: "A tunnel: bytes are forwarded in both directions.",
};

function wireText(answer) {
  const lines = Object.entries(answer.headers ?? {}).map(([name, given]) => `${visible(name)}: ${value(given)}`);
  return [KINDS[answer.kind], answer.status_line && visible(answer.status_line), ...lines]
    .filter(Boolean)
    .join("\n");
}

function optionsOf(found) {
  const options = found.options ?? [];
  const set = options.filter((one) => one.set_by !== "built-in");
  const rest = options.filter((one) => one.set_by === "built-in");
  const rows = (list) =>
    h(
      "tbody",
      list.map((one) =>
        h(
          "tr",
          h("th.mono", { scope: "row" }, visible(one.option)),
          h("td.mono", one.value === null ? "none" : value(one.value)),
          h("td", visible(one.set_by)),
        ),
      ),
    );
  const columns = [{ name: "Option" }, { name: "Value" }, { name: "Set by" }];
  return h(
    "section.panel",
    { "aria-labelledby": "options-title" },
    h(
      "div.panel-head",
      h("h2", { id: "options-title" }, "Options in effect"),
      h("span.quiet", `${set.length} set by the policy`),
    ),
    set.length ? table("Options set by the policy", columns, rows(set)) : h("p.quiet", "The policy sets no options."),
    rest.length
      ? h(
          "details",
          h("summary", `${plural(rest.length, "option")} with built-in values`),
          table("Options with built-in values", columns, rows(rest)),
        )
      : null,
  );
}

function caseOf(found) {
  if (!found.case) return null;
  const text = h("textarea", {
    rows: Math.min(12, found.case.split("\n").length + 1),
    readonly: true,
    "aria-label": "Case",
  });
  text.value = found.case;
  const said = h("span.quiet", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(found.case);
      fill(said, "copied");
    } catch {
      // Without https, pages may not use the clipboard. The user can copy the selection.
      text.focus();
      text.select();
      fill(said, "selected: copy it with Ctrl+C");
    }
  };
  return h(
    "section.panel",
    { "aria-labelledby": "case-title" },
    h(
      "div.panel-head",
      h("h2", { id: "case-title" }, "As a test case"),
      h("button", { type: "button", id: "copy-case", onclick: copy }, "Copy as test case"),
      said,
    ),
    h(
      "p.quiet",
      "Add this under ",
      h("code", "cases:"),
      " in the policy file: ",
      h("code", "crawlgate test"),
      " then fails if the decision changes.",
    ),
    text,
  );
}
