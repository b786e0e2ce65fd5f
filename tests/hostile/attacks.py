"""Each attack of a table against a running proxy, with a bound for what it may cost and for how long.

    python3 tests/hostile/attacks.py [--binary target/release/crawlgate] [--row NAME …] [--table]
                                     [--peer squid|mitmproxy]

Each row starts a proxy of its own, measures a healthy client on another host while it is quiet, and again during the
attack. Its p99 may double, or reach 50 ms; /healthz must answer within a second; memory and descriptors must come back;
and where a time-out is due, the attacked requests must have ended by then. Rows that need little of the processor run
side by side. With --peer another proxy gets the rows that make sense for any proxy; its figures are for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "acceptance"))

import floods  # noqa: E402
import hostile  # noqa: E402
import peers  # noqa: E402
import servers  # noqa: E402
from hostile import Call, call, crowd, get, tally  # noqa: E402
from authority import Authority  # noqa: E402
from report import Report  # noqa: E402
from services import Gate, parse, wait_for  # noqa: E402

# The hosts: every address of loopback leads to an origin.
GOOD, EVIL, POLITE, QUEUE = "127.0.3.1", "127.0.3.2", "127.0.3.3", "127.0.3.4"
# The time-outs of the proxy, in seconds; the bound of a row is the one that is due, and a tenth.
HEAD, RESPONSE_HEAD, REQUEST, TLS, IDLE, STALL = 2, 2, 4, 2, 3, 3
HEAD_BOUND, RESPONSE_HEAD_BOUND, REQUEST_BOUND = 1.1 * HEAD, 1.1 * RESPONSE_HEAD, 1.1 * REQUEST
# A proxy reads on for a while after it has refused an upload, so that no reset destroys its response.
LINGER = 1
# Idle connections are checked four times per interval.
IDLE_BOUND = 1.25 * IDLE
# A tunnel waits for its first bytes, then for the rest of the handshake.
TLS_BOUND = 1.1 * (TLS + TLS)

# How long the quiet client is measured, and a short attack repeated; how long after it memory is read.
QUIET, WAVES, REST = 1.0, 1.5, 4.5
FLOOR = 0.050
HEALTH_BOUND = 1.0
# Connections to origins that wait for reuse.
POOLED = 12
# Rows that run side by side: not more than this, so that their watches do not disturb one another.
SIDE_BY_SIDE = 8
ATTEMPTS = 3
MB = 1_000_000

POLICY = f"""\
policy: 1
name: attacked
options: {{ disposition: allow, robots: {{ obey: false }},
  politeness: {{ delay: 0s, concurrency: 1000, jitter: none }} }}
rules:
  - {{ id: polite, when: {{ host: {POLITE} }}, set: {{ politeness: {{ delay: 100ms, concurrency: 2 }} }} }}
  - {{ id: stripped, when: {{ path: [/bomb, /barren] }}, set: {{ follow: false, enforce_follow: strip }} }}
  - {{ id: queue, when: {{ host: {QUEUE} }}, set: {{ politeness: {{ delay: 100ms, concurrency: 2, max_hold: 2s }} }} }}
"""


@dataclasses.dataclass(frozen=True)
class Target:
    """The proxy under attack, and the origin that helps the attacker."""

    pid: int
    port: int
    admin_port: int
    evil_port: int
    # The same origin over TLS.
    secure_port: int
    folder: pathlib.Path

    def url(self, path: str, host: str = EVIL) -> str:
        return f"http://{host}:{self.evil_port}{path}"

    def samples(self) -> dict:
        return parse(hostile.admin(self.admin_port, "/metrics")[1].decode())

    def ready(self) -> str:
        return hostile.admin(self.admin_port, "/readyz")[1].decode()


@dataclasses.dataclass
class Found:
    """The outcome of an attack: how the attacker's connections ended, and what else was wrong."""

    outcomes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    # When the last attacked request ended, from its beginning.
    last_end: float = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    # The end of the measurement, if the row goes on to end the proxy.
    until: float | None = None

    @classmethod
    def of(cls, calls: list[Call]) -> Found:
        return cls(tally(calls), max((one.seconds for one in calls), default=0))

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


# A preparation returns settings and lines of shell that run before the proxy, or why the row cannot run.
Preparation = Callable[[pathlib.Path, pathlib.Path], tuple[dict, str] | str]


@dataclasses.dataclass(frozen=True)
class Row:
    """An attack. Memory is in MB above that at the start: at the peak, and after a rest."""

    name: str
    what: str
    attack: Callable[[Target], Found]
    ends: float | None = None
    peak: int = 25
    after: int = 15
    # The rest in seconds, if it is longer than that of other rows.
    rest: float = 0.0
    # It keeps a processor busy: no other row runs beside it.
    busy: bool = False
    any_proxy: bool = False
    settings: dict = dataclasses.field(default_factory=dict)
    prepare: Preparation | None = None


# --- Origins ----------------------------------------------------------------------------------------------------------


def of_origin(path: str, limit: float, target: Target) -> Found:
    """Requests for a response that has no end, again if they end at once. Each has a host of its own, since one that
    fails is given a rest."""

    def four(wave: int) -> list:
        hosts = [f"127.0.{10 + wave}.{n}" for n in range(1, 5)]
        return [call(target.port, get(target.url(path, host)), limit=limit) for host in hosts]

    return Found.of(_waves(four))


def _waves(calls: Callable[[int], list]) -> list[Call]:
    """Repeats the calls until a healthy client has been measured for long enough."""
    end = time.monotonic() + WAVES
    done: list[Call] = []
    for number in itertools.count():
        done += asyncio.run(crowd(calls(number)))
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    return done


def origin_row(path: str, what: str, ends: float, busy: bool = False) -> Row:
    attack = functools.partial(of_origin, path, ends + 2.5)
    return Row(path.strip("/"), what, attack, ends, busy=busy, any_proxy=True)


# --- Clients ----------------------------------------------------------------------------------------------------------


def crowded(
    count: int, opening: Callable[[Target, int], bytes], target: Target, *, at_once: int = 200, sources: int = 5, **how
) -> Found:
    """Many connections that begin with these bytes."""
    calls = [call(target.port, opening(target, n), source=10 + n % sources, **how) for n in range(count)]
    return Found.of(asyncio.run(crowd(calls, at_once)))


def _nothing(*_) -> bytes:
    return b""


def _half_head(target: Target, _: int) -> bytes:
    return f"GET {target.url('/')} HTTP/1.1\r\nHost: {EVIL}:{target.evil_port}\r\nX-Slow: ".encode()


def _post(target: Target, _: int = 0, host: str = EVIL) -> bytes:
    return get(target.url("/", host), "Content-Length: 100000", method="POST")


def _chunked_post(target: Target, _: int) -> bytes:
    return get(target.url("/"), "Transfer-Encoding: chunked", method="POST")


def _connect(target: Target, number: int) -> bytes:
    name = f"h{number}.evil.test:{target.evil_port}"
    return f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()


def _hello(name: str) -> bytes:
    """A ClientHello for this host."""
    outgoing = ssl.MemoryBIO()
    secure = _HELLO_CONTEXT.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        secure.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


_HELLO_CONTEXT = ssl.create_default_context()


def _part_of_a_hello(target: Target, number: int) -> bytes:
    return _connect(target, number) + b"\x16\x03\x01\x02\x00\x01"


def _whole_hello(target: Target, number: int) -> bytes:
    return _connect(target, number) + _hello(f"h{number}.evil.test")


def header_bombs(target: Target) -> Found:
    fields = get(target.url("/"), *["X-Field: a"] * 20_000)
    long = get(target.url("/"), "X-Field: " + "a" * 2 * MB)
    found = Found.of(_waves(lambda _: [call(target.port, (fields, long)[n % 2], limit=5) for n in range(20)]))
    found.expect(not any(outcome.startswith("200") for outcome in found.outcomes), "a bomb was forwarded")
    return found


def queue_flood(target: Target) -> Found:
    request = get(target.url("/", QUEUE))
    calls = [call(target.port, request, limit=8, source=10 + n % 5) for n in range(2500)]
    found = Found.of(asyncio.run(crowd(calls, 500)))
    found.expect(found.outcomes["503 queue_full"] > 0, "the queue has no bound")
    unanswered = found.outcomes["open"] + found.outcomes["closed"]
    found.expect(unanswered == 0, f"{unanswered} got no answer")
    return found


def certificate_flood(target: Target) -> Found:
    found = crowded(1000, _whole_hello, target, at_once=40, sources=1, limit=2)
    found.expect(found.outcomes["200"] > 0, "no tunnel was opened")
    return found


def many_hosts(target: Target) -> Found:
    hosts = [f"127.{10 + n // 250}.{n % 250}.9" for n in range(2500)]
    calls = [call(target.port, get(target.url("/close/", host)), source=10 + n % 5) for n, host in enumerate(hosts)]
    found = Found.of(asyncio.run(crowd(calls, 100)))
    found.expect(found.outcomes["200"] == len(hosts), f"{found.outcomes} of {len(hosts)} hosts")
    return found


def vanishing_clients(target: Target) -> Found:
    dice = random.Random(1)
    paths = ("/size/1000000", "/pause/0.5", "/body-drip", "/silence")
    calls = [
        call(target.port, get(target.url(paths[n % 4])), source=10 + n % 5, leave=dice.random() / 10)
        for n in range(1500)
    ]
    found = Found.of(asyncio.run(crowd(calls, 60)))
    _expect_rest(found, target)
    return found


def _expect_rest(found: Found, target: Target) -> None:
    """Nothing of the attack is left in the proxy; the watch is the one client. Gauges are updated every few seconds."""
    names = ("crawlgate_held_requests", "crawlgate_leases", "crawlgate_tunnels")

    def held() -> dict[str, float]:
        samples = target.samples()
        return {name: count for name in names if (count := samples[name, frozenset()]) > 1}

    wait_for(lambda: not held(), 8)
    found.expect(not held(), f"left behind: {held()}")


def admin_half_open(target: Target) -> Found:
    calls = [call(target.admin_port, b"GET /healthz HT", limit=4, source=10) for _ in range(400)]
    return Found.of(asyncio.run(crowd(calls)))


def few_descriptors(target: Target) -> Found:
    """More idle connections than the proxy can have; a new client must get an answer all the same."""

    async def flood() -> tuple[list[Call], Call]:
        idle = asyncio.create_task(crowd([call(target.port, b"", limit=3, source=10) for _ in range(300)]))
        await asyncio.sleep(1)
        late = await call(target.port, get(target.url("/")), limit=1.5, source=20)
        return await idle, late

    calls, late = asyncio.run(flood())
    found = Found.of(calls)
    found.expect(late.status in (200, 503), f"a new client got {late.outcome()} after {late.seconds:.1f} s")
    return found


# --- Passwords --------------------------------------------------------------------------------------------------------


def _credentials(user: str, word: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()


def _guess(target: Target, number: int) -> bytes:
    return get(target.url("/"), _credentials("news", f"guess-{number}"))


def wrong_passwords(target: Target) -> Found:
    found = crowded(20, _guess, target, at_once=2, sources=5, limit=6)
    found.expect("200" not in found.outcomes, "a wrong password was accepted")
    return found


def right_passwords(target: Target) -> Found:
    """Wrong passwords from 200 addresses; one crawler is known from their network, one comes new from another."""
    known, new = (get(target.url("/"), _credentials(user, "right")) for user in ("news", "shop"))
    first, _ = hostile.exchange(target.port, known, source="127.0.0.9")
    results: collections.Counter[str] = collections.Counter()

    async def flood() -> list[Call]:
        guesses = asyncio.create_task(
            crowd([call(target.port, _guess(target, n), source=10 + n % 200, limit=4) for n in range(2000)], 100)
        )
        while not guesses.done():
            await asyncio.sleep(0.25)
            loop = asyncio.get_running_loop()
            for name, request, source in (("known", known, "127.0.0.9"), ("new", new, "127.9.9.9")):
                status, _ = await loop.run_in_executor(None, hostile.exchange, target.port, request, 8, source)
                results[f"{name} {status}"] += 1
        return await guesses

    found = Found.of(asyncio.run(flood()))
    found.expect(first == 200, f"before the flood the right password got {first}")
    wrong = {name: count for name, count in results.items() if not name.endswith(" 200")}
    found.expect(not wrong, f"right passwords got {wrong} of {sum(results.values())}")
    return found


# --- Slots ------------------------------------------------------------------------------------------------------------


def dripping_posts(begin: int, target: Target) -> Found:
    """Two uploads that drip, after so many bytes, on a host with two slots; then three others want a page of it."""

    async def attack() -> tuple[list[Call], list[Call]]:
        opening = _post(target, host=POLITE) + b"a" * begin
        posts = asyncio.create_task(crowd([call(target.port, opening, drip=b"a", pause=0.2, limit=15) for _ in "ab"]))
        await asyncio.sleep(1)
        request = get(target.url("/", POLITE))
        victims = await crowd([call(target.port, request, limit=13, source=20) for _ in "abc"])
        posts.cancel()
        return victims, []

    victims, _ = asyncio.run(attack())
    found = Found.of(victims)
    found.expect(found.outcomes["200"] == 3, f"the victims got {dict(found.outcomes)}")
    return found


# --- Operators --------------------------------------------------------------------------------------------------------


def hanging_reload(target: Target) -> Found:
    """The policy becomes a pipe that nobody writes to, is repaired, becomes a pipe again; then SIGTERM, twice."""
    found, policy = Found(), target.folder / "policy.yaml"

    def hang() -> None:
        os.mkfifo(target.folder / "pipe")
        (target.folder / "pipe").rename(policy)
        os.kill(target.pid, signal.SIGHUP)

    hang()
    seen = wait_for(lambda: "ok policy" not in target.ready(), 4)
    found.expect(seen, "/readyz does not report the reload that hangs")
    (target.folder / "new").write_text(POLICY.replace("attacked", "repaired"), encoding="utf-8")
    (target.folder / "new").rename(policy)
    os.kill(target.pid, signal.SIGHUP)
    active = wait_for(lambda: b"repaired" in hostile.admin(target.admin_port, "/api/v1/policy", 2)[1], 4)
    found.expect(active, "the repaired policy does not become active")
    hang()
    time.sleep(0.5)
    found.until = time.monotonic()
    held = threading.Thread(target=hostile.exchange, args=(target.port, get(target.url("/silence")), 8), daemon=True)
    held.start()
    time.sleep(0.3)
    for _ in range(2):
        os.kill(target.pid, signal.SIGTERM)
        time.sleep(0.2)
    begin = time.monotonic()
    ended = wait_for(lambda: not hostile.is_running(target.pid), 5, 0.01)
    found.last_end = time.monotonic() - begin
    found.expect(ended, "alive 5 s after the second SIGTERM")
    return found


def full_log(target: Target) -> Found:
    _fill(target)
    found = _requests(target, 1500)
    dropped = target.samples().get(("crawlgate_decision_log_dropped_total", frozenset()), 0)
    found.expect(dropped > 0, "no line was lost, so the disk was not full")
    log = target.folder / "small" / "decisions.jsonl"
    os.truncate(log, 0)
    time.sleep(0.5)
    found.outcomes += _requests(target, 50).outcomes
    found.expect(found.outcomes["200"] == 1550, f"the requests got {dict(found.outcomes)}")
    found.expect(wait_for(lambda: b"127.0.3.2" in log.read_bytes(), 3), "no line is written when there is room again")
    return found


def full_ledger(target: Target) -> Found:
    _fill(target)
    found = _requests(target, 1500)
    seen = wait_for(lambda: "warn ledger" in target.ready(), 4)
    found.expect(seen, "/readyz does not warn: " + target.ready().replace("\n", ", "))
    (target.folder / "small" / "ballast").unlink()
    found.expect(wait_for(lambda: "warn ledger" not in target.ready(), 6), "/readyz still warns when there is room again")
    found.outcomes += _requests(target, 50).outcomes
    found.expect(found.outcomes["200"] == 1550, f"the requests got {dict(found.outcomes)}")
    return found


def _fill(target: Target) -> None:
    """Takes all room of the small disk."""
    with contextlib.suppress(OSError), (target.folder / "small" / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


def _requests(target: Target, count: int) -> Found:
    """Requests for as many URLs."""
    calls = [call(target.port, get(target.url(f"/page/{time.monotonic_ns()}/{n}"))) for n in range(count)]
    return Found.of(asyncio.run(crowd(calls, 100)))


def clock_jump(target: Target) -> Found:
    """The wall clock jumps by eight days, and back by four: the certificate of a host must be one of that day."""
    found = Found()
    for days in (0, 8, 4):
        (target.folder / "clock").write_text(f"{days * 86400:+d}", encoding="ascii")
        time.sleep(1.5)
        leaf = _leaf(target, "clock.evil.test")
        at = int(time.time()) + days * 86400
        command = ["openssl", "verify", "-attime", str(at), "-CAfile", str(target.folder / "ca.pem")]
        done = subprocess.run(command, input=leaf, capture_output=True, text=True, timeout=10)
        problem = (done.stdout + done.stderr).strip().replace("\n", " ")[-120:]
        found.expect(done.returncode == 0, f"after {days:+} days: {problem}")
        found.outcomes["valid" if done.returncode == 0 else "not valid"] += 1
    return found


def _leaf(target: Target, name: str) -> str:
    """The certificate that the proxy shows for a host, in PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", target.port), 5) as connection:
        connection.sendall(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n".encode())
        connection.recv(4096)
        with context.wrap_socket(connection, server_hostname=name) as secure:
            return ssl.DER_cert_to_PEM_cert(secure.getpeercert(True) or b"")


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------


def flooded(flood: Callable[[floods.Place], floods.Outcome], host: str, target: Target) -> Found:
    place = floods.Place(target.port, target.folder / "ca.pem", f"{host}:{target.secure_port}")
    outcome = flood(place)
    found = Found(outcome.ends, outcome.last_end, outcome.problems)
    _expect_rest(found, target)
    return found


def flood_row(
    flood: Callable[[floods.Place], floods.Outcome], ends: float | None = None, host: str = EVIL, **bounds: int
) -> Row:
    """A row of HTTP/2 frames; what it does is the first sentence of the flood's comment."""
    what = " ".join((flood.__doc__ or "").split()).rstrip(".")
    attack = functools.partial(flooded, flood, host)
    return Row("h2-" + flood.__name__.replace("_", "-"), what, attack, ends, busy=True, **{"peak": 40, **bounds})


# --- Preparations -----------------------------------------------------------------------------------------------------


def passwords(binary: pathlib.Path, _: pathlib.Path) -> tuple[dict, str] | str:
    """Two crawlers, both with the password `right`."""
    command = [binary, "password"]
    made = subprocess.run(command, input="right", capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    crawlers = [{"name": name, "auth": {"user": name, "password_hash": made}} for name in ("news", "shop")]
    return {"crawlers": crawlers}, ""


def descriptor_limit(_: pathlib.Path, __: pathlib.Path) -> tuple[dict, str] | str:
    return {}, "ulimit -n 128"


def fake_clock(_: pathlib.Path, folder: pathlib.Path) -> tuple[dict, str] | str:
    libraries = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        return "libfaketime"
    file = folder / "clock"
    file.write_text("+0", encoding="ascii")
    values = {
        "LD_PRELOAD": libraries[0],
        "FAKETIME_TIMESTAMP_FILE": file,
        "FAKETIME_NO_CACHE": 1,
        "DONT_FAKE_MONOTONIC": 1,
    }
    return {}, "export " + " ".join(f"{name}={value}" for name, value in values.items())


def _small_disk(folder: pathlib.Path, size: str) -> pathlib.Path | str:
    if os.geteuid() != 0:
        return "a tmpfs (it takes root), which"
    small = folder / "small"
    small.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)], capture_output=True)
    return small if done.returncode == 0 else "a tmpfs (mount fails here), which"


def small_log_disk(_: pathlib.Path, folder: pathlib.Path) -> tuple[dict, str] | str:
    small = _small_disk(folder, "256k")
    if isinstance(small, str):
        return small
    return {"logs": {"decisions": str(small / "decisions.jsonl"), "on_full": "drop"}}, ""


def small_ledger_disk(_: pathlib.Path, folder: pathlib.Path) -> tuple[dict, str] | str:
    small = _small_disk(folder, "8m")
    if isinstance(small, str):
        return small
    return {"store": {"path": str(small / "store")}, "ledger": {"keep": "always", "on_full": "drop"}}, ""


ROWS = [
    origin_row("/endless-100", "an origin that answers with 100 Continue for ever", RESPONSE_HEAD_BOUND, busy=True),
    origin_row("/endless-103", "an origin that answers with 103 Early Hints for ever", RESPONSE_HEAD_BOUND, busy=True),
    origin_row("/slow-103", "a 103 each 0.2 s, and never a final response", RESPONSE_HEAD_BOUND),
    origin_row("/head-drip", "a response head that drips", RESPONSE_HEAD_BOUND),
    origin_row("/silence", "an origin that accepts and never answers", RESPONSE_HEAD_BOUND),
    origin_row("/endless-line", "a header line without an end", RESPONSE_HEAD_BOUND, busy=True),
    origin_row("/endless-fields", "header fields without an end", RESPONSE_HEAD_BOUND, busy=True),
    origin_row("/tiny-chunks", "a body of endless chunks of one byte", REQUEST_BOUND, busy=True),
    origin_row("/chunk-zeros", "a chunk size of endless zeros", REQUEST_BOUND, busy=True),
    origin_row("/chunk-extension", "a chunk extension without an end", REQUEST_BOUND, busy=True),
    origin_row("/endless-trailers", "trailers without an end", REQUEST_BOUND, busy=True),
    origin_row("/body-drip", "a body that drips", REQUEST_BOUND),
    Row(
        "bomb",
        "compressed documents of 8 MB that the proxy rewrites",
        functools.partial(of_origin, "/bomb", 8),
        # The parser may take 16 MiB for open elements, in each of eight documents. They return to the system two sweeps,
        # of two seconds each, after the last step of the last of them; what that one frees later may stay.
        peak=160,
        after=30,
        rest=8.0,
        busy=True,
    ),
    Row(
        "barren",
        "compressed documents of 250 kB that decode to nothing",
        functools.partial(of_origin, "/barren", 8),
        busy=True,
    ),
    Row(
        "slow-heads",
        "1,000 request heads that drip",
        functools.partial(crowded, 1000, _half_head, drip=b"a", pause=0.5, limit=HEAD_BOUND + 2),
        HEAD_BOUND,
        peak=60,
        busy=True,
        any_proxy=True,
    ),
    Row(
        "slow-bodies",
        "500 uploads that drip",
        functools.partial(crowded, 500, _post, drip=b"a", pause=0.5, limit=REQUEST_BOUND + 2),
        REQUEST_BOUND,
        peak=60,
        any_proxy=True,
    ),
    Row(
        "tiny-upload-chunks",
        "four uploads of endless chunks of one byte",
        functools.partial(crowded, 4, _chunked_post, drip=b"1\r\na\r\n" * 5000, limit=REQUEST_BOUND + 2),
        REQUEST_BOUND + LINGER,
        busy=True,
        any_proxy=True,
    ),
    Row(
        "slow-hellos",
        "500 tunnels whose TLS handshake drips",
        functools.partial(crowded, 500, _part_of_a_hello, drip=b"a", pause=0.5, limit=TLS_BOUND + 2),
        TLS_BOUND,
        peak=60,
    ),
    Row(
        "idle-connections",
        "2,000 connections that send nothing",
        functools.partial(crowded, 2000, _nothing, at_once=400, limit=IDLE_BOUND + 2),
        IDLE_BOUND,
        peak=60,
        busy=True,
        any_proxy=True,
    ),
    Row(
        "connect-flood",
        "3,000 CONNECT requests to as many hosts",
        functools.partial(crowded, 3000, _connect, at_once=150, leave=0.3),
        peak=60,
        busy=True,
    ),
    Row("header-bombs", "heads with 20,000 fields, or a field of 2 MB", header_bombs, 6, busy=True, any_proxy=True),
    Row("queue-flood", "2,500 requests at once for a host with two slots", queue_flood, peak=80, busy=True),
    Row("certificate-flood", "1,000 TLS handshakes for as many hosts", certificate_flood, peak=80, after=40, busy=True),
    Row("many-hosts", "2,500 hosts in a few seconds", many_hosts, peak=60, after=30, busy=True),
    Row("vanishing-clients", "1,500 clients that reset their connections", vanishing_clients, peak=60, busy=True),
    Row("wrong-passwords", "20 wrong passwords", wrong_passwords, peak=60, after=60, prepare=passwords),
    Row(
        "right-passwords",
        "2,000 wrong passwords of 200 addresses, while right ones come",
        right_passwords,
        peak=120,
        after=60,
        busy=True,
        prepare=passwords,
    ),
    Row(
        "dripping-posts",
        "two uploads that drip from their first byte, on a host with two slots",
        functools.partial(dripping_posts, 0),
        13,
        settings={"timeouts": {"request": "60s"}},
    ),
    Row(
        "stalling-posts",
        "two uploads that drip after 20 kB, on a host with two slots",
        functools.partial(dripping_posts, 20_000),
        13,
        settings={"timeouts": {"request": "60s"}},
    ),
    Row("admin-half-open", "400 half-open connections to the admin listener", admin_half_open),
    Row("few-descriptors", "more idle connections than descriptors", few_descriptors, prepare=descriptor_limit),
    Row("hanging-reload", "a policy that cannot be read to its end, and two SIGTERM", hanging_reload, 1),
    Row("full-log-disk", "a full disk under the decision log", full_log, peak=60, busy=True, prepare=small_log_disk),
    Row(
        "full-ledger-disk",
        "a full disk under the ledger",
        full_ledger,
        peak=60,
        after=40,
        busy=True,
        prepare=small_ledger_disk,
    ),
    Row("clock-jump", "a wall clock that jumps by 8 days, and back by 4", clock_jump, prepare=fake_clock),
    flood_row(floods.rapid_reset),
    flood_row(floods.made_you_reset),
    flood_row(floods.malformed_heads),
    flood_row(floods.continuations),
    flood_row(floods.empty_continuations),
    flood_row(floods.pings),
    flood_row(floods.settings),
    flood_row(floods.table_sizes),
    flood_row(floods.priorities),
    flood_row(floods.unknown_frames),
    flood_row(floods.window_updates),
    flood_row(floods.empty_data),
    flood_row(floods.padded_data),
    flood_row(floods.one_byte_data),
    flood_row(floods.hpack_bombs),
    # 400 heads of 30 kB are held, and as many requests to the origin.
    flood_row(floods.large_heads, peak=80),
    flood_row(floods.unread),
    # 400 streams wait with a part of their page each.
    # The origin needs one or two seconds for the 400 pages, before the last ones stall.
    flood_row(floods.stalled_windows, REQUEST_BOUND + 3, peak=100),
    flood_row(floods.tiny_windows, REQUEST_BOUND + 3, peak=100),
    flood_row(floods.held_resets, host=QUEUE),
    flood_row(floods.idle_streams, REQUEST_BOUND + 1, peak=60),
    flood_row(floods.idle_connections, IDLE_BOUND + 2, peak=60),
]


# --- The run ----------------------------------------------------------------------------------------------------------


def settings(folder: pathlib.Path, row: Row, prepared: dict) -> dict:
    tls = {
        "intercept": True,
        "ca": {"cert": str(folder / "ca.pem"), "key": str(folder / "ca.key")},
        "bundle": str(folder / "bundle.pem"),
        # The origin's certificate is of an authority that only this run has.
        "verify_upstream": False,
    }
    timeouts = {
        "head": f"{HEAD}s",
        "idle": f"{IDLE}s",
        "response_head": f"{RESPONSE_HEAD}s",
        "request": f"{REQUEST}s",
        "tls": f"{TLS}s",
        "write_stall": f"{STALL}s",
        "drain": "2s",
    }
    return {
        "egress": {"allow_loopback": True, "ports": ["1-65535"], "connect_ports": ["1-65535"]},
        "tls": tls,
        "timeouts": timeouts | row.settings.get("timeouts", {}),
        "store": {"path": str(folder / "store")},
    } | prepared


@dataclasses.dataclass
class Figures:
    """What a row measured: seconds and bytes."""

    quiet: list[float] = dataclasses.field(default_factory=list)
    during: list[float] = dataclasses.field(default_factory=list)
    health: float = 0
    memory: tuple[int, int, int] = (0, 0, 0)
    descriptors: tuple[int, int] = (0, 0)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Runner:
    """Runs rows against proxies that it starts."""

    def __init__(self, report: Report, arguments: argparse.Namespace, folder: pathlib.Path) -> None:
        self._report, self._folder = report, folder
        self._binary, self._peer, self._rest = arguments.binary.resolve(), arguments.peer, arguments.rest
        self._good, self._evil = hostile.Origin(), hostile.Origin()
        Authority(folder / "site").context(["evil.test"])
        self._secure = hostile.Origin((folder / "site" / "site.pem", folder / "site" / "site.key"))
        # Clients that attack are other machines: they take the processor time that is left.
        self._attackers = concurrent.futures.ProcessPoolExecutor(
            SIDE_BY_SIDE + 2, hostile.processes, initializer=os.nice, initargs=(10,)
        )
        # Only one busy row is measured at a time; its start and its rest may overlap with others.
        self._busy = threading.Lock()
        self.table: list[str] = []

    def run(self, rows: list[Row]) -> None:
        """Runs the rows. Those that fail by the healthy client's times alone are run again, alone: others use the
        machine, too."""
        light, busy = ([row for row in rows if row.busy == value] for value in (False, True))
        light.sort(key=lambda row: -(row.ends or 0))
        again = self._side_by_side(light, 2 if self._peer else SIDE_BY_SIDE, 1)
        again += self._side_by_side(busy, 1 if self._peer else 3, 1)
        for attempt in range(2, ATTEMPTS + 1):
            again = self._side_by_side(again, 1, attempt)

    def _side_by_side(self, rows: list[Row], width: int, attempt: int) -> list[Row]:
        """Runs rows, so many at once; those that should be run again."""
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            ended = list(pool.map(lambda row: self._run_row(row, attempt), rows))
        return [row for row, end in zip(rows, ended, strict=True) if not end]

    def stop(self) -> None:
        self._attackers.shutdown(cancel_futures=True)
        self._good.stop()
        self._evil.stop()
        self._secure.stop()

    def _run_row(self, row: Row, attempt: int) -> bool:
        """Runs a row and prints its line; false if it should be run again instead."""
        folder = self._folder / f"{row.name}-{attempt}"
        folder.mkdir()
        try:
            return self._run_in(row, folder, attempt == ATTEMPTS)
        except Exception as error:  # A row that breaks is a failed row; the others still run.
            self._report.check(row.name, [f"the row broke: {error!r}"])
            return True
        finally:
            if (folder / "small").is_mount():
                subprocess.run(["umount", "--lazy", str(folder / "small")], check=False)

    def _run_in(self, row: Row, folder: pathlib.Path, last: bool) -> bool:
        if self._peer:
            proxy = peers.START[self._peer](folder)
        else:
            started = self._start(row, folder)
            if isinstance(started, str):
                self._report.missing(row.name, started)
                return True
            proxy = started
        try:
            found, figures = self._measure(row, proxy, folder)
        finally:
            proxy.stop()
        problems = self._judge(row, found, figures)
        if isinstance(proxy, Gate):
            problems += [line for line in proxy.lines if "panicked" in line]
        slow = _slow(figures)
        if slow and not problems and not last:
            return False
        self._print(row, found, figures, problems + slow)
        return True

    def _start(self, row: Row, folder: pathlib.Path) -> Gate | str:
        """A crawlgate that begins with the lines of the row's preparation."""
        policy = folder / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        prepared: dict = {}
        lines = ""
        if row.prepare:
            made = row.prepare(self._binary, folder)
            if isinstance(made, str):
                return made
            prepared, lines = made
        return Gate(self._binary, policy, folder, settings(folder, row, prepared), prepare=lines)

    def _measure(self, row: Row, proxy: Gate | servers.Server, folder: pathlib.Path) -> tuple[Found, Figures]:
        pid, admin_port = proxy.pid, getattr(proxy, "admin_port", 0)
        request = f"GET http://{GOOD}:{self._good.port}/ HTTP/1.1\r\nHost: {GOOD}:{self._good.port}\r\n\r\n".encode()
        target = Target(pid, proxy.port, admin_port, self._evil.port, self._secure.port, folder)
        with self._busy if row.busy else threading.Lock():
            watch = hostile.Watch(pid, proxy.port, admin_port, request, 0.005 if row.busy else 0.02)
            try:
                # Rows that run side by side start together.
                time.sleep(0.3 if row.busy else 1)
                quiet = time.monotonic()
                time.sleep(QUIET)
                begin = time.monotonic()
                found = self._attackers.submit(row.attack, target).result(60)
                end = found.until or time.monotonic()
            except BaseException:
                watch.stop()
                raise
        time.sleep(max(self._rest, row.rest) if found.until is None else 0)
        readings = watch.stop()
        figures = Figures(
            quiet=[took for at, took in readings.healthy if quiet <= at < begin],
            during=[took for at, took in readings.healthy if begin <= at < end],
            health=max((took for at, took in readings.health if begin <= at < end), default=0),
            memory=_memory(readings, begin, end, found.until is not None),
            descriptors=_descriptors(readings, begin, found.until is not None),
        )
        found.problems += sorted({problem for at, problem in readings.failures if at < end})
        return found, figures

    def _judge(self, row: Row, found: Found, figures: Figures) -> list[str]:
        problems = list(found.problems)
        if not figures.during or not figures.quiet:
            problems.append("the healthy client has no figures")
        if figures.health > HEALTH_BOUND:
            problems.append(f"/healthz took {figures.health:.1f} s")
        start, peak, after = figures.memory
        if peak - start > row.peak * MB:
            problems.append(f"memory rose by {(peak - start) / MB:.0f} MB, the bound is {row.peak}")
        if after - start > row.after * MB:
            problems.append(f"memory is {(after - start) / MB:.0f} MB higher after a rest, the bound is {row.after}")
        if figures.descriptors[1] > figures.descriptors[0] + POOLED:
            problems.append(f"{figures.descriptors[1]} descriptors after a rest, {figures.descriptors[0]} before")
        if row.ends is not None and found.last_end > row.ends:
            problems.append(f"the last ended after {found.last_end:.1f} s, {row.ends:.1f} is the bound")
        return problems

    def _print(self, row: Row, found: Found, figures: Figures, problems: list[str]) -> None:
        times = [_milliseconds(values, share) for share in (0.5, 0.99) for values in (figures.quiet, figures.during)]
        start, peak, after = (round(value / MB) for value in figures.memory)
        outcomes = ", ".join(f"{name} × {count}" for name, count in found.outcomes.most_common(3)) or "–"
        line = f"p50 {times[0]} → {times[1]}, p99 {times[2]} → {times[3]} ms; "
        line += f"RSS {start}, {peak}, {after} MB; end {found.last_end:.1f} s; healthz {figures.health:.2f} s; "
        line += f"fds {figures.descriptors[0]} → {figures.descriptors[1]}; {outcomes}"
        self._report.check(f"{row.name}: {line}", problems)
        cells = [row.what, outcomes, f"{found.last_end:.1f} s", f"{times[0]} → {times[1]}"]
        cells += [f"{times[2]} → {times[3]}", f"{start}, {peak}, {after}", "no" if problems else "yes"]
        self.table.append(f"| {' | '.join(cells)} |")


HEADINGS = [
    "attack", "outcomes", "last end", "p50 in ms, quiet → attack", "p99 in ms",
    "RSS in MB: start, peak, after", "held",
]  # fmt: skip


def _milliseconds(values: list[float], share: float) -> str:
    return f"{1000 * percentile(values, share):.1f}" if values else "none"


def _slow(figures: Figures) -> list[str]:
    """The problem with the healthy client's times, if there is one."""
    p99, quiet = percentile(figures.during, 0.99), percentile(figures.quiet, 0.99)
    if p99 <= max(FLOOR, 2 * quiet):
        return []
    return [f"the healthy client's p99 is {1000 * p99:.0f} ms, {1000 * quiet:.0f} when quiet"]


def _memory(readings: hostile.Readings, begin: float, end: float, gone: bool) -> tuple[int, int, int]:
    """Before, at the peak, and after a rest; a proxy that has been ended has no rest."""
    before = [value for at, value in readings.memory if at < begin]
    during = [value for at, value in readings.memory if begin <= at < end]
    start, peak = max(before, default=0), max(during, default=0)
    return start, max(start, peak), start if gone else readings.memory[-1][1]


def _descriptors(readings: hostile.Readings, begin: float, gone: bool) -> tuple[int, int]:
    before = [value for at, value in readings.descriptors if at < begin][-1]
    return before, before if gone else readings.descriptors[-1][1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target/release/crawlgate")
    parser.add_argument("--row", nargs="+", metavar="NAME", choices=[row.name for row in ROWS])
    parser.add_argument("--peer", choices=sorted(peers.START), help="another proxy, for comparison")
    parser.add_argument("--rest", type=float, default=REST, help="seconds after an attack until memory is read again")
    parser.add_argument("--table", action="store_true", help="a Markdown table at the end")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if not arguments.row or row.name in arguments.row]
    rows = [row for row in rows if row.any_proxy or not arguments.peer]
    hostile.raise_open_files()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-attacks-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        runner = Runner(report, arguments, folder)
        try:
            runner.run(rows)
        finally:
            runner.stop()
    if arguments.table:
        print("\n| " + " | ".join(HEADINGS) + " |\n" + "|---" * len(HEADINGS) + "|\n" + "\n".join(runner.table))
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
