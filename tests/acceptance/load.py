"""The load on a fleet while something happens to it, and how fast those crawlers are that it does not concern."""

from __future__ import annotations

import bisect
import collections
import contextlib
import multiprocessing
import pathlib
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from arrivals import Origin, too_close
from nodes import ALLOWED, HOST_DELAY, HOSTS, LEASE, NODES, QUICK, Crawler, owners, serves, start_alone
from report import Report
from services import Gate

PAUSE = 0.1
# The seconds before a failure that it is compared with.
CALM = 5.0
LEAST = 0.95
# The entry of requests that no fleet has to do with.
ALONE = "alone"

# Entry and owner.
Pair = tuple[str, str]


class Bystander(Crawler):
    def __init__(self, node: Gate, url: str) -> None:
        super().__init__([node], 0, [url])
        self.times: list[float] = []

    def answered(self, answer: str) -> None:
        super().answered(answer)
        if answer == "200":
            self.times.append(time.monotonic())
        time.sleep(PAUSE)


class Bystanders:
    """Crawlers of hosts without a delay, in a process of their own: one for each entry and owner, and some at a proxy alone.

    Each asks for one page after another, 10 a second at most: the pause after an answer keeps the machine from being busy, and a
    request that waits shows, since meanwhile its crawler asks for nothing. The rate during a failure is compared with that of the
    seconds right before it, and the quotient with that of the proxy alone: a machine that is busier at that time slows down both.
    """

    def __init__(
        self, binary: pathlib.Path, folder: pathlib.Path, nodes: list[Gate], is_concerned: Callable[[Pair], bool]
    ) -> None:
        """`is_concerned`: whether the failure may delay requests of this entry and owner."""
        self._nodes, self._is_concerned = nodes, is_concerned
        self._hosts: dict[str, int] = {}
        for host, owner in owners(binary, folder, QUICK):
            self._hosts.setdefault(owner, host)
            if len(self._hosts) == len(NODES):
                break
        self._alone = start_alone(binary, folder)
        self._answers: dict[Pair, collections.Counter[str]] = {}
        self._times: dict[Pair, list[float]] = {}
        # Begin, failure, end.
        self._windows: list[tuple[float, float, float]] = []

    def start(self, origin: Origin) -> None:
        crawlers = {
            (entry, owner): Bystander(node, origin.url(host, "/page"))
            for entry, node in zip(NODES, self._nodes)
            for owner, host in self._hosts.items()
        }
        others = [host for host in QUICK if host not in self._hosts.values()]
        crawlers |= {(ALONE, name): Bystander(self._alone, origin.url(host, "/page")) for name, host in zip(NODES, others)}
        self._pipe, pipe = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=_crawl, args=(crawlers, pipe), daemon=True)
        self._process.start()

    @contextlib.contextmanager
    def failure(self) -> Iterator[None]:
        """A failure and its consequences."""
        begin = time.monotonic()
        time.sleep(CALM)
        failure = time.monotonic()
        yield
        self._windows.append((begin, failure, time.monotonic()))

    def stop(self) -> None:
        self._pipe.send(None)
        self._answers, self._times = self._pipe.recv()
        self._process.join(10)
        self._alone.stop()

    def check(self, report: Report) -> dict[Pair, collections.Counter[str]]:
        """Reports on those that are not concerned; returns the answers of the others."""
        pairs = [pair for pair in self._answers if pair[0] != ALONE]
        others = [pair for pair in pairs if not self._is_concerned(pair)]
        if others:
            total = sum((self._answers[pair] for pair in others), collections.Counter())
            wrong = [f"{count} × {answer}" for answer, count in total.items() if answer != "200"]
            title = f"what is not concerned gets pages ({len(others)} of {len(pairs)} entries and owners)"
            report.check(title, wrong, total.total())
            self._check_rate(report, others)
        return {pair: self._answers[pair] for pair in pairs if pair not in others}

    def _check_rate(self, report: Report, others: list[Pair]) -> None:
        alone = [pair for pair in self._answers if pair[0] == ALONE]
        calm = sum(self._count(pair, begin, failure) for pair in others for begin, failure, _ in self._windows)
        seconds = sum(failure - begin for begin, failure, _ in self._windows)
        share, of_alone = (self._share(pairs, self._windows) for pairs in (others, alone))
        each = sorted(self._share(others, [window]) / self._share(alone, [window]) for window in self._windows)
        print(
            f"        {calm / seconds:.0f} requests a second before the failures, {100 * share:.1f} % of that during them, "
            f"a proxy alone {100 * of_alone:.1f} %; the quotient of the worst {100 * each[0]:.1f} %, "
            f"of the median {100 * each[len(each) // 2]:.1f} %",
            flush=True,
        )
        slow = [] if share / of_alone >= LEAST else [f"{100 * share / of_alone:.1f} %"]
        report.check(f"and keeps above 95 % of its rate: {100 * share / of_alone:.1f} %", slow, len(each))

    def _share(self, pairs: list[Pair], windows: list[tuple[float, float, float]]) -> float:
        """The rate during failures, as a share of that before."""
        before = sum(self._count(pair, begin, failure) for pair in pairs for begin, failure, _ in windows)
        during = sum(self._count(pair, failure, end) for pair in pairs for _, failure, end in windows)
        calm, failing = (sum(window[at + 1] - window[at] for window in windows) for at in (0, 1))
        return (during / failing) / (before / calm)

    def _count(self, pair: Pair, begin: float, end: float) -> int:
        times = self._times[pair]
        return bisect.bisect_left(times, end) - bisect.bisect_left(times, begin)


def _crawl(crawlers: dict[Pair, Bystander], pipe: Connection) -> None:
    for crawler in crawlers.values():
        crawler.start()
    pipe.recv()
    for crawler in crawlers.values():
        crawler.finish()
    answers = {pair: crawler.stop() for pair, crawler in crawlers.items()}
    pipe.send((answers, {pair: crawler.times for pair, crawler in crawlers.items()}))


def busy_crawlers(nodes: list[Gate], urls: list[str]) -> list[Crawler]:
    """Five crawlers for each node, which begin with different hosts."""
    starts = range(0, len(urls), 6)
    return [Crawler(nodes, at, urls[start:] + urls[:start]) for at in range(len(nodes)) for start in starts]


def under_load(
    report: Report,
    title: str,
    nodes: list[Gate],
    folder: pathlib.Path,
    disturb: Callable[[], None],
    bystanders: Bystanders | None = None,
) -> list[collections.Counter]:
    """Asks thirty hosts through the nodes while something happens; returns the answers by node."""
    report.section(title)
    origin = Origin(folder / title.replace(" ", "-"), 1, 0.0)
    urls = [origin.url(number, "/page") for number in range(HOSTS)]
    crawlers = busy_crawlers(nodes, urls)
    if bystanders:
        bystanders.start(origin)
    for crawler in crawlers:
        crawler.start()
    time.sleep(5)
    disturb()
    time.sleep(4 * LEASE)
    served = [url for url in urls if not serves(nodes[-1], url)]
    report.check("every host is served again", served, len(urls))
    answers = [crawler.stop() for crawler in crawlers]
    if bystanders:
        bystanders.stop()
    log = origin.stop()
    for host in QUICK:
        log.arrivals.pop(host, None)
        log.most.pop(host, None)
    short, gaps = too_close(log, HOST_DELAY - ALLOWED)
    report.check("no gap is too short", short, len(gaps))
    many = [f"h{host}: {most} at once" for host, most in log.most.items() if most > 1]
    report.check("no host has two requests at once", many, len(log.most))
    per_node = len(crawlers) // len(nodes)
    return [sum(answers[at : at + per_node], collections.Counter()) for at in range(0, len(answers), per_node)]


def compare(report: Report, who: str, answers: list[collections.Counter], allowed: set[str]) -> None:
    total = sum(answers, collections.Counter())
    print(f"        {who}: {', '.join(f'{count} × {answer}' for answer, count in total.most_common())}", flush=True)
    wrong = [f"{count} × {answer}" for answer, count in total.items() if answer not in {"200", *allowed}]
    named = " or ".join(sorted(allowed)) or "nothing else"
    report.check(f"{who} get pages, or {named}", wrong, total.total())
