"""Mixed load with faults and reloads: no body is wrong, no request is lost without a reason, nothing is left behind.

    python3 tests/hostile/soak.py [--binary target/release/crawlgate] [--seconds 120] [--clients 32]

Clients request pages over plain HTTP and inside intercepted TLS, on kept connections, by GET, HEAD, POST and in
ranges. Each body repeats its URL and the request's serial number, so that a wrong or mixed body is seen. Of the
requests 7 % are faults, of an origin or of the client. The policy is reloaded every ten seconds; every second one is
broken. A request is lost if its connection ends without a response, although the response before did not say
`Connection: close` and the connection was in use within the idle time-out.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import hashlib
import http.client
import itertools
import pathlib
import random
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "acceptance"))

import hostile  # noqa: E402
from authority import Authority  # noqa: E402
from hostile import BROKEN, ENDLESS  # noqa: E402
from report import Report  # noqa: E402
from services import Gate, by_labels, wait_for  # noqa: E402

GOOD = [f"good-{number}.test" for number in range(12)]
BAD = [f"bad-{number}.test" for number in range(200)]
SIZES = (0, 10, 700, 1460, 9_000, 16_384, 65_536, 200_000)
PATHS = [f"{framing}/size/{size}" for framing in ("", "/chunked", "/close") for size in SIZES]
ORIGIN_FAULTS, CLIENT_FAULTS = 0.04, 0.03
RELOAD_SECONDS = 10
# Seconds; a fault must have ended by then, and by a tenth more, on a machine that others use.
REQUEST, LATE = 6, 1.5
# How long a request waits for a host that is given a rest because it has failed.
MAX_WAIT = 1
# Of connections without a request, those to origins too.
IDLE = 10
# Half of the run is warm-up, and at least this time: so long the C library's heap takes to settle, although what is in
# use in it does not grow. Memory is compared over windows of this share of the run.
WARM, WARM_SECONDS, WINDOW = 1 / 2, 60, 0.15
# The growth after warm-up that is allowed; the heap of a run of minutes has not settled yet.
FLAT, FLAT_SHORT, SHORT_SECONDS = 1.05, 1.15, 600
# What the ledger holds for a URL in memory, roughly.
BYTES_PER_URL = 300
MB = 1_000_000

BROKEN_POLICY = "policy: 1\nname: [broken\n"


def policy(number: int) -> str:
    return (
        f"policy: 1\nname: p{number}\n"
        "options: { disposition: allow, robots: { obey: false },\n"
        "  politeness: { delay: 0s, concurrency: 1000, jitter: none } }\n"
        "rules: [{ id: forbidden, forbid: { path: /forbidden } }]\n"
    )


@dataclasses.dataclass
class Tally:
    """What the clients saw, together."""

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)
    lost: list[str] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    serial: itertools.count = dataclasses.field(default_factory=lambda: itertools.count(1))


@dataclasses.dataclass(frozen=True)
class Site:
    """The proxy and the ports of the origins, plain and over TLS; those that misbehave are other processes."""

    proxy: int
    good: dict[str, int]
    bad: dict[str, int]
    trust: ssl.SSLContext


class FinalResponse(http.client.HTTPResponse):
    """Skips all interim responses; the library skips 100 only."""

    def _read_status(self) -> tuple[str, int, str]:
        while 101 < (line := super()._read_status())[1] < 200:
            http.client.parse_headers(self.fp)
        return line


class Client(threading.Thread):
    """Requests until it is stopped, on one plain connection and one tunnel that it keeps."""

    def __init__(self, number: int, site: Site, tally: Tally) -> None:
        super().__init__(daemon=True)
        self._dice, self._site, self._tally = random.Random(number), site, tally
        # By scheme: the host, the connection, and when it was used.
        self._kept: dict[str, tuple[str, http.client.HTTPConnection, float]] = {}
        self.ends = False

    def run(self) -> None:
        while not self.ends:
            chance = self._dice.random()
            if chance < ORIGIN_FAULTS:
                self._origin_fault()
            elif chance < ORIGIN_FAULTS + CLIENT_FAULTS:
                self._client_fault()
            elif chance < 0.10:
                self._unread_upload()
            else:
                self._page()
        for _, connection, _ in self._kept.values():
            connection.close()

    def _connect(self, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if scheme == "http":
            connection = http.client.HTTPConnection("127.0.0.1", self._site.proxy, timeout=30)
        else:
            context = self._site.trust
            connection = http.client.HTTPSConnection("127.0.0.1", self._site.proxy, timeout=30, context=context)
            connection.set_tunnel(host, port)
        connection.response_class = FinalResponse
        return connection

    def _connection(self, scheme: str) -> tuple[str, http.client.HTTPConnection]:
        """A kept connection and its host; a plain one may be asked for any host, and a tunnel is left now and then."""
        host, connection, used = self._kept.get(scheme, ("", None, 0))
        left = scheme == "https" and self._dice.random() < 0.05
        if connection and (left or time.monotonic() - used > IDLE - 2):
            connection.close()
            connection = None
        if connection is None:
            host = self._dice.choice(GOOD)
            connection = self._connect(scheme, host, self._site.good[scheme])
        self._kept[scheme] = host, connection, time.monotonic()
        return (self._dice.choice(GOOD) if scheme == "http" else host), connection

    def _page(self) -> None:
        scheme = "https" if self._dice.random() < 0.3 else "http"
        host, connection = self._connection(scheme)
        path, authority = self._dice.choice(PATHS), f"{host}:{self._site.good[scheme]}"
        method = self._dice.choices(("GET", "HEAD", "POST"), (75, 10, 15))[0]
        serial = f"n{next(self._tally.serial)}"
        url, size = f"{scheme}://{authority}{path}", int(path.rpartition("/")[2])
        fields, upload, echoed = {"X-Serial": serial, "Host": authority}, None, serial
        if method == "POST":
            upload = self._dice.randbytes(self._dice.choice((1, 5_000, 30_000)))
            echoed = f"{serial} {hashlib.sha256(upload).hexdigest()}"
        expected, status = hostile.page(url, echoed, size), 200
        if method == "GET" and size > 100 and self._dice.random() < 0.1:
            first = self._dice.randrange(size - 1)
            last = self._dice.randrange(first, size)
            fields["Range"], status, expected = f"bytes={first}-{last}", 206, expected[first : last + 1]
        target = url if scheme == "http" else path
        response = self._ask(connection, scheme, method, target, upload, fields)
        if response is None:
            return
        found, reason, body = response
        self._tally.counts[f"{scheme} {method} {found}"] += 1
        if reason or found != status:
            self._tally.refused.append(f"{method} {url}: {found} {reason}")
        elif body != (b"" if method == "HEAD" else expected):
            self._tally.wrong.append(f"{method} {url} {serial}: {len(body)} bytes, {body[:80]!r}")

    def _unread_upload(self) -> None:
        """An upload that nobody reads to its end: refused, or answered early; the connection is used again."""
        host, connection = self._connection("http")
        path = self._dice.choice(("/forbidden", "/early"))
        url = f"http://{host}:{self._site.good['http']}{path}"
        upload = bytes(self._dice.choice((30_000, 80_000, 200_000)))
        response = self._ask(connection, "http", "POST", url, upload, {"Host": url.split("/")[2]})
        if response:
            self._tally.counts[f"{path} {response[0]}"] += 1
            if path == "/forbidden" and response[0] not in (403, 451):
                self._tally.refused.append(f"{url}: {response[0]}")

    def _ask(
        self, connection: http.client.HTTPConnection, scheme: str, method: str, target: str, upload, fields
    ) -> tuple[int, str | None, bytes] | None:
        """A request on a kept connection: status, reason and body; None if it was lost."""
        used = connection.sock is not None
        try:
            try:
                connection.request(method, target, upload, fields)
            except (BrokenPipeError, ConnectionResetError):
                # The response may have come before the upload's end.
                if connection.sock is None:
                    raise
            response = connection.getresponse()
            return response.status, response.getheader("Crawl-Reason"), response.read()
        except (OSError, http.client.HTTPException) as error:
            which = "a used connection" if used else "a new connection"
            self._tally.lost.append(f"{method} {scheme} {target} on {which}: {error!r}")
            connection.close()
            return None

    def _origin_fault(self) -> None:
        """Asks a host for a response that is broken or endless: a refusal, or a body that is cut."""
        scheme = "https" if self._dice.random() < 0.25 else "http"
        host, path = self._dice.choice(BAD), self._dice.choice([*ENDLESS, *BROKEN])
        authority = f"{host}:{self._site.bad[scheme]}"
        connection = self._connect(scheme, host, self._site.bad[scheme])
        target, begin, response = f"http://{authority}{path}" if scheme == "http" else path, time.monotonic(), None
        try:
            connection.request("GET", target, None, {"Host": authority, "Crawl-Max-Wait": str(MAX_WAIT)})
            response = connection.getresponse()
            outcome = f"{response.status} {response.getheader('Crawl-Reason') or ''}".strip()
            outcome = outcome if _is_whole(response) else "cut"
        except TimeoutError as error:
            outcome = repr(error)
        except (http.client.HTTPException, OSError) as error:
            outcome = "cut" if response else repr(error)
        finally:
            connection.close()
        took = time.monotonic() - begin
        self._tally.counts["fault of an origin"] += 1
        known = outcome == "cut" or (outcome[:3] in ("502", "503", "504") and len(outcome) > 3)
        if not known:
            self._tally.faults.append(f"{path}: {outcome}")
        self._tally.counts["a rest of an origin that failed"] += outcome.startswith("503")
        if took > 1.1 * REQUEST + MAX_WAIT + LATE:
            self._tally.faults.append(f"{path}: it ended after {took:.1f} s, with {outcome}")

    def _client_fault(self) -> None:
        """A client that vanishes: in its head, its upload, its handshake, or while it reads."""
        authority = f"{self._dice.choice(GOOD)}:{self._site.good['http']}"
        url, host = f"http://{authority}/size/200000", f"Host: {authority}\r\n"
        tunnel = f"CONNECT {authority} HTTP/1.1\r\n{host}\r\n"
        beginnings = [
            f"GET {url} HTTP/1.1\r\n{host}X-Fie",
            f"GET {url} HTTP/1.1\r\n{host}\r\n",
            f"POST {url} HTTP/1.1\r\n{host}Content-Length: 50000\r\n\r\n{'a' * 20_000}",
            f"POST {url} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n" + "1\r\na\r\n" * 500,
            f"POST {url} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            tunnel,
            tunnel + "\x16\x03\x01\x02\x00\x01",
            "\x00\x01 this is not HTTP\r\n\r\n",
            "",
        ]
        try:
            with socket.create_connection(("127.0.0.1", self._site.proxy), 10) as connection:
                connection.sendall(self._dice.choice(beginnings).encode("latin-1"))
                time.sleep(self._dice.choice((0, 0.01, 0.1)))
                connection.settimeout(0.2)
                if self._dice.random() < 0.5:
                    connection.recv(1000)
                if self._dice.random() < 0.5:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self._tally.counts["fault of a client"] += 1


def _is_whole(response: http.client.HTTPResponse) -> bool:
    """Reads what is left as it is, since the library needs seconds to read a million chunks of one byte."""
    length, end = response.length, b""
    while response.fp and (length is None or length > 0) and (data := response.fp.read1(65536)):
        end = (end + data)[-5:]
        length = None if length is None else length - len(data)
        if response.chunked and end == b"0\r\n\r\n":
            return True
    return not response.chunked and not length


class Reloads(threading.Thread):
    """A reload every ten seconds; every second policy is broken and must not become active."""

    def __init__(self, gate: Gate, file: pathlib.Path) -> None:
        super().__init__(daemon=True)
        self._gate, self._file = gate, file
        self.done: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self.ends = threading.Event()

    def run(self) -> None:
        for number in itertools.count(1):
            if self.ends.wait(RELOAD_SECONDS):
                return
            good = number % 2 == 1
            self._file.with_suffix(".new").write_text(policy(number) if good else BROKEN_POLICY, encoding="utf-8")
            self._file.with_suffix(".new").rename(self._file)
            status, body = hostile.admin(self._gate.admin_port, "/api/v1/reload", 20, "POST")
            self.done["good" if good else "broken"] += 1
            if status != (200 if good else 422):
                self.problems.append(f"reload {number}: {status} {body[:200]!r}")


def gate_settings(folder: pathlib.Path, root: pathlib.Path, tls_ports: list[int]) -> dict:
    return {
        "egress": {
            "allow_loopback": True,
            "ports": ["1-65535"],
            "connect_ports": ["1-65535"],
            "tls_ports": tls_ports,
            "hosts": dict.fromkeys([*GOOD, *BAD], "127.0.0.1"),
        },
        "policy": {"path": str(folder / "policy.yaml"), "watch": False},
        "tls": {
            "intercept": True,
            "ca": {"cert": str(folder / "ca.pem"), "key": str(folder / "ca.key")},
            "bundle": str(folder / "bundle.pem"),
            "extra_roots": [str(root)],
        },
        "timeouts": {
            "head": "5s",
            "idle": f"{IDLE}s",
            "response_head": "4s",
            "request": f"{REQUEST}s",
            "tls": "4s",
            "drain": "2s",
        },
        "store": {"path": str(folder / "store")},
        # A cache that fills during the warm-up: what grows after it is not the ledger's.
        "ledger": {"keep": "always", "cache": "8MiB"},
    }


@dataclasses.dataclass
class Sample:
    at: float
    memory: int
    urls: int


def soak(report: Report, binary: pathlib.Path, folder: pathlib.Path, seconds: float, count: int) -> None:
    authority = Authority(folder / "site")
    authority.context([*GOOD, *BAD])
    certificate = (folder / "site" / "site.pem", folder / "site" / "site.key")
    origins = [hostile.Origin(files) for files in (None, certificate, None, certificate)]
    ports = [origin.port for origin in origins]
    (folder / "policy.yaml").write_text(policy(0), encoding="utf-8")
    settings = gate_settings(folder, authority.cert, ports[1::2])
    gate = Gate(binary, folder / "policy.yaml", folder, settings)
    tally, samples, unanswered = Tally(), [], []
    try:
        pid = gate.pid
        trust = ssl.create_default_context(cafile=folder / "ca.pem")
        good, bad = ({"http": plain, "https": secure} for plain, secure in (ports[:2], ports[2:]))
        site = Site(gate.port, good, bad, trust)
        before = hostile.descriptors([pid])
        clients = [Client(number, site, tally) for number in range(count)]
        reloads = Reloads(gate, folder / "policy.yaml")
        for thread in [*clients, reloads]:
            thread.start()
        begin = time.monotonic()
        while (at := time.monotonic() - begin) < seconds:
            try:
                urls = sum(by_labels(gate.samples(), "crawlgate_ledger_urls", ("status",)).values())
                samples.append(Sample(at, hostile.memory([pid]), urls))
            except OSError as error:
                unanswered.append(f"at {at:.0f} s: {error!r}")
            time.sleep(1)
        reloads.ends.set()
        for client in clients:
            client.ends = True
        for client in clients:
            client.join(40)
        reloads.join(30)
        for origin in origins:
            origin.stop()
        _judge(report, tally, reloads)
        report.check("metrics are answered all the while", unanswered, len(samples))
        _judge_memory(report, samples)
        _judge_rest(report, gate, pid, before)
    finally:
        for origin in origins:
            origin.stop()
        code = gate.stop()
    report.equal("SIGTERM ends it in time, with exit code 0", code, 0)
    report.check("its standard error has no panic", [line for line in gate.lines if "panicked" in line])


def _judge(report: Report, tally: Tally, reloads: Reloads) -> None:
    pages = sum(count for name, count in tally.counts.items() if not name.startswith(("fault", "a rest")))
    faults = {name: count for name, count in tally.counts.items() if name.startswith("fault")}
    report.check("no body is wrong, cut or of another request", tally.wrong, pages)
    report.check("no request is lost without a stated reason", tally.lost, pages)
    report.check("no page of a good host is refused", tally.refused, pages)
    report.check("faults of origins end in time, with a reason", tally.faults, faults.get("fault of an origin", 0))
    share = 100 * sum(faults.values()) / max(1, pages + sum(faults.values()))
    report.check(f"faults are {share:.1f} % of the requests", [] if 4 < share < 12 else ["they should be about 7 %"])
    report.check("reloads succeed and fail as they should", reloads.problems, sum(reloads.done.values()))
    print(f"        {dict(tally.counts.most_common())}")


def _judge_memory(report: Report, samples: list[Sample]) -> None:
    end = samples[-1].at if samples else 0
    warm = max(WARM_SECONDS, WARM * end)
    early = [sample for sample in samples if warm <= sample.at < warm + WINDOW * end]
    late = [sample for sample in samples if sample.at >= (1 - WINDOW) * end]
    if not early or early[-1].at >= late[0].at:
        report.check("memory is flat", [f"{end:.0f} s are too short to see it"])
        return
    first, last = (statistics.median(sample.memory for sample in part) for part in (early, late))
    curve = ", ".join(f"{sample.memory / MB:.0f}" for sample in samples[:: max(1, len(samples) // 10)])
    flat = FLAT_SHORT if end < SHORT_SECONDS else FLAT
    over = (last - flat * first - BYTES_PER_URL * max(0, late[-1].urls - early[0].urls)) / MB
    title = f"memory after warm-up is flat: {first / MB:.1f} MB, then {last / MB:.1f} ({curve})"
    problems = [f"{over:.1f} MB more than {flat - 1:.0%} and {late[-1].urls} URLs in the ledger explain"] if over > 0 else []
    report.check(title, problems)


def _judge_rest(report: Report, gate: Gate, pid: int, before: int) -> None:
    """The clients and the origins have gone: nothing is open, held or leased. Gauges follow every few seconds."""
    names = ("connections", "inflight_requests", "held_requests", "leases", "tunnels")

    def left() -> list[str]:
        samples = gate.samples()
        found = [f"{name}: {count:.0f}" for name in names if (count := samples[f"crawlgate_{name}", frozenset()])]
        now = hostile.descriptors([pid])
        return found + ([f"{now} descriptors, {before} at the start"] if now > before + 2 else [])

    wait_for(lambda: not left(), 2 * IDLE, 0.5)
    report.check("at rest nothing is left: connections, slots, leases, tunnels, descriptors", left(), len(names) + 1)
    lost = [
        f"{name}: {gate.samples()[name, frozenset()]:.0f}"
        for name in ("crawlgate_panics_total", "crawlgate_decision_log_dropped_total", "crawlgate_ledger_dropped_total")
        if gate.samples()[name, frozenset()]
    ]
    report.check("no panic, no lost line of the decision log or change of the ledger", lost, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target/release/crawlgate")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=32)
    arguments = parser.parse_args()
    hostile.raise_open_files()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-soak-") as folder:
        soak(report, arguments.binary.resolve(), pathlib.Path(folder), arguments.seconds, arguments.clients)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
