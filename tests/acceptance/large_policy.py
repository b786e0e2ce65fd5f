"""A policy of 100,000 rules in the running proxy: one line changes at a time, and a reload takes over the rest.

    python3 tests/acceptance/large_policy.py [--binary target/release/crawlgate] [--rules 100000] [--reloads 10]

Measures the start, and each reload from POST /reload to its answer, after which the new rule decides: time, processor
time, and resident memory. A reload takes at most a second of processor time (the machine may be busy, so that the time on
the clock is only printed), and after the last one the proxy has at most a tenth more memory than after the first.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from report import Report
from services import Gate, get

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Of processor time.
RELOAD_SECONDS = 1.0
MEMORY_GROWTH = 1.1


def processor_seconds(gate: Gate) -> float:
    fields = pathlib.Path(f"/proc/{gate.pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def changed_line(number: int) -> str:
    return f"  - {{ id: changed, forbid: {{ domain: changed{number}.example }} }}\n"


def deciding_rule(gate: Gate, url: str) -> str | None:
    """The rule that refuses a URL."""
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=10)
    connection.request("GET", url)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.getheader("Crawl-Rule")


def run(binary: pathlib.Path, rules: int, reloads: int, folder: pathlib.Path, report: Report) -> None:
    generator = ROOT / "benches" / "mixed_policy.py"
    text = subprocess.run([sys.executable, generator, str(rules)], check=True, capture_output=True, text=True).stdout
    lines = text.splitlines(keepends=True)
    policy = folder / "policy.yaml"
    policy.write_text(text, encoding="utf-8")
    begin = time.monotonic()
    gate = Gate(binary, policy, folder, {"policy": {"path": str(policy), "watch": False}})
    print(
        f"start    {time.monotonic() - begin:.2f} s, {processor_seconds(gate):.2f} s of processor time, "
        f"{gate.memory() >> 20} MiB"
    )
    slow, wrong, memory = [], [], []
    for number in range(reloads):
        lines[len(lines) // 2] = changed_line(number)
        policy.write_text("".join(lines), encoding="utf-8")
        begin, before = time.monotonic(), processor_seconds(gate)
        status, body = get(f"{gate.admin}/api/v1/reload", body=b"")
        elapsed, seconds = time.monotonic() - begin, processor_seconds(gate) - before
        if status != 200 or json.loads(body)["result"] != "loaded":
            wrong.append(f"reload {number}: {status} {body[:200]!r}")
        rule = deciding_rule(gate, f"http://changed{number}.example/")
        if rule != "changed":
            wrong.append(f"reload {number}: the changed rule does not decide, but {rule}")
        memory.append(gate.memory())
        print(f"reload   {elapsed:.2f} s, {seconds:.2f} s of processor time, {memory[-1] >> 20} MiB")
        if seconds > RELOAD_SECONDS:
            slow.append(f"reload {number}: {seconds:.2f} s")
    gate.stop()
    report.check("after each reload the changed rule decides", wrong, reloads)
    # The first has no unchanged expressions that were needed, and a neighbour may have the processor's caches.
    report.check(
        f"a reload takes at most {RELOAD_SECONDS} s of processor time, in the median",
        slow if len(slow) * 2 > reloads else [],
        reloads,
    )
    growth = memory[-1] / memory[0]
    report.check(
        "after the last reload the proxy has at most a tenth more memory than after the first",
        [] if growth <= MEMORY_GROWTH else [f"{growth:.2f} times"],
    )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/crawlgate")
    arguments.add_argument("--rules", type=int, default=100_000)
    arguments.add_argument("--reloads", type=int, default=10)
    options = arguments.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        run(options.binary.resolve(), options.rules, options.reloads, pathlib.Path(folder), report)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
