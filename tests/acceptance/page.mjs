// The user of the admin page, for page.py: does in Chromium what a user does, while a crawl goes on.

import {
  Crawl,
  NEWS,
  VIEWS,
  agent,
  api,
  browser,
  check,
  collect,
  crawl,
  equal,
  expected,
  given,
  holds,
  open,
  rowsOf,
  say,
  section,
  shot,
  until,
  wrong,
} from "./page_user.mjs";
import { configurationView, crawlersView, eventsView, shadowView } from "./page_operate.mjs";
import { urlsView } from "./page_urls.mjs";
import { hostsView, policyView, ruleCounters, tries } from "./page_views.mjs";
import { away, hidden, keyboard, looks, token } from "./page_senses.mjs";

async function first(page) {
  section("Page: the first look");
  await check("without the token there is no page", async () =>
    equal((await fetch(`${given.admin}/ui`)).status, 401),
  );
  await check("with it, the page shows that it is connected", async () => {
    await page.goto(`${given.admin}/ui`);
    return until(async () => equal(await page.locator("#connection").textContent(), "connected"));
  });
  if ((await page.locator("#views a").count()) === 0) return false;
  await check("it names the policy in force", () =>
    until(async () =>
      holds((await page.locator("#policy").textContent()).startsWith("newsroom@"), "no newsroom@"),
    ),
  );
  await check("nothing was crawled: empty states say what to do", async () => {
    const said = await page.locator("main").innerText();
    return ["Nothing has been rejected yet.", "No decisions yet."].filter((words) => !said.includes(words));
  });
  await check("its views are links, and the one that is shown is marked", async () => {
    const links = await page
      .locator("#views a")
      .evaluateAll((all) => all.map((link) => `${link.textContent}${link.ariaCurrent ? "*" : ""}`));
    return equal(links.join(" "), `${Object.values(VIEWS).join(" ")}`.replace("Now", "Now*"));
  });
  return true;
}

async function live(page) {
  section("Page: live decisions during a crawl");
  const list = page.locator(".decisions");
  await check("decisions appear while the crawl goes on", () =>
    until(async () => holds((await rowsOf(page)).length > 20, "few rows")),
  );
  await check("rates and rejections by reason are shown", () =>
    until(async () => {
      const [allowed, rejected] = await page.locator(".tile .value").allTextContents();
      const reasons = await page.locator(".reasons tbody th").allTextContents();
      const rising = [allowed, rejected].every((rate) => parseFloat(rate) > 0);
      return holds(
        rising && reasons.includes("rule") && reasons.includes("robots_txt"),
        `${allowed} ${rejected} ${reasons}`,
      );
    }),
  );
  await check("charts are drawn", async () => equal(await page.locator(".chart canvas").count(), 2));
  await check("the chart of requests names a line for each reason, whose strokes differ", () =>
    until(async () => {
      const keys = await page
        .locator(".keys .key")
        .evaluateAll((all) => all.map((one) => `${one.textContent} ${one.className.match(/solid|dashed|dotted/)}`));
      return holds(
        keys.some((one) => one.startsWith("rule ")) &&
          keys.some((one) => one.startsWith("robots_txt ")) &&
          new Set(keys.map((one) => one.split(" ")[1])).size === keys.length,
        keys.join(),
      );
    }),
  );
  await check("the verdict's filter leaves the rejected", async () => {
    await list.locator("select[name=verdict]").selectOption("reject");
    return until(async () => {
      const rows = await rowsOf(page);
      return holds(
        rows.length > 5 && rows.every((row) => row[1] === "rejected"),
        `${rows.length} rows, ${new Set(rows.map((row) => row[1]))}`,
      );
    });
  });
  await check("it stands in the address", async () => equal(new URL(page.url()).hash, "#/now?verdict=reject"));
  await check("a rule that is typed is a filter, and new decisions go on coming", async () => {
    await list.locator("input[name=rule]").fill("calendars");
    const found = await until(async () => {
      const rows = await rowsOf(page);
      return holds(
        rows.length > 2 && rows.every((row) => row[2] === "calendars" && row[6].includes("/calendar/")),
        `${rows.length} rows: ${rows[0]}`,
      );
    });
    if (found !== true) return found;
    const before = (await rowsOf(page)).length;
    return until(async () => holds((await rowsOf(page)).length > before, "no new row"));
  });
  await check("an address with filters opens the list with them", async () => {
    await collect(page);
    await page.goto(`${given.admin}/ui#/decisions?verdict=reject&reason=robots_txt&stage=robots`);
    await page.reload();
    const found = await until(async () => {
      const rows = await rowsOf(page);
      return holds(
        rows.length > 2 && rows.every((row) => row[2] === "robots_txt"),
        `${rows.length} rows: ${rows[0]}`,
      );
    });
    return found === true ? equal(await list.locator("input[name=stage]").inputValue(), "robots") : found;
  });
  await check("a key that comes twice is any of its values, and the second has a chip", async () => {
    await open(page, `decisions?rule=calendars&rule=sessions&status=451&status=410`);
    const found = await until(async () => {
      const rows = await rowsOf(page);
      const rules = new Set(rows.map((row) => row[2]));
      return holds(rules.size === 2 && rules.has("calendars") && rules.has("sessions"), [...rules].join());
    });
    return found === true
      ? equal((await page.locator(".chip").allTextContents()).join(), "rule: sessions ×,status: 410 ×")
      : found;
  });
  await check("Clear shows everything again", async () => {
    await list.getByRole("button", { name: "Clear" }).click();
    return until(async () =>
      holds(new Set((await rowsOf(page)).map((row) => row[1])).size > 1, "one kind of verdict only"),
    );
  });
  await paused(page, list);
  await check("a row opens to all fields of its line", async () => {
    await list.locator("select[name=verdict]").selectOption("reject");
    await list.locator("input[name=rule]").fill("sessions");
    await until(async () =>
      holds(
        (await rowsOf(page)).every((row) => row[2] === "sessions"),
        "not filtered",
      ),
    );
    await list.locator("tbody tr").first().click();
    const names = await list.locator("tr.details dt").allTextContents();
    return ["ts", "decision", "url", "rule", "policy", "revision", "sent_status"].filter(
      (name) => !names.includes(name),
    );
  });
  await check("the list stands still while one is open", async () =>
    holds((await list.locator("[role=status]").first().textContent()).startsWith("paused"), "not paused"),
  );
  await check("the request can be copied as a command of curl", async () => {
    await page.evaluate(() => {
      globalThis.copied = "";
      Object.defineProperty(navigator, "clipboard", {
        value: { writeText: async (text) => (globalThis.copied = text) },
        configurable: true,
      });
    });
    await list.locator("tr.details").getByRole("button", { name: "Copy as curl" }).click();
    const copied = await page.evaluate(() => globalThis.copied);
    return holds(
      copied.startsWith(`curl --include --proxy 'http://127.0.0.1:${given.proxyPort}'`) && copied.includes("sid="),
      copied,
    );
  });
  await shot(page, "decisions-dark");
  await refused(page, list);
  await check("from there the URL is explained", async () => {
    await list.locator("tr.details").getByRole("link", { name: "Explain this URL" }).click();
    return until(async () =>
      holds(
        (await page.locator(".outcome .said").textContent()).includes("Rejected by the rule sessions"),
        "no verdict",
      ),
    );
  });
}

async function refused(page, list) {
  const asked = "/api/v1/decisions?follow=false&recent=1&rule=sessions";
  const known = JSON.parse(await (await api(asked)).text());
  const why = list.locator(".why-refused");
  await check("why was this URL refused: its decision's id tells", async () => {
    await why.locator("summary").click();
    await why.locator("input[name=decision]").fill(`Crawl-Decision: ${known.decision}`);
    await page.keyboard.press("Enter");
    return until(async () => {
      const said = await why.innerText();
      const to = await why.getByRole("link", { name: "Explain this decision" }).getAttribute("href");
      return holds(
        said.includes(known.url) && said.includes("sessions") && to.includes(encodeURIComponent(known.url)),
        `${said} ${to}`,
      );
    });
  });
  await check("an id that is not known is told", async () => {
    expected.add("/api/v1/decisions/00000000-1");
    await why.locator("input[name=decision]").fill("00000000-1");
    await page.keyboard.press("Enter");
    return until(async () => holds((await why.innerText()).includes("reach back to"), await why.innerText()));
  });
}

async function paused(page, list) {
  const button = list.locator(".panel-head button");
  const state = list.locator("[role=status]").first();
  const counts = list.locator(".panel-head .quiet").first();
  await check("p pauses, and counts what comes meanwhile", async () => {
    await page.keyboard.press("p");
    const before = await rowsOf(page);
    const found = await until(async () =>
      holds(
        (await state.textContent()) === "paused" &&
          Number((await counts.textContent()).match(/([\d,]+) new since then/)?.[1]) > 3,
        await counts.textContent(),
      ),
    );
    return found === true ? equal((await rowsOf(page)).length, before.length) : found;
  });
  await check("Resume shows them", async () => {
    const newest = (await rowsOf(page))[0].join();
    await button.click();
    return until(async () =>
      holds((await rowsOf(page))[0].join() !== newest && (await state.textContent()) === "live", "nothing new"),
    );
  });
  await check("at most 500 rows stand on the page, however many come", async () => {
    for (let round = 0; round < 12; round += 1)
      await Promise.all(Array.from({ length: 60 }, (_, at) => crawl(NEWS, `/many/${round}-${at}`)));
    return until(async () => equal((await rowsOf(page)).length, 500));
  });
}

async function hostile(page) {
  section("Page: hostile texts are text");
  const target = `/${given.hostile.replaceAll(" ", "/")}?"><svg/onload=globalThis.hurt=1>`;
  await crawl(NEWS, target);
  await check("a hostile URL is shown as text", async () => {
    await open(page, "decisions?rule=hostile");
    return until(async () => {
      const rows = await rowsOf(page);
      return holds(rows.length > 0 && rows[0][6].includes("onerror"), `${rows.length} rows: ${rows[0]}`);
    });
  });
  await check("in a filter of the address, too", async () => {
    await open(page, `decisions?stage=${encodeURIComponent("robots")}&url=${encodeURIComponent(given.hostile)}`);
    return until(async () => equal(await page.locator("input[name=url]").inputValue(), given.hostile));
  });
  await check("hostile words of a rule are text", async () => {
    await open(page, "rules?text=hostile");
    return until(async () =>
      holds(
        (await page.locator("[data-rule=hostile] .about").textContent()).startsWith(given.hostile),
        "not there",
      ),
    );
  });
  await check("a hostile URL that is tried, with a hostile title, is text", async () => {
    const facts = {
      url: `http://${NEWS}/${given.hostile.replaceAll(" ", "/")}`,
      title: given.hostile,
      status: 200,
    };
    await open(page, `try?${new URLSearchParams(facts)}`);
    return until(async () =>
      holds((await page.locator(".outcome .said").textContent()).includes("hostile"), "no verdict"),
    );
  });
}

async function nothingWrong(page) {
  section("Page: what must not have happened");
  await collect(page);
  await check("no script of a hostile text ran", () => wrong.hurt);
  await check("the console is empty of errors and warnings", () => wrong.console);
  await check("no request went to another place", () => wrong.foreign);
  await check("the content policy was never touched", () => wrong.csp);
  await check("no request failed but those meant to", () => wrong.failed);
  await check("no cookie was set", async () => equal((await page.context().cookies()).length, 0));
}

async function main() {
  const { context, page } = await browser();
  try {
    if (!(await first(page))) return;
    const crawling = new Crawl();
    for (const part of [
      live,
      tries,
      ruleCounters,
      hostsView,
      urlsView,
      hostile,
      crawlersView,
      configurationView,
      eventsView,
      shadowView,
      policyView,
      keyboard,
      looks,
      hidden,
      away,
      token,
    ]) {
      await part(page).catch((error) =>
        say({ title: `${part.name} ran to its end`, problems: [error.message.split("\n")[0]], cases: 1 }),
      );
      await collect(page);
    }
    await nothingWrong(page);
    await crawling.end();
  } finally {
    await context.close();
    agent.destroy();
  }
}

await main();
