"""The site of `lost.py`: sixty pages on every host, and the trouble that each kind of host makes.

A host is named `CLIENT.TROUBLE.test`. Its start page links to all others.
"""

from __future__ import annotations

import collections
import http.server
import threading
import time

PAGES = 60
# The page that always answers 503 on hosts of this trouble.
BROKEN = "/p/7.html"
# The seconds for which robots.txt fails, from the first request for it.
ROBOTS_FAIL = 2.0

PATHS = ["/", *(f"/p/{number}.html" for number in range(1, PAGES))]


class Site:
    """A server on a free port of the loopback, with as many hosts as are asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: collections.Counter = collections.Counter()
        self._first_robots: dict[str, float] = {}
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                host = self.headers.get("Host", "").partition(":")[0]
                status, kind, body = site.answer(host, self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_: object) -> None:
                """Connections that the proxy closes are no errors."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, host: str, path: str) -> tuple[int, str, bytes]:
        """Status, content type and body."""
        trouble = host.split(".")[1] if host.count(".") == 2 else ""
        if path == "/robots.txt":
            return self._robots(host, trouble)
        if path not in PATHS:
            return 404, "text/plain", b"no such page\n"
        if trouble == "page" and path == BROKEN:
            return 503, "text/plain", b"this page is broken\n"
        with self._lock:
            self._served[host] += 1
        return 200, "text/html; charset=utf-8", _page(path)

    def _robots(self, host: str, trouble: str) -> tuple[int, str, bytes]:
        with self._lock:
            first = self._first_robots.setdefault(host, time.monotonic())
        if trouble == "robots" and time.monotonic() - first < ROBOTS_FAIL:
            return 500, "text/plain", b"restarting\n"
        return 200, "text/plain", b"User-agent: *\nAllow: /\n"

    def served(self, host: str) -> int:
        """The number of pages that the host has answered with 200."""
        with self._lock:
            return self._served[host]

    def url(self, host: str, path: str) -> str:
        return f"http://{host}:{self.port}{path}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _page(path: str) -> bytes:
    links = "".join(f'<a href="{other}">page {other}</a>\n' for other in PATHS if other != path) if path == "/" else '<a href="/">start</a>\n'
    return f"<!doctype html><html><head><title>Page {path}</title></head><body><h1>{path}</h1>\n{links}</body></html>\n".encode()
