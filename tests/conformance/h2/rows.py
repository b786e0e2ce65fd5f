"""The tables: rows of `*.txt` in the format of README.md."""

from __future__ import annotations

import dataclasses
import pathlib
import re

SECTION = re.compile(r"RFC (9113|7541|9218|9110|9112|8441) [0-9A-Z][0-9.]*")
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_PIECE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|\{(\d+)\*([^{}]*)\}|\{([a-z]+)\}|([^\\{]+)", re.DOTALL)
_ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "s": " ", "0": "\0", "\\": "\\", "{": "{", "}": "}"}
# Lines that change the fields of the head before them.
EDITS = "+^=-~"


def text(written: str, names: dict[str, str]) -> bytes:
    """Bytes as the tables write them: `\\r \\n \\t \\s \\0 \\\\ \\{ \\} \\xHH`, `{NAME}` and `{COUNT*TEXT}`."""
    out, at = b"", 0
    while at < len(written):
        found = _PIECE.match(written, at)
        if not found:
            raise ValueError(f"cannot be read: {written[at:]}")
        at = found.end()
        code, escape, count, again, name, plain = found.groups()
        if code:
            out += bytes([int(code, 16)])
        elif escape:
            out += _ESCAPES[escape].encode()
        elif count:
            out += int(count) * text(again, names)
        elif name:
            out += names[name].encode()
        else:
            out += plain.encode()
    return out


@dataclasses.dataclass
class Step:
    """One line: `>` sends, `<` and its kin expect; `edits` are the field lines below it."""

    line: int
    kind: str
    words: list[str]
    edits: list[tuple[str, str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Row:
    """An exchange on a connection of its own, with an origin of its own."""

    name: str
    place: str
    about: str = ""
    steps: list[Step] = dataclasses.field(default_factory=list)
    # Words that change how the row is played, by their first one.
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    # What the origin answers, and what it must have received.
    answer: str = ""
    arrives: str = ""

    @property
    def needs_origin(self) -> bool:
        """Whether the row depends on what its origin does."""
        return bool(self.answer) or self.settings.get("origin", "").startswith(("hang", "early", "close", "drop"))

    @property
    def alpn(self) -> tuple[list[str], str | None]:
        """What the client offers, and what must be chosen."""
        words = self.settings.get("alpn", "h2").split()
        if words == ["none"]:
            return [], None
        return words, "h2" if "h2" in words and self.settings.get("gate") != "off" else "http/1.1"

    def expects(self, pattern: str) -> bool:
        """Whether an outcome of the row matches."""
        return any(step.kind == "<" and re.search(pattern, " ".join(step.words)) for step in self.steps)


def load(folder: pathlib.Path, pattern: str = "*.txt") -> list[Row]:
    """The rows of the folder's files; a mistake in them is a ValueError."""
    rows: list[Row] = []
    for file in sorted(folder.glob(pattern)):
        rows += _read(file)
    names = [row.name for row in rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"names that are taken: {sorted(twice)}")
    return rows


def _read(file: pathlib.Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        place = f"{file.name}:{number}"
        if line.startswith("== "):
            if not NAME.fullmatch(line[3:]):
                raise ValueError(f"{place}: {line[3:]!r} is not a name")
            rows.append(Row(line[3:], place))
        elif line and rows:
            try:
                _add(rows[-1], number, line)
            except (ValueError, IndexError) as error:
                raise ValueError(f"{place}: {error}") from error
    for row in rows:
        if not SECTION.search(row.about):
            raise ValueError(f"{row.place}: {row.name} names no section")
    return rows


def _add(row: Row, number: int, line: str) -> None:
    head, _, rest = line.partition(" ")
    if head == "#":
        row.about += rest + " "
    elif head in (">", "<", "<+", "<-", "<=", "<~", "<t"):
        row.steps.append(Step(number, head, rest.split(" ")))
    elif head in EDITS and row.steps:
        row.steps[-1].edits.append((head, rest))
    elif head == "o>":
        row.answer += rest
    elif head == "o<":
        row.arrives += rest
    elif head in ("way", "gate", "alpn", "settings", "origin", "bare", "unanswered", "ends"):
        row.settings[head] = rest
    else:
        raise ValueError(f"no such line: {line}")
