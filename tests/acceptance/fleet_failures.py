"""Failures of a fleet, repeated under load: killed and paused nodes, and a database that is killed, or does not answer.

After each, every host is served again; no gap is too short and no host has two requests at once; every answer is a page or
`owner_unavailable`, and only a page if the database was back before a lease ended.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import signal
import time
from collections.abc import Callable

from nodes import CUT_OFF, HOST_DELAY, LEASE, NODES, Postgres, start_node, unavoidable, under_load, wait_settled
from report import Report
from services import Gate

# The seconds for which the database is away, and the share of the repetitions: the longest takes most of the time.
AWAY = ((0.2, 1.0), (3.0, 1.0), (60.0, 0.2))
FROZEN = 10.0


def run(
    report: Report, arguments: argparse.Namespace, nodes: list[Gate], folder: pathlib.Path, database: Postgres
) -> None:
    count = arguments.failures
    first, *others = _repeat(
        report, f"A node is killed {count} times", nodes, folder, count, lambda: _kill(arguments, nodes, folder, database)
    )
    _compare(report, "the crawlers of the others", others, {"owner_unavailable"})
    _compare(report, "its own crawlers", [first], {"owner_unavailable", *CUT_OFF})
    answers = _repeat(report, f"A node is paused {count} times for two leases", nodes, folder, count, lambda: _pause(nodes))
    _compare(report, "all crawlers", answers, {"owner_unavailable"})
    for seconds, share in AWAY:
        times = max(1, round(count * share))
        title = f"The database is killed {times} times and away for {seconds:g} s"
        away: list[float] = []

        def lose() -> None:
            away.append(database.kill_and_restart(seconds))
            time.sleep(2 * LEASE)

        answers = _repeat(report, title, nodes, folder, times, lose)
        print(f"        it was away for {', '.join(f'{time:.1f}' for time in away)} s", flush=True)
        _compare(report, "all crawlers", answers, unavoidable(max(away)))

    def freeze() -> None:
        database.freeze(FROZEN)
        time.sleep(2 * LEASE)

    title = f"The database does not answer for {FROZEN:g} s, {count} times"
    answers = _repeat(report, title, nodes, folder, count, freeze)
    _compare(report, "all crawlers", answers, {"owner_unavailable"})


def _repeat(
    report: Report, title: str, nodes: list[Gate], folder: pathlib.Path, count: int, disturb: Callable[[], None]
) -> list[collections.Counter]:
    def times() -> None:
        for _ in range(count):
            disturb()

    return under_load(report, title, nodes, folder, times)


def _kill(arguments: argparse.Namespace, nodes: list[Gate], folder: pathlib.Path, database: Postgres) -> None:
    os.kill(nodes[0].pid, signal.SIGKILL)
    time.sleep(2 * LEASE)
    nodes[0].stop()
    nodes[0] = start_node(arguments, folder, NODES[0], database.url, HOST_DELAY)
    wait_settled(nodes)


def _pause(nodes: list[Gate]) -> None:
    os.kill(nodes[0].pid, signal.SIGSTOP)
    time.sleep(2 * LEASE)
    os.kill(nodes[0].pid, signal.SIGCONT)
    wait_settled(nodes)


def _compare(report: Report, who: str, answers: list[collections.Counter], allowed: set[str]) -> None:
    total = sum(answers, collections.Counter())
    wrong = [f"{count} × {answer}" for answer, count in total.items() if answer not in {"200", *allowed}]
    named = " or ".join(sorted(allowed)) or "nothing else"
    report.check(f"{who} get pages, or {named}", wrong, sum(total.values()))
    print(f"        {dict(total)}", flush=True)
