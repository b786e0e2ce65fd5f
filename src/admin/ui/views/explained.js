// An explanation: the verdict, the rules one by one with their reasons, the response, the options, and a test case.

import { curlOf } from "../curl.js";
import { copyButton, empty, fill, h, select, table } from "../dom.js";
import { feed } from "../feed.js";
import { count, duration, plural, value, visible } from "../format.js";
import { decisionsLink } from "./verdict.js";

/** Shows the response of `POST /explain`, the most important parts first. */
export function explained(found) {
  return [outcome(found), wireOf(found), rulesOf(found), answers(found), optionsOf(found), caseOf(found)];
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
    copyButton("Copy as curl", () => curlOf(found, feed.status)),
  );
}

function ownerWords({ node, admin }) {
  const place = admin ? ` (${admin})` : "";
  return `${node}${place}, another node of the fleet: only that one knows the ledger, robots.txt and pace`;
}

/** Shows what the proxy would do with the request now, and what was not asked. */
function wireOf({ wire }) {
  if (!wire) return null;
  const rows = [
    ["Owner", wire.owner && !wire.owner.here && ownerWords(wire.owner)],
    ["Fetches", wire.rewritten_to],
    ["Ledger", ledgerWords(wire.ledger)],
    ["Addresses", wire.addresses && `${wire.addresses.addresses.join(", ")} (${wire.addresses.source})`],
    ["robots.txt", robotsWords(wire.robots)],
    ["Stop", wire.stop],
    ["Pace", paceWords(wire.pace)],
    ...wire.not_asked.map((one) => ["Not asked", `${one.subject} (${one.why})`]),
  ].filter(([, words]) => words);
  return h(
    "section.panel",
    { class: `panel outcome ${wire.verdict}`, "aria-labelledby": "now-title" },
    h(
      "div.panel-head",
      h("h2", { id: "now-title" }, "On the wire, now"),
      h("span.quiet", `Policy ${visible(wire.policy)}`),
    ),
    h("p", { id: "wire-summary" }, h("strong", visible(capitalized(wire.summary)))),
    rows.length
      ? table(
          "What the proxy knows",
          [{ name: "Asked" }, { name: "Answer" }],
          h(
            "tbody",
            rows.map(([name, words]) => h("tr", h("th", { scope: "row" }, name), h("td.words", visible(words)))),
          ),
        )
      : null,
  );
}

function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function ledgerWords(ledger) {
  if (!ledger) return null;
  const known = `${ledger.known ? "known" : "not known"}${ledger.source === "given" ? " (given)" : ""}`;
  const seen = ledger.first_seen ? `, first requested ${ledger.first_seen}` : "";
  const fetched = ledger.last_fetched ? `, last fetched ${ledger.last_fetched}` : "";
  return `${known}${seen}${fetched}${ledger.depth === null ? "" : `, depth ${ledger.depth}`}`;
}

function robotsWords(robots) {
  if (!robots) return null;
  if (!robots.obeyed) return "ignored, by the policy";
  const access = robots.allow === true ? "allow" : robots.allow === false ? "disallow" : robots.status;
  const line = robots.line ? `, line ${robots.line}: ${robots.rule}` : "";
  return `${access}${line} (agent ${robots.agent}, cached ${duration(robots.age_ms)} ago)`;
}

function paceWords(pace) {
  if (!pace) return null;
  const turn = pace.wait_ms ? `its turn is in ${duration(pace.wait_ms)}` : "its turn is now";
  const ahead = pace.ahead ? `, ${count(pace.ahead)} before it` : "";
  const rest = pace.resting ? `, the host is left alone for ${duration(pace.resting.for_ms)}: ${pace.resting.why}` : "";
  return `${turn}${ahead}${rest} (as ${pace.paced_as}, held for at most ${duration(pace.max_wait_ms)})`;
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
        visible(one.other_space ? "skipped: space" : one.shadow ? "in shadow" : one.status),
      ),
    ),
    h(
      "span.name",
      { class: `name ${depth ? `depth-${depth}` : ""}` },
      h("strong.mono", visible(one.rule)),
      decided && [" ", h("strong", "decides")],
      h("span.quiet", ` ${visible(one.key ?? "")} `),
      h("span.mono", visible(one.condition ?? "")),
      one.other_space && h("span.aside", `space ${visible(one.space)} is not this crawler's`),
      one.shadow && h("span.aside", "in shadow mode: does not affect the decision"),
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
