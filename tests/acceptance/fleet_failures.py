"""Failures of a fleet, repeated under load: killed and paused nodes, a database that is killed, does not answer, or fails over to
its synchronous standby, and cuts of the network between two nodes, and between a node and the database (`fleet_cuts.py`).

After each, every host is served again; no gap is too short and no host has two requests at once; every answer is a page or
`owner_unavailable`, and only a page if the database was back before a lease ended. Crawlers that a failure does not concern keep
above 95 % of their rate (`load.py`).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import os
import pathlib
import signal
import time
from collections.abc import Callable

import fleet_cuts
from load import Bystanders, Pair, compare, under_load
from nodes import (
    CUT_OFF,
    HOST_DELAY,
    LEASE,
    NODES,
    UNNOTICED,
    Postgres,
    database_and_certificates,
    database_url,
    start_node,
    started,
    unavoidable,
    wait_settled,
)
from report import Report
from services import Gate

FROZEN = 10.0
# Between the end of the primary and the promotion of its standby.
PROMOTED_AFTER = 1.0


@dataclasses.dataclass
class Fleet:
    """Three nodes with one database."""

    report: Report
    arguments: argparse.Namespace
    folder: pathlib.Path
    database: Postgres
    url: str
    nodes: list[Gate] = dataclasses.field(default_factory=list)

    def start(self, name: str) -> Gate:
        return start_node(self.arguments, self.folder, name, self.url, HOST_DELAY)

    def repeat(
        self, title: str, is_concerned: Callable[[Pair], bool], disturb: Callable[[Bystanders], None]
    ) -> list[collections.Counter]:
        """Returns the answers by node."""
        bystanders = Bystanders(self.arguments.binary, self.folder, self.nodes, is_concerned)

        def times() -> None:
            for _ in range(self.arguments.failures):
                disturb(bystanders)

        answers = under_load(self.report, title, self.nodes, self.folder, times, bystanders)
        bystanders.check(self.report)
        return answers


def kill(fleet: Fleet) -> None:
    def disturb(bystanders: Bystanders) -> None:
        nodes = fleet.nodes
        with bystanders.failure():
            os.kill(nodes[0].pid, signal.SIGKILL)
            time.sleep(2 * LEASE)
        nodes[0].stop()
        nodes[0] = fleet.start(NODES[0])
        wait_settled(nodes)

    title = f"A node is killed {fleet.arguments.failures} times"
    first, *others = fleet.repeat(title, lambda pair: NODES[0] in pair, disturb)
    compare(fleet.report, "the crawlers of the others", others, {"owner_unavailable"})
    compare(fleet.report, "its own crawlers", [first], {"owner_unavailable", *CUT_OFF})


def pause(fleet: Fleet) -> None:
    def disturb(bystanders: Bystanders) -> None:
        with bystanders.failure():
            os.kill(fleet.nodes[0].pid, signal.SIGSTOP)
            time.sleep(2 * LEASE)
            os.kill(fleet.nodes[0].pid, signal.SIGCONT)
        wait_settled(fleet.nodes)

    title = f"A node is paused {fleet.arguments.failures} times for two leases"
    answers = fleet.repeat(title, lambda pair: NODES[0] in pair, disturb)
    compare(fleet.report, "all crawlers", answers, {"owner_unavailable"})


def lose(seconds: float) -> Callable[[Fleet], None]:
    def repeated(fleet: Fleet) -> None:
        _without_database(
            fleet,
            f"The database is killed {fleet.arguments.failures} times and away for {seconds:g} s",
            lambda: fleet.database.kill_and_restart(seconds),
            lambda: None,
        )

    return repeated


def freeze(fleet: Fleet) -> None:
    def disturb() -> float:
        fleet.database.freeze(FROZEN)
        return FROZEN

    title = f"The database does not answer for {FROZEN:g} s, {fleet.arguments.failures} times"
    _without_database(fleet, title, disturb, lambda: None)


def fail_over(fleet: Fleet) -> None:
    """The standby is promoted, and what was the primary becomes a new standby."""
    servers = [fleet.database, Postgres(fleet.folder / "standby", fleet.database)]

    def disturb() -> float:
        begin = time.monotonic()
        servers[0].kill()
        time.sleep(PROMOTED_AFTER)
        servers[1].promote()
        return time.monotonic() - begin

    def restore() -> None:
        servers.reverse()
        servers[1].follow(servers[0])

    fleet.url = database_url([server.port for server in servers])
    try:
        with started(fleet.start) as fleet.nodes:
            fleet.report.equal("the nodes share the hosts", wait_settled(fleet.nodes), True)
            title = f"The database fails over to its standby {fleet.arguments.failures} times"
            _without_database(fleet, title, disturb, restore)
    finally:
        # The other one is stopped with its folder.
        standby = next(server for server in servers if server is not fleet.database)
        with contextlib.suppress(RuntimeError):
            standby.stop()


def _without_database(fleet: Fleet, title: str, disturb: Callable[[], float], restore: Callable[[], None]) -> None:
    """`disturb` returns the time for which the database was away."""
    away: list[float] = []

    def once(bystanders: Bystanders) -> None:
        with bystanders.failure():
            away.append(disturb())
            time.sleep(2 * LEASE)
        restore()

    # If leases end, every host is concerned.
    answers = fleet.repeat(title, lambda _: max(away) >= UNNOTICED, once)
    print(f"        it was away for {', '.join(f'{time:.1f}' for time in away)} s", flush=True)
    compare(fleet.report, "all crawlers", answers, unavoidable(max(away)))


# Of one fleet, one after another.
FAILURES: dict[str, Callable[[Fleet], None]] = {
    "kill": kill,
    "pause": pause,
    "lose-0.2": lose(0.2),
    "lose-3": lose(3.0),
    "lose-60": lose(60.0),
    "freeze": freeze,
}
FAIL_OVER = "fail-over"
NAMES = (*FAILURES, FAIL_OVER, *fleet_cuts.CUTS)


def run(report: Report, arguments: argparse.Namespace) -> None:
    names = arguments.only or NAMES
    if failures := [failure for name, failure in FAILURES.items() if name in names]:
        with database_and_certificates(arguments.binary) as (folder, database):
            fleet = Fleet(report, arguments, folder, database, database.url)
            with started(fleet.start) as fleet.nodes:
                report.equal("the nodes share the hosts", wait_settled(fleet.nodes), True)
                for failure in failures:
                    failure(fleet)
    if FAIL_OVER in names:
        with database_and_certificates(arguments.binary) as (folder, database):
            fail_over(Fleet(report, arguments, folder, database, database.url))
    if cuts := [name for name in fleet_cuts.CUTS if name in names]:
        fleet_cuts.run(report, arguments, cuts)
