// One line of the decision log with all its fields and links.

import { curlOf } from "../curl.js";
import { copyButton, h } from "../dom.js";
import { feed } from "../feed.js";
import { value } from "../format.js";
import { decisionsLink, hostLink, ofHost, tryLink } from "./verdict.js";

// A query of which the setting logs.query masks values or everything.
const MASKED_QUERY = /\?(.*[&=])?redacted(&|$)/;

/** Returns the request of a line as facts of Try a URL. For a tunnel, only host and port are known. */
export function factsOf(line) {
  if (isMasked(line.url)) return null;
  const tunnel = line.method === "CONNECT";
  const address = line.url ?? (tunnel && line.host);
  if (!address) return null;
  const url = tunnel && !address.includes("://") ? `https://${address}/` : address;
  return { url, crawler: line.crawler, method: line.method, tunnel: tunnel ? "true" : null };
}

/** Returns true if parts of the URL's query are masked, so that it may be another URL. */
export function isMasked(url) {
  return MASKED_QUERY.test(url ?? "");
}

/** Returns the request that curl sends: a tunnel is that of a request over HTTPS. */
function repeatable(line) {
  const { url, method } = factsOf(line);
  return { url, method: method === "CONNECT" ? "GET" : method };
}

/** Returns true if the request can be repeated: its URL is known, and it has no body. */
function canRepeat(line) {
  return factsOf(line) && ["GET", "HEAD", "CONNECT"].includes(line.method);
}

/** Shows all fields of a line, with links. */
export function details(line) {
  const shown = Object.entries(line).filter(([, given]) => given !== null);
  const links = [
    factsOf(line) && tryLink(factsOf(line), "Explain this URL"),
    line.host && h("span", "Host ", hostLink(line.host, line.url ? { url: line.url } : {})),
    line.rule && decisionsLink({ rule: line.rule }, "Decisions of this rule"),
    line.host && decisionsLink(ofHost(line.host), "Decisions of this host"),
    canRepeat(line) && copyButton("Copy as curl", () => curlOf({ ...line, ...repeatable(line) }, feed.status)),
  ];
  return h(
    "div",
    h("p.links", links),
    isMasked(line.url) &&
      h("p.quiet", "The setting ", h("code", "logs.query"), " masks this URL's query, so it cannot be explained: it may be another URL."),
    h(
      "dl.fields",
      shown.map(([name, given]) => [h("dt", name), h("dd", value(given))]),
    ),
    line.url || line.host
      ? null
      : h("p.quiet", "There is no URL: the request had none, or the option ", h("code", "record: none"), " applies to it."),
  );
}
