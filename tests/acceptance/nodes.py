"""A fleet of three nodes with a PostgreSQL of the run's own: its processes, and crawlers that keep them busy."""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from arrivals import DOMAIN
from services import Gate, wait_for

NODES = ("node-a", "node-b", "node-c")
HOSTS = 30
# Hosts without a delay. Those that end in 1 take their time for a page (`arrivals.py`).
QUICK = [number for number in range(100, 130) if number % 10 != 1]
PARTITIONS = 1024
# In seconds.
LEASE = int(os.environ.get("CRAWLGATE_FLEET_LEASE", "5"))
# A lease is valid for 0.8 of its length from the last renewal, which was up to a fifth of it before the database was lost; and
# a node connects again up to a tenth of it after the database is back.
UNNOTICED = (0.8 - 0.2 - 0.1) * LEASE
ALLOWED = 0.005
HOST_DELAY = 0.200
# The reasons for refusals of requests whose owner is unavailable. If it is found before the time is over, the rest of it may be too
# short for the turn of the request.
UNAVAILABLE = {"owner_unavailable", "rate_limited"}
# The end of a connection to a node that is killed.
CUT_OFF = {"ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected", "BrokenPipeError", "IncompleteRead"}


def is_installed() -> bool:
    return shutil.which("initdb") is not None or any(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))


def policy(delay: float, budget: int | None = None) -> str:
    limit = f"  budget: {{ urls: {budget}, per: crawler }}\n" if budget else ""
    quick = ", ".join(f"h{number}.{DOMAIN}" for number in QUICK)
    return (
        f"policy: 1\nname: fleet\noptions:\n  disposition: allow\n  robots: {{ obey: false }}\n{limit}"
        f"  politeness: {{ delay: {round(delay * 1000)}ms, jitter: none, concurrency: 1, adaptive: null, max_hold: 20s }}\n"
        f"hosts:\n  - {{ host: [ {quick} ], delay: 0s, concurrency: 20 }}\n"
    )


class Postgres:
    """A database server in a folder, at a port of its own. With a primary it is a standby, which follows that one."""

    def __init__(self, folder: pathlib.Path, primary: Postgres | None = None) -> None:
        self._folder, self._data = folder, folder / "data"
        programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        self._bin = programs[-1] if programs else pathlib.Path(shutil.which("initdb")).parent
        self.port = free_port()
        folder.mkdir()
        if os.geteuid() == 0:
            # PostgreSQL does not run as root.
            shutil.chown(folder, "postgres")
            for parent in folder.parents[:-2]:
                parent.chmod(parent.stat().st_mode | 0o055)
        if primary:
            return self.follow(primary)
        self._run("initdb", "--auth=trust", "--username=crawlgate", "--encoding=UTF8", "-D", self._data)
        self.start()
        self.create("crawlgate")
        return None

    @property
    def url(self) -> str:
        return self._url_of("crawlgate")

    def create(self, name: str) -> str:
        """Creates a database; returns its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "crawlgate", name)
        return self._url_of(name)

    def _url_of(self, name: str) -> str:
        return database_url([self.port], name)

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder} -p {self.port}"
        self._run("pg_ctl", "-D", self._data, "-o", options, "-l", self._folder / "log", "-w", "start")

    def kill_and_restart(self, seconds: float = 1.0) -> float:
        """Kills it (`kill -9`) and starts it again so many seconds later; returns the time for which it was away."""
        begin = time.monotonic()
        self.kill()
        time.sleep(seconds)
        while True:
            try:
                self.start()
                return time.monotonic() - begin
            except RuntimeError:
                # It refuses to start until the last child of the killed one has ended.
                if time.monotonic() > begin + 30:
                    raise
            time.sleep(0.1)

    def kill(self) -> None:
        os.kill(self._postmaster(), signal.SIGKILL)

    def follow(self, primary: Postgres) -> None:
        """Starts as a new copy of a primary, which from then on waits for this one before it answers a commit."""
        shutil.rmtree(self._data, ignore_errors=True)
        source = ("-h", "127.0.0.1", "-p", primary.port, "-U", "crawlgate")
        self._run("pg_basebackup", *source, "-D", self._data, "--write-recovery-conf", "--checkpoint=fast")
        self._set_synchronous("")
        self.start()
        primary._set_synchronous("*")
        primary._run("pg_ctl", "-D", primary._data, "reload")
        if not wait_for(primary._is_replicated, 30):
            raise RuntimeError("the standby does not follow its primary")

    def promote(self) -> None:
        """Makes a standby the primary, which waits for no other."""
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def _set_synchronous(self, names: str) -> None:
        """Of several lines the last one counts."""
        with (self._data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.write(f"synchronous_standby_names = '{names}'\n")

    def _is_replicated(self) -> bool:
        query = "select count(*) from pg_stat_replication where sync_state = 'sync'"
        return self._run("psql", "-h", "127.0.0.1", "-p", self.port, "-U", "crawlgate", "-Atc", query, "crawlgate").strip() == "1"

    def freeze(self, seconds: float) -> None:
        """Stops all its processes (SIGSTOP): connections stay open, and nothing is answered."""
        postmaster = self._postmaster()
        children = pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()
        frozen = [postmaster, *map(int, children)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

    def _postmaster(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: object) -> str:
        command = [str(self._bin / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout


def database_url(ports: list[int], name: str = "crawlgate") -> str:
    """The URL of a database with a server at each port."""
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://crawlgate@{servers}/{name}?sslmode=disable"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextlib.contextmanager
def database_and_certificates(binary: pathlib.Path) -> Iterator[tuple[pathlib.Path, Postgres]]:
    """A folder with the certificates of three nodes, and a running database in it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = pathlib.Path(temporary)
        database = Postgres(folder / "postgres")
        try:
            for name in NODES:
                run(binary, "fleet", "cert", name, "--directory", folder)
            yield folder, database
        finally:
            # It may be stopped.
            with contextlib.suppress(RuntimeError):
                database.stop()


class Crawler(threading.Thread):
    """Asks the node at a place of the list for pages of some hosts in turn, one at a time, until it is told to stop."""

    def __init__(self, nodes: list[Gate], at: int, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self._nodes, self._at, self._urls = nodes, at, urls
        self._stopped = threading.Event()
        self.answers: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        connection = None
        turn = 0
        while not self._stopped.is_set():
            url = self._urls[turn % len(self._urls)]
            turn += 1
            try:
                connection = connection or self._new_connection()
                connection.request("GET", f"{url}?{turn}", headers={"Host": url.split("/")[2]})
                answer = connection.getresponse()
                answer.read()
                reason = answer.headers.get("Crawl-Reason")
                # A link that broke off, in contrast to an owner that is not known or reached.
                is_lost = reason == "owner_unavailable" and answer.status == 502
                self.answered("link lost" if is_lost else reason or str(answer.status))
            except (OSError, http.client.HTTPException) as error:
                connection = None
                self.answered(type(error).__name__)
                time.sleep(0.1)

    def answered(self, answer: str) -> None:
        """Counts an answer, or an error of the connection."""
        self.answers[answer] += 1

    def _new_connection(self) -> http.client.HTTPConnection:
        # The node may have been started anew, at another port.
        return http.client.HTTPConnection("127.0.0.1", self._nodes[self._at].port, timeout=60)

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
        super().__init__(nodes, at, urls)
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
            self._connection = self._new_connection()
            try:
                return self._connection.connect()
            except ConnectionRefusedError:
                time.sleep(0.01)


def start_node(
    arguments: argparse.Namespace,
    folder: pathlib.Path,
    name: str,
    database: str,
    delay: float,
    more: dict | None = None,
    addresses: dict[str, str] | None = None,
) -> Gate:
    """`more`: settings that replace others; `addresses`: those at which other nodes reach this one."""
    home = folder / name
    home.mkdir(exist_ok=True)
    (home / "policy.yaml").write_text(policy(delay), encoding="utf-8")
    settings = {
        "egress": _egress(),
        "store": {"path": str(home / "store"), "kind": "postgres", "url": database},
        "fleet": {
            "node": name,
            "lease": f"{LEASE}s",
            "tls": {
                "cert": str(folder / f"{name}.pem"),
                "key": str(folder / f"{name}.key"),
                "ca": str(folder / "fleet.pem"),
            },
            **(addresses or {"listen": "127.0.0.1:0"}),
        },
    }
    config = home / "found.yaml"
    if not config.exists():
        config.write_text(json.dumps(settings | {"policy": {"path": "policy.yaml"}}), encoding="utf-8")
        run(arguments.binary, "fleet", "found", "--config", config)
    return Gate(arguments.binary, home / "policy.yaml", home, settings | (more or {}))


def start_alone(binary: pathlib.Path, folder: pathlib.Path) -> Gate:
    """A proxy that belongs to no fleet."""
    home = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (home / "policy.yaml").write_text(policy(HOST_DELAY), encoding="utf-8")
    return Gate(binary, home / "policy.yaml", home, {"egress": _egress(), "store": {"path": str(home / "store")}})


def _egress() -> dict:
    hosts = {f"h{number}.{DOMAIN}": "127.0.0.1" for number in (*range(HOSTS), *QUICK)}
    return {"allow_loopback": True, "ports": ["1-65535"], "hosts": hosts}


@contextlib.contextmanager
def started(start: Callable[[str], Gate]) -> Iterator[list[Gate]]:
    """A node of each name, which may be replaced in the list."""
    nodes: list[Gate] = []
    try:
        for name in NODES:
            nodes.append(start(name))
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def serves(node: Gate, url: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
    connection.request("GET", url, headers={"Host": url.split("/")[2]})
    return connection.getresponse().status == 200


def shares(nodes: list[Gate]) -> list[float]:
    """The number of partitions of each node."""
    own = ("crawlgate_fleet_partitions", frozenset({("state", "own")}))
    return [node.own_samples().get(own, 0.0) for node in nodes]


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


class Fleet:
    """Makes each `Gate` of a run a node of a fleet of its own, with two other nodes beside it (`Gate.fleet`).

    Clients use the gate only: it owns about a third of the hosts, and forwards requests for the others.
    """

    def __init__(self, binary: pathlib.Path) -> None:
        self._resources = contextlib.ExitStack()
        self._folder, self._database = self._resources.enter_context(database_and_certificates(binary))
        self._count = 0

    def settings(self, binary: pathlib.Path, folder: pathlib.Path, settings: dict) -> dict:
        """Founds a fleet; returns the settings of a gate as its first node."""
        self._count += 1
        database = self._database.create(f"gate_{self._count}")
        store = settings.get("store", {}) | {"kind": "postgres", "url": database}
        store.setdefault("path", str(folder / "store"))
        settings = settings | {"store": store, "fleet": self._section(NODES[0])}
        config = folder / "found.yaml"
        config.write_text(json.dumps(settings), encoding="utf-8")
        run(binary, "fleet", "found", "--config", config)
        return settings

    def others(self, gate: Gate, folder: pathlib.Path, settings: dict, start) -> list[Gate]:
        """Starts the other nodes, and waits until every host has an owner that it keeps."""
        others = []
        for name in NODES[1:]:
            home = folder / name
            home.mkdir()
            store = settings["store"] | {"path": str(home / "store")}
            logs = settings["logs"] | {"decisions": str(home / "decisions.jsonl")}
            more = {"store": store, "logs": logs, "fleet": self._section(name)}
            others.append(start(home, settings | more))
        if not wait_settled([gate, *others]):
            raise RuntimeError(f"the nodes do not share the hosts: {shares([gate, *others])}")
        return others

    def stop(self) -> None:
        self._resources.close()

    def _section(self, name: str) -> dict:
        files = {"cert": f"{name}.pem", "key": f"{name}.key", "ca": "fleet.pem"}
        tls = {key: str(self._folder / file) for key, file in files.items()}
        return {"node": name, "listen": "127.0.0.1:0", "lease": f"{LEASE}s", "tls": tls}


def owners(binary: pathlib.Path, folder: pathlib.Path, hosts: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The hosts and their owners."""
    config = folder / NODES[0] / "crawlgate.yaml"
    for host in hosts:
        answer = run(binary, "fleet", "owner", f"h{host}.{DOMAIN}", "--config", config)
        yield host, next(name for name in NODES if name in answer)


def reload(nodes: list[Gate], folder: pathlib.Path, delay: float, budget: int | None = None) -> None:
    for name, node in zip(NODES, nodes):
        (folder / name / "policy.yaml").write_text(policy(delay, budget), encoding="utf-8")
        node.hang_up()
    time.sleep(1)


def unavoidable(away: float) -> set[str]:
    """The reasons for refusals if the database was away for so many seconds: leases end if this machine starts it slowly."""
    return set() if away < UNNOTICED else UNAVAILABLE
