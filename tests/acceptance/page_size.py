"""The admin page with 100,000 rules and 10,000 hosts: no view blocks the browser for longer than 100 ms.

    python3 tests/acceptance/page_size.py --node-modules FOLDER [--binary target/release/crawlgate] [--screenshots FOLDER]

In the folder `npm install playwright-core@1.65.1 axe-core@4.14.1` was run. `page_size.mjs` opens each view, types into its
filter and scrolls, while a crawl goes on. Exit code 1 if a check failed.
"""

from __future__ import annotations

import http.client
import pathlib
import sys
import tempfile
import threading

import page
from report import Report
from services import Gate, wait_for

RULES, HOSTS = 100_000, 10_000
THREADS = 4
# Once every host is visited, a crawl of a few hundred requests per second goes on: at full speed it would leave no processor
# for the browser.
PAUSE_SECONDS = 0.01
TOKEN = "size-0123456789abcdef"


def policy() -> str:
    """A rule for each of as many sites; every third is hit by the crawl."""
    rules = "\n".join(
        f"  - {{ id: site-{n}, forbid: {{ host: h{n}.size.test, under: /private }}, log: true }}" for n in range(RULES)
    )
    return (
        "policy: 1\nname: size\noptions:\n  disposition: allow\n"
        "  politeness: { delay: 0s, concurrency: 100, jitter: none }\n  robots: { obey: false }\n"
        f"rules:\n{rules}\n"
    )


class Crawl:
    """Four clients that go round the hosts: a page, and now and then one that is forbidden."""

    def __init__(self, proxy_port: int, site_port: int) -> None:
        self._proxy, self._site = proxy_port, site_port
        self._ends = threading.Event()
        self.visited, self.failed = 0, []
        self._threads = [threading.Thread(target=self._run, args=(first,)) for first in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _run(self, first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._proxy, timeout=30)
        number = first
        while not self._ends.is_set():
            host = f"h{number % HOSTS}.size.test"
            path = "/private/1" if number % 3 == 0 else f"/articles/{number}.html"
            connection.request("GET", f"http://{host}:{self._site}{path}")
            response = connection.getresponse()
            response.read()
            if response.status != (451 if number % 3 == 0 else 200):
                self.failed.append(f"{host}{path}: {response.status}")
            self.visited += 1
            number += THREADS
            if self.visited >= HOSTS:
                self._ends.wait(PAUSE_SECONDS)

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


def run(report: Report, arguments, folder: pathlib.Path) -> None:
    """Visits every host once, then opens the page while the crawl goes on."""
    report.section(f"The admin page with {RULES:,} rules and {HOSTS:,} hosts")
    server = page.serve()
    path, token = folder / "policy.yaml", folder / "token"
    path.write_text(policy(), encoding="utf-8")
    token.write_text(TOKEN, encoding="ascii")
    token.chmod(0o600)
    names = [f"h{n}.size.test" for n in range(HOSTS)]
    gate = Gate(arguments.binary, path, folder, page.settings(path, token, names))
    crawl = Crawl(gate.port, server.server_address[1])
    try:
        reached = wait_for(lambda: crawl.visited >= HOSTS, 120)
        report.check("every host is visited", [] if reached else [f"{crawl.visited} in two minutes"])
        given = {
            "admin": gate.admin,
            "hosts": [],
            "token": TOKEN,
            "home": str(folder / "browser"),
            "screenshots": str(arguments.screenshots or folder),
        }
        page.drive(report, "page_size.mjs", given, arguments.node_modules)
    finally:
        crawl.end()
        gate.stop()
        server.shutdown()
    report.check("the crawl went on meanwhile", crawl.failed[:5])


if __name__ == "__main__":
    sys.exit(page.main(run, __doc__))
