"""Real servers of HTTP/2 as origins: nginx that ends its connections by GOAWAY, Caddy, and nghttpd.

curl requests the files of each, twenty at a time, over HTTP/2 inside intercepted TLS: each arrives whole, and the decision
log says that the origin was asked over HTTP/2.
"""

from __future__ import annotations

import json
import pathlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable

from authority import Authority
from clients import clean_environment
from report import Report
from services import Gate, wait_for

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hostile"))

from servers import Server, free_port  # noqa: E402

FILES, AT_ONCE = 300, 20
# A connection of nginx ends after this number of requests, so several end while others are under way.
REQUESTS = 25
HOST = "files.http2.test"

NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; default_type text/html; keepalive_requests {requests};
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl http2; root {root};
    ssl_certificate {cert}; ssl_certificate_key {key};
  }}
}}
"""

CADDY = """
{{
  admin off
  auto_https off
  storage file_system {folder}/storage
}}
https://{host}:{port} {{
  bind 127.0.0.1
  tls {cert} {key}
  root * {root}
  file_server
}}
"""


def _nginx(folder: pathlib.Path, port: int, root: pathlib.Path, cert: pathlib.Path, key: pathlib.Path) -> list[str]:
    file = folder / "nginx.conf"
    values = {"folder": folder, "port": port, "root": root, "cert": cert, "key": key, "requests": REQUESTS}
    file.write_text(NGINX.format(**values), encoding="utf-8")
    return ["nginx", "-c", str(file), "-e", str(folder / "error.log")]


def _caddy(folder: pathlib.Path, port: int, root: pathlib.Path, cert: pathlib.Path, key: pathlib.Path) -> list[str]:
    file = folder / "Caddyfile"
    values = {"folder": folder, "port": port, "root": root, "cert": cert, "key": key, "host": HOST}
    file.write_text(CADDY.format(**values), encoding="utf-8")
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


def _nghttpd(_: pathlib.Path, port: int, root: pathlib.Path, cert: pathlib.Path, key: pathlib.Path) -> list[str]:
    return ["nghttpd", "-a", "127.0.0.1", "-d", str(root), str(port), str(key), str(cert)]


SERVERS: dict[str, Callable[..., list[str]]] = {"nginx": _nginx, "caddy": _caddy, "nghttpd": _nghttpd}


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path) -> None:
    """All servers, one after the other, through one proxy each."""
    for name, command in SERVERS.items():
        report.section(f"{name} as an origin of HTTP/2")
        for program in (name, "curl", "openssl"):
            if not shutil.which(program):
                report.missing(f"{name} over HTTP/2", program)
                break
        else:
            place = folder / name
            (place / "root").mkdir(parents=True)
            _crawl(report, binary, place, name, command)


def _crawl(report: Report, binary: pathlib.Path, folder: pathlib.Path, name: str, command: Callable) -> None:
    root, files = folder / "root", _files()
    for file, content in files.items():
        (root / file).write_bytes(content)
    authority = Authority(folder / "site")
    cert, key = authority.files([HOST])
    port = free_port()
    server = Server(name, command(folder, port, root, cert, key), port)
    gate = _gate(binary, folder, authority.cert)
    try:
        got = _fetch(gate, folder, [f"https://{HOST}:{port}/{file}" for file in files])
        wrong = [f"{file}: {len(got.get(file, b''))} bytes" for file, body in files.items() if got.get(file) != body]
        report.check(f"{name}: each file arrived byte for byte", wrong, len(files))
        wait_for(lambda: len(_decisions(gate)) >= FILES, 5)
        lines = [line for line in _decisions(gate) if line["method"] == "GET"]
        other = [f"{line['url']}: {line.get('origin_http')}" for line in lines if line.get("origin_http") != "2"]
        report.check(f"{name}: each was asked for over HTTP/2", other, len(lines))
        report.equal(f"{name}: each was asked for once", len(lines), FILES)
    finally:
        code = gate.stop()
        server.stop()
    report.equal(f"{name}: SIGTERM ends crawlgate in time, with exit code 0", code, 0)


def _files() -> dict[str, bytes]:
    """Contents of 1 to 60,000 bytes, by name."""
    chance = random.Random(25)
    return {f"{number}.html": chance.randbytes(1 + number * number * 60_000 // FILES**2) for number in range(FILES)}


def _gate(binary: pathlib.Path, folder: pathlib.Path, root: pathlib.Path) -> Gate:
    politeness = {"delay": "0s", "concurrency": AT_ONCE}
    policy = {"policy": 1, "name": "servers", "options": {"disposition": "allow", "record": "full", "politeness": politeness}}
    (folder / "policy.yaml").write_text(json.dumps(policy), encoding="utf-8")
    ca = {"cert": str(folder / "ca.pem"), "key": str(folder / "ca.key")}
    settings = {
        "tls": {"intercept": True, "ca": ca, "extra_roots": [str(root)]},
        "egress": {
            "allow_loopback": True, "ports": ["1-65535"], "connect_ports": ["1-65535"], "tls_ports": ["1-65535"],
            "hosts": {HOST: "127.0.0.1"},
        },
    }  # fmt: skip
    return Gate(binary, folder / "policy.yaml", folder, settings)


def _fetch(gate: Gate, folder: pathlib.Path, urls: list[str]) -> dict[str, bytes]:
    """The bodies that curl got with status 200, by file name."""
    out = folder / "got"
    out.mkdir()
    common = [
        "silent", "fail", "globoff", "max-time = 60", "http2", f'proxy = "{gate.proxy}"', 'noproxy = ""',
        f'cacert = "{folder / "ca.pem"}"',
    ]  # fmt: skip
    blocks = ["\n".join([*common, f'url = "{url}"', f'output = "{out / url.rsplit("/", 1)[1]}"']) for url in urls]
    config = folder / "curl.conf"
    config.write_text("\nnext\n".join(blocks) + "\n", encoding="utf-8")
    command = ["curl", "-q", "--parallel", "--parallel-max", str(AT_ONCE), "-K", config]
    subprocess.run(command, env=clean_environment(), timeout=180, capture_output=True)
    return {file.name: file.read_bytes() for file in out.iterdir()}


def _decisions(gate: Gate) -> list[dict]:
    if not gate.decisions.exists():
        return []
    return [json.loads(line) for line in gate.decisions.read_text(encoding="utf-8").split("\n")[:-1]]
