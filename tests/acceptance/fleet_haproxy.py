"""HAProxy in front of three nodes of a fleet, by the configuration that docs/packaging/fleet has.

    python3 tests/acceptance/fleet_haproxy.py [--binary target/release/crawlgate] [--seconds 10]

Only addresses and ports of the configuration are replaced. Over 95 % of the requests must arrive at the owner of their host, tunnels
among them; without the table of owners most do not. Each client is known by its own address. A node is stopped (SIGTERM) and
started again under load: no request fails, and the share is as before. So it is while no node is ready, the database being away:
requests wait at the nodes, which answer them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

from arrivals import DOMAIN, Origin
from clients import clean_environment
from nodes import LEASE, NODES, Crawler, Postgres, database_and_certificates, is_installed, start_node, wait_settled
from report import Report
from services import Gate, by_labels, wait_for

HERE = pathlib.Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "docs" / "packaging" / "fleet" / "haproxy"
HOSTS = 300
CLIENTS = 16
LOCAL = 0.95


class Balancer:
    """HAProxy with the recipe, and the ports of these nodes."""

    def __init__(self, nodes: list[Gate], folder: pathlib.Path, name: str, change=lambda text: text) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        text = (RECIPE / "haproxy.cfg").read_text(encoding="utf-8")
        admin = " ".join(node.admin for node in nodes)
        text = re.sub(r'setenv CRAWLGATE_ADMIN ".*"', f'setenv CRAWLGATE_ADMIN "{admin}"', text)
        text = text.replace("/usr/local/etc/haproxy/owner.lua", str(RECIPE / "owner.lua"))
        text = text.replace("bind :3128", f"bind 127.0.0.1:{self.port}")
        for number, (name_, node) in enumerate(zip(NODES, nodes), 1):
            text = re.sub(
                rf"server proxy-{number} \S+ check port \d+",
                f"server {name_} 127.0.0.1:{node.port} check port {node.admin_port}",
                text,
            )
            text = re.sub(rf"server any-{number} \S+", f"server any-{number} 127.0.0.1:{node.port}", text)
        assert "172." not in text, text
        config = folder / f"{name}.cfg"
        config.write_text(change(text), encoding="utf-8")
        self._log = (folder / f"{name}.log").open("w+")
        self._process = subprocess.Popen(
            ["haproxy", "-db", "-f", config], stdout=self._log, stderr=subprocess.STDOUT, env=clean_environment()
        )
        wait_for(self._accepts, 10)

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return self._process.poll() is not None

    def stop(self) -> str:
        self._process.terminate()
        self._process.wait(20)
        self._log.seek(0)
        return self._log.read()


class Client(Crawler):
    """Asks one host after another on one connection, from an address of its own."""

    def __init__(self, port: int, origin: Origin, number: int) -> None:
        super().__init__([], 0, [origin.url((number + 7 * turn) % HOSTS, "/page") for turn in range(HOSTS)])
        self._port, self._number = port, number

    def _new_connection(self) -> http.client.HTTPConnection:
        source = (f"127.0.0.{10 + self._number}", 0)
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=60, source_address=source)


def load(port: int, origin: Origin, meanwhile) -> collections.Counter[str]:
    """The answers to all clients while something happens."""
    clients = [Client(port, origin, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    meanwhile()
    return sum((client.stop() for client in clients), collections.Counter())


def forwarded(nodes: list[Gate]) -> tuple[int, int]:
    """Requests that were forwarded, and all."""
    metrics = [node.samples() for node in nodes]
    hops = sum(by_labels(found, "crawlgate_fleet_forwarded_total", ("result",)).get("answered", 0) for found in metrics)
    return hops, sum(sum(by_labels(found, "crawlgate_decisions_total", ("verdict",)).values()) for found in metrics)


def local_share(nodes: list[Gate], ask) -> tuple[float, int]:
    """The share of requests that arrive at the owner of their host, and their number."""
    before = forwarded(nodes)
    ask()
    hops, total = (now - then for now, then in zip(forwarded(nodes), before))
    return 1 - hops / max(1, total), total


def tunnels(port: int, origin: Origin) -> list[str]:
    """Asks each host in a tunnel of its own."""
    wrong = []
    for number in range(HOSTS):
        host = f"h{number}.{DOMAIN}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.set_tunnel(host, origin.port)
        try:
            connection.request("GET", "/page", headers={"Host": f"{host}:{origin.port}"})
            status = connection.getresponse().status
            wrong += [] if status == 200 else [f"{host}: {status}"]
        except (OSError, http.client.HTTPException) as error:
            wrong.append(f"{host}: {error}")
        connection.close()
    return wrong


def raw_status(port: int, url: str) -> bytes:
    """Asks for a URL in UTF-8, as some clients send it, from the address of a client; returns the status."""
    with socket.create_connection(("127.0.0.1", port), 20, ("127.0.0.10", 0)) as connection:
        connection.sendall(f"GET {url} HTTP/1.1\r\nHost: {url.split('/')[2]}\r\nConnection: close\r\n\r\n".encode())
        return connection.makefile("rb").readline().split()[1]


def restart(nodes: list[Gate], start, seconds: float) -> int | None:
    """Stops the last node, and starts it again at the same ports; returns its exit code."""
    time.sleep(seconds / 2)
    code = nodes[-1].stop()
    nodes[-1] = start(NODES[-1], nodes[-1])
    wait_settled(nodes)
    time.sleep(seconds / 2)
    return code


def balanced(report: Report, nodes: list[Gate], start, folder: pathlib.Path, database: Postgres, seconds: float) -> None:
    origin = Origin(folder / "origin", 1, 0.0)
    report.equal("the nodes share the hosts", wait_settled(nodes), True)

    report.section(f"HAProxy without the table of owners, for {seconds:.0f} s")
    blind = Balancer(nodes, folder, "blind", lambda text: re.sub(r"\n +use-server .*", "", text))
    share, total = local_share(nodes, lambda: load(blind.port, origin, lambda: time.sleep(seconds)))
    blind.stop()
    report.check("most requests are forwarded", [] if share < 0.6 else [f"{share:.1%} local"], total)

    report.section("HAProxy with it")
    balancer = Balancer(nodes, folder, "haproxy")
    try:
        # The table, and the health checks.
        time.sleep(3)
        answers: collections.Counter[str] = collections.Counter()
        share, total = local_share(nodes, lambda: answers.update(load(balancer.port, origin, lambda: time.sleep(seconds))))
        report.equal("every answer is a page", set(answers), {"200"})
        report.check(f"over 95 % are local: {share:.2%}", [] if share > LOCAL else [f"{share:.1%}"], total)
        report.equal("a URL with bytes beyond ASCII is fetched", raw_status(balancer.port, origin.url(1, "/caf\u00e9")), b"200")
        wrong: list[str] = []
        share, total = local_share(nodes, lambda: wrong.extend(tunnels(balancer.port, origin)))
        report.check("tunnels are answered", wrong, HOSTS)
        report.check(f"and over 95 % are local: {share:.2%}", [] if share > LOCAL else [f"{share:.1%}"], total)
        lines = [json.loads(line) for node in nodes for line in node.decisions.read_text().splitlines()]
        crawlers = {line["crawler"] for line in lines if line["url"] and "?" in line["url"]}
        report.equal("each client is known by its own address", crawlers, {f"c{number}" for number in range(CLIENTS)})

        codes: list[int | None] = []
        answers = load(balancer.port, origin, lambda: codes.append(restart(nodes, start, seconds)))
        failed = [f"{count} × {answer}" for answer, count in answers.items() if answer != "200"]
        report.check("a node is stopped and started: no request fails", failed, sum(answers.values()))
        report.equal("it ends in order", codes, [0])
        share, total = local_share(nodes, lambda: load(balancer.port, origin, lambda: time.sleep(seconds)))
        report.check(f"over 95 % are local again: {share:.2%}", [] if share > LOCAL else [f"{share:.1%}"], total)

        answers = load(balancer.port, origin, lambda: away(database))
        odd = set(answers) - {"200", "owner_unavailable"}
        report.check("the database is away: the nodes answer, not HAProxy", [f"{answers}"] if odd else [], sum(answers.values()))
        settled = wait_settled(nodes)
        answers = load(balancer.port, origin, lambda: time.sleep(1))
        report.equal("and all goes on", (settled, set(answers)), (True, {"200"}))
    finally:
        print("        " + "\n        ".join(balancer.stop().splitlines()[-5:]), flush=True)
        origin.stop()


def away(database: Postgres) -> None:
    """Lets the leases end."""
    time.sleep(1)
    database.stop()
    time.sleep(2 * LEASE)
    database.start()
    time.sleep(2 * LEASE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target/release/crawlgate")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    report = Report()
    if not is_installed():
        report.missing("a fleet behind HAProxy", "postgresql")
        return report.close()
    if not shutil.which("haproxy"):
        report.missing("a fleet behind HAProxy", "haproxy")
        return report.close()
    with database_and_certificates(arguments.binary) as (folder, database):

        def start(name: str, before: Gate | None = None) -> Gate:
            port, admin = (before.port, before.admin_port) if before else (0, 0)
            more = {
                "listen": [{"addr": f"127.0.0.1:{port}", "proxy_protocol": {"trusted": ["127.0.0.1"]}}],
                "admin": {"listen": f"127.0.0.1:{admin}", "names": ["localhost"]},
                "crawlers": [{"name": f"c{number}", "sources": [f"127.0.0.{10 + number}"]} for number in range(CLIENTS)],
                "egress": {
                    "allow_loopback": True,
                    "ports": ["1-65535"],
                    "connect_ports": ["1-65535"],
                    "hosts": {f"h{number}.{DOMAIN}": "127.0.0.1" for number in range(HOSTS)},
                },
                "timeouts": {"drain_delay": "3s", "drain": "10s"},
                "limits": {"max_hold": "20s"},
            }
            return start_node(arguments, folder, name, database.url, 0.0, more)

        nodes = [start(name) for name in NODES]
        try:
            balanced(report, nodes, start, folder, database, arguments.seconds)
        finally:
            for node in nodes:
                node.stop()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
