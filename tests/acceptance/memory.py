"""The ledger over the wire: Norconex's chart, and OmniFind's story of a crawl space that is divided.

    python3 tests/acceptance/memory.py [--binary target/release/crawlgate]

The story (seed 003): one crawler has crawled three hosts. Its space is then divided: one host stays its own, one goes to
a second crawler, one to nobody. The policy is reloaded, and the sweep is cut short by SIGKILL and goes on after the
restart. URLs that moved are 761 and in no removal order; those that nobody has any more are 760, each in exactly one.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import signal
import sys
import tempfile

import chart
from report import Report, differences
from services import Gate, by_labels, get, wait_for

HERE = pathlib.Path(__file__).resolve().parent

HOSTS = ("stays.crawl.test", "moves.crawl.test", "goes.crawl.test")
STAYS, MOVES, GOES = HOSTS
PAGES = 120
# The URLs per second of the sweep, low enough to interrupt it.
SWEEP_RATE = 60
OLD, NEW = "127.0.0.2", "127.0.0.3"

WHOLE = f"""\
policy: 1
name: whole
options: {{ disposition: allow, politeness: {{ delay: 0s, concurrency: 100, jitter: none }}, robots: {{ obey: false }} }}
spaces:
  - {{ name: all, crawlers: [old], rules: [{{ id: outside, require: {{ host: [{", ".join(HOSTS)}] }} }}] }}
"""
DIVIDED = f"""\
policy: 1
name: divided
options: {{ disposition: allow, politeness: {{ delay: 0s, concurrency: 100, jitter: none }}, robots: {{ obey: false }} }}
spaces:
  - {{ name: rest, crawlers: [old], rules: [{{ id: not-mine, require: {{ host: {STAYS} }} }}] }}
  - {{ name: part, crawlers: [new], rules: [{{ id: not-ours, require: {{ host: {MOVES} }} }}] }}
global_space: {{ rules: [{{ when: {{ host: [{STAYS}, {MOVES}] }}, then: allow }}] }}
"""


class Story:
    """The proxy, which is killed and restarted on its store, and the site."""

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path) -> None:
        self._binary, self._folder = binary, folder
        self.site = chart.Site()
        self.policy = folder / "policy.yaml"
        self.policy.write_text(WHOLE, encoding="utf-8")
        self.gate = self.start()

    def start(self) -> Gate:
        crawlers = [{"name": name, "sources": [f"{source}/32"]} for name, source in (("old", OLD), ("new", NEW))]
        settings = {
            "crawlers": crawlers,
            "store": {"path": str(self._folder / "store")},
            # A third of the URLs leaves the index.
            "ledger": {"sweep_rate": SWEEP_RATE, "removal_guard": {"hold": "50 %", "grace": "1s"}},
            "policy": {"path": str(self.policy), "watch": False},
            "egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": dict.fromkeys(HOSTS, "127.0.0.1")},
        }
        self.gate = Gate(self._binary, self.policy, self._folder, settings)
        return self.gate

    def kill(self) -> None:
        """SIGKILL."""
        self.gate._process.send_signal(signal.SIGKILL)
        self.gate._process.wait()

    def url(self, host: str, number: int) -> str:
        return f"http://{host}:{self.site.port}/page/{number}"

    def ask(self, source: str, host: str, number: int) -> tuple[int, str | None, str | None]:
        """Status, `Crawl-Status` and `Crawl-Code`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gate.port, timeout=20, source_address=(source, 0))
        connection.request("GET", self.url(host, number))
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers["Crawl-Status"], answer.headers["Crawl-Code"]

    def crawl(self, source: str, host: str) -> collections.Counter:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return collections.Counter(pool.map(lambda number: self.ask(source, host, number), range(PAGES)))

    def paged(self, path: str, key: str, after: str) -> list[dict]:
        """All entries of a list that is served page by page."""
        found: list[dict] = []
        position = after
        while True:
            joint = "&" if "?" in path else "?"
            begin = f"{joint}after={position}" if position else ""
            page = json.loads(get(f"{self.gate.admin}{path}{begin}")[1])
            found += page[key]
            if not page[key] or page["next"] is None:
                return found
            position = page["next"]

    def codes(self) -> collections.Counter:
        """How many records of the first crawler have which code, by host."""
        records = self.paged("/api/v1/urls?limit=100&crawler=old", "urls", "")
        return collections.Counter((record["url"].split("/")[2].split(":")[0], record["code"]) for record in records)

    def events(self, kind: str) -> collections.Counter:
        """The number of events of each URL in the feed."""
        return collections.Counter(event["url"] for event in self.paged(f"/api/v1/events?kind={kind}", "events", "0"))

    def waiting(self) -> int:
        """Changes that are not on the disk."""
        return json.loads(get(f"{self.gate.admin}/api/v1/ledger")[1])["queue"]

    def swept(self) -> dict:
        return json.loads(get(f"{self.gate.admin}/api/v1/ledger")[1])["sweep"]


def divided(report: Report, story: Story) -> None:
    """The story."""
    report.section("One crawler crawls everything")
    for host in HOSTS:
        report.equal(f"{host} is crawled", story.crawl(OLD, host), {(200, "ACCEPTED", None): PAGES})
    everything = {(host, None): PAGES for host in HOSTS}
    report.equal("the ledger has it all", wait_for(lambda: (c := story.codes()) == everything and c, 10), everything)

    # Records that are not on disk yet would be lost with the process.
    report.check("and it is on the disk", [] if wait_for(lambda: story.waiting() == 0, 10) else [str(story.waiting())])

    report.section("Its space is divided, and the sweep is cut short")
    story.policy.write_text(DIVIDED, encoding="utf-8")
    get(f"{story.gate.admin}/api/v1/reload", body=b"")
    looked = wait_for(lambda: story.swept()["looked_at"] >= SWEEP_RATE and story.swept(), 20)
    report.check("it had begun, and was not done", [] if looked and looked["state"] == "running" else [repr(looked)])
    story.kill()
    story.start()
    done = wait_for(lambda: (s := story.swept())["state"] == "done" and s, 30)
    report.check("it goes on after the restart, to its end", [] if done else [repr(story.swept())])

    report.section("What has become of the URLs")
    codes = {(STAYS, None): PAGES, (MOVES, 761): PAGES, (GOES, 760): PAGES}
    report.equal("those that moved are 761, those that nobody has 760", story.codes(), codes)
    once = {story.url(GOES, number): 1 for number in range(PAGES)}
    feed = lambda kind, wanted: differences(story.events(kind), wanted)
    wait_for(lambda: story.events("removal") == once, 20)
    report.check("each of the latter is in the removal feed exactly once, and no other", feed("removal", once), PAGES)
    moved = {story.url(MOVES, number): 1 for number in range(PAGES)}
    report.check("the others are told of as moved, once", feed("moved", moved), PAGES)
    wanted = {"ACCEPTED": PAGES, "REJECTED_FILTER": 2 * PAGES}
    counted = lambda: by_labels(story.gate.samples(), "crawlgate_ledger_urls", ("status",))
    wait_for(lambda: counted() == wanted, 10)
    report.equal("the metric has them", counted(), wanted)

    report.section("The crawlers go on")
    report.equal("what moved: keep", story.crawl(OLD, MOVES), {(451, "REJECTED_FILTER", "761"): PAGES})
    report.equal("what nobody has: gone", story.crawl(OLD, GOES), {(410, "REJECTED_FILTER", "760"): PAGES})
    report.equal("the second crawler has its part", story.crawl(NEW, MOVES), {(200, "ACCEPTED", None): PAGES})
    # A URL that the second crawler never had gets no code.
    report.equal("and nothing else", story.crawl(NEW, GOES), {(451, "REJECTED_FILTER", None): PAGES})
    report.check("still each removal once", feed("removal", once), PAGES)
    report.equal("and it ends well", story.gate.stop(), 0)
    story.start()
    report.check("still so after another restart", feed("removal", once) + differences(story.codes(), codes), PAGES)


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path) -> None:
    report.section("Norconex's chart, event by event")
    (folder / "chart").mkdir()
    policy = folder / "chart" / "policy.yaml"
    policy.write_text(chart.POLICY, encoding="utf-8")
    site = chart.Site()
    settings = {
        "store": {"path": str(folder / "chart" / "store")},
        "ledger": {"keep": "always"},
        "egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": {"chart.crawl.test": "127.0.0.1"}},
        # Its depth counts.
        "crawlers": [{"name": "chart", "sources": ["127.0.0.1/32"], "may": ["depth"]}],
    }
    gate = Gate(binary, policy, folder / "chart", settings)
    try:
        chart.walk(report, gate, site)
    finally:
        gate.stop()
    (folder / "story").mkdir()
    story = Story(binary, folder / "story")
    try:
        divided(report, story)
    finally:
        story.gate.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    args = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-memory-") as folder:
        run(report, args.binary.resolve(), pathlib.Path(folder))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
