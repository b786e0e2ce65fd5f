"""The HTTP/2 tables against a running crawlgate: raw frames of a client, and what must come of each row.

    python3 tests/conformance/h2/run.py [--binary target/release/crawlgate] [--row WORD …] [--list]
                                        [--peer nginx|mitmproxy] [--fleet]

README.md describes the format. With `--fleet` the proxy is one of three nodes, which forwards most requests to the others. `--peer` plays the tables against another implementation instead, to check the tables
themselves: nginx gets the rows that fit any server.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "acceptance"))

import frames  # noqa: E402
import nodes  # noqa: E402
import rows as tables  # noqa: E402
from authority import Authority  # noqa: E402
from raw_origin import Origin  # noqa: E402
from play import Player, secure, tunnel  # noqa: E402
from report import Report  # noqa: E402
from rows import Row  # noqa: E402
from services import Gate, wait_for  # noqa: E402

LEAST = 120
# The proxy's own name, on its listener with TLS.
LISTENER = "proxy.h2.test"
FILES = (("cert", "pem"), ("key", "key"))
LISTENING = re.compile(r"proxy listening on 127\.0\.0\.1:(\d+)")
# The gates that rows may name, by their settings of HTTP/2.
GATES = {"usual": {"prior_knowledge": True}, "off": {"clients": False}}
PLAYERS = 8
# Tables whose rows need a server only, not a proxy.
FOR_ANY_SERVER = ("connection.txt", "streams.txt", "flow.txt", "hpack.txt")
WRONG = "wrong.txt"


class TableGate(Gate):
    """A crawlgate for the tables, with the policy of those of HTTP/1, and a listener with TLS besides."""

    def __init__(
        self, binary: pathlib.Path, folder: pathlib.Path, rows: list[Row], authority: Authority, http2: dict[str, bool]
    ) -> None:
        folder.mkdir()
        self._http2 = http2
        authority.context([LISTENER], "listener")
        self._listener = {name: str(authority.cert.parent / f"listener.{end}") for name, end in FILES}
        self._hosts = {host(row): "127.0.0.1" for row in rows}
        self.ca = folder / "gate-ca.pem"
        self._folder, self._root = folder, authority.cert
        super().__init__(binary, HERE.parent / "gates" / "policy.yaml", folder)
        found = lambda: LISTENING.findall("\n".join(self.lines))  # noqa: E731
        wait_for(lambda: len(found()) > 1, 5)
        # The first listener is the one without TLS. In a fleet, the lines of the other nodes follow.
        self.tls_port = int(found()[1])

    def _settings(self, policy: pathlib.Path) -> dict:
        settings = super()._settings(policy)
        settings["egress"] = {
            "allow_loopback": True,
            "ports": ["1-65535"],
            "connect_ports": ["1-65535"],
            "hosts": self._hosts,
        }
        settings["tls"] = {
            "intercept": True,
            "ca": {"cert": str(self.ca), "key": str(self._folder / "gate-ca.key")},
            "bundle": str(self._folder / "bundle.pem"),
            "extra_roots": [str(self._root)],
        }
        settings["limits"] = {"request_body": "100KiB"}
        settings["timeouts"] = {"head": "2s", "idle": "4s", "response_head": "4s", "body_idle": "2s", "tls": "2s"}
        settings["policy"]["watch"] = False
        settings["listen"] = ["127.0.0.1:0", {"addr": "127.0.0.1:0", "tls": self._listener}]
        settings["h2"] = self._http2
        return settings


def host(row: Row) -> str:
    """The row's own host: one that answers badly is given a rest."""
    return f"{row.name}.h2.test"


class Nginx:
    """Debian's nginx with HTTP/2, for the rows that fit any server."""

    def __init__(self, folder: pathlib.Path, authority: Authority) -> None:
        authority.context(["nginx.test"], "nginx")
        self.port = free_port()
        text = f"""\
daemon off; error_log {folder}/error.log; pid {folder}/pid; worker_processes 1;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream slow {{ server 127.0.0.1:9; }}
  server {{ listen 127.0.0.1:{self.port} ssl http2; ssl_certificate {folder}/site/nginx.pem;
    ssl_certificate_key {folder}/site/nginx.key; client_header_timeout 2s; keepalive_timeout 4s;
    location / {{ root {folder}/www; try_files /ok =404; error_page 405 =200 /ok; }} }} }}
"""
        (folder / "www").mkdir()
        (folder / "www" / "ok").write_text("ok", encoding="ascii")
        folder.chmod(0o755)
        (folder / "nginx.conf").write_text(text, encoding="utf-8")
        self._process = subprocess.Popen(["nginx", "-e", folder / "error.log", "-c", folder / "nginx.conf"])
        _wait_for_port(self.port)

    def stop(self) -> None:
        _end(self._process)


class Mitmproxy:
    """mitmproxy from the search path, another proxy that speaks HTTP/2 to clients: every host leads to loopback."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.port, self.ca = free_port(), folder / "mitmproxy-ca-cert.pem"
        (folder / "addon.py").write_text(
            "def server_connect(data):\n    data.server.address = ('127.0.0.1', data.server.address[1])\n",
            encoding="utf-8",
        )
        command = ["mitmdump", "--quiet", "--listen-host", "127.0.0.1", "--listen-port", str(self.port)]
        command += ["--set", f"confdir={folder}", "--set", "ssl_insecure=true", "--set", "connection_strategy=lazy"]
        self._process = subprocess.Popen([*command, "-s", folder / "addon.py"])
        _wait_for_port(self.port)

    def stop(self) -> None:
        _end(self._process)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait_for_port(port: int) -> None:
    def connected() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(connected, 20)


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait(10)


class Runner:
    """Plays rows against one proxy or server."""

    def __init__(
        self, targets: dict[str, TableGate | Nginx | Mitmproxy], authority: Authority, site: ssl.SSLContext
    ) -> None:
        self._targets, self._authority, self._site = targets, authority, site
        # The rows that got an answer which is marked as a deviation from the RFC.
        self.deviations: set[str] = set()

    def play(self, row: Row) -> list[str]:
        """Problems with a row."""
        try:
            return self._play(row)
        except (OSError, KeyError, ValueError) as error:
            return [f"the row broke: {error!r}"]

    def _play(self, row: Row) -> list[str]:
        target = self._targets[row.settings.get("gate", "usual")]
        if isinstance(target, Nginx):
            connection = socket.create_connection(("127.0.0.1", target.port), 10)
            trusted = ssl.create_default_context(cafile=str(self._authority.cert))
            return self._over_tls(row, connection, None, f"nginx.test:{target.port}", ("nginx.test", trusted))
        manner = row.settings.get("origin", "").split(" ")[0]
        way = row.settings.get("way", "inside")
        origin = Origin(self._site if way == "inside" else None, tables.text(row.answer, {}), manner)
        try:
            return self._by(way, row, target, origin)
        finally:
            origin.stop()

    def _by(self, way: str, row: Row, target: TableGate | Mitmproxy, origin: Origin) -> list[str]:
        """Plays a row inside a tunnel, on the listener with TLS, or on the one without."""
        name = f"{host(row)}:{origin.port}"
        if way == "inside":
            trusted = ssl.create_default_context(cafile=str(target.ca))
            return self._over_tls(row, tunnel(target.port, name), origin, name, (host(row), trusted))
        port = target.port if way == "plain" else target.tls_port
        connection = socket.create_connection(("127.0.0.1", port), 10)
        if way == "tls":
            trusted = ssl.create_default_context(cafile=str(self._authority.cert))
            return self._over_tls(row, connection, origin, name, (LISTENER, trusted))
        with connection:
            return self._played(row, Player(row, frames.Wire(connection), origin, name, "http"))

    def _played(self, row: Row, player: Player) -> list[str]:
        problems = player.play()
        if player.deviates:
            self.deviations.add(row.name)
        return problems

    def _over_tls(
        self,
        row: Row,
        connection: socket.socket,
        origin: Origin | None,
        name: str,
        server: tuple[str, ssl.SSLContext],
    ) -> list[str]:
        server_name, context = server
        words, wanted = row.alpn
        if words:
            context.set_alpn_protocols(words)
        with secure(connection, server_name, context) as connected:
            chosen = connected.selected_alpn_protocol()
            if chosen != wanted:
                return [f"ALPN chose {chosen}, not {wanted}"]
            scheme = "http" if row.settings.get("way") else "https"
            return self._played(row, Player(row, frames.Wire(connected), origin, name, scheme))


def play_all(runner: Runner, rows: list[Row]) -> list[tuple[Row, list[str]]]:
    with concurrent.futures.ThreadPoolExecutor(PLAYERS) as pool:
        return list(zip(rows, pool.map(runner.play, rows), strict=True))


def check(report: Report, runner: Runner, rows: list[Row]) -> None:
    """Plays rows; those that fail are played once more, alone, since other work on the machine delays answers."""
    for row, problems in play_all(runner, rows):
        report.check(f"{row.name} ({_section(row)})", problems and runner.play(row))


def check_wrong(report: Report, runner: Runner, rows: list[Row]) -> None:
    """Rows that expect something wrong, which the runner must report as the last line of their comment says. Those that are
    not reported are played once more, alone."""
    for row, problems in play_all(runner, rows):
        wanted = row.about.rpartition("reports: ")[2].strip()
        if not _is_reported(wanted, problems):
            problems = runner.play(row)
        missing = [] if _is_reported(wanted, problems) else [f"{wanted!r} is not in {problems}"]
        report.check(f"reported: {row.name}", missing)


def _is_reported(wanted: str, problems: list[str]) -> bool:
    return any(wanted in problem for problem in problems)


def _section(row: Row) -> str:
    return tables.SECTION.search(row.about)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[2] / "target" / "release" / "crawlgate")
    parser.add_argument("--row", nargs="+", metavar="WORD", help="rows whose names contain one of these words")
    parser.add_argument("--list", action="store_true", help="print names and sections")
    parser.add_argument("--peer", choices=["nginx", "mitmproxy"])
    parser.add_argument("--fleet", action="store_true", help="the proxy is a node of a fleet of three; needs PostgreSQL")
    arguments = parser.parse_args()
    rows = tables.load(HERE)
    report = Report()
    if arguments.fleet and not nodes.is_installed():
        report.missing("the proxy is a node of a fleet", "postgresql")
        return report.close()
    if len(rows) < LEAST:
        report.check("the tables are whole", [f"{len(rows)} rows, at least {LEAST} are needed"])
    if arguments.row:
        rows = [row for row in rows if any(word in row.name for word in arguments.row)]
    if arguments.peer:
        rows = [row for row in rows if "gate" not in row.settings and "way" not in row.settings]
    if arguments.peer == "nginx":
        rows = [row for row in rows if row.place.startswith(FOR_ANY_SERVER) and not row.needs_origin]
    if arguments.list:
        print("\n".join(f"{row.name:50} {_section(row)}" for row in rows))
        return 0
    with tempfile.TemporaryDirectory(prefix="crawlgate-h2-") as name:
        _run(report, arguments, rows, pathlib.Path(name))
    return report.close()


def _run(report: Report, arguments: argparse.Namespace, rows: list[Row], folder: pathlib.Path) -> None:
    authority = Authority(folder / "site")
    right = [row for row in rows if not row.place.startswith(WRONG)]
    wrong = [row for row in rows if row.place.startswith(WRONG)]
    site = authority.context(["*.h2.test"])
    if arguments.peer:
        peer = Nginx(folder, authority) if arguments.peer == "nginx" else Mitmproxy(folder)
        try:
            check(report, Runner({"usual": peer}, authority, site), right)
        finally:
            peer.stop()
        return
    binary, gates = arguments.binary.resolve(), {}
    if arguments.fleet:
        Gate.fleet = nodes.Fleet(binary)
    try:
        for name, http2 in GATES.items():
            gates[name] = TableGate(binary, folder / name, rows, authority, http2)
        runner = Runner(gates, authority, site)
        check(report, runner, right)
        print(f"{len(runner.deviations)} rows got another answer than their RFC's, as marked in them")
        check_wrong(report, runner, wrong)
        for gate in gates.values():
            nothing_is_left(report, gate)
    finally:
        codes = {name: gate.stop() for name, gate in gates.items()}
        if Gate.fleet:
            Gate.fleet.stop()
    report.equal("SIGTERM ends them, with exit code 0", codes, dict.fromkeys(GATES, 0))
    panics = [line for gate in gates.values() for line in gate.lines if "panicked" in line]
    report.check("their standard error has no panic", panics)


def nothing_is_left(report: Report, gate: Gate) -> None:
    """No request, lease or tunnel outlives its connection."""
    names = ("crawlgate_held_requests", "crawlgate_leases", "crawlgate_tunnels")
    held = lambda: {name: count for name in names if (count := gate.samples()[name, frozenset()])}  # noqa: E731
    wait_for(lambda: not held(), 15)
    report.equal("nothing is left of the rows", held(), {})


if __name__ == "__main__":
    sys.exit(main())
