"""Chains of real proxies: requests go out through squid, dante and warcprox, and come in through HAProxy.

    python3 tests/acceptance/parents.py [--binary target/release/crawlgate] [--python PYTHON_WITH_SCRAPY_AND_WARCPROX]
                                        [--keep FOLDER]

curl and Scrapy crawl a site over http and https through each parent. The site's log and the WARC of warcprox have every
allowed page once and no refused one; a squid that is killed in the middle costs no page. HAProxy names its clients by
both versions of the PROXY protocol. Exit code 1 if a check failed. A program that is not installed is skipped loudly; with CI
set in the environment it is a failure.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

import clients
from authority import Authority
from clients import clean_environment
from report import Report, differences
from services import Gate, by_labels, wait_for

HERE = pathlib.Path(__file__).resolve().parent
PAGES = 40
PARENTS = ("squid", "dante", "archive")
CRAWLERS = ("curl", "scrapy")
HOSTS = [f"{crawler}.{parent}.test" for parent in PARENTS for crawler in CRAWLERS] + ["killed.squid.test"]
ALLOWED = [f"/p/{number}" for number in range(PAGES)]
REFUSED = [f"/private/{number}" for number in range(5)]
POLICY = """
policy: 1
name: chains
options: { disposition: allow, politeness: { delay: 0s, concurrency: 100 }, record: full }
rules:
  - { id: squid, when: { domain: squid.test }, set: { upstream: squid } }
  - { id: dante, when: { domain: dante.test }, set: { upstream: dante } }
  - { id: archive, when: { domain: archive.test }, set: { upstream: archive } }
  - { id: private, forbid: { under: /private } }
"""
# Names of the test are on loopback for warcprox, which uses the system's resolver and refuses 127.0.0.1.
WARCPROX = """
import socket, sys
plain = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **options: plain("127.0.0.2" if str(host).endswith(".test") else host, *more, **options)
import warcprox
# It counts once a minute.
warcprox.BaseBatchPostfetchProcessor.MAX_BATCH_SEC = 0.5
from warcprox.main import main
sys.argv[0] = "warcprox"
main()
"""
SQUID = """
http_port 127.0.0.1:{port}
http_access allow all
hosts_file {hosts}
cache deny all
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
shutdown_lifetime 0 seconds
"""
DANTE = """
logoutput: {folder}/dante.log
internal: 127.0.0.1 port = {port}
external: 127.0.0.1
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}
socks pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 command: connect }}
"""
HAPROXY = """
global
    maxconn 100
defaults
    mode tcp
    timeout connect 5s
    timeout client 20s
    timeout server 20s
listen v1
    bind 127.0.0.1:{v1}
    server gate 127.0.0.1:{gate} send-proxy check inter 200ms
listen v2
    bind 127.0.0.1:{v2}
    server gate 127.0.0.1:{gate} send-proxy-v2 check inter 200ms
listen tls
    bind 127.0.0.1:{tls}
    server gate 127.0.0.1:{gate_tls} send-proxy-v2
"""


class Site:
    """The site, over http and https: a page of links, pages, and ones that the policy refuses; and what arrived."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.arrived: list[str] = []
        self._lock = threading.Lock()
        self._servers = [self._server("http", None), self._server("https", context)]
        self.ports = [server.server_address[1] for server in self._servers]

    def _server(self, scheme: str, context: ssl.SSLContext | None) -> http.server.ThreadingHTTPServer:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                host = self.headers["Host"].split(":")[0]
                if self.path == "/robots.txt":
                    return self._answer(404, b"none")
                with site._lock:
                    site.arrived.append(f"{scheme}://{host}{self.path}")
                # A little time, so that a crawl has a middle.
                time.sleep(0.01)
                links = "".join(f'<a href="{path}">x</a>' for path in [*ALLOWED, *REFUSED]) if self.path == "/" else ""
                self._answer(200, f"<p>{scheme} {host} {self.path}</p>{links}".encode())

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Proxies that are killed reset their connections."""

        server = Server(("", 0), Handler)
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def url(self, scheme: str, host: str, path: str) -> str:
        return f"{scheme}://{host}:{self.ports[scheme == 'https']}{path}"

    def count(self, scheme: str, host: str) -> collections.Counter:
        start = f"{scheme}://{host}/"
        with self._lock:
            return collections.Counter(url[len(start) - 1 :] for url in self.arrived if url.startswith(start))

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def running(command: list, folder: pathlib.Path, ports: list[int]) -> Iterator[subprocess.Popen]:
    """A program that listens on these ports."""
    log = (folder / "output.log").open("w")
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        for port in ports:
            if not wait_for(lambda: _listens(port) or process.poll() is not None, 30) or process.poll() is not None:
                text = (folder / "output.log").read_text(errors="replace")
                raise RuntimeError(f"{command[0]} does not listen:\n{text[-2000:]}")
        yield process
    finally:
        # It may have children of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Chains:
    """The crawls through each parent."""

    def __init__(self, report: Report, site: Site, gate: Gate, ca: pathlib.Path, python: str, folder: pathlib.Path) -> None:
        self._report, self._site, self._gate, self._ca = report, site, gate, ca
        self._python, self._folder = python, folder

    def crawl(self, crawler: str, parent: str) -> None:
        """One crawler visits its host, over http and https."""
        host = f"{crawler}.{parent}.test"
        for scheme in ("http", "https"):
            answers = self.ask(crawler, scheme, host)
            self.judge(f"{crawler} over {scheme} through {parent}", scheme, host, answers)

    def ask(self, crawler: str, scheme: str, host: str, options: Sequence[str] = ()) -> list[clients.Answer]:
        folder = self._folder / f"{scheme}-{host}"
        if crawler == "curl":
            urls = [self._site.url(scheme, host, path).encode() for path in ["/", *ALLOWED, *REFUSED]]
            return clients.curl(self._gate.proxy, urls, folder, (f'cacert = "{self._ca}"',))
        trust = {"SSL_CERT_FILE": str(self._ca)}
        start = self._site.url(scheme, host, "/")
        return clients.scrapy(self._gate.proxy, self._python, start, [host], folder, trust, options)

    def judge(self, name: str, scheme: str, host: str, answers: list[clients.Answer], most: int = 1) -> None:
        paths = {answer.url.split("/", 3)[3]: answer for answer in answers}
        problems = []
        for path in ["/", *ALLOWED]:
            answer = paths.get(path[1:])
            mark = f"<p>{scheme} {host} {path}</p>".encode()
            if not answer or answer.status != 200 or not answer.body.startswith(mark):
                problems.append(f"{path}: {answer and (answer.status, answer.error, answer.headers)}")
        self._report.check(f"{name}: every allowed page arrived", problems, len(ALLOWED))
        problems = [
            f"{path}: {(answer := paths.get(path[1:])) and answer.status}"
            for path in REFUSED
            if not (answer := paths.get(path[1:])) or answer.status != 451 or answer.one("Crawl-Rule") != "private"
        ]
        self._report.check(f"{name}: every other one was refused by its rule", problems, len(REFUSED))
        arrived = self._site.count(scheme, host)
        problems = [f"{path}: {count} times" for path, count in arrived.items() if count > most]
        problems += differences(dict.fromkeys(arrived, 1), dict.fromkeys(["/", *ALLOWED], 1))
        self._report.check(f"{name}: the site got each allowed page once and nothing else", problems, len(arrived))

    def killed(self, squids: list[subprocess.Popen]) -> None:
        """The squid that the host uses is killed after some pages."""
        host, scheme = "killed.squid.test", "http"

        def kill() -> None:
            wait_for(lambda: sum(self._site.count(scheme, host).values()) >= PAGES // 3, 60, 0.005)
            used = self._used_proxy(host)
            os.killpg(squids[used].pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        # A page whose head had arrived breaks off, and Scrapy, by its defaults, asks for it again. All else is repeated by
        # the proxy, so a status of 502 is not repeated here.
        again = ("-s", "RETRY_ENABLED=True", "-s", "RETRY_HTTP_CODES=599")
        answers = self.ask("scrapy", scheme, host, again)
        killer.join()
        down = by_labels(self._gate.samples(), "crawlgate_parent_up", ("parent",), parent="squid")
        # A page that the dead proxy had fetched and not delivered is fetched again.
        self.judge("scrapy, whose squid is killed in the middle", scheme, host, answers, 2)
        self._report.equal("crawlgate_parent_up counts one squid less", down["squid"], 1)

    def _used_proxy(self, host: str) -> int:
        """The number of the squid whose log has the host."""
        logs = [self._folder / f"squid{number}" / "access.log" for number in range(2)]
        return next(number for number, log in enumerate(logs) if host in log.read_text(errors="replace"))

    def totals(self) -> None:
        lines = [json.loads(line) for line in self._gate.decisions.read_text().splitlines()]
        wrong = [
            f"{line['url']}: {line.get('parent')}"
            for line in lines
            if line["method"] == "GET" and line["verdict"] == "allow" and line.get("parent") != line["host"].split(".")[1]
        ]
        self._report.check("the decision log names the parent of each page", wrong, len(lines))
        requests = by_labels(self._gate.samples(), "crawlgate_parent_requests_total", ("parent",))
        logged = collections.Counter(line["parent"] for line in lines if line.get("parent"))
        self._report.check("crawlgate_parent_requests_total has as many", differences(requests, logged), len(logged))


def archived(folder: pathlib.Path) -> collections.Counter:
    """The URLs of the responses in the WARC files of a folder."""
    found: collections.Counter = collections.Counter()
    for file in folder.glob("*.warc*"):
        for record in re.split(rb"(?m)^WARC/1\.[01]\r\n", file.read_bytes())[1:]:
            head = record.split(b"\r\n\r\n")[0].decode("latin-1")
            fields = dict(line.split(": ", 1) for line in head.split("\r\n") if ": " in line)
            if fields.get("WARC-Type") in ("response", "revisit"):
                found[fields["WARC-Target-URI"].strip("<>")] += 1
    return found


def check_archive(report: Report, site: Site, folder: pathlib.Path) -> None:
    found = {url: count for url, count in archived(folder).items() if not url.endswith(("/robots.txt", "?meta"))}
    expected = {
        site.url(scheme, f"{crawler}.archive.test", path): 1
        for scheme in ("http", "https")
        for crawler in CRAWLERS
        for path in ["/", *ALLOWED]
    }
    title = "the WARC of warcprox has every allowed page once, and no refused one"
    report.check(title, differences(found, expected), len(found))


def check_warcprox_meta(report: Report, site: Site, gate: Gate) -> None:
    """A rule and a limit in Warcprox-Meta reach warcprox, and its refusals the crawler."""
    url = site.url("http", "curl.archive.test", "/p/0?meta")
    rule = {"blocks": [{"domain": "archive.test", "substring": "meta"}]}
    # It is reached after the first request, once that has been counted.
    limit = {"limits": {"test/total/urls": 1}, "stats": {"buckets": ["test"]}}
    for meta, status, field in ((rule, "403", "blocked-by-rule"), (limit, "420", "reached-limit")):
        command = ["curl", "-q", "-s", "-i", "--noproxy", "", "-x", gate.proxy, "-H", f"Warcprox-Meta: {json.dumps(meta)}", url]
        answers: list[str] = []

        def refused() -> bool:
            done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60)
            answers.append(done.stdout)
            return done.stdout.split(" ")[1:2] == [status]

        found = wait_for(refused, 20, 0.5) and re.search(f"(?im)^warcprox-meta:.*{field}", answers[-1])
        title = f"warcprox refuses with {status} and Warcprox-Meta, as it does without crawlgate"
        report.check(title, [] if found else [answers[-1]])


def balancer(report: Report, binary: pathlib.Path, authority: Authority, folder: pathlib.Path) -> None:
    """HAProxy in front of crawlgate."""
    if not shutil.which("haproxy"):
        report.missing("HAProxy in front", "haproxy")
        return
    folder.mkdir()
    trusted = {"trusted": ["127.0.0.1"]}
    settings = {
        "listen": [
            {"addr": "127.0.0.1:0", "proxy_protocol": trusted},
            {"addr": f"127.0.0.1:{(tls_port := free_port())}", "proxy_protocol": trusted, "tls": _listener(authority, folder)},
        ],
        "crawlers": [{"name": f"c{number}", "sources": [f"127.0.0.{number}"]} for number in (3, 4, 5)],
        "egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": {"a.test": "127.0.0.1"}},
    }
    policy = folder / "policy.yaml"
    policy.write_text("{ policy: 1, name: balanced, options: { disposition: disallow, record: full } }", encoding="utf-8")
    gate = Gate(binary, policy, folder, settings)
    ports = {name: free_port() for name in ("v1", "v2", "tls")}
    config = folder / "haproxy.cfg"
    config.write_text(HAPROXY.format(**ports, gate=gate.port, gate_tls=tls_port), encoding="utf-8")
    try:
        with running(["haproxy", "-db", "-f", config], folder, list(ports.values())):
            for number, (name, port) in zip((3, 4, 5), ports.items(), strict=True):
                scheme = "https" if name == "tls" else "http"
                proxy = ["--proxy-cacert", authority.cert, "-x", f"{scheme}://localhost:{port}"]
                source = ["--interface", f"127.0.0.{number}", "--noproxy", "", "--ipv4"]
                command = ["curl", "-q", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *proxy, *source, f"http://a.test/{name}"]
                done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=60)
                report.equal(f"HAProxy, {name}: the request is answered", (done.stdout, done.stderr), ("451", ""))
            # Health checks of both kinds.
            time.sleep(1)
        lines = [json.loads(line) for line in gate.decisions.read_text().splitlines()]
        found = {line["url"].rsplit("/", 1)[1]: line["crawler"] for line in lines if line["url"]}
        report.equal("HAProxy: each client is known by its own address", found, {"v1": "c3", "v2": "c4", "tls": "c5"})
        failures = by_labels(gate.samples(), "crawlgate_proxy_protocol_failures_total", ("reason",))
        report.equal("HAProxy: no connection lacks its header, health checks included", dict(failures), {})
    finally:
        gate.stop()


def _listener(authority: Authority, folder: pathlib.Path) -> dict[str, str]:
    authority.context(["localhost"], "listener")
    for name in ("listener.pem", "listener.key"):
        shutil.copy(authority.cert.parent / name, folder / name)
    (folder / "listener.key").chmod(0o600)
    return {"cert": str(folder / "listener.pem"), "key": str(folder / "listener.key")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--python", default=sys.executable, help="a Python that has Scrapy and warcprox")
    parser.add_argument("--keep", type=pathlib.Path, help="leave logs in this new or empty folder")
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-parents-", ignore_cleanup_errors=True) as name:
        folder = arguments.keep or pathlib.Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        # squid and dante give up the user that started them.
        folder.chmod(0o777)
        authority = Authority(folder / "site")
        balancer(report, arguments.binary.resolve(), authority, folder / "haproxy")
        chains(report, arguments.binary.resolve(), arguments.python, authority, folder)
    return report.close()


def chains(report: Report, binary: pathlib.Path, python: str, authority: Authority, folder: pathlib.Path) -> None:
    scrapy = subprocess.run([python, "-c", "import scrapy, warcprox"], capture_output=True).returncode == 0
    squid, dante = shutil.which("squid"), shutil.which("danted")
    for program, found in (("squid", squid), ("dante-server", dante), ("Scrapy with warcprox", scrapy), ("curl", shutil.which("curl"))):
        if not found:
            report.missing("chains through parents", program)
            return
    site = Site(authority.context(HOSTS))
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {host}\n" for host in HOSTS), encoding="utf-8")
    with contextlib.ExitStack() as stack:
        stack.callback(site.stop)
        ports = {name: free_port() for name in ("squid0", "squid1", "dante", "warcprox")}
        squids = []
        for name in ("squid0", "squid1", "dante", "warcprox"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
        for name in ("squid0", "squid1"):
            config = folder / name / "squid.conf"
            config.write_text(SQUID.format(port=ports[name], hosts=hosts, folder=folder / name), encoding="utf-8")
            squids.append(stack.enter_context(running([squid, "-N", "-f", config], folder / name, [ports[name]])))
        config = folder / "dante" / "danted.conf"
        config.write_text(DANTE.format(port=ports["dante"], folder=folder / "dante"), encoding="utf-8")
        # dante uses the system's resolver, so it gets a file of hosts of its own.
        start = f'mount --bind "{hosts}" /etc/hosts && exec "{dante}" -f "{config}"'
        namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
        stack.enter_context(running([*namespace, "sh", "-c", start], folder / "dante", [ports["dante"]]))
        warcs, ca = folder / "warcprox" / "warcs", folder / "warcprox" / "ca.pem"
        command = [python, "-c", WARCPROX, "-b", "127.0.0.1", "-p", ports["warcprox"], "-d", warcs, "-c", ca]
        command += ["--certs-dir", folder / "warcprox" / "certs", "-j", "/dev/null"]
        command += ["--stats-db-file", folder / "warcprox" / "stats.db"]
        warcprox = stack.enter_context(running(command, folder / "warcprox", [ports["warcprox"]]))
        own = folder / "own"
        own.mkdir()
        roots = own / "roots.pem"
        settings = {
            "tls": {
                "ca": {"cert": str(own / "ca.pem"), "key": str(own / "ca.key")},
                "bundle": str(own / "bundle.pem"),
                "extra_roots": [str(authority.cert), str(ca)],
            },
            "crawlers": [{"name": "local", "sources": ["127.0.0.0/8"], "may": ["warcprox"]}],
            "egress": {
                "ports": ["1-65535"],
                "connect_ports": ["1-65535"],
                "tls_ports": ["1-65535"],
                "parents": {
                    "squid": {"proxies": [f"http://127.0.0.1:{ports[name]}" for name in ("squid0", "squid1")]},
                    "dante": {"proxies": f"socks5://127.0.0.1:{ports['dante']}"},
                    "archive": {"proxies": f"http://127.0.0.1:{ports['warcprox']}", "warcprox": True},
                },
            },
        }
        policy = folder / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        gate = Gate(binary, policy, own, settings)
        try:
            roots.write_bytes((own / "ca.pem").read_bytes())
            run = Chains(report, site, gate, roots, python, folder)
            for parent in PARENTS:
                for crawler in CRAWLERS:
                    run.crawl(crawler, parent)
            run.killed(squids)
            run.totals()
            check_warcprox_meta(report, site, gate)
        finally:
            code = gate.stop()
        report.equal("SIGTERM ends it, with exit code 0", code, 0)
        report.check("its standard error has no panic", [line for line in gate.lines if "panicked" in line])
        os.killpg(warcprox.pid, signal.SIGTERM)
        warcprox.wait(timeout=30)
        check_archive(report, site, warcs)


if __name__ == "__main__":
    sys.exit(main())
