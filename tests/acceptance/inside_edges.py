"""The edges of HTTPS: origins whose certificates cannot be believed, clients that do not believe ours, ten thousand
hosts in a row, and what must be told to nobody.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import re
import ssl
import subprocess
import sys
import threading
import time

import clients
import crawlers
import judge
from authority import Authority
from canaries import Canaries
from clients import Answer, clean_environment
from report import Report
from services import Gate, by_labels, wait_for
from tunnels import PAGE, Site

HERE = pathlib.Path(__file__).resolve().parent
POLICY = HERE / "inside_edges.yaml"
GOOD = "good.edge.test"
# The certificate of an origin, by host, and the expected message.
BROKEN = {
    "expired.edge.test": "the certificate has expired",
    "self.edge.test": "the certificate is self-signed",
    "wrong.edge.test": "the certificate is not valid for the name of the host",
    "untrusted.edge.test": "the certificate comes from an unknown issuer",
}
# A cache of 10,000, and further hosts when it is full.
FIRST, BEYOND = 10_000, 2_000
MIB = 1024 * 1024
# The growth of resident memory by the hosts that fill the cache, and by the hosts beyond. What is there before them
# includes the 19 MiB in which the first password was checked.
GROWTH, FURTHER_GROWTH = 32 * MIB, 8 * MIB
# The slowest answer to another client in the meantime; it opens a connection, a tunnel and TLS for each.
SLOWEST = 5.0


def run(report: Report, binary: pathlib.Path, hashes: dict[str, str], folder: pathlib.Path) -> None:
    """All of it; curl and openssl are there."""
    report.section("HTTPS: certificates")
    folder = folder / "edges"
    folder.mkdir()
    sites = Sites(folder)
    listed = crawlers.registrations(hashes)
    gate = EdgeGate(binary, folder, sites, listed)
    try:
        edges = Edges(report, gate, sites, folder)
        edges.broken()
        edges.distrust()
        report.section("HTTPS: ten thousand hosts in a row")
        edges.many_hosts()
    finally:
        code = gate.stop()
    report.equal("SIGTERM ends it, with exit code 0", code, 0)
    report.section("HTTPS: what is told to nobody")
    quiet = folder / "canaries"
    quiet.mkdir()
    gate = EdgeGate(binary, quiet, sites, listed, {"CRAWLGATE_LOG": "trace"})
    try:
        Canaries(report, binary, gate, sites.good, sites.ports[next(iter(BROKEN))]).run()
    finally:
        gate.stop()
        sites.stop()


class Sites:
    """A site that shows a good certificate, and one for each broken one."""

    def __init__(self, folder: pathlib.Path) -> None:
        trusted, stranger = Authority(folder / "trusted"), Authority(folder / "stranger", "another CA")
        self.root = trusted.cert
        self.good = Site(trusted.context([GOOD]))
        expired, own, wrong, untrusted = BROKEN
        contexts = {
            expired: trusted.expired(expired),
            own: trusted.self_signed(own),
            wrong: trusted.context(["other.edge.test"], wrong),
            untrusted: stranger.context([untrusted], untrusted),
        }
        self._broken = {host: Site(context) for host, context in contexts.items()}
        self.ports = {host: site.port for host, site in self._broken.items()}

    @property
    def asked(self) -> list[str]:
        """The requests that the broken origins received."""
        return [target for site in self._broken.values() for target in site.asked]

    def stop(self) -> None:
        for site in (self.good, *self._broken.values()):
            site.shutdown()


class EdgeGate(Gate):
    """A crawlgate that intercepts TLS with an authority that it creates."""

    def __init__(
        self,
        binary: pathlib.Path,
        folder: pathlib.Path,
        sites: Sites,
        registrations: list[dict],
        environment: dict[str, str] | None = None,
    ) -> None:
        self.ca, self.key = folder / "certs" / "ca.pem", folder / "certs" / "ca.key"
        self._ports = [sites.good.port, *sites.ports.values()]
        tls = {
            "intercept": True,
            "ca": {"cert": str(self.ca), "key": str(self.key)},
            "bundle": str(folder / "certs" / "bundle.pem"),
            "extra_roots": [str(sites.root)],
            "mints_per_client": "20000/s",
        }
        super().__init__(binary, POLICY, folder, {"tls": tls, "crawlers": registrations}, environment)

    def _settings(self, policy: pathlib.Path) -> dict:
        settings = super()._settings(policy)
        hosts = dict.fromkeys((GOOD, *BROKEN), "127.0.0.1")
        settings["egress"].update(hosts=hosts, connect_ports=["1-65535"], tls_ports=self._ports)
        return settings


class Edges:
    """The cases of one proxy."""

    def __init__(self, report: Report, gate: EdgeGate, sites: Sites, folder: pathlib.Path) -> None:
        self._report = report
        self._gate = gate
        self._sites = sites
        self._folder = folder

    def _curl(self, *urls: str) -> list[Answer]:
        options = (f'cacert = "{self._gate.ca}"',)
        return clients.curl(self._gate.proxy, [url.encode() for url in urls], self._folder / "curl", options)

    def broken(self) -> None:
        """An origin is trusted by its certificate alone; without a valid one its content reaches no client."""
        good, *broken = self._curl(
            f"https://{GOOD}:{self._sites.good.port}/page",
            *(f"https://{host}:{port}/page" for host, port in self._sites.ports.items()),
        )
        found = (good.status, good.body)
        self._report.equal("an origin with a good certificate is asked", found, (200, PAGE))
        for (host, words), answer in zip(BROKEN.items(), broken, strict=True):
            problems = [] if answer.status == 502 else [f"status {answer.status} {answer.error}"]
            problems += [] if answer.one("Crawl-Reason") == "upstream_tls" else [f"{answer.one('Crawl-Reason')}"]
            problems += judge.reason_headers("upstream_tls", None, answer)
            problems += [] if words in (answer.one("Proxy-Status") or "") else [f"{answer.one('Proxy-Status')}"]
            problems += [f"a page: {answer.body!r}"] if PAGE in answer.body else []
            self._report.check(f"{host}: 502, since {words}", problems)
        self._report.equal("none of them was asked for anything", self._sites.asked, [])

    def distrust(self) -> None:
        """A client without our authority: its operator can see whose it is."""
        command = ["curl", "-q", "-s", "-m", "30", "--noproxy", "", "-x", crawlers.proxy(self._gate, "curl")]
        url, trusted = f"https://{GOOD}:{self._sites.good.port}/page", str(self._sites.root)
        done = subprocess.run(
            [*command, "--cacert", trusted, url], env=clean_environment(), capture_output=True, timeout=60
        )
        self._report.equal("curl without our authority: it refuses our certificate (60)", done.returncode, 60)

        def counted() -> dict:
            samples = self._gate.samples()
            return dict(by_labels(samples, "crawlgate_client_tls_failures_total", ("crawler",), cause="distrust"))

        wait_for(counted, 5)
        self._report.equal("it is counted under its crawler", counted(), {"curl": 1})
        pattern = re.compile(r'"crawler":"curl".*"client_tls_unknown_ca"')
        find = lambda: pattern.search(self._gate.decisions.read_text(encoding="utf-8"))  # noqa: E731
        line = wait_for(find, 5)
        self._report.check("its line in the decision log names it, and the alert", [] if line else ["no such line"])
        told = [text for text in self._gate.lines if GOOD in text or "trust" in text.lower()]
        self._report.check("the operator is told on standard error", [] if told else self._gate.lines[-5:])

    def many_hosts(self) -> None:
        """Each host gets its own certificate: the cache stays within its limit, and no client has to wait."""
        made, watch = self._made(), Watch(self._gate, self._sites.good.port)
        before = self._memory()
        first, between = self._crowd(0, FIRST), self._memory()
        second, after = self._crowd(FIRST, BEYOND), self._memory()
        slowest, count, problems = watch.stop()
        wrong = first["wrong"] + second["wrong"]
        seconds = first["seconds"] + second["seconds"]
        total = FIRST + BEYOND
        self._report.check(
            f"{total:,} hosts in {seconds:.1f} s are answered under certificates of theirs", wrong, total
        )
        self._report.equal("each certificate is counted", self._made() - made, total)
        sizes = f"{before / MIB:.0f} MiB before, {between / MIB:.0f} MiB after {FIRST:,} hosts"
        told = f"{sizes}, {after / MIB:.0f} MiB after {total:,}"
        fits = between - before <= GROWTH and after - between <= FURTHER_GROWTH
        self._report.check(f"memory is bounded: {told}", [] if fits else [f"{GROWTH=} {FURTHER_GROWTH=}"])
        problems += [] if slowest <= SLOWEST else [f"over {SLOWEST} s"]
        self._report.check(f"another client is served meanwhile, within {slowest * 1000:.0f} ms", problems, count)

    def _crowd(self, first: int, count: int) -> dict:
        numbers = [str(number) for number in (self._gate.port, self._sites.good.port, first, count)]
        command = [sys.executable, str(HERE / "many_hosts.py"), numbers[0], str(self._gate.ca), *numbers[1:]]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=400)
        return json.loads(done.stdout) if done.returncode == 0 else {"seconds": 0.0, "wrong": [done.stderr[-500:]]}

    def _made(self) -> int:
        return sum(by_labels(self._gate.samples(), "crawlgate_leaf_certificates_total", ("none",)).values())

    def _memory(self) -> int:
        return self._gate.memory()


class Watch:
    """A client that goes on fetching a page, on a new connection each time, and keeps its longest wait."""

    def __init__(self, gate: EdgeGate, port: int) -> None:
        self._gate = gate
        self._port = port
        self._context = ssl.create_default_context(cafile=str(gate.ca))
        self._times: list[float] = []
        self._problems: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[float, int, list[str]]:
        """The longest wait, the number of responses, and the problems."""
        self._over.set()
        self._thread.join(timeout=30)
        return max(self._times, default=0.0), len(self._times), self._problems

    def _go_on(self) -> None:
        while not self._over.wait(0.02):
            began = time.monotonic()
            try:
                found = self._fetch()
            except (OSError, http.client.HTTPException) as error:
                found = repr(error).encode()
            self._times.append(time.monotonic() - began)
            if found != PAGE:
                self._problems.append(f"{found[:200]!r}")

    def _fetch(self) -> bytes:
        connection = http.client.HTTPSConnection("127.0.0.1", self._gate.port, timeout=30, context=self._context)
        connection.set_tunnel(GOOD, self._port)
        try:
            connection.request("GET", "/page")
            return connection.getresponse().read()
        finally:
            connection.close()
