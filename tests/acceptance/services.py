"""The processes of the run: crawlgate, and Debian's Prometheus that scrapes it."""

from __future__ import annotations

import collections
import json
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

from clients import clean_environment
from pages import HOSTS

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> tuple[int, bytes]:
    """A request without proxy, a POST if it has a body; status and body whatever the status."""
    try:
        with _DIRECT.open(urllib.request.Request(url, body, headers or {}), timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def wait_for(condition, seconds: float, pause: float = 0.1):
    """The first value of `condition()` that is true, or its last one when the time is over."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(pause)
    return value


class Gate:
    """A running `crawlgate run --config FILE`, on ports of the system's choice.

    With a fleet it is one of three nodes: clients use this one, and metrics, logs and lines are those of all.
    """

    # `nodes.Fleet`, if the run has one.
    fleet = None

    def __init__(
        self,
        binary: pathlib.Path,
        policy: pathlib.Path,
        folder: pathlib.Path,
        settings: dict | None = None,
        environment: dict[str, str] | None = None,
        prepare: str = "",
    ) -> None:
        """`prepare`: lines of a shell that becomes crawlgate, so that its limits and its place are crawlgate's."""
        self._decisions = folder / "decisions.jsonl"
        self.lines: list[str] = []
        self._others: list[Gate] = []
        settings = self._settings(policy) | (settings or {})
        config = folder / "crawlgate.yaml"
        if self.fleet:
            settings = self.fleet.settings(binary, folder, settings)
        config.write_text(json.dumps(settings, indent=2), encoding="utf-8")
        command = [binary, "run", "--config", config]
        if prepare:
            command = ["/bin/sh", "-c", f'{prepare}\nexec "$0" "$@"', *command]
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=clean_environment(**(environment or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.port = self._listening("proxy")
        self.admin_port = self._listening("admin")
        self.proxy = f"http://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        if self.fleet:
            start = lambda home, settings: OtherNode(self, binary, policy, home, settings, environment)  # noqa: E731
            self._others = self.fleet.others(self, folder, settings, start)

    def _settings(self, policy: pathlib.Path) -> dict:
        """The configuration; JSON is YAML. `admin.crawl.test` is in scope and leads to the proxy's own admin port."""
        hosts = {**HOSTS, "admin.crawl.test": "127.0.0.1"}
        return {
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "policy": {"path": str(policy)},
            "tls": {"intercept": False},
            "egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": hosts},
            "logs": {"decisions": str(self._decisions), "on_full": "wait"},
        }

    def _read(self) -> None:
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    def _listening(self, what: str) -> int:
        pattern = re.compile(rf"{what} listening on 127\.0\.0\.1:(\d+)")
        found = wait_for(
            lambda: (
                next((m for line in list(self.lines) if (m := pattern.search(line))), None)
                or self._process.poll() is not None
            ),
            20,
        )
        if not isinstance(found, re.Match):
            self._process.kill()
            raise RuntimeError(f"crawlgate did not say where its {what} listens:\n" + "\n".join(self.lines[-40:]))
        return int(found[1])

    def metrics_text(self) -> bytes:
        return get(f"{self.admin}/metrics")[1]

    def own_samples(self) -> Samples:
        """The metrics of this process."""
        return parse(self.metrics_text().decode())

    def samples(self) -> Samples:
        """The metrics, summed over the nodes of a fleet."""
        sums: Samples = {}
        for node in (self, *self._others):
            for series, value in node.own_samples().items():
                sums[series] = sums.get(series, 0.0) + value
        return sums

    @property
    def decisions(self) -> pathlib.Path:
        """The decision log: of a fleet, what its nodes have written until now."""
        if not self._others:
            return self._decisions
        logs = [node.decisions for node in self._others] + [self._decisions]
        merged = self._decisions.with_name("decisions-of-all.jsonl")
        merged.write_text("".join(log.read_text(encoding="utf-8") for log in logs if log.exists()), encoding="utf-8")
        return merged

    @property
    def targets(self) -> list[str]:
        """The addresses that Prometheus scrapes."""
        return [f"127.0.0.1:{node.admin_port}" for node in (self, *self._others)]

    def memory(self) -> int:
        """Resident memory, in bytes."""
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    @property
    def pid(self) -> int:
        return self._process.pid

    def hang_up(self) -> None:
        """SIGHUP: the policy is to be read again."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> int | None:
        """SIGTERM; the exit code, None if it had to be killed."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None
        finally:
            # They need not give their hosts away, as this one did.
            for node in self._others:
                node._process.kill()
                node._process.wait()


class OtherNode(Gate):
    """A node of the fleet of a gate, whose lines are the gate's, too."""

    fleet = None

    def __init__(
        self,
        gate: Gate,
        binary: pathlib.Path,
        policy: pathlib.Path,
        folder: pathlib.Path,
        settings: dict,
        environment: dict[str, str] | None,
    ) -> None:
        self._gate = gate
        super().__init__(binary, policy, folder, settings, environment)

    def _read(self) -> None:
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))
            self._gate.lines.append(self.lines[-1])


def parse(text: str) -> Samples:
    """The Prometheus text format, as far as crawlgate writes it."""
    samples: Samples = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        name, labels, value = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line).groups()
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
        samples[name, frozenset(pairs)] = float(value)
    return samples


def by_labels(samples: Samples, name: str, labels: tuple[str, ...], **where: str) -> collections.Counter:
    """Sums of a family by some of its labels, without the zeros."""
    sums: collections.Counter = collections.Counter()
    for (family, pairs), value in samples.items():
        found = dict(pairs)
        if family == name and all(found.get(label) == wanted for label, wanted in where.items()):
            key = tuple(found.get(label, "") for label in labels)
            sums[key if len(labels) > 1 else key[0]] += int(value)
    return +sums


class Prometheus:
    """Debian's Prometheus with a data directory of its own, scraping its targets each second, and evaluating `rules`."""

    def __init__(
        self, target: str, folder: pathlib.Path, more: Sequence[str] = (), rules: pathlib.Path | None = None
    ) -> None:
        folder.mkdir(parents=True)
        config = folder / "prometheus.yml"
        settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [{"job_name": "crawlgate", "static_configs": [{"targets": [target, *more]}]}],
        }
        config.write_text(json.dumps(settings), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._base = f"http://127.0.0.1:{port}"
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def ready(self) -> bool:
        def asked() -> bool:
            try:
                return get(f"{self._base}/-/ready")[0] == 200
            except OSError:
                return False

        return bool(wait_for(asked, 30))

    def query(self, query: str, label: str) -> dict[str, int]:
        """An instant query over the HTTP API; the values by one label, without the zeros."""
        items = self.ask("query", query=query)["data"]["result"]
        found = {item["metric"].get(label, ""): int(float(item["value"][1])) for item in items}
        return {key: value for key, value in found.items() if value}

    def ask(self, path: str, **parameters: str | float) -> dict:
        """The answer of /api/v1/PATH; one that says why if Prometheus did not like the question."""
        return json.loads(get(f"{self._base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")[1])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
