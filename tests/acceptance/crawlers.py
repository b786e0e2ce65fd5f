"""Crawlers by name: the credentials of each client, and a proxy that refuses each a different page.

The gate lets nobody in without credentials. Each client asks for one page that it may have, one that is refused to it
alone, one that is refused to another, and one that robots.txt disallows, which none of them reads; then with a wrong
password.
"""

from __future__ import annotations

import collections
import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable

import clients
from clients import Answer, clean_environment
from origin import Origin
from pages import HOSTS, WWW
from report import Report, differences
from services import Gate, by_labels, wait_for

# The crawler, its profile, the intent of its refusal, the status that follows from both, and that of robots.txt.
CRAWLERS = {
    "curl": (None, "deny", 451, 451),
    "wget": ("strict-http", "deny", 403, 403),
    "scrapy": ("scrapy", "gone", 410, 451),
    "requests": ("nutch", "deny", 410, 410),
    "undici": ("norconex", "gone", 404, 451),
}


def password(name: str) -> str:
    return f"{name}-s3cret"


def hashes(binary: pathlib.Path) -> dict[str, str]:
    """What `crawlgate password` makes of each password."""
    return {
        name: subprocess.run(
            [binary, "password"],
            input=password(name),
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
        for name in CRAWLERS
    }


def registrations(made: dict[str, str]) -> list[dict]:
    """`crawlers` of the configuration, without profiles."""
    return [{"name": name, "auth": {"user": name, "password_hash": hash_}} for name, hash_ in made.items()]


def proxy(gate: Gate, name: str, word: str | None = None) -> str:
    """The proxy's URL with a crawler's credentials."""
    return f"http://{name}:{word or password(name)}@127.0.0.1:{gate.port}"


def has_requests(python: str) -> bool:
    return subprocess.run([python, "-c", "import requests"], capture_output=True).returncode == 0


def has_undici(modules: pathlib.Path | None) -> bool:
    """Whether Node loads it: undici 7 needs Node 20.18 or later."""
    if not modules or not shutil.which("node"):
        return False
    return subprocess.run(["node", "-e", "require('undici')"], cwd=modules, capture_output=True).returncode == 0


def run(
    report: Report,
    origin: Origin,
    binary: pathlib.Path,
    made: dict[str, str],
    folder: pathlib.Path,
    python: str,
    modules: pathlib.Path | None,
) -> None:
    report.section("Crawlers by name")
    folder = folder / "crawlers"
    folder.mkdir()
    (folder / "policy.yaml").write_text(json.dumps(_policy()), encoding="utf-8")
    listed = [
        entry | ({"profile": CRAWLERS[entry["name"]][0]} if CRAWLERS[entry["name"]][0] else {})
        for entry in registrations(made)
    ]
    # undici uses CONNECT for http too, with the site's port.
    egress = {"allow_loopback": True, "ports": ["1-65535"], "connect_ports": ["1-65535"], "hosts": HOSTS}
    settings = {"crawlers": listed, "anonymous": "deny", "egress": egress}
    gate = Gate(binary, folder / "policy.yaml", folder, settings)
    try:
        _Gated(report, origin, gate).run(installed(python, modules, folder))
    finally:
        gate.stop()


def _policy() -> dict:
    """Each crawler is refused the page with its name."""
    rules = [
        {"id": f"not-for-{name}", "forbid": {"crawler": name, "under": f"/{name}"}, "reject": intent}
        for name, (_, intent, _, _) in CRAWLERS.items()
    ]
    options = {"disposition": "allow", "politeness": {"delay": "0s", "concurrency": 100}}
    return {"policy": 1, "name": "acceptance", "options": options, "rules": rules}


Client = Callable[[str, list[str]], list[Answer]]


def installed(python: str, modules: pathlib.Path | None, folder: pathlib.Path) -> dict[str, Client]:
    """The installed clients; missing ones were reported before. The first word is the crawler's name."""
    fresh = iter(range(1_000))

    def place() -> pathlib.Path:
        return folder / f"run-{next(fresh)}"

    found: dict[str, Client] = {}
    if shutil.which("curl"):
        found["curl"] = lambda at, urls: clients.curl(at, [url.encode() for url in urls], place())
    if shutil.which("wget"):
        found["wget"] = lambda at, urls: clients.wget_urls(at, urls, place())
    if subprocess.run([python, "-c", "import scrapy"], capture_output=True).returncode == 0:
        found["scrapy"] = lambda at, urls: clients.scrapy_urls(at, python, urls, place())
    if has_requests(python):
        found["requests"] = lambda at, urls: clients.requests_all(at, python, urls)
    if has_undici(modules):
        found["undici"] = lambda at, urls: clients.undici_all(at, modules, urls, "plain")
        found["undici by CONNECT"] = lambda at, urls: clients.undici_all(at, modules, urls, "tunnel")
    return found


def _name(client: str) -> str:
    return client.split(" ")[0]


class _Gated:
    """All clients with one proxy."""

    def __init__(self, report: Report, origin: Origin, gate: Gate) -> None:
        self._report = report
        self._origin = origin
        self._gate = gate

    def run(self, found: dict[str, Client]) -> None:
        for label, client in found.items():
            self._right(label, client)
        for label, client in found.items():
            self._wrong(label, client)
        self._counted(found)
        self._secret(found)

    def _url(self, path: str) -> str:
        return self._origin.site.url(WWW, path)

    def _right(self, label: str, client: Client) -> None:
        """A page for all crawlers, one refused to this crawler, one refused to another, and one refused to all."""
        name = _name(label)
        other = "wget" if name == "curl" else "curl"
        urls = [self._url(path) for path in ("/", f"/{name}", f"/{other}", "/tmp/x")]
        answers = {answer.url: answer for answer in client(proxy(self._gate, name), urls)}
        if problems := [f"no answer to {url}" for url in urls if url not in answers]:
            self._report.check(f"{label}: got answers", problems)
            return
        page, mine, others, disallowed = (answers[url] for url in urls)
        body = self._origin.site.find(WWW, "/").body
        problems = [] if (page.status, page.body) == (200, body) else [f"{page.status}, {page.body[:80]!r} {page.error}"]
        self._report.check(f"{label}: with its credentials a page arrives byte for byte", problems)
        said = (mine.status, mine.one("Crawl-Rule"))
        self._report.equal(
            f"{label}: what it alone is refused says so in its own status", said, (CRAWLERS[name][2], f"not-for-{name}")
        )
        # The site has no such page: its own 404 came through.
        said = (others.status, others.one("Crawl-Status"), others.one("Crawl-Reason"))
        self._report.equal(f"{label}: what another is refused it may ask for", said, (404, "REJECTED_NOTFOUND", None))

        said = (disallowed.status, disallowed.one("Crawl-Reason"))
        wanted = (CRAWLERS[name][3], "robots_txt")
        self._report.equal(f"{label}: robots.txt holds for it, though it does not read it", said, wanted)

    def _wrong(self, label: str, client: Client) -> None:
        name = _name(label)
        before = len(self._origin.log.entries)
        (answer,) = client(proxy(self._gate, name, "wrong"), [self._url("/")])
        if name == "undici":
            # The client reports no more than this.
            problems = [] if "407" in answer.error else [f"{answer.status} {answer.error}"]
        else:
            wanted = (407, 'Basic realm="crawlgate", charset="UTF-8"', "unauthorized", False)
            said = (answer.status, answer.one("Proxy-Authenticate"), answer.one("Crawl-Reason"), b"s3cret" in answer.body)
            problems = [] if said == wanted else [f"expected {wanted}, got {said} {answer.error}"]
        arrived = self._origin.log.entries[before:]
        problems += [f"{entry['line']} arrived" for entry in arrived]
        self._report.check(f"{label}: a wrong password is answered with 407, and nothing is fetched", problems)

    def _counted(self, found: dict[str, Client]) -> None:
        clients = collections.Counter(_name(label) for label in found)

        def counted(family: str, **where: str) -> dict:
            return by_labels(self._gate.samples(), family, ("crawler",), **where)

        rejects = {"reason": "rule", "verdict": "reject"}
        wait_for(lambda: counted("crawlgate_decisions_total", **rejects) == clients, 5)
        refused = differences(counted("crawlgate_decisions_total", **rejects), clients)
        self._report.check("decisions_total counts each refusal under its crawler", refused, len(clients))
        passed = counted("crawlgate_requests_total", method="GET", source="origin")
        wanted = {name: 2 * count for name, count in clients.items()}
        self._report.check("requests_total counts what each was passed", differences(passed, wanted), len(wanted))
        disallowed = counted("crawlgate_decisions_total", reason="robots_txt")
        self._report.equal("decisions_total counts robots.txt too", disallowed, dict(clients))
        arrived = [entry["line"] for entry in self._origin.log.entries if " /tmp/" in entry["line"]]
        self._report.check("nothing that robots.txt disallows arrived", arrived)
        strangers = counted("crawlgate_decisions_total", reason="unauthorized")
        self._report.equal("wrong passwords count as anonymous", strangers, {"anonymous": len(found)})

    def _secret(self, found: dict[str, Client]) -> None:
        said = "\n".join(self._gate.lines) + self._gate.decisions.read_text() + self._gate.metrics_text().decode()
        shown = [word for name in CRAWLERS for word in (password(name), "argon2") if word in said]
        self._report.check("neither log nor metrics show a password or a hash", shown, len(found))
