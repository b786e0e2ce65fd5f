// Node's module http2: asks for the URLs of standard input and writes each answer as a JSON line.
//
//     node http2_client.mjs PROXY CERTIFICATES
//
// Each host gets one tunnel and one connection of HTTP/2, on which twenty requests run at a time. A URL that Node would
// write in another way is left out.

import { readFileSync } from "node:fs";
import { request } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { isIP } from "node:net";
import { createInterface } from "node:readline";
import { connect as connectTls } from "node:tls";

const [proxy, certificates] = process.argv.slice(2);
const { hostname, port, username, password } = new URL(proxy);
const ca = readFileSync(certificates);
const AT_ONCE = 20;

function tunnel(host) {
  const credentials = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`);
  const headers = { host, "proxy-authorization": `Basic ${credentials.toString("base64")}` };
  return new Promise((resolve, reject) => {
    const connecting = request({ host: hostname, port, method: "CONNECT", path: host, headers });
    connecting.on("error", reject);
    connecting.on("connect", (response, socket) =>
      response.statusCode === 200 ? resolve(socket) : reject(new Error(`CONNECT: ${response.statusCode}`)),
    );
    connecting.end();
  });
}

async function session(origin) {
  const { host, hostname } = new URL(origin);
  const socket = await tunnel(host);
  const address = hostname.replace(/^\[|\]$/g, "");
  // The server name in TLS is never an address; Node checks the certificate for `host`.
  const servername = isIP(address) ? "" : address;
  const secure = connectTls({ socket, host: address, servername, ca, ALPNProtocols: ["h2"] });
  await new Promise((resolve, reject) => secure.once("secureConnect", resolve).once("error", reject));
  const opened = connectHttp2(origin, { createConnection: () => secure });
  opened.on("error", () => {});
  return opened;
}

function ask(opened, url) {
  return new Promise((resolve) => {
    const { pathname, search, host } = new URL(url);
    const stream = opened.request({ ":path": pathname + search, ":authority": host, accept: "*/*" });
    const answer = { url, status: 0, headers: {}, body: "", error: "", version: "HTTP/2" };
    const parts = [];
    stream.on("response", (_, __, raw) => {
      for (let at = 0; at < raw.length; at += 2) {
        if (raw[at] === ":status") answer.status = Number(raw[at + 1]);
        else (answer.headers[raw[at]] ??= []).push(raw[at + 1]);
      }
    });
    stream.on("data", (part) => parts.push(part));
    stream.on("error", (error) => (answer.error = `${error.code}: ${error.message}`));
    stream.on("close", () => resolve({ ...answer, body: Buffer.concat(parts).toString("base64") }));
    stream.end();
  });
}

const byHost = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const url = new URL(line);
  if (url.href === line) byHost.set(url.origin, [...(byHost.get(url.origin) ?? []), line]);
}
for (const [origin, urls] of byHost) {
  const failed = (url, error) => ({ url, status: 0, headers: {}, body: "", error: String(error), version: "" });
  let opened;
  try {
    opened = await session(origin);
  } catch (error) {
    for (const url of urls) console.log(JSON.stringify(failed(url, error)));
    continue;
  }
  const worker = async () => {
    for (let url = urls.shift(); url !== undefined; url = urls.shift()) {
      console.log(JSON.stringify(opened.destroyed ? failed(url, "the session ended") : await ask(opened, url)));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  opened.close();
}
