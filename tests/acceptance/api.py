"""The admin API against its own description, under traffic: schemathesis requests what is described, and more.

    PYTHON_WITH_SCHEMATHESIS tests/acceptance/api.py [--binary target/release/crawlgate] [--examples 25]

A site of one host and crawlgate (with a token) run on free ports; a crawl goes on meanwhile. schemathesis reads
`/api/v1/openapi.json` and makes requests from it, fitting and unfitting ones: no answer may be a server's error, have a
status, a type or a shape that is not described, or take what the description forbids. What it does not look for is
asked by hand: that no path of the description can be reached through the proxy, however it is spelled. Exit code 1 if a check
failed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import http.server
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

from clients import clean_environment
from report import Report
from services import Gate, get

HERE = pathlib.Path(__file__).resolve().parent
TOKEN = "api-0123456789abcdef"
HOST = "site.api.test"
SECONDS = 100

POLICY = """\
policy: 1
name: api
options: { disposition: allow, politeness: { delay: 0s, concurrency: 100, jitter: none } }
rules:
  - { id: private, about: not for us, forbid: { under: /private }, log: true }
  - id: files
    when: { under: /files }
    set: { priority: lower }
    rules: [{ id: archives, forbid: { content_type: application/zip } }]
  - { id: tried, mode: shadow, forbid: { under: /page/1 } }
  - { id: off, enabled: false, forbid: { under: /off } }
"""

# Free texts in the description have rules that JSON Schema cannot say: a URL, a host, the words of a filter. So what
# fits the description may be refused; all the rest must hold.
NOT_ASKED = "positive_data_acceptance"

# A stream that stays open has no end to look at.
SETTINGS = """\
[[operations]]
include-operation-id = "decisions"
parameters = { "query.follow" = "false" }
"""


class Site(http.server.BaseHTTPRequestHandler):
    """One page for every path, and a robots.txt."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"User-agent: *\nDisallow: /robots-say-no\n" if self.path == "/robots.txt" else b"a page\n"
        kind = "application/zip" if self.path.endswith(".zip") else "text/plain"
        self.send_response(404 if self.path.startswith("/missing") else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """A proxy that closes a connection is no news."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


class Crawl:
    """A client that repeats requests until it is stopped."""

    def __init__(self, gate: Gate, port: int) -> None:
        self._gate, self._base, self._ends, self.asked = gate, f"http://{HOST}:{port}", threading.Event(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        paths = ["/page/1", "/page/2", "/private/x", "/files/a.zip", "/missing", "/robots-say-no"]
        while not self._ends.is_set():
            for path in paths:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    through(self._gate, "GET", self._base + path)
                    self.asked += 1
            time.sleep(0.05)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(20)


def through(gate: Gate, method: str, target: str, host: str | None = None) -> int:
    """The status of an answer of the proxy to a request with this target."""
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=20)
    try:
        authority = target.split("//")[-1].split("/")[0]
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", host or authority)
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def inside(gate: Gate, authority: str) -> tuple[int, int | None]:
    """The status of a CONNECT, and of the answer to a request in the tunnel that it opens."""
    with socket.create_connection(("127.0.0.1", gate.port), 20) as tunnel:
        tunnel.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = tunnel.recv(65536)
        status = int(head.split(b" ")[1])
        if status != 200:
            return status, None
        tunnel.sendall(f"GET /healthz HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode())
        answer = tunnel.recv(65536)
        return status, int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else None


def unreachable(report: Report, gate: Gate, document: dict) -> None:
    """Every path, by the names and addresses of the admin listener, through the proxy listener of the same process."""
    mapped = ["[::ffff:127.0.0.1]", "[::1]", "2130706433", "127.1", "0.0.0.0"]
    spellings = ["127.0.0.1", "localhost", "admin.crawl.test", *mapped]
    samples = {"{id}": "1", "{host}": HOST, "{file}": "app.js"}
    problems, cases = [], 0
    for path, item in document["paths"].items():
        for name, value in samples.items():
            path = path.replace(name, value)
        for method in (key.upper() for key in item if key != "parameters"):
            for spelling in spellings:
                cases += 1
                target = f"http://{spelling}:{gate.admin_port}{path}"
                status = through(gate, method, target)
                if status not in (400, 403):
                    problems.append(f"{method} {target}: {status}")
    report.check("no path is reached through the proxy, by name, address or mapped address", problems, cases)
    problems = []
    for spelling in spellings:
        outside, answered = inside(gate, f"{spelling}:{gate.admin_port}")
        # A tunnel may be opened only to tell inside that the request is refused.
        if outside < 400 and answered not in (None, 403):
            problems.append(f"CONNECT {spelling}:{gate.admin_port}: {outside}, then {answered}")
    report.check("nor through a tunnel", problems, len(spellings))


def basic(token: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"anybody:{token}".encode()).decode()}


def schemathesis(report: Report, gate: Gate, folder: pathlib.Path, examples: int) -> None:
    (folder / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    command = [
        pathlib.Path(sys.executable).with_name("schemathesis"), "run", f"{gate.admin}/api/v1/openapi.json",
        "--header", f"Authorization: Bearer {TOKEN}", "--checks", "all", "--exclude-checks", NOT_ASKED,
        "--max-examples", str(examples), "--seed", "7", "--no-color", "--continue-on-failure",
        "--request-timeout", "10", "--generation-database", "none", "--warnings", "off",
    ]
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    (folder / "schemathesis.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = done.stdout.splitlines()
    counted = re.search(r"(\d+) generated", done.stdout)
    tail = next((at for at, line in enumerate(lines) if re.match(r"=+ (FAILURES|ERRORS)", line)), len(lines) - 25)
    problems = []
    if done.returncode != 0:
        print("\n".join(lines[max(tail, 0) :] + done.stderr.splitlines()), flush=True)
        problems = [line for line in lines[-12:] if line.strip()]
    report.check("schemathesis finds no violation of the description", problems, int(counted[1]) if counted else 0)


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path, examples: int) -> None:
    site = Server(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    (folder / "policy").mkdir()
    policy = folder / "policy" / "policy.yaml"
    policy.write_text("policy: 1\nname: api\noptions: { disposition: disallow }\n", encoding="utf-8")
    (folder / "token").write_text(TOKEN + "\n", encoding="utf-8")
    settings = {
        "admin": {"listen": "127.0.0.1:0", "token_file": str(folder / "token")},
        "egress": {
            "allow_loopback": True, "ports": ["1-65535"], "connect_ports": ["1-65535"],
            "hosts": {HOST: "127.0.0.1", "admin.crawl.test": "127.0.0.1"},
        },
        "store": {"kind": "embedded", "path": str(folder / "store")},
        "ledger": {"keep": "always"},
    }
    gate = Gate(binary, policy, folder, settings)
    try:
        token = {"Authorization": f"Bearer {TOKEN}"}
        policy.write_text(POLICY, encoding="utf-8")
        status, said = get(f"{gate.admin}/api/v1/reload", token, b"")
        report.equal("another policy is loaded", (status, json.loads(said).get("result")), (200, "loaded"))
        status, text = get(f"{gate.admin}/api/v1/openapi.json", token)
        document = json.loads(text) if status == 200 else {"paths": {}}
        report.equal("the description is there", (status, document.get("openapi")), (200, "3.1.0"))
        report.equal("the token is taken as a password", get(f"{gate.admin}/api/v1/status", basic(TOKEN))[0], 200)
        report.equal("a wrong one is not", get(f"{gate.admin}/api/v1/status", basic("x" * 20))[0], 401)
        crawl = Crawl(gate, site.server_address[1])
        unreachable(report, gate, document)
        schemathesis(report, gate, folder, examples)
        crawl.stop()
        few = [] if crawl.asked > 50 else [f"{crawl.asked} requests"]
        report.check("the crawl went on meanwhile", few, crawl.asked)
        status, text = get(f"{gate.admin}/api/v1/status", token)
        counted = json.loads(text)
        report.equal("it is ready still", (status, counted["ready"]), (200, True))
        panics = [line for line in gate.lines if "panicked" in line]
        report.check("nothing broke down", panics)
    finally:
        report.equal("it ends", gate.stop(), 0)
        site.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--examples", type=int, default=25)
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-api-") as folder:
        run(report, arguments.binary.resolve(), pathlib.Path(folder), arguments.examples)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
