"""Three nodes of a fleet as operators see them: the dashboard *Fleet*, its alerts, the API and the admin page.

    python3 tests/acceptance/fleet_watched.py [--binary target/release/crawlgate] [--node-modules FOLDER]
        [--screenshots FOLDER]

A real Prometheus scrapes the nodes while crawlers ask thirty hosts through each of them, one node gets another policy, the database is
away, and one node is killed (`kill -9`). Each query of the panels that only nodes of a fleet fill returns data other than zero,
and the alerts on what happened are seen. Chromium opens the page's view Fleet before and after (`fleet_watched.mjs`; it needs
the packages that `page.py` names).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import time

import page
import panels
from arrivals import Origin
from dashboards import RULES, Boards, ask
from nodes import (
    HOSTS,
    LEASE,
    NODES,
    Crawler,
    Postgres,
    database_and_certificates,
    is_installed,
    policy,
    start_node,
    wait_settled,
)
from report import Report
from services import Gate, Prometheus, get, wait_for

HERE = pathlib.Path(__file__).resolve().parent
DELAY = 0.05
PARTITIONS = 1024
# Alerts whose condition this run meets, though not for as long as they wait. That partitions have no owner may pass between two
# evaluations: promtool's tests show that alert.
SEEN = {
    "CrawlgateFleetNoLease",
    "CrawlgateFleetMemberSilent",
    "CrawlgateFleetStoreErrors",
    "CrawlgateFleetLinkDown",
    "CrawlgatePolicyDrift",
}


def document(node: Gate, path: str) -> dict:
    status, body = get(f"{node.admin}{path}")
    return json.loads(body) if status == 200 else {"status": status}


def members(node: Gate) -> dict[str, dict]:
    return {member["node"]: member for member in document(node, "/api/v1/fleet").get("members", [])}


def described(report: Report, nodes: list[Gate]) -> None:
    """The API while all is well."""
    report.section("The API of three nodes")
    found = [document(node, "/api/v1/fleet") for node in nodes]
    report.equal("each knows its name", [fleet["node"] for fleet in found], list(NODES))
    report.equal("and is a member with a lease", [fleet["member"] and fleet["lease_left"] > 0 for fleet in found], [True] * 3)
    sums = [sum(member["partitions"] for member in fleet["members"]) for fleet in found]
    report.equal("each knows the owner of every partition", sums, [PARTITIONS] * 3)
    versions = {member["version"] for fleet in found for member in fleet["members"]}
    report.equal("all run one release", versions, {document(nodes[0], "/api/v1/status")["version"]})
    revisions = {member["policy"] for fleet in found for member in fleet["members"]}
    active = document(nodes[0], "/api/v1/status")["policy"]["revision"]
    report.equal("and one policy", (revisions, [fleet["policy_revisions"] for fleet in found]), ({active}, [1] * 3))
    late = [member for fleet in found for member in fleet["members"] if member["renewed"] is None or member["renewed"] > LEASE]
    report.check("each has seen the others renew their leases", [f"{member}" for member in late], 9)
    tables = [document(node, "/api/v1/fleet/partitions") for node in nodes]
    shares = {node: tables[0]["owners"].count(node) for node in NODES}
    counts = {member["node"]: member["partitions"] for member in found[0]["members"]}
    report.equal("the table of partitions agrees", (tables[1:], shares), (tables[:1] * 2, counts))


def disturb(report: Report, nodes: list[Gate], folder: pathlib.Path, database: Postgres) -> None:
    """Another policy at one node, a database that is away, and a node that is killed."""
    report.section("A policy of its own, the database away, a node killed")
    other = folder / NODES[1] / "policy.yaml"
    other.write_text(policy(DELAY).replace("name: fleet", "name: other"), encoding="utf-8")
    nodes[1].hang_up()
    drifts = wait_for(lambda: document(nodes[0], "/api/v1/fleet").get("policy_revisions") == 2, 2 * LEASE)
    report.equal("another node sees the difference", bool(drifts), True)
    time.sleep(2)
    other.write_text(policy(DELAY), encoding="utf-8")
    nodes[1].hang_up()
    agrees = wait_for(lambda: document(nodes[0], "/api/v1/fleet").get("policy_revisions") == 1, 2 * LEASE)
    report.equal("and its end", bool(agrees), True)

    database.stop()
    lost = wait_for(lambda: document(nodes[0], "/api/v1/fleet").get("lease_left") == 0, 3 * LEASE)
    error = document(nodes[0], "/api/v1/fleet")["error"]
    report.equal("without the database the lease ends, and the error says why", (bool(lost), bool(error)), (True, True))
    time.sleep(3)
    database.start()
    report.equal("all goes on when it is back", wait_settled(nodes), True)

    os.kill(nodes[-1].pid, signal.SIGKILL)
    silent = wait_for(lambda: members(nodes[0]).get(NODES[-1], {}).get("state") == "silent", 4 * LEASE)
    report.equal("a killed node is silent", bool(silent), True)


def asked(report: Report, prometheus: Prometheus, boards: Boards, begin: float) -> None:
    report.section("The dashboard and the alerts")
    found = [(uid, panel) for uid, panel in boards.of_metrics() if panels.is_of_fleet(panel)]
    wrong, queries = [], 0
    for uid, panel in found:
        for target in panel["targets"]:
            queries += 1
            # What a dashboard shows now has been over the time.
            problem, _ = ask(prometheus, target | {"instant": False}, begin)
            wrong += [f"{uid}, {panel['title']}, {target['refId']}: {problem}: {target['expr']}"] if problem else []
    report.check(f"each query of {len(found)} panels returns data, other than zero", wrong, queries)
    since = f"{int(time.time() - begin) + 1}s"
    raised = prometheus.ask("query", query=f"max by (alertname) (max_over_time(ALERTS[{since}]))")["data"]["result"]
    names = {item["metric"]["alertname"] for item in raised}
    report.check("the alerts on it are raised", sorted(SEEN - names), len(SEEN))
    links = prometheus.ask("query", query=f"max by (node) (max_over_time(crawlgate_fleet_link_failing[{since}]))")["data"]["result"]
    report.equal("the link that fails has the name of its node", {item["metric"]["node"] for item in links}, {NODES[-1]})
    rules = [rule for group in prometheus.ask("rules")["data"]["groups"] for rule in group["rules"]]
    ill = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    report.check("Prometheus evaluates each rule", ill, len(rules))


def show(report: Report, arguments: argparse.Namespace, nodes: list[Gate], folder: pathlib.Path, phase: str) -> None:
    """The page of the first node."""
    if missing := page._has_what_it_needs(arguments.node_modules):
        report.missing("the page's view Fleet in Chromium", missing)
        return
    given = {
        "admin": nodes[0].admin,
        "hosts": [],
        "token": "none",
        "nodes": list(NODES),
        "phase": phase,
        "home": str(folder / f"browser-{phase}"),
        "screenshots": str(arguments.screenshots or folder),
    }
    page.drive(report, "fleet_watched.mjs", given, arguments.node_modules)


def watch(report: Report, arguments: argparse.Namespace, nodes: list[Gate], folder: pathlib.Path, database: Postgres) -> None:
    boards = Boards()
    origin = Origin(folder / "origin", 1, 0.0)
    urls = [origin.url(number, "/page") for number in range(HOSTS)]
    prometheus = None
    if shutil.which("prometheus"):
        targets = [f"127.0.0.1:{node.admin_port}" for node in nodes]
        prometheus = Prometheus(targets[0], folder / "prometheus", targets[1:], RULES)
    else:
        report.missing("the dashboard against a Prometheus", "prometheus")
    report.equal("the nodes share the hosts", wait_settled(nodes), True)
    begin = time.time()
    crawlers = [Crawler(nodes, at, urls[start:] + urls[:start]) for at in range(len(nodes)) for start in range(0, HOSTS, 10)]
    for crawler in crawlers:
        crawler.start()
    try:
        time.sleep(3)
        described(report, nodes)
        show(report, arguments, nodes, folder, "well")
        disturb(report, nodes, folder, database)
        show(report, arguments, nodes, folder, "ill")
        owned = wait_for(lambda: document(nodes[0], "/api/v1/fleet")["partitions"]["unowned"] == 0, 60)
        report.equal("the others own its hosts", bool(owned), True)
        if prometheus:
            time.sleep(2)
            asked(report, prometheus, boards, begin)
    finally:
        for crawler in crawlers:
            crawler.finish()
        if prometheus:
            prometheus.stop()
        origin.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--node-modules", type=pathlib.Path, help="a folder in which npm installed playwright-core and axe-core")
    parser.add_argument("--screenshots", type=pathlib.Path, help="keep pictures of the page in this folder")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    arguments.node_modules = arguments.node_modules and arguments.node_modules.resolve()
    arguments.screenshots = arguments.screenshots and arguments.screenshots.resolve()
    report = Report()
    if not is_installed():
        report.missing("a fleet", "postgresql")
        return report.close()
    with database_and_certificates(arguments.binary) as (folder, database):
        # Requests for hosts without an owner are refused after a second, so that there are some.
        more = {"limits": {"max_hold": "1s"}}
        nodes = [start_node(arguments, folder, name, database.url, DELAY, more) for name in NODES]
        try:
            watch(report, arguments, nodes, folder, database)
        finally:
            for node in nodes:
                node.stop()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
