// The part of page.mjs about the URLs that are remembered.

import { NEWS, check, crawl, equal, holds, open, section, shot, until } from "./page_user.mjs";

export async function urlsView(page) {
  section("Page: URLs that are remembered");
  const rows = page.locator("section[aria-labelledby=urls-title] tbody tr");
  const dialog = page.locator("dialog");
  await crawl(NEWS, "/2026/remembered.html");
  await check("a URL that was answered is found by its host, with what became of it", async () => {
    await open(page, "urls");
    await page.locator("input[name=host]").fill(NEWS);
    await page.locator("select[name=status]").selectOption("ACCEPTED");
    return until(async () => {
      const all = await rows.allTextContents();
      return holds(all.some((row) => row.includes("ACCEPTED")), `${all.length} rows: ${all[0]}`);
    });
  });
  await check("the filters stand in the address", async () =>
    until(async () => holds(page.url().includes("host=") && page.url().includes("status=ACCEPTED"), page.url())),
  );
  await check("one in detail, by keyboard, with a link to try it as it is known", async () => {
    // The rows may still be replaced by those that the filters leave.
    const opened = await until(async () => {
      await rows.first().getByRole("button").focus();
      await page.keyboard.press("Enter");
      return holds(await dialog.evaluate((one) => one.open), "it does not open");
    });
    if (opened !== true) return opened;
    const words = await dialog.innerText();
    const link = await dialog.getByRole("link").getAttribute("href");
    await page.keyboard.press("Escape");
    return [
      holds(words.includes("last_fetched") && words.includes("anonymous"), words),
      holds(link.startsWith("#/try?url=") && link.includes("known=true"), link),
    ].filter((one) => one !== true);
  });
  await check("no URL fits what is nowhere", async () => {
    await page.locator("input[name=host]").fill("nowhere.test");
    return until(async () => equal(await rows.count(), 0));
  });
  await shot(page, "urls-light");
}
