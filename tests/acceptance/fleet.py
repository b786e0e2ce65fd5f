"""Three nodes of a fleet, as processes, with a PostgreSQL of the run's own.

    python3 tests/acceptance/fleet.py [--binary target/release/crawlgate] [--seconds 60]

One crawler at each node asks one host for page after page, at a delay of 500 ms: by the kernel's time of arrival at the
origin no gap may be shorter, the median may be 1 % longer, and the three crawlers get the same number of turns. A stop of
a host at one node is in force at all within a second, also after the database was away. A budget of 1,000 URLs is that of all
nodes together, also if one is killed. The crawlers ask thirty hosts, while a node is killed (`kill -9`), and while the database
is killed and comes back: no gap may be too short, and every answer is a page or `owner_unavailable`. With `--replace` the three
nodes are also replaced one after another (SIGTERM, the end, a new process) under that load: every answer of a request is a page,
and no gap is too short.

With `--failures N` failures are repeated instead (`fleet_failures.py`): all, or those that `--only` names. The environment
variable CRAWLGATE_FLEET_LEASE sets the lease, in seconds. With `--cost` the calls to the database and the processor time of
forwarding are measured instead (`fleet_cost.py`).
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import signal
import sys
import time

import fleet_cost
import fleet_failures
from arrivals import DOMAIN, Origin, too_close
from load import busy_crawlers, under_load
from nodes import (
    ALLOWED,
    HOST_DELAY,
    HOSTS,
    LEASE,
    NODES,
    Crawler,
    MovingCrawler,
    Postgres,
    database_and_certificates,
    is_installed,
    reload,
    run,
    serves,
    shares,
    start_node,
    started,
    unavoidable,
    wait_settled,
)
from report import Report
from services import Gate, get, wait_for

HERE = pathlib.Path(__file__).resolve().parent

CLIENTS = 60
DELAY = 0.500
BUDGET = 1_000


def one_host(report: Report, nodes: list[Gate], folder: pathlib.Path, seconds: float) -> None:
    report.section(f"One host through three nodes for {seconds:.0f} s")
    origin = Origin(folder / "one", 1, 0.0)
    url = origin.url(1, "/page")
    report.equal("each node serves the host", [bool(wait_for(lambda: serves(node, url), 60)) for node in nodes], [True] * 3)
    report.equal("the nodes share the hosts", wait_settled(nodes), True)
    begin = time.time_ns()
    crawlers = [Crawler(nodes, at, [url]) for at in range(len(nodes))]
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
    crawlers = [
        Crawler(nodes, at, [origin.url(number, "/page")]) for at in range(len(nodes)) for number in (1, 2)
    ]
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
    crawlers = busy_crawlers(nodes, urls)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target/release/crawlgate")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--replace", action="store_true", help="replace the nodes one after another, too")
    parser.add_argument("--failures", type=int, metavar="N", help="repeat failures so many times instead")
    parser.add_argument("--only", nargs="+", choices=fleet_failures.NAMES, help="repeat only these")
    parser.add_argument("--cost", action="store_true", help="measure the cost of the fleet instead")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    report = Report()
    if not is_installed():
        report.missing("a fleet", "postgresql")
        return report.close()
    if arguments.failures:
        fleet_failures.run(report, arguments)
    if arguments.cost:
        with database_and_certificates(arguments.binary) as (folder, database):
            with started(lambda name: start_node(arguments, folder, name, database.url, DELAY)) as nodes:
                report.equal("the nodes share the hosts", wait_settled(nodes), True)
                fleet_cost.run(report, arguments.binary, nodes, folder)
    if arguments.failures or arguments.cost:
        return report.close()
    with database_and_certificates(arguments.binary) as (folder, database):
        with started(lambda name: start_node(arguments, folder, name, database.url, DELAY)) as nodes:
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
            shared = wait_for(lambda: min(shares(nodes)) > 0, 60)
            report.check("the node is back", [] if shared else [f"{shares(nodes)}"])
            reload(nodes, folder, HOST_DELAY / 5, BUDGET)
            budget(report, nodes, folder)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
