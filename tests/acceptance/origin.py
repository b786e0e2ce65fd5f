"""The test site's server: one port for all hosts, on loopback, with a log of every request line that arrived.

It answers by the Host header from `pages.py`. It judges nothing: whatever is asked for is served, so its log
shows what a proxy let through. `python3 origin.py [LOG]` serves until it is interrupted.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

import origin_http2
from pages import HOSTS, Page, Site

CHUNK = 16 * 1024
# Linux: the kernel timestamps received bytes (socket(7)).
SO_TIMESTAMPNS = 35


class Log:
    """Every request as it came: in memory, and as JSON lines in a file if one is given."""

    def __init__(self, path: pathlib.Path | None) -> None:
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8") if path else None
        self.entries: list[dict] = []

    def add(self, entry: dict) -> None:
        with self._lock:
            self.entries.append(entry)
            if self._file:
                self._file.write(json.dumps(entry) + "\n")
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None


class Origin:
    """The site, serving from the moment it is made, over TLS if there is a context; `port` is chosen by the system.

    A client that selects `h2` in its handshake, if the context offers it, gets HTTP/2.
    """

    def __init__(self, log_path: pathlib.Path | None = None, context: ssl.SSLContext | None = None) -> None:
        self.log = Log(log_path)
        self._servers = [_Server(("127.0.0.1", 0), _Connection)]
        self.port: int = self._servers[0].server_address[1]
        self.site = Site(self.port, "https" if context else "http")
        # The second address listens too, so that a request that should not come is seen and not just lost.
        self._servers.append(_Server(("127.0.0.2", self.port), _Connection))
        for server in self._servers:
            server.origin = self
            server.context = context
            # Accepted connections inherit it.
            server.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self.log.close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256
    origin: Origin
    context: ssl.SSLContext | None

    def finish_request(self, request, client_address) -> None:
        """The handshake runs in the thread of the connection, so that a silent client blocks no other."""
        if not self.context:
            super().finish_request(request, client_address)
            return
        request.settimeout(60)
        with self.context.wrap_socket(request, server_side=True) as secure:
            if secure.selected_alpn_protocol() == "h2":
                secure.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                origin_http2.Pages(secure, self._find).serve()
                return
            super().finish_request(secure, client_address)
            # A body that ends with its connection is whole only if TLS says so.
            secure.settimeout(2)
            with contextlib.suppress(OSError, ValueError):
                secure.unwrap()

    def _find(self, method: str, path: str, headers: list[list[str]], size: int) -> Page:
        """The page of a request over HTTP/2, which is logged."""
        return self.find(f"{method} {path} HTTP/2", headers, size, time.time())

    def find(self, line: str, headers: list[list[str]], size: int, arrived: float) -> Page:
        """The page of a request, which is logged."""
        hosts = [value for name, value in headers if name.lower() == "host"]
        self.origin.log.add(
            {
                "line": line,
                "hosts": hosts,
                "headers": headers,
                "body": size,
                "address": self.server_address[0],
                "time": arrived,
            }
        )
        host = (hosts or [""])[0].rsplit(":", 1)[0].lower()
        return self.origin.site.find(host, (line.split(" ") + [""])[1])

    def handle_error(self, request, client_address) -> None:
        """A client that left is no news; anything else is a fault of the site."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Connection(socketserver.StreamRequestHandler):
    timeout = 60
    wbufsize = CHUNK
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle(self) -> None:
        while self._serve_one():
            self.wfile.flush()

    def _arrival(self) -> float:
        """When the next request's first byte came, by the kernel's clock: this thread may be late to see it.

        Inside TLS there is no such byte, and the time is this thread's.
        """
        if self.server.context:
            return time.time()
        try:
            _, ancillary, _, _ = self.connection.recvmsg(1, 256, socket.MSG_PEEK)
        except OSError:
            return time.time()
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(data) == 16:
                seconds, nanoseconds = struct.unpack("qq", data)
                return seconds + nanoseconds / 1e9
        return time.time()

    def _serve_one(self) -> bool:
        """Answers one request; whether another may follow on the connection."""
        arrived = self._arrival()
        line = self.rfile.readline(65_536)
        if not line.strip():
            return False
        headers = self._read_headers()
        body = self._read_body(headers)
        line_text = line.decode("latin-1").rstrip("\r\n")
        page = self.server.find(line_text, headers, len(body), arrived)
        method = line_text.split(" ")[0]
        return self._answer(method, page) and "close" not in self._connection_words(headers)

    def _read_headers(self) -> list[list[str]]:
        headers = []
        while (line := self.rfile.readline(65_536)) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers.append([name, value.strip()])
        return headers

    def _read_body(self, headers: list[list[str]]) -> bytes:
        fields = {name.lower(): value for name, value in headers}
        if "chunked" in fields.get("transfer-encoding", "").lower():
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b"\n", b""):
                pass
            return b"".join(parts)
        return self.rfile.read(int(fields.get("content-length", "0")))

    @staticmethod
    def _connection_words(headers: list[list[str]]) -> str:
        return " ".join(value.lower() for name, value in headers if name.lower() == "connection")

    def _answer(self, method: str, page: Page) -> bool:
        """Writes the page in its framing; whether the connection stays open."""
        if page.framing == "garbage":
            self.wfile.write(b"\x00\x01 this is not HTTP \xff\r\n\r\n")
            return False
        version = "1.0" if page.framing == "old" else "1.1"
        head = [f"HTTP/{version} {page.status} Status {page.status}"]
        head += [f"{name}: {value}" for name, value in page.headers]
        head += self._framing_fields(page)
        self.wfile.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        if method != "HEAD" and page.status not in (204, 304):
            self._write_body(page)
        return page.framing in ("length", "chunked", "trailer", "slow")

    @staticmethod
    def _framing_fields(page: Page) -> list[str]:
        if page.status in (204, 304):
            return []
        return {
            "length": [f"Content-Length: {len(page.body)}"],
            "short": [f"Content-Length: {len(page.body) + 1000}"],
            "chunked": ["Transfer-Encoding: chunked"],
            "slow": ["Transfer-Encoding: chunked"],
            "trailer": ["Transfer-Encoding: chunked", "Trailer: X-End"],
            "close": ["Connection: close"],
            "old": [],
        }[page.framing]

    def _write_body(self, page: Page) -> None:
        if page.framing not in ("chunked", "trailer", "slow"):
            self.wfile.write(page.body)
            return
        step = max(1, len(page.body) // 4) if page.framing == "slow" else CHUNK
        for at in range(0, len(page.body), step):
            part = page.body[at : at + step]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            if page.framing == "slow":
                self.wfile.flush()
                time.sleep(0.05)
        self.wfile.write(b"0\r\nX-End: yes\r\n\r\n" if page.framing == "trailer" else b"0\r\n\r\n")


def main() -> None:
    origin = Origin(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    print(f"site listening on 127.0.0.1:{origin.port}, {len(origin.site.pages)} pages on {len(HOSTS)} hosts")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        origin.stop()


if __name__ == "__main__":
    main()
