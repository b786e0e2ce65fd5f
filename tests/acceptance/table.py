"""`expected.tsv`: the expected result of every URL, as rows.

The table is written by hand; nothing here asks crawlgate or reads the policy.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

FIELDS = ("url", "met", "verdict", "stage", "rule", "reason", "status", "wire")


@dataclasses.dataclass(frozen=True)
class Row:
    """One URL. `rule` and `reason` are None where the table has a dash; `wire` is None if it never arrives."""

    url: str
    met: str
    verdict: str
    stage: str
    rule: str | None
    reason: str | None
    status: int
    wire: str | None

    @property
    def allowed(self) -> bool:
        return self.verdict == "allow"

    @property
    def robots(self) -> bool:
        """Whether it is a robots.txt, which the proxy fetches once for all and answers with by itself."""
        return self.wire == "/robots.txt"

    @property
    def linked(self) -> bool:
        """Whether a crawler must meet it."""
        return self.met == "crawl"

    @property
    def origin(self) -> tuple[str, str] | None:
        """Host and target as they must arrive at the origin, or None if they must not."""
        host = re.match(r"[a-z]+://([^/?:]+)", self.url, re.IGNORECASE)
        return (host[1].lower().rstrip("."), self.wire) if host and self.wire else None

    def sent(self, port: int) -> bytes:
        """The bytes of the request target: with the site's port, and `\\xHH` replaced by the raw byte."""
        url = re.sub(r"^([a-zA-Z]+://(?:\[[^\]]*\]|[^/?]*))", rf"\1:{port}", self.url)
        return re.sub(rb"\\x([0-9A-F]{2})", lambda hex_: bytes.fromhex(hex_[1].decode()), url.encode())

    @property
    def plain(self) -> bool:
        """Whether every client can write it: printable ASCII without a space."""
        return re.fullmatch(r"[!-~]+", self.url) is not None and "\\x" not in self.url


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows by URL, for GET and for HEAD."""

    get: dict[str, Row]
    head: dict[str, Row]

    def rows(self, method: str) -> dict[str, Row]:
        return self.head if method == "HEAD" else self.get


def load(path: pathlib.Path) -> Table:
    """Reads the file; a line that does not fit is an error that names it."""
    rows: dict[str, Row] = {}
    heads: dict[str, Row] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("#") or not line:
            continue
        row = _row(line, f"{path.name}:{number}")
        place = heads if row.met == "HEAD" else rows
        if row.url in place:
            raise ValueError(f"{path.name}:{number}: {row.url} stands here twice")
        place[row.url] = row
    return Table(rows, rows | heads)


def _row(line: str, place: str) -> Row:
    values = dict(zip(FIELDS, line.split("\t"), strict=True))
    allowed = values["verdict"] == "allow"
    known = {
        "met": ("crawl", "typed", "HEAD"),
        "verdict": ("allow", "refuse"),
        "stage": ("-",) if allowed else ("request", "destination", "response"),
    }
    for field, words in known.items():
        if values[field] not in words:
            raise ValueError(f"{place}: {field} is {values[field]!r}, not one of {words}")
    arrives = allowed or values["stage"] == "response"
    if arrives != (values["wire"] != "-"):
        raise ValueError(f"{place}: wire says {values['wire']!r}, which contradicts the verdict")
    wire = re.sub(r"^[a-zA-Z]+://[^/?]*", "", values["url"]) if values["wire"] == "=" else values["wire"]
    none = {field: None if values[field] == "-" else values[field] for field in ("rule", "reason")}
    return Row(
        values["url"],
        values["met"],
        values["verdict"],
        values["stage"],
        none["rule"],
        none["reason"],
        int(values["status"]),
        wire if arrives else None,
    )


def without_port(url: str, port: int) -> str:
    """A URL as a client reported it, in the table's spelling."""
    return url.replace(f":{port}", "", 1)
