// The parts of page.mjs about how the page is used at all: by keyboard, in both colours, on narrow screens, by those
// who do not see it, when nobody looks, when the proxy is gone, and when the token is another.

import {
  AXE,
  NEWS,
  VIEWS,
  check,
  collect,
  crawl,
  equal,
  given,
  holds,
  open,
  pause,
  restart,
  rowsOf,
  section,
  shot,
  until,
} from "./page_user.mjs";

/** Walks with Tab from the page's begin until it is left; what of it showed no focus. What was met is marked. */
async function walk(page) {
  const begun = await page.evaluate(() => {
    for (const element of document.querySelectorAll("[data-met]")) delete element.dataset.met;
    globalThis.unseen = [];
    globalThis.over = false;
    globalThis.met ??= (event) => {
      const at = event.target;
      globalThis.over ||= at.dataset.met === "yes";
      at.dataset.met = "yes";
      const style = getComputedStyle(at);
      const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
      if (!seen && at.id !== "main") globalThis.unseen.push(`no visible focus: ${at.outerHTML.slice(0, 80)}`);
    };
    // The first stop of a fresh page; from there on by Tab.
    document.activeElement?.blur();
    removeEventListener("focusin", globalThis.met);
    addEventListener("focusin", globalThis.met);
    document.getElementById("skip").focus();
    return document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]").length;
  });
  for (let step = 0; step < begun + 20; step += 1) {
    await page.keyboard.press("Tab");
    if (
      step % 10 === 9 &&
      (await page.evaluate(() => globalThis.over || document.activeElement === document.body))
    )
      break;
  }
  return page.evaluate(() => {
    removeEventListener("focusin", globalThis.met);
    return globalThis.unseen;
  });
}

/**
 * Leaves few rows, and lets none come while Tab is pressed.
 *
 * The first rows after a new filter are drawn although the list is paused, so it waits for them.
 */
async function few(page) {
  await page.keyboard.press("/");
  await page.keyboard.type("/calendar/2026/1");
  await page.keyboard.press("Escape");
  const filtered = await until(async () => {
    const rows = await rowsOf(page);
    return holds(rows.length > 0 && rows.every((row) => row[6].includes("/calendar/2026/1")), `${rows.length} rows`);
  });
  if (filtered !== true) throw new Error(`the filter left ${filtered}`);
  await page.keyboard.press("p");
  await page.locator(".decisions button", { hasText: "Resume" }).waitFor();
}

export async function keyboard(page) {
  section("Page: by keyboard alone");
  for (const [at, [view, title]] of Object.entries(VIEWS).entries()) {
    const key = String((at + 1) % 10);
    await check(`${key} opens ${title}, and Tab reaches everything in it`, async () => {
      await page.evaluate(() => document.activeElement?.blur());
      await page.keyboard.press(key);
      const found = await until(async () => equal(await page.locator("main").getAttribute("data-view"), view));
      if (found !== true) return found;
      await pause(1200);
      if (view === "now") await few(page);
      // New examples come all the time, before those that were met.
      if (view === "shadow") await page.route("**/api/v1/shadow", (route) => route.abort());
      const unseen = await walk(page);
      const missed = await page.evaluate(() => {
        const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']");
        const open = (element) => element.checkVisibility() && !element.disabled;
        return [...all]
          .filter((element) => open(element) && element.dataset.met !== "yes")
          .map((element) => `missed: ${element.outerHTML.slice(0, 80)}`);
      });
      await page.unroute("**/api/v1/shadow");
      return [...unseen.map((name) => `no visible focus: ${name}`), ...missed];
    });
  }
  await check("the first Tab is at the link that skips to the view", async () => {
    await collect(page);
    await page.reload();
    await page.locator("main h1").first().waitFor({ state: "attached" });
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => document.activeElement.id);
    await page.keyboard.press("Enter");
    return [equal(at, "skip"), equal(await page.evaluate(() => document.activeElement.id), "main")].filter(
      (one) => one !== true,
    );
  });
  await check("? shows the keys, Escape closes them", async () => {
    await page.keyboard.press("?");
    const shown = await page.locator("dialog").innerText();
    await page.keyboard.press("Escape");
    return holds(shown.includes("pause") && !(await page.locator("dialog").isVisible()), shown);
  });
  await check("/ goes to the filter, Escape leaves it", async () => {
    await page.keyboard.press("1");
    await page.locator("main[data-view=now] input[name=url]").waitFor();
    await page.keyboard.press("/");
    const at = await page.evaluate(() => document.activeElement.name);
    await page.keyboard.press("Escape");
    return [
      equal(at, "url"),
      equal(await page.evaluate(() => document.activeElement === document.body), true),
    ].filter((one) => one !== true);
  });
  await check("a row is opened with Enter", async () => {
    await until(async () => holds((await rowsOf(page)).length > 0, "no rows"));
    await page.keyboard.press("p");
    await page.locator(".row-button").first().focus();
    await page.keyboard.press("Enter");
    return equal(await page.locator("tr.details").count(), 1);
  });
}

export async function looks(page) {
  section("Page: colours, narrow screens, accessibility");
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await check("t goes through the system's colours, light and dark, and the choice is kept", async () => {
    await page.evaluate(() => document.activeElement?.blur());
    const auto = await ground();
    await page.keyboard.press("t");
    const light = await ground();
    await collect(page);
    await page.reload();
    const kept = await ground();
    await page.locator("#theme").click();
    const dark = await ground();
    await page.locator("#theme").click();
    return holds(auto === dark && light !== dark && kept === light, `${auto} ${light} ${kept} ${dark}`);
  });
  for (const scheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const view of [
      "now",
      "rules",
      `try?url=http://${NEWS}/calendar/1`,
      "hosts",
      `hosts?host=${NEWS}`,
      "policy",
      "crawlers",
      "shadow",
      "urls",
      "events",
      "configuration",
    ]) {
      await open(page, view);
      await pause(view === "now" ? 3000 : 1000);
      await shot(
        page,
        `${view.replace(/\?host.*/, "-one").replace(/\W.*/, (rest) => (rest === "-one" ? rest : ""))}-${scheme}`,
      );
      await check(`axe finds nothing serious in ${view.split("?url")[0]}, ${scheme}`, () => accessible(page));
    }
    await check(`axe finds nothing serious in all decisions with an open row, ${scheme}`, async () => {
      await open(page, "decisions");
      await page.locator(".row-button").first().click();
      await page.locator("tr.details").waitFor();
      return accessible(page);
    });
    await check(`axe finds nothing serious in a dialog, ${scheme}`, async () => {
      await page.keyboard.press("?");
      await page.locator("dialog").waitFor();
      const found = await accessible(page);
      await page.keyboard.press("Escape");
      return found;
    });
    await check(`axe finds nothing serious in the banner of a proxy that is gone, ${scheme}`, async () => {
      await page.route("**/api/v1/**", (route) => route.abort());
      await page.locator("#banner .bad").waitFor();
      const found = await accessible(page);
      await page.unroute("**/api/v1/**");
      await until(async () => equal(await page.locator("#banner .bad").count(), 0));
      return found;
    });
  }
  for (const width of [360, 420]) {
    await page.setViewportSize({ width, height: 740 });
    await check(
      `at ${width} px nothing is wider than the screen, and rows are cards that name their columns`,
      async () => {
        const wrong = [];
        for (const view of [...Object.keys(VIEWS), "decisions", `hosts?host=${NEWS}`]) {
          await open(page, view);
          await pause(800);
          const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (over > 0) wrong.push(`${view}: ${over} px`);
          wrong.push(...(await notCards(page)).map((words) => `${view}: ${words}`));
          if (width === 360) await shot(page, `${view.split("?")[0]}-narrow`);
        }
        return wrong;
      },
      Object.keys(VIEWS).length + 2,
    );
  }
  await check("cards are still a table for a screen reader", async () => {
    await open(page, "crawlers");
    await page.locator("[data-crawler]").first().waitFor();
    const found = [];
    for (const role of ["table", "row", "rowheader", "cell"]) found.push(await page.getByRole(role).count());
    const axe = await accessible(page);
    return [...axe, ...(found.every((number) => number > 0) ? [] : [found.join()])];
  });
  await page.setViewportSize({ width: 1400, height: 900 });
  await check("at 1,400 px nothing is wider than the screen", async () => {
    const wide = [];
    for (const view of Object.keys(VIEWS)) {
      await open(page, view);
      await pause(500);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) wide.push(`${view}: ${over} px`);
    }
    return wide;
  });
  await page.setViewportSize({ width: 1280, height: 800 });
  // By now there is something to see in the charts.
  await page.emulateMedia({ colorScheme: "dark" });
  await open(page, "now");
  await pause(1500);
  await shot(page, "now-dark");
}

/** Returns the tables whose rows are not cards, and the cells of cards that do not name their column. */
async function notCards(page) {
  return page.evaluate(() => {
    const wrong = [];
    for (const table of document.querySelectorAll("main table.cards")) {
      if (table.scrollWidth > table.parentElement.clientWidth + 1) wrong.push(`${table.caption.textContent} is too wide`);
      const cells = table.querySelectorAll("tbody tr:first-child td:not([colspan])");
      const names = [...cells].map((cell) => getComputedStyle(cell, "::before").content);
      // The last column may be that of the buttons, which have words of their own.
      if (names.slice(0, -1).some((name) => name === "none")) wrong.push(`${table.caption.textContent}: ${names}`);
    }
    return wrong;
  });
}

async function accessible(page) {
  // Through the debugger, to which the page's content policy does not apply.
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const bad = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  return bad.map((one) => `${one.id} (${one.nodes.length}): ${one.help}: ${one.nodes[0].html.slice(0, 120)}`);
}

async function hide(page) {
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
}

async function unhide(page) {
  await page.evaluate(() => {
    delete document.hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  });
}

/** A browser has six connections to a place for all its tabs: one that nobody sees must hold none. */
export async function hidden(page) {
  section("Page: hidden");
  const streams = new Set();
  const isStream = (request) => new URL(request.url()).pathname === "/api/v1/decisions";
  const begun = (request) => isStream(request) && streams.add(request);
  const over = (request) => streams.delete(request);
  page.on("request", begun);
  page.on("requestfinished", over);
  page.on("requestfailed", over);
  const states = {
    "as it is": async () => {},
    paused: () => page.keyboard.press("p"),
    "with an open row": () => page.locator(".row-button").first().click(),
  };
  for (const [words, act] of Object.entries(states))
    await check(`a hidden page holds no stream and asks for nothing: ${words}`, async () => {
      await open(page, "rules");
      await open(page, "decisions?crawler=anonymous");
      const found = await until(async () => equal(`${streams.size} ${(await rowsOf(page)).length > 0}`, "1 true"));
      if (found !== true) return found;
      await act();
      const state = await page.locator(".decisions [role=status]").first().textContent();
      const rows = (await rowsOf(page)).length;
      await hide(page);
      const ended = await until(async () => equal(streams.size, 0));
      // What was asked before it was hidden may go on a little.
      await pause(300);
      const asked = [];
      const note = (request) => asked.push(request.url());
      page.on("request", note);
      await pause(4000);
      page.off("request", note);
      await unhide(page);
      const again = await until(async () => equal(streams.size, 1));
      const after = await page.locator(".decisions [role=status]").first().textContent();
      const kept = state === "paused" ? equal((await rowsOf(page)).length, rows) : true;
      const still = state === "paused" ? equal(after, "paused") : true;
      return [ended, again, kept, still, ...asked].filter((one) => one !== true);
    });
  await check("what came while it was hidden is shown afterwards, and nothing twice", async () => {
    const mark = `/while-hidden-${Date.now()}`;
    await open(page, `decisions?url=${mark}`);
    await crawl(NEWS, `${mark}-before`);
    const before = await until(async () => equal((await rowsOf(page)).length, 1));
    await hide(page);
    for (let at = 0; at < 3; at += 1) await crawl(NEWS, `${mark}-${at}`);
    await unhide(page);
    const found = await until(async () => equal((await rowsOf(page)).length, 4));
    await pause(1000);
    return [before, found, equal((await rowsOf(page)).length, 4)].filter((one) => one !== true);
  });
  await check("a view that is opened while it is hidden opens no stream", async () => {
    await open(page, "rules");
    await until(async () => equal(streams.size, 0));
    await hide(page);
    await open(page, "decisions");
    await pause(1500);
    const opened = streams.size;
    await unhide(page);
    return [equal(opened, 0), await until(async () => equal(streams.size, 1))].filter((one) => one !== true);
  });
  page.off("request", begun);
  page.off("requestfinished", over);
  page.off("requestfailed", over);
}

export async function token(page) {
  section("Page: another token");
  let asked = 0;
  await check("after an answer of 401 nothing is asked until the user says so", async () => {
    await open(page, "decisions");
    await page.route("**/api/v1/**", (route) => {
      asked += 1;
      return route.fulfill({ status: 401, json: { title: "Unauthorized", detail: "the token is another" } });
    });
    const found = await until(async () =>
      holds((await page.locator("#banner").textContent()).includes("the token is another"), "nothing said"),
    );
    await open(page, "hosts");
    await open(page, "now");
    const before = asked;
    await pause(6000);
    return [found, equal(asked, before), holds(asked < 4, `${asked} were sent`)].filter((one) => one !== true);
  });
  await check("Log in tries again", async () => {
    await page.unroute("**/api/v1/**");
    await collect(page);
    await page.locator("#log-in").click();
    return until(async () => equal(await page.locator("#connection").textContent(), "connected"));
  });
  await check("a proxy that has another token since its restart is not asked again and again", async () => {
    const found = await restart("another-0123456789abcdef");
    await page.locator("#log-in").waitFor();
    const sent = [];
    const note = (request) => sent.push(request.url());
    page.on("request", note);
    await pause(4000);
    page.off("request", note);
    return [found, ...sent].filter((one) => one !== true);
  });
  await check("with the new one it goes on", async () => {
    await page.context().setHTTPCredentials({ username: "anyone", password: given.token });
    await collect(page);
    await page.locator("#log-in").click();
    return until(async () => equal(await page.locator("#connection").textContent(), "connected"));
  });
}

export async function away(page) {
  section("Page: without its proxy");
  await check(
    "a restart of the proxy is seen: what was shown stays, the break is told, and decisions come again",
    async () => {
      await open(page, "rules");
      await open(page, "decisions");
      await until(async () => holds((await rowsOf(page)).length > 100, "few rows"));
      const old = (await rowsOf(page)).at(-1).join();
      const found = await restart(given.token);
      const again = await until(async () => {
        const rows = await rowsOf(page);
        const at = rows.findIndex((row) => row[0].startsWith("Disconnected for"));
        return holds(at > 5, `${rows.length} rows, the break is at ${at}: ${rows[0]}`);
      });
      const kept = (await rowsOf(page)).some((row) => row.join() === old);
      return [
        found,
        again,
        holds(kept, "older rows are gone"),
        await until(async () => equal(await page.locator("#connection").textContent(), "connected")),
      ].filter((one) => one !== true);
    },
  );
  await open(page, "now");
  await check("without an answer it says so, and what to look at", async () => {
    await page.route("**/api/v1/**", (route) => route.abort());
    const found = await until(async () =>
      holds((await page.locator("#banner").textContent()).includes("does not answer"), "nothing said"),
    );
    const state = await page.locator("#connection").textContent();
    await page.unroute("**/api/v1/**");
    return found === true ? equal(state, "no answer") : found;
  });
  await check("and goes on when there is one", () =>
    until(async () =>
      equal(
        `${await page.locator("#connection").textContent()}${await page.locator("#banner .bad").count()}`,
        "connected0",
      ),
    ),
  );
}
