"""The commands that evaluate a policy without a network (check, test, decide, explain), compared with the table."""

from __future__ import annotations

import json
import pathlib
import subprocess

from clients import clean_environment
from report import Report
from table import Table


def run(report: Report, binary: pathlib.Path, policy: pathlib.Path, table: Table) -> None:
    def crawlgate(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, *words], input=given, env=clean_environment(), capture_output=True, text=True, timeout=60
        )

    for words in (("check", str(policy)), ("test", str(policy))):
        done = crawlgate(*words)
        report.check(
            f"crawlgate {words[0]}: the policy is fine", [done.stdout + done.stderr] if done.returncode else []
        )
    _decide(report, crawlgate, policy, table)
    for url, code, words in (
        ("http://www.crawl.test/cgi-bin/form.html", 1, ("cgi", "reject")),
        ("http://www.crawl.test/", 0, ("ours", "allow")),
    ):
        done = crawlgate("explain", url, "--policy", str(policy), "--exit-code")
        problems = [f"{word!r} is missing" for word in words if word not in done.stdout.lower()]
        problems += [f"exit code {done.returncode}: {done.stderr}"] if done.returncode != code else []
        report.check(f"crawlgate explain {url}: names rule and verdict, exit code {code}", problems)


def _decide(report: Report, crawlgate, policy: pathlib.Path, table: Table) -> None:
    """Decides the URL of each row, except rows for `ambiguous_url` and addresses, which need more facts than a URL."""
    rows = [
        row
        for row in table.get.values()
        if "\\x" not in row.url and (row.allowed or row.stage == "request") and row.reason != "ambiguous_url"
    ]
    done = crawlgate(
        "decide", "--policy", str(policy), "--format", "json", given="\n".join(row.url for row in rows) + "\n"
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [f"exit code {done.returncode}: {done.stderr}"] if done.returncode else []
    problems += [f"{len(lines)} lines for {len(rows)} URLs"] if len(lines) != len(rows) else []
    for row, line in zip(rows, lines):
        expected = ("allow" if row.allowed else "reject", row.rule)
        if (line.get("verdict"), line.get("rule")) != expected:
            problems.append(f"{row.url}: expected {expected}, got {line}")
    report.check("crawlgate decide: agrees with the table at the request stage", problems, len(rows))
