"""The admin page in a real browser: Debian's Chromium, driven through everything that the page offers, during a crawl.

    python3 tests/acceptance/page.py --node-modules FOLDER [--binary target/release/crawlgate] [--screenshots FOLDER]

In the folder `npm install playwright-core@1.65.1 axe-core@4.14.1` was run. A site of three hosts and crawlgate (with a
token) run on free ports; `page.mjs` is the user: it crawls, looks, clicks, types, breaks the policy and mends it. Some
URLs, texts of rules and lines of robots.txt are hostile: they must be text and nothing else. Exit code 1 if a check failed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from clients import clean_environment
from report import Report
from services import Gate

HERE = pathlib.Path(__file__).resolve().parent
TOKEN = "page-0123456789abcdef"
HOSTS = ["news.page.test", "shop.page.test", "slow.page.test", "many.page.test"]
# Lines before the one that decides, of the last host's robots.txt.
MANY_LINES = 30_000
SECONDS = 900
# The crawler of the second listener.
CRAWLER = "shop-bot"
# A part of the configuration that the page must not show.
SECRET = "secret-0123456789"

# Texts of a site or of a policy that must not become markup in the browser of an operator.
HOSTILE = "<img src=x onerror=globalThis.hurt=1>"

POLICY = """\
policy: 1
name: newsroom
options:
  disposition: allow
  politeness: { delay: 0s, concurrency: 100, jitter: none }
rules:
  - id: calendars
    about: a calendar goes on for ever, and every page of it links to the next
    forbid: { under: /calendar }
    log: true
  - id: sessions
    about: the same page under a new URL for every visitor
    forbid: { in_query: "sid=" }
    reject: gone
    log: true
  - id: hostile
    about: "HOSTILE <script>globalThis.hurt=1</script>"
    forbid: { path: { contains: onerror } }
    log: true
  - id: archives
    about: archives are not pages
    forbid: { content_type: [application/zip, application/x-tar] }
    log: true
  - { id: never, about: nobody asks for this, forbid: { under: /never } }
  - { id: off, enabled: false, forbid: { under: /off } }
  - { id: pictures, about: would this hurt, mode: shadow, forbid: { ext: [png, jpg] } }
  - id: slow-site
    about: its owner asked for patience
    when: { host: slow.page.test }
    set: { politeness: { delay: 2s, concurrency: 1 } }
    rules:
      - { id: slow-search, forbid: { under: /search }, log: true }
""".replace("HOSTILE", HOSTILE)

# The next version of the policy, which the page's user sees as a shadow and promotes.
NEXT_POLICY = POLICY.replace("mode: shadow, ", "").replace("would this hurt", HOSTILE)

ROBOTS = f"""\
# {HOSTILE}
User-agent: *
Disallow: /private
Allow: /private/open
Crawl-delay: 0
"""


class Site(http.server.BaseHTTPRequestHandler):
    """The same pages on every host; paths that end in .zip are archives, those under /error are errors."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, body = "text/html; charset=utf-8", b"<title>page</title>bytes-of-the-origin\n" * 20
        if self.path == "/robots.txt":
            many = self.headers["Host"].startswith("many.")
            kind, body = "text/plain", ("\n" * MANY_LINES if many else "").encode() + ROBOTS.encode()
        elif self.path.endswith(".zip"):
            kind = "application/zip"
        self.send_response(500 if self.path.startswith("/error") else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        # The proxy may leave as it likes.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


def serve() -> http.server.ThreadingHTTPServer:
    """The site, on a free port of loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def run(report: Report, arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    """Everything `page.mjs` has to say becomes a check."""
    report.section("The admin page in Chromium")
    server = serve()
    policy, token = folder / "policy.yaml", folder / "token"
    policy.write_text(POLICY, encoding="utf-8")
    token.write_text(TOKEN, encoding="ascii")
    token.chmod(0o600)
    gate = Gate(arguments.binary, policy, folder, settings(policy, token, HOSTS))
    ports = {"listen": [f"127.0.0.1:{gate.port}", _listener(0)]}
    admin = {"listen": f"127.0.0.1:{gate.admin_port}", "token_file": str(token)}
    restarted = folder / "restarted"

    def restart(other: str) -> None:
        """The same place, with this token; then the page's user goes on."""
        nonlocal gate
        gate.stop()
        token.write_text(other, encoding="ascii")
        gate = Gate(arguments.binary, policy, folder, settings(policy, token, HOSTS) | ports | {"admin": admin})
        restarted.write_text(other, encoding="ascii")

    try:
        given = {
            "admin": gate.admin,
            "proxyPort": gate.port,
            "sitePort": server.server_address[1],
            "hosts": HOSTS,
            "token": TOKEN,
            "policy": str(policy),
            "nextPolicy": NEXT_POLICY,
            "crawler": CRAWLER,
            "secret": SECRET,
            "hostile": HOSTILE,
            "home": str(folder / "browser"),
            "screenshots": str(arguments.screenshots or folder),
            "restarted": str(restarted),
        }
        drive(report, "page.mjs", given, arguments.node_modules, restart)
    finally:
        code = gate.stop()
        server.shutdown()
    report.equal("SIGTERM ends crawlgate in time, with the page's streams open before", code, 0)
    report.check("crawlgate's standard error has no panic", [line for line in gate.lines if "panicked" in line])


def settings(policy: pathlib.Path, token: pathlib.Path, hosts: list[str]) -> dict:
    """The page reloads the policy, nothing else does."""
    folder = policy.parent
    return {
        "listen": ["127.0.0.1:0", _listener(0)],
        "crawlers": [{"name": CRAWLER, "profile": "scrapy"}],
        "tls": {
            "ca": {"cert": str(folder / "ca.pem"), "key": str(folder / "ca.key"), "create": True},
            "bundle": str(folder / "bundle.pem"),
        },
        "telemetry": {
            "otlp": {
                "endpoint": "http://127.0.0.1:9",
                "share": 0,
                "service": HOSTILE,
                "headers": {"authorization": "Bearer " + SECRET},
            }
        },
        "admin": {"listen": "127.0.0.1:0", "token_file": str(token)},
        "policy": {"path": str(policy), "watch": False},
        "store": {"path": str(policy.parent / "store")},
        "ledger": {"keep": "always"},
        "egress": {
            "allow_loopback": True,
            "ports": ["1-65535"],
            "hosts": {host: "127.0.0.1" for host in hosts},
        },
    }


def _listener(port: int) -> dict:
    """A listener whose clients are the crawler."""
    return {"addr": f"127.0.0.1:{port}", "crawler": CRAWLER}


def drive(
    report: Report,
    script: str,
    given: dict,
    modules: pathlib.Path,
    restart: Callable[[str], None] | None = None,
) -> None:
    """Each line of the output is a check; other lines are reported unchanged."""
    pathlib.Path(given["screenshots"]).mkdir(parents=True, exist_ok=True)
    # Node looks for packages from the script's place, which is not where npm was run.
    command = ["node", str(HERE / script), str(modules)]
    with tempfile.TemporaryFile("w+") as errors:
        driver = subprocess.Popen(
            command,
            env=clean_environment(HOME=given["home"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        timer = threading.Timer(SECONDS, driver.kill)
        timer.start()
        try:
            driver.stdin.write(json.dumps(given))
            driver.stdin.close()
            for line in driver.stdout:
                _told(report, line, restart)
        finally:
            timer.cancel()
            code = driver.wait()
        errors.seek(0)
        report.check(f"{script} ran to its end", [] if code == 0 else [f"exit code {code}", *errors.read().splitlines()])


def _told(report: Report, line: str, restart: Callable[[str], None] | None) -> None:
    try:
        said = json.loads(line)
    except ValueError:
        print(line, end="", flush=True)
        return
    if "restart" in said:
        restart(said["restart"])
    elif "section" in said:
        report.section(said["section"])
    else:
        report.check(said["title"], said["problems"], said["cases"])


def _has_what_it_needs(modules: pathlib.Path | None) -> str | None:
    """The missing parts."""
    for program in ("node", "chromium"):
        if not shutil.which(program):
            return program
    if not modules or not all((modules / "node_modules" / name).is_dir() for name in ("playwright-core", "axe-core")):
        return "playwright-core and axe-core (npm)"
    return None


def main(look: Callable[[Report, argparse.Namespace, pathlib.Path], None], description: str) -> int:
    """Runs one of the programs that look at the page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--node-modules", type=pathlib.Path, help="a folder in which npm installed playwright-core and axe-core")
    parser.add_argument("--screenshots", type=pathlib.Path, help="keep pictures of the page in this folder")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    arguments.node_modules = arguments.node_modules and arguments.node_modules.resolve()
    arguments.screenshots = arguments.screenshots and arguments.screenshots.resolve()
    report = Report()
    if missing := _has_what_it_needs(arguments.node_modules):
        report.missing("the admin page in Chromium", missing)
        return report.close()
    with tempfile.TemporaryDirectory(prefix="crawlgate-page-", ignore_cleanup_errors=True) as folder:
        look(report, arguments, pathlib.Path(folder))
    return report.close()


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
