"""The laws of pace on real sockets: three crawlers over 200 hosts for two minutes, each host at a delay of 50 ms.

    python3 tests/acceptance/paces.py [--binary target/release/crawlgate] [--seconds 120] [--http2]

The crawlers ask each host for one page after the other, as fast as they are let, and ignore Retry-After; now and then
one closes its connection while it is held. Every tenth host fails now and then: 500, 503 that asks for a second of rest,
a connection that is closed without an answer. Every five seconds the policy is reloaded.

What must hold at the origin, by the kernel's time of arrival: two requests to a host, the proxy's own fetch of robots.txt
included, are at least 45 ms apart (5 ms allowed), at most two are under way at once, and a host that has asked for rest
gets it. What must hold at the crawlers: every answer is a page, the origin's own failure, or a refusal with its reason
and Retry-After; and all three crawlers get the same. At the end no slot is left.

With `--http2` the origins speak HTTP/2 inside TLS, and a failure without an answer resets its stream. These are 40 hosts,
since the origin is written in Python. Then a crawler that speaks HTTP/2 holds 100 streams on one connection, and resets
half of them: no request of these may reach the origin.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import heapq
import multiprocessing
import pathlib
import random
import re
import selectors
import socket
import sys
import tempfile
import time

from arrivals import DOMAIN, FAILING, Log, Origin, too_close, woken
from authority import Authority
from origin_http2 import frames
from report import Report
from services import Gate, wait_for

HERE = pathlib.Path(__file__).resolve().parent

SECONDS = 120
CRAWLERS = 3
# The number of hosts by the scheme of their URLs.
HOSTS = {"http": 200, "https": 40}
DELAY, ALLOWED = 0.050, 0.005
CONCURRENCY = 2
# Streams that one connection holds, at a delay in which all of them arrive.
STREAMS = 100
STREAMS_DELAY = 0.200
# The mean of jitter 1.0..1.2, for the most requests that a host could receive.
JITTER = 1.1
RELOAD = 5.0
# The share of held requests that clients abandon.
LEAVES = 0.02
# After a refusal, whatever it says.
AGAIN = 0.2


def policy(version: int, delay: float = DELAY) -> str:
    """Another revision that says the same."""
    return (
        f"policy: 1\nname: paces\noptions:\n  disposition: allow\n"
        f"  politeness: {{ delay: {round(delay * 1000)}ms, jitter: 1.0..1.2, concurrency: {CONCURRENCY} }}\n"
        f"rules:\n  - {{ id: version-{version}, forbid: {{ path: /no }} }}\n"
    )


@dataclasses.dataclass
class Seen:
    """The responses to one crawler."""

    answers: collections.Counter
    problems: list[str]
    left: int
    longest: float


class _Crawler:
    """One connection for each host, one request at a time on each."""

    def __init__(self, number: int, proxy: int, scheme: str, origin: int, seconds: float) -> None:
        self._proxy, self._scheme, self._origin = proxy, scheme, origin
        self._number, self._random = number, random.Random(number)
        self._selector = selectors.EpollSelector()
        self._due: list[tuple[float, int, int]] = []
        self._end = time.monotonic() + seconds
        self._visits = [_Visit(host) for host in range(HOSTS[scheme])]
        self.seen = Seen(collections.Counter(), [], 0, 0.0)

    def run(self) -> Seen:
        for visit in self._visits:
            self._ask(visit)
        while (now := time.monotonic()) < self._end:
            pause = self._due[0][0] - now if self._due else 1.0
            for key, _ in self._selector.select(max(0.0, min(pause, 1.0))):
                self._read(key.data)
            while self._due and self._due[0][0] <= time.monotonic():
                _, host, turn = heapq.heappop(self._due)
                self._wake(self._visits[host], turn)
        for visit in self._visits:
            visit.close()
        return self.seen

    def _ask(self, visit: _Visit) -> None:
        if visit.socket is None:
            visit.socket = socket.create_connection(("127.0.0.1", self._proxy))
            visit.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            visit.socket.setblocking(False)
            self._selector.register(visit.socket, selectors.EVENT_READ, visit)
        visit.turn, visit.asked = visit.turn + 1, time.monotonic()
        authority = f"h{visit.host}.{DOMAIN}:{self._origin}"
        url = f"{self._scheme}://{authority}/{self._number}/{visit.turn}"
        visit.socket.send(f"GET {url} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: crawler{self._number}\r\n\r\n".encode())
        if self._random.random() < LEAVES:
            self._later(visit, self._random.random() * 2 * DELAY)

    def _later(self, visit: _Visit, pause: float) -> None:
        heapq.heappush(self._due, (time.monotonic() + pause, visit.host, visit.turn))

    def _wake(self, visit: _Visit, turn: int) -> None:
        """Leaves if the request is still held, and requests another page."""
        if visit.turn != turn:
            return
        if visit.asked is not None:
            self.seen.left += 1
            self._close(visit)
        self._ask(visit)

    def _close(self, visit: _Visit) -> None:
        self._selector.unregister(visit.socket)
        visit.close()

    def _read(self, visit: _Visit) -> None:
        try:
            data = visit.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            self.seen.problems.append(f"host {visit.host}: {error}")
        visit.data += data
        head, end, body = bytes(visit.data).partition(b"\r\n\r\n")
        if not data:
            self.seen.problems.append(f"host {visit.host}: closed behind {bytes(visit.data)!r}")
            self._close(visit)
            return self._ask(visit)
        length = re.search(rb"(?im)^content-length: *(\d+)", head)
        if not end or (length and len(body) < int(length[1])):
            return None
        visit.data.clear()
        self.seen.longest = max(self.seen.longest, time.monotonic() - visit.asked)
        visit.asked = None
        return self._judge(visit, head, body)

    def _judge(self, visit: _Visit, head: bytes, body: bytes) -> None:
        status = int(head[9:12])
        reason = re.search(rb"(?im)^crawl-reason: *(\S+)", head)
        reason = reason[1].decode() if reason else ""
        self.seen.answers[status, reason] += 1
        told = re.search(rb"(?im)^retry-after: *(\d+)", head)
        failing = visit.host % FAILING == 0
        fits = {
            (200, ""): body == b"ok\n",
            (500, ""): failing,
            (503, ""): failing,
            (502, "upstream_protocol"): failing,
            (503, "host_backoff"): failing and told is not None,
            (503, "rate_limited"): told is not None,
        }
        if not fits.get((status, reason), False):
            self.seen.problems.append(f"host {visit.host}: {head.decode(errors='replace')!r}")
        if status == 200:
            self._ask(visit)
        else:
            if b"connection: close" in head.lower():
                self._close(visit)
            self._later(visit, AGAIN)


@dataclasses.dataclass
class _Visit:
    host: int
    socket: socket.socket | None = None
    turn: int = 0
    asked: float | None = None
    data: bytearray = dataclasses.field(default_factory=bytearray)

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        self.socket, self.asked = None, None
        self.data.clear()


def _crawl(
    number: int, proxy: int, scheme: str, origin: int, seconds: float, results: multiprocessing.Queue
) -> None:
    results.put((number, _Crawler(number, proxy, scheme, origin, seconds).run()))


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path, seconds: int = SECONDS, scheme: str = "http") -> None:
    """The whole check, in an empty folder; origins of `https` speak HTTP/2."""
    hosts = HOSTS[scheme]
    report.section(f"Three crawlers over {hosts} hosts of {scheme} for {seconds} s, 50 ms apart")
    gate, origin = _start(binary, folder, seconds, scheme, policy(0))
    try:
        seen = _crawls(gate, origin, folder, seconds, scheme)
        quiet = wait_for(lambda: _left(gate) == (0, 0), 10)
        report.check("no slot and no place in a queue is left", [] if quiet else [f"{_left(gate)}"])
        reloads = gate.samples()["crawlgate_policy_reloads_total", frozenset({("result", "success")})]
    finally:
        code = gate.stop()
        log = origin.stop()
    _judge(report, log, seen, seconds, hosts)
    report.check("the policy was reloaded on the way", [] if reloads > seconds / RELOAD / 2 else [f"{reloads} times"])
    report.equal("SIGTERM ends crawlgate in time, with exit code 0", code, 0)


def _start(
    binary: pathlib.Path, folder: pathlib.Path, seed: int, scheme: str, text: str, more: dict | None = None
) -> tuple[Gate, Origin]:
    names = {f"h{number}.{DOMAIN}": "127.0.0.1" for number in range(HOSTS[scheme])}
    context, tls = None, {"intercept": False}
    if scheme == "https":
        authority = Authority(folder / "site")
        context = authority.context(names)
        context.set_alpn_protocols(["h2"])
        tls["extra_roots"] = [str(authority.cert)]
    origin = Origin(folder / "arrivals.bin", seed=seed, failures=0.06, context=context)
    (folder / "policy.yaml").write_text(text, encoding="utf-8")
    settings = {
        "egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": names},
        "tls": tls,
        "logs": {"decisions": "none"},
    }
    return Gate(binary, folder / "policy.yaml", folder, settings | (more or {})), origin


def _crawls(gate: Gate, origin: Origin, folder: pathlib.Path, seconds: int, scheme: str) -> dict[int, Seen]:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    arguments = (gate.port, scheme, origin.port, seconds, results)
    crawlers = [context.Process(target=_crawl, args=(number, *arguments), daemon=True) for number in range(CRAWLERS)]
    for crawler in crawlers:
        crawler.start()
    end, version = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, RELOAD))
        version += 1
        (folder / "next.yaml").write_text(policy(version), encoding="utf-8")
        (folder / "next.yaml").rename(folder / "policy.yaml")
        gate.hang_up()
    seen = dict(results.get(timeout=30) for _ in crawlers)
    for crawler in crawlers:
        crawler.join(10)
    return seen


def _left(gate: Gate) -> tuple[float, float]:
    samples = gate.samples()
    return samples["crawlgate_leases", frozenset()], samples["crawlgate_held_requests", frozenset()]


def _judge(report: Report, log: Log, seen: dict[int, Seen], seconds: int, hosts: int) -> None:
    close, gaps = too_close(log, DELAY - ALLOWED)
    shortest = 1000 * gaps[0] if gaps else 0
    report.check(f"no two requests to a host less than 45 ms apart, the shortest {shortest:.3f}", close, len(gaps))
    untimed = [f"{log.untimed} of {log.pages}"] if log.untimed > log.pages / 100 else []
    report.check(f"the time of nearly every arrival is known; {log.untimed} were read with a later one", untimed)
    crowded = [f"h{host}: {most}" for host, most in log.most.items() if most > CONCURRENCY]
    report.check("no host has more than two requests under way", crowded, len(log.most))
    full = [host for host, most in log.most.items() if most == CONCURRENCY]
    report.check("slow hosts have two", [] if len(full) >= hosts // FAILING else [f"{len(full)} of {hosts}"])
    complaints = sum(map(len, log.complaints.values()))
    report.check("a host that asks for rest gets it", woken(log, ALLOWED), complaints)
    problems = [f"crawler {number}: {problem}" for number, one in seen.items() for problem in one.problems]
    answers = sum((one.answers for one in seen.values()), collections.Counter())
    report.check("each answer is the origin's, or a refusal that says why and when", problems, answers.total())
    pages = [one.answers[200, ""] for one in seen.values()]
    uneven = [f"{pages}"] if min(pages) < 0.97 * max(pages) else []
    report.check("the three crawlers get the same", uneven, sum(pages))
    most = hosts * seconds / (DELAY * JITTER)
    got = 100 * log.pages / most
    report.check(f"the hosts receive what they allow: {got:.1f} %", [] if got > 70 else ["less than 70 %"])
    left, longest = sum(one.left for one in seen.values()), max(one.longest for one in seen.values())
    names = ", ".join(f"{status} {reason}".strip() + f": {count}" for (status, reason), count in sorted(answers.items()))
    report.check(f"{left} gave up while they were held, the longest wait {longest:.2f} s; {names}", [], left)


def run_streams(report: Report, binary: pathlib.Path, folder: pathlib.Path) -> None:
    """A connection of a crawler holds streams, and resets half of them before their turn."""
    report.section(f"{STREAMS} streams of one connection are held, {STREAMS // 2} are reset")
    gate, origin = _start(binary, folder, 1, "https", policy(0, STREAMS_DELAY), {"h2": {"prior_knowledge": True}})
    try:
        held, kept = _reset_half(gate, origin)
    finally:
        code = gate.stop()
        log = origin.stop()
    unanswered = [f"stream {number}: {stream.status}" for number, stream in kept.items() if stream.status != 200]
    report.check("each stream that was not reset has its page", unanswered, len(kept))
    report.equal("all were held when half of them were reset", held, STREAMS)
    report.equal("the origin received no page of the others", log.pages, len(kept))
    report.equal("SIGTERM ends crawlgate in time, with exit code 0", code, 0)


def _reset_half(gate: Gate, origin: Origin) -> tuple[float, dict[int, frames.Stream]]:
    """The number of requests that were held before, and the streams that are not reset: those whose turn comes first."""
    wire = frames.Wire(socket.create_connection(("127.0.0.1", gate.port)))
    wire.begin()
    numbers = range(1, 2 * STREAMS, 2)
    for number in numbers:
        wire.stream(number)
        wire.send(frames.head(number, frames.get(f"h2.{DOMAIN}:{origin.port}", f"/{number}")))
    held = 0.0

    def are_held() -> bool:
        nonlocal held
        held = max(held, _left(gate)[1])
        return held == STREAMS

    wait_for(are_held, 10, 0.005)
    cancel = frames.CODES.index("CANCEL").to_bytes(4, "big")
    for number in numbers[STREAMS // 2 :]:
        wire.send(frames.frame(frames.RST_STREAM, 0, number, cancel))
    kept = {number: wire.stream(number) for number in numbers[: STREAMS // 2]}
    wire.until(lambda: all(stream.ended for stream in kept.values()), 60)
    # Time for a page that should not be asked for.
    wire.rest(10 * STREAMS_DELAY)
    wire.close()
    return held, kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--http2", action="store_true", help="origins that speak HTTP/2")
    arguments = parser.parse_args()
    report, binary = Report(), arguments.binary.resolve()
    with tempfile.TemporaryDirectory(prefix="crawlgate-paces-") as name:
        folder = pathlib.Path(name)
        if not arguments.http2:
            run(report, binary, folder, arguments.seconds)
            return report.close()
        for part in ("crawls", "streams"):
            (folder / part).mkdir()
        run(report, binary, folder / "crawls", arguments.seconds, "https")
        run_streams(report, binary, folder / "streams")
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
