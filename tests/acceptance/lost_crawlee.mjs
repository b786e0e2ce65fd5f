// A Crawlee crawler with Crawlee's defaults: `node lost_crawlee.mjs MODULES PROXY URL` follows all links and prints what it got.
import { createRequire } from "node:module";

const [modules, proxy, start] = process.argv.slice(2);
const { CheerioCrawler, Configuration, ProxyConfiguration, log } = createRequire(`${modules}/`)("@crawlee/cheerio");
log.setLevel(log.LEVELS.OFF);
const crawler = new CheerioCrawler(
  {
    proxyConfiguration: new ProxyConfiguration({ proxyUrls: [proxy] }),
    async requestHandler({ request, enqueueLinks }) {
      process.stdout.write(`${request.url}\n`);
      await enqueueLinks();
    },
  },
  new Configuration({ persistStorage: false }),
);
await crawler.run([start]);
