// The frame around the views: which one is shown, keys, colours, the connection and what needs attention.

import { closeDialog, fill, h, openDialog, tick, write } from "./dom.js";
import { feed } from "./feed.js";
import { clock, dateTime, plural, visible } from "./format.js";
import { hosts } from "./views/hosts.js";
import { now } from "./views/now.js";
import { policy, problemList } from "./views/policy.js";
import { rules } from "./views/rules.js";
import { tryUrl } from "./views/try.js";
import { urls } from "./views/urls.js";

// `decisions` is the list of Now alone, with the whole page for itself.
const VIEWS = [
  { name: "now", title: "Now", view: now },
  { name: "rules", title: "Rules", view: rules },
  { name: "try", title: "Try a URL", view: tryUrl },
  { name: "hosts", title: "Hosts", view: hosts },
  { name: "policy", title: "Policy", view: policy },
  { name: "urls", title: "URLs", view: urls },
];
const KEYS = [
  ["1 to 6", "Now, Rules, Try a URL, Hosts, Policy, URLs"],
  ["d", "all decisions"],
  ["/", "to the filter or first field of the view"],
  ["p", "pause the live decisions, or go on"],
  ["t", "colours: the system's, light, dark"],
  ["?", "this list"],
  ["Esc", "close, or leave a field"],
];

// How often "3 min ago" is said anew.
const TICK_MS = 5000;

const main = document.getElementById("main");
let open = null;

/** The view and filters of the address: `#/decisions?verdict=reject`. */
function place() {
  const hash = location.hash.replace(/^#\/?/, "");
  const at = hash.indexOf("?");
  const [path, query] = at < 0 ? [hash, ""] : [hash.slice(0, at), hash.slice(at + 1)];
  return { name: path || "now", query: new URLSearchParams(query) };
}

function route() {
  const { name: asked, query } = place();
  const known = VIEWS.find((view) => view.name === (asked === "decisions" ? "now" : asked));
  const entry = known ?? VIEWS[0];
  const name = known ? asked : entry.name;
  // One host is a view of its own.
  const of = name === "hosts" ? query.get("host") : null;
  const title = `${of ? visible(of) : name === "decisions" ? "Decisions" : entry.title} · crawlgate`;
  if (open?.name === name) {
    open.instance.query?.(query);
    if (open.of !== of) arrive(title, true);
    open.of = of;
    return;
  }
  const moved = open !== null;
  open?.instance.close();
  document.getElementById("dialog").close();
  fill(main);
  main.dataset.view = name;
  open = { name, of, instance: entry.view(main, query, name) };
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.name === entry.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  arrive(title, moved);
}

/** Another view: its name, and the focus and the screen at its beginning. */
function arrive(title, moved) {
  document.title = title;
  if (moved) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function navigation() {
  const links = VIEWS.map((view, at) =>
    h("a", { href: `#/${view.name}`, data: { name: view.name }, "aria-keyshortcuts": at + 1 }, view.title),
  );
  fill(document.getElementById("views"), links);
}

function state() {
  const line = document.getElementById("connection");
  const { status, failure } = feed;
  document.documentElement.dataset.connection = failure ? "lost" : status ? "live" : "none";
  // Said once when it changes; a screen reader is not told every two seconds.
  if (failure) write(line, failure.status ? `error ${failure.status}` : "no answer");
  else if (status) write(line, status.ready === false ? "not ready" : "connected");
  if (status?.policy) write(document.getElementById("policy"), `${status.policy.name}@${status.policy.revision}`);
}

/** Each thing that needs attention is one block; a block that says the same is left as it is. */
let told = "";
function banner() {
  const { failure, status, policy: loaded } = feed;
  const last = loaded?.last_reload;
  const refused = last?.result === "refused" ? last : null;
  // Of the policy more is said than in the warning.
  const more = (text) => !(refused && text.startsWith("policy:"));
  const warnings = failure ? [] : (status?.warnings ?? []).filter(more);
  const said = JSON.stringify([failure?.message, failure?.status, refused, warnings]);
  if (said === told) return;
  told = said;
  fill(
    document.getElementById("banner"),
    failure && lost(failure),
    refused && reloadFailed(refused),
    warnings.map(warning),
  );
}

function lost(failure) {
  const what = failure.status
    ? `The state cannot be read (${failure.status}): ${failure.message}.`
    : failure.message;
  const cure = failure.cure ? ` ${failure.cure}` : "";
  const seen = feed.answered ? ` What is shown is of ${clock(feed.answered)} and older.` : "";
  const again = h("button", { type: "button", id: "ask-again", onclick: () => location.reload() }, "Ask again");
  return h(
    "div.notice.bad",
    { role: "alert" },
    h("strong", visible(what)),
    `${cure}${seen} `,
    failure.status === 401 && again,
  );
}

function reloadFailed(last) {
  const title = `The policy's last reload failed at ${dateTime(last.at)}: ${plural(last.problems?.length ?? 0, "problem")}.`;
  return h(
    "div.notice.bad",
    { role: "alert", data: { notice: "reload" } },
    h(
      "p",
      h("strong", title),
      " The one before it stays in force. Mend the file; it is read again when it changes, or by Reload.",
    ),
    problemList(last.problems),
    h("p", h("a", { href: "#/policy" }, "To the policy")),
  );
}

function warning(text) {
  return h("div.notice.warn", visible(text));
}

const THEMES = ["auto", "light", "dark"];

function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("crawlgate-theme", next);
  } catch {
    // Storage is switched off: it holds for this visit.
  }
  showTheme();
  dispatchEvent(new Event("theme"));
}

function showTheme() {
  write(document.getElementById("theme"), `Theme: ${theme()}`);
}

function keys() {
  const rows = KEYS.map(([key, words]) => h("tr", h("th", { scope: "row" }, h("kbd", key)), h("td", words)));
  openDialog("Keys", h("table.keys", h("tbody", rows)));
}

function typing(target) {
  return target.matches?.("input, select, textarea, [contenteditable]");
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && typing(event.target)) {
    // A search field would be emptied, too.
    event.preventDefault();
    return event.target.blur();
  }
  if (typing(event.target) || document.getElementById("dialog").open) return undefined;
  const act = actions[event.key];
  if (!act) return undefined;
  event.preventDefault();
  return act();
}

const actions = {
  "?": keys,
  "/": () => main.querySelector("[data-first]")?.focus(),
  d: () => (location.hash = "#/decisions"),
  p: () => open?.instance.pause?.(),
  t: nextTheme,
  ...Object.fromEntries(VIEWS.map((view, at) => [at + 1, () => (location.hash = `#/${view.name}`)])),
};

navigation();
showTheme();
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", keys);
document.getElementById("skip").addEventListener("click", (event) => {
  // The address holds the view, so the link must not change it.
  event.preventDefault();
  main.focus();
});
document.getElementById("dialog").addEventListener("cancel", closeDialog);
addEventListener("keydown", pressed);
addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
setInterval(() => document.hidden || tick(), TICK_MS);
feed.on(state);
feed.on(banner);
feed.start();
route();
