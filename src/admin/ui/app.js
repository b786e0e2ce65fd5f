// The frame around the views: routing, keyboard shortcuts, colours, the state of the connection, problems and warnings.

import { closeDialog, fill, h, openDialog, tick, write } from "./dom.js";
import { feed } from "./feed.js";
import { clock, dateTime, plural, visible } from "./format.js";
import { configuration } from "./views/configuration.js";
import { crawlers } from "./views/crawlers.js";
import { events } from "./views/events.js";
import { fleet } from "./views/fleet.js";
import { hosts } from "./views/hosts.js";
import { now } from "./views/now.js";
import { policy } from "./views/policy.js";
import { rules } from "./views/rules.js";
import { shadow } from "./views/shadow.js";
import { tryUrl } from "./views/try.js";
import { urls } from "./views/urls.js";
import { problemList } from "./views/verdict.js";

// `decisions` is the list of Now without the overview, on the whole page.
const VIEWS = [
  { name: "now", title: "Now", view: now },
  { name: "crawlers", title: "Crawlers", view: crawlers },
  { name: "hosts", title: "Hosts", view: hosts },
  { name: "rules", title: "Rules", view: rules },
  { name: "try", title: "Try a URL", view: tryUrl },
  { name: "policy", title: "Policy", view: policy },
  { name: "shadow", title: "Shadow", view: shadow },
  { name: "urls", title: "URLs", view: urls },
  { name: "events", title: "Events", view: events },
  { name: "configuration", title: "Configuration", view: configuration },
];
// Only for a node of a fleet.
const FLEET = { name: "fleet", title: "Fleet", view: fleet };
// The key of each view: 1 to 9, and 0 for the tenth.
const keyOf = (at) => String((at + 1) % 10);
const FLEET_KEY = "f";
const KEYS = [
  ...VIEWS.map((view, at) => [keyOf(at), view.title]),
  ["d", "all decisions"],
  ["/", "go to the filter or first field of the view"],
  ["p", "pause or resume the live decisions"],
  ["t", "switch colours: the system's, light, dark"],
  ["?", "this list"],
  ["Esc", "close the dialog, or leave a field"],
];

// The interval at which "3 min ago" is updated.
const TICK_MS = 5000;

const main = document.getElementById("main");
let open = null;

/** The view and filters of the address: `#/decisions?verdict=reject`. */
function currentView() {
  const hash = location.hash.replace(/^#\/?/, "");
  const at = hash.indexOf("?");
  const [path, query] = at < 0 ? [hash, ""] : [hash.slice(0, at), hash.slice(at + 1)];
  return { name: path || "now", query: new URLSearchParams(query) };
}

function route() {
  const { name: requested, query } = currentView();
  const wanted = requested === "decisions" ? "now" : requested;
  const known = [...VIEWS, FLEET].find((view) => view.name === wanted);
  const entry = known ?? VIEWS[0];
  const name = known ? requested : entry.name;
  // One host is a separate view.
  const host = name === "hosts" ? query.get("host") : null;
  const title = `${host ? visible(host) : name === "decisions" ? "Decisions" : entry.title} · crawlgate`;
  if (open?.name === name) {
    open.instance.query?.(query);
    if (open.host !== host) enter(title, true);
    open.host = host;
    return;
  }
  const moved = open !== null;
  open?.instance.close();
  document.getElementById("dialog").close();
  fill(main);
  main.dataset.view = name;
  open = { name, host, instance: entry.view(main, query, name) };
  markCurrent(entry.name);
  enter(title, moved);
}

/** Marks the link of the view that is shown. */
function markCurrent(name) {
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.name === name) {
      link.setAttribute("aria-current", "page");
      // In a narrow window the bar scrolls.
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
}

/** Sets the title of a new view, and moves the focus and the scroll position to its beginning. */
function enter(title, moved) {
  document.title = title;
  if (moved) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function navigation() {
  const links = VIEWS.map((view, at) => viewLink(view, keyOf(at)));
  fill(document.getElementById("views"), links);
}

function viewLink(view, key) {
  return h("a", { href: `#/${view.name}`, data: { name: view.name }, "aria-keyshortcuts": key }, view.title);
}

/** Adds the view of the fleet once the status says that this proxy is a node of one. */
function offerFleet() {
  if (!feed.status?.node || actions[FLEET_KEY]) return;
  document.getElementById("views").append(viewLink(FLEET, FLEET_KEY));
  actions[FLEET_KEY] = () => (location.hash = `#/${FLEET.name}`);
  KEYS.splice(VIEWS.length, 0, [FLEET_KEY, FLEET.title]);
  if (open?.name === FLEET.name) markCurrent(FLEET.name);
}

function state() {
  const line = document.getElementById("connection");
  const { status, failure } = feed;
  document.documentElement.dataset.connection = failure ? "lost" : status ? "live" : "none";
  // Written only when it changes, so that a screen reader does not announce it every two seconds.
  if (failure) write(line, failure.status ? `error ${failure.status}` : "no answer");
  else if (status) write(line, status.ready === false ? "not ready" : "connected");
  if (status?.policy) write(document.getElementById("policy"), `${status.policy.name}@${status.policy.revision}`);
  const node = status?.node ? `, node ${visible(status.node)}` : "";
  if (status?.version) write(document.getElementById("version"), `crawlgate ${status.version}${node}`);
}

/** One block for each problem or warning. The blocks are rebuilt only if their texts change. */
let bannerKey = "";
function banner() {
  const { failure, status, policy: loaded } = feed;
  const last = loaded?.last_reload;
  const refused = last?.result === "refused" ? last : null;
  // The block of a refused policy says more than the warning does.
  const relevant = (text) => !(refused && text.startsWith("policy:"));
  const warnings = failure ? [] : (status?.warnings ?? []).filter(relevant);
  const key = JSON.stringify([failure?.message, failure?.status, refused, warnings]);
  if (key === bannerKey) return;
  bannerKey = key;
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
  const age = feed.answered ? ` The data shown is from ${clock(feed.answered)} or earlier.` : "";
  const retry = h("button", { type: "button", id: "log-in", onclick: () => location.reload() }, "Log in");
  return h(
    "div.notice.bad",
    { role: "alert" },
    h("strong", visible(what)),
    `${cure}${age} `,
    failure.status === 401 && retry,
  );
}

function reloadFailed(last) {
  const title = `The last reload of the policy failed at ${dateTime(last.at)}: ${plural(last.problems?.length ?? 0, "problem")}.`;
  return h(
    "div.notice.bad",
    { role: "alert", data: { notice: "reload" } },
    h(
      "p",
      h("strong", title),
      " The previous policy remains active. Fix the file: it is loaded again when it changes, or with Reload.",
    ),
    problemList(last.problems),
    h("p", h("a", { href: "#/policy" }, "Go to Policy")),
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
    // Storage is disabled: the choice lasts for this visit.
  }
  showTheme();
  dispatchEvent(new Event("theme"));
}

function showTheme() {
  write(document.getElementById("theme"), `Theme: ${theme()}`);
}

function keys() {
  const rows = KEYS.map(([key, words]) => h("tr", h("th", { scope: "row" }, h("kbd", key)), h("td", words)));
  openDialog("Keyboard shortcuts", h("table.keys", h("tbody", rows)));
}

function typing(target) {
  return target.matches?.("input, select, textarea, [contenteditable]");
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // In a dialog, Escape closes it, also from a field.
  if (document.getElementById("dialog").open) return undefined;
  if (event.key === "Escape" && typing(event.target)) {
    // Otherwise, Escape would also clear a search field.
    event.preventDefault();
    return event.target.blur();
  }
  if (typing(event.target)) return undefined;
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
  ...Object.fromEntries(VIEWS.map((view, at) => [keyOf(at), () => (location.hash = `#/${view.name}`)])),
};

navigation();
showTheme();
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", keys);
document.getElementById("skip").addEventListener("click", (event) => {
  // The fragment of the address names the view, so the link must not change it.
  event.preventDefault();
  main.focus();
});
document.getElementById("dialog").addEventListener("cancel", closeDialog);
addEventListener("keydown", pressed);
addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
setInterval(() => document.hidden || tick(), TICK_MS);
feed.on(state);
feed.on(offerFleet);
feed.on(banner);
feed.start();
route();
