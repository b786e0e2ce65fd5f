"""Two crawlgates under traffic of every kind, so that each panel of the dashboards has something to show.

The first looks into TLS, has a shadow rule, a dead rule, a polite host and small limits; a reload of it succeeds and the
next one fails. The second has another policy, and a disk that is full. The site answers by host and path.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import pathlib
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable

from authority import Authority
from services import Gate, get

DOMAIN = "watch.test"
MANY = [f"h{number}.{DOMAIN}" for number in range(40)]
# Hosts whose robots.txt is an error, hosts without HTTP, and hosts with a self-signed certificate. There are many of
# each, since a failing host may be left alone for a while.
NO_ROBOTS = [f"norobots{number}.{DOMAIN}" for number in range(40)]
FAILING = [f"failing{number}.{DOMAIN}" for number in range(40)]
STRANGERS = [f"stranger{number}.{DOMAIN}" for number in range(40)]
PLAIN, CLOSED_IN_PART, BLOCKED, POLITE, CALM, REST, BAN, STOPPED = (
    f"{name}.{DOMAIN}" for name in ("www", "part", "blocked", "polite", "calm", "rest", "ban", "stopped")
)
# Hosts without consecutive errors, so that no rest prevents the expected requests.
SLOW, REMEMBERED = (f"{name}.{DOMAIN}" for name in ("slow", "remembered"))
BLIND, HALF, SKIP = (f"{name}.{DOMAIN}" for name in ("blind", "half", "skip"))
HOSTS = [
    *(PLAIN, CLOSED_IN_PART, BLOCKED, POLITE, CALM, REST, BAN, STOPPED, SLOW, REMEMBERED, BLIND, HALF, SKIP),
    *(host for several in (MANY, NO_ROBOTS, FAILING, STRANGERS) for host in several),
]
# Hosts that want a connection, a look-up and a handshake for each request.
ANEW = {SKIP, "localhost"}
# The address identifies the crawler: news, archive, and anonymous.
SOURCES = ("127.0.0.5", "127.0.0.6", "127.0.0.1")
PAUSE = 0.02

POLICY = f"""\
policy: 1
name: watched
options:
  disposition: allow
  politeness: {{ delay: 0s, concurrency: 100, jitter: none }}
rules:
  - {{ id: admitted, when: {{ under: /pages }}, then: allow }}
  - {{ id: closed, forbid: {{ under: /closed }} }}
  - {{ id: blocked-site, forbid: {{ host: {BLOCKED} }} }}
  - {{ id: pictures, forbid: {{ content_type: "image/*" }} }}
  - {{ id: dead, about: no such path is asked for, forbid: {{ under: /never }} }}
  - {{ id: off, enabled: false, forbid: {{ under: /pages }} }}
  - {{ id: trial, mode: shadow, forbid: {{ under: /pages/trial }} }}
  - id: polite
    when: {{ host: [{POLITE}, {CALM}] }}
    set: {{ politeness: {{ delay: 300ms, concurrency: 1 }}, robots: {{ crawl_delay_cap: 300ms }} }}
  - {{ id: unseen, when: {{ host: {BLIND} }}, set: {{ tls: tunnel, tunnel_undecided: allow }} }}
  - {{ id: half, when: {{ host: {HALF} }}, set: {{ tls: tunnel }} }}
  - {{ id: unread, when: {{ host: [{", ".join(FAILING + STRANGERS)}] }}, set: {{ robots: {{ obey: false }} }} }}
  - {{ id: remembered, when: {{ under: /again }}, set: {{ recrawl: {{ min_interval: 1h }} }} }}
  - {{ id: deep, when: {{ under: /deep }}, set: {{ max_depth: 3 }} }}
  - {{ id: unverified, when: {{ host: {SKIP} }}, set: {{ verify: skip }} }}
"""
NEW_RULE = "  - { id: new, forbid: { under: /pages/new } }\n"
BROKEN = "policy: 1\nname: [watched\n"


class Site(http.server.ThreadingHTTPServer):
    """`/status/NNN` is that status, `/type/KIND` that type, `/broken` no HTTP, `/slow` a page after two seconds; everything else a page.

    robots.txt is the host's affair.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.seen: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def finish_request(self, request, client_address) -> None:
        """The handshake is the connection's own thread's work."""
        if self._context:
            request = self._context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address) -> None:
        """Handshakes that fail and clients that leave are part of the traffic."""


def _robots(host: str) -> int:
    """The status of a host's robots.txt."""
    return 503 if host in NO_ROBOTS else 200 if host in (CLOSED_IN_PART, CALM) else 404


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one go.
    wbufsize = -1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        # So long that events wait at a scrape.
        time.sleep(1.5)
        self.send_response(422)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        host = (self.headers["Host"] or "").split(":")[0]
        if self.path == "/broken":
            self.wfile.write(b"this is not HTTP\r\n\r\n")
            self.close_connection = True
            return
        if self.path == "/slow":
            time.sleep(2)
        status, kind, body = 200, "text/html", b"a page\n" * 100
        if self.path == "/robots.txt":
            status, kind, body = _robots(host), "text/plain", b"User-agent: *\nDisallow: /private/\nCrawl-delay: 1\n"
        elif named := re.match(r"/status/(\d{3})$", self.path):
            status = int(named[1])
        elif self.path.startswith("/gone/"):
            # Present at the first request only.
            status = 404 if self.path in self.server.seen else 200
            self.server.seen.add(self.path)
        elif named := re.match(r"/type/(\w+)/(\w+)$", self.path):
            kind = f"{named[1]}/{named[2]}"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", "5")
        if host in ANEW:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


class _First(Gate):
    """The proxy with every feature."""

    def __init__(
        self, binary: pathlib.Path, folder: pathlib.Path, root: pathlib.Path, tls_ports: list[int], port: int
    ) -> None:
        self._ports = tls_ports, port
        self.policy = folder / "policy.yaml"
        self.policy.write_text(POLICY, encoding="utf-8")
        self.ca = folder / "certs" / "ca.pem"
        tls = {
            "intercept": True,
            # A refused CONNECT stays one.
            "intercept_to_reject": False,
            "ca": {"cert": str(self.ca), "key": str(folder / "certs" / "ca.key")},
            "bundle": str(folder / "certs" / "bundle.pem"),
            "extra_roots": [str(root)],
            "mints_per_client": "2/s",
        }
        crawlers = [
            {"name": name, "sources": [f"{source}/32"]} for name, source in zip(("news", "archive"), SOURCES)
        ]
        # The site takes no events: they are put aside.
        events = {"file": str(folder / "events.ndjson"), "webhook": f"http://127.0.0.1:{port}/events"}
        more = {"tls": tls, "crawlers": crawlers, "limits": {"queue_per_host": 4}}
        more |= {"store": {"path": str(folder / "store")}, "ledger": {"events": events}}
        # It is reloaded by a signal, not by a change of the file.
        super().__init__(binary, self.policy, folder, more | {"policy": {"path": str(self.policy), "watch": False}})

    def _settings(self, policy: pathlib.Path) -> dict:
        settings = super()._settings(policy)
        tls_ports, port = self._ports
        hosts = dict.fromkeys(HOSTS, "127.0.0.1")
        settings["egress"].update(hosts=hosts, connect_ports=[*tls_ports, port], tls_ports=tls_ports)
        return settings

    def reload(self, text: str) -> None:
        self.policy.write_text(text, encoding="utf-8")
        get(f"{self.admin}/api/v1/reload", body=b"")


class Watched:
    """Sites and gates; traffic goes on from `start` to `stop`."""

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path) -> None:
        authority, stranger = Authority(folder / "trusted"), Authority(folder / "stranger", "another CA")
        self.root = authority.cert
        self._site = Site()
        self._secure = Site(authority.context([f"*.{DOMAIN}"]))
        self._untrusted = Site(stranger.context([f"*.{DOMAIN}"]))
        self._closed = _unused_port()
        # The store of a proxy is a sibling of the directory of its configuration.
        places = [folder / name / "settings" for name in ("first", "second", "gone")]
        for place in places:
            place.mkdir(parents=True)
        ports = [self._secure.port, self._untrusted.port]
        self.first = _First(binary, places[0], self.root, ports, self._site.port)
        policy = places[1] / "policy.yaml"
        policy.write_text(POLICY.replace("name: watched", "name: watched\n# another revision"), encoding="utf-8")
        full = {"logs": {"decisions": "/dev/full", "on_full": "drop"}}
        egress = {"allow_loopback": True, "ports": ["1-65535"], "hosts": dict.fromkeys(HOSTS, "127.0.0.1")}
        self.second = Gate(binary, policy, places[1], full | {"egress": egress})
        self.gone = Gate(binary, policy, places[2], {"egress": egress})
        self._inside = ssl.create_default_context(cafile=str(self.first.ca))
        self._blind = ssl.create_default_context(cafile=str(self.root))
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.surprises: list[str] = []

    def start(self) -> None:
        stop = {"what": STOPPED, "reason": "to be seen on a dashboard", "for": "1h"}
        get(f"{self.first.admin}/api/v1/stops", body=json.dumps(stop).encode())
        for source in SOURCES:
            self._go_on(lambda turn, source=source: self._crawl(self.first, source, turn))
        self._go_on(lambda turn: self._crawl(self.second, SOURCES[2], turn))
        for _ in range(6):
            self._go_on(lambda turn: self._politely(POLITE, turn))
        self._go_on(lambda turn: self._politely(CALM, turn))
        # At each scrape something is under way.
        self._go_on(lambda _: self._ask(self.first, self._url(SLOW, "/slow")))
        self._go_on(lambda _: self._ask(self.second, self._url(SLOW, "/slow")))
        self._go_on(self._impatiently, 0.3)
        self._go_on(self._remembered, 0.1)
        for part in (self._trouble, self._tunnels, self._odd_tunnels):
            self._go_on(part, 0.1)
        self._go_on(self._odd_bytes, 0.2)
        self._go_on(self._stay, 1.0)

    def stop(self) -> None:
        """Ends traffic, gates and sites."""
        self._over.set()
        for thread in self._threads:
            thread.join(15)
        for gate in (self.first, self.second, self.gone):
            gate.stop()
        for site in (self._site, self._secure, self._untrusted):
            site.shutdown()

    def reload_well(self) -> None:
        self.first.reload(POLICY + NEW_RULE)

    def reload_badly(self) -> None:
        self.first.reload(BROKEN)

    def _go_on(self, part: Callable[[int], None], pause: float = PAUSE) -> None:
        """A thread that repeats this; I/O errors of a client are ignored, other errors are reported."""

        def run() -> None:
            turn = 0
            while not self._over.wait(pause):
                try:
                    part(turn)
                except (OSError, http.client.HTTPException):
                    pass
                except Exception as error:  # noqa: BLE001  # a mistake in here must not look like a panel without data
                    self.surprises.append(f"{part}: {error!r}")
                    return
                turn += 1

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _ask(
        self, gate: Gate, url: str, source: str = SOURCES[2], headers: dict | None = None, seconds: float = 20
    ) -> int:
        """One request by proxy; its status."""
        connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=seconds, source_address=(source, 0))
        with contextlib.closing(connection):
            connection.request("GET", url, headers=headers or {})
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def _url(self, host: str, path: str, port: int | None = None) -> str:
        return f"http://{host}:{port or self._site.port}{path}"

    def _crawl(self, gate: Gate, source: str, turn: int) -> None:
        """Pages, and one refusal of each kind; `/closed/again` is requested repeatedly."""
        paths = [
            f"/pages/{turn}",
            f"/closed/{source}/{turn}",
            "/closed/again",
            "/type/image/png",
            "/status/404",
            "/status/500",
            f"/pages/trial/{turn}",
            f"/pages/new/{turn}",
            "/type/application/pdf",
        ]
        path = paths[turn % len(paths)]
        # Three errors in a row, and a host would rest.
        spread = turn % 3 == 0 or path == "/status/500"
        host = BLOCKED if turn % 17 == 0 else MANY[turn % 8] if spread else PLAIN
        self._ask(gate, self._url(host, path), source)

    def _politely(self, host: str, turn: int) -> None:
        """More requests to one host than its queue holds; some send the longest wait."""
        impatient = {"Crawl-Max-Wait": "0.05"} if turn % 5 == 4 else {}
        self._ask(self.first, self._url(host, f"/pages/{turn}"), headers=impatient)

    def _impatiently(self, turn: int) -> None:
        """Leaves while it is held."""
        self._ask(self.first, self._url(CALM, f"/pages/left-{turn}"), SOURCES[turn % 3], seconds=0.1)

    def _remembered(self, turn: int) -> None:
        """A page that is removed, one that is requested again too soon, one that never existed, and one of unknown depth."""
        for path in (f"/gone/{turn}", f"/gone/{turn}", "/again", "/again", "/status/404"):
            self._ask(self.first, self._url(REMEMBERED, path))
        stranger = {"Referer": self._url(REMEMBERED, f"/never-requested/{turn}")}
        self._ask(self.first, self._url(REMEMBERED, f"/deep/{turn}"), headers=stranger)

    def _trouble(self, turn: int) -> None:
        urls = [
            self._url(FAILING[turn // 10 % 40], "/pages/1", self._closed),
            self._url(FAILING[turn // 10 % 40], "/broken"),
            # A name that is looked up.
            self._url("localhost", "/pages/1"),
            self._url(REST, "/status/503"),
            self._url(NO_ROBOTS[turn // 10 % 40], "/pages/1"),
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.1/",
            self._url(BAN, "/status/403"),
            self._url(CLOSED_IN_PART, "/private/x"),
            self._url(STOPPED, "/pages/1"),
        ]
        # A request to a resting host that does not wait is refused.
        self._ask(self.first, urls[turn % len(urls)], headers={"Crawl-Max-Wait": "0"})

    def _tunnel(self, host: str, port: int, context: ssl.SSLContext, path: str = "/pages/1") -> int:
        connection = http.client.HTTPSConnection("127.0.0.1", self.first.port, timeout=20, context=context)
        with contextlib.closing(connection):
            connection.set_tunnel(host, port)
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def _tunnels(self, turn: int) -> None:
        """Each of many hosts needs a certificate of its own."""
        path = "/closed/inside" if turn % 4 == 0 else f"/pages/{turn}"
        self._tunnel(MANY[turn % len(MANY)], self._secure.port, self._inside, path)

    def _odd_tunnels(self, turn: int) -> None:
        secure = self._secure.port
        cases: list[Callable[[], object]] = [
            lambda: self._tunnel(BLIND, secure, self._blind),
            lambda: self._tunnel(HALF, secure, self._blind),
            lambda: self._tunnel(SKIP, secure, self._inside),
            lambda: self._tunnel(STRANGERS[turn // 7 % 40], self._untrusted.port, self._inside),
            # It does not trust the authority of the proxy.
            lambda: self._tunnel(PLAIN, secure, self._blind),
            lambda: self._tunnel(PLAIN, 1, self._blind),
            lambda: self._misnamed(secure),
        ]
        cases[turn % len(cases)]()

    def _misnamed(self, port: int) -> None:
        """Another server name than the tunnel's."""
        with self._connected(f"CONNECT {BLIND}:{port} HTTP/1.1\r\nHost: {BLIND}:{port}\r\n\r\n".encode()) as opened:
            opened.recv(4096)
            with self._blind.wrap_socket(opened, server_hostname=PLAIN):
                pass

    def _connected(self, first: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.first.port), timeout=5)
        connection.sendall(first)
        return connection

    def _odd_bytes(self, turn: int) -> None:
        """A TLS record, the preface of HTTP/2, a head that is none."""
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)
        first = [hello, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET\r\n\r\n"]
        with self._connected(first[turn % len(first)]) as connection:
            connection.recv(4096)

    def _stay(self, _turn: int) -> None:
        """A tunnel that stays open for a while."""
        port = self._secure.port
        with self._connected(f"CONNECT {BLIND}:{port} HTTP/1.1\r\nHost: {BLIND}:{port}\r\n\r\n".encode()) as opened:
            opened.recv(4096)
            with self._blind.wrap_socket(opened, server_hostname=BLIND):
                self._over.wait(3)


def _unused_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def main() -> None:
    """Traffic for a while, without checks: `python3 watched.py BINARY FOLDER SECONDS`."""
    import sys

    watched = Watched(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
    watched.start()
    time.sleep(float(sys.argv[3]))
    print(watched.first.metrics_text().decode(), watched.surprises)
    watched.stop()


if __name__ == "__main__":
    main()
