"""Scrapy with AutoThrottle and its usual retries, and a client that ignores Retry-After, at hosts that ask for rest.

Both must end with every page, and the hosts, by the kernel's time of arrival, must see their delay and their rest kept.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import subprocess
import threading
import time

import clients
from arrivals import DOMAIN, Origin, too_close, woken
from clients import Answer
from report import Report
from services import Gate

DELAY, ALLOWED = 0.1, 0.005
# Hosts 0 and 10 fail now and then.
HOSTS, PAGES = (0, 1, 10), 60
# The number of threads of the other client for each host, and the seconds after which it gives a page up. A host that
# fails several times in a row is left alone for up to a minute.
THREADS, PATIENCE = 3, 180
IGNORER = "a client that ignores Retry-After"


class Told:
    """How many answers with 503 had a Retry-After, and how many had none."""

    def __init__(self) -> None:
        self.after = 0
        self.bare = 0
        self._lock = threading.Lock()

    def count(self, answer: http.client.HTTPResponse) -> None:
        if answer.status != 503:
            return
        with self._lock:
            if answer.getheader("Retry-After", "").isdigit():
                self.after += 1
            else:
                self.bare += 1


def run(report: Report, binary: pathlib.Path, folder: pathlib.Path, python: str) -> None:
    """The whole check; the folder is made."""
    report.section("Scrapy with AutoThrottle, and a client that ignores Retry-After, at hosts that want rest")
    if subprocess.run([python, "-c", "import scrapy"], capture_output=True).returncode == 0:
        _check(report, "Scrapy with AutoThrottle", binary, folder / "throttled-scrapy", lambda at, urls, into: _scrapy(at, python, urls, into))
    else:
        report.missing("Scrapy with AutoThrottle", "Scrapy")
    told = Told()
    _check(report, IGNORER, binary, folder / "throttled-ignorer", lambda gate, urls, _: _ignorer(gate, urls, told))
    bare = [f"{told.bare} answers with 503 had none"] if told.bare else []
    report.check(f"{IGNORER}: each 503 told it when to come back", bare, told.after)


def _check(report: Report, name: str, binary: pathlib.Path, folder: pathlib.Path, client) -> None:
    folder.mkdir()
    politeness = {"delay": "100ms", "jitter": "1.0..1.0", "concurrency": 2}
    policy = {"policy": 1, "name": "polite", "options": {"disposition": "allow", "politeness": politeness}}
    (folder / "policy.yaml").write_text(json.dumps(policy), encoding="utf-8")
    origin = Origin(folder / "arrivals.bin", seed=7, failures=0.2)
    hosts = {f"h{number}.{DOMAIN}": "127.0.0.1" for number in HOSTS}
    settings = {"egress": {"allow_loopback": True, "ports": ["1-65535"], "hosts": hosts}}
    gate = Gate(binary, folder / "policy.yaml", folder, settings)
    urls = [origin.url(host, f"/{page}") for page in range(PAGES) for host in HOSTS]
    try:
        answers = client(gate, urls, folder)
    finally:
        gate.stop()
        log = origin.stop()
    got = {answer.url: answer for answer in answers}
    lost = [f"{url}: {got[url].status if url in got else 'no answer'}" for url in urls if url not in got or got[url].status != 200]
    report.check(f"{name}: every page", lost, len(urls))
    close, gaps = too_close(log, DELAY - ALLOWED)
    report.check(f"{name}: no two requests to a host less than 95 ms apart, the shortest {1000 * min(gaps):.3f}", close, len(gaps))
    report.check(f"{name}: a host that asks for rest gets it", woken(log, ALLOWED), sum(map(len, log.complaints.values())))


def _scrapy(gate: Gate, python: str, urls: list[str], folder: pathlib.Path) -> list[Answer]:
    options = ("RETRY_ENABLED=True", "AUTOTHROTTLE_ENABLED=True", "AUTOTHROTTLE_START_DELAY=0.1", "DOWNLOAD_TIMEOUT=180")
    settings = [word for option in options for word in ("-s", option)]
    return clients.scrapy_urls(gate.proxy, python, urls, folder, settings)


def _ignorer(gate: Gate, urls: list[str], told: Told) -> list[Answer]:
    """Waits for a twentieth of a second and repeats the request, until it has the page."""
    answers: list[Answer] = []
    queues = [[url for url in urls if f"//h{host}." in url][turn::THREADS] for host in HOSTS for turn in range(THREADS)]
    threads = [threading.Thread(target=_insist, args=(gate, queue, answers, told), daemon=True) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return answers


def _insist(gate: Gate, urls: list[str], answers: list[Answer], told: Told) -> None:
    for url in urls:
        status, body = 0, b""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=30)
            connection.request("GET", url, headers={"Crawl-Max-Wait": "0.05"})
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
            connection.close()
            told.count(answer)
            if status == 200:
                break
            time.sleep(0.01)
        answers.append(Answer("ignorer", "GET", url, status, {}, body))
