"""Other proxies, started for a comparison: squid, and mitmproxy from the search path."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable

from servers import Server, free_port

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


def squid(folder: pathlib.Path) -> Server:
    folder.chmod(0o777)
    port, file = free_port(), folder / "squid.conf"
    file.write_text(SQUID.format(folder=folder, port=port), encoding="utf-8")
    program = shutil.which("squid") or "/usr/sbin/squid"
    return Server("squid", [program, "--foreground", "-f", str(file)], port, seconds=30)


def mitmproxy(folder: pathlib.Path) -> Server:
    port = free_port()
    command = ["mitmdump", "--quiet", "--listen-host", "127.0.0.1", "--listen-port", str(port)]
    command += ["--set", f"confdir={folder}", "--set", "stream_large_bodies=64k", "--set", "connection_strategy=lazy"]
    return Server("mitmproxy", command, port, seconds=30)


START: dict[str, Callable[[pathlib.Path], Server]] = {"squid": squid, "mitmproxy": mitmproxy}
