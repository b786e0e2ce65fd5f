// The user of the admin page of a node, for fleet_watched.py: the view Fleet while all is well, and after a node was killed.

import { AXE, browser, check, collect, equal, expected, given, holds, open, section, shot, until, wrong } from "./page_user.mjs";

const { context, page } = await browser();
const rows = () => page.locator("section[aria-labelledby=fleet-title] tbody tr");
const cell = (node, column) => page.locator(`tr[data-node="${node}"] [data-label="${column}"]`);
const notices = () => page.locator("section[aria-labelledby=fleet-title] .notice").allTextContents();

/** The accessibility of the view, by axe. */
async function accessible() {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  return violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target).join(", ")}`);
}

async function well() {
  section("Page: the fleet");
  await check("a node of a fleet has the view Fleet, with a key of its own", async () => {
    await page.goto(`${given.admin}/ui`);
    const link = page.locator("#views a[data-name=fleet]");
    await link.waitFor();
    await page.keyboard.press("f");
    return [
      await until(async () => equal(await page.title(), "Fleet · crawlgate")),
      equal(await link.getAttribute("aria-current"), "page"),
      equal(await link.getAttribute("aria-keyshortcuts"), "f"),
    ].filter((one) => one !== true);
  });
  await check("and says which node it is", () =>
    until(async () => holds((await page.locator("#version").textContent()).endsWith(`node ${given.nodes[0]}`), "no name")),
  );
  await check("each node has a row, and this one says so", () =>
    until(async () => {
      const names = await rows().evaluateAll((all) => all.map((row) => row.dataset.node));
      const own = await page.locator(`tr[data-node="${given.nodes[0]}"] .about`).textContent();
      return [equal(names.join(), given.nodes.join()), equal(own, "this node")].filter((one) => one !== true).length === 0 || `${names} ${own}`;
    }),
  );
  await check("all are active, with partitions that sum up to all", () =>
    until(async () => {
      const states = await Promise.all(given.nodes.map((node) => cell(node, "State").textContent()));
      const shares = await Promise.all(given.nodes.map(async (node) => Number(await cell(node, "Partitions").textContent())));
      const sum = shares.reduce((one, other) => one + other, 0);
      return (states.every((state) => state === "active") && sum === 1024) || `${states} ${shares}`;
    }),
  );
  await check("there is no problem to tell", async () => equal((await notices()).join("; "), ""));
  await check("the address of the view leads to it", async () => {
    await page.goto(`${given.admin}/ui#/fleet`);
    await page.reload();
    await page.locator("#fleet-title").waitFor();
    return until(async () =>
      equal(await page.locator("#views a[data-name=fleet]").getAttribute("aria-current"), "page"),
    );
  });
  await check("it is accessible", accessible);
  await shot(page, "fleet");
  await page.setViewportSize({ width: 400, height: 800 });
  await check("it fits into a narrow window", async () => {
    await open(page, "fleet");
    const [whole, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    return whole <= seen || `${whole} px wide`;
  });
  await shot(page, "fleet-narrow");
  await page.setViewportSize({ width: 1280, height: 800 });
}

/** A host of another node, which nobody has asked for. */
async function hostElsewhere() {
  for (let number = 0; number < 100; number += 1) {
    const host = `unknown-${number}.test`;
    const answer = await context.request.get(`${given.admin}/api/v1/hosts/${host}`);
    if (answer.status() === 421) return { host, owner: (await answer.json()).owner };
  }
  throw new Error("this node owns all hosts");
}

async function hosts() {
  section("Page: the hosts of a fleet");
  await check("the list says whose hosts it has, and leads to the other nodes", async () => {
    await page.goto(`${given.admin}/ui#/hosts`);
    const scope = page.locator("section[aria-labelledby=hosts-title] p.quiet");
    await scope.waitFor();
    const links = await scope.locator("a").evaluateAll((all) => all.map((link) => `${link.textContent} ${link.href}`));
    return [
      holds((await scope.textContent()).startsWith(`The hosts of ${given.nodes[0]}, which owns `), await scope.textContent()),
      equal(links.map((link) => link.split(" ")[0]).join(), given.nodes.slice(1).join()),
      holds(links.every((link) => / http:\/\/127\.0\.0\.1:\d+\/ui#\/hosts$/.test(link)), links.join()),
    ].filter((one) => one !== true);
  });
  await check("it is accessible", accessible);
  await shot(page, "fleet-hosts");
  await check("a host of another node leads to its owner, whose page shows it", async () => {
    const { host, owner } = await hostElsewhere();
    expected.add(`/api/v1/hosts/${host}`);
    await page.goto(`${given.admin}/ui#/hosts?host=${host}`);
    const notice = page.locator("section[aria-labelledby=host-title] .notice");
    await notice.waitFor();
    const named = equal(await notice.locator("a").textContent(), owner.node);
    await shot(page, "fleet-host");
    const address = await notice.locator("a").getAttribute("href");
    // Another page, since this one may load nothing from other hosts.
    const other = await context.newPage();
    await other.goto(address);
    const shown = other.locator("section[aria-labelledby=host-title]");
    const problems = [
      named,
      equal(address, `${owner.admin}/ui#/hosts?host=${host}`),
      await until(async () => holds((await shown.textContent()).includes("This host is not tracked."), await shown.textContent())),
      equal(await shown.locator(".notice").count(), 0),
    ];
    await other.close();
    return problems.filter((one) => one !== true);
  });
}

async function ill() {
  const killed = given.nodes.at(-1);
  section("Page: the fleet without a node");
  await check("a silent node is marked", async () => {
    await page.goto(`${given.admin}/ui#/fleet`);
    await page.locator("#fleet-title").waitFor();
    return until(async () => equal(await cell(killed, "State").textContent(), "silent"));
  });
  await check("hosts get other owners", () =>
    until(async () => {
      const left = await cell(killed, "Partitions").textContent();
      return (left === "0" && (await notices()).length === 0) || `${left} partitions; ${await notices()}`;
    }),
  );
  await shot(page, "fleet-silent");
}

if (given.phase === "well") {
  await well();
  await hosts();
} else {
  await ill();
}
await check("nothing went wrong in the browser", async () => {
  await collect(page);
  return Object.entries(wrong).flatMap(([kind, all]) => all.map((one) => `${kind}: ${one}`));
});
await context.close();
