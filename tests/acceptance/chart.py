"""Norconex's chart (its flow diagram of REJECTED_* events) walked event by event: one page for each status.

Each event is seen in the answer's headers, in the ledger's record of the URL, and in the metrics. The events after
them are those that crawlgate has besides.
"""

from __future__ import annotations

import dataclasses
import http.client
import http.server
import json
import threading
import urllib.parse

from report import Report
from services import Gate, by_labels, get, wait_for

CRAWLER = "chart"
POLICY = """\
policy: 1
name: chart
options:
  disposition: allow
  record: full
  max_depth: 3
  max_body: 64KiB
  traps: builtin
  noindex: reject
  noncanonical: reject
  politeness: { delay: 0s, concurrency: 100, jitter: none }
rules:
  - { id: filtered, forbid: { under: /filtered } }
  - { id: no-pdf, forbid: { content_type: application/pdf } }
  - { id: soft, forbid: { title: Page not found }, as: 404 }
  - { id: hourly, when: { under: /hourly }, set: { recrawl: { min_interval: 1h } } }
  - { id: news-only, when: { under: /unchanged }, set: { unmodified: reject } }
  - { id: twins, when: { under: /twin }, set: { duplicate: reject } }
  - { id: few, when: { under: /few }, set: { budget: { urls: 1, per: crawler } } }
"""


@dataclasses.dataclass(frozen=True)
class Page:
    """The responses of the site."""

    status: int = 200
    body: bytes = b"<!doctype html><title>A page</title><p>text"
    kind: str = "text/html"
    headers: tuple[tuple[str, str], ...] = ()


def _titled(title: str, more: str = "") -> bytes:
    return f"<!doctype html><head><title>{title}</title>{more}</head><p>text".encode()


PAGES = {
    "/robots.txt": Page(body=b"User-agent: *\nDisallow: /private\n", kind="text/plain"),
    "/missing": Page(404),
    "/gone": Page(410),
    "/broken": Page(500),
    "/paper": Page(body=b"%PDF-1.7", kind="application/pdf"),
    "/unchanged": Page(headers=(("ETag", '"one"'),)),
    "/twin/a": Page(body=_titled("Twins")),
    "/twin/b": Page(body=_titled("Twins")),
    "/other-form": Page(headers=(("Link", '</form>; rel="canonical"'),)),
    "/other-form-inside": Page(body=_titled("A form", '<link rel="canonical" href="/form">')),
    "/not-for-an-index": Page(headers=(("X-Robots-Tag", "noindex"),)),
    "/not-for-an-index-inside": Page(body=_titled("Secret", '<meta name="robots" content="noindex">')),
    "/large": Page(body=bytes(65 * 1024), kind="text/plain"),
    "/soft": Page(body=_titled("Page not found")),
}


class Site(http.server.ThreadingHTTPServer):
    """`PAGES`, and a page for any other path; `/dies` gives no answer. A validator that fits gets 304."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request, client_address) -> None:
        """That a connection breaks off is one of the pages."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == "/dies":
            self.close_connection = True
            return
        page = PAGES.get(self.path, Page(body=_titled(self.path)))
        known = dict(page.headers).get("ETag")
        fits = known is not None and self.headers.get("If-None-Match") == known
        body = b"" if fits else page.body
        self.send_response(304 if fits else page.status)
        for name, value in page.headers:
            self.send_header(name, value)
        if not fits:
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Event:
    """A request and its expected result: status, reason and `Crawl-Status`; and the status in the ledger afterwards."""

    path: str
    status: int
    outcome: str
    reason: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    # True if the origin gets a request.
    reaches: bool = True
    # Where that is another than the answer's.
    kept: str | None = None


# In the order of the chart, from the queue to the committer.
NORCONEX = [
    Event("/deep", 451, "REJECTED_TOO_DEEP", "too_deep", (("Crawl-Depth", "4"),), reaches=False),
    Event("/filtered/x", 451, "REJECTED_FILTER", "rule", reaches=False),
    Event("/private/x", 451, "REJECTED_ROBOTS_TXT", "robots_txt", reaches=False),
    Event("/hourly", 200, "ACCEPTED"),
    Event("/hourly", 451, "REJECTED_PREMATURE", "premature", reaches=False),
    Event("/hourly", 304, "REJECTED_PREMATURE", "premature", (("If-None-Match", '"mine"'),), reaches=False),
    Event("/missing", 404, "REJECTED_NOTFOUND"),
    Event("/gone", 410, "REJECTED_NOTFOUND"),
    Event("/broken", 500, "REJECTED_BAD_STATUS"),
    Event("/dies", 502, "REJECTED_ERROR", "upstream_protocol"),
    Event("/paper", 451, "REJECTED_FILTER", "rule"),
    Event("/other-form", 451, "REJECTED_NONCANONICAL", "noncanonical"),
    Event("/other-form-inside", 451, "REJECTED_NONCANONICAL", "noncanonical"),
    Event("/unchanged", 200, "ACCEPTED"),
    Event("/unchanged", 451, "REJECTED_UNMODIFIED", "unmodified"),
    # A conditional request of the client gets its own response.
    Event("/unchanged", 304, "ACCEPTED", headers=(("If-None-Match", '"one"'),)),
    Event("/twin/a", 200, "ACCEPTED"),
    Event("/twin/b", 451, "REJECTED_DUPLICATE", "duplicate"),
    Event("/not-for-an-index", 451, "REJECTED_ROBOTS_META_NOINDEX", "noindex"),
    Event("/not-for-an-index-inside", 451, "REJECTED_ROBOTS_META_NOINDEX", "noindex"),
    Event("/large", 451, "REJECTED_IMPORT", "body_too_large"),
    Event("/page", 200, "ACCEPTED"),
]
BESIDES = [
    Event("/soft", 404, "REJECTED_NOTFOUND", "soft_error"),
    Event("/trap/trap/trap/trap/trap/trap", 451, "REJECTED_TRAP", "trap", reaches=False),
    Event("/few/1", 200, "ACCEPTED"),
    Event("/few/2", 451, "REJECTED_BUDGET", "budget", reaches=False),
]


class Walk:
    """One crawler's way through the chart."""

    def __init__(self, gate: Gate, site: Site) -> None:
        self._gate, self._site = gate, site

    def _url(self, path: str) -> str:
        return f"http://chart.crawl.test:{self._site.port}{path}"

    def take(self, event: Event) -> list[str]:
        """Sends the request and returns the deviations: in the response, at the origin, in the ledger, in the metrics."""
        before, counted = self._site.asked.count(event.path), self._counted(event)
        connection = http.client.HTTPConnection("127.0.0.1", self._gate.port, timeout=20)
        connection.request("GET", self._url(event.path), headers=dict(event.headers))
        answer = connection.getresponse()
        answer.read()
        connection.close()
        reached = self._site.asked.count(event.path) > before
        found = {
            "status": answer.status,
            "Crawl-Status": answer.headers["Crawl-Status"],
            "Crawl-Reason": answer.headers["Crawl-Reason"],
            "origin asked": reached,
            "counted": wait_for(lambda: self._counted(event) - counted, 5),
        }
        wanted = {
            "status": event.status,
            "Crawl-Status": event.outcome,
            "Crawl-Reason": event.reason,
            "origin asked": event.reaches,
            "counted": 1,
        }
        problems = [f"{key}: {found[key]!r}, not {wanted[key]!r}" for key in wanted if found[key] != wanted[key]]
        kept = event.kept or event.outcome
        record = wait_for(lambda: (r := self.record(event.path)) and r["status"] == kept and r, 5) or self.record(
            event.path
        )
        if not record or record["status"] != kept:
            problems.append(f"in the ledger: {record and record['status']!r}, not {kept!r}")
        urls = wait_for(lambda: by_labels(self._gate.samples(), "crawlgate_ledger_urls", ("status",)).get(kept), 5)
        if not urls:
            problems.append(f"crawlgate_ledger_urls has no {kept}")
        return problems

    def _counted(self, event: Event) -> int:
        samples = self._gate.samples()
        if event.reason:
            return by_labels(samples, "crawlgate_decisions_total", ("reason",), verdict="reject")[event.reason]
        return by_labels(samples, "crawlgate_requests_total", ("code",), source="origin")[str(event.status)]

    def record(self, path: str) -> dict | None:
        """The ledger's record of a URL."""
        query = urllib.parse.urlencode({"url": self._url(path), "crawler": CRAWLER})
        status, body = get(f"{self._gate.admin}/api/v1/urls?{query}")
        found = json.loads(body).get("urls", []) if status == 200 else []
        return found[0] if found else None


def walk(report: Report, gate: Gate, site: Site) -> None:
    """The whole chart; each event is a check."""
    taken = Walk(gate, site)
    for event in (*NORCONEX, *BESIDES):
        asked = " with " + event.headers[0][0] if event.headers else ""
        report.check(f"{event.outcome}: GET {event.path}{asked}", taken.take(event))
    # Requests that failed, or that were refused before the fetch, are recorded, but not as known.
    for path, known in (("/page", True), ("/missing", False), ("/filtered/x", False), ("/dies", False)):
        record = taken.record(path)
        report.equal(f"{path} is {'' if known else 'not '}known to the ledger", record and record["known"], known)
