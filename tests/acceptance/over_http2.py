"""The site over HTTP/2: clients that offer it inside intercepted TLS see the same as over HTTP/1.1.

    python3 tests/acceptance/over_http2.py [--binary target/release/crawlgate] [--python PYTHON_WITH_HTTPX]
                                           [--node-modules FOLDER] [--reqwest PROGRAM] [--keep FOLDER]

curl over both versions crawls a site that speaks HTTP/1.1; then curl, Node's http2, httpx, Crawlee, Go and Chromium crawl the
same site over HTTP/2. Answers, the site's log, metrics and the decision log must all be those of `expected.tsv`. With
`--reqwest`, Rust's reqwest alone crawls the site over HTTP/2. Exit code 1 if a check failed. A client that is not installed is
skipped loudly; with CI set in the environment it is a failure.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

import clients
import crawlers
import http2_servers
import table as tables
from authority import Authority
from clients import Answer, clean_environment
from crawl import Crawl
from inside import InsideGate, secure_policy, secure_table
from origin import Origin
from pages import HOSTS, MARK
from report import Report
from table import Row, Table

HERE = pathlib.Path(__file__).resolve().parent
# Names of the versions in the clients' reports.
VERSION_2 = {"2", "HTTP/2", "HTTP/2.0", "h2"}
# Bytes of a URL that a client should escape, and curl does not.
NOT_IN_PATHS = ("\\x", "<", ">", '"', "`")
VERSION_1 = {"1.1", "HTTP/1.1", "http/1.1"}


class OverHttp2:
    """The crawls of one proxy."""

    def __init__(self, report: Report, origin: Origin, gate: InsideGate, table: Table, folder: pathlib.Path) -> None:
        self._report, self._origin, self._gate, self._folder = report, origin, gate, folder
        self._crawl = Crawl(report, origin, gate, table)
        self._rows = list(table.get.values())

    def run_curl(self) -> None:
        self._curl()
        self._crawl.totals()
        self._origin_versions({"1.1"})

    def run_all(self, python: str, modules: pathlib.Path | None) -> None:
        self._curl()
        self._node()
        self._httpx(python)
        self._crawlee(python)
        self._go()
        self._crawl.totals()
        self._chromium(modules)
        self._origin_versions({"2"})

    def run_reqwest(self, program: pathlib.Path) -> None:
        proxy = crawlers.proxy(self._gate, "undici")
        self._asked("reqwest", "undici", lambda urls: clients.reqwest_all(proxy, program, urls, self._gate.ca))
        self._crawl.totals()
        self._origin_versions({"2"})

    def _origin_versions(self, wanted: set[str]) -> None:
        """The versions of HTTP in which requests reached the site."""
        entries = self._origin.log.entries
        found = {entry["line"].rsplit("/", 1)[-1] for entry in entries}
        self._report.equal(f"every request reached the site over HTTP/{', '.join(wanted)}", found, wanted)

    def _curl(self) -> None:
        """Every URL over both versions, and by HEAD; the connections are kept."""
        if not shutil.which("curl"):
            self._report.missing("curl over HTTP/2", "curl")
            return
        # Inside a tunnel curl writes other bytes as escapes of its own. Some that RFC 3986 does not have are malformed in
        # :path of HTTP/2, while they are escaped over HTTP/1.1.
        rows = [row for row in self._rows if row.url.isascii() and not any(one in row.url for one in NOT_IN_PATHS)]
        runs = (
            ("curl --http2", "GET", ("http2",), VERSION_2),
            ("curl --http2 -I", "HEAD", ("http2", "head"), VERSION_2),
            ("curl --http1.1", "GET", ("http1.1",), VERSION_1),
        )
        for name, method, options, versions in runs:
            urls, folder = [row.sent(self._origin.port) for row in rows], self._folder / name.replace(" ", "")
            options = (f'cacert = "{self._gate.ca}"', *options)
            answers = clients.curl(crawlers.proxy(self._gate, "curl"), urls, folder, options, method, name)
            for row, answer in zip(rows, answers, strict=True):
                answer.url = row.url
            self._versions(name, answers, versions)
            hosts = {row.url.split("/")[2].lower() for row in rows}
            opened = sum(answer.connects for answer in answers)
            self._report.check(
                f"{name}: one connection per host", [f"{opened}"] if opened > len(hosts) else [], len(hosts)
            )
            self._crawl.judge(name, answers, [row.url for row in rows], "curl")

    def _node(self) -> None:
        if not shutil.which("node"):
            self._report.missing("Node's http2", "node")
            return
        proxy = crawlers.proxy(self._gate, "undici")
        self._asked("Node's http2", "undici", lambda urls: clients.node_http2_all(proxy, urls, self._gate.ca))

    def _httpx(self, python: str) -> None:
        if subprocess.run([python, "-c", "import httpx, h2"], capture_output=True).returncode != 0:
            self._report.missing("httpx over HTTP/2", "httpx with h2")
            return
        proxy = crawlers.proxy(self._gate, "requests")
        self._asked("httpx", "requests", lambda urls: clients.httpx_all(proxy, python, urls, self._gate.ca))

    def _crawlee(self, python: str) -> None:
        if subprocess.run([python, "-c", "import crawlee, httpx2, h2"], capture_output=True).returncode != 0:
            self._report.missing("Crawlee over HTTP/2", "crawlee[httpx] with h2")
            return
        proxy = crawlers.proxy(self._gate, "requests")
        self._asked("Crawlee", "requests", lambda urls: clients.crawlee_all(proxy, python, urls, self._gate.ca))

    def _go(self) -> None:
        if not shutil.which("go"):
            self._report.missing("Go over HTTP/2", "go")
            return
        proxy = crawlers.proxy(self._gate, "undici")
        self._asked("Go", "undici", lambda urls: clients.go_all(proxy, urls, self._gate.ca, self._folder / "go"))

    def _asked(self, name: str, crawler: str, client: Callable[[list[str]], list[Answer]]) -> None:
        """A client that requests every plain URL, and omits those that it would rewrite."""
        # Some would put this address into the ClientHello unchanged, and no TLS library accepts it as a name.
        plain = [row for row in self._rows if row.plain and "0x7f.1" not in row.url]
        rows = {row.sent(self._origin.port).decode(): row for row in plain}
        try:
            answers, problems = client(list(rows)), []
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            answers, problems = [], [repr(error)]
        self._report.check(f"{name}: ran to its end", problems)
        self._versions(name, answers, VERSION_2)
        for answer in answers:
            answer.url = rows[answer.url].url
        met = [answer.url for answer in answers]
        self._report.check(f"{name}: asked for most URLs", [] if len(met) > 200 else [f"{len(met)} URLs"])
        self._crawl.judge(name, answers, met, crawler)

    def _versions(self, name: str, answers: list[Answer], versions: set[str]) -> None:
        wrong = [
            f"{answer.url}: {answer.version!r} {answer.error}" for answer in answers if answer.version not in versions
        ]
        self._report.check(f"{name}: every answer came over {max(versions, key=len)}", wrong, len(answers))

    def _chromium(self, modules: pathlib.Path | None) -> None:
        """A browser shows pages, and why one is refused."""
        for program in ("chromium", "certutil", "node"):
            if not shutil.which(program):
                self._report.missing("Chromium over HTTP/2", program)
                return
        if not modules or not (modules / "node_modules" / "playwright-core").exists():
            self._report.missing("Chromium over HTTP/2", "playwright-core")
            return
        shown = [row for row in self._rows if row.plain and _is_page(row, self._origin)][:40]
        refused = [row for row in self._rows if row.plain and not row.allowed and row.stage == "request" and row.rule][
            :20
        ]
        rows = {row.sent(self._origin.port).decode(): row for row in [*shown, *refused]}
        with tempfile.TemporaryDirectory(prefix="crawlgate-chromium-", ignore_cleanup_errors=True) as home:
            answers = self._browse(home, modules, list(rows))
        self._report.equal("Chromium: opened every page", len(answers), len(rows))
        pages = [(rows[one["url"]], one) for one in answers]
        wrong = [f"{one['url']}: {one['version']!r} {one['error']}" for _, one in pages if one["version"] != "h2"]
        self._report.check("Chromium: every page came over h2", wrong, len(pages))
        problems = [
            f"{row.url}: {one['status']}, not {row.status}" for row, one in pages if one["status"] != row.status
        ]
        problems += [f"{row.url}: no mark" for row, one in pages if row.allowed and MARK.decode() not in one["text"]]
        problems += [f"{row.url}: {one['rule']}" for row, one in pages if not row.allowed and one["rule"] != row.rule]
        self._report.check("Chromium: pages and refusals are those of the table", problems, len(pages))

    def _browse(self, home: str, modules: pathlib.Path, urls: list[str]) -> list[dict]:
        database = pathlib.Path(home) / ".pki" / "nssdb"
        database.mkdir(parents=True)
        place = ["certutil", "-d", f"sql:{database}"]
        for more in (["-N", "--empty-password"], ["-A", "-t", "C,,", "-n", "crawlgate", "-i", str(self._gate.ca)]):
            subprocess.run([*place, *more], check=True, capture_output=True, timeout=60)
        done = subprocess.run(
            ["node", HERE / "http2_browser.mjs", modules, crawlers.proxy(self._gate, "undici"), home],
            input="".join(f"{url}\n" for url in urls),
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(HOME=home),
            timeout=300,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def _is_page(row: Row, origin: Origin) -> bool:
    """Whether a browser shows the row's answer as a page."""
    if not row.allowed or row.status != 200 or not row.origin or row.robots:
        return False
    page = origin.site.find(*row.origin)
    kind = next((value for name, value in page.headers if name.lower() == "content-type"), "")
    return kind.startswith("text/html") and MARK in page.body


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--python", default=sys.executable, help="a Python that has httpx with HTTP/2, and Crawlee")
    parser.add_argument("--node-modules", type=pathlib.Path, help="a folder in which npm installed playwright-core")
    parser.add_argument("--reqwest", type=pathlib.Path, help="only this client: the program of tests/acceptance/rust_clients")
    parser.add_argument("--keep", type=pathlib.Path, help="leave logs in this new or empty folder")
    arguments = parser.parse_args()
    binary, report = arguments.binary.resolve(), Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-http2-") as name:
        folder = arguments.keep or pathlib.Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        hashes, authority = crawlers.hashes(binary), Authority(folder / "site")
        for version in ("h2",) if arguments.reqwest else ("http/1.1", "h2"):
            report.section(f"A site over {version}")
            context = authority.context(HOSTS)
            context.set_alpn_protocols([version])
            place = folder / version.replace("/", "-")
            place.mkdir()
            origin = Origin(place / "origin.jsonl", context)
            registered = crawlers.registrations(hashes)
            gate = InsideGate(binary, secure_policy(place), place, origin.port, authority.cert, registered)
            try:
                table = secure_table(tables.load(HERE / "expected.tsv"))
                crawls = OverHttp2(report, origin, gate, table, place)
                if arguments.reqwest:
                    crawls.run_reqwest(arguments.reqwest.resolve())
                elif version == "h2":
                    crawls.run_all(arguments.python, arguments.node_modules)
                else:
                    crawls.run_curl()
            finally:
                code = gate.stop()
                origin.stop()
            report.equal("SIGTERM ends it, with exit code 0", code, 0)
            report.check("its standard error has no panic", [line for line in gate.lines if "panicked" in line])
        if not arguments.reqwest:
            # reqwest has no package for pip, npm or apt, and is compiled first.
            print("      not run: reqwest; .ci/full runs it", flush=True)
            http2_servers.run(report, binary, folder / "servers")
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
