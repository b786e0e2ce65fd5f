#!/usr/bin/env python3
"""Writes a policy of the network filters of adblock lists such as EasyList to standard output, one rule for each filter.

    benches/adblock_policy.py easylist.txt > easylist.yaml

Filters on the contents of pages, exceptions (`@@`) and the options after `$` are left out: the policy refuses more than
the list would, which does not matter for a benchmark. `||host^` becomes `domain`, text becomes `contains`, and the rest
expressions. docs/speed.md uses it for the figures of large policies.
"""

import pathlib
import re
import sys

SEPARATOR = r"(?:[^A-Za-z0-9_.%-]|$)"
HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+$")


def main() -> None:
    filters = {}
    for name in sys.argv[1:]:
        for line in pathlib.Path(name).read_text(encoding="utf-8", errors="replace").splitlines():
            condition = translate(line.strip())
            if condition:
                filters.setdefault(condition)
    print("policy: 1\nname: adblock\noptions: { disposition: allow }\nrules:")
    for number, condition in enumerate(filters):
        print(f"  - {{ id: r{number}, forbid: {{ {condition} }} }}")


def translate(line: str) -> str | None:
    """The condition of a filter; None if the line is none."""
    if not line or line.startswith(("!", "[", "@@")) or re.search(r"#[@?$%]?#", line) or not line.isascii():
        return None
    if line.startswith("/") and line.rstrip().endswith("/") and len(line) > 2:
        return f"url: {{ regex: {quoted('(?i)' + line[1:-1])} }}" if "(?" not in line else None
    pattern = re.sub(r"\$[^/]*$", "", line).strip("*").lower()
    host = pattern.removeprefix("||").removesuffix("^")
    if pattern.startswith("||") and HOST.match(host):
        return f"domain: {host}"
    if len(pattern) < 3:
        return None
    if not re.search(r"[\^*|]", pattern):
        return f"url: {{ contains: {quoted(pattern)}, case: ignore }}"
    expression = re.escape(pattern.strip("|")).replace(r"\*", ".*").replace(r"\^", SEPARATOR).replace(r"\/", "/")
    if pattern.startswith("||"):
        expression = r"^https?://([^/]+\.)?" + expression
    elif pattern.startswith("|"):
        expression = "^" + expression
    if pattern.endswith("|"):
        expression += "$"
    return f"url: {{ regex: {quoted('(?i)' + expression)} }}"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    main()
