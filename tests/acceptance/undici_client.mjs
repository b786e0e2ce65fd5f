// Node's undici: asks for the URLs of standard input, eight at once, and writes each answer as a JSON line.
//
//     node undici_client.mjs FOLDER_OF_NODE_MODULES PROXY plain|tunnel
//
// `tunnel` is what undici does by itself: CONNECT, also for http, with the credentials in the CONNECT only. `plain` has
// it ask with the whole URL, as other clients do. A URL that Node would write in another way is left out.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, proxy, way] = process.argv.slice(2);
const { EnvHttpProxyAgent, ProxyAgent, request } = createRequire(`${folder}/`)("undici");

function agent() {
  if (way === "plain") {
    return new ProxyAgent({ uri: proxy, proxyTunnel: false });
  }
  return new EnvHttpProxyAgent({ httpProxy: proxy, httpsProxy: proxy, noProxy: "" });
}

async function ask(url, dispatcher) {
  try {
    const response = await request(url, { dispatcher, responseHeaders: "raw" });
    const raw = response.headers.map(String);
    const headers = {};
    for (let at = 0; at < raw.length; at += 2) {
      (headers[raw[at].toLowerCase()] ??= []).push(raw[at + 1]);
    }
    const body = Buffer.from(await response.body.arrayBuffer()).toString("base64");
    return { url, status: response.statusCode, headers, body, error: "" };
  } catch (error) {
    return { url, status: 0, headers: {}, body: "", error: `${error.name}: ${error.message}` };
  }
}

const urls = [];
for await (const line of createInterface({ input: process.stdin })) {
  if (new URL(line).href === line) {
    urls.push(line);
  }
}
const dispatcher = agent();
const worker = async () => {
  for (let url = urls.shift(); url !== undefined; url = urls.shift()) {
    console.log(JSON.stringify(await ask(url, dispatcher)));
  }
};
await Promise.all(Array.from({ length: 8 }, worker));
await dispatcher.close();
