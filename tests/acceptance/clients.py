"""The real clients: curl, wget, Scrapy, requests, undici, Java and urllib, each run against a proxy.

What they got is read back as `Answer`s.

Nothing here knows what an answer should be.
"""

from __future__ import annotations

import base64
import concurrent.futures
import dataclasses
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Answer:
    """The result of one request of a client; `error` is the client's message about a failed transfer."""

    client: str
    method: str
    url: str
    status: int
    headers: dict[str, list[str]]
    body: bytes
    error: str = ""
    connects: int = 0
    # The version of HTTP, if the client reports it.
    version: str = ""

    def one(self, name: str) -> str | None:
        """The value of a header, None if it is absent; several are joined as HTTP allows."""
        values = self.headers.get(name.lower())
        return ", ".join(values) if values else None


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without proxy settings of this machine, which would mix into the test."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **extra}


def curl(
    proxy: str,
    urls: list[bytes],
    folder: pathlib.Path,
    options: tuple[str, ...] = (),
    method: str = "GET",
    name: str = "curl",
) -> list[Answer]:
    """Requests the URLs one after the other in one curl process, which reuses its connections."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks = []
    for number, url in enumerate(urls):
        quoted = url.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        common = [
            "silent",
            "path-as-is",
            "globoff",
            'max-time = "60"',
            f'proxy = "{proxy}"',
            'noproxy = ""',
            f'output = "{folder / str(number)}.body"',
            r'write-out = "%{json}%{header_json}"',
            *options,
        ]
        blocks.append("\n".join(common).encode() + b'\nurl = "' + quoted + b'"\n')
    config = folder / "curl.conf"
    config.write_bytes(b"next\n".join(blocks))
    # -q first: no settings of the user that runs this.
    done = subprocess.run(["curl", "-q", "-K", str(config)], capture_output=True, env=clean_environment(), timeout=600)
    return _read_curl(done.stdout.decode("latin-1"), urls, folder, method, name)


def _read_curl(text: str, urls: list[bytes], folder: pathlib.Path, method: str, name: str) -> list[Answer]:
    decoder, at, answers = json.JSONDecoder(strict=False), 0, []
    for number, url in enumerate(urls):
        summary, at = decoder.raw_decode(text, at)
        headers, at = decoder.raw_decode(text, at)
        while at < len(text) and text[at].isspace():
            at += 1
        file = folder / f"{number}.body"
        body = file.read_bytes() if file.exists() and method != "HEAD" else b""
        lower = {key.lower(): values for key, values in headers.items()}
        error = summary["errormsg"] or "" if summary["exitcode"] else ""
        answers.append(
            Answer(
                name,
                method,
                url.decode("latin-1"),
                summary["http_code"],
                lower,
                body,
                error,
                summary["num_connects"],
                summary["http_version"],
            )
        )
    return answers


def wget(proxy: str, start: str, domains: list[str], folder: pathlib.Path, more: Sequence[str] = ()) -> list[Answer]:
    """`wget -r` over all hosts of the domains."""
    crawl = ["--recursive", "--level=inf", "--span-hosts", f"--domains={','.join(domains)}"]
    return wget_urls(proxy, [start], folder, [*crawl, *more])


def wget_urls(proxy: str, urls: list[str], folder: pathlib.Path, more: Sequence[str] = ()) -> list[Answer]:
    """wget's answers to these URLs; its WARC file has every answer as it came."""
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        *more,
        "--no-config",
        "-e",
        f"http_proxy={proxy}",
        "-e",
        f"https_proxy={proxy}",
        "-e",
        "use_proxy=on",
        "--no-hsts",
        "-e",
        "robots=off",
        "--tries=1",
        "--timeout=60",
        "--local-encoding=UTF-8",
        "--remote-encoding=UTF-8",
        "--server-response",
        "--delete-after",
        f"--output-file={folder / 'wget.log'}",
        f"--directory-prefix={folder / 'tree'}",
        f"--warc-file={folder / 'crawl'}",
        "--no-warc-compression",
        "--no-warc-keep-log",
        "--no-warc-digests",
    ]
    # It ends with 8 when any answer was an error status, as some of the site's are.
    subprocess.run(["wget", *options, *urls], env=clean_environment(LC_ALL="C.UTF-8"), timeout=600, check=False)
    # wget 1.21 writes no WARC record for a 204; its log has it.
    empty = [
        answer for answer in _read_wget_log((folder / "wget.log").read_text(encoding="utf-8")) if answer.status == 204
    ]
    return _read_warc((folder / "crawl.warc").read_bytes()) + empty


def _read_wget_log(text: str) -> list[Answer]:
    """The answers of `--server-response`: heads only."""
    answers = []
    for block in re.split(r"(?m)^--\d{4}-\d\d-\d\d \d\d:\d\d:\d\d--  ", text)[1:]:
        url, _, rest = block.partition("\n")
        head = "\r\n".join(re.findall(r"(?m)^  (\S.*)$", rest))
        if status := re.match(r"HTTP/1\.[01] (\d{3})", head):
            answers.append(Answer("wget", "GET", url, int(status[1]), _fields(head.encode()), b""))
    return answers


def wget_identity(url: str) -> str:
    """The URLs that wget takes for one: it ignores the spelling of escapes, and requests each URL once."""
    return urllib.parse.unquote(url, "latin-1")


def _read_warc(data: bytes) -> list[Answer]:
    answers, at = [], 0
    while at < len(data):
        end = data.index(b"\r\n\r\n", at)
        fields = _fields(data[at:end])
        size = int(fields["content-length"][0])
        content = data[end + 4 : end + 4 + size]
        at = end + 4 + size + 4
        if fields["warc-type"] == ["response"]:
            answers.append(_from_wire("wget", fields["warc-target-uri"][0].strip("<>"), content))
    return answers


def _from_wire(client: str, url: str, content: bytes) -> Answer:
    """An answer from the bytes that came over the connection."""
    head, _, body = content.partition(b"\r\n\r\n")
    headers = _fields(head)
    if "chunked" in "".join(headers.get("transfer-encoding", [])):
        body = _dechunk(body)
    return Answer(client, "GET", url, int(head.split(b" ", 2)[1][:3]), headers, body)


def _fields(head: bytes) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), []).append(value.strip())
    return fields


def _dechunk(body: bytes) -> bytes:
    parts, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def scrapy(
    proxy: str,
    python: str,
    start: str,
    domains: list[str],
    folder: pathlib.Path,
    trust: dict[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[Answer]:
    """The spider of `spider.py`, in the Python that has Scrapy; with `trust`, the variables of that, it verifies.

    Scrapy does so only if it is told to. `options` are more arguments.
    """
    verified = ("-s", "DOWNLOAD_VERIFY_CERTIFICATES=True") if trust else ()
    return _spider(proxy, python, [start], folder, f"domains={','.join(domains)}", (*verified, *options), trust)


def scrapy_urls(
    proxy: str, python: str, urls: list[str], folder: pathlib.Path, options: Sequence[str] = ()
) -> list[Answer]:
    """Scrapy's answers to these URLs only, with more `-s NAME=VALUE` if wanted."""
    return _spider(proxy, python, urls, folder, "follow=no", options)


def _spider(
    proxy: str,
    python: str,
    start: list[str],
    folder: pathlib.Path,
    argument: str,
    options: Sequence[str] = (),
    trust: dict[str, str] | None = None,
) -> list[Answer]:
    folder.mkdir(parents=True, exist_ok=True)
    out, log = folder / "scrapy.jsonl", folder / "scrapy.log"
    command = [
        python,
        "-m",
        "scrapy",
        "runspider",
        str(HERE / "spider.py"),
        "-a",
        f"start={' '.join(start)}",
        "-a",
        f"out={out}",
        "-a",
        argument,
        "-s",
        f"LOG_FILE={log}",
        "-s",
        "LOG_LEVEL=INFO",
        *options,
    ]
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), proxy)
    environment = clean_environment(**proxies, **(trust or {}))
    subprocess.run(command, cwd=folder, env=environment, timeout=600, check=True)
    return _read_lines("Scrapy", out.read_text(encoding="utf-8"))


def _read_lines(client: str, text: str) -> list[Answer]:
    """The answers of the clients that write theirs as JSON lines."""
    items = [json.loads(line) for line in text.splitlines()]
    return [
        Answer(
            client,
            "GET",
            item["url"],
            item["status"],
            item["headers"],
            base64.b64decode(item["body"]),
            item["error"],
            version=item.get("version", ""),
        )
        for item in items
    ]


def requests_all(proxy: str, python: str, urls: list[str], trust: dict[str, str] | None = None) -> list[Answer]:
    """Python's requests, in a Python that has it; omits URLs that it would rewrite."""
    return _asked("requests", [python, str(HERE / "requests_client.py"), proxy], urls, trust)


def undici_all(
    proxy: str, modules: pathlib.Path, urls: list[str], way: str, trust: dict[str, str] | None = None
) -> list[Answer]:
    """Node's undici, from a folder with `node_modules`; `way` is `plain` or `tunnel`, see `undici_client.mjs`."""
    return _asked("undici", ["node", str(HERE / "undici_client.mjs"), str(modules), proxy, way], urls, trust)


def httpx_all(proxy: str, python: str, urls: list[str], trust: pathlib.Path) -> list[Answer]:
    """Python's httpx, which offers HTTP/2; omits URLs that it would rewrite."""
    return _asked("httpx", [python, str(HERE / "httpx_client.py"), proxy, str(trust)], urls)


def crawlee_all(proxy: str, python: str, urls: list[str], trust: pathlib.Path) -> list[Answer]:
    """Crawlee for Python, which offers HTTP/2; omits URLs that it would rewrite, and pages with a content coding."""
    return _asked("crawlee", [python, str(HERE / "crawlee_client.py"), proxy, str(trust)], urls)


def node_http2_all(proxy: str, urls: list[str], trust: pathlib.Path) -> list[Answer]:
    """Node's own module http2, with one connection per host."""
    return _asked("node", ["node", str(HERE / "http2_client.mjs"), proxy, str(trust)], urls)


def go_all(proxy: str, urls: list[str], trust: pathlib.Path, folder: pathlib.Path) -> list[Answer]:
    """Go's net/http, which offers HTTP/2; compiled once into `folder`. Omits URLs that it would rewrite."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "http2_client"
    environment = clean_environment(GOCACHE=str(folder / "cache"), GO111MODULE="off")
    build = ["go", "build", "-o", program, HERE / "http2_client.go"]
    subprocess.run(build, env=environment, capture_output=True, timeout=300, check=True)
    return _asked("Go", [str(program), proxy, str(trust)], urls)


def reqwest_all(proxy: str, program: pathlib.Path, urls: list[str], trust: pathlib.Path) -> list[Answer]:
    """Rust's reqwest, which offers HTTP/2: a program of `rust_clients`. Omits URLs that it would rewrite."""
    return _asked("reqwest", [str(program), proxy, str(trust)], urls)


def java_all(address: tuple[str, int], store: pathlib.Path, password: str, urls: list[str]) -> list[Answer]:
    """Java's HttpClient, which trusts the key store; omits URLs that it cannot send."""
    trust = [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]
    host, port = address
    return _asked(
        "Java", ["java", "-XX:TieredStopAtLevel=1", *trust, str(HERE / "JavaClient.java"), host, str(port)], urls
    )


def _asked(client: str, command: list[str], urls: list[str], trust: dict[str, str] | None = None) -> list[Answer]:
    given, environment = "".join(f"{url}\n" for url in urls), clean_environment(**(trust or {}))
    done = subprocess.run(
        command, input=given, stdout=subprocess.PIPE, text=True, env=environment, timeout=600, check=True
    )
    return _read_lines(client, done.stdout)


class _AsItComes(urllib.request.HTTPErrorProcessor):
    """Gives every answer back, redirects and errors too."""

    def http_response(self, request, response):
        return response


def urllib_all(proxy: str, urls: list[str]) -> list[Answer]:
    """Python's urllib: eight at once, a connection for each request."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}), _AsItComes)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda url: _urllib_one(opener, url), urls))


def _urllib_one(opener: urllib.request.OpenerDirector, url: str) -> Answer:
    try:
        with opener.open(url, timeout=60) as response:
            headers: dict[str, list[str]] = {}
            for name, value in response.headers.items():
                headers.setdefault(name.lower(), []).append(value)
            return Answer("urllib", "GET", url, response.status, headers, response.read())
    except (OSError, http.client.HTTPException) as error:
        return Answer("urllib", "GET", url, 0, {}, b"", repr(error))


def raw(address: tuple[str, int], request: bytes, wait: float = 10.0) -> tuple[bytes, bool]:
    """Sends bytes and reads until the other side closes or is silent; the answer, and whether it closed."""
    with socket.create_connection(address, timeout=wait) as connection:
        connection.sendall(request)
        parts = []
        try:
            while part := connection.recv(65_536):
                parts.append(part)
                connection.settimeout(1.0)
        except TimeoutError:
            return b"".join(parts), False
        except ConnectionResetError:
            pass
        return b"".join(parts), True


def raw_answer(address: tuple[str, int], request: bytes) -> tuple[Answer, bool]:
    """The one answer to a request written by hand, and whether the connection was closed after it."""
    content, closed = raw(address, request)
    line = request.split(b"\r\n", 1)[0].decode("latin-1")
    if not re.match(rb"HTTP/1\.[01] \d{3} ", content):
        return Answer("raw", line.split(" ")[0], line, 0, {}, content, "no HTTP answer"), closed
    answer = _from_wire("raw", line, content)
    answer.method = line.split(" ")[0]
    return answer, closed
