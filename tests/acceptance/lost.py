"""The lost pages: real clients crawl sixty pages through crawlgate's defaults, and each page they lose must be listed.

    python3 tests/acceptance/lost.py [--binary target/release/crawlgate] [--python PYTHON] [--node-modules FOLDER]
                                      [--spider PROGRAM] [--keep FOLDER]

Each client crawls a host of its own for each kind of trouble, all at once: at the default pace; with a robots.txt that
fails for two seconds; with one page that always answers 503; and on a host that a rule refuses with `reject: later` for
ten seconds in mid-crawl. The clients have the defaults of their makers. `crawlgate decisions --lost` must then list every
page that a client asked for and did not get; a page that it never asked for must have its only link on a start page that
is listed. Prints a table of the pages got and listed. Exit code 1 if a check failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from clients import clean_environment
from lost_site import PATHS, Site
from report import Report
from services import Gate

HERE = pathlib.Path(__file__).resolve().parent
TROUBLES = {
    "pace": "default pace",
    "robots": "robots.txt fails for 2 s",
    "page": "a page with 503",
    "later": "`later` for 10 s",
}
# The hosts of this trouble are refused for so long, once so many of their pages were served.
REFUSED_FOR, REFUSED_AFTER = 10.0, 3
# A client that takes longer is ended, and fails the run.
PATIENCE = 300.0
# Clients that keep few requests in progress, or try again: the default pace and robots.txt cost them no page.
PATIENT = ("scrapy", "crawlee-py", "crawlee-js", "wget", "linkchecker")


@dataclasses.dataclass
class Client:
    """A program that crawls; `follows` is false for one that is given all URLs at once."""

    name: str
    command: list[str]
    needs: str
    follows: bool = True
    # The variables that it gets besides those of the proxy.
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


class Crawl:
    """A client at work on one host."""

    def __init__(self, client: Client, trouble: str, site: Site, gate: Gate, folder: pathlib.Path) -> None:
        self.client, self.trouble, self._site = client, trouble, site
        self.host = f"{client.name}.{trouble}.test"
        self.urls = [site.url(self.host, path) for path in PATHS]
        self.refused_at: float | None = None
        self.timed_out = False
        self._folder = folder / f"{client.name}-{trouble}"
        self._folder.mkdir()
        given = self.urls[:1] if client.follows else self.urls
        (self._folder / "urls").write_text("".join(f"{url}\n" for url in given), encoding="utf-8")
        words = {"PROXY": gate.proxy, "START": self.urls[0], "FOLDER": str(self._folder)}
        command = [_filled(word, words) for word in client.command]
        proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), gate.proxy)
        # No settings of the user that runs this.
        environment = clean_environment(HOME=str(self._folder), **proxies, **client.environment)
        with (
            (self._folder / "urls").open() as given_urls,
            (self._folder / "out").open("w") as out,
            (self._folder / "err").open("w") as err,
        ):
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=given_urls,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._begin = time.monotonic()
        self.seconds = 0.0

    def runs(self) -> bool:
        """Ends the client if it takes too long."""
        if self._process.poll() is not None:
            self.seconds = self.seconds or time.monotonic() - self._begin
            return False
        if time.monotonic() - self._begin > PATIENCE:
            self.timed_out = True
            self.end()
        return True

    def end(self) -> None:
        """Kills the client and the processes that it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def refused_now(self) -> bool:
        """The host's rule applies: for ten seconds, once a few pages were served."""
        if self.trouble != "later":
            return False
        now = time.monotonic()
        if self.refused_at is None and self._site.served(self.host) >= REFUSED_AFTER:
            self.refused_at = now
        return self.refused_at is not None and now < self.refused_at + REFUSED_FOR

    def got(self) -> set[str]:
        """The pages that the client has, by its own account; none if it left no account."""
        try:
            return READERS.get(self.client.name, _printed)(self._folder, self.urls)
        except (OSError, ValueError, LookupError):
            return set()


def _filled(word: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(f"{{{name}}}", value)
    return word


# --- what the clients got


def _printed(folder: pathlib.Path, urls: list[str]) -> set[str]:
    return set((folder / "out").read_text(encoding="utf-8").split()) & set(urls)


def _saved_by_wget(folder: pathlib.Path, urls: list[str]) -> set[str]:
    """wget saves pages as `HOST:PORT/PATH`."""
    found = (path.relative_to(folder / "tree") for path in (folder / "tree").rglob("*") if path.is_file())
    return {"http://" + str(path).removesuffix("index.html") for path in found} & set(urls)


def _saved_by_aria2(folder: pathlib.Path, urls: list[str]) -> set[str]:
    saved = {path.name for path in (folder / "tree").glob("*") if not path.with_name(path.name + ".aria2").exists()}
    return {url for url in urls if (url.rsplit("/", 1)[1] or "index.html") in saved}


def _valid_for_linkchecker(folder: pathlib.Path, urls: list[str]) -> set[str]:
    """The lines of its CSV: `urlname;parentname;baseref;result;warningstring;infostring;valid;url;…`."""
    lines = (folder / "out").read_text(encoding="utf-8").splitlines()
    rows = [line.split(";") for line in lines if not line.startswith("#")]
    at = {name: rows[0].index(name) for name in ("result", "url")} if rows else {}
    return {row[at["url"]] for row in rows[1:] if len(row) > at["url"] and row[at["result"]].startswith("200")} & set(urls)


def _ok_for_linkinator(folder: pathlib.Path, urls: list[str]) -> set[str]:
    links = json.loads((folder / "out").read_text(encoding="utf-8"))["links"]
    return {link["url"] for link in links if link["status"] == 200} & set(urls)


READERS = {
    "wget": _saved_by_wget,
    "aria2": _saved_by_aria2,
    "linkchecker": _valid_for_linkchecker,
    "linkinator": _ok_for_linkinator,
}


# --- the clients


def installed(report: Report, arguments: argparse.Namespace) -> list[Client]:
    """The clients that are here; the others are reported, and are failures in CI."""
    if arguments.spider:
        return [Client("spider", [str(arguments.spider), "{START}"], "spider")]
    python, modules = arguments.python, arguments.node_modules
    beside = pathlib.Path(python).parent
    node = shutil.which("node")
    linkinator = modules and modules / "node_modules/.bin/linkinator"
    linkchecker = shutil.which("linkchecker", path=f"{beside}:{os.environ.get('PATH', '')}")
    library = [python, str(HERE / "lost_python.py")]
    candidates = [
        (_imports(python, "scrapy"), Client("scrapy", [python, "-m", "scrapy", "runspider", str(HERE / "lost_spider.py"), "-a", "start={START}"], "Scrapy")),
        (_imports(python, "crawlee, bs4"), Client("crawlee-py", [*library, "crawlee", "{PROXY}"], "Crawlee for Python")),
        (
            node and modules and (modules / "node_modules/@crawlee/cheerio").exists(),
            Client("crawlee-js", ["node", str(HERE / "lost_crawlee.mjs"), str(modules), "{PROXY}", "{START}"], "Crawlee for Node"),
        ),
        (shutil.which("wget"), Client("wget", ["wget", "--no-config", "--no-hsts", "--recursive", "--level=inf", "--directory-prefix={FOLDER}/tree", "{START}"], "wget")),
        (
            shutil.which("aria2c"),
            Client("aria2", ["aria2c", "--no-conf=true", "--max-concurrent-downloads=16", "--dir={FOLDER}/tree", "--input-file={FOLDER}/urls"], "aria2", follows=False),
        ),
        (_imports(python, "requests"), Client("requests", [*library, "requests", "{PROXY}"], "requests", follows=False)),
        (_imports(python, "aiohttp"), Client("aiohttp", [*library, "aiohttp", "{PROXY}"], "aiohttp", follows=False)),
        (_imports(python, "httpx"), Client("httpx", [*library, "httpx", "{PROXY}"], "httpx", follows=False)),
        (
            linkchecker,
            Client("linkchecker", [str(linkchecker), "--no-status", "--no-warnings", "--verbose", "--output=csv/utf-8", "{START}"], "LinkChecker"),
        ),
        (node and linkinator and linkinator.exists(), Client("linkinator", [str(linkinator), "{START}", "--recurse", "--format", "json"], "linkinator")),
    ]
    found = []
    for here, client in candidates:
        if here:
            found.append(client)
        else:
            report.missing(f"{client.needs} crawls sixty pages", client.needs)
    # Heritrix and Nutch have no package for pip, npm or apt; spider has hundreds of dependencies to compile.
    print("      not run: Heritrix, Nutch; .ci/full runs spider", flush=True)
    return found


def _imports(python: str, modules: str) -> bool:
    return subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode == 0


# --- the run


def main() -> int:
    arguments = _arguments()
    report = Report()
    report.section("Lost pages: real clients with their own defaults, sixty pages, and trouble")
    with tempfile.TemporaryDirectory(prefix="crawlgate-lost-") as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        clients = installed(report, arguments)
        crawls, log = _run(arguments.binary, clients, folder)
        _judge(report, crawls, _listed(arguments.binary, log), _asked(log))
    return report.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[1] / "target" / "release" / "crawlgate")
    parser.add_argument("--python", type=pathlib.Path, default=sys.executable, help="a Python that has requirements.txt")
    parser.add_argument("--node-modules", type=pathlib.Path, help="a folder in which npm installed the Node clients")
    parser.add_argument("--spider", type=pathlib.Path, help="only this client: the program of tests/acceptance/rust_clients")
    parser.add_argument("--keep", type=pathlib.Path, help="leave logs and downloads in this new or empty folder")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    # Not resolved: a virtual environment's Python is a link.
    arguments.python = str(arguments.python.absolute())
    for name in ("node_modules", "spider", "keep"):
        if path := getattr(arguments, name):
            setattr(arguments, name, path.resolve())
    if arguments.keep and arguments.keep.exists() and any(arguments.keep.iterdir()):
        parser.error(f"{arguments.keep} is not empty")
    return arguments


def _run(binary: pathlib.Path, clients: list[Client], folder: pathlib.Path) -> tuple[list[Crawl], pathlib.Path]:
    """All crawls, side by side; and the decision log."""
    site = Site()
    hosts = {f"{client.name}.{trouble}.test": "127.0.0.1" for client in clients for trouble in TROUBLES}
    policy = folder / "policy.yaml"
    _write_policy(policy, [])
    everywhere = {"allow_loopback": True, "ports": ["1-65535"], "connect_ports": ["1-65535"]}
    gate = Gate(binary, policy, folder, {"egress": {**everywhere, "hosts": hosts}})
    crawls: list[Crawl] = []
    try:
        crawls += (Crawl(client, trouble, site, gate, folder) for trouble in TROUBLES for client in clients)
        refused: list[str] = []
        while any([crawl.runs() for crawl in crawls]):
            time.sleep(0.2)
            wanted = [crawl.host for crawl in crawls if crawl.refused_now()]
            if wanted != refused:
                refused = wanted
                _write_policy(policy, refused)
                gate.hang_up()
    finally:
        for crawl in crawls:
            crawl.end()
        gate.stop()
        site.stop()
    return crawls, gate.decisions


def _write_policy(path: pathlib.Path, refused: list[str]) -> None:
    """The defaults, and a rule that refuses these hosts for now."""
    rules = [{"id": "later", "forbid": {"host": refused}, "reject": "later"}] if refused else []
    text = json.dumps({"policy": 1, "name": "lost", "options": {"disposition": "allow"}, "rules": rules})
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _asked(log: pathlib.Path) -> dict[str, int]:
    """The number of requests for each URL that the log has."""
    asked: dict[str, int] = {}
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if url := json.loads(line)["url"]:
                asked[url] = asked.get(url, 0) + 1
    return asked


def _listed(binary: pathlib.Path, log: pathlib.Path) -> dict[str, str]:
    """The pages that `crawlgate decisions --lost` lists, and why: the reason of a refusal, `failed` or `client_left`."""
    command = [binary, "decisions", "--lost", "--format", "json", "--since", "1h", "--log", log]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
    if done.returncode not in (0, 1):
        raise RuntimeError(f"crawlgate decisions --lost: exit code {done.returncode}: {done.stderr}")
    found = json.loads(done.stdout)
    if found["left_out"] or found["dropped"] or found["without_url"]:
        raise RuntimeError(f"the list is not complete: {done.stdout[-300:]}")
    return {lost["url"]: lost["reason"] if lost["loss"] == "later" else lost["loss"] for lost in found["urls"]}


def _judge(report: Report, crawls: list[Crawl], listed: dict[str, str], asked: dict[str, int]) -> None:
    cells: dict[str, dict[str, str]] = {}
    unexplained = 0
    for crawl in crawls:
        got = crawl.got()
        lost = [url for url in crawl.urls if url not in got]
        # Without the start page a client that follows links knows no other.
        hidden = [url for url in lost if url not in asked and url not in listed and crawl.urls[0] in listed]
        missing = [url for url in lost if url not in listed and url not in hidden]
        unexplained += len(missing)
        cells.setdefault(crawl.client.name, {})[crawl.trouble] = _cell(got, lost, listed, hidden)
        problems = [f"{url}: not got, and not listed" for url in missing]
        problems += [f"ended after {PATIENCE:.0f} s"] if crawl.timed_out else []
        if crawl.client.name in PATIENT and crawl.trouble in ("pace", "robots"):
            problems += [f"{url}: lost ({listed.get(url, 'not listed')})" for url in lost]
        # The others may be done before.
        if crawl.client.name in PATIENT and crawl.trouble == "later" and crawl.refused_at is None:
            problems.append("its host was never refused")
        report.check(f"{crawl.client.needs}, {TROUBLES[crawl.trouble]}: {len(got)} got, {len(lost)} lost, {crawl.seconds:.0f} s", problems, len(crawl.urls))
    report.equal("pages lost without a listed reason", unexplained, 0)
    _print_table(cells)


def _cell(got: set[str], lost: list[str], listed: dict[str, str], hidden: list[str]) -> str:
    """`60`, or `57, 3 listed (rate_limited)`."""
    reasons = sorted({listed[url] for url in lost if url in listed})
    count = sum(url in listed for url in lost)
    text = f"{len(got)}"
    text += f", {count} listed ({', '.join(reasons)})" if count else ""
    text += f", {len(hidden)} not known" if hidden else ""
    missing = len(lost) - count - len(hidden)
    return text + (f", {missing} LOST" if missing else "")


def _print_table(cells: dict[str, dict[str, str]]) -> None:
    print("\n| client | " + " | ".join(TROUBLES.values()) + " |\n|---|" + "---|" * len(TROUBLES))
    for name, row in cells.items():
        print(f"| {name} | " + " | ".join(row.get(trouble, "") for trouble in TROUBLES) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
