"""Cuts of the network of a fleet, repeated under load: between two nodes, and between a node and the database; in both
directions, and in each alone.

Two nodes that do not reach each other: requests between them wait, then end as `owner_unavailable`, the metric of the alert
names the node, hosts keep their owners, and the third node has nothing to do with it. A node that does not reach the database: its hosts
get other owners, and it goes on as an entry for the hosts of others.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import time

from load import Bystanders, Pair, compare, under_load
from nodes import (
    HOST_DELAY,
    LEASE,
    NODES,
    PARTITIONS,
    UNAVAILABLE,
    database_and_certificates,
    database_url,
    free_port,
    shares,
    start_node,
    started,
    wait_settled,
)
from relay import Direction, Network, Way, both
from report import Report
from services import Gate, get, wait_for

DATABASE = "database"
FIRST, SECOND, THIRD = NODES
# Longer than requests are held, and than hosts have no owner.
SECONDS = 3 * LEASE
# Longer than 1.6 leases, after which hosts have another owner.
MAX_HOLD = round(1.8 * LEASE)

CUTS: dict[str, set[Direction]] = {
    "cut-link": both(FIRST, SECOND),
    "cut-link-there": {(FIRST, SECOND)},
    "cut-link-back": {(SECOND, FIRST)},
    "cut-database": both(FIRST, DATABASE),
    "cut-database-there": {(FIRST, DATABASE)},
    "cut-database-back": {(DATABASE, FIRST)},
}


def run(report: Report, arguments: argparse.Namespace, names: list[str]) -> None:
    with database_and_certificates(arguments.binary) as (folder, database):
        listen = {name: free_port() for name in NODES}
        links = [Way(None, name, port) for name, port in listen.items()]
        network = Network([*links, *(Way(name, DATABASE, database.port) for name in NODES)])
        advertise = dict(zip(NODES, network.ports))
        databases = dict(zip(NODES, network.ports[len(NODES) :]))

        def start(name: str) -> Gate:
            addresses = {"listen": f"127.0.0.1:{listen[name]}", "advertise": f"127.0.0.1:{advertise[name]}"}
            url = database_url([databases[name]])
            limits = {"limits": {"max_hold": f"{MAX_HOLD}s"}}
            return start_node(arguments, folder, name, url, HOST_DELAY, limits, addresses)

        try:
            with started(start) as nodes:
                network.set_processes({name: node.pid for name, node in zip(NODES, nodes)})
                report.equal("the nodes share the hosts", wait_settled(nodes), True)
                for name in names:
                    _repeat(report, arguments, nodes, folder, network, CUTS[name])
        finally:
            network.stop()


def _repeat(
    report: Report,
    arguments: argparse.Namespace,
    nodes: list[Gate],
    folder: pathlib.Path,
    network: Network,
    cut: set[Direction],
) -> None:
    is_link = not any(DATABASE in direction for direction in cut)
    ways = " and ".join(f"from {source} to {target}" for source, target in sorted(cut))
    title = f"Nothing passes {ways}, {arguments.failures} times for {SECONDS} s"
    # An entry without the database knows the owners of before.
    is_concerned = (lambda pair: set(pair) == {FIRST, SECOND}) if is_link else (lambda pair: pair[1] == FIRST)
    bystanders = Bystanders(arguments.binary, folder, nodes, is_concerned)
    problems: list[str] = []
    check = _while_a_link_is_cut if is_link else _while_the_database_is_cut

    def times() -> None:
        for _ in range(arguments.failures):
            before = shares(nodes)
            with bystanders.failure():
                network.cut(cut)
                problems.extend(check(nodes, before, time.monotonic() + SECONDS))
            network.heal()
            if not wait_settled(nodes):
                problems.append(f"the nodes do not share the hosts again: {shares(nodes)}")
            for node in nodes:
                if wait_for(lambda: get(f"{node.admin}/readyz")[0] == 200, LEASE) is not True:
                    problems.append("a node is not ready")

    answers = under_load(report, title, nodes, folder, times, bystanders)
    what = "the link is named, and no host changes its owner" if is_link else "its hosts have other owners, and it gets them back"
    report.check(what, problems, arguments.failures)
    concerned = bystanders.check(report)
    unavailable = sum(concerned.values(), collections.Counter())["owner_unavailable"]
    ends = (answers[:2], answers[2:]) if is_link else (answers[:1], answers[1:])
    if is_link:
        report.check("requests that need the link are refused", [] if unavailable else ["none"], unavailable or 1)
    compare(report, "the crawlers of the ends", ends[0], UNAVAILABLE)
    compare(report, "the crawlers of the others", ends[1], set())


def _while_a_link_is_cut(nodes: list[Gate], before: list[float], end: float) -> list[str]:
    """Either end may dial the other one first."""
    named: set[Pair] = set()
    problems = []
    while time.monotonic() < end:
        for this, other, node in ((FIRST, SECOND, nodes[0]), (SECOND, FIRST, nodes[1])):
            if node.own_samples().get(("crawlgate_fleet_link_failing", frozenset({("node", other)}))):
                named.add((this, other))
        time.sleep(0.5)
    if named != both(FIRST, SECOND):
        problems.append(f"links that fail: {sorted(named)}")
    if shares(nodes) != before:
        problems.append(f"shares of the hosts: {before}, then {shares(nodes)}")
    return problems


def _while_the_database_is_cut(nodes: list[Gate], _: list[float], end: float) -> list[str]:
    time.sleep(max(0.0, end - time.monotonic()))
    first, *others = shares(nodes)
    is_ready = get(f"{nodes[0].admin}/readyz")[0] == 200
    return [] if first == 0 and sum(others) == PARTITIONS and not is_ready else [f"shares of the hosts: {first, *others}"]
