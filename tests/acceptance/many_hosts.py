"""A client that visits many hosts, one TLS handshake each, and verifies the certificate of each host.

    python3 many_hosts.py PROXY_PORT CA_FILE SITE_PORT FIRST COUNT

It asks `h<N>.many.test` for a page and expects to be refused; it writes one JSON object.
"""

import concurrent.futures
import json
import socket
import ssl
import sys
import time

PROXY_PORT, CA_FILE, SITE_PORT, FIRST, COUNT = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
THREADS = 4


def ask(context: ssl.SSLContext, number: int) -> str:
    """The problem with one host, if any."""
    host = f"h{number}.many.test"
    try:
        with socket.create_connection(("127.0.0.1", int(PROXY_PORT)), timeout=30) as connection:
            # Else each handshake waits for a delayed acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(f"CONNECT {host}:{SITE_PORT} HTTP/1.1\r\nHost: {host}:{SITE_PORT}\r\n\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                part = connection.recv(4096)
                if not part:
                    return f"{host}: CONNECT got {head!r}"
                head += part
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                return f"{host}: CONNECT got {head!r}"
            with context.wrap_socket(connection, server_hostname=host) as secure:
                secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}:{SITE_PORT}\r\n\r\n".encode())
                answer = secure.recv(4096)
                return "" if answer.startswith(b"HTTP/1.1 451 ") else f"{host}: {answer!r}"
    except OSError as error:
        return f"{host}: {error!r}"


def main() -> None:
    context = ssl.create_default_context(cafile=CA_FILE)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        wrong = [told for told in pool.map(lambda number: ask(context, number), range(FIRST, FIRST + COUNT)) if told]
    print(json.dumps({"seconds": time.monotonic() - began, "wrong": wrong}))


main()
