"""Single exchanges in addition to the crawls: CONNECT, HTTP/1.0, keep-alive, profiles, robots.txt, broken origins, admin.

They come after the counters were compared, so they may do what no table foresees.
"""

from __future__ import annotations

import pathlib
import socket
import subprocess

import judge
from clients import Answer, clean_environment, curl, raw_answer
from origin import Origin
from pages import BLOCKED, CAL, ELSEWHERE, MARK, OLD, PARTNER, SUB_BLOCKED, WWW
from report import Report
from services import Gate, by_labels, get


class Singles:
    """All exchanges, with one proxy."""

    def __init__(self, report: Report, origin: Origin, gate: Gate, folder: pathlib.Path) -> None:
        self._report = report
        self._origin = origin
        self._gate = gate
        self._folder = folder
        self._count = 0

    def run(self) -> None:
        for part in (
            self._connect,
            self._methods,
            self._profiles,
            self._robots,
            self._broken_origins,
            self._bad_requests,
            self._admin,
            self._unharmed,
        ):
            part()

    def _curl(self, urls: list[str], *options: str, method: str = "GET") -> list[Answer]:
        self._count += 1
        folder = self._folder / f"single-{self._count}"
        return curl(self._gate.proxy, [url.encode() for url in urls], folder, options, method)

    def _www(self, path: str) -> str:
        return self._origin.site.url(WWW, path)

    def _connect(self) -> None:
        self._count += 1
        head = self._folder / f"connect-{self._count}.head"
        command = ["curl", "-q", "-s", "-p", "-x", self._gate.proxy, "-D", str(head), "-o", "/dev/null", self._www("/")]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, timeout=60)
        text = head.read_text() if head.exists() else ""
        problems = [] if done.returncode == 56 else [f"curl's exit code is {done.returncode}, not 56"]
        problems += [
            f"{field!r} is not in {text!r}"
            for field in (
                "HTTP/1.1 403 Policy-403 reason=port_denied id=",
                "Crawl-Reason: port_denied",
                "Crawl-Status: REJECTED_REQUEST",
                "Proxy-Status: ",
            )
            if field.lower() not in text.lower()
        ]
        self._report.check("curl -p: CONNECT to a port for no tunnel is answered 403 with phrase and headers", problems)
        target = f"{WWW}:{self._origin.port}"
        for version in ("1.1", "1.0"):
            request = (
                f"CONNECT {target} HTTP/{version}\r\nHost: {target}\r\n\r\nGET / HTTP/1.1\r\nHost: {target}\r\n\r\n"
            )
            answer, closed = raw_answer(("127.0.0.1", self._gate.port), request.encode())
            problems = [] if answer.status == 403 else [f"status {answer.status}"]
            problems += judge.reason_headers("port_denied", None, answer) + ([] if closed else ["not closed"])
            problems += ["what followed it was answered too"] if answer.body.count(b"HTTP/1.1 ") else []
            self._report.check(f"raw: CONNECT over HTTP/{version} is answered 403 once, and closed", problems)

    def _methods(self) -> None:
        upload = self._curl([self._www("/news/1.html")] * 2, 'data = "a=b"')
        self._report.equal(
            "curl: POST is refused by rule, and the connection stays",
            ([(a.status, a.one("Crawl-Rule")) for a in upload], sum(a.connects for a in upload)),
            ([(451, "no-upload")] * 2, 1),
        )
        bodies = [self._www(path) for path in ("/private/a.html", "/error/404", "/news/1.html", "/cgi-bin/form.html")]
        answers = self._curl(bodies, 'data = "a=b"', 'request = "GET"')
        self._report.equal(
            "curl: requests with bodies, refused or not, share one connection",
            ([a.status for a in answers], sum(a.connects for a in answers)),
            ([451, 404, 200, 451], 1),
        )
        page = self._curl([self._www("/embargo/report.html")], r'header = "If-None-Match: \"1\""')[0]
        self._report.equal(
            "curl: a conditional request to what must be kept gets 304, with reason and no body",
            (page.status, page.one("Crawl-Reason"), page.one("Crawl-Rule"), page.body),
            (304, "rule", "embargo", b""),
        )
        plain = self._curl([self._www("/cgi-bin/form.html")], 'header = "Accept: text/plain"')[0]
        self._report.check(
            "curl: Accept: text/plain gets a text",
            judge.reason_headers("rule", "cgi", plain)
            + ([] if (plain.one("Content-Type") or "").startswith("text/plain") else ["no text/plain"]),
        )
        trace, _ = raw_answer(("127.0.0.1", self._gate.port), self._request("TRACE", self._www("/")))
        self._report.check("raw: TRACE is 405", [] if trace.status == 405 else [f"status {trace.status}"])

    def _profiles(self) -> None:
        cases = [
            ("nutch/Nutch-1.19", "/cgi-bin/form.html", 410),
            ("Scrapy/2.19.0 (+https://scrapy.org)", "/private/a.html", 451),
            ("Mozilla/5.0 (compatible; heritrix/3.4.0 +http://example.com)", "/cgi-bin/form.html", 451),
        ]
        for agent, path, status in cases:
            answer = self._curl([self._www(path)], f'user-agent = "{agent}"')[0]
            self._report.equal(
                f"curl as {agent.split('/')[0] if 'heritrix' not in agent else 'heritrix'}: a refusal is {status}",
                (answer.status, answer.one("Crawl-Reason")),
                (status, "rule"),
            )
            if "heritrix" in agent:
                self._report.equal("curl as heritrix: the refusal's body is empty", answer.body, b"")
        gone = self._curl([self._origin.site.url(OLD, "/")], 'user-agent = "heritrix"')[0]
        self._report.equal("curl as heritrix: what is gone is 404", gone.status, 404)

    def _robots(self) -> None:
        """A 4xx on robots.txt would mean "all allowed" to most crawlers."""
        before = len(self._origin.log.entries)
        # Of a host that no rule admits, the rule `embargo` keeps some URLs in the index: each gets its own answer.
        for host, paths in ((OLD, "/"), (BLOCKED, "/"), (SUB_BLOCKED, "/"), (ELSEWHERE, "")):
            answer = self._curl([self._origin.site.url(host, "/robots.txt")])[0]
            lines = answer.body.decode().split()
            problems = [] if answer.status == 200 else [f"status {answer.status}"]
            problems += [] if lines == ["User-agent:", "*", "Disallow:", *paths.split()] else [f"body {answer.body!r}"]
            problems += [] if (answer.one("Content-Type") or "").startswith("text/plain") else ["not text/plain"]
            verb = "forbids all" if paths else "forbids nothing, since some URLs are to be kept"
            self._report.check(f"curl: robots.txt of {host}, refused as a whole, {verb}", problems)
        self._report.equal("the origin was not asked for them", len(self._origin.log.entries) - before, 0)
        own = self._curl([self._origin.site.url(PARTNER, "/robots.txt")])[0]
        self._report.equal(
            "curl: robots.txt of a host that is refused in part is the origin's own",
            (own.status, own.body),
            (200, self._origin.site.find(PARTNER, "/robots.txt").body),
        )

    def _broken_origins(self) -> None:
        short = self._curl([self._www("/broken/short")])[0]
        self._report.check(
            "curl: a body that the origin cut short is cut short here too, not made whole",
            [] if short.error else [f"curl saw no error, {len(short.body)} bytes"],
        )
        garbage = self._curl([self._www("/broken/garbage")])[0]
        self._report.check(
            "curl: an origin that sends garbage is 502 upstream_protocol", self._failure(garbage, "upstream_protocol")
        )
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            dead = self._curl([f"http://{CAL}:{unused.getsockname()[1]}/items?page=1"])[0]
        self._report.check(
            "curl: an origin that refuses connections is 502 upstream_connect", self._failure(dead, "upstream_connect")
        )

    @staticmethod
    def _failure(answer: Answer, reason: str) -> list[str]:
        problems = [] if answer.status == 502 else [f"status {answer.status}"]
        problems += [] if answer.one("Crawl-Reason") == reason else [f"Crawl-Reason {answer.one('Crawl-Reason')!r}"]
        return problems + judge.reason_headers(reason, None, answer)

    def _request(self, method: str, target: str, *fields: str) -> bytes:
        host = f"Host: {WWW}:{self._origin.port}"
        return "\r\n".join([f"{method} {target} HTTP/1.1", *(fields or (host,)), "", ""]).encode()

    def _bad_requests(self) -> None:
        url, host = self._www("/news/1.html"), f"Host: {WWW}:{self._origin.port}"
        before = len(self._origin.log.entries)
        cases = {
            "two Host lines": self._request("GET", url, host, host),
            "Content-Length with Transfer-Encoding": self._request(
                "GET", url, host, "Content-Length: 1", "Transfer-Encoding: chunked"
            ),
            "a port of 99999": self._request("GET", f"http://{WWW}:99999/"),
            "a fragment": self._request("GET", url + "#top"),
            "userinfo": self._request("GET", url.replace("http://", "http://me:pw@")),
            "an escape in the host": self._request("GET", url.replace("crawl.test", "crawl%2Etest")),
            "a backslash": self._request("GET", self._www("/cgi-bin\\form.html")),
            "a target in origin form": self._request("GET", "/news/1.html"),
        }
        for name, request in cases.items():
            answer, _ = raw_answer(("127.0.0.1", self._gate.port), request)
            problems = [] if answer.status == 400 else [f"status {answer.status}"]
            self._report.check(
                f"raw: {name} is 400 bad_request", problems + judge.reason_headers("bad_request", None, answer)
            )
        self._report.equal("none of them reached the origin", len(self._origin.log.entries) - before, 0)

    def _admin(self) -> None:
        through = self._curl([f"http://admin.crawl.test:{self._gate.admin_port}/metrics"])[0]
        # Another node of a fleet connects to the port, which then refuses a request by that name.
        reasons = {"ip_prohibited"} if len(self._gate.targets) == 1 else {"ip_prohibited", None}
        self._report.equal(
            "curl: the admin port is not reachable through the proxy",
            (through.status, through.one("Crawl-Reason") in reasons, b"crawlgate_" in through.body),
            (403, True, False),
        )
        for path in ("/healthz", "/readyz"):
            self._report.equal(f"admin: {path} is 200", get(self._gate.admin + path)[0], 200)
        for name, value in (
            ("Host", "rebound.test"),
            ("Origin", "http://rebound.test"),
            ("Sec-Fetch-Site", "cross-site"),
        ):
            status, body = get(self._gate.admin + "/metrics", {name: value})
            self._report.check(
                f"admin: {name}: {value} is refused",
                [] if 400 <= status < 500 and b"crawlgate_" not in body else [f"status {status}"],
            )

    def _unharmed(self) -> None:
        panics = by_labels(self._gate.samples(), "crawlgate_panics_total", ("none",))
        self._report.equal("no panic was counted", sum(panics.values()), 0)
        again = self._curl([self._www("/news/1.html")])[0]
        self._report.check(
            "curl: after all this a page still arrives",
            [] if again.status == 200 and MARK in again.body else [f"status {again.status} {again.error}"],
        )
