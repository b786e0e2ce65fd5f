"""Intercepted HTTPS: the whole site over TLS, with clients that verify the certificates of crawlgate.

The site has an authority of its own, which only crawlgate is told to trust; the clients trust only crawlgate's, which
`run` makes. What must become of each URL is `expected.tsv` once more: the policy that judges is the same.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable

import clients
import crawlers
import inside_edges
from authority import Authority
from clients import Answer, clean_environment
from crawl import Crawl
from origin import Origin
from pages import BLOCKED, HOSTS, MARK, SUB_BLOCKED, WWW
from report import Report
from services import Gate, by_labels, get, wait_for
from table import Row, Table

HERE = pathlib.Path(__file__).resolve().parent
DOMAINS = ["crawl.test", "partner.test", "blocked.test", "elsewhere.test"]
STORE_WORD = "changeit"
# One host whose TLS a rule wants left alone; being refused, it is looked into to say so.
UNSEEN = f"  - {{ id: unseen, when: {{ host: {BLOCKED} }}, set: {{ tls: tunnel }} }}\n"


def run(
    report: Report,
    binary: pathlib.Path,
    hashes: dict[str, str],
    table: Table,
    folder: pathlib.Path,
    python: str,
    modules: pathlib.Path | None,
) -> None:
    """The whole part; without openssl there is no certificate."""
    report.section("HTTPS, looked into")
    for program in ("openssl", "curl"):
        if not shutil.which(program):
            report.missing("https, looked into", program)
            return
    folder = folder / "inside"
    folder.mkdir()
    authority = Authority(folder / "site")
    origin = Origin(folder / "origin.jsonl", authority.context(HOSTS))
    gate = InsideGate(
        binary, secure_policy(folder), folder, origin.port, authority.cert, crawlers.registrations(hashes)
    )
    try:
        Inside(report, origin, gate, secure_table(table), folder, binary, authority.cert).run(python, modules)
    finally:
        code = gate.stop()
        origin.stop()
    report.equal("SIGTERM ends it, with exit code 0", code, 0)
    report.check("its standard error has no panic", [line for line in gate.lines if "panicked" in line])
    inside_edges.run(report, binary, hashes, folder)


class InsideGate(Gate):
    """A crawlgate that intercepts TLS, and trusts the site's authority besides the system's."""

    def __init__(
        self,
        binary: pathlib.Path,
        policy: pathlib.Path,
        folder: pathlib.Path,
        tls_port: int,
        root: pathlib.Path,
        registrations: list[dict],
    ) -> None:
        self._tls_port = tls_port
        self.certs = folder / "certs"
        self.ca, self.key, self.bundle = (self.certs / name for name in ("ca.pem", "ca.key", "bundle.pem"))
        tls = {
            "intercept": True,
            "ca": {"cert": str(self.ca), "key": str(self.key)},
            "bundle": str(self.bundle),
            "extra_roots": [str(root)],
        }
        super().__init__(binary, policy, folder, {"tls": tls, "crawlers": registrations})

    def _settings(self, policy: pathlib.Path) -> dict:
        settings = super()._settings(policy)
        settings["egress"].update(connect_ports=["1-65535"], tls_ports=[self._tls_port])
        return settings


def secure_policy(folder: pathlib.Path) -> pathlib.Path:
    """The policy of the plain crawls; where a rule names http it means https, and its cases are left out."""
    text, _, _ = (HERE / "policy.yaml").read_text(encoding="utf-8").partition("\ncases:")
    text = text.replace("http://", "https://").replace("\nrules:\n", f"\nrules:\n{UNSEEN}", 1)
    shutil.copytree(HERE / "lists", folder / "lists")
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def secure_table(table: Table) -> Table:
    """The table with https in place of http."""

    def of(rows: dict[str, Row]) -> dict[str, Row]:
        moved = (dataclasses.replace(row, url=re.sub(r"(?i)^http:", "https:", row.url)) for row in rows.values())
        return {row.url: row for row in moved}

    return Table(of(table.get), of(table.head))


class Inside:
    """The crawls over TLS, through one proxy."""

    def __init__(
        self,
        report: Report,
        origin: Origin,
        gate: InsideGate,
        table: Table,
        folder: pathlib.Path,
        binary: pathlib.Path,
        root: pathlib.Path,
    ) -> None:
        self._report = report
        self._origin = origin
        self._gate = gate
        self._folder = folder
        self._binary = binary
        self._root = root
        self._crawl = Crawl(report, origin, gate, table)
        self._rows = list(table.get.values())
        self._linked = [row.url for row in self._rows if row.linked]
        self._start = origin.site.url(WWW, "/")

    def run(self, python: str, modules: pathlib.Path | None) -> None:
        self._authority()
        trust = self._trust()
        self._curl()
        self._wget()
        self._scrapy(python, trust)
        self._requests(python, trust)
        self._undici(modules, trust)
        self._java()
        self._crawl.totals()
        self._refused_hosts()
        self._untrusting(python, modules)
        self._chromium()

    def _authority(self) -> None:
        """`run` has created an authority, in files with the right permissions, and serves its certificate."""
        gate, modes = self._gate, {}
        for file in (gate.ca, gate.key):
            modes[file.name] = oct(file.stat().st_mode & 0o777) if file.exists() else None
        self._report.equal("`run` has made an authority", modes, {"ca.pem": "0o644", "ca.key": "0o600"})
        status, body = get(f"{gate.admin}/ca.pem")
        self._report.equal("admin: /ca.pem is the file", (status, body), (200, gate.ca.read_bytes()))
        said = [line for line in gate.lines if "env" in line or str(gate.ca) in line]
        self._report.check("`run` says how to trust it", [] if said else gate.lines[-5:])

    def _trust(self) -> dict[str, str]:
        """What `crawlgate env` sets in a shell, apart from the proxy, which has credentials here."""
        code = 'eval "$("$0" env --shell sh --config "$1")" && env'
        command = ["sh", "-c", code, str(self._binary), str(self._folder / "crawlgate.yaml")]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
        found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        bundle, ca = str(self._gate.bundle), str(self._gate.ca)
        expected = {
            "SSL_CERT_FILE": bundle,
            "REQUESTS_CA_BUNDLE": bundle,
            "CURL_CA_BUNDLE": bundle,
            "NODE_EXTRA_CA_CERTS": ca,
        }
        self._report.equal("crawlgate env: names bundle and authority", {k: found.get(k) for k in expected}, expected)
        proxies = [name for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY") if not found.get(name)]
        self._report.check("crawlgate env: names the proxy, in both cases", proxies)
        whole = self._gate.bundle.read_bytes() if self._gate.bundle.exists() else b""
        own = self._gate.ca.read_bytes().strip()
        several = whole.count(b"BEGIN CERTIFICATE") > 1 or not pathlib.Path("/etc/ssl/certs").exists()
        self._report.equal("the bundle has the system's roots and ours", (own in whole, several), (True, True))
        return expected

    # The crawls. Each client verifies.

    def _curl(self) -> None:
        # Inside a tunnel curl writes other bytes as escapes of its own.
        rows = [row for row in self._rows if row.url.isascii() and "\\x" not in row.url]
        for name, method, options in (("curl over TLS", "GET", ()), ("curl -I over TLS", "HEAD", ("head",))):
            urls, folder = [row.sent(self._origin.port) for row in rows], self._folder / method
            # Over HTTP/1.1, which takes bytes that HTTP/2 does not; `over_http2.py` covers both.
            options = (f'cacert = "{self._gate.ca}"', "http1.1", *options)
            answers = clients.curl(crawlers.proxy(self._gate, "curl"), urls, folder, options, method, name)
            for row, answer in zip(rows, answers, strict=True):
                answer.url = row.url
            self._crawl.judge(name, answers, [row.url for row in rows], "curl")

    def _wget(self) -> None:
        if not shutil.which("wget"):
            self._report.missing("wget crawls over TLS", "wget")
            return
        proxy, more = crawlers.proxy(self._gate, "wget"), [f"--ca-certificate={self._gate.ca}"]
        folder = self._folder / "wget"
        answers = self._ran("wget", lambda: clients.wget(proxy, self._start, DOMAINS, folder, more))
        if answers:
            self._crawl.judge("wget over TLS", answers, self._linked, "wget", clients.wget_identity)

    def _scrapy(self, python: str, trust: dict[str, str]) -> None:
        if subprocess.run([python, "-c", "import scrapy"], capture_output=True).returncode != 0:
            self._report.missing("Scrapy crawls over TLS", "Scrapy")
            return
        proxy, folder = crawlers.proxy(self._gate, "scrapy"), self._folder / "scrapy"
        run = lambda: clients.scrapy(proxy, python, self._start, DOMAINS, folder, trust)  # noqa: E731
        if answers := self._ran("Scrapy", run):
            self._crawl.judge("Scrapy over TLS", answers, self._linked, "scrapy")

    def _requests(self, python: str, trust: dict[str, str]) -> None:
        if not crawlers.has_requests(python):
            self._report.missing("requests over TLS", "requests")
            return
        proxy = crawlers.proxy(self._gate, "requests")
        self._asked("requests", "requests", lambda urls: clients.requests_all(proxy, python, urls, trust))

    def _undici(self, modules: pathlib.Path | None, trust: dict[str, str]) -> None:
        if not crawlers.has_undici(modules):
            self._report.missing("undici over TLS", "undici")
            return
        proxy = crawlers.proxy(self._gate, "undici")
        self._asked("undici", "undici", lambda urls: clients.undici_all(proxy, modules, urls, "tunnel", trust))

    def _java(self) -> None:
        for program in ("java", "keytool"):
            if not shutil.which(program):
                self._report.missing("Java's HttpClient over TLS", program)
                return
        at, store = ("127.0.0.1", self._gate.port), self._store("trust", self._gate.ca)
        self._asked("Java", "anonymous", lambda urls: clients.java_all(at, store, STORE_WORD, urls))

    def _store(self, name: str, cert: pathlib.Path) -> pathlib.Path:
        """A trust store of Java's with this certificate alone."""
        store = self._folder / f"{name}.p12"
        command = ["keytool", "-importcert", "-noprompt", "-alias", "crawlgate", "-storetype", "PKCS12"]
        files = ["-file", str(cert), "-keystore", str(store), "-storepass", STORE_WORD]
        self._check_run([*command, *files])
        return store

    def _asked(self, name: str, crawler: str, client: Callable[[list[str]], list[Answer]]) -> None:
        """A client that requests every plain URL, and omits those that it would rewrite."""
        # Some would put this address into the ClientHello unchanged, and no TLS library accepts it as a name.
        rows = [row for row in self._rows if row.plain and "0x7f.1" not in row.url]
        rows = {row.sent(self._origin.port).decode(): row for row in rows}
        answers = self._ran(name, lambda: client(list(rows)))
        for answer in answers:
            answer.url = rows[answer.url].url
        met = [answer.url for answer in answers]
        self._report.check(f"{name} over TLS: asked for most URLs", [] if len(met) > 200 else [f"{len(met)} URLs"])
        self._crawl.judge(f"{name} over TLS", answers, met, crawler)

    def _ran(self, name: str, client: Callable[[], list[Answer]]) -> list[Answer]:
        """A client that fails to start or hangs is a failed check; the others still run."""
        try:
            answers, problems = client(), []
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            answers, problems = [], [repr(error)]
        self._report.check(f"{name} over TLS: ran to its end", problems)
        return answers

    def _untrusting(self, python: str, modules: pathlib.Path | None) -> None:
        """Each client did verify: with another authority to trust it gets no answer, and is counted by name."""
        root, at, folder = self._root, ("127.0.0.1", self._gate.port), self._folder
        proxy = lambda name: crawlers.proxy(self._gate, name)  # noqa: E731
        runs: dict[str, Callable[[], list[Answer]]] = {}
        if shutil.which("wget"):
            more = [f"--ca-certificate={root}"]
            runs["wget"] = lambda: clients.wget(proxy("wget"), self._start, DOMAINS, folder / "wget-un", more)
        if subprocess.run([python, "-c", "import scrapy"], capture_output=True).returncode == 0:
            variables, place = {"SSL_CERT_FILE": str(root)}, folder / "scrapy-un"
            run = lambda: clients.scrapy(proxy("scrapy"), python, self._start, DOMAINS, place, variables)  # noqa: E731
            runs["scrapy"] = run
        if crawlers.has_requests(python):
            bundle = {"REQUESTS_CA_BUNDLE": str(root)}
            runs["requests"] = lambda: clients.requests_all(proxy("requests"), python, [self._start], bundle)
        if crawlers.has_undici(modules):
            runs["undici"] = lambda: clients.undici_all(proxy("undici"), modules, [self._start], "tunnel")
        if shutil.which("java") and shutil.which("keytool"):
            store = self._store("other", root)
            runs["anonymous"] = lambda: clients.java_all(at, store, STORE_WORD, [self._start])
        before = len(self._origin.log.entries)
        wrong = [f"{name}: {a.status} for {a.url}" for name, run in runs.items() for a in run() if a.status]
        self._report.check("every client, told to trust another authority, gets no answer", wrong, len(runs))
        self._report.equal("and nothing of theirs reaches the site", len(self._origin.log.entries), before)

        def counted() -> set[str]:
            return set(by_labels(self._gate.samples(), "crawlgate_client_tls_failures_total", ("crawler",)))

        # wget finishes the handshake and looks at the certificate after it: it just leaves.
        expected = set(runs) - {"wget"}
        wait_for(lambda: counted() == expected, 5)
        self._report.equal("they are counted, each under its crawler", counted(), expected)

    def _refused_hosts(self) -> None:
        """A refused host: answered inside TLS, where every client shows the whole response, not to the CONNECT."""
        before = len(self._origin.log.entries)
        command = ["curl", "-q", "-s", "-i", "-m", "30", "--noproxy", "", "--cacert", str(self._gate.ca)]
        for host, what in ((BLOCKED, "a rule says tunnel"), (SUB_BLOCKED, "nothing is said of its TLS")):
            url = self._origin.site.url(host, "/a.html")
            done = subprocess.run(
                [*command, "-x", self._gate.proxy, url],
                env=clean_environment(),
                capture_output=True,
                text=True,
                timeout=60,
            )
            heads = re.findall(r"^HTTP/(?:1\.1|2) (\d{3})", done.stdout, re.MULTILINE)
            wanted = ("Crawl-Status: REJECTED_FILTER", "Crawl-Reason: rule", "Crawl-Rule: blocked-site")
            missing = [field for field in wanted if field.lower() not in done.stdout.lower()]
            missing += [] if (done.returncode, heads) == (0, ["200", "451"]) else [f"{done.returncode}, {heads}"]
            self._report.check(f"curl: a refused host of whose TLS {what} is refused inside TLS, with 451", missing)
        self._report.equal("the site was not asked", len(self._origin.log.entries), before)

    def _chromium(self) -> None:
        """A browser returns the page as it was parsed."""
        for program in ("chromium", "certutil"):
            if not shutil.which(program):
                self._report.missing("Chromium over TLS", program)
                return
        before = len(self._origin.log.entries)
        with tempfile.TemporaryDirectory(prefix="crawlgate-chromium-", ignore_cleanup_errors=True) as home:
            database = pathlib.Path(home) / ".pki" / "nssdb"
            database.mkdir(parents=True)
            place = ["certutil", "-d", f"sql:{database}"]
            self._check_run([*place, "-N", "--empty-password"])
            unknown = self._shown(home, "/privateer.html")
            self._check_run([*place, "-A", "-t", "C,,", "-n", "crawlgate", "-i", str(self._gate.ca)])
            page, refused = self._shown(home, "/privateer.html"), self._shown(home, "/private/a.html")
            host = self._shown(home, "/a.html", BLOCKED)
        self._report.equal("Chromium: without the authority it shows nothing", MARK.decode() in unknown, False)
        shown = MARK.decode() in page and "www.crawl.test/privateer.html" in page
        self._report.check("Chromium: shows an allowed page", [] if shown else [page[:500]])
        for name, text, rule in (("page", refused, "private"), ("host", host, "blocked-site")):
            told = f'"rule":"{rule}"' in text and "urn:crawlgate:reason:rule" in text and MARK.decode() not in text
            self._report.check(f"Chromium: shows why a {name} is refused", [] if told else [text[:500]])
        arrived = [entry["line"] for entry in self._origin.log.entries[before:]]
        stray = [line for line in arrived if "/private/" in line or "/a.html" in line]
        self._report.check("Chromium: nothing that was refused arrived", stray, len(arrived))

    @staticmethod
    def _check_run(command: list[str]) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def _shown(self, home: str, path: str, host: str = WWW) -> str:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        own = [f"--user-data-dir={home}/profile", f"--proxy-server=127.0.0.1:{self._gate.port}", "--dump-dom"]
        environment = {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home, "PATH": os.environ["PATH"]}
        command = ["chromium", *options, *quiet, *own, self._origin.site.url(host, path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.stdout or done.stderr
