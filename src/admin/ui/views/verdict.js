// Verdicts, reasons and links that several views show in the same way.

import { fill, h } from "../dom.js";
import { visible } from "../format.js";

const WORDS = {
  allow: "allowed",
  reject: "rejected",
  shadow_reject: "shadow",
  undecided: "undecided",
};

/** The verdict as a mark; the word tells it, the colour only helps. */
export function verdict(of) {
  return h("span.mark", { class: `mark ${WORDS[of] ? of : "other"}` }, WORDS[of] ?? visible(of ?? "–"));
}

/** Link to the decisions with these filters. */
export function decisionsLink(query, ...content) {
  return h("a", { href: `#/decisions?${new URLSearchParams(query)}` }, content);
}

/** Link to Try a URL. */
export function tryLink(query, ...content) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("a", { href: `#/try?${new URLSearchParams(given)}` }, content);
}

/** Link to a host. */
export function hostLink(host, query = {}) {
  return h("a", { href: `#/hosts?${new URLSearchParams({ host, ...query })}` }, visible(host));
}

/** Decisions of a host or domain, with those of the names below it. */
export function ofHost(host) {
  return new URLSearchParams([
    ["host", host],
    ["host", `*.${host}`],
  ]);
}

/** Says in this box what failed, once: the same words are not read aloud again. Without an error the box is emptied. */
export function tell(box, what, error, more = "") {
  const said = error ? `${what} ${error.message} ${more}` : "";
  if ((box.dataset.said ?? "") === said) return;
  box.dataset.said = said;
  fill(box, error ? failed(what, error, more) : null);
}

/** What failed, and what to do, in a view's own place. */
export function failed(what, error, more = "") {
  return h(
    "div.notice.bad",
    { role: "alert" },
    h("strong", `${what}: `),
    visible(error.message) + more,
    error.cure ? ` ${error.cure}` : null,
  );
}
