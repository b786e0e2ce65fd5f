"""Three nodes of a fleet, as processes, with a PostgreSQL of the run's own.

    python3 tests/acceptance/fleet.py [--binary target/release/crawlgate] [--seconds 60]

One crawler at each node asks one host for page after page, at a delay of 500 ms: by the kernel's time of arrival at the
origin no gap may be shorter, the median may be 1 % longer, and the three crawlers get the same number of turns. A stop of
a host at one node is in force at all within a second, also after the database was away. A budget of 1,000 URLs is that of all
nodes together, also if one is killed. The crawlers ask thirty hosts, while a node is killed (`kill -9`), and while the database
is killed and comes back: no gap may be too short, and every answer is a page or `owner_unavailable`. With `--replace` the three
nodes are also replaced one after another (SIGTERM, the end, a new process) under that load: every answer of a request is a page,
and no gap is too short.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from arrivals import DOMAIN, Origin, too_close
from report import Report
from services import Gate, get, wait_for

HERE = pathlib.Path(__file__).resolve().parent

NODES = ("node-a", "node-b", "node-c")
HOSTS = 30
PARTITIONS = 1024
CLIENTS = 60
LEASE = 5
# A lease is valid for 0.8 of its length from the last renewal, which was up to a fifth of it before the database was lost; and
# a node connects again up to a tenth of it after the database is back.
UNNOTICED = (0.8 - 0.2 - 0.1) * LEASE
DELAY, ALLOWED = 0.500, 0.005
HOST_DELAY = 0.100
BUDGET = 1_000


def policy(delay: float, budget: int | None = None) -> str:
    limit = f"  budget: {{ urls: {budget}, per: crawler }}\n" if budget else ""
    return (
        f"policy: 1\nname: fleet\noptions:\n  disposition: allow\n  robots: {{ obey: false }}\n{limit}"
        f"  politeness: {{ delay: {round(delay * 1000)}ms, jitter: none, concurrency: 1, adaptive: null, max_hold: 20s }}\n"
    )


class Postgres:
    """A database server in a folder, at a port of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        self._bin = programs[-1] if programs else pathlib.Path(shutil.which("initdb")).parent
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        folder.mkdir()
        if os.geteuid() == 0:
            # PostgreSQL does not run as root.
            shutil.chown(folder, "postgres")
            for parent in folder.parents[:-2]:
                parent.chmod(parent.stat().st_mode | 0o055)
        self._run("initdb", "--auth=trust", "--username=crawlgate", "--encoding=UTF8", "-D", folder / "data")
        self.start()
        self._run("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "crawlgate", "crawlgate")

    @property
    def url(self) -> str:
        return f"postgresql://crawlgate@127.0.0.1:{self.port}/crawlgate?sslmode=disable"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder} -p {self.port}"
        self._run("pg_ctl", "-D", self._folder / "data", "-o", options, "-l", self._folder / "log", "-w", "start")

    def kill_and_restart(self) -> float:
        """Kills it (`kill -9`) and starts it again a second later; returns the seconds for which it was away."""
        begin = time.monotonic()
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, signal.SIGKILL)
        time.sleep(1)
        while True:
            try:
                self.start()
                return time.monotonic() - begin
            except RuntimeError:
                # It refuses to start until the last child of the killed one has ended.
                if time.monotonic() > begin + 30:
                    raise
            time.sleep(0.1)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._folder / "data", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")


class Crawler(threading.Thread):
    """Asks its node for pages of some hosts in turn, one at a time, until it is told to stop."""

    def __init__(self, node: Gate, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self._node, self._urls = node, urls
        self._stopped = threading.Event()
        self.answers: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        connection = None
        turn = 0
        while not self._stopped.is_set():
            url = self._urls[turn % len(self._urls)]
            turn += 1
            reused = connection is not None
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self._node.port, timeout=60)
                connection.request("GET", f"{url}?{turn}", headers={"Host": url.split("/")[2]})
                answer = connection.getresponse()
                answer.read()
                self.answers[answer.headers.get("Crawl-Reason") or str(answer.status)] += 1
            except (OSError, http.client.HTTPException) as error:
                connection = None
                self.answers[type(error).__name__] += 1
                time.sleep(0.1)

    def stop(self) -> collections.Counter[str]:
        self.finish()
        self.join(60)
        return self.answers

    def finish(self) -> None:
        """Lets it end after the page that it asks for."""
        self._stopped.set()


class MovingCrawler(Crawler):
    """Asks one node after another, as through a load balancer.

    A node that refuses connections is passed over. A request on a kept connection that the node closed meanwhile is sent
    again (RFC 9112, section 9.3.1); on a new connection that is a failure.
    """

    def __init__(self, nodes: list[Gate], at: int, urls: list[str]) -> None:
        super().__init__(nodes[at], urls)
        self._nodes, self._at = nodes, at
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        turn = 0
        while not self._stopped.is_set():
            url = self._urls[turn % len(self._urls)]
            turn += 1
            self.answers[self._ask(f"{url}?{turn}")] += 1

    def _ask(self, url: str) -> str:
        while True:
            is_new = self._connection is None or self._connection.sock is None
            if is_new:
                self._connect()
            try:
                self._connection.request("GET", url, headers={"Host": url.split("/")[2]})
                answer = self._connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if is_new or not isinstance(error, ConnectionError):
                    return type(error).__name__
                continue
            try:
                answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                return f"{type(error).__name__} in a page"
            return answer.headers.get("Crawl-Reason") or str(answer.status)

    def _connect(self) -> None:
        while True:
            self._at = (self._at + 1) % len(self._nodes)
            self._connection = http.client.HTTPConnection("127.0.0.1", self._nodes[self._at].port, timeout=60)
            try:
                return self._connection.connect()
            except ConnectionRefusedError:
                time.sleep(0.01)


def start_node(
    arguments: argparse.Namespace, folder: pathlib.Path, name: str, database: str, delay: float, more: dict | None = None
) -> Gate:
    """`more`: settings that replace others."""
    home = folder / name
    home.mkdir(exist_ok=True)
    (home / "policy.yaml").write_text(policy(delay), encoding="utf-8")
    hosts = {f"h{number}.{DOMAIN}": "127.0.0.1" for number in range(HOSTS)}
    settings = {
        "egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": hosts},
        "store": {"path": str(home / "store"), "kind": "postgres", "url": database},
        "fleet": {
            "node": name,
            "listen": "127.0.0.1:0",
            "lease": f"{LEASE}s",
            "tls": {
                "cert": str(folder / f"{name}.pem"),
                "key": str(folder / f"{name}.key"),
                "ca": str(folder / "fleet.pem"),
            },
        },
    }
    config = home / "found.yaml"
    if not config.exists():
        import json

        config.write_text(json.dumps(settings | {"policy": {"path": "policy.yaml"}}), encoding="utf-8")
        run(arguments.binary, "fleet", "found", "--config", config)
    return Gate(arguments.binary, home / "policy.yaml", home, settings | (more or {}))


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def share(node: Gate) -> float:
    """The number of partitions that a node owns."""
    own = [line for line in node.metrics_text().decode().splitlines() if line.startswith('crawlgate_fleet_partitions{state="own"}')]
    return float(own[0].split()[-1])


def serves(node: Gate, url: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    connection.request("GET", url, headers={"Host": url.split("/")[2]})
    return connection.getresponse().status == 200


def shares(nodes: list[Gate]) -> list[float]:
    """The number of partitions of each node."""
    own = ("crawlgate_fleet_partitions", frozenset({("state", "own")}))
    return [node.samples().get(own, 0.0) for node in nodes]


def wait_settled(nodes: list[Gate], seconds: float = 120.0) -> bool:
    """Waits until every partition has an owner and none has moved for a lease and a half: a host that moves pauses."""
    end = time.monotonic() + seconds
    last, since = [], time.monotonic()
    while time.monotonic() < end:
        now = shares(nodes)
        if now != last or sum(now) != PARTITIONS or min(now) == 0:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > 1.5 * LEASE:
            return True
        time.sleep(0.2)
    return False


def one_host(report: Report, nodes: list[Gate], folder: pathlib.Path, seconds: float) -> None:
    report.section(f"One host through three nodes for {seconds:.0f} s")
    origin = Origin(folder / "one", 1, 0.0)
    url = origin.url(1, "/page")
    report.equal("each node serves the host", [bool(wait_for(lambda: serves(node, url), 60)) for node in nodes], [True] * 3)
    report.equal("the nodes share the hosts", wait_settled(nodes), True)
    begin = time.time_ns()
    crawlers = [Crawler(node, [url]) for node in nodes]
    for crawler in crawlers:
        crawler.start()
    time.sleep(seconds)
    # All at once: while one waits for its last page, the others would get more turns.
    for crawler in crawlers:
        crawler.finish()
    answers = [crawler.stop() for crawler in crawlers]
    log = origin.stop()
    for host, times in log.arrivals.items():
        log.arrivals[host] = [at for at in times if at >= begin]
    short, gaps = too_close(log, DELAY - ALLOWED)
    report.check("no gap is too short", short, len(gaps))
    mean = sum(gaps) / max(1, len(gaps))
    print(f"        mean gap {1000 * mean:.2f} ms, shortest {1000 * gaps[0]:.2f} ms, {len(gaps)} gaps", flush=True)
    # A machine that stands still for a moment makes the mean longer, but not the median.
    median = gaps[len(gaps) // 2]
    slow = [] if median <= 1.01 * DELAY else [f"the median gap is {1000 * median:.1f} ms"]
    report.check("the median gap is at most 1 % longer", slow, len(gaps))
    turns = [counts["200"] for counts in answers]
    unequal = [] if max(turns) - min(turns) <= 2 else [f"{turns}"]
    report.check("the crawlers get equal turns", unequal, sum(turns))
    report.equal("every answer is a page", [set(counts) for counts in answers], [{"200"}] * 3)


def stopped(report: Report, binary: pathlib.Path, nodes: list[Gate], folder: pathlib.Path, database: Postgres) -> None:
    report.section("A host is stopped at one node")
    origin = Origin(folder / "stopped", 1, 0.0)
    host = f"h1.{DOMAIN}"
    crawlers = [Crawler(node, [origin.url(number, "/page")]) for node in nodes for number in (1, 2)]
    for crawler in crawlers:
        crawler.start()
    time.sleep(3)
    first, _, last = (f"127.0.0.1:{node.admin_port}" for node in nodes)
    given = run(binary, "stop", host, "--reason", "ticket 7", "--admin", first)
    begin = time.time_ns()
    time.sleep(3)
    away = database.kill_and_restart()
    time.sleep(LEASE)
    end = time.time_ns()
    run(binary, "stop", "--lift", given.split()[-1], "--admin", last)
    time.sleep(3)
    answers = [crawler.stop() for crawler in crawlers]
    arrivals = origin.stop().arrivals
    late = [f"{(at - begin) / 1e9:.3f} s after it" for at in arrivals[1] if begin + 1e9 < at < end]
    report.check("no request reaches the host, from a second after the answer on", late, len(arrivals[1]))
    others = [at for at in arrivals[2] if begin < at < end]
    report.check("other hosts are served", [] if len(others) > 5 / HOST_DELAY else [f"{len(others)} requests"], len(others))
    again = [at for at in arrivals[1] if end < at]
    report.check("the host is served again after the stop is lifted at another node", [] if again else ["never"], len(again))
    report.equal("nothing fails", set().union(*answers) - unavoidable(away), {"200"})


def unavoidable(away: float) -> set[str]:
    """The reasons for refusals if the database was away for so many seconds: leases end if this machine starts it slowly."""
    return set() if away < UNNOTICED else {"owner_unavailable"}


def under_load(report: Report, title: str, nodes: list[Gate], folder: pathlib.Path, disturb) -> list[collections.Counter]:
    """Asks thirty hosts through the nodes while something happens; returns the answers by node."""
    report.section(title)
    origin = Origin(folder / title.replace(" ", "-"), 1, 0.0)
    urls = [origin.url(number, "/page") for number in range(HOSTS)]
    crawlers = [Crawler(node, urls[start:] + urls[:start]) for node in nodes for start in range(0, HOSTS, 6)]
    for crawler in crawlers:
        crawler.start()
    time.sleep(5)
    disturb()
    time.sleep(4 * LEASE)
    served = [url for url in urls if not serves(nodes[-1], url)]
    report.check("every host is served again", served, len(urls))
    answers = [crawler.stop() for crawler in crawlers]
    short, gaps = too_close(origin.stop(), HOST_DELAY - ALLOWED)
    report.check("no gap is too short", short, len(gaps))
    per_node = len(crawlers) // len(nodes)
    return [sum(answers[at : at + per_node], collections.Counter()) for at in range(0, len(answers), per_node)]


def replacement(report: Report, arguments: argparse.Namespace, nodes: list[Gate], folder: pathlib.Path, database: str) -> None:
    report.section("Three nodes are replaced one after another")
    origin = Origin(folder / "replacement", 1, 0.0)
    urls = [origin.url(number, "/page") for number in range(HOSTS)]
    starts = [number % HOSTS for number in range(CLIENTS)]
    crawlers = [MovingCrawler(nodes, start % len(nodes), urls[start:] + urls[:start]) for start in starts]
    for crawler in crawlers:
        crawler.start()
    time.sleep(3)
    codes, ready = [], []
    for at, name in enumerate(NODES):
        codes.append(nodes[at].stop())
        nodes[at] = start_node(arguments, folder, name, database, HOST_DELAY)
        ready.append(bool(wait_for(lambda: get(f"{nodes[at].admin}/readyz")[0] == 200, 30)))
    time.sleep(3)
    answers = sum((crawler.stop() for crawler in crawlers), collections.Counter())
    short, gaps = too_close(origin.stop(), HOST_DELAY - ALLOWED)
    report.equal("each node ends in order, and the next is ready", (codes, ready), ([0] * 3, [True] * 3))
    report.check("no gap is too short", short, len(gaps))
    failed = [f"{count} × {answer}" for answer, count in answers.items() if answer != "200"]
    report.check("no request is refused or fails", failed, sum(answers.values()))


def budget(report: Report, nodes: list[Gate], folder: pathlib.Path) -> None:
    report.section(f"A budget of {BUDGET} URLs a day over three nodes, one of which is killed")
    origin = Origin(folder / "budget", 1, 0.0)
    urls = [origin.url(number, "/page") for number in range(HOSTS)]
    crawlers = [Crawler(node, urls[start:] + urls[:start]) for node in nodes for start in range(0, HOSTS, 6)]
    for crawler in crawlers:
        crawler.start()
    time.sleep(2)
    os.kill(nodes[0].pid, signal.SIGKILL)
    others = crawlers[len(crawlers) // len(nodes) :]
    is_used_up = wait_for(lambda: all(crawler.answers["budget"] > HOSTS for crawler in others), 120)
    report.check("it is used up", [] if is_used_up else [f"{crawler.answers}" for crawler in others])
    answers = [crawler.stop() for crawler in crawlers]
    sent = sum(len(times) for times in origin.stop().arrivals.values())
    wrong = [] if 0.99 * BUDGET <= sent <= BUDGET else [f"{sent} requests"]
    report.check("no request more reaches an origin, and at most 1 % fewer", wrong, sent)
    odd = set().union(*answers[len(crawlers) // len(nodes) :]) - {"200", "budget", "owner_unavailable"}
    report.equal("the crawlers of the others get pages, or budget, or owner_unavailable", odd, set())


def reload(nodes: list[Gate], folder: pathlib.Path, delay: float, budget: int | None = None) -> None:
    for name, node in zip(NODES, nodes):
        (folder / name / "policy.yaml").write_text(policy(delay, budget), encoding="utf-8")
        node.hang_up()
    time.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target/release/crawlgate")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--replace", action="store_true", help="replace the nodes one after another, too")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    report = Report()
    if shutil.which("initdb") is None and not any(pathlib.Path("/usr/lib/postgresql").glob("*/bin")):
        report.missing("a fleet", "postgresql")
        return report.close()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        database = Postgres(folder / "postgres")
        for name in NODES:
            run(arguments.binary, "fleet", "cert", name, "--directory", folder)
        nodes = [start_node(arguments, folder, name, database.url, DELAY) for name in NODES]
        try:
            one_host(report, nodes, folder, arguments.seconds)
            reload(nodes, folder, HOST_DELAY)
            stopped(report, arguments.binary, nodes, folder, database)

            away: list[float] = []
            answers = under_load(
                report,
                "The database is killed and back after a second",
                nodes,
                folder,
                lambda: away.append(database.kill_and_restart()),
            )
            print(f"        it was away for {away[0]:.1f} s", flush=True)
            seen = [set(counts) - unavoidable(away[0]) for counts in answers]
            report.equal("nobody notices", seen, [{"200"}] * 3)
            if arguments.replace:
                replacement(report, arguments, nodes, folder, database.url)
                wait_settled(nodes)
            survivors = nodes[1:]
            answers = under_load(
                report, "A node is killed", nodes, folder, lambda: os.kill(nodes[0].pid, signal.SIGKILL)
            )
            others = [set(counts) - {"200", "owner_unavailable"} for counts in answers[1:]]
            report.equal("the crawlers of the others get pages, or owner_unavailable", others, [set()] * 2)
            ready = [get(f"{node.admin}/readyz")[0] for node in survivors]
            report.equal("the others are ready", ready, [200, 200])
            nodes[0].stop()
            nodes[0] = start_node(arguments, folder, NODES[0], database.url, HOST_DELAY)
            shared = wait_for(lambda: all(share(node) > 0 for node in nodes), 60)
            report.check("the node is back", [] if shared else [f"{[share(node) for node in nodes]}"])
            reload(nodes, folder, HOST_DELAY / 5, BUDGET)
            budget(report, nodes, folder)
        finally:
            for node in nodes:
                node.stop()
            database.stop()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
