"""No spelling of a forbidden URL gets its page, from any server; odd but harmless URLs are still fetched.

    python3 tests/hostile/spellings.py [--binary target/release/crawlgate]

Each forbidden page exists on real nginx, Apache and Jetty and on two Python applications, of which one decodes twice.
Each is named by another kind of condition, and asked for in many spellings, as raw bytes through the proxy. The same
spellings are sent without the proxy, to show that they do lead to the page.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import socket
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "acceptance"))

import servers  # noqa: E402
from report import Report  # noqa: E402
from services import Gate  # noqa: E402

# The file of each page, and the condition that forbids it. `$` stands for the origin's authority.
PAGES = {
    "/cgi-bin/x.html": "under: /cgi-bin",
    "/private/report.html": "under: /private",
    "/admin/index.html": "path: { prefix: /admin/ }",
    "/files/old.zip": "ext: zip",
    "/calendar/2031/04.html": r"path: { regex: '/calendar/\d{4}' }",
    "/a/b/secret.html": "path: /a/b/secret.html",
    "/docs/internal-plan.html": "path: { contains: internal }",
    "/img/big.iso": "path: { suffix: .iso }",
    "/~staff/index.html": "under: /~staff",
    "/print/page_print.html": "path: { suffix: _print.html }",
    "/search/results.html": "path: { glob: '/search/*' }",
    "/tmp-1/x.html": "url: { prefix: 'http://$/tmp-1/' }",
    "/list/one.html": "in: pages",
    "/prefixed/a.html": "in: prefixes",
    "/@me/inbox.html": "under: /@me",
    "/a(b)/c.html": "path: '/a(b)/c.html'",
    "/very/deep/er/page.html": r"url: { regex: '/very/(\w+/)+page' }",
    "/login/form.html": "any: [{ under: /logout }, { under: /login }]",
}
QUERIES = {"/shop?sid=1": "param.sid: { regex: . }", "/shop?view=print": "query: { contains: view=print }"}

POLICY = """
policy: 1
name: spellings
options:
  disposition: allow
  robots: {{ obey: false }}
  politeness: {{ delay: 0s, concurrency: 100, jitter: 1.0..1.0 }}
lists:
  pages: {{ kind: urls, items: ['http://{authority}/list/one.html'] }}
  prefixes: {{ kind: url_prefixes, items: ['http://{authority}/prefixed/'] }}
rules:
{rules}
"""

# URLs that look odd, on paths that no rule forbids.
HARMLESS = [
    "/wiki/C%2B%2B", "/a%20b", "/x//y", "/p;v=1/q", "/web/2020/http://example.com/", "/%7Euser/", "/caf%C3%A9",
    "/q?u=http%3A%2F%2Fx%2Fy", "/q?u=http%253A%252F%252Fx", "/a%2Fb", "/100%25", "/a%252Fb", "/.well-known/x", "/a/...",
    "/a;b;c", "/q?a=b;c=d", r"/q?p=C:\dir", "/q?%73ort=up", "/%E4%BD%A0", "/a%2Cb", "/a:b@c", "/q?x=%00", "/a//", "/q??",
    "/a%3Bb",
]  # fmt: skip


def escape(text: str, doubly: bool = False) -> str:
    """Escapes each character, or the escapes as well."""
    mark = "%25" if doubly else "%"
    return "".join(f"{mark}{ord(c):02x}" for c in text)


def path_spellings(path: str) -> dict[str, str]:
    """Spellings of a path, by name."""
    first, rest = path[1], path[2:]
    middle = path.index("/", 1)
    return {
        "two slashes": "/" + path,
        "slashes inside": path[:middle] + "//" + path[middle + 1 :],
        "an escaped letter": f"/{escape(first)}{rest}",
        "upper case escapes": f"/{escape(first).upper()}{rest}",
        "the last character escaped": path[:-1] + escape(path[-1]),
        "all escaped": "/" + escape(path[1:]).replace("%2f", "/"),
        "an escaped slash": path[:middle] + "%2f" + path[middle + 1 :],
        "an escaped backslash": path[:middle] + "%5c" + path[middle + 1 :],
        "dots after an escaped slash": "/x/..%2f" + path[1:],
        "escaped dots": "/x/%2e%2e" + path,
        "dots, two slashes": "/x/..//" + path[1:],
        "dots with a parameter": "/x/..;a=b" + path,
        "a dot with a parameter": "/.;a" + path,
        "a matrix parameter": path[:middle] + ";a=b" + path[middle:],
        "a parameter at the end": path + ";a=b",
        "NUL": path + "%00.html",
        "escaped twice": f"/{escape(first, doubly=True)}{rest}",
        "dots escaped twice": "/x/%252e%252e" + path,
        "escapes of their digits": f"/%25{escape(f'{ord(first):02x}')}{rest}",
    }


def query_spellings(url: str) -> dict[str, str]:
    path, _, query = url.partition("?")
    name, _, value = query.partition("=")
    return {
        "as it is": url,
        "an escaped name": f"{path}?{escape(name[0])}{name[1:]}={value}",
        "all of the name escaped": f"{path}?{escape(name)}={value}",
        "an escaped value": f"{path}?{name}={escape(value)}",
        "after another": f"{path}?a=b&{escape(name[0]).upper()}{name[1:]}={value}",
        "escaped twice": f"{path}?{escape(name[0], doubly=True)}{name[1:]}={value}",
        "two slashes": f"/{path}?{name}={value}",
    }


def spellings() -> list[tuple[str, str]]:
    """Each spelling with its name."""
    found = [(f"{name} of {path}", text) for path in PAGES for name, text in path_spellings(path).items()]
    return found + [(f"{name} of {url}", text) for url in QUERIES for name, text in query_spellings(url).items()]


def fetch(port: int, target: str, host: str) -> tuple[int, str, str]:
    """Sends a request line as it is; status, head and body of the response."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while data := connection.recv(65536):
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
    return status, head.decode("latin-1").lower(), body.decode("utf-8", "replace")


def write_policy(file: pathlib.Path, authority: str) -> None:
    rules = [f"  - {{ id: page-{n}, forbid: {{ {c} }} }}" for n, c in enumerate([*PAGES.values(), *QUERIES.values()])]
    text = POLICY.format(authority=authority, rules="\n".join(rules).replace("$", authority))
    file.write_text(text, encoding="utf-8")


def check_origin(report: Report, origin: servers.Server, binary: pathlib.Path, folder: pathlib.Path) -> None:
    folder.mkdir()
    authority = f"127.0.0.1:{origin.port}"
    policy = folder / "policy.yaml"
    write_policy(policy, authority)
    gate = Gate(binary, policy, folder)
    try:
        dodged, reached, reasons = [], 0, collections.Counter()
        for name, target in spellings():
            _, _, direct = fetch(origin.port, target, authority)
            reached += servers.MARK in direct
            status, head, body = fetch(gate.port, f"http://{authority}{target}", authority)
            if servers.MARK in body:
                dodged.append(f"{name}: {target} is {status}")
            if "\ncrawl-reason: " in head:
                reasons[head.partition("\ncrawl-reason: ")[2].partition("\r")[0]] += 1
        report.check(f"{origin.name}: no spelling gets a forbidden page", dodged, len(spellings()))
        print(f"        without the proxy {reached} of them get it; refused: {dict(reasons)}")
        report.check(f"{origin.name}: some spellings get it without the proxy", [] if reached > 40 else [f"{reached}"])
        refused = []
        for target in [prefix + url for prefix in ("", "/en", "/x1", "/2024/05") for url in HARMLESS]:
            _, head, _ = fetch(gate.port, f"http://{authority}{target}", authority)
            if "\ncrawl-reason: " in head:
                refused.append(f"{target}: {head.partition('crawl-reason: ')[2].partition(chr(13))[0]}")
        report.check(f"{origin.name}: harmless URLs are fetched", refused, 4 * len(HARMLESS))
    finally:
        gate.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target/release/crawlgate")
    binary = parser.parse_args().binary.resolve()
    report = Report()
    if missing := servers.missing():
        report.missing("real servers", ", ".join(missing))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        root = folder / "root"
        for path in PAGES:
            file = root / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(servers.MARK, encoding="utf-8")
        origins = [servers.application("an application", root, 1), servers.application("one that decodes twice", root, 2)]
        if not missing:
            origins += [start(folder, root) for start in (servers.nginx, servers.apache, servers.jetty)]
        try:
            for number, origin in enumerate(origins):
                check_origin(report, origin, binary, folder / f"gate-{number}")
        finally:
            for origin in origins:
                origin.stop()
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
