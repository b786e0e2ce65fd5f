"""Web Bot Auth: requests of a crawler with an identity, verified by a library that is not ours.

    python3 tests/acceptance/signed.py [--binary target/release/crawlgate] --python PYTHON

PYTHON has `http-message-signatures`. A crawler with an identity and one without request pages over HTTP/1.1 and, inside
intercepted TLS, over both versions; the site's log has the fields as they arrived. Each signature must verify with the key
that the published directory has, and must not after a change of any covered part.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from authority import Authority
from clients import clean_environment
from origin import Origin
from pages import HOSTS, WWW
from report import Report
from services import Gate

HERE = pathlib.Path(__file__).resolve().parent
DIRECTORY = "https://bot.example.com"
FIELDS = ("signature", "signature-input", "signature-agent")
PATHS = ("/", "/news/1.html", "/news/2.html?page=2&x=%20y", "/a%2Fb;c=d")
# Curl's options for each way to the site.
WAYS = {"http": [], "https over HTTP/1.1": ["--http1.1"], "https over HTTP/2": ["--http2"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--python", default=sys.executable, help="a Python that has http-message-signatures")
    arguments = parser.parse_args()
    report = Report()
    if subprocess.run([arguments.python, "-c", "import http_message_signatures"], capture_output=True).returncode:
        report.missing("signatures", "http-message-signatures")
        return report.close()
    with tempfile.TemporaryDirectory(prefix="crawlgate-signed-") as name:
        Signed(report, arguments.binary.resolve(), pathlib.Path(name), arguments.python).run()
    return report.close()


class Signed:
    """The checks, in an empty folder."""

    def __init__(self, report: Report, binary: pathlib.Path, folder: pathlib.Path, python: str) -> None:
        self._report, self._binary, self._folder, self._python = report, binary, folder, python
        self._config = folder / "crawlgate.yaml"

    def run(self) -> None:
        keys = [self._folder / "new.pem", self._folder / "old.pem"]
        thumbprints = [self._create(key) for key in keys]
        authority = Authority(self._folder / "site")
        for scheme in ("http", "https"):
            context = authority.context(HOSTS) if scheme == "https" else None
            origin = Origin(None, context)
            gate = self._gate(keys, authority.cert)
            try:
                if scheme == "http":
                    directory = self._directory(thumbprints)
                    self._refused_key(keys[0])
                for way, options in WAYS.items():
                    if way.startswith(f"{scheme} ") or way == scheme:
                        self._crawl(gate, origin, scheme, way, options, directory, thumbprints[0])
            finally:
                code = gate.stop()
                origin.stop()
            self._report.equal(f"{scheme}: SIGTERM ends crawlgate in time, with exit code 0", code, 0)

    def _command(self, *command: object) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self._binary, "identity", *map(str, command)],
            env=clean_environment(),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def _create(self, key: pathlib.Path) -> str:
        made = self._command("key", key)
        mode = oct(key.stat().st_mode & 0o777) if key.exists() else None
        self._report.equal(f"identity key: {key.name} is made, for its owner only", (made.returncode, mode), (0, "0o600"))
        self._report.equal(f"identity key: {key.name} is not overwritten", self._command("key", key).returncode, 2)
        return made.stdout.split()[-1]

    def _gate(self, keys: list[pathlib.Path], root: pathlib.Path) -> Gate:
        policy = self._folder / "policy.yaml"
        politeness = {"delay": "0s", "concurrency": 8}
        policy.write_text(
            json.dumps({"policy": 1, "name": "signed", "options": {"disposition": "allow", "politeness": politeness}}),
            encoding="utf-8",
        )
        listeners = [{"addr": "127.0.0.1:0"}, {"addr": "127.0.0.1:0", "crawler": "news-bot"}]
        crawler = {"name": "news-bot", "identity": {"key": [str(key) for key in keys], "directory": DIRECTORY}}
        ca = {"cert": str(self._folder / "ca.pem"), "key": str(self._folder / "ca.key")}
        settings = {
            "listen": listeners,
            "crawlers": [crawler],
            "tls": {"intercept": True, "ca": ca, "extra_roots": [str(root)]},
            "egress": {
                "allow_loopback": True, "ports": ["1-65535"], "connect_ports": ["1-65535"], "tls_ports": ["1-65535"],
                "hosts": HOSTS,
            },
        }  # fmt: skip
        return Gate(self._binary, policy, self._folder, settings)

    def _directory(self, thumbprints: list[str]) -> dict:
        """The published directory, and the fields of its response."""
        file = self._folder / "directory.json"
        made = self._command("directory", "--config", self._config, "-o", file)
        self._report.equal("identity directory: is written", made.returncode, 0)
        body = file.read_text(encoding="utf-8")
        kids = [key["kid"] for key in json.loads(body)["keys"]]
        self._report.equal("identity directory: has all keys by their thumbprints", kids, thumbprints)
        fields = dict(line.split(": ", 1) for line in made.stdout.splitlines() if line)
        directory = {"body": body, "fields": fields, "authority": DIRECTORY.removeprefix("https://")}
        verdicts = self._verify({"directory": directory, "requests": []})["directory"]
        self._report.equal("identity directory: each key has signed it", verdicts, [True, True])
        directory["authority"] = "other.example"
        verdicts = self._verify({"directory": directory, "requests": []})["directory"]
        self._report.equal("identity directory: no key has signed it for another host", verdicts, [False, False])
        return directory

    def _refused_key(self, key: pathlib.Path) -> None:
        """A key that others can read: exit code 3."""
        key.chmod(0o644)
        command = [self._binary, "run", "--config", self._config]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)
        key.chmod(0o600)
        self._report.equal("run: exits with 3 if others can read a key", done.returncode, 3)
        named = "news-bot" in done.stderr and "new.pem" in done.stderr
        self._report.check("run: names the crawler and the file", [] if named else [done.stderr])

    def _crawl(self, gate: Gate, origin: Origin, scheme: str, way: str, options: list[str], directory: dict, key: str) -> None:
        ports = [int(line.rsplit(":", 1)[1]) for line in gate.lines if line.startswith("proxy listening on")]
        before = len(origin.log.entries)
        for port in ports:
            for path in PATHS:
                command = ["curl", "-q", "-s", "-o", "/dev/null", "--path-as-is", "--noproxy", "", *options]
                command += ["--cacert", str(self._folder / "ca.pem"), "-x", f"http://127.0.0.1:{port}"]
                command += ["-H", "Signature-Agent: forged=\"https://evil.example\"", "-H", "Signature: forged=:AAAA:"]
                subprocess.run([*command, f"{scheme}://{WWW}:{origin.port}{path}"], env=clean_environment(), timeout=60)
        entries = [entry for entry in origin.log.entries[before:] if "/robots.txt" not in entry["line"]]
        signed, plain = entries[len(PATHS) :], entries[: len(PATHS)]
        self._report.equal(f"{way}: every page was requested by both crawlers", len(entries), 2 * len(PATHS))
        fields = [[name.lower() for name, _ in entry["headers"]] for entry in signed]
        wrong = [f"{names}" for names in fields if any(names.count(field) != 1 for field in FIELDS)]
        self._report.check(f"{way}: each request of news-bot has one signature", wrong, len(signed))
        own = [dict(entry["headers"]).get("Signature-Input", "") for entry in plain]
        self._report.equal(f"{way}: no request of another crawler is signed", own, [""] * len(PATHS))
        found = self._verify({"directory": directory, "requests": [_request(entry, scheme) for entry in signed]})
        for one, entry in zip(found["requests"], signed, strict=True):
            self._report.equal(f"{way}: {entry['line']}: the key", one["key"], key)
            self._report.equal(f"{way}: {entry['line']}: verifies", one["valid"], True)
            self._report.equal(f"{way}: {entry['line']}: verifies after a change", one["changed"], {
                "method": False, "authority": False, "path": False, "signature-agent": False, "created": False,
                "expired": False,
            })  # fmt: skip

    def _verify(self, question: dict) -> dict:
        done = subprocess.run(
            [self._python, str(HERE / "signed_verifier.py")],
            input=json.dumps(question),
            env=clean_environment(),
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)


def _request(entry: dict, scheme: str) -> dict:
    method, path = entry["line"].split(" ")[:2]
    return {"method": method, "url": f"{scheme}://{entry['hosts'][0]}{path}", "headers": dict(entry["headers"])}


if __name__ == "__main__":
    sys.exit(main())
