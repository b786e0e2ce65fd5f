// Chromium, driven by playwright-core: opens the URLs of standard input and writes what it saw as JSON lines.
//
//     node http2_browser.mjs FOLDER_OF_NODE_MODULES PROXY HOME
//
// HOME has the certificate database that it trusts.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, server, home] = process.argv.slice(2);
const { chromium } = createRequire(`${folder}/`)("playwright-core");

const { username, password, host } = new URL(server);
const started = await chromium.launchPersistentContext(`${home}/profile`, {
  executablePath: "/usr/bin/chromium",
  proxy: { server: `http://${host}`, username, password },
  env: { HOME: home, PATH: process.env.PATH },
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
});
const page = await started.newPage();
const protocol = () => performance.getEntriesByType("navigation")[0].nextHopProtocol;
for await (const url of createInterface({ input: process.stdin })) {
  const seen = { url, status: 0, reason: "", rule: "", text: "", version: "", error: "" };
  try {
    const response = await page.goto(url, { waitUntil: "domcontentloaded", timeout: 20_000 });
    const headers = response.headers();
    Object.assign(seen, { status: response.status(), text: await page.content(), version: await page.evaluate(protocol) });
    Object.assign(seen, { reason: headers["crawl-reason"] ?? "", rule: headers["crawl-rule"] ?? "" });
  } catch (error) {
    seen.error = String(error).split("\n")[0];
  }
  console.log(JSON.stringify(seen));
}
await started.close();
