"""Checks of responses: each function takes a response and its row and returns the problems.

The expectations are those of the published contract (headers, labels, statuses), written out a second time
here on purpose: nothing is read from crawlgate.
"""

from __future__ import annotations

import json
import re

from clients import Answer
from pages import MARK, Page
from table import Row

# reason -> Crawl-Status, Proxy-Status error, Crawl-Retry
REASONS = {
    "rule": ("REJECTED_FILTER", "http_request_denied", "policy-change"),
    "default": ("REJECTED_FILTER", "http_request_denied", "policy-change"),
    "ambiguous_url": ("REJECTED_REQUEST", "http_request_denied", "never"),
    "ip_prohibited": ("REJECTED_ADDRESS", "destination_ip_prohibited", "policy-change"),
    "body_too_large": ("REJECTED_IMPORT", "http_response_body_size", "never"),
    "port_denied": ("REJECTED_REQUEST", "http_request_denied", "policy-change"),
    "bad_request": ("REJECTED_REQUEST", "http_request_error", "never"),
    "method_denied": ("REJECTED_REQUEST", "http_request_denied", "policy-change"),
    "upstream_connect": ("REJECTED_ERROR", "connection_refused", "after"),
    "upstream_tls": ("REJECTED_ERROR", "tls_certificate_error", "after"),
    "upstream_protocol": ("REJECTED_ERROR", "http_protocol_error", "after"),
}

# Only responses of the proxy itself have these.
OURS_ONLY = ("crawl-reason", "crawl-rule", "crawl-decision", "crawl-retry", "crawl-code")


def refusal(row: Row, answer: Answer) -> list[str]:
    """A refused URL: status, headers and body contain the reason, and nothing of the origin."""
    where = f"{answer.method} {row.url}"
    if answer.error:
        return [f"{where}: {answer.error}"]
    found = [(name, expected, got) for name, expected, got in _refusal_fields(row, answer) if expected != got]
    problems = [f"{where}: {name} should be {expected!r}, is {got!r}" for name, expected, got in found]
    return problems + [f"{where}: {problem}" for problem in reason_headers(row.reason or "", row.rule, answer)]


def _refusal_fields(row: Row, answer: Answer) -> list[tuple[str, object, object]]:
    return [
        ("status", row.status, answer.status),
        ("Crawl-Reason", row.reason, answer.one("Crawl-Reason")),
        ("Crawl-Rule", row.rule, answer.one("Crawl-Rule")),
    ]


def reason_headers(reason: str, rule: str | None, answer: Answer) -> list[str]:
    """The headers and the body of every response of the proxy itself."""
    crawl_status, error, retry = REASONS[reason]
    wanted = {
        "Crawl-Status": re.escape(crawl_status),
        "Crawl-Policy": r"acceptance@[0-9a-f]{8}",
        "Crawl-Decision": r"[!-~]+",
        "Crawl-Retry": re.escape(retry),
        "Proxy-Status": rf'"?crawlgate"?; ?error={error}\b.*',
        "Cache-Control": "no-store",
    }
    if answer.status != 304:
        wanted["Content-Type"] = r"(application/problem\+json|text/plain)\b.*"
    problems = [
        f"{name} should match {pattern}, is {answer.one(name)!r}"
        for name, pattern in wanted.items()
        if not re.fullmatch(pattern, answer.one(name) or "")
    ]
    if rule and f"rule={rule}" not in (answer.one("Proxy-Status") or ""):
        problems.append(f"Proxy-Status does not name the rule: {answer.one('Proxy-Status')!r}")
    return problems + _refusal_body(reason, rule, answer)


def _refusal_body(reason: str, rule: str | None, answer: Answer) -> list[str]:
    if MARK in answer.body:
        return ["the body holds bytes of the origin"]
    if re.search(rb"https?://|<[a-z]", answer.body, re.IGNORECASE):
        return [f"the body holds a URL or markup: {answer.body[:200]!r}"]
    if answer.method == "HEAD" or answer.status == 304:
        return [f"a body of {len(answer.body)} bytes"] if answer.body else []
    if not (answer.one("Content-Type") or "").startswith("application/problem+json"):
        return [] if answer.body else ["no body"]
    try:
        problem = json.loads(answer.body)
    except ValueError:
        return [f"the body is not JSON: {answer.body[:200]!r}"]
    wanted = {
        "type": f"urn:crawlgate:reason:{reason}",
        "reason": reason,
        "rule": rule,
        "policy": "acceptance",
        "status": answer.status,
        "instance": f"urn:crawlgate:decision:{answer.one('Crawl-Decision')}",
    }
    return [
        f"problem {key} should be {value!r}, is {problem.get(key)!r}"
        for key, value in wanted.items()
        if problem.get(key) != value
    ]


def passage(row: Row, answer: Answer, page: Page) -> list[str]:
    """An allowed URL: the origin's response, byte for byte, and labelled; for a robots.txt, the cached file."""
    where = f"{answer.method} {row.url}"
    if answer.error:
        return [f"{where}: {answer.error}"]
    body = b"" if answer.method == "HEAD" or page.status == 204 else page.body
    problems = []
    if (row.status, row.status) != (answer.status, page.status):
        problems.append(f"status should be {row.status}, is {answer.status}")
    if answer.body != body:
        problems.append(
            f"body of {len(body)} bytes arrived as {len(answer.body)}, "
            f"first difference at {_first_difference(answer.body, body)}"
        )
    if answer.one("Crawl-Status") != origin_label(row.status):
        problems.append(f"Crawl-Status should be {origin_label(row.status)}, is {answer.one('Crawl-Status')!r}")
    problems += [
        f"{name} is {answer.one(name)!r}, though nothing was refused" for name in OURS_ONLY if answer.one(name)
    ]
    if "error=" in (answer.one("Proxy-Status") or ""):
        problems.append(f"Proxy-Status is {answer.one('Proxy-Status')!r}")
    problems += [] if row.robots else _origin_headers(page, answer)
    return [f"{where}: {problem}" for problem in problems]


def _origin_headers(page: Page, answer: Answer) -> list[str]:
    """End-to-end fields of the origin are unchanged, and Via names the proxy."""
    problems = [] if "crawlgate" in (answer.one("Via") or "") else [f"Via is {answer.one('Via')!r}"]
    for name in {name for name, _ in page.headers if not name.startswith(("Crawl-", "Proxy-"))}:
        sent = [value for each, value in page.headers if each == name]
        if answer.headers.get(name.lower()) != sent:
            problems.append(f"{name} should be {sent}, is {answer.headers.get(name.lower())}")
    if page.framing == "length" and page.status != 204 and answer.one("Content-Length") != str(len(page.body)):
        problems.append(f"Content-Length should be {len(page.body)}, is {answer.one('Content-Length')!r}")
    return problems


def origin_label(status: int) -> str:
    """`Crawl-Status` of an origin's response."""
    if status in (404, 410):
        return "REJECTED_NOTFOUND"
    return "REJECTED_BAD_STATUS" if status >= 400 else "ACCEPTED"


def request_as_it_arrived(entry: dict, port: int) -> list[str]:
    """A line of the origin's log: one correct Host, and no fields for the proxy."""
    problems = []
    host = re.fullmatch(rf"([a-z0-9.-]*[a-z0-9]):{port}", (entry["hosts"] or [""])[0])
    if len(entry["hosts"]) != 1 or not host:
        problems.append(f"Host is {entry['hosts']}")
    if not re.fullmatch(r"[A-Z]+ /[!-~]* HTTP/(1\.1|2)", entry["line"]):
        problems.append("the request line is not in origin form")
    names = [name.lower() for name, _ in entry["headers"]]
    problems += [f"{name} arrived" for name in names if name.startswith(("proxy-", "crawl-")) or name == "forwarded"]
    if "via" not in names:
        problems.append("Via is missing")
    return [f"{entry['line']!r}: {problem}" for problem in problems]


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
