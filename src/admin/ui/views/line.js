// One line of the decision log: all that it says, and where to go from it.

import { h } from "../dom.js";
import { dateTime, value } from "../format.js";
import { decisionsLink, hostLink, ofHost, tryLink } from "./verdict.js";

// How a URL ends whose query the log leaves out.
const CUT_QUERY = "?redacted";

/** What is known of a line's request, as facts of Try a URL. Of a tunnel only the host and port are known. */
export function factsOf(line) {
  if (line.url?.endsWith(CUT_QUERY)) return null;
  const tunnel = line.method === "CONNECT";
  const address = line.url ?? (tunnel && line.host);
  if (!address) return null;
  const url = tunnel && !address.includes("://") ? `https://${address}/` : address;
  return { url, crawler: line.crawler, method: line.method, tunnel: tunnel ? "true" : null };
}

/** All that a line says, with links to what it speaks of. */
export function details(line) {
  const shown = Object.entries(line).filter(([, given]) => given !== null);
  const links = [
    factsOf(line) && tryLink(factsOf(line), "Explain this URL"),
    line.host && h("span", "Host ", hostLink(line.host, line.url ? { url: line.url } : {})),
    line.rule && decisionsLink({ rule: line.rule }, "All of this rule"),
    line.host && decisionsLink(ofHost(line.host), "All of this host"),
  ];
  return h(
    "div",
    h("p.links", links),
    line.url?.endsWith(CUT_QUERY) &&
      h("p.quiet", "The query of this URL was left out of the log: without it another URL would be explained."),
    h(
      "dl.fields",
      shown.map(([name, given]) => [h("dt", name), h("dd", name === "ts" ? dateTime(given) : value(given))]),
    ),
    line.url
      ? null
      : h("p.quiet", "The whole URL of a refusal is kept if its rule says ", h("code", "log: true"), "."),
  );
}
