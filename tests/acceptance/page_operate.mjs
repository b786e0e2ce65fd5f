// The parts of page.mjs about operating the proxy: its crawlers, its configuration, what it reports, and shadow policies.

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

import { NEWS, SHOP, api, check, crawl, equal, expected, given, holds, open, section, shot, until } from "./page_user.mjs";

const run = promisify(execFile);

const json = async (target, options) => (await api(target, options)).json();

/** Requests a page over HTTPS through a listener. curl rejects the certificate, unless it is told to take any. */
async function secure(port, ...more) {
  const proxy = `http://127.0.0.1:${port}`;
  await run("curl", ["--silent", "--max-time", "10", "--proxy", proxy, ...more, `https://${NEWS}/`]).catch(() => {});
}

export async function crawlersView(page) {
  section("Page: crawlers");
  const row = (name) => page.locator(`[data-crawler="${name}"]`);
  const { listeners } = await json("/api/v1/status");
  const port = Number(listeners.find((one) => one.crawler === given.crawler).address.split(":").at(-1));
  await crawl(SHOP, "/2026/by-the-crawler.html", port);
  await crawl(SHOP, "/calendar/by-the-crawler", port);
  await secure(port);
  await secure(given.proxyPort, "--insecure");
  await check("each crawler has a row: its profile, its requests, its refusals and their reasons", async () => {
    await open(page, "crawlers");
    return until(async () => {
      const said = await row(given.crawler).innerText();
      const other = await row("anonymous").innerText();
      return holds(
        said.includes("profile scrapy") && /rule\s+1/.test(said) && other.includes("robots_txt"),
        `${said}; ${other}`,
      );
    });
  });
  await check("a crawler that rejects the proxy's certificates is named, with what to do", () =>
    until(async () => {
      const said = await row(given.crawler).innerText();
      const notice = await page.locator("main .notice.warn").innerText();
      return holds(
        said.includes("rejected") && notice.includes(given.crawler) && notice.includes("crawlgate env"),
        `${said}; ${notice}`,
      );
    }),
  );
  await check("one that accepts them is trusted", () =>
    until(async () => {
      const said = await row("anonymous").innerText();
      return holds(said.includes("trusted") && said.includes("1 handshake"), said);
    }),
  );
  await check("rates are those of the last minute", () =>
    until(async () => {
      const said = await row("anonymous").locator("td").nth(1).textContent();
      return holds(parseFloat(said) > 1, said);
    }),
  );
  await check("they are sorted by a column, and the other way around", async () => {
    const names = () => page.locator("[data-crawler]").evaluateAll((rows) => rows.map((one) => one.dataset.crawler).join());
    const head = page.locator("thead").getByRole("button", { name: /^Crawler/ });
    await head.click();
    const up = await until(async () => equal(await names(), `anonymous,${given.crawler}`));
    await head.click();
    const down = await until(async () => equal(await names(), `${given.crawler},anonymous`));
    const marked = await page.locator("th[aria-sort]").getAttribute("aria-sort");
    return [up, down, equal(marked, "descending")].filter((one) => one !== true);
  });
  await check("a part of a profile finds one", async () => {
    await page.locator("main input[type=search]").fill("scrapy");
    return until(async () => equal(await page.locator("[data-crawler]").count(), 1));
  });
  await shot(page, "crawlers-dark");
  await check("its reason leads to its decisions", async () => {
    await row(given.crawler).getByRole("link", { name: "rule", exact: true }).click();
    return until(async () => equal(new URL(page.url()).hash, `#/decisions?crawler=${given.crawler}&reason=rule`));
  });
}

export async function configurationView(page) {
  section("Page: configuration");
  const row = (key) => page.locator(`[data-setting="${key}"]`);
  const { version } = await json("/api/v1/status");
  await check("the settings in force, each with its default and its place", async () => {
    await open(page, "configuration");
    await row("ledger.keep").waitFor();
    const [kept, limit] = [await row("ledger.keep").innerText(), await row("limits.queue").innerText()];
    return [
      /always\s+auto\s+crawlgate\.yaml:\d+/.test(kept) || kept,
      /10000\s+10000\s+default/.test(limit) || limit,
    ].filter((one) => one !== true);
  });
  await check("what matters most stands above: version, file, policy, listeners, HTTPS", async () => {
    const said = await page.locator("main .facts").innerText();
    return [version, "crawlgate.yaml", "policy.yaml", `(${given.crawler})`, "evaluated by URL"].filter(
      (words) => !said.includes(words),
    );
  });
  await check("a secret is masked, a hostile text is text", async () => {
    const said = await row("telemetry.otlp").innerText();
    const all = await page.locator("main").innerText();
    return holds(said.includes("***") && said.includes(given.hostile) && !all.includes(given.secret), said);
  });
  await check("those that differ from the default are few, and the choice stands in the address", async () => {
    await page.locator("input[name=changed]").check();
    return until(async () => {
      const keys = await page.locator("[data-setting]").evaluateAll((rows) => rows.map((one) => one.dataset.setting));
      const stands = new URL(page.url()).hash === "#/configuration?changed=true";
      return holds(stands && keys.includes("ledger.keep") && !keys.includes("limits.queue"), keys.join());
    });
  });
  await shot(page, "configuration-dark");
  await check("a word of a description finds a setting", async () => {
    await page.locator("input[name=changed]").uncheck();
    await page.locator("main input[type=search]").fill("request line");
    return until(async () => holds((await row("limits.target").count()) === 1, "not found"));
  });
  await check("the footer names the version and links to the documentation and the API", async () => {
    const foot = page.locator("footer");
    const links = await foot.getByRole("link").evaluateAll((all) => all.map((link) => link.getAttribute("href")));
    return [
      (await foot.innerText()).includes(version) || "no version",
      links.some((link) => link.startsWith("https://")) || links.join(),
      links.includes("/api/v1/openapi.json") || links.join(),
    ].filter((one) => one !== true);
  });
}

export async function eventsView(page) {
  section("Page: events, and the sweep of the ledger");
  const rows = page.locator(".messages tbody tr");
  const stop = { what: "nowhere.page.test", reason: given.hostile, for: "1h" };
  const { id } = await json("/api/v1/stops", { method: "POST", body: JSON.stringify(stop) });
  await check("a stop is reported, its hostile reason as text", async () => {
    await open(page, "events");
    return until(async () => {
      const first = await rows.first().innerText();
      return holds(first.includes("nowhere.page.test is stopped") && first.includes(given.hostile), first);
    });
  });
  await check("what follows comes without a click", async () => {
    await api(`/api/v1/stops/${id}`, { method: "DELETE" });
    return until(async () => {
      const first = await rows.first().innerText();
      return holds(first.includes("was lifted") && first.includes("warning"), first);
    });
  });
  await check("messages are filtered by what they are about", async () => {
    await page.locator("select[name=area]").selectOption("ledger");
    return until(async () => {
      const all = await rows.allTextContents();
      return holds(all.length > 0 && all.every((text) => text.includes("ledger")), all.join("; "));
    });
  });
  await check("a dry run counts what a sweep would change", async () => {
    await page.locator("#sweep-dry").click();
    return until(async () => {
      const said = await page.locator("section[aria-labelledby=sweep-title]").innerText();
      return holds(said.includes("Dry run finished") && said.includes("Would leave the index"), said);
    });
  });
  await check("a sweep asks first, with the numbers of the dry run", async () => {
    await page.locator("#sweep").click();
    const said = await page.locator("dialog").innerText();
    await page.locator("dialog").getByRole("button", { name: "Cancel" }).click();
    const kept = (await json("/api/v1/ledger")).sweep.dry_run;
    return [holds(said.includes("would leave the index (760)"), said), equal(kept, true)].filter((one) => one !== true);
  });
  await shot(page, "events-dark");
  await check("confirmed, it runs", async () => {
    await page.locator("#sweep").click();
    await page.locator("dialog").getByRole("button", { name: "Sweep", exact: true }).click();
    return until(async () => {
      const { sweep } = await json("/api/v1/ledger");
      const said = await page.locator("section[aria-labelledby=sweep-title]").innerText();
      return holds(!sweep.dry_run && sweep.state === "done" && said.includes("Sweep finished"), said);
    });
  });
  await check("removals that are held are shown, and are confirmed by name only", async () => {
    const held = { account: "policy", cause: given.hostile, held: 7, since: "2026-01-01T00:00:00.000Z", ordered: 5, limit: 5 };
    const sent = [];
    await page.route("**/api/v1/ledger", async (route) => {
      const answer = await json("/api/v1/ledger");
      // The route may have been removed meanwhile.
      return route.fulfill({ json: { ...answer, held_removals: [held] } }).catch(() => {});
    });
    await page.route("**/api/v1/ledger/removals", (route) => {
      sent.push(route.request().postData());
      return route.fulfill({ json: { confirmed: ["policy"] } });
    });
    await page.getByRole("button", { name: /^Confirm the removals/ }).click();
    const said = await page.locator("dialog").innerText();
    await page.locator("dialog").getByRole("button", { name: "Remove them" }).click();
    const found = await until(async () => equal(sent.join(), '{"confirm":"policy"}'));
    await page.unroute("**/api/v1/ledger");
    await page.unroute("**/api/v1/ledger/removals");
    return [found, holds(said.includes("7 URLs") && said.includes(given.hostile), said)].filter((one) => one !== true);
  });
  await check("the events of the ledger are there", async () =>
    holds((await page.locator("section[aria-labelledby=events-title]").innerText()).includes("Events of the ledger"), "no feed"),
  );
}

export async function shadowView(page) {
  section("Page: shadow, promote and roll back");
  const main = page.locator("main");
  const dialog = page.locator("dialog");
  const before = await readFile(given.policy, "utf8");
  const { policy: active } = await json("/api/v1/status");
  await check("what a rule in shadow would refuse, with examples", async () => {
    await crawl(NEWS, `/photos/${given.hostile.replaceAll(" ", "/")}.png`);
    await crawl(NEWS, "/photos/of-a-shadow.png");
    await open(page, "shadow");
    return until(async () => {
      const said = await main.innerText();
      return holds(
        said.includes("There is no shadow policy") && said.includes("would this hurt") && said.includes("/photos/of-a-shadow.png"),
        said.slice(0, 600),
      );
    });
  });
  const files = { "policy.yaml": given.nextPolicy };
  const set = { policy: "policy.yaml", files, reason: "the page's test" };
  const { revision } = await json("/api/v1/shadow/policy", { method: "PUT", body: JSON.stringify(set) });
  await crawl(NEWS, "/photos/of-the-next.png");
  await check("a shadow policy that is set appears, with what it would change", () =>
    until(async () => {
      const said = await page.locator("#shadow-policy").innerText();
      return holds(
        said.includes(revision) && said.includes("the page's test") && said.includes("/photos/of-the-next.png"),
        said.slice(0, 600),
      );
    }),
  );
  await shot(page, "shadow-dark");
  await check("Promote says what will change, and asks for a reason", async () => {
    await page.locator("#promote").click();
    const said = await dialog.innerText();
    await dialog.getByRole("button", { name: "Promote" }).click();
    const open = await dialog.evaluate((one) => one.open);
    return [
      holds(said.includes(active.revision) && said.includes(revision) && said.includes("would have been refused"), said),
      equal(open, true),
      equal((await json("/api/v1/status")).policy.revision, active.revision),
    ].filter((one) => one !== true);
  });
  await check("promoted, it is active, and its file is written", async () => {
    await dialog.locator("input[name=reason]").fill("it does not hurt");
    await page.keyboard.press("Enter");
    const found = await until(async () => equal((await json("/api/v1/status")).policy.revision, revision));
    const said = await until(async () => holds((await main.innerText()).includes("Promoted"), await main.innerText()));
    return [found, said, holds((await readFile(given.policy, "utf8")) !== before, "not written")].filter((one) => one !== true);
  });
  await check("the history names it, with who and why", async () => {
    await open(page, "policy");
    return until(async () => {
      const said = await page.locator("section[aria-labelledby=history-title] tbody tr").first().innerText();
      return holds(["promoted", "anyone", "it does not hurt", "active"].every((words) => said.includes(words)), said);
    });
  });
  await shot(page, "history-dark");
  await check("Roll back brings the earlier one back", async () => {
    await page.getByRole("button", { name: `Roll back to ${active.revision}` }).first().click();
    await dialog.locator("input[name=reason]").fill("it did hurt");
    await page.keyboard.press("Enter");
    const found = await until(async () => equal((await json("/api/v1/status")).policy.revision, active.revision));
    return [found, equal(await readFile(given.policy, "utf8"), before)].filter((one) => one !== true);
  });
  await check("Clear asks, and ends the shadow policy", async () => {
    await api("/api/v1/shadow/policy", { method: "PUT", body: JSON.stringify(set) });
    await open(page, "shadow");
    await page.locator("#clear-shadow").click();
    await dialog.getByRole("button", { name: "Clear" }).click();
    return until(async () => equal((await json("/api/v1/shadow")).shadow_policy, null));
  });
  await check("a change that takes long goes on, and the page says so", async () => {
    await api("/api/v1/shadow/policy", { method: "PUT", body: JSON.stringify(set) });
    await page.locator("#promote").waitFor();
    await page.route("**/api/v1/shadow/promote", (route) =>
      route.fulfill({ status: 202, json: { result: "pending", detail: "the change goes on" } }),
    );
    await page.locator("#promote").click();
    await dialog.locator("input[name=reason]").fill("a slow disk");
    await page.keyboard.press("Enter");
    const found = await until(async () => holds((await main.innerText()).includes("goes on"), await main.innerText()));
    await page.unroute("**/api/v1/shadow/promote");
    return found;
  });
  await check("without a token the proxy refuses it, and the page says why", async () => {
    await api("/api/v1/shadow/policy", { method: "PUT", body: JSON.stringify(set) });
    await page.locator("#promote").waitFor();
    expected.add("/api/v1/shadow/promote");
    await page.route("**/api/v1/shadow/promote", (route) =>
      route.fulfill({ status: 403, json: { title: "Forbidden", detail: "this changes the policy, which needs the admin token" } }),
    );
    await page.locator("#promote").click();
    await dialog.locator("input[name=reason]").fill("no token");
    await page.keyboard.press("Enter");
    const found = await until(async () => holds((await dialog.innerText()).includes("needs the admin token"), await dialog.innerText()));
    await page.keyboard.press("Escape");
    await page.unroute("**/api/v1/shadow/promote");
    expected.delete("/api/v1/shadow/promote");
    await api("/api/v1/shadow/policy", { method: "DELETE" });
    return found;
  });
}
