"""The acceptance run: real clients crawl a test site through crawlgate, and everything they saw is checked.

    python3 tests/acceptance/run.py [--binary target/release/crawlgate] [--scrapy-python PYTHON]
                                      [--node-modules FOLDER] [--keep FOLDER] [--fleet]

It starts the site, crawlgate and Prometheus on free loopback ports. curl, wget, Scrapy, requests, undici and urllib crawl;
then their answers, the site's own log, /metrics, Prometheus and the decision log must all tell the story of
`expected.tsv`, which is written by hand; and once more over https, with Java and Chromium besides. With `--fleet` each proxy
is one of three nodes of a fleet, which forwards most requests to the other two. Exit code 1 if a
check failed. A client that is not installed is skipped loudly; with CI set in the environment it is a failure.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import clients
import commands
import crawlers
import inside
import nodes
import politeness
import table as tables
import throttled
import tunnels
from crawl import Crawl
from origin import Origin
from pages import HOSTS, WWW
from report import Report, differences
from services import Gate, Prometheus, wait_for
from singles import Singles

HERE = pathlib.Path(__file__).resolve().parent
POLICY = HERE / "policy.yaml"
DOMAINS = ["crawl.test", "partner.test", "blocked.test", "elsewhere.test"]


def main() -> int:
    arguments = _arguments()
    report, table = Report(), tables.load(HERE / "expected.tsv")
    if arguments.fleet and not nodes.is_installed():
        report.missing("each proxy is a node of a fleet", "postgresql")
        return report.close()
    with tempfile.TemporaryDirectory(prefix="crawlgate-acceptance-") as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        origin = Origin(folder / "origin.jsonl")
        if arguments.fleet:
            Gate.fleet = nodes.Fleet(arguments.binary)
        try:
            _site(report, table, origin)
            _offline(report, table, arguments.binary)
            _online(report, table, origin, arguments, folder)
        finally:
            origin.stop()
            if Gate.fleet:
                Gate.fleet.stop()
    return report.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--scrapy-python", default=sys.executable, help="a Python that has Scrapy")
    parser.add_argument("--node-modules", type=pathlib.Path, help="a folder in which npm installed undici")
    parser.add_argument("--fleet", action="store_true", help="each proxy is a node of a fleet of three; needs PostgreSQL")
    parser.add_argument("--keep", type=pathlib.Path, help="leave logs and downloads in this new or empty folder")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    arguments.keep = arguments.keep and arguments.keep.resolve()
    if arguments.keep and arguments.keep.exists() and any(arguments.keep.iterdir()):
        parser.error(f"{arguments.keep} is not empty")
    return arguments


def _site(report: Report, table: tables.Table, origin: Origin) -> None:
    """Table and site are two files by two hands: they must speak of the same URLs."""
    report.section("The site and its table")
    pages = origin.site.pages
    enough = len(pages) >= 200 and len(HOSTS) >= 6
    size = [] if enough else [f"{len(pages)} pages, {len(HOSTS)} hosts"]
    report.check("the site has at least 200 pages on at least 6 hosts", size, len(pages))
    passing = [row for row in table.get.values() if row.allowed]
    wrong = [row.url for row in passing if origin.site.find(*row.origin).status != row.status]
    report.check("the site answers what is allowed with the table's status", wrong, len(passing))
    named = set(table.get) | {f"http://{host}{wire}" for host, wire in (row.origin for row in passing)}
    urls = [f"http://{host}{target}" for host, target in pages]
    apart = ("/robots.txt", "/broken/short", "/broken/garbage")
    lost = [url for url in urls if url not in named and not url.endswith(apart)]
    report.check("every page of the site stands in the table", lost, len(urls))


def _offline(report: Report, table: tables.Table, binary: pathlib.Path) -> None:
    report.section("Commands that judge without a network")
    commands.run(report, binary, POLICY, table)


def _online(
    report: Report, table: tables.Table, origin: Origin, arguments: argparse.Namespace, folder: pathlib.Path
) -> None:
    hashes = crawlers.hashes(arguments.binary)
    gate = Gate(arguments.binary, POLICY, folder, {"crawlers": crawlers.registrations(hashes)})
    prometheus = None
    try:
        prometheus = _prometheus(report, gate, folder)
        crawls = Crawls(Crawl(report, origin, gate, table), report, table, origin, gate, folder)
        crawls.curl()
        crawls.wget()
        crawls.scrapy(arguments.scrapy_python)
        crawls.requests(arguments.scrapy_python)
        crawls.undici(arguments.node_modules)
        crawls.urllib()
        report.section("Counters and logs over all crawls")
        crawls.crawl.totals()
        if prometheus:
            _scraped(report, prometheus, gate, crawls.crawl.tally.rules)
        if shutil.which("curl"):
            report.section("Single exchanges")
            Singles(report, origin, gate, folder).run()
    finally:
        if prometheus:
            prometheus.stop()
        code = gate.stop()
    tunnels.run(report, arguments.binary, arguments.scrapy_python, arguments.node_modules, folder)
    modules = arguments.node_modules
    inside.run(report, arguments.binary, hashes, table, folder, arguments.scrapy_python, modules)
    crawlers.run(report, origin, arguments.binary, hashes, folder, arguments.scrapy_python, arguments.node_modules)
    politeness.run(report, origin, arguments.binary, hashes, folder, arguments.scrapy_python, arguments.node_modules)
    throttled.run(report, arguments.binary, folder, arguments.scrapy_python)
    report.section("The end")
    report.equal("SIGTERM ends crawlgate in time, with exit code 0", code, 0)
    report.check("crawlgate's standard error has no panic", [line for line in gate.lines if "panicked" in line])


class Crawls:
    """The clients, one after the other; each but urllib says with credentials which crawler it is."""

    def __init__(
        self, crawl: Crawl, report: Report, table: tables.Table, origin: Origin, gate: Gate, folder: pathlib.Path
    ) -> None:
        self.crawl = crawl
        self._report = report
        self._rows = list(table.get.values())
        self._linked = [row.url for row in self._rows if row.linked]
        self._origin = origin
        self._start = origin.site.url(WWW, "/")
        self._gate = gate
        self._folder = folder

    def curl(self) -> None:
        """Every URL of the table by GET and by HEAD on one kept connection, and one of each kind over HTTP/1.0."""
        self._report.section("curl")
        if not shutil.which("curl"):
            self._report.missing("curl asks for every URL", "curl")
            return
        kinds = {(row.verdict, row.stage, row.rule, row.reason, row.status): row for row in self._rows}
        self._curl("curl", self._rows, (), "GET", connections=1)
        self._curl("curl -I", self._rows, ("head",), "HEAD", connections=1)
        self._curl("curl -0", list(kinds.values()), ("http1.0",), "GET", connections=len(kinds))

    def _curl(self, name: str, rows: list[tables.Row], options: tuple[str, ...], method: str, connections: int) -> None:
        urls, folder = [row.sent(self._origin.port) for row in rows], self._folder / name.replace(" ", "")
        answers = clients.curl(crawlers.proxy(self._gate, "curl"), urls, folder, options, method, name)
        self._judge(name, rows, answers, "curl")
        found = sum(answer.connects for answer in answers)
        what = (
            "a connection for each answer" if connections > 1 else "all answers, refusals too, on one kept connection"
        )
        self._report.equal(f"{name}: {what}", found, connections)

    def wget(self) -> None:
        self._report.section("wget -r")
        if not shutil.which("wget"):
            self._report.missing("wget crawls the site", "wget")
            return
        proxy, folder = crawlers.proxy(self._gate, "wget"), self._folder / "wget"
        if answers := self._ran("wget", lambda: clients.wget(proxy, self._start, DOMAINS, folder)):
            self.crawl.judge("wget", answers, self._linked, "wget", clients.wget_identity)

    def scrapy(self, python: str) -> None:
        self._report.section("Scrapy")
        if subprocess.run([python, "-c", "import scrapy"], capture_output=True).returncode != 0:
            self._report.missing("Scrapy crawls the site", "Scrapy")
            return
        proxy, folder = crawlers.proxy(self._gate, "scrapy"), self._folder / "scrapy"
        if answers := self._ran("Scrapy", lambda: clients.scrapy(proxy, python, self._start, DOMAINS, folder)):
            self.crawl.judge("Scrapy", answers, self._linked, "scrapy")

    def requests(self, python: str) -> None:
        self._report.section("requests")
        if not crawlers.has_requests(python):
            self._report.missing("requests asks for every plain URL", "requests")
            return
        proxy = crawlers.proxy(self._gate, "requests")
        self._asked("requests", lambda urls: clients.requests_all(proxy, python, urls))

    def undici(self, modules: pathlib.Path | None) -> None:
        self._report.section("undici")
        if not crawlers.has_undici(modules):
            self._report.missing("undici asks for every plain URL", "undici")
            return
        proxy = crawlers.proxy(self._gate, "undici")
        self._asked("undici", lambda urls: clients.undici_all(proxy, modules, urls, "plain"))

    def _asked(self, name: str, client: Callable[[list[str]], list[clients.Answer]]) -> None:
        """A client that requests every plain URL, and omits those that it would rewrite."""
        rows = {row.sent(self._origin.port).decode(): row for row in self._rows if row.plain}
        answers = self._ran(name, lambda: client(list(rows)))
        for answer in answers:
            answer.url = rows[answer.url].url
        met = [answer.url for answer in answers]
        self._report.check(f"{name}: asked for most of the URLs", [] if len(met) > 200 else [f"{len(met)} URLs"])
        self.crawl.judge(name, answers, met, name)

    def urllib(self) -> None:
        self._report.section("urllib")
        rows = [row for row in self._rows if row.plain]
        urls = [row.sent(self._origin.port).decode() for row in rows]
        self._judge("urllib", rows, clients.urllib_all(self._gate.proxy, urls), "anonymous")

    def _judge(self, name: str, rows: list[tables.Row], answers: list[clients.Answer], crawler: str) -> None:
        """Answers to the rows themselves, in their order."""
        for row, answer in zip(rows, answers, strict=True):
            answer.url = row.url
        self.crawl.judge(name, answers, [row.url for row in rows], crawler)

    def _ran(self, name: str, client: Callable[[], list[clients.Answer]]) -> list[clients.Answer]:
        """A crawler that fails to start or hangs is a failed check; the others still run."""
        try:
            answers, problems = client(), []
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            answers, problems = [], [repr(error)]
        self._report.check(f"{name}: ran to its end", problems)
        return answers


def _prometheus(report: Report, gate: Gate, folder: pathlib.Path) -> Prometheus | None:
    report.section("Prometheus")
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        report.missing("Prometheus scrapes the admin port", "prometheus")
        return None
    first, *others = gate.targets
    prometheus = Prometheus(first, folder / "prometheus", others)
    report.check("Prometheus is ready", [] if prometheus.ready() else ["not within 30 s"])
    return prometheus


def _scraped(report: Report, prometheus: Prometheus, gate: Gate, expected: collections.Counter) -> None:
    linted = subprocess.run(
        ["promtool", "check", "metrics"], input=gate.metrics_text(), capture_output=True, timeout=60
    )
    said = (linted.stdout + linted.stderr).decode().splitlines()
    silent_failure = [f"exit code {linted.returncode}"] if linted.returncode else []
    report.check("promtool check metrics has nothing to say", said or silent_failure)
    query = 'sum by (rule) (crawlgate_rule_decided_total{mode="enforce"})'
    wait_for(lambda: prometheus.query(query, "rule") == expected, 20, 0.5)
    found = prometheus.query(query, "rule")
    report.check(f"Prometheus: {query} returns the counts of the crawls", differences(found, expected), len(expected))
    report.equal("Prometheus: the target is up", prometheus.query('up{job="crawlgate"}', "job"), {"crawlgate": 1})


if __name__ == "__main__":
    sys.exit(main())
