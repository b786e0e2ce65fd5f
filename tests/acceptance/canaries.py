"""Canaries: secrets that are sent through crawlgate, and then searched for in all of its output.

The secrets are the authority's key, passwords, cookies, and a body. What is told are the answers to clients, the admin
listener, commands, the decision log, and standard error, on which crawlgate is made to tell as much as it can.
"""

from __future__ import annotations

import base64
import pathlib
import socket
import ssl
import subprocess

import crawlers
from clients import clean_environment
from report import Report
from services import Gate, get, wait_for
from tunnels import Site

GOOD = "good.edge.test"
BAD = "expired.edge.test"
# In a URL's path, where the decision log shows it: a control that the search works.
SHOWN = "canary-in-a-path-7d1e"
SECRETS = {
    "Authorization": "canary-authorization-51c3",
    "Proxy-Authorization": "canary-proxy-authorization-82aa",
    "Cookie": "canary-cookie-9be0",
    "userinfo": "canary-userinfo-44f1",
    "body": "canary-body-c6d2",
}
# Commands that read the configuration, and the authority.
COMMANDS = (("ca", "show"), ("ca", "export"), ("ca", "init"), ("env", "--shell", "sh"))
ADMIN = ("/metrics", "/healthz", "/readyz", "/ca.pem", "/api/v1/policy", "/api/v1/", "/", "/ca.key", "/nowhere")


class Canaries:
    """The whole test, with its own proxy."""

    def __init__(self, report: Report, binary: pathlib.Path, gate: Gate, site: Site, bad_port: int) -> None:
        self._report = report
        self._binary = binary
        self._gate = gate
        self._site = site
        self._bad_port = bad_port
        self._context = ssl.create_default_context(cafile=str(gate.ca))
        self._answers: list[bytes] = []

    def run(self) -> None:
        words = self._words()
        self._site.seen.clear()
        self._send()
        self._arrived()
        texts = self._told()
        for place, text in texts.items():
            self._report.check(f"no secret is told: {place}", leaks(text, words), len(text))
        self._planted(texts, words)

    def _words(self) -> dict[str, list[str]]:
        """Every way in which a secret could be written down."""
        words = {name: _spellings(secret) for name, secret in SECRETS.items()}
        words["password"] = _spellings(crawlers.password("curl"))
        lines = self._gate.key.read_text(encoding="ascii").splitlines()
        body = [line for line in lines if line and not line.startswith("-")]
        key = base64.b64decode("".join(body))
        # All PKCS #8 keys of P-256 begin alike; the rest is individual.
        own = key[36:68]
        words["key"] = [*body[1:], base64.b64encode(key).decode()[50:90], own.hex(), repr(list(own))[1:-1]]
        self._report.equal("the key is one of P-256, with a body to search for", (len(own), len(body) > 1), (32, True))
        return words

    # The requests.

    def _send(self) -> None:
        """Requests of which each is answered differently, each with all the secrets that it can carry."""
        good, bad = f"{GOOD}:{self._site.port}", f"{BAD}:{self._bad_port}"
        known, unknown = _basic("curl", crawlers.password("curl")), _basic("curl", SECRETS["Proxy-Authorization"])
        for line, host in (
            (f"POST /{SHOWN} HTTP/1.1", good),
            (f"POST /closed/{SHOWN} HTTP/1.1", good),
            (f"POST https://me:{SECRETS['userinfo']}@{good}/page HTTP/1.1", good),
            (f"POST /page HTTP/9.9 {SECRETS['Cookie']}", good),
            (f"CONNECT {good} HTTP/1.1", good),
            ("POST /page HTTP/1.1", "other.edge.test"),
            ("POST /page HTTP/1.1", bad),
        ):
            self._inside(bad if host == bad else good, self._request(line, host, unknown), known)
        for line in (
            f"POST http://{good}/closed/{SHOWN} HTTP/1.1",
            f"POST http://me:{SECRETS['userinfo']}@{good}/page HTTP/1.1",
            f"POST https://{bad}/page HTTP/1.1",
            f"POST ftp://me:{SECRETS['userinfo']}@{good}/page HTTP/1.1",
            f"CONNECT me:{SECRETS['userinfo']}@{good} HTTP/1.1",
        ):
            for credentials in (known, unknown):
                self._plain(self._request(line, good, credentials))
        self._inside(good, b"", unknown)

    def _request(self, line: str, host: str, credentials: str) -> bytes:
        body = SECRETS["body"]
        fields = [
            f"Host: {host}",
            f"Authorization: Bearer {SECRETS['Authorization']}",
            f"Proxy-Authorization: {credentials}",
            f"Cookie: session={SECRETS['Cookie']}",
            "Connection: close",
            f"Content-Length: {len(body)}",
        ]
        return "\r\n".join([line, *fields, "", body]).encode()

    def _plain(self, request: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self._gate.port), timeout=10) as connection:
            connection.sendall(request)
            self._answers.append(_rest(connection))

    def _inside(self, host: str, request: bytes, credentials: str) -> None:
        with socket.create_connection(("127.0.0.1", self._gate.port), timeout=10) as connection:
            head = f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: {credentials}\r\n\r\n"
            connection.sendall(head.encode())
            answer = connection.recv(4096)
            self._answers.append(answer)
            if not answer.startswith(b"HTTP/1.1 200 "):
                return
            with self._context.wrap_socket(connection, server_hostname=host.rsplit(":", 1)[0]) as secure:
                secure.sendall(request)
                self._answers.append(_rest(secure))

    def _arrived(self) -> None:
        """Without this, the search would prove nothing: they were sent, and read."""
        seen = "\n".join(self._site.seen)
        wanted = {name: SECRETS[name] in seen for name in ("Authorization", "Cookie", "body")}
        self._report.equal("the site was sent its secrets", wanted, dict.fromkeys(wanted, True))
        self._report.equal("but not those of the proxy", SECRETS["Proxy-Authorization"] in seen, False)
        found = sorted({int(answer[9:12]) for answer in self._answers if answer[:7] == b"HTTP/1."})
        wanted = {200, 400, 407, 421, 451, 502} - set(found)
        self._report.check("there were answers of each kind", [f"no {status}" for status in wanted], len(self._answers))

    # The outputs.

    def _told(self) -> dict[str, str]:
        text = lambda: self._gate.decisions.read_text(encoding="utf-8")  # noqa: E731
        wait_for(lambda: SHOWN in text(), 5)
        admin = [get(self._gate.admin + path)[1] for path in ADMIN]
        admin.append(get(f"{self._gate.admin}/api/v1/reload", body=b"")[1])
        self._report.check("the TLS library tells what it does, too", self._silent(), len(self._gate.lines))
        return {
            "answers to clients": _text(self._answers),
            "the admin listener": _text(admin),
            "commands": "".join(map(self._said, COMMANDS)),
            "the decision log": text(),
            "standard error at trace level": "\n".join(self._gate.lines),
        }

    def _said(self, command: tuple[str, ...]) -> str:
        config = self._gate.decisions.parent / "crawlgate.yaml"
        done = subprocess.run(
            [self._binary, *command, "--config", config],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout + done.stderr

    def _silent(self) -> list[str]:
        """The search at trace level is meaningful only if there is output."""
        found = wait_for(lambda: any(" TRACE " in line and "rustls" in line for line in list(self._gate.lines)), 2)
        return [] if found else self._gate.lines[-5:]

    def _planted(self, texts: dict[str, str], words: dict[str, list[str]]) -> None:
        """The same search in a text with secrets: it finds each, in each spelling, at each position."""
        missed = [
            f"{name} in {place}"
            for place, text in texts.items()
            for name, spellings in words.items()
            for word in spellings
            if not leaks(f"{text[: len(text) // 2]}{word}{text[len(text) // 2 :]}", {name: [word]})
        ]
        self._report.check("a planted leak is found", missed, len(texts) * sum(map(len, words.values())))
        shown = {place: bool(leaks(text, {"path": _spellings(SHOWN)})) for place, text in texts.items()}
        self._report.equal("and what the decision log does tell is found there", shown["the decision log"], True)


def leaks(text: str, words: dict[str, list[str]]) -> list[str]:
    """The secrets that a text contains."""
    return [
        f"{name}: …{text[max(0, text.find(w) - 80) : text.find(w) + 20]!r}"
        for name, all_ in words.items()
        for w in all_
        if w in text
    ]


def _spellings(secret: str) -> list[str]:
    """A secret, and the middle of its base64 form at each alignment."""
    encoded = [base64.b64encode(b"x" * shift + secret.encode()).decode()[4:-4] for shift in range(3)]
    return [secret, secret.encode().hex(), *encoded]


def _basic(user: str, word: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode()


def _rest(connection: socket.socket) -> bytes:
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def _text(parts: list[bytes]) -> str:
    return "\n".join(part.decode("utf-8", "replace") for part in parts)
