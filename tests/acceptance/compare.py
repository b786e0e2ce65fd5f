"""Two binaries, the same traffic: everything that scripts read must be equal.

    python3 tests/acceptance/compare.py --old BINARY --new BINARY [--show]

For a refactoring. Each binary serves every URL of `expected.tsv` to the same client in the same order, and answers
`check`, `explain`, `decide` and `test` for the policies of `config/` and `tests/policies/`. Compared are the responses,
the lines of the decision log, the names, labels and counts of the metrics, the JSON of the admin API, and the output of
the commands. Times, identifiers, ports and durations are masked. Wording is counted, and printed with `--show`, but fails
nothing: the values of the JSON keys in `PROSE`, `details` in Proxy-Status, the help of metrics, and what commands print
other than JSON. Neither does the size of a refusal, which includes its text, or the order of keys in a JSON Schema. Exit
code 1 if anything else differs.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

import table as tables
from clients import clean_environment
from origin import Origin
from report import Report
from services import Gate, get

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
POLICY = HERE / "policy.yaml"
POLICIES = [ROOT / "config" / "policy.yaml", *sorted((ROOT / "config" / "policies").glob("*.yaml")),
            *sorted((ROOT / "tests" / "policies").glob("*/*.yaml"))]
URLS = ["http://www.example.com/", "http://www.example.com/cgi-bin/a?b=c&sid=1", "https://shop.example.com:8443/p/1.pdf",
        "http://intra.example.com/handbook/a%20b", "http://example.com/calendar/2031/"]
ADMIN = ["status", "policy", "shadow", "stops", "hosts", "urls", "events", "ledger", "openapi.json",
         "decisions?follow=false", "explain?url=http%3A%2F%2Fwww.crawl.test%2Fcgi-bin%2Fform.html",
         "explain?url=nonsense", "explain", "nothing"]

# Keys whose values depend on the moment, the process or the machine.
MOMENTARY = re.compile(
    r"^(time|ts|id|decision|started|since|uptime.*|.*_ms|.*_at|.*seconds|duration.*|latency.*|version|pid|port|trace.*"
    r"|age|to_client|until|expires|bytes_sent|instance|elapsed|memory|client|loaded|at|took|tracked|waited|phases|now|address|cursor)$"
)
# Keys of JSON whose values are sentences for people.
PROSE = re.compile(r"\.(description|detail|details|help|message|summary|text|title)(\[\d+\])*$")
# Counters that depend on timing: latencies, sizes of queues, processor, memory.
UNSTABLE = re.compile(r"_(bucket|sum|seconds.*|bytes.*)$|^process_|_connections|_leases|_build_info|_timestamp|_tracked$|_entries$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=pathlib.Path, required=True)
    parser.add_argument("--new", type=pathlib.Path, required=True)
    parser.add_argument("--show", action="store_true", help="print every text that is worded differently")
    arguments = parser.parse_args()
    report, wordings = Report(), set()
    old, new = record(arguments.old.resolve()), record(arguments.new.resolve())
    for part in old | new:
        problems: list[str] = []
        compare(part, old.get(part), new.get(part), problems, wordings)
        report.check(part, problems, size(old.get(part)))
    print(f"\n{len(wordings)} texts are worded differently")
    if arguments.show:
        for before, after in sorted(wordings):
            print(f"- {before}\n+ {after}")
    return report.close()


def size(value: object) -> int:
    return len(value) if isinstance(value, (list, dict)) else 1


def record(binary: pathlib.Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="crawlgate-compare-") as temporary:
        folder = pathlib.Path(temporary)
        found = commands(binary)
        origin = Origin(folder / "origin.jsonl")
        gate = Gate(binary, POLICY, folder)
        try:
            found["responses"] = [exchange(gate, row, origin) for row in tables.load(HERE / "expected.tsv").get.values()]
            time.sleep(1.5)
            for path in ADMIN:
                status, body = get(f"{gate.admin}/api/v1/{path}")
                found[f"admin {path}"] = [status, structured(body.decode(), origin, gate)]
            samples = gate.samples()
            found["metrics: names and labels"] = sorted({f"{name} {sorted(pairs)}" for name, pairs in samples})
            found["metrics: counts"] = {
                f"{name} {sorted(pairs)}": value for (name, pairs), value in samples.items() if not UNSTABLE.search(name)
            }
            texts = [line for line in gate.metrics_text().decode().splitlines() if line.startswith("# ")]
            found["metrics: types"] = [line for line in texts if line.startswith("# TYPE ")]
            found["metrics: help"] = {line.split()[2]: {"help": line.split(" ", 3)[-1]} for line in texts if line.startswith("# HELP ")}
        finally:
            found["exit code"] = gate.stop()
            origin.stop()
        lines = (folder / "decisions.jsonl").read_text(encoding="utf-8").splitlines()
        # A line is written when its response ends; identifiers count requests as they arrive.
        lines.sort(key=lambda line: int(json.loads(line)["decision"].rpartition("-")[2], 16))
        found["decision log"] = [without_size(structured(line, origin, gate)) for line in lines]
        arrived = [json.loads(line) for line in (folder / "origin.jsonl").read_text(encoding="utf-8").splitlines()]
        found["what arrived at the origin"] = [structured(json.dumps(entry), origin, gate) for entry in arrived]
        return found


def commands(binary: pathlib.Path) -> dict[str, object]:
    found: dict[str, object] = {}
    given = "\n".join(URLS) + "\n"
    for policy in POLICIES:
        name = policy.relative_to(ROOT)
        for words, stdin in (
            (["check", policy, "--format", "json"], ""),
            (["test", policy], ""),
            (["decide", "--policy", policy, "--format", "json"], given),
            *((["explain", url, "--policy", policy, "--format", "json", "--all"], "") for url in URLS),
        ):
            done = subprocess.run(
                [binary, *map(str, words)], input=stdin, env=clean_environment(), capture_output=True, text=True, cwd=ROOT
            )
            key = " ".join([words[0], str(name), *(str(word) for word in words[1:2] if words[0] == "explain")])
            lines = done.stdout.splitlines()
            try:
                output = json.loads(done.stdout)
            except ValueError:
                output = {"json": [], "message": []}
                for line in lines:
                    parsed = json_or_text(line)
                    output["message" if parsed is line else "json"].append(parsed)
            found[key] = {"exit code": done.returncode, "output": output, "message": done.stderr.splitlines()}
    for words in (["schema", "policy"], ["schema", "config"]):
        done = subprocess.run([binary, *words], capture_output=True, text=True)
        found[" ".join(words)] = json_or_text(done.stdout)
    return found


def exchange(gate: Gate, row: tables.Row, origin: Origin) -> dict[str, object]:
    """One request by raw bytes: some URLs of the table are none that a library would send."""
    with socket.create_connection(("127.0.0.1", gate.port), timeout=30) as connection:
        fields = b"Host: compare.test\r\nUser-Agent: compare/1\r\nConnection: close\r\n\r\n"
        connection.sendall(b"GET " + row.sent(origin.port) + b" HTTP/1.1\r\n" + fields)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = received.decode("latin-1").partition("\r\n\r\n")
    status, *fields = [mask(line, origin, gate) for line in head.split("\r\n")]
    momentary = {"date", "crawl-decision", "crawl-held"}
    headers: dict[str, list[str]] = {}
    for name, _, value in (field.partition(": ") for field in fields):
        headers.setdefault(name.lower(), []).append("" if name.lower() in momentary else value)
    if "crawl-reason" in headers:
        headers.pop("content-length", None)
        headers["proxy-status"] = [re.sub(r'details="[^"]*"', "details", value) for value in headers.get("proxy-status", [])]
    if headers.get("transfer-encoding") == ["chunked"]:
        body = unchunked(body)
    return {"url": row.url, "status": int(status.split()[1]), "headers": headers, "body": structured(body, origin, gate)}


def unchunked(body: str) -> str:
    """The content; chunks follow the reads from the origin, which differ from run to run."""
    content, rest = "", body
    while rest:
        size, _, rest = rest.partition("\r\n")
        length = int(size, 16)
        content += rest[:length]
        rest = rest[length + 2 :] if length else ""
    return content


def mask(text: str, origin: Origin, gate: Gate) -> str:
    for port, word in ((origin.port, "ORIGIN"), (gate.port, "PROXY"), (gate.admin_port, "ADMIN")):
        text = re.sub(rf"\b{port}\b", word, text)
    text = re.sub(r"\bcrawlgate-[0-9a-f]{8}\b", "crawlgate-ID", text)
    text = re.sub(r"/tmp/[\w./-]+", "/TMP", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r"\b[0-9a-f]{12,}(-[0-9a-f]+)*\b", "ID", text)


def without_size(line: object) -> object:
    if isinstance(line, dict) and line.get("verdict") == "reject":
        line.pop("bytes", None)
    return line


def structured(text: str, origin: Origin, gate: Gate) -> object:
    """The JSON of a text, or of each of its lines, or the text; masked."""
    value = json_or_text(text)
    if value is text and text.startswith("{"):
        value = [json_or_text(line) for line in text.splitlines()]
    return masked(value, origin, gate)


def masked(value: object, origin: Origin, gate: Gate) -> object:
    if isinstance(value, dict):
        return {mask(key, origin, gate): masked(inner, origin, gate) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, origin, gate) for inner in value]
    if isinstance(value, str) or value in (origin.port, gate.port, gate.admin_port):
        return mask(str(value), origin, gate)
    return value


def json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def compare(place: str, old: object, new: object, problems: list[str], wordings: set[tuple[str, str]]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        unordered = place.startswith("schema ")
        if set(old) != set(new) if unordered else list(old) != list(new):
            missing, added = [key for key in old if key not in new], [key for key in new if key not in old]
            problems.append(f"{place}: keys missing {missing}, added {added}, or in another order")
        for key in old.keys() & new.keys():
            if not MOMENTARY.match(key):
                compare(f"{place}.{key}", old[key], new[key], problems, wordings)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            problems.append(f"{place}: {len(old)} elements, now {len(new)}")
        for number, (before, after) in enumerate(zip(old, new)):
            compare(f"{place}[{number}]", before, after, problems, wordings)
    elif isinstance(old, str) and isinstance(new, str) and old != new and is_wording(place):
        wordings.add((old, new))
    elif old != new:
        problems.append(f"{place}: {old!r}, now {new!r}")


def is_wording(place: str) -> bool:
    return bool(PROSE.search(place))


if __name__ == "__main__":
    sys.exit(main())
