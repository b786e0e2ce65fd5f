"""Other proxies, started for a comparison: squid, and mitmproxy from the search path."""

from __future__ import annotations

import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable

SQUID = """\
http_port 127.0.0.1:{port}
acl all_ports port 1-65535
http_access allow all
pid_filename {folder}/squid.pid
cache_log {folder}/cache.log
access_log none
cache deny all
cache_mem 8 MB
coredump_dir {folder}
pinger_enable off
via on
shutdown_lifetime 1 seconds
request_start_timeout 3 seconds
request_timeout 2 seconds
client_idle_pconn_timeout 3 seconds
read_timeout 2 seconds
write_timeout 3 seconds
connect_timeout 2 seconds
forward_timeout 5 seconds
max_filedescriptors 16000
"""


class Peer:
    """A running proxy on a free port."""

    def __init__(self, command: Callable[[int], list[str]], folder: pathlib.Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        with (folder / "peer.log").open("w") as log:
            self._process = subprocess.Popen(command(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 30
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the peer did not start; see {folder}/peer.log")
            time.sleep(0.1)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def squid(folder: pathlib.Path) -> Peer:
    folder.chmod(0o777)

    def command(port: int) -> list[str]:
        file = folder / "squid.conf"
        file.write_text(SQUID.format(folder=folder, port=port), encoding="utf-8")
        return [shutil.which("squid") or "/usr/sbin/squid", "--foreground", "-f", str(file)]

    return Peer(command, folder)


def mitmproxy(folder: pathlib.Path) -> Peer:
    options = ["--quiet", "--listen-host", "127.0.0.1", "--set", f"confdir={folder}"]
    options += ["--set", "stream_large_bodies=64k", "--set", "connection_strategy=lazy"]
    return Peer(lambda port: ["mitmdump", *options, "--listen-port", str(port)], folder)


START: dict[str, Callable[[pathlib.Path], Peer]] = {"squid": squid, "mitmproxy": mitmproxy}
