// The user of a page with many rules and hosts, for page_size.py: opens each view, filters, scrolls, and notes how long
// the browser was blocked.

import { browser, check, given, open, pause, section, shot, until, equal } from "./page_user.mjs";

const LONGEST_MS = 100;
// A pause is the page's own if it is there each time: other processes also hold the browser up.
const TRIES = 5;

/** What is done in a view, beside opening it and scrolling through it. */
async function use(page) {
  const filter = page.locator("main input[type=search]").first();
  if ((await filter.count()) && (await filter.isVisible())) {
    await filter.pressSequentially("site-9", { delay: 30 });
    await pause(600);
    await filter.fill("");
  }
  for (let step = 0; step < 5; step += 1) {
    await page.mouse.wheel(0, 2000);
    await pause(100);
  }
  await pause(1500);
}

/** The longest time in milliseconds that the view blocked the browser; 0 if none was over 50. */
async function longest(page, view) {
  await page.evaluate(() => globalThis.blocked.splice(0));
  await open(page, view);
  await use(page);
  const blocked = await page.evaluate(() => globalThis.blocked.splice(0));
  return Math.max(0, ...blocked);
}

const { context, page } = await browser();
await context.addInitScript(() => {
  globalThis.blocked = [];
  new PerformanceObserver((list) => globalThis.blocked.push(...list.getEntries().map((entry) => entry.duration))).observe({
    type: "longtask",
    buffered: true,
  });
});

section("Page: with many rules and hosts");
await check("the page opens", async () => {
  await page.goto(`${given.admin}/ui`);
  return until(async () => equal(await page.locator("#connection").textContent(), "connected"));
});
await check("a pause would be noticed", async () => {
  await page.evaluate(() =>
    setTimeout(() => {
      const end = performance.now() + 150;
      while (performance.now() < end);
    }),
  );
  return until(async () => (await page.evaluate(() => globalThis.blocked.splice(0))).some((time) => time >= 150) || "not noticed");
});
const views = await page.locator("#views a").evaluateAll((links) => links.map((link) => link.hash.replace(/^#\//, "")));
for (const view of views) {
  await check(`${view} never blocks the browser for longer than ${LONGEST_MS} ms`, async () => {
    const times = [];
    while (times.length < TRIES && !times.some((time) => time <= LONGEST_MS)) times.push(await longest(page, view));
    await shot(page, `size-${view}`);
    return Math.min(...times) <= LONGEST_MS || `blocked for ${times.join(", ")} ms`;
  });
}
await context.close();
