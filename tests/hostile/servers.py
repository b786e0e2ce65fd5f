"""Origins that read URLs in their own ways: nginx, Apache, Jetty, Python, and an application that decodes twice."""

from __future__ import annotations

import functools
import http.server
import pathlib
import posixpath
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse

MARK = "FORBIDDEN PAGE"
FINE = "a page that anybody may fetch\n"
# The values of query parameters that lead to a forbidden page.
SECRET_PARAMETERS = {"sid": "1", "view": "print"}

NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; default_type text/html;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""

APACHE = """
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/apache.pid
ErrorLog {folder}/error.log
Mutex file:{folder} default
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
DocumentRoot {root}
AllowEncodedSlashes {encoded_slashes}
<Directory {root}>
  Require all granted
</Directory>
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server on a port of this machine: a program of its own, or without `command` one in this process."""

    def __init__(self, name: str, command: list[str] | None, port: int, seconds: float = 10) -> None:
        self.name, self.port, self._process = name, port, None
        if command is not None:
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        end = time.monotonic() + seconds
        while not self._listens():
            if time.monotonic() > end or (self._process and self._process.poll() is not None):
                raise RuntimeError(f"{name} did not start: {command}")
            time.sleep(0.05)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def stop(self) -> None:
        if not self._process:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def nginx(folder: pathlib.Path, root: pathlib.Path) -> Server:
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, port=port, root=root), encoding="utf-8")
    return Server("nginx", ["nginx", "-c", str(file), "-e", str(folder / "error.log")], port)


def apache(folder: pathlib.Path, root: pathlib.Path) -> Server:
    port = free_port()
    file = folder / "apache.conf"
    text = APACHE.format(folder=folder, port=port, root=root, encoded_slashes="On")
    file.write_text(text, encoding="utf-8")
    return Server("Apache", ["apache2", "-X", "-f", str(file)], port)


def jetty(folder: pathlib.Path, root: pathlib.Path) -> Server:
    port = free_port()
    base = folder / "jetty"
    (base / "webapps").mkdir(parents=True)
    (base / "webapps" / "ROOT").symlink_to(root)
    command = ["java", "-Xmx64m", "-jar", "/usr/share/jetty9/start.jar", "jetty.home=/usr/share/jetty9"]
    command += [f"jetty.base={base}", "--module=http,deploy", f"jetty.http.port={port}", "jetty.http.host=127.0.0.1"]
    return Server("Jetty", command, port, seconds=60)


class _Application(http.server.BaseHTTPRequestHandler):
    """Serves files by their path, decoded as often as told, and forbidden pages by parameters."""

    protocol_version = "HTTP/1.1"

    def __init__(self, root: pathlib.Path, decodings: int, *arguments) -> None:
        self._root, self._decodings = root, decodings
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        for _ in range(self._decodings):
            path = urllib.parse.unquote(path)
        for _ in range(self._decodings - 1):
            query = urllib.parse.unquote(query)
        parameters = dict(urllib.parse.parse_qsl(query))
        path = posixpath.normpath("/" + path.replace("\\", "/").partition("\0")[0])
        file = self._root / path.lstrip("/")
        text = FINE
        if any(parameters.get(name) == value for name, value in SECRET_PARAMETERS.items()):
            text = MARK
        elif file.is_file():
            text = file.read_text(encoding="utf-8")
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


def application(name: str, root: pathlib.Path, decodings: int) -> Server:
    handler = functools.partial(_Application, root, decodings)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return Server(name, None, server.server_port)


def missing() -> list[str]:
    """The programs that are needed and not installed."""
    programs = [name for name in ("nginx", "apache2", "java") if shutil.which(name) is None]
    if not pathlib.Path("/usr/share/jetty9/start.jar").exists():
        programs.append("jetty9")
    return programs
