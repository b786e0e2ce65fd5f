"""Several crawlers at once on the same hosts, with a delay: timed by the site's own clock.

Each client asks for the pages as fast as it can. What arrives at a host, the proxy's own fetch of robots.txt included,
must be apart by the delay, and each client must get each page.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import pathlib

import crawlers
from clients import Answer
from origin import Origin
from pages import DOCS, HOSTS, WWW
from report import Report
from services import Gate

# The policy's delay is 200 ms from head to head; the bytes need a moment to come.
LEAST = 0.195
PAGES = {
    WWW: [f"/news/{number}.html" for number in range(1, 11)],
    DOCS: [f"/guide/{number}.html" for number in range(1, 7)],
}


def run(
    report: Report,
    origin: Origin,
    binary: pathlib.Path,
    made: dict[str, str],
    folder: pathlib.Path,
    python: str,
    modules: pathlib.Path | None,
) -> None:
    report.section("Politeness: all clients at once, 200 ms apart")
    folder = folder / "politeness"
    folder.mkdir()
    politeness = {"delay": "200ms", "jitter": "1.0..1.0", "concurrency": 2}
    policy = {"policy": 1, "name": "polite", "options": {"disposition": "allow", "politeness": politeness}, "rules": []}
    (folder / "policy.yaml").write_text(json.dumps(policy), encoding="utf-8")
    settings = {"crawlers": crawlers.registrations(made), "egress": _egress()}
    gate = Gate(binary, folder / "policy.yaml", folder, settings)
    found = {
        name: client
        for name, client in crawlers.installed(python, modules, folder).items()
        if name in ("curl", "scrapy", "requests", "undici")
    }
    urls = [origin.site.url(host, path) for host, paths in PAGES.items() for path in paths]
    mark = len(origin.log.entries)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(found) or 1) as pool:
            running = {
                name: pool.submit(client, crawlers.proxy(gate, name), urls) for name, client in found.items()
            }
            answers = {name: future.result() for name, future in running.items()}
    finally:
        gate.stop()
    for name, got in answers.items():
        report.check(f"{name}: every page, held as long as it takes", _lost(origin, urls, got), len(urls))
    _gaps(report, origin.log.entries[mark:], len(found) * len(urls))


def _egress() -> dict:
    return {"allow_loopback": True, "ports": ["1-65535"], "hosts": HOSTS}


def _lost(origin: Origin, urls: list[str], answers: list[Answer]) -> list[str]:
    """Missing pages, and pages that differ from the site's."""
    got = {answer.url: answer for answer in answers}
    problems = [f"no answer to {url}" for url in urls if url not in got]
    for url, answer in got.items():
        host, _, path = url.removeprefix("http://").partition("/")
        page = origin.site.find(host.rsplit(":", 1)[0], f"/{path}")
        if (answer.status, answer.body) != (page.status, page.body):
            problems.append(f"{url}: {answer.status} {answer.error} {answer.body[:60]!r}")
    return problems


def _gaps(report: Report, entries: list[dict], least: int) -> None:
    """The gaps between consecutive requests to one host, of any crawler."""
    arrivals = collections.defaultdict(list)
    for entry in entries:
        arrivals[(entry["hosts"] or [""])[0]].append(entry["time"])
    gaps = [
        (later - earlier, host)
        for host, times in arrivals.items()
        for earlier, later in zip(sorted(times), sorted(times)[1:])
    ]
    close = [f"{host}: {1000 * gap:.1f} ms" for gap, host in gaps if gap < LEAST]
    shortest = min((gap for gap, _ in gaps), default=0)
    report.check(f"no two requests to a host less than 195 ms apart, the shortest {1000 * shortest:.1f}", close, len(gaps))
    report.check("all of them arrived", [] if len(entries) >= least else [f"{len(entries)} of {least}"], len(entries))
