#!/usr/bin/env python3
"""Writes the dashboards, `*.json` beside this file, from their descriptions in `boards/`.

    python3 dashboards/build.py            write them
    python3 dashboards/build.py --check    list those that are out of date; exit code 1 if any

Standard library only. The JSON is committed, so importing a dashboard does not need this script; after changing a
description, run it again.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

from boards import fleet, ledger, log, overview, policy, politeness, tls
from boards.grafana import Board

HERE = pathlib.Path(__file__).resolve().parent
BOARDS: list[Board] = [overview.BOARD, policy.BOARD, politeness.BOARD, ledger.BOARD, log.BOARD, tls.BOARD, fleet.BOARD]


def texts() -> dict[str, str]:
    """File name to content."""
    return {
        f"{board.uid.removeprefix('crawlgate-')}.json": json.dumps(board.model(), indent=2, ensure_ascii=False) + "\n"
        for board in BOARDS
    }


def differing() -> list[str]:
    """Dashboards that differ from their descriptions, and those without one."""
    written = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.json")}
    wanted = texts()
    return sorted(name for name in written.keys() | wanted.keys() if written.get(name) != wanted.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if parser.parse_args().check:
        for name in (names := differing()):
            print(f"{name}: not what `python3 dashboards/build.py` writes", file=sys.stderr)
        return 1 if names else 0
    for name, text in texts().items():
        (HERE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
