// The parts of page.mjs about single views: trying a URL, the rules, hosts with their stops, and the policy.

import { readFile, writeFile } from "node:fs/promises";

import {
  MANY,
  NEWS,
  SHOP,
  SLOW,
  VIEWS,
  api,
  check,
  crawl,
  equal,
  expected,
  given,
  holds,
  open,
  rowsOf,
  section,
  shot,
  until,
} from "./page_user.mjs";

export async function tries(page) {
  section("Page: try a URL");
  const said = page.locator(".outcome .said");
  const ask = async (url) => {
    await page.locator("textarea[name=url]").fill(url);
    await page.keyboard.press("Enter");
  };
  await check("a refused URL: the verdict in words, and the rule", async () => {
    await open(page, "try");
    await ask(`http://${NEWS}/calendar/2026`);
    return until(async () => equal(await said.textContent(), "Rejected by the rule calendars"));
  });
  await check("the rules stand in their order, with the grounds of the one that decides", async () => {
    const line = page.locator(".tree li.decided");
    const words = await line.textContent();
    const all = await page.locator(".tree > li").count();
    return [
      all === 9 || `${all} rules`,
      words.includes("matched") || words,
      (await line.locator(".because").textContent()).includes("/calendar") || words,
    ].filter((one) => one !== true);
  });
  await check("an allowed URL", async () => {
    await ask(`http://${NEWS}/2026/a.html`);
    return until(async () => holds((await said.textContent()).startsWith("Allowed"), "not allowed"));
  });
  await check("more facts reach later stages: a type that is refused", async () => {
    await page.locator("summary", { hasText: "More facts" }).click();
    await page.locator("input[name=content_type]").fill("application/zip");
    await ask(`http://${NEWS}/2026/a.html`);
    return until(async () => equal(await said.textContent(), "Rejected by the rule archives"));
  });
  for (const dest of await page
    .locator("select[name=dest] option")
    .evaluateAll((all) => all.map((one) => one.value)))
    await check(`how it was loaded can be "${dest}"`, async () => {
      await page.locator("select[name=dest]").selectOption(dest);
      const url = `http://${NEWS}/loaded-${dest || "unknown"}`;
      await page.locator("input[name=content_type]").fill("");
      await ask(url);
      return until(async () => equal(await page.locator(".outcome .url").textContent(), url));
    });
  await check("more filters, headers and uses are taken as they are written", async () => {
    await page.locator("select[name=dest]").selectOption("");
    await page.locator("textarea[name=headers]").fill("X-A: 1\nx-a: 2\n__proto__: 3");
    await page.locator("textarea[name=usage]").fill("train-ai: deny");
    const url = `http://${NEWS}/with-headers`;
    await ask(url);
    const found = await until(async () => equal(await page.locator(".outcome .url").textContent(), url));
    const yaml = found === true ? await page.getByLabel("Case", { exact: true }).inputValue() : "";
    await page.locator("textarea[name=headers]").fill("");
    await page.locator("textarea[name=usage]").fill("");
    return found === true ? holds(yaml.includes("train-ai") && yaml.includes("x-a"), yaml) : found;
  });
  await check("options are shown with who set them", async () => {
    await ask(`http://${SLOW}/2026/a.html`);
    return until(async () => {
      const rows = await page.locator("section[aria-labelledby=options-title] tr").allTextContents();
      return holds(
        rows.some((row) => row.includes("politeness.delay") && row.includes("2s") && row.includes("slow-site")),
        rows.slice(0, 5).join("; "),
      );
    });
  });
  await check("each profile's answer: 410 for nutch, 451 for generic", async () => {
    await page.locator("input[name=content_type]").fill("");
    await ask(`http://${NEWS}/calendar/2026`);
    const wire = page.locator(".wire");
    const choose = page.locator("select[name=answer-profile]");
    const found = await until(async () =>
      holds((await wire.textContent()).startsWith("HTTP/1.1 451"), await wire.textContent()),
    );
    await choose.selectOption("nutch");
    return found === true
      ? holds((await wire.textContent()).startsWith("HTTP/1.1 410"), await wire.textContent())
      : found;
  });
  await check("a case for the policy can be copied", async () => {
    const yaml = await page.getByLabel("Case", { exact: true }).inputValue();
    await page.locator("#copy-case").click();
    const status = page.locator("section[aria-labelledby=case-title] [role=status]");
    const found = await until(async () =>
      holds(/copied|selected/.test(await status.textContent()), "nothing said"),
    );
    return found === true ? holds(yaml.includes("/calendar/2026") && yaml.includes("expect"), yaml) : found;
  });
  await check("what is no URL is told, with what is wrong", async () => {
    expected.add("/api/v1/explain");
    await ask("no url at all");
    const found = await until(async () =>
      holds((await page.locator(".result [role=alert]").textContent()).length > 30, "nothing said"),
    );
    expected.delete("/api/v1/explain");
    return found;
  });
}

export async function ruleCounters(page) {
  section("Page: rules");
  const cell = (rule, name) =>
    page.locator(`[data-rule="${rule}"] td`).nth({ matched: 2, rejected: 3, last: 6, shadow: 7 }[name]);
  const number = async (rule, name) => Number((await cell(rule, name).textContent()).replaceAll(",", ""));
  await check("the tree is shown: depth, kind, condition, file and line", async () => {
    await open(page, "rules");
    await page.locator("[data-rule=slow-search]").waitFor();
    const child = await page.locator("[data-rule=slow-search] th").getAttribute("class");
    const place = await page.locator("[data-rule=calendars] .place").textContent();
    return [child.includes("depth-1") || child, /policy\.yaml:\d+$/.test(place) || place].filter(
      (one) => one !== true,
    );
  });
  await check("a rule's counter rises with the crawl, without a click", async () => {
    const before = await number("slow-search", "rejected");
    await Promise.all(Array.from({ length: 5 }, (_, at) => crawl(SLOW, `/search/${at}`)));
    return until(async () => equal(await number("slow-search", "rejected"), before + 5));
  });
  await check("a dead rule says so, and can be filtered", async () => {
    await page.getByRole("button", { name: "never matched" }).click();
    return until(async () => {
      const shown = await page.locator("[data-rule]").evaluateAll((rows) => rows.map((row) => row.dataset.rule));
      const said = await cell("never", "last").textContent();
      return holds(
        shown.includes("never") && !shown.includes("calendars") && said === "never",
        `${shown} ${said}`,
      );
    });
  });
  await check("what a rule in shadow would refuse stands beside it", async () => {
    await page.locator("[data-kept=shadow]").click();
    return until(async () =>
      holds(/would refuse [1-9]/.test(await cell("pictures", "shadow").textContent()), "nothing"),
    );
  });
  await check("rules are sorted by rejections", async () => {
    await page.getByRole("button", { name: "all rules" }).click();
    await page.locator("thead").getByRole("button", { name: "Rejected" }).click();
    return until(async () => {
      const found = await page
        .locator("[data-rule]")
        .evaluateAll((rows) => rows.map((row) => Number(row.cells[4].textContent.replaceAll(",", "")) || 0));
      const sorted = found.every((value, at) => at === 0 || found[at - 1] >= value);
      const marked = await page.locator("th[aria-sort]").getAttribute("aria-sort");
      return holds(sorted && marked === "descending" && found[0] > 0, `${found} ${marked}`);
    });
  });
  await check("the sort stands in the address", async () =>
    equal(new URL(page.url()).hash, "#/rules?sort=rejected"),
  );
  await check("a second click turns the order around, and every column has one", async () => {
    await page.locator("thead").getByRole("button", { name: "Rejected" }).click();
    const turned = await until(async () => {
      const marked = await page.locator("th[aria-sort]").getAttribute("aria-sort");
      const first = await page.locator("[data-rule]").first().locator("td").nth(3).textContent();
      return equal(`${marked} ${first}`, "ascending 0");
    });
    const heads = await page.locator("thead th").count();
    return [
      turned,
      equal(new URL(page.url()).hash, "#/rules?sort=rejected&order=ascending"),
      equal(await page.locator("thead th button").count(), heads),
    ].filter((one) => one !== true);
  });
  await check("rules are sorted by their conditions, as texts", async () => {
    await page.locator("thead").getByRole("button", { name: "Condition" }).click();
    return until(async () => {
      const found = await page.locator("[data-rule] .condition").allTextContents();
      const sorted = found.every((text, at) => at === 0 || found[at - 1] <= text);
      return holds(sorted && found.length > 3, found.join("; "));
    });
  });
  await check("the last hour of a rule is a number with bars", async () => {
    const row = page.locator("[data-rule=calendars]");
    const hour = Number((await row.locator(".trend").textContent()).replaceAll(",", ""));
    return holds(hour > 0 && (await row.locator(".spark path").getAttribute("d")).match(/M/g)?.length === 12, String(hour));
  });
  await check("a group leads to the decisions of the rules in it", async () => {
    const to = await page.locator("[data-rule=slow-site] th a").getAttribute("href");
    return equal(to, "#/decisions?rule=slow-search");
  });
  await page.locator("thead").getByRole("button", { name: "Rejected" }).click();
  await shot(page, "rules-dark");
  await uncounted(page);
}

/** What is not counted is no zero: neither dead nor quiet. */
async function uncounted(page) {
  const blank = (rule) => ({
    ...rule,
    matched: null,
    allowed: null,
    rejected: null,
    decided: null,
    last_match: null,
  });
  await page.route("**/api/v1/policy/rules?*", async (route) => {
    const answer = await (await api("/api/v1/policy/rules")).json();
    const groups = { ...answer.groups, never_matched: 0, rejecting: 0, not_counted: answer.groups.all };
    return route.fulfill({ json: { ...answer, groups, rules: answer.rules.map(blank) } });
  });
  const nothing = Object.fromEntries(
    ["connections", "tunnels", "inflight", "held", "hosts", "requests", "decisions", "bytes", "latency", "timings"].map(
      (key) => [key, null],
    ),
  );
  await page.route("**/api/v1/status", async (route) => {
    const answer = await (await api("/api/v1/status")).json();
    return route.fulfill({ json: { ...answer, ...nothing, metrics: "none" } });
  });
  await check("rules that are not counted are not called dead", async () => {
    await open(page, "now");
    await open(page, "rules");
    return until(async () => {
      const said = await page.locator("[data-rule=never]").innerText();
      const dead = await page.locator("tr.dead").count();
      return holds(said.includes("not counted") && dead === 0, `${dead} dead; ${said}`);
    });
  });
  await check("where nothing is counted, Now says so", async () => {
    await open(page, "now");
    return until(async () => {
      const said = await page.locator("main").innerText();
      return holds(said.includes("telemetry.metrics: none") && !said.includes("NaN"), said.slice(0, 300));
    });
  });
  await page.unroute("**/api/v1/policy/rules?*");
  await page.unroute("**/api/v1/status");
}

export async function hostsView(page) {
  section("Page: hosts");
  await check("hosts of the crawl are listed with their pace", async () => {
    await open(page, "hosts");
    return until(async () => {
      const rows = await page.locator("section[aria-labelledby=hosts-title] tbody tr").allTextContents();
      const slow = rows.find((row) => row.includes(SLOW));
      return holds(rows.length >= 3 && slow?.includes("2 s"), `${rows.length} rows: ${slow}`);
    });
  });
  await check("a part of a name finds a host", async () => {
    await page.locator("main input[type=search]").fill("shop");
    return until(async () =>
      equal(await page.locator("section[aria-labelledby=hosts-title] tbody tr").count(), 1),
    );
  });
  await check("one host: robots.txt, and the line that decides a URL", async () => {
    const link = page.locator("section[aria-labelledby=hosts-title] tbody a").first();
    await link.click();
    await page.locator("input[name=url]").fill(`http://${SHOP}:${given.sitePort}/private/x`);
    await page.locator("input[name=agent]").fill("anybot");
    await page.keyboard.press("Enter");
    return until(async () => {
      const line = await page.locator(".robots [data-decides]").textContent();
      const ruling = await page.locator("[data-ruling]").textContent();
      return holds(line === "3Disallow: /private" && ruling.includes("disallowed"), `${line}; ${ruling}`);
    });
  });
  await check("a hostile line of robots.txt is text", async () =>
    equal(await page.locator(".robots li").first().textContent(), `1# ${given.hostile}`),
  );
  await shot(page, "host-dark");
  await check("the title is the host's", async () => equal(await page.title(), `${SHOP} · crawlgate`));
  await check("what cannot be judged is told at the field, and the rest stays", async () => {
    expected.add(`/api/v1/hosts/${SHOP}`);
    await page.locator("input[name=url]").fill("no url at all");
    await page.keyboard.press("Enter");
    return until(async () => {
      const said = await page.locator("section[aria-labelledby=robots-title]").innerText();
      const facts = await page.locator("section[aria-labelledby=host-title] .facts").count();
      return holds(said.includes("cannot be checked") && said.includes("Disallow: /private") && facts > 0, said);
    });
  });
  await check("a URL of a port whose robots.txt is not known says so", async () => {
    await page.locator("input[name=url]").fill(`http://${SHOP}:1/x`);
    await page.keyboard.press("Enter");
    return until(async () => {
      const said = await page.locator("section[aria-labelledby=robots-title]").innerText();
      return holds(said.includes(`No robots.txt of http://${SHOP}:1 is cached`), said.slice(0, 300));
    });
  });
  await check("of a robots.txt of very many lines those around the one that decides are shown", async () => {
    await crawl(MANY, "/a");
    const url = `http://${MANY}:${given.sitePort}/private/x`;
    await open(page, `hosts?${new URLSearchParams({ host: MANY, url })}`);
    return until(async () => {
      const line = await page.locator(".robots [data-decides]").textContent();
      const rows = await page.locator(".robots li").count();
      return holds(/^3000\dDisallow: \/private$/.test(line) && rows === 2000, `${rows} rows; ${line}`);
    });
  });
  await check("back to the list, the focus is at its beginning and the title is its own", async () => {
    await page.getByRole("link", { name: "All hosts" }).click();
    await page.locator("#hosts-title").waitFor();
    return [
      equal(await page.evaluate(() => document.activeElement.id), "main"),
      equal(await page.title(), "Hosts · crawlgate"),
    ].filter((one) => one !== true);
  });
  await open(page, `hosts?host=${SHOP}`);
  await stops(page);
}

async function stops(page) {
  await check("a stop asks for a reason, then holds the host", async () => {
    await page.getByRole("button", { name: "Stop …" }).click();
    await page.locator("dialog").getByRole("button", { name: "Stop it" }).click();
    const open = await page.locator("dialog").evaluate((dialog) => dialog.open);
    if (!open) return "it was stopped without a reason";
    await page.locator("dialog input[name=reason]").fill("the page's test");
    await page.keyboard.press("Enter");
    const found = await until(async () =>
      holds(
        (await page.locator("section[aria-labelledby=stops-title] tbody").textContent()).includes(
          "the page's test",
        ),
        "not listed",
      ),
    );
    const { stops: inForce } = await (await api("/api/v1/stops")).json();
    return found === true ? equal(inForce.length, 1) : found;
  });
  await check("lifting it asks first", async () => {
    await page.getByRole("button", { name: /^Lift/ }).click();
    await page.locator("dialog").getByRole("button", { name: "Cancel" }).click();
    const kept = (await (await api("/api/v1/stops")).json()).stops.length;
    await page.getByRole("button", { name: /^Lift/ }).click();
    await page.locator("dialog").getByRole("button", { name: "Lift" }).click();
    return [
      equal(kept, 1),
      await until(async () => equal((await (await api("/api/v1/stops")).json()).stops.length, 0)),
    ].filter((one) => one !== true);
  });
}

export async function policyView(page) {
  section("Page: a reload that fails, and one that does not");
  const whole = await readFile(given.policy, "utf8");
  const button = page.locator("#reload");
  await check("policy: name, revision, files", async () => {
    await open(page, "policy");
    return until(async () => {
      const said = await page.locator("section[aria-labelledby=policy-title]").textContent();
      return holds(/newsroom@[0-9a-f]{8}/.test(said) && said.includes("policy.yaml"), said);
    });
  });
  expected.add("/api/v1/reload");
  await writeFile(given.policy, whole.replace("forbid: { under: /calendar }", "forbid: { undr: /calendar }"));
  await check("a broken policy is not loaded: file, line, and what is wrong", async () => {
    await button.click();
    await page.locator("section[aria-labelledby=policy-title] .notice.bad").waitFor();
    return until(async () => {
      const said = await page.locator("[data-notice=reload]").textContent();
      return holds(/policy\.yaml:\d+:\d+/.test(said) && said.includes("undr"), said);
    });
  });
  await check(
    "every view says so",
    async () => {
      const missing = [];
      for (const view of Object.keys(VIEWS)) {
        await open(page, view);
        const found = await until(
          async () => holds(await page.locator("[data-notice=reload]").isVisible(), `${view}: no word of it`),
          4000,
        );
        if (found !== true) missing.push(found);
      }
      return missing;
    },
    5,
  );
  await shot(page, "reload-failed-dark");
  await check("the proxy goes on by the policy before, and so does the page", async () => {
    const status = await crawl(NEWS, "/calendar/after-the-failure");
    await open(page, "decisions?url=after-the-failure");
    const found = await until(async () => equal((await rowsOf(page)).length, 1));
    return found === true ? equal(status, 451) : found;
  });
  await writeFile(
    given.policy,
    whole.replace(
      "  - id: sessions",
      "  - { id: mended, about: the file was mended, forbid: { under: /mended } }\n  - id: sessions",
    ),
  );
  await check("mended, it is loaded", async () => {
    await open(page, "policy");
    await button.click();
    return until(async () =>
      holds(
        (await page.locator("section[aria-labelledby=policy-title] .notice.good").textContent()).startsWith(
          "Loaded: newsroom@",
        ),
        "not loaded",
      ),
    );
  });
  await check("the word of it is gone", () =>
    until(async () => equal(await page.locator("[data-notice=reload]").count(), 0)),
  );
  await check("the difference to the policy before is shown: rule and lines", () =>
    until(async () => {
      const rules = await page.locator("section[aria-labelledby=diff-title] tbody").first().textContent();
      const lines = await page.locator(".lines tr.added").allTextContents();
      return holds(
        rules.includes("mended") && rules.includes("added") && lines.some((line) => line.includes("id: mended")),
        `${rules} ${lines}`,
      );
    }),
  );
  await shot(page, "policy-dark");
  expected.delete("/api/v1/reload");
}
