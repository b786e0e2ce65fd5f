// The API of the proxy, and what to say when it does not answer. The browser adds the token itself (HTTP Basic).

const BASE = "/api/v1";
// The address of the page may hold the token, and a relative one would take it over: fetch refuses that.
const ORIGIN = location.origin;
// After this an answer is no longer waited for; a reload of a large policy takes seconds.
const PATIENCE_MS = 20_000;

/** A request that failed: what, in the server's words, and what can be done. */
export class Failure extends Error {
  constructor(message, { status = 0, document = null, cure = "" } = {}) {
    super(message);
    this.status = status;
    this.document = document;
    this.cure = cure;
  }
}

const CURES = {
  0: "Is it running, and is this still its address? It is asked again every few seconds.",
  401: "Nothing is asked until you press \u201cAsk again\u201d: the browser then asks for a name (any) and a password, the admin token.",
  403: "Open this page by a name in admin.names, or by the listener's address.",
  503: "It is busy or shutting down; it is asked again.",
};

/** After a 401 nothing more is sent: each further one could open the browser's window for the password again. */
let shut = null;

async function failed(response) {
  let document = null;
  try {
    document = await response.json();
  } catch {
    // Something between us and the proxy answered in its own way.
  }
  const words = document?.detail ?? document?.title ?? `status ${response.status}`;
  const failure = new Failure(words, { status: response.status, document, cure: CURES[response.status] ?? "" });
  if (response.status === 401) shut = failure;
  return failure;
}

async function send(method, path, { query, body, signal } = {}) {
  if (shut) throw shut;
  const asked = query ? `?${new URLSearchParams(query)}` : "";
  const request = { method, cache: "no-store", signal, headers: {} };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers["content-type"] = "application/json";
  }
  try {
    return await fetch(new URL(`${BASE}${path}${asked}`, ORIGIN), request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The proxy does not answer.", { cure: CURES[0] });
  }
}

async function ask(method, path, options = {}) {
  const signal = options.signal ?? AbortSignal.timeout(PATIENCE_MS);
  const response = await send(method, path, { ...options, signal });
  if (!response.ok) throw await failed(response);
  try {
    return await response.json();
  } catch {
    throw new Failure("The answer is not whole.", {
      cure: "It is asked again; what stands between may have cut it.",
    });
  }
}

export const api = {
  status: () => ask("GET", "/status"),
  policy: () => ask("GET", "/policy"),
  policyDiff: () => ask("GET", "/policy/diff"),
  shadow: () => ask("GET", "/shadow"),
  reload: () => ask("POST", "/reload"),
  explain: (facts) => ask("POST", "/explain", { body: facts }),
  hosts: (query) => ask("GET", "/hosts", { query }),
  host: (name, query) => ask("GET", `/hosts/${encodeURIComponent(name)}`, { query }),
  urls: (query) => ask("GET", "/urls", { query }),
  events: (query) => ask("GET", "/events", { query }),
  ledger: () => ask("GET", "/ledger"),
  stops: () => ask("GET", "/stops"),
  stop: (body) => ask("POST", "/stops", { body }),
  lift: (id) => ask("DELETE", `/stops/${encodeURIComponent(id)}`),
  decision: (id) => ask("GET", `/decisions/${encodeURIComponent(id)}`),
  /** The stream of decisions as a response whose body is read line by line. */
  async decisions(query, signal) {
    const response = await send("GET", "/decisions", { query, signal });
    if (!response.ok) throw await failed(response);
    return response;
  },
};
