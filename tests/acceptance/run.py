"""The acceptance run: real clients crawl a test site through crawlgate, and everything they saw is checked.

    python3 tests/acceptance/run.py [--binary target/release/crawlgate] [--scrapy-python PYTHON] [--keep FOLDER]

It starts the site, crawlgate and Prometheus on free loopback ports. curl, wget, Scrapy and urllib crawl; then
their answers, the site's own log, /metrics, Prometheus and the decision log must all tell the story of
`expected.tsv`, which is written by hand. Exit code 1 if a check failed. A client that is not installed is
skipped loudly; with CI set in the environment it is a failure.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import shutil
import subprocess
import sys
import tempfile

import clients
import commands
import table as tables
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
    with tempfile.TemporaryDirectory(prefix="crawlgate-acceptance-") as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        origin = Origin(folder / "origin.jsonl")
        try:
            _run(report, table, origin, arguments, folder)
        finally:
            origin.stop()
    return report.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--scrapy-python", default=sys.executable, help="a Python that has Scrapy")
    parser.add_argument("--keep", type=pathlib.Path, help="leave logs and downloads in this folder, which must be new or empty")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    arguments.keep = arguments.keep and arguments.keep.resolve()
    if arguments.keep and arguments.keep.exists() and any(arguments.keep.iterdir()):
        parser.error(f"{arguments.keep} is not empty")
    return arguments


def _run(report: Report, table: tables.Table, origin: Origin, arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    report.section("The site and its table")
    _site(report, table, origin)
    report.section("Commands that judge without a network")
    commands.run(report, arguments.binary, POLICY, table)

    gate = Gate(arguments.binary, POLICY, folder)
    prometheus = _prometheus(report, gate, folder)
    try:
        crawl = Crawl(report, origin, gate, table)
        _curl_phases(report, crawl, gate, origin, table, folder)
        _crawlers(report, crawl, gate, origin, table, arguments.scrapy_python, folder)
        report.section("Counters and logs over all crawls")
        crawl.totals()
        _scraped(report, prometheus, gate, crawl)
        report.section("Single exchanges")
        Singles(report, origin, gate, folder).run()
    finally:
        if prometheus:
            prometheus.stop()
        code = gate.stop()
    report.section("The end")
    report.equal("SIGTERM ends crawlgate in time, with exit code 0", code, 0)
    report.check("crawlgate's standard error has no panic", [line for line in gate.lines if "panicked" in line])


def _site(report: Report, table: tables.Table, origin: Origin) -> None:
    """Table and site are two files by two hands: they must speak of the same URLs."""
    pages = origin.site.pages
    report.check("the site has at least 200 pages on at least 6 hosts",
                 [] if len(pages) >= 200 and len(HOSTS) >= 6 else [f"{len(pages)} pages, {len(HOSTS)} hosts"], len(pages))
    arriving = [row for row in table.get.values() if row.origin]
    report.check("what arrives at the origin gets the status that the table says",
                 [f"{row.url}: the site says {origin.site.find(*row.origin).status}" for row in arriving if row.allowed
                  and origin.site.find(*row.origin).status != row.status], len(arriving))
    named = {row.url for row in table.get.values()} | {f"http://{host}{wire}" for host, wire in (row.origin for row in arriving)}
    report.check("every page of the site stands in the table",
                 [url for url in (f"http://{host}{target}" for host, target in pages) if url not in named
                  and "/broken/" not in url and not url.endswith("/robots.txt")], len(pages))


def _prometheus(report: Report, gate: Gate, folder: pathlib.Path) -> Prometheus | None:
    report.section("Prometheus")
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        report.missing("Prometheus scrapes the admin port", "prometheus")
        return None
    prometheus = Prometheus(f"127.0.0.1:{gate.admin_port}", folder / "prometheus")
    report.check("Prometheus is ready", [] if prometheus.ready() else ["not within 30 s"])
    return prometheus


def _curl_phases(report: Report, crawl: Crawl, gate: Gate, origin: Origin, table: tables.Table, folder: pathlib.Path) -> None:
    """Every URL of the table by GET and by HEAD on one kept connection, and one of each kind over HTTP/1.0."""
    if not shutil.which("curl"):
        report.missing("curl asks for every URL", "curl")
        return
    report.section("curl")
    rows = list(table.get.values())
    kinds = list({(row.verdict, row.stage, row.rule, row.reason, row.status): row for row in rows}.values())
    phases = [("curl", rows, (), "GET"), ("curl -I", rows, ("head",), "HEAD"), ("curl -0", kinds, ("http1.0",), "GET")]
    for number, (name, asked, options, method) in enumerate(phases):
        urls = [row.sent(origin.port) for row in asked]
        answers = clients.curl(gate.proxy, urls, folder / f"curl-{number}", options, method, name)
        for row, answer in zip(asked, answers):
            answer.url = row.url
        crawl.judge(name, answers, [row.url for row in asked])
        connects = sum(answer.connects for answer in answers)
        if "-0" in name:
            report.equal(f"{name}: each answer to HTTP/1.0 closes its connection", connects, len(answers))
        else:
            report.equal(f"{name}: all answers, refusals too, came over one kept connection", connects, 1)


def _crawlers(report: Report, crawl: Crawl, gate: Gate, origin: Origin, table: tables.Table, python: str,
              folder: pathlib.Path) -> None:
    start = origin.site.url(WWW, "/")
    linked = [row.url for row in table.get.values() if row.linked]
    report.section("wget -r")
    if shutil.which("wget"):
        crawl.judge("wget", clients.wget(gate.proxy, start, DOMAINS, folder / "wget"), linked, clients.wget_identity)
    else:
        report.missing("wget crawls the site", "wget")
    report.section("Scrapy")
    if subprocess.run([python, "-c", "import scrapy"], capture_output=True).returncode == 0:
        crawl.judge("Scrapy", clients.scrapy(gate.proxy, python, start, DOMAINS, folder / "scrapy"), linked)
    else:
        report.missing("Scrapy crawls the site", "Scrapy")
    report.section("urllib")
    plain = [row for row in table.get.values() if row.plain]
    answers = clients.urllib_all(gate.proxy, [row.sent(origin.port).decode() for row in plain])
    for row, answer in zip(plain, answers):
        answer.url = row.url
    crawl.judge("urllib", answers, [row.url for row in plain])


def _scraped(report: Report, prometheus: Prometheus | None, gate: Gate, crawl: Crawl) -> None:
    if not prometheus:
        return
    linted = subprocess.run(["promtool", "check", "metrics"], input=gate.metrics_text(), capture_output=True, timeout=60)
    said = (linted.stdout + linted.stderr).decode().splitlines()
    report.check("promtool check metrics has nothing to say", said or ([f"exit code {linted.returncode}"] if linted.returncode else []))
    expected = collections.Counter(crawl.tally.rules)
    query = "sum by (rule) (crawlgate_rule_decided_total)"
    wait_for(lambda: prometheus.query(query, "rule") == expected, 20, 0.5)
    report.check(f"Prometheus: {query} returns the counts of the crawls",
                 differences(prometheus.query(query, "rule"), expected), len(expected))
    report.equal("Prometheus: the target is up", prometheus.query('up{job="crawlgate"}', "job"), {"crawlgate": 1})


if __name__ == "__main__":
    sys.exit(main())
