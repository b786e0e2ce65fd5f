// A request as a command line of curl, through the proxy.

/** Quotes a text for a POSIX shell. */
function quoted(text) {
  return `'${String(text).replaceAll("'", "'\\''")}'`;
}

/** Returns the address of the listener for a crawler, else of the first one for all; with the name of the page's host. */
function listener(status, crawler) {
  const all = status?.listeners ?? [];
  const found = all.find((one) => one.crawler === crawler) ?? all.find((one) => !one.crawler) ?? all[0];
  if (!found) return "127.0.0.1:3128";
  // A listener of all addresses is reached at the one of this page.
  const unspecified = /^(0\.0\.0\.0|\[::\]):(\d+)$/.exec(found.address);
  return unspecified ? `${location.hostname}:${unspecified[2]}` : found.address;
}

/** Returns the command that repeats a request. */
export function curlOf({ url, method, crawler, user_agent: agent }, status) {
  const words = ["curl", "--include", "--proxy", quoted(`http://${listener(status, crawler)}`)];
  if (status?.https?.intercept && status.https.authorities?.length) words.push("--cacert", quoted(status.https.authorities[0]));
  if (method === "HEAD") words.push("--head");
  else if (method && method !== "GET") words.push("--request", quoted(method));
  if (agent) words.push("--user-agent", quoted(agent));
  // Brackets and braces of a URL are no patterns.
  return [...words, "--globoff", quoted(url)].join(" ");
}
