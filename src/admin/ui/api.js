// The API of the proxy, and the messages for failed requests. The browser adds the token itself (HTTP Basic).

const BASE = "/api/v1";
// The address of the page may contain the token. Relative URLs would inherit it, and fetch refuses such URLs.
const ORIGIN = location.origin;
// The time limit of a request.
const TIMEOUT_MS = 20_000;
// The time limit of a reload or a change of the policy, which the proxy answers after 20 s at the latest.
const CHANGE_TIMEOUT_MS = 30_000;

/** A failed request: the server's message, and what the user can do (`cure`). */
export class Failure extends Error {
  constructor(message, { status = 0, document = null, cure = "" } = {}) {
    super(message);
    this.status = status;
    this.document = document;
    this.cure = cure;
  }
}

const CURES = {
  0: "Check that it is running and that this is its address. The page tries again every few seconds.",
  401: "Press \u201cLog in\u201d: the browser then asks for a name (any) and a password (the admin token).",
  403: "Open this page under a name in admin.names, or at the listener's address.",
  503: "The proxy is busy or shutting down. The page tries again.",
};

/** Set after a 401. Nothing is sent then, since each request could open the browser's login dialog again. */
let unauthorized = null;

async function failed(response) {
  let document = null;
  try {
    document = await response.json();
  } catch {
    // The response is not from crawlgate, but from something between this page and it.
  }
  const message = document?.detail ?? document?.title ?? `status ${response.status}`;
  const failure = new Failure(message, { status: response.status, document, cure: CURES[response.status] ?? "" });
  if (response.status === 401) unauthorized = failure;
  return failure;
}

async function send(method, path, { query, body, signal } = {}) {
  if (unauthorized) throw unauthorized;
  const search = query ? `?${new URLSearchParams(query)}` : "";
  const init = { method, cache: "no-store", signal, headers: {} };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["content-type"] = "application/json";
  }
  try {
    return await fetch(new URL(`${BASE}${path}${search}`, ORIGIN), init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The proxy does not answer.", { cure: CURES[0] });
  }
}

/** Sends a change of the policy. It goes on if its answer does not arrive in time. */
async function change(method, path, options = {}) {
  const signal = AbortSignal.timeout(CHANGE_TIMEOUT_MS);
  try {
    return await request(method, path, { ...options, signal });
  } catch (error) {
    if (!signal.aborted) throw error;
    throw new Failure("The proxy has not answered within 30 s. The change may go on.", {
      cure: "Look at the active policy and its history before you repeat it.",
    });
  }
}

async function request(method, path, options = {}) {
  const signal = options.signal ?? AbortSignal.timeout(TIMEOUT_MS);
  const response = await send(method, path, { ...options, signal });
  if (!response.ok) throw await failed(response);
  try {
    return await response.json();
  } catch {
    throw new Failure("The response is incomplete.", {
      cure: "The page tries again; a proxy between this page and crawlgate may have truncated it.",
    });
  }
}

export const api = {
  status: () => request("GET", "/status"),
  history: () => request("GET", "/history"),
  messages: (query) => request("GET", "/messages", { query }),
  config: () => request("GET", "/config"),
  crawlers: () => request("GET", "/crawlers"),
  fleet: () => request("GET", "/fleet"),
  policy: () => request("GET", "/policy"),
  policyRules: (query) => request("GET", "/policy/rules", { query }),
  policyDiff: () => request("GET", "/policy/diff"),
  policyHistory: () => request("GET", "/policy/history"),
  rollBack: (body) => change("POST", "/policy/rollback", { body }),
  shadow: () => request("GET", "/shadow"),
  promote: (body) => change("POST", "/shadow/promote", { body }),
  clearShadow: (reason) => change("DELETE", "/shadow/policy", { query: reason ? { reason } : undefined }),
  reload: () => change("POST", "/reload"),
  explain: (facts) => request("POST", "/explain", { body: facts }),
  hosts: (query) => request("GET", "/hosts", { query }),
  host: (name, query) => request("GET", `/hosts/${encodeURIComponent(name)}`, { query }),
  urls: (query) => request("GET", "/urls", { query }),
  events: (query) => request("GET", "/events", { query }),
  ledger: () => request("GET", "/ledger"),
  sweep: (dryRun) => request("POST", "/ledger/sweep", { body: { dry_run: dryRun } }),
  confirmRemovals: (account) => request("POST", "/ledger/removals", { body: { confirm: account } }),
  stops: () => request("GET", "/stops"),
  stop: (body) => request("POST", "/stops", { body }),
  lift: (id) => request("DELETE", `/stops/${encodeURIComponent(id)}`),
  decision: (id) => request("GET", `/decisions/${encodeURIComponent(id)}`),
  /** Returns the stream of decisions as a response, whose body the caller reads line by line. */
  async decisions(query, signal) {
    const response = await send("GET", "/decisions", { query, signal });
    if (!response.ok) throw await failed(response);
    return response;
  },
};
