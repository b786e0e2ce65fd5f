// The robots.txt of a host: its state, its decision about a URL, and the line that decides.

import { empty, h, since } from "../dom.js";
import { bytes, count, dateTime, duration, value, visible } from "../format.js";

// The most lines that are shown as rows, around the one that decides. A hostile file has hundreds of thousands.
const LINES = 2000;

/** Shows the cached files of a host, and their decisions about `url`, if it is given. */
export function robotsOf(list, url) {
  if (!list.length)
    return empty(
      "robots.txt is not known yet.",
      "If the policy obeys robots.txt, it is fetched before the first request to the host.",
    );
  const applies = list.some((one) => one.ruling || fits(one, url));
  return [url && !applies ? noneFor(url) : null, list.map((one) => robots(one, url))];
}

function originOf(url) {
  return URL.canParse(url) ? new URL(url).origin : null;
}

function fits(of, url) {
  return url.startsWith("/") || originOf(url) === originOf(`${of.scheme}://${of.authority}`);
}

function noneFor(url) {
  return h(
    "p",
    `No robots.txt of ${visible(originOf(url) ?? url)} is cached: it is fetched before the first request to it.`,
  );
}

function robots(of, url) {
  const { ruling } = of;
  const known = [
    of.outcome && `last fetch: ${visible(of.outcome)}${of.http_status ? ` (status ${of.http_status})` : ""}`,
    of.fetched_at && ["fetched ", since(of.fetched_at)],
    of.fresh_until && `fresh until ${dateTime(of.fresh_until)}`,
    of.verified === false && "its certificate was not verified",
    of.size !== null && of.size !== undefined && bytes(of.size),
    (of.crawl_delay_ms ?? null) !== null && `Crawl-delay ${duration(of.crawl_delay_ms)}`,
  ].filter(Boolean);
  return h(
    "div",
    h(
      "h3.url",
      `${visible(of.scheme)}://${visible(of.authority)}/robots.txt `,
      h("span.mark", visible(of.status)),
    ),
    h(
      "p.quiet",
      known.map((words, at) => [at ? ", " : "", words]),
    ),
    ruling
      ? rulingOf(of, ruling)
      : url && fits(of, url)
        ? h("p", WITHOUT_RULES[of.status] ?? "It has no rule for this URL.")
        : null,
    of.text ? text(of, ruling) : null,
    of.cut && h("p.quiet", "Its text is left out, since the texts before it are too long. Add its port to the host to see it."),
  );
}

/** The effect of a file without lines, by status. */
const WITHOUT_RULES = {
  none: "There is no robots.txt: everything is allowed.",
  "allow-all": "The response counts as no robots.txt: everything is allowed.",
  unreachable: "The file is unavailable: nothing is allowed until it can be fetched.",
};

function rulingOf(of, ruling) {
  const agent = of.agent ? ` for ${visible(of.agent)}` : "";
  const why = ruling.line ? ` by line ${ruling.line}: ` : ", since no line matches";
  return h(
    "p",
    { data: { ruling: ruling.allow ? "allow" : "disallow" } },
    h(
      "span.mark",
      { class: `mark ${ruling.allow ? "allow" : "reject"}` },
      ruling.allow ? "allowed" : "disallowed",
    ),
    " ",
    h("span.url", visible(ruling.url)),
    agent,
    why,
    ruling.line ? h("code", visible(ruling.rule ?? "")) : null,
    ruling.group ? h("span.quiet", ` (group ${value(ruling.group)})`) : null,
  );
}

function text(of, ruling) {
  const lines = of.text.split(/\r\n|\n|\r/u);
  if (lines.at(-1) === "") lines.pop();
  const decisive = (ruling?.line ?? 1) - 1;
  const from = Math.max(0, Math.min(decisive - LINES / 2, lines.length - LINES));
  const rows = lines.slice(from, from + LINES).map((line, at) => row(line, from + at, ruling));
  const cut = lines.length > LINES;
  return [
    cut && h("p.quiet", `Lines ${count(from + 1)} to ${count(from + rows.length)} of ${count(lines.length)}.`),
    h(
      "div.robots",
      { role: "region", tabindex: "0", "aria-label": `robots.txt of ${visible(of.authority)}` },
      h("ol", rows),
    ),
    cut && whole(lines),
  ];
}

function row(line, at, ruling) {
  const decides = ruling?.line === at + 1;
  return h(
    "li",
    { "data-decides": decides, "aria-current": decides ? "true" : null },
    h("span", at + 1),
    h("span", visible(line)),
  );
}

/** Shows all lines as one text, which is created when it is opened. */
function whole(lines) {
  const box = h("pre.robots", { tabindex: "0", "aria-label": "All lines" });
  const show = (event) => {
    if (event.target.open && !box.textContent) box.textContent = lines.map(visible).join("\n");
  };
  return h("details", { ontoggle: show }, h("summary", "All lines as text"), box);
}
