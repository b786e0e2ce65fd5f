"""The crawls: each client visits the site, and its results are compared with table, origin log and metrics."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
from collections.abc import Callable

import judge
from clients import Answer
from origin import Origin
from pages import MARK
from report import Report, differences
from services import Gate, by_labels, wait_for
from table import Row, Table, without_port


@dataclasses.dataclass
class Tally:
    """The totals of the clients over all crawls, which the counters must equal."""

    rules: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    refused_rules: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    decisions: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    requests: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    lines: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    crawlers: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    ids: list[str] = dataclasses.field(default_factory=list)

    def add(self, row: Row, answer: Answer) -> None:
        """A refusal counts for the rule that its headers name; an admission for the rule of the table."""
        rule = row.rule if row.allowed else answer.one("Crawl-Rule")
        reason = None if row.allowed else answer.one("Crawl-Reason")
        if rule:
            self.rules[rule] += 1
        if rule and not row.allowed:
            self.refused_rules[rule] += 1
        if reason:
            self.decisions[reason] += 1
            self.ids.append(answer.one("Crawl-Decision") or "")
        self.requests[answer.method, str(answer.status), "origin" if row.allowed and not row.robots else "proxy"] += 1
        self.lines["allow" if row.allowed else "reject", rule or ""] += 1


class Crawl:
    """Checks the responses of one client after the other."""

    def __init__(self, report: Report, origin: Origin, gate: Gate, table: Table) -> None:
        self._report = report
        self._origin = origin
        self._gate = gate
        self._table = table
        self._log_mark = 0
        # The hosts whose robots.txt was fetched.
        self._robots: collections.Counter = collections.Counter()
        self.tally = Tally()

    def judge(
        self,
        name: str,
        answers: list[Answer],
        must_meet: list[str],
        crawler: str,
        identity: Callable[[str], str] = str,
    ) -> None:
        """All checks of one client.

        `must_meet` are the URLs that it had to ask for; `crawler` is its name in the configuration; `identity` maps those that the client takes for one
        to the same text.
        """
        known = self._known(name, answers)
        met = {identity(row.url) for row, _ in known}
        self._report.check(
            f"{name}: asked for every URL that it had to",
            [url for url in must_meet if identity(url) not in met],
            len(must_meet),
        )
        self._answers(name, known)
        self._origin_log(name, known)
        for row, answer in known:
            self.tally.add(row, answer)
            self.tally.crawlers[crawler] += 1
        self._counters(name)

    def _known(self, name: str, answers: list[Answer]) -> list[tuple[Row, Answer]]:
        """The responses with their rows; a URL without a row is a problem, since its decision is not in the table."""
        found, unknown = [], []
        for answer in answers:
            row = self._table.rows(answer.method).get(answer.url) or self._by_port(answer)
            if row:
                found.append((row, answer))
            else:
                unknown.append(answer.url)
        self._report.check(f"{name}: every URL that it met stands in expected.tsv", unknown, len(answers))
        return found

    def _by_port(self, answer: Answer) -> Row | None:
        return self._table.rows(answer.method).get(without_port(answer.url, self._origin.port))

    def _answers(self, name: str, known: list[tuple[Row, Answer]]) -> None:
        allowed = [(row, answer) for row, answer in known if row.allowed]
        refused = [(row, answer) for row, answer in known if not row.allowed]
        late = [(row, answer) for row, answer in refused if row.stage == "response"]
        page = self._origin.site.find
        self._report.check(
            f"{name}: every allowed page arrived byte for byte",
            [p for row, answer in allowed for p in judge.passage(row, answer, page(*row.origin))],
            len(allowed),
        )
        self._report.check(
            f"{name}: every refusal says why, in status, headers and body",
            [p for row, answer in refused for p in judge.refusal(row, answer)],
            len(refused),
        )
        self._report.check(
            f"{name}: what was refused by its answer has no byte of the origin",
            [row.url for row, answer in late if answer.error or MARK in answer.body],
            len(late),
        )

    def _origin_log(self, name: str, known: list[tuple[Row, Answer]]) -> None:
        """Exactly the requests that may arrive did, as often as the client got answers to them, and as they should."""
        arrived_now = self._origin.log.entries[self._log_mark :]
        self._log_mark += len(arrived_now)
        entries = [entry for entry in arrived_now if _place(entry)[2] != "/robots.txt"]
        self._robots.update(_place(entry)[1] for entry in arrived_now if entry not in entries)
        arrived = collections.Counter(_place(entry) for entry in entries)
        expected = collections.Counter((answer.method, *row.origin) for row, answer in known if row.origin and not row.robots)
        stray = [f"{count} × {place}" for place, count in arrived.items() if place not in expected]
        self._report.check(
            f"{name}: the origin's log shows nothing that was refused before the fetch", stray, len(entries)
        )
        self._report.check(
            f"{name}: the origin's log shows each other request as often as it was made",
            differences(arrived, expected),
            len(expected),
        )
        self._report.check(
            f"{name}: requests arrived clean, with one Host",
            [p for entry in entries for p in judge.request_as_it_arrived(entry, self._origin.port)],
            len(entries),
        )

    def _counters(self, name: str) -> None:
        def now() -> collections.Counter:
            return by_labels(self._gate.samples(), "crawlgate_rule_decided_total", ("rule",), mode="enforce")

        # The last record may still be written when its client already has the body.
        wait_for(lambda: now() == self.tally.rules, 5)
        found = now()
        refusing = {rule: count for rule, count in found.items() if rule in self.tally.refused_rules}
        both = {rule for rule in self.tally.refused_rules if self.tally.rules[rule] != self.tally.refused_rules[rule]}
        seen = {rule: count for rule, count in self.tally.refused_rules.items() if rule not in both}
        self._report.check(
            f"{name}: rule counters on /metrics equal the refusals that clients saw, by rule",
            differences({r: c for r, c in refusing.items() if r not in both}, seen),
            len(seen),
        )
        self._report.check(
            f"{name}: rule counters on /metrics equal all decisions, admissions too",
            differences(found, self.tally.rules),
            len(self.tally.rules),
        )

    def totals(self) -> None:
        """The other families, and the decision log, over all crawls."""
        samples = self._gate.samples()
        report, tally = self._report, self.tally
        reasons = by_labels(samples, "crawlgate_decisions_total", ("reason",), verdict="reject")
        report.check(
            "decisions_total by reason equals the refusals that clients saw",
            differences(reasons, tally.decisions),
            len(tally.decisions),
        )
        requests = by_labels(samples, "crawlgate_requests_total", ("method", "code", "source"))
        report.check(
            "requests_total by method, code and source equals the answers that clients saw",
            differences(requests, tally.requests),
            len(tally.requests),
        )
        crawlers = by_labels(samples, "crawlgate_requests_total", ("crawler",))
        report.check(
            "requests_total by crawler equals the answers that each client saw",
            differences(crawlers, tally.crawlers),
            len(tally.crawlers),
        )
        answers = sum(by_labels(samples, "crawlgate_upstream_responses_total", ("code_class",)).values())
        fetched = sum(self._robots.values())
        report.equal(
            "upstream_responses_total equals the lines of the origin's log, those of robots.txt aside",
            answers,
            self._log_mark - fetched,
        )
        robots = sum(by_labels(samples, "crawlgate_robots_fetches_total", ("result",)).values())
        report.equal("robots_fetches_total equals the lines of robots.txt in the origin's log", robots, fetched)
        report.check(
            "each host's robots.txt was fetched once, whoever asked for what",
            [f"{host}: {count} times" for host, count in self._robots.items() if count != 1],
            len(self._robots),
        )
        report.check(
            "every refusal has a Crawl-Decision of its own",
            [key for key, count in collections.Counter(tally.ids).items() if count > 1 or not key],
            len(tally.ids),
        )
        self._decision_log()

    def _decision_log(self) -> None:
        """One line per request; only allowed URLs, and those refused by a rule that logs, have a URL."""
        total = sum(self.tally.lines.values())
        wait_for(lambda: len(_lines(self._gate.decisions)) >= total, 5)
        lines = _lines(self._gate.decisions)
        found = collections.Counter((line["verdict"], line.get("rule") or "") for line in lines)
        self._report.check(
            "the decision log has one line for each request, with verdict and rule",
            differences(found, self.tally.lines),
            len(lines),
        )
        self._report.check(
            "the decision log names each request's crawler",
            differences(collections.Counter(line["crawler"] for line in lines), self.tally.crawlers),
            len(lines),
        )
        rules = {line.get("rule") for line in lines if line["verdict"] == "reject" and "url" in line and line["url"]}
        logging = {"blocked-site", "old-site", "cgi", "embargo", "drafts", "video"}
        self._report.equal("the decision log keeps the URLs of refusals only where the rule logs", rules, logging)


def _place(entry: dict) -> tuple[str, str, str]:
    method, target = entry["line"].split(" ")[:2]
    return method, (entry["hosts"] or [""])[0].rsplit(":", 1)[0], target


def _lines(path: pathlib.Path) -> list[dict]:
    """The whole lines of the decision log."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
