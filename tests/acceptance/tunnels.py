"""Tunnels: real clients over TLS, with a site and a certificate authority of the run's own.

What is inside TLS is the client's and the site's affair, so the site's log and the client's exit tell whether a tunnel
was opened; what a refusal looks like is what the clients themselves print.
"""

from __future__ import annotations

import http.server
import json
import pathlib
import re
import shutil
import ssl
import subprocess
import threading

from authority import Authority
from clients import clean_environment
from crawlers import has_undici
from report import Report
from services import Gate, by_labels, wait_for

OPEN, HALF, CLOSED = "open.tunnel.test", "half.tunnel.test", "closed.tunnel.test"
PAGE = b"a page behind TLS\n"
HERE = pathlib.Path(__file__).resolve().parent
POLICY = HERE / "tunnels.yaml"
# The reason phrase of a refused CONNECT.
PHRASE = r"Policy-451 rule=closed-site id=[0-9a-f]+-[0-9a-f]+"


def run(
    report: Report, binary: pathlib.Path, scrapy_python: str, modules: pathlib.Path | None, folder: pathlib.Path
) -> None:
    """The whole part; without openssl there is no certificate."""
    report.section("Tunnels")
    for program in ("openssl", "curl"):
        if not shutil.which(program):
            report.missing("https through blind tunnels", program)
            return
    folder = folder / "tunnels"
    folder.mkdir()
    authority = Authority(folder)
    secure, plain = Site(authority.context((OPEN, HALF, CLOSED))), Site(None)
    gate = TunnelGate(binary, POLICY, folder, secure.port)
    try:
        Tunnels(report, gate, authority, secure, plain, scrapy_python, modules).run()
    finally:
        code = gate.stop()
        secure.shutdown()
        plain.shutdown()
    report.equal("SIGTERM ends the tunnels' crawlgate, with exit code 0", code, 0)
    report.check("its standard error has no panic", [line for line in gate.lines if "panicked" in line])


class TunnelGate(Gate):
    """A crawlgate that lets tunnels go to the ports of the run, and takes one of them for TLS."""

    def __init__(self, binary: pathlib.Path, policy: pathlib.Path, folder: pathlib.Path, tls_port: int) -> None:
        self._tls_port = tls_port
        super().__init__(binary, policy, folder)

    def _settings(self, policy: pathlib.Path) -> dict:
        settings = super()._settings(policy)
        hosts = dict.fromkeys((OPEN, HALF, CLOSED), "127.0.0.1")
        settings["egress"].update(hosts=hosts, connect_ports=["1-65535"], tls_ports=[self._tls_port])
        return settings


class Site(http.server.ThreadingHTTPServer):
    """Answers every request with the page, and records the requests, and in `seen` their fields and bodies."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.asked: list[str] = []
        self.seen: list[str] = []
        self._context = context
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def finish_request(self, request, client_address) -> None:
        """The handshake runs in the thread of the connection, so that a silent client blocks no other."""
        if self._context:
            request = self._context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address) -> None:
        """Some cases expect a tunnel that is closed before its handshake."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.headers['Host']}{self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append(f"{self.headers}{body.decode('latin-1')}")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    do_POST = do_GET

    def log_message(self, *_) -> None:
        pass


class Tunnels:
    """All cases, with one proxy."""

    def __init__(
        self,
        report: Report,
        gate: Gate,
        authority: Authority,
        secure: Site,
        plain: Site,
        scrapy_python: str,
        modules: pathlib.Path | None,
    ) -> None:
        self._report = report
        self._gate = gate
        self._ca = authority.cert
        self._secure = secure
        self._plain = plain
        self._scrapy = scrapy_python
        self._modules = modules

    def run(self) -> None:
        for part in (
            self._pages,
            self._refusals,
            self._names,
            self._plain_http,
            self._scrapy_spider,
            self._undici,
            self._counters,
        ):
            part()

    def _curl(self, *arguments: str) -> tuple[int, str]:
        """curl's exit code, and all that it prints: heads of the proxy and of the site, and the body."""
        command = ["curl", "-q", "-s", "-i", "-m", "30", "-x", self._gate.proxy, "--noproxy", "", "--cacert", str(self._ca)]
        done = subprocess.run([*command, *arguments], env=clean_environment(), capture_output=True, timeout=60)
        return done.returncode, done.stdout.decode("latin-1")

    def _url(self, host: str, path: str = "/page") -> str:
        return f"https://{host}:{self._secure.port}{path}"

    def _environment(self, **extra: str) -> dict[str, str]:
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), self._gate.proxy)
        return clean_environment(**proxies, SSL_CERT_FILE=str(self._ca), **extra)

    def _pages(self) -> None:
        """The page arrives whole, the handshake was with the site, and nothing but a 200 is the proxy's."""
        code, text = self._curl(self._url(OPEN, "/one"), self._url(OPEN, "/two"))
        problems = [] if code == 0 else [f"curl's exit code is {code}"]
        problems += [] if text.count(PAGE.decode()) == 2 else [f"{text!r}"]
        problems += [] if text.count(" 200 Connection established") == 1 else ["not one CONNECT for both"]
        self._report.check("curl --cacert: two pages through one blind tunnel", problems)
        self._report.equal(
            "the site was asked for just these",
            self._secure.asked,
            [f"{OPEN}:{self._secure.port}{path}" for path in ("/one", "/two")],
        )
        done = self._python(f"urllib.request.urlopen({self._url(OPEN)!r}).read()")
        self._report.equal("urllib: a page through a tunnel of HTTP/1.0", done.stdout.strip(), repr(PAGE))
        if shutil.which("wget"):
            done = self._wget(self._url(OPEN))
            self._report.equal("wget: a page through a tunnel", done.stdout, PAGE.decode())

    def _refusals(self) -> None:
        """Most clients show no more of a refused CONNECT than its reason phrase."""
        code, text = self._curl(self._url(CLOSED))
        problems = [] if code == 56 else [f"curl's exit code is {code}, not 56"]
        problems += [
            f"{pattern} is not in {text!r}"
            for pattern in (
                rf"HTTP/1\.1 451 {PHRASE}\r",
                r"(?i)\ncrawl-rule: closed-site\r",
                r"(?i)\ncrawl-retry: policy-change\r",
                r"(?i)\nconnection: close\r",
            )
            if not re.search(pattern, text)
        ]
        self._report.check("curl: a refused host shows phrase and fields", problems)
        done = self._python(f"urllib.request.urlopen({self._url(CLOSED)!r})")
        self._shows("urllib", "Tunnel connection failed: 451 " + PHRASE, done.stderr)
        if shutil.which("wget"):
            self._shows("wget", PHRASE, self._wget(self._url(CLOSED)).stderr)
        code, text = self._curl(self._url(HALF))
        found = re.search(r"HTTP/1\.1 451 Policy-451 rule=half id=", text) and "undecided" in text
        self._report.check("curl: a host that a tunnel hides too much of is undecided", [] if found else [text])
        self._report.equal("the site was asked for none of them", [a for a in self._secure.asked if OPEN not in a], [])

    def _shows(self, client: str, pattern: str, text: str) -> None:
        self._report.check(f"{client}: a refused host shows the phrase", [] if re.search(pattern, text) else [text])

    def _names(self) -> None:
        """The name in the ClientHello must be the host of the CONNECT."""
        before, port = len(self._secure.asked), self._secure.port
        code, _ = self._curl("--connect-to", f"{CLOSED}:{port}:{OPEN}:{port}", self._url(CLOSED))
        self._report.equal("curl: another name inside an open tunnel ends it (exit code 35)", code, 35)
        connect = ["openssl", "s_client", "-proxy", f"127.0.0.1:{self._gate.port}", "-connect", f"{OPEN}:{port}"]
        done = subprocess.run(
            [*connect, "-noservername"], input=b"", env=clean_environment(), capture_output=True, timeout=60
        )
        self._report.equal("openssl: no name inside a tunnel ends it", done.returncode != 0, True)
        self._report.equal("the site was asked for none of them", len(self._secure.asked), before)

    def _plain_http(self) -> None:
        """`CONNECT host:80` and HTTP inside, as undici does by default: evaluated by URL."""
        port = self._plain.port
        code, text = self._curl("-p", f"http://{OPEN}:{port}/page", f"http://{OPEN}:{port}/secret/page")
        heads = re.findall(r"HTTP/1\.[01] (\d{3})", text)
        self._report.equal("curl -p: a page, and a refusal inside the same tunnel", (code, heads), (0, ["200", "200", "451"]))
        self._report.equal("the refused one never reached the site", self._plain.asked, [f"{OPEN}:{port}/page"])
        self._report.check(
            "the refusal inside has all its fields",
            [] if re.search(r"(?i)crawl-rule: secret\r", text) and "crawl-decision" in text.lower() else [text],
        )

    def _scrapy_spider(self) -> None:
        if subprocess.run([self._scrapy, "-c", "import scrapy"], capture_output=True).returncode != 0:
            self._report.missing("Scrapy through tunnels", "Scrapy")
            return
        fetch = [self._scrapy, "-m", "scrapy", "fetch", "--no-redirect", "-s", "RETRY_ENABLED=False"]
        for host, expected in ((OPEN, re.escape(PAGE.decode())), (CLOSED, "451")):
            done = subprocess.run(
                [*fetch, self._url(host)], env=self._environment(), capture_output=True, text=True, timeout=120
            )
            found = done.stdout if host == OPEN else done.stderr
            self._report.check(f"Scrapy: {host}", [] if re.search(expected, found) else [done.stdout + done.stderr])

    def _undici(self) -> None:
        """It tunnels http too, and says `Connection: close` of a CONNECT whose tunnel it goes on to use."""
        if not has_undici(self._modules):
            self._report.missing("undici through tunnels", "undici")
            return
        plain = f"http://{OPEN}:{self._plain.port}"
        expected = {
            self._url(OPEN): (200, None),
            self._url(CLOSED): (0, None),
            f"{plain}/page": (200, None),
            f"{plain}/secret/page": (451, "secret"),
        }
        command = ["node", str(HERE / "undici_client.mjs"), str(self._modules), self._gate.proxy, "tunnel"]
        done = subprocess.run(
            command,
            input="".join(f"{url}\n" for url in expected),
            env=self._environment(NODE_EXTRA_CA_CERTS=str(self._ca)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        found = {a["url"]: (a["status"], a["headers"].get("crawl-rule", [None])[0]) for a in answers}
        self._report.equal("undici: pages and refusals, over TLS and inside a plain tunnel", found, expected)

    def _counters(self) -> None:
        wait_for(lambda: self._open() == 0, 10)
        self._report.equal("no tunnel is left open", self._open(), 0)
        samples = self._gate.samples()
        sni = by_labels(samples, "crawlgate_sni_checks_total", ("category",))
        others = {category: count for category, count in sni.items() if category != "match"}
        self._report.equal("SNI checks: one mismatch, one without a name", others, {"mismatch": 1, "none": 1})
        self._report.check("SNI checks: the others match", [] if sni["match"] >= 2 else [f"{sni}"])
        decided = sum(by_labels(samples, "crawlgate_tunnels_total", ("verdict",)).values())
        wait_for(lambda: self._logged() == decided, 5)
        self._report.equal("every CONNECT has one line in the decision log", self._logged(), decided)

    def _open(self) -> float:
        return sum(value for (name, _), value in self._gate.samples().items() if name == "crawlgate_tunnels")

    def _logged(self) -> int:
        return self._gate.decisions.read_text(encoding="utf-8").count('"method":"CONNECT"')

    def _python(self, expression: str) -> subprocess.CompletedProcess:
        code = f"import urllib.request; print({expression})"
        command = [shutil.which("python3") or "python3", "-c", code]
        return subprocess.run(command, env=self._environment(), capture_output=True, text=True, timeout=60)

    def _wget(self, url: str) -> subprocess.CompletedProcess:
        command = ["wget", "--no-config", "-nv", "--no-hsts", "--tries=1", "-O", "-", f"--ca-certificate={self._ca}", url]
        environment = self._environment(LC_ALL="C.UTF-8")
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
