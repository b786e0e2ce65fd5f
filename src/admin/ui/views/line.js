// One line of the decision log with all its fields and links.

import { h } from "../dom.js";
import { dateTime, value } from "../format.js";
import { decisionsLink, hostLink, ofHost, tryLink } from "./verdict.js";

// The end of a URL whose query the log leaves out.
const CUT_QUERY = "?redacted";

/** Returns the request of a line as facts of Try a URL. For a tunnel, only host and port are known. */
export function factsOf(line) {
  if (line.url?.endsWith(CUT_QUERY)) return null;
  const tunnel = line.method === "CONNECT";
  const address = line.url ?? (tunnel && line.host);
  if (!address) return null;
  const url = tunnel && !address.includes("://") ? `https://${address}/` : address;
  return { url, crawler: line.crawler, method: line.method, tunnel: tunnel ? "true" : null };
}

/** Shows all fields of a line, with links. */
export function details(line) {
  const shown = Object.entries(line).filter(([, given]) => given !== null);
  const links = [
    factsOf(line) && tryLink(factsOf(line), "Explain this URL"),
    line.host && h("span", "Host ", hostLink(line.host, line.url ? { url: line.url } : {})),
    line.rule && decisionsLink({ rule: line.rule }, "Decisions of this rule"),
    line.host && decisionsLink(ofHost(line.host), "Decisions of this host"),
  ];
  return h(
    "div",
    h("p.links", links),
    line.url?.endsWith(CUT_QUERY) &&
      h("p.quiet", "The log leaves out the query of this URL, so it cannot be explained: without the query it is another URL."),
    h(
      "dl.fields",
      shown.map(([name, given]) => [h("dt", name), h("dd", name === "ts" ? dateTime(given) : value(given))]),
    ),
    line.url
      ? null
      : h("p.quiet", "The whole URL of a refused request is recorded if its rule has ", h("code", "log: true"), "."),
  );
}
