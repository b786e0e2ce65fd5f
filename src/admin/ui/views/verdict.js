// Verdicts, links and error messages that several views share.

import { fill, h } from "../dom.js";
import { visible } from "../format.js";

const WORDS = {
  allow: "allowed",
  reject: "rejected",
  shadow_reject: "shadow",
  undecided: "undecided",
};

/** Shows a verdict as a coloured mark. The word carries the meaning, not the colour. */
export function verdict(of) {
  return h("span.mark", { class: `mark ${WORDS[of] ? of : "other"}` }, WORDS[of] ?? visible(of ?? "–"));
}

/** Creates a link to the decisions with these filters. */
export function decisionsLink(query, ...content) {
  return h("a", { href: `#/decisions?${new URLSearchParams(query)}` }, content);
}

/** Creates a link to Try a URL. */
export function tryLink(query, ...content) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("a", { href: `#/try?${new URLSearchParams(given)}` }, content);
}

/** Creates a link to a host. */
export function hostLink(host, query = {}) {
  return h("a", { href: `#/hosts?${new URLSearchParams({ host, ...query })}` }, visible(host));
}

/** Creates a link to a view of another node's page, or its name if no URL of its admin listener is known. */
export function nodeLink({ node, admin }, address) {
  return /^https?:\/\//.test(admin ?? "") ? h("a", { href: `${admin}/ui${address}` }, visible(node)) : visible(node);
}

/** Returns the filters for decisions of a host or domain and the names below it. */
export function ofHost(host) {
  return new URLSearchParams([
    ["host", host],
    ["host", `*.${host}`],
  ]);
}

/** Shows an error in a box, or clears it. The same error is not written again, so that it is announced only once. */
export function showError(box, what, error, more = "") {
  const text = error ? `${what} ${error.message} ${more}` : "";
  if ((box.dataset.said ?? "") === text) return;
  box.dataset.said = text;
  fill(box, error ? failed(what, error, more) : null);
}

/** Creates the message of an error: what failed, why, and what the user can do. */
export function failed(what, error, more = "") {
  return h(
    "div.notice.bad",
    { role: "alert" },
    h("strong", `${what}: `),
    visible(error.message) + more,
    error.cure ? ` ${error.cure}` : null,
  );
}

/** Lists the problems of a policy, each with its position and what to write instead. */
export function problemList(problems) {
  if (!problems?.length) return null;
  return h("ul.problems", problems.map(problem));
}

function problem(one) {
  const help = [one.help, one.near && `Did you mean \u201c${one.near}\u201d?`].filter(Boolean);
  return h(
    "li",
    position(one),
    visible(one.message),
    one.found ? [": ", h("code", visible(one.found))] : null,
    help.length ? h("div.help", visible(help.join(" "))) : null,
  );
}

function position(one) {
  if (!one.file) return null;
  const at = [one.file, one.line, one.column].filter(Boolean).join(":");
  return h(
    "span",
    h("span.at", visible(at)),
    one.severity && one.severity !== "error" ? ` ${visible(one.severity)}: ` : ": ",
  );
}
