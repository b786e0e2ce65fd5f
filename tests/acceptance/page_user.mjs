// What page.mjs works with: checks, a crawl through the proxy, and a browser that notes what must not happen.
// What it is to do comes as JSON on standard input; what it found goes to standard output, a check a line.

import { mkdir, readFile, rm } from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { text } from "node:stream/consumers";

const require = createRequire(path.join(process.argv[2], "node_modules", "page.cjs"));
const { chromium } = require("playwright-core");
export const AXE = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
export const given = JSON.parse(await text(process.stdin));

const PATIENCE_MS = 30_000;
export const VIEWS = {
  now: "Now",
  crawlers: "Crawlers",
  hosts: "Hosts",
  rules: "Rules",
  try: "Try a URL",
  policy: "Policy",
  shadow: "Shadow",
  urls: "URLs",
  events: "Events",
  configuration: "Configuration",
};
export const [NEWS, SHOP, SLOW, MANY] = given.hosts;
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export function say(object) {
  process.stdout.write(`${JSON.stringify(object)}\n`);
}

export function section(name) {
  say({ section: name });
}

/** One check: `look` returns problems, or true for none; what it throws is one. */
export async function check(title, look, cases = 1) {
  let problems;
  try {
    const found = await look();
    problems = found === true ? [] : [found].flat().map(String);
  } catch (error) {
    problems = [
      String(error.message ?? error)
        .split("\n")
        .slice(0, 6)
        .join(" | "),
    ];
  }
  say({ title, problems, cases });
}

export function equal(found, expected) {
  return found === expected || `expected ${JSON.stringify(expected)}, got ${JSON.stringify(found)}`;
}

export function holds(condition, words) {
  return condition || words;
}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `look` returns true; its last words if it does not. */
export async function until(look, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  let found;
  do {
    try {
      found = await look();
    } catch (error) {
      found = error.message;
    }
    if (found === true) return true;
    await pause(100);
  } while (Date.now() < end);
  return found;
}

/** One request through the proxy; the status. The target goes out as it stands. */
export function crawl(host, target, port = given.proxyPort) {
  const url = `http://${host}:${given.sitePort}${target}`;
  return new Promise((resolve) => {
    const options = {
      host: "127.0.0.1",
      port,
      path: url,
      headers: { host: `${host}:${given.sitePort}` },
      agent,
    };
    const request = http.get(options, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode));
      response.on("error", () => resolve(0));
    });
    request.on("error", () => resolve(0));
  });
}

export const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });

/** A crawl that goes on until it is told to end: mostly pages, some of what is refused. */
export class Crawl {
  constructor() {
    this.going = true;
    this.number = 0;
    this.done = Promise.all([this.fast(), this.patient()]);
  }

  async fast() {
    while (this.going) {
      const n = (this.number += 1);
      const host = n % 3 ? NEWS : SHOP;
      const wave = 3 + Math.round(2 * Math.sin(n / 40));
      await Promise.all(Array.from({ length: wave }, (_, at) => crawl(host, this.target(n, at))));
      await pause(120);
    }
  }

  target(n, at) {
    if (at === 1 && n % 2) return `/calendar/2026/${n}`;
    if (at === 2 && n % 3 === 0) return `/article-${n}?sid=${n}`;
    if (at === 2 && n % 5 === 0) return `/private/draft-${n}`;
    if (at === 2 && n % 7 === 0) return `/photos/${n}.png`;
    if (at === 3 && n % 4 === 0) return `/downloads/${n}.zip`;
    return `/2026/articles/${n}-${at}.html`;
  }

  async patient() {
    while (this.going) await crawl(SLOW, `/page-${(this.number += 1)}`);
  }

  async end() {
    this.going = false;
    await this.done;
  }
}

export const api = async (target, options = {}) => {
  const headers = { authorization: `Bearer ${given.token}`, ...options.headers };
  return fetch(`${given.admin}${target}`, { ...options, headers });
};

/** The proxy is started anew, with this token. */
export async function restart(token) {
  await rm(given.restarted, { force: true });
  say({ restart: token });
  const found = await until(async () => equal(await readFile(given.restarted, "utf8"), token));
  given.token = token;
  return found;
}

// What must not happen, collected all the time.
export const wrong = { console: [], foreign: [], csp: [], failed: [], hurt: [] };
// Answers of 4xx that a step is about.
export const expected = new Set();

export async function browser() {
  await mkdir(given.home, { recursive: true });
  const context = await chromium.launchPersistentContext(path.join(given.home, "profile"), {
    executablePath: "/usr/bin/chromium",
    headless: true,
    args: ARGUMENTS,
    viewport: { width: 1280, height: 800 },
    httpCredentials: { username: "anyone", password: given.token },
    colorScheme: "dark",
    env: { ...process.env, XDG_CONFIG_HOME: given.home, XDG_CACHE_HOME: given.home },
  });
  await context.addInitScript(() => {
    globalThis.violations = [];
    addEventListener("securitypolicyviolation", (event) =>
      globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  const page = context.pages()[0] ?? (await context.newPage());
  page.setDefaultTimeout(PATIENCE_MS);
  page.on("pageerror", (error) => wrong.console.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    // Which answer it was is said below, with its path.
    if (!message.text().startsWith("Failed to load resource")) wrong.console.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`${given.admin}/`)) wrong.foreign.push(request.url());
  });
  page.on("response", (response) => {
    const target = new URL(response.url()).pathname;
    if (response.status() >= 400 && response.status() !== 401 && !expected.has(target))
      wrong.failed.push(`${response.status()} ${target}`);
  });
  page.on("dialog", (dialog) => {
    wrong.console.push(`a dialog of a script: ${dialog.message()}`);
    dialog.dismiss();
  });
  return { context, page };
}

/** What a reload forgets is collected before it. */
export async function collect(page) {
  const found = await page.evaluate(() => ({ csp: globalThis.violations.splice(0), hurt: globalThis.hurt }));
  wrong.csp.push(...found.csp);
  if (found.hurt !== undefined) wrong.hurt.push(`hurt: ${found.hurt}`);
}

export async function open(page, view) {
  await page.evaluate((hash) => (location.hash = hash), `#/${view}`);
  await pause(150);
}

export async function shot(page, name) {
  // Nothing is under the pointer.
  await page.mouse.move(640, 799);
  await page.screenshot({ path: path.join(given.screenshots, `${name}.png`) });
}

export async function rowsOf(page) {
  return page
    .locator(".decisions tbody tr:not(.details)")
    .evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent.trim())));
}
