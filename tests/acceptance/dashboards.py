"""The dashboards, rules and alerts of `dashboards/`, against a real Prometheus that scrapes real crawlgates under traffic.

    python3 tests/acceptance/dashboards.py [--binary target/release/crawlgate] [--node-modules FOLDER]

There is no Grafana server here. So the JSON is checked for its shape, each query is asked as Grafana would ask it, with
the variables filled in, and must return data, other than zero since there was traffic of each kind; each metric that is
named must exist. promtool checks the rules and tries the alerts. There is no Loki either: queries to it are parsed by
Grafana's own grammar, and the fields that they name must be fields of the log. Exit code 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import panels
from clients import clean_environment
from report import Report
from services import Gate, Prometheus, wait_for
from watched import Watched

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DASHBOARDS = ROOT / "dashboards"
RULES = DASHBOARDS / "prometheus" / "crawlgate.rules.yml"
LOG_FIELDS = ROOT / "docs" / "decision-log.md"
BOARDS = {"overview", "policy", "politeness", "ledger", "log", "tls", "fleet"}
SECONDS = 30

# Panels that may say nothing or zero here, and why; at most one in ten.
QUIET = {
    ("crawlgate-fleet", "Panics"): "a request that panics would be a bug to mend, not traffic to make",
    ("crawlgate-tls", "HTTP/2 with origins"): "the origin of this traffic has no HTTP/2; tests/it/origin_http2 counts connections and failures",
    ("crawlgate-tls", "HTTP/2 limits and errors"): "clients that violate HTTP/2 are those of tests/conformance/h2 and tests/hostile/floods.py",
    ("crawlgate-tls", "Proxies before and behind"): "this traffic has no parents and no load balancer; parents.py has them",
    ("crawlgate-ledger", "Lost looks"): "a ledger whose disk fails, or does not keep up, is not to be had beside one that works",
    ("crawlgate-ledger", "Waits, losses and failed commits"): "the same",
    ("crawlgate-ledger", "Pending and held removals, by cause"): "a mistaken policy that empties an index is not traffic to make",
}
# Metrics with series only for parents of the configuration, which `parents.py` reads, and for links that fail.
WITHOUT_SERIES = {"crawlgate_parent_failures_total", "crawlgate_parent_up", "crawlgate_fleet_link_failing"}
# Alerts without a `for` that this traffic must raise.
RAISED = {"CrawlgateAddressAttempts", "CrawlgateBanSuspicion", "CrawlgateDecisionLogDrops"}
# The values of Grafana's variables: scrapes a second apart, half a minute of traffic.
VARIABLES = {"$__rate_interval": "5s", "$__auto": "5s", "$__range": f"{SECONDS}s", "$compare": "10s", "$job": "crawlgate", "$instance": ".+", "$crawler": ".+"}
# How a test says that an alert fires, with its name for %s.
FIRES = r'expr: ALERTS\{alertname="%s",alertstate="firing"\}\n\s+eval_time: \w+\n\s+exp_samples:\n\s+- '
NAMES = re.compile(r"(?<![\w:])(?:crawlgate_\w+|process_\w+)")


def filled(expression: str) -> str:
    """A query with the variables' values."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


class Boards:
    """The dashboards as they are committed."""

    def __init__(self) -> None:
        self.all = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(DASHBOARDS.glob("*.json"))]

    def panels(self) -> list[tuple[str, dict]]:
        return [(board["uid"], panel) for board in self.all for panel in panels.queried(board)]

    def of_metrics(self) -> list[tuple[str, dict]]:
        """Those whose queries go to Prometheus."""
        return [(uid, panel) for uid, panel in self.panels() if not panels.asks_log(panel)]

    def outside_of_fleets(self) -> list[tuple[str, dict]]:
        """Those of them that have data without a fleet; `fleet_watched.py` asks the others."""
        return [(uid, panel) for uid, panel in self.of_metrics() if not panels.is_of_fleet(panel)]

    def log_queries(self) -> list[str]:
        """The queries to Loki."""
        found = [panel for _, panel in self.panels() if panels.asks_log(panel)]
        return [target["expr"] for panel in found for target in panel["targets"]]

    def expressions(self) -> list[str]:
        """Of panels and of annotations."""
        marks = [mark["expr"] for board in self.all for mark in board["annotations"]["list"] if "expr" in mark]
        return marks + [target["expr"] for _, panel in self.of_metrics() for target in panel["targets"]]

    def selections(self) -> dict[str, str]:
        """The variables' queries, as queries that Prometheus understands."""
        found = {}
        for board in self.all:
            for variable in board["templating"]["list"]:
                if named := re.match(r"label_values\((.+), (\w+)\)$", str(variable["query"])):
                    found[f"{board['uid']}: ${variable['name']}"] = f"group by ({named[2]}) ({named[1]})"
        return found


def written(report: Report, boards: Boards) -> None:
    """The checks without a running proxy."""
    report.section("Dashboards: the files")
    done = _run([sys.executable, "-B", str(DASHBOARDS / "build.py"), "--check"])
    report.check("the JSON is what dashboards/build.py writes", _lines(done) if done.returncode else [])
    uids = {board["uid"] for board in boards.all}
    report.equal("all dashboards are there", uids, {f"crawlgate-{name}" for name in BOARDS})
    wrong = [problem for board in boards.all for problem in panels.problems(board)]
    what = "panels have titles, descriptions, units, thresholds, and queries by job and instance"
    report.check(what, wrong, len(boards.panels()))
    titles = {(uid, panel["title"]) for uid, panel in boards.panels()}
    report.check("each exception is a panel", [f"{entry}" for entry in QUIET.keys() - titles], len(QUIET))
    share = f"{len(QUIET)} of {len(titles)}"
    report.check(f"at most one panel in ten is an exception: {share}", [share] if 10 * len(QUIET) > len(titles) else [])
    text = (DASHBOARDS / "README.md").read_text(encoding="utf-8")
    titles_ = [board["title"].removeprefix("crawlgate / ") for board in boards.all]
    unnamed = [name for name in [*titles_, *_alerts()] if name not in text]
    report.check("README.md names each dashboard and each alert", unnamed, len(titles_) + len(_alerts()))


def logged(report: Report, boards: Boards, modules: pathlib.Path | None) -> None:
    """The queries to Loki."""
    queries = boards.log_queries()
    documented = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?`) \|", LOG_FIELDS.read_text(encoding="utf-8"), re.MULTILINE)))
    unknown = [f"{field}: {query}" for query in queries for field in re.findall(r'(\w+)="\1"', query) if field not in documented]
    report.check("queries to Loki name fields of the decision log", unknown, len(queries))
    if not shutil.which("node") or not modules or not (modules / "node_modules/@grafana/lezer-logql").exists():
        report.missing("queries to Loki against the grammar of LogQL", "node with @grafana/lezer-logql")
        return
    given = json.dumps([filled(query) for query in queries]).encode()
    done = _run(["node", str(HERE / "logql.mjs"), str(modules)], given)
    wrong = _lines(done) if done.returncode or done.stdout or done.stderr else []
    report.check("queries to Loki are LogQL", wrong, len(queries))


def _alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))


def ruled(report: Report) -> None:
    """The rules, by promtool."""
    report.section("Dashboards: rules and alerts")
    tests = sorted(RULES.parent.glob("*.test.yml"))
    commands = {
        "check rules": ["promtool", "check", "rules", str(RULES)],
        "check config": ["promtool", "check", "config", str(RULES.parent / "prometheus.yml")],
        "test rules": ["promtool", "test", "rules", *map(str, tests)],
    }
    for name, command in commands.items():
        done = _run(command)
        report.check(f"promtool {name}", _lines(done) if done.returncode else [])
    text = "".join(path.read_text(encoding="utf-8") for path in tests)
    untried = [
        f"{alert}: {what}"
        for alert in _alerts()
        for what, pattern in (
            ("must fire", FIRES % alert),
            ("must not", rf"alertname: {alert}, eval_time: \w+, exp_alerts: \[\]"),
        )
        if not re.search(pattern, text)
    ]
    report.check("each alert is tried where it must fire, and where it must not", untried, len(_alerts()))
    rules = RULES.read_text(encoding="utf-8").split("- alert: ")[1:]
    parts = ("severity:", "summary:", "description:", "runbook:", "runbook_url:")
    bare = [f"{rule.split()[0]}: no {part}" for rule in rules for part in parts if part not in rule]
    report.check("each alert has severity, summary, description, runbook and its page", bare, len(rules))


def _run(command: list[str], given: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(command, input=given, capture_output=True, env=clean_environment(), timeout=120)


def _lines(done: subprocess.CompletedProcess) -> list[str]:
    return (done.stdout + done.stderr).decode().splitlines() or [f"exit code {done.returncode}"]


class Live:
    """The queries, run during traffic."""

    def __init__(self, report: Report, boards: Boards, watched: Watched, prometheus: Prometheus, begin: float) -> None:
        self._report = report
        self._boards = boards
        self._watched = watched
        self._prometheus = prometheus
        self._begin = begin
        self._exported = families(watched.first) | families(watched.second)

    def run(self) -> None:
        self._metrics()
        self._rules()
        self._alerts()
        self._panels()
        self._choices()

    def _metrics(self) -> None:
        linted = _run(["promtool", "check", "metrics"], self._watched.first.metrics_text())
        said = _lines(linted) if linted.returncode or linted.stdout or linted.stderr else []
        self._report.check("promtool check metrics has nothing to say", said)
        used = {name for expression in self._boards.expressions() for name in NAMES.findall(expression)}
        used |= set(NAMES.findall(RULES.read_text(encoding="utf-8")))
        absent = sorted(used - self._exported - WITHOUT_SERIES)
        self._report.check("each metric that dashboards and rules name is exported", absent, len(used))

    def _panels(self) -> None:
        wrong, asked, empty = [], 0, set()
        found = self._boards.outside_of_fleets()
        for uid, panel in found:
            for target in panel["targets"]:
                asked += 1
                problem, excusable = ask(self._prometheus, target, self._begin)
                if excusable:
                    empty.add((uid, panel["title"]))
                if problem and not (excusable and (uid, panel["title"]) in QUIET):
                    wrong.append(f"{uid}, {panel['title']}, {target['refId']}: {problem}: {target['expr']}")
        self._report.check(f"each query of {len(found)} panels returns data, other than zero", wrong, asked)
        for place in QUIET.keys() & empty:
            print(f"      excepted: {', '.join(place)}: {QUIET[place]}")
        self._report.check("each exception is needed", [", ".join(place) for place in QUIET.keys() - empty], len(QUIET))
        marks = [mark for board in self._boards.all for mark in board["annotations"]["list"] if "expr" in mark]
        unmarked = [problem for mark in marks if (problem := ask(self._prometheus, mark | {"instant": False}, self._begin)[0])]
        self._report.check("the marks of reloads are there", unmarked, len(marks))

    def _choices(self) -> None:
        empty = []
        for name, query in self._boards.selections().items():
            answer = self._prometheus.ask("query", query=filled(query))
            if answer["status"] != "success" or not answer["data"]["result"]:
                empty.append(f"{name}: {query}")
        self._report.check("the variables have something to choose", empty, len(self._boards.selections()))

    def _rules(self) -> None:
        """Prometheus evaluates all of them, and each record has samples."""
        rules = [rule for group in self._prometheus.ask("rules")["data"]["groups"] for rule in group["rules"]]
        ill = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
        self._report.check("Prometheus evaluates each rule", ill, len(rules))
        records = [rule["name"] for rule in rules if rule["type"] == "recording"]
        empty = [name for name in records if not self._prometheus.ask("query", query=name)["data"]["result"]]
        self._report.check("each record has samples", empty, len(records))

    def _alerts(self) -> None:
        """The alerts for this traffic fire, and their texts are complete."""
        alerts = self._prometheus.ask("alerts")["data"]["alerts"]
        firing = {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
        self._report.check("alerts that this traffic must raise are raised", sorted(RAISED - firing), len(RAISED))
        texts = [text for alert in alerts for text in alert["annotations"].values()]
        broken = [text for text in texts if "<error" in text or "<no value>" in text or "{{" in text]
        self._report.check("and what alerts say can be read", broken, len(texts))


def ask(prometheus: Prometheus, target: dict, begin: float) -> tuple[str, bool]:
    """The problem with the result of a query since a time, and whether a documented reason may excuse it."""
    query = filled(target["expr"])
    if target["instant"]:
        answer = prometheus.ask("query", query=query)
    else:
        answer = prometheus.ask("query_range", query=query, start=begin, end=time.time(), step=1)
    if answer["status"] != "success":
        return answer["error"], False
    values = [float(text) for item in answer["data"]["result"] for _, text in item.get("values") or [item["value"]]]
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return "no data", True
    # A query for zeros is satisfied by their presence.
    return ("", False) if any(values) or query.endswith("== 0") else ("nothing but zeros", True)


def families(gate: Gate) -> set[str]:
    """The names of all metrics of crawlgate."""
    found = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", gate.metrics_text().decode(), re.MULTILINE):
        found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return found


def watch(report: Report, boards: Boards, binary: pathlib.Path, folder: pathlib.Path) -> None:
    """Traffic, a reload that succeeds, one that fails, and then the queries."""
    report.section(f"Dashboards: two crawlgates under traffic for {SECONDS} s")
    watched = Watched(binary, folder)
    targets = [f"127.0.0.1:{gate.admin_port}" for gate in (watched.first, watched.second, watched.gone)]
    prometheus = Prometheus(targets[0], folder / "prometheus", targets[1:], RULES)
    try:
        # A series without an earlier scrape shows no increase.
        scraped = prometheus.ready() and wait_for(lambda: prometheus.query("sum(up)", "") == {"": 3}, 20)
        if not report.check("Prometheus scrapes all", [] if scraped else ["not within 20 s"]):
            return
        # From here on it is down.
        watched.gone.stop()
        begin = time.time()
        watched.start()
        for part in (watched.reload_well, watched.reload_badly):
            time.sleep(SECONDS / 3)
            part()
        time.sleep(max(0.0, begin + SECONDS - time.time()))
        report.check("traffic was made as it was meant", watched.surprises)
        Live(report, boards, watched, prometheus, begin).run()
    finally:
        prometheus.stop()
        watched.stop()


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path, modules: pathlib.Path | None) -> None:
    """The whole check, in an empty folder."""
    boards = Boards()
    written(report, boards)
    logged(report, boards, modules)
    composed(report, binary, folder)
    for program in ("promtool", "prometheus", "openssl"):
        if not shutil.which(program):
            report.missing("rules, and dashboards against a Prometheus", program)
            return
    ruled(report)
    watch(report, boards, binary, folder)


def composed(report: Report, binary: pathlib.Path, folder: pathlib.Path) -> None:
    """The settings that dashboards/compose.yaml starts crawlgate with."""
    place = folder / "composed"
    place.mkdir()
    # As the containers see them.
    shutil.copytree(DASHBOARDS / "compose", place / "compose")
    shutil.copytree(ROOT / "config", place / "config")
    settings = place / "compose" / "crawlgate.yaml"
    state = place / "state"
    state.mkdir()
    (state / "admin.token").write_text("a-token-of-sixteen-characters\n", encoding="utf-8")
    text = settings.read_text(encoding="utf-8")
    for directory in ("/var/lib/crawlgate", "/var/log/crawlgate"):
        text = text.replace(directory, str(state))
    settings.write_text(text, encoding="utf-8")
    done = _run([str(binary), "check", str(settings)])
    report.check("crawlgate check: the settings of the compose file", _lines(done) if done.returncode else [])
    text = (DASHBOARDS / "compose.yaml").read_text(encoding="utf-8")
    named = re.findall(r"^\s+- (\.{1,2}/[^:]*|\.{1,2}):", text, re.MULTILINE)
    boards = {f"./{path.name}" for path in DASHBOARDS.glob("*.json")}
    mounted = [name for name in named if name.endswith(".json")]
    report.equal("the compose file mounts each dashboard, once", sorted(mounted), sorted(boards))
    lost = [path for path in named if not (DASHBOARDS / path).exists()]
    report.check("what the compose file mounts is there", lost, len(named))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target" / "release" / "crawlgate")
    parser.add_argument("--node-modules", type=pathlib.Path, help="a folder in which npm installed @grafana/lezer-logql")
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="crawlgate-dashboards-") as folder:
        run(report, arguments.binary.resolve(), pathlib.Path(folder), arguments.node_modules)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
