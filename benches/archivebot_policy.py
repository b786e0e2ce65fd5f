#!/usr/bin/env python3
"""Writes a policy of ArchiveBot's ignore sets to standard output, one rule for each expression.

    benches/archivebot_policy.py ArchiveBot/db/ignore_patterns > archivebot.yaml

Expressions that occur in several sets are written once, those with the hosts of a job not at all. Those that the policy
language does not have, with look-around or back-references, are disabled by it. docs/speed.md uses the policy.
"""

import json
import pathlib
import sys


def main():
    known = set()
    print("policy: 1\nname: archivebot\non_invalid_rule: disable\noptions: { disposition: allow }\nrules:")
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
        for expression in json.loads(path.read_text())["patterns"]:
            if expression in known or "{primary_" in expression or "{any_start_" in expression:
                continue
            known.add(expression)
            quoted = expression.replace("'", "''")
            print(f"  - {{ id: {path.stem}-{len(known)}, forbid: {{ url: {{ regex: '{quoted}' }} }} }}")


if __name__ == "__main__":
    main()
