"""A reload every second for a minute, under load: no request fails, and each answer is of the policy that it names.

    python3 tests/acceptance/reloads.py [--binary target/release/crawlgate]

Policies follow one another as Kubernetes swaps a ConfigMap: the link `..data` is renamed over. They are called p0, p1,
p2 and so on; the even ones refuse /even, the odd ones /odd, all of them /always, none /free. So the name in
`Crawl-Policy` says what the answer must be, and its number whether the policy was in force while the request was under
way. Of what was allowed the decision log must say the same. Reloads are asked for by signal and through the API in
turns, and at the end by nothing but the files. Broken policies in between must change nothing.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import http.client
import http.server
import json
import pathlib
import re
import sys
import tempfile
import threading
import time

from report import Report
from services import Gate, by_labels, get, wait_for

HERE = pathlib.Path(__file__).resolve().parent

SECONDS = 60
# The pause between requests, which leaves processor time to the proxy.
CLIENTS, PAUSE = 4, 0.001
PATHS = ("/even", "/odd", "/always", "/free")
# The requests per connection, so that old and new connections are in use at every reload.
REQUESTS_PER_CONNECTION = 50
# Reloads by the file watcher: the number of swaps, and the seconds within which each must be noticed.
WATCHED, WATCHED_SECONDS = 3, 10

# Two policies that must not become active, and the expected messages.
BROKEN = "policy: 1\nname: [p\n", "unclosed bracket"
CASE = "cases: [{ url: 'http://h.example/always', expect: allow }]\n"


def policy(number: int) -> str:
    """The policy of this number. Odd ones refuse with another intent, so that the status distinguishes them, too."""
    intent, own = ("gone", "odd") if number % 2 else ("deny", "even")
    return (
        f"policy: 1\nname: p{number}\n"
        "options: { disposition: allow, robots: { obey: false },\n"
        "  politeness: { delay: 0s, concurrency: 100, jitter: 1.0..1.0 } }\n"
        "rules:\n"
        f"  - {{ id: p{number}-own, forbid: {{ path: /{own} }}, reject: {intent} }}\n"
        f"  - {{ id: p{number}-always, forbid: {{ path: /always }}, reject: {intent} }}\n"
    )


def expected(number: int, path: str) -> tuple[int, str | None]:
    """Status and rule of an answer to a path under a policy."""
    own, status = ("/odd", 410) if number % 2 else ("/even", 451)
    if path == "/always":
        return status, f"p{number}-always"
    return (status, f"p{number}-own") if path == own else (200, None)


class Mount:
    """A mounted ConfigMap: `policy.yaml` leads over `..data` to the newest version."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._version = 0
        self.path = folder / "policy.yaml"
        folder.mkdir()
        self.swap(policy(0))
        self.path.symlink_to("..data/policy.yaml")

    def swap(self, text: str) -> None:
        """Puts this text in the policy's place, at once; the version before is removed."""
        self._version += 1
        version, link = self._folder / f"..v{self._version}", self._folder / "..data_tmp"
        version.mkdir()
        (version / "policy.yaml").write_text(text, encoding="utf-8")
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")
        old = self._folder / f"..v{self._version - 1}"
        if old.exists():
            (old / "policy.yaml").unlink()
            old.rmdir()


@dataclasses.dataclass
class Numbers:
    """Which policies may decide a request now: from the last that is known to be in force to the last written."""

    in_force: int = 0
    written: int = 0


class Client(threading.Thread):
    """Requests one path after the other until it is stopped, and checks each response."""

    def __init__(self, gate: Gate, site: str, numbers: Numbers) -> None:
        super().__init__(daemon=True)
        self._gate, self._site, self._numbers = gate, site, numbers
        self.problems: list[str] = []
        self.refused: collections.Counter[int] = collections.Counter()
        self.answers = 0
        self.ends = False

    def run(self) -> None:
        connection = None
        while not self.ends:
            if connection is None or self.answers % REQUESTS_PER_CONNECTION == 0:
                connection = http.client.HTTPConnection("127.0.0.1", self._gate.port, timeout=10)
            path = PATHS[self.answers % len(PATHS)]
            try:
                problem = self._ask(connection, path)
            except (OSError, http.client.HTTPException) as error:
                problem, connection = f"{type(error).__name__}: {error}", None
            self.answers += 1
            if problem:
                self.problems.append(f"{path}: {problem}")
            time.sleep(PAUSE)

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> str | None:
        oldest = self._numbers.in_force
        connection.request("GET", self._site + path)
        answer = connection.getresponse()
        body = answer.read()
        newest = self._numbers.written
        if answer.status == 200:
            of_site = body == path.encode() and answer.getheader("Crawl-Policy") is None
            return None if path != "/always" and of_site else f"200 with {body!r}"
        named = re.match(r"p(\d+)@[0-9a-f]{8}$", answer.getheader("Crawl-Policy") or "")
        if not named:
            return f"status {answer.status} of policy {answer.getheader('Crawl-Policy')!r}"
        number = int(named[1])
        self.refused[number] += 1
        found, right = (answer.status, answer.getheader("Crawl-Rule")), expected(number, path)
        if found != right:
            return f"p{number} must answer {right}, not {found}"
        return None if oldest <= number <= newest else f"p{number} answers between p{oldest} and p{newest}"


class Site(http.server.BaseHTTPRequestHandler):
    """Answers each request with its path."""

    protocol_version = "HTTP/1.1"
    # Head and body would go out one after the other, and the second wait for the first to be acknowledged.
    wbufsize = -1

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """The decision log says it all."""


class Run:
    """The proxy, its policies one after the other, and the results."""

    def __init__(self, gate: Gate, mount: Mount, site: str) -> None:
        self._gate, self._mount = gate, mount
        self.numbers = Numbers()
        self.clients = [Client(gate, site, self.numbers) for _ in range(CLIENTS)]
        self.loaded = 0
        self.problems: list[str] = []
        self.broken = 0
        self.broken_problems: list[str] = []

    def reload(self, by_signal: bool) -> None:
        """The next policy."""
        self._write()
        if by_signal:
            self._gate.hang_up()
            self._await(5)
        else:
            status, answer = self._post()
            if (status, answer.get("result"), answer.get("policy")) != (200, "loaded", f"p{self.numbers.written}"):
                self.problems.append(f"p{self.numbers.written}: {status} {answer}")
        self._took_force()

    def watched(self) -> None:
        """The next policy, without a signal."""
        self._write()
        self._await(WATCHED_SECONDS)
        self._took_force()

    def break_it(self, text: str, message: str) -> None:
        """A policy that must not become active. The previous policy is written again afterwards."""
        before = self._shown()
        self._mount.swap(text)
        status, answer = self._post()
        self.broken += 1
        messages = [problem.get("message", "") for problem in answer.get("problems", [])]
        checks = {
            "422": status == 422,
            "the problem is named": any(message in told for told in messages),
            "the policy in force is the same": self._same(before),
            "readiness warns": "warn policy" in get(f"{self._gate.admin}/readyz")[1].decode(),
            "the metric is 0": self._last_success() == 0,
            "the log names it": wait_for(lambda: any(message in line for line in list(self._gate.lines)), 5),
        }
        self.broken_problems += [f"not so: {name} ({status} {messages})" for name, holds in checks.items() if not holds]

    def repaired(self) -> None:
        """The policy in force is written again: nothing changes but the metric."""
        self._mount.swap(policy(self.numbers.in_force))
        status, answer = self._post()
        if (status, answer.get("result"), self._last_success()) != (200, "unchanged", 1):
            self.broken_problems.append(f"the old policy again: {status} {answer}")

    def _write(self) -> None:
        self.numbers.written += 1
        self._mount.swap(policy(self.numbers.written))

    def _await(self, seconds: float) -> None:
        name = f"p{self.numbers.written}"
        if not wait_for(lambda: self._shown()["name"] == name, seconds, 0.005):
            self.problems.append(f"{name} did not come into force in {seconds} s")

    def _took_force(self) -> None:
        """The policy is in force. Its successor waits for a refusal by it, which on a busy machine takes a moment."""
        number = self.numbers.written
        self.numbers.in_force = number
        self.loaded += 1
        wait_for(lambda: any(client.refused[number] for client in self.clients), 5, 0.005)

    def _shown(self) -> dict:
        return json.loads(get(f"{self._gate.admin}/api/v1/policy")[1])

    def _same(self, before: dict) -> bool:
        now = self._shown()
        return (now["name"], now["revision"]) == (before["name"], before["revision"])

    def _post(self) -> tuple[int, dict]:
        status, body = get(f"{self._gate.admin}/api/v1/reload", body=b"")
        return status, json.loads(body)

    def _last_success(self) -> float:
        return self._gate.samples()["crawlgate_policy_last_reload_success", frozenset()]


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path, seconds: int = SECONDS) -> None:
    """The whole check, in an empty folder."""
    report.section(f"A reload every second for {seconds} s, under load")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    mount = Mount(folder / "mount")
    gate = Gate(binary, mount.path, folder)
    reloads = Run(gate, mount, f"http://127.0.0.1:{server.server_address[1]}")
    clients = reloads.clients
    try:
        for client in clients:
            client.start()
        _minute(reloads, seconds)
        for _ in range(WATCHED):
            reloads.watched()
        for client in clients:
            client.ends = True
        for client in clients:
            client.join(15)
        samples = gate.samples()
    finally:
        code = gate.stop()
        server.shutdown()
        server.server_close()
    _judge(report, reloads, clients, samples)
    _log(report, gate.decisions, sum(client.answers for client in clients))
    report.equal("SIGTERM ends crawlgate in time, with exit code 0", code, 0)


def _minute(reloads: Run, seconds: int) -> None:
    begin = time.monotonic()
    for second in range(seconds):
        time.sleep(max(0.0, begin + second - time.monotonic()))
        reloads.reload(by_signal=second % 2 == 0)
        if second == seconds // 3:
            reloads.break_it(policy(0) + CASE, "http://h.example/always")
            reloads.repaired()
        if second == seconds // 2:
            reloads.break_it(*BROKEN)


def _judge(report: Report, reloads: Run, clients: list[Client], samples: dict) -> None:
    answers = sum(client.answers for client in clients)
    refused = sum((client.refused for client in clients), collections.Counter())
    problems = [problem for client in clients for problem in client.problems]
    report.check("no request failed, and each refusal is of the policy in Crawl-Policy", problems, answers)
    report.check("each reload put its policy in force", reloads.problems, reloads.loaded)
    unseen = [f"p{number}" for number in range(reloads.loaded + 1) if not refused[number]]
    report.check("requests were judged under every policy", unseen, len(refused))
    report.check("a broken policy changed nothing but metric, log and readiness", reloads.broken_problems, reloads.broken)
    results = by_labels(samples, "crawlgate_policy_reloads_total", ("result",))
    expected_results = {"success": reloads.loaded + 1, "failure": reloads.broken, "unchanged": 1}
    report.equal("the reloads are counted by their result", dict(results), expected_results)


def _log(report: Report, path: pathlib.Path, answers: int) -> None:
    """Each decision, allowed ones too, is of the policy that it names."""
    problems, lines = [], 0
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        lines += 1
        if not _is_of_its_policy(record):
            problems.append(f"not what its policy says: {line}")
    report.check("each line of the decision log is of the policy that it names", problems, lines)
    report.equal("there is one line for each request", lines, answers)


def _is_of_its_policy(record: dict) -> bool:
    """Of a refused URL the log keeps the host only; its rule's name says enough."""
    number, status = int(record["policy"].removeprefix("p")), record["sent_status"]
    if record["verdict"] == "allow":
        return expected(number, "/" + record["url"].rsplit("/", 1)[1]) == (status, None)
    rules = {expected(number, path) for path in PATHS}
    return (status, record["rule"]) in rules and status != 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-reloads-") as folder:
        run(report, arguments.binary.resolve(), pathlib.Path(folder), arguments.seconds)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
