"""The content of the test site: every page of every host, as data.

It knows hosts, paths, bodies and framings. It does not know the policy: which URL must be refused stands in
`expected.tsv`, written by hand, and is never worked out from here or by crawlgate.
"""

from __future__ import annotations

import dataclasses
import gzip
import random
import re

WWW, DOCS, MEDIA, CAL = "www.crawl.test", "docs.crawl.test", "media.crawl.test", "cal.crawl.test"
OLD, NEAR, ZERO = "old.crawl.test", "near.crawl.test", "zero.crawl.test"
PARTNER, BLOCKED, SUB_BLOCKED, ELSEWHERE = "partner.test", "blocked.test", "sub.blocked.test", "elsewhere.test"

# The address that the proxy's `egress.hosts` gives each name. `near` has a second loopback address, which the
# policy refuses; `zero` has one that must never be dialled, although a kernel would connect it to this site.
HOSTS = {
    WWW: "127.0.0.1",
    DOCS: "127.0.0.1",
    MEDIA: "127.0.0.1",
    CAL: "127.0.0.1",
    OLD: "127.0.0.1",
    PARTNER: "127.0.0.1",
    BLOCKED: "127.0.0.1",
    SUB_BLOCKED: "127.0.0.1",
    ELSEWHERE: "127.0.0.1",
    NEAR: "127.0.0.2",
    ZERO: "0.0.0.0",
}

# Every body of the site contains this, so that a single leaked one is seen.
MARK = b"bytes-of-the-origin"

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Page:
    """One answer of the origin.

    `framing` is how the body's end is told: `length`, `chunked`, `trailer` (chunked with a trailer field),
    `slow` (chunked, with pauses), `close` (end of the connection), `old` (HTTP/1.0 and close),
    `short` (promises more than it sends), `garbage` (is not HTTP at all).
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    framing: str = "length"


class Site:
    """The pages of all hosts; `port` and scheme are needed because links and redirects name them."""

    def __init__(self, port: int, scheme: str = "http") -> None:
        self.port = port
        self._scheme = scheme
        self.pages: dict[tuple[str, str], Page] = {}
        for build in (self._www, self._docs, self._media, self._cal, self._partner, self._small_hosts):
            build()

    def find(self, host: str, target: str) -> Page:
        """The page at `target` (path and query, as on the wire) of `host`, else a 404."""
        page = self.pages.get((host, target)) or self._endless(host, target)
        return page or html(host, target, "not here", status=404)

    def url(self, host: str, target: str) -> str:
        """An absolute URL of this site."""
        return f"{self._scheme}://{host}:{self.port}{target}"

    # One method a host. A page that lists links makes them all part of every crawl.

    def _www(self) -> None:
        news = [f"/news/{n}.html" for n in range(1, 31)]
        hosts = [self.url(host, "/") for host in HOSTS if host != WWW]
        sections = [
            "/news/",
            "/spellings.html",
            "/bodies.html",
            "/errors.html",
            "/files/",
            "/go/",
            "/closed.html",
            "/deep.html",
            "/listing/",
            "/odd.html",
        ]
        self._list(WWW, "/", [*sections, *hosts, self.url(PARTNER, "/shared/")])
        self._list(WWW, "/news/", [*news, "/news/drafts/1.html", "/news/drafts/2.html", "/news/drafts/public.html"])
        for n in range(1, 31):
            images = [self.url(MEDIA, f"/img/{n}.png")] if n <= 20 else []
            links = [f"/news/{n % 30 + 1}.html", self.url(DOCS, f"/guide/{n % 15 + 1}.html")]
            copies = [f"/news/print/{n}.html"] if n <= 3 else []
            self._list(WWW, f"/news/{n}.html", [*links, *copies], images)
        self._texts(WWW, [f"/news/print/{n}.html" for n in range(1, 4)])
        self._texts(WWW, ["/news/drafts/1.html", "/news/drafts/2.html", "/news/drafts/public.html"])
        self._closed_sections()
        self._spellings()
        self._bodies()
        self._errors()
        self._files()
        self._redirects()
        self._odd()

    def _closed_sections(self) -> None:
        closed = [
            "/cgi-bin",
            "/cgi-bin/search?q=crawl",
            "/cgi-bin/form.html",
            "/private/",
            "/private/a.html",
            "/embargo/report.html",
            "/embargo/annex.pdf",
            "/attic/",
            "/attic/1.html",
        ]
        near_misses = ["/cgi-bins/ok.html", "/CGI-BIN/about.html", "/privateer.html", "/private/press.html"]
        self._list(WWW, "/closed.html", [*closed, *near_misses, "/private/press.bin"])
        self._texts(WWW, [*closed, *near_misses])
        self._file(WWW, "/private/press.bin", "application/octet-stream", 5000)
        deep = ["/deep/" + "/".join(f"d{n}" for n in range(depth)) + "/" for depth in (10, 11, 20)]
        repeating = ["/loop/a/loop/b.html", "/loop/a/loop/b/loop/c.html"]
        long = ["/long?text=" + "x" * length for length in (400, 700)]
        self._list(WWW, "/deep.html", [*deep, *repeating, *long])
        self._texts(WWW, [*deep, *repeating, *long])

    def _spellings(self) -> None:
        """Links as careless and hostile pages write them; their interpretation is up to the client."""
        host = WWW.upper()
        spelled = [
            "/%63gi-bin/form.html",
            "/cgi-bin%2Fform.html",
            "/open/../cgi-bin/form.html",
            "/open/%2e%2e/cgi-bin/form.html",
            "/./cgi-bin/./form.html",
            self.url(WWW, "//cgi-bin/form.html"),
            f"{self._scheme}://{host}:{self.port}/cgi-bin/form.html",
            f"{self._scheme.upper()}://{host}:{self.port}/open/upper.html",
            "/priv%61te/a.html",
            "/open%2Fcoded.html",
            "/%7Euser/",
            "/open/gr\u00f6\u00dfe.html",
            "/open/a<b>&quot;c&quot;.html",
            "/open/two words.html",
            "/open//double.html",
            "/open/x/../dots.html",
        ]
        self._list(WWW, "/spellings.html", spelled)
        self._texts(
            WWW,
            [
                "/open/upper.html",
                "/open%2Fcoded.html",
                "/%7Euser/",
                "/~user/",
                "/open/dots.html",
                "/open/gr%C3%B6%C3%9Fe.html",
                "/open/gr%F6%DFe.html",
                "/open/two%20words.html",
                "/open/a%3Cb%3E%22c%22.html",
                "/open/a%60b.html",
                "//cgi-bin/form.html",
                "/open//double.html",
                "/%63gi-bin/form.html",
                "/cgi-bin%2Fform.html",
                "/priv%61te/a.html",
                "/s%3Bjsessionid=AB12/a.html",
            ],
        )

    def _bodies(self) -> None:
        framings = {"chunked": "chunked", "trailer": "trailer", "slow": "slow", "close": "close", "old": "old"}
        paths = []
        for name, framing in framings.items():
            paths.append(f"/body/{name}.html")
            self._put(WWW, paths[-1], html(WWW, paths[-1], "framed " * 3000, framing=framing))
        for name, size, framing in (
            ("mib", MIB, "length"),
            ("mib-chunked", MIB, "chunked"),
            ("two-mib", 2 * MIB, "length"),
        ):
            paths.append(f"/body/{name}.html")
            self._file(WWW, paths[-1], "text/html", size, framing)
        paths.append("/body/gzip.html")
        packed = gzip.compress(b"<!DOCTYPE html><p>packed</p>" * 400, mtime=0) + MARK
        self._put(WWW, paths[-1], Page(200, (("Content-Type", "text/html"), ("Content-Encoding", "gzip")), packed))
        paths.append("/body/empty.html")
        self._put(WWW, paths[-1], Page(200, (("Content-Type", "text/html"),)))
        paths.append("/body/none")
        self._put(WWW, paths[-1], Page(204))
        self._list(WWW, "/bodies.html", paths)
        # Not linked: only the driver requests them.
        for framing in ("short", "garbage"):
            self._put(WWW, f"/broken/{framing}", html(WWW, f"/broken/{framing}", "broken " * 500, framing=framing))

    def _errors(self) -> None:
        statuses = (403, 404, 410, 418, 451, 500, 503)
        paths = [f"/error/{status}" for status in statuses]
        for status, path in zip(statuses, paths):
            # Without it the host would be left alone for five seconds and more.
            rest = (("Retry-After", "1"),) if status == 503 else ()
            self._put(WWW, path, html(WWW, path, "an error page", status=status, headers=rest))
        self._list(WWW, "/errors.html", [*paths, "/error/missing.html"])

    def _files(self) -> None:
        files = [
            ("/files/a.zip", "application/zip"),
            ("/files/b.tar.gz", "application/gzip"),
            ("/files/SETUP.EXE", "application/octet-stream"),
            ("/files/c.zip?from=home", "application/zip"),
            ("/files/page.zip", "text/html"),
            ("/files/readme.txt", "text/plain"),
            ("/files/get?name=a.zip", "application/zip"),
            ("/files/zip", "text/plain"),
            ("/files/song.ogg", "audio/ogg"),
            ("/files/raw", "Application/Octet-Stream"),
        ]
        for path, kind in files:
            self._file(WWW, path, kind, 3000)
        self._list(WWW, "/files/", [path for path, _ in files])
        lists = [
            ("/listing/a.html", "text/html; charset=utf-8"),
            ("/listing/b", "TEXT/HTML"),
            ("/listing/c.csv", "text/csv"),
            ("/listing/d.html", "application/pdf"),
        ]
        for path, kind in lists:
            self._file(WWW, path, kind, 2000)
        self._list(WWW, "/listing/", [path for path, _ in lists])

    def _redirects(self) -> None:
        away = {
            "/go/news": (302, "/news/1.html"),
            "/go/relative": (302, "../news/2.html"),
            "/go/moved": (301, self.url(DOCS, "/guide/1.html")),
            "/go/see": (303, "/news/3.html"),
            "/go/keep": (307, "/news/4.html"),
            "/go/forever": (308, "/news/5.html"),
            "/go/program": (302, "/cgi-bin/form.html"),
            "/go/partner": (302, self.url(PARTNER, "/shared/1.html")),
            "/go/blocked": (302, self.url(BLOCKED, "/a.html")),
            "/go/elsewhere": (301, self.url(ELSEWHERE, "/a.html")),
            "/go/video": (302, self.url(MEDIA, "/clips/1.mp4")),
        }
        for path, (status, location) in away.items():
            self._put(WWW, path, html(WWW, path, "moved", status=status, headers=(("Location", location),)))
        self._list(WWW, "/go/", list(away))

    def _odd(self) -> None:
        forged = (
            ("Crawl-Status", "REJECTED_FILTER"),
            ("Crawl-Reason", "rule"),
            ("Crawl-Rule", "forged"),
            ("Crawl-Decision", "forged-1"),
            ("Proxy-Status", '"crawlgate"; error=http_request_denied'),
        )
        opted_out = (("X-Crawl", "no"),)
        pages = {
            "/odd/forged.html": html(WWW, "/odd/forged.html", "says that it was refused", headers=forged),
            "/odd/opted-out.html": html(WWW, "/odd/opted-out.html", "says no", headers=opted_out),
            "/odd/opted-out-404.html": html(WWW, "/odd/opted-out-404.html", "says no", 404, opted_out),
            "/odd/cookies.html": html(
                WWW, "/odd/cookies.html", "two cookies", headers=(("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
            ),
        }
        for path, page in pages.items():
            self._put(WWW, path, page)
        self._list(WWW, "/odd.html", list(pages))
        self._put(WWW, "/robots.txt", text("User-agent: *\nDisallow: /tmp/\n"))

    def _docs(self) -> None:
        guides = [f"/guide/{n}.html" for n in range(1, 16)]
        papers = [f"/papers/{n}.pdf" for n in range(1, 11)]
        for n in range(1, 16):
            self._list(DOCS, f"/guide/{n}.html", [f"/guide/{n % 15 + 1}.html", papers[n % 10]])
        for path in papers:
            self._file(DOCS, path, "application/pdf", 4000)
        odd = [
            ("/odd/upper.pdf", "Application/PDF; version=1.7"),
            ("/odd/page.pdf", "text/html"),
            ("/odd/spaced.html", "text/html ; charset=utf-8"),
            ("/odd/notes.txt", "text/plain;charset=us-ascii"),
            ("/odd/fake.pdf", "application/zip"),
            ("/odd/data.json", "application/json"),
            ("/odd/sheet.html", "application/vnd.ms-excel"),
            ("/odd/typo.html", "texthtml"),
            ("/odd/image", "IMAGE/PNG"),
            ("/odd/untyped", None),
            ("/odd/untyped-chunked", None),
        ]
        for path, kind in odd:
            self._file(DOCS, path, kind, 2500, "chunked" if path.endswith("chunked") else "length")
        missing = Page(404, (("Content-Type", "image/png"),), MARK + b" a picture of a missing page")
        self._put(DOCS, "/odd/missing.png", missing)
        self._put(DOCS, "/robots.txt", text("User-agent: *\nDisallow:\n"))
        self._list(DOCS, "/", [*guides, *papers, *(path for path, _ in odd), "/odd/missing.png"])

    def _media(self) -> None:
        images = [f"/img/{n}.png" for n in range(1, 21)]
        for n, path in enumerate(images):
            self._file(MEDIA, path, "image/png", 500 + 700 * n)
        clips = [(f"/clips/{n}.mp4", "video/mp4") for n in range(1, 6)]
        clips += [
            ("/clips/upper.mp4", 'VIDEO/MP4; codecs="avc1"'),
            ("/clips/latin.mp4", 'video/mp4; name="caf\u00e9"'),
            ("/clips/bare", "video/webm"),
            ("/clips/stream.ts", "video/mp2t"),
            ("/clips/closed.avi", "video/x-msvideo"),
            ("/clips/poster.mp4", "image/jpeg"),
            ("/clips/tune.ogg", "audio/ogg"),
        ]
        for path, kind in clips:
            framing = {"/clips/stream.ts": "chunked", "/clips/closed.avi": "close"}.get(path, "length")
            self._file(MEDIA, path, kind, MIB if path == "/clips/1.mp4" else 20_000, framing)
        types = (("Content-Type", "unknown"), ("Content-Type", "video/mp4"))
        self._put(MEDIA, "/clips/twice.mp4", Page(200, types, filler("twice", 20_000)))
        self._file(MEDIA, "/img/edge.png", "image/png", 65_535)
        self._file(MEDIA, "/img/large.png", "image/png", 65_536)
        self._file(MEDIA, "/img/large-chunked.png", "image/png", 80_000, "chunked")
        galleries = [f"/gallery/{n}.html" for n in range(1, 6)]
        for n, path in enumerate(galleries):
            self._list(MEDIA, path, [galleries[(n + 1) % 5]], images[n * 4 : n * 4 + 4])
        pictures = ["/img/edge.png", "/img/large.png", "/img/large-chunked.png"]
        self._list(MEDIA, "/", [*galleries, *(path for path, _ in clips), "/clips/twice.mp4"], pictures)

    def _cal(self) -> None:
        items = [f"/items?page={n}" for n in range(1, 11)]
        sorted_items = [
            "/items?sort=price",
            "/items?page=2&sort=name",
            "/items?sort=pric%65",
            "/items?sort=&sort=name",
            "/items?SORT=price",
            "/items?sort=priceless",
            "/items?sort=",
        ]
        filters = [
            "/filter?a=1&b=2",
            "/filter?a=1&b=2&c=3&d=4&e=5",
            "/filter?a=1&b=2&c=3&d=4&e=5&f=6",
            "/filter?a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8",
        ]
        sessions = [
            "/s?sessionid=41d2",
            "/s?page=1&PHPSESSID=99aa",
            "/s;jsessionid=AB12CD/a.html",
            "/s;JSESSIONID=ab12cd/a.html",
            "/s?session=closed",
        ]
        self._texts(CAL, [*items, *sorted_items, *filters, *sessions])
        self._list(CAL, "/", ["/calendar?month=2026-01", "/calendar", *items, *sorted_items, *filters, *sessions])

    def _partner(self) -> None:
        shared = [f"/shared/{n}.html" for n in range(1, 11)]
        other = [f"/other/{n}.html" for n in range(1, 6)]
        self._texts(PARTNER, [*shared, *other, "/sharedness.html"])
        self._file(PARTNER, "/shared/data.json", "application/json", 900)
        self._list(PARTNER, "/shared/", [*shared, "/shared/data.json", *other, "/sharedness.html"])
        self._list(PARTNER, "/", ["/shared/"])
        self._list(PARTNER, "/shared", ["/shared/"])
        self._put(PARTNER, "/robots.txt", text("User-agent: *\nDisallow: /other/\n"))

    def _small_hosts(self) -> None:
        for host in (OLD, BLOCKED, SUB_BLOCKED, ELSEWHERE, NEAR, ZERO):
            self._list(host, "/", ["/a.html"])
            self._texts(host, ["/a.html"])
            self._put(host, "/robots.txt", text("User-agent: *\nDisallow:\n"))

    def _endless(self, host: str, target: str) -> Page | None:
        """The calendar has a page for every month of all years, with links to the adjacent ones."""
        month = re.fullmatch(r"/calendar\?month=(\d{4})-(\d\d)(&view=[a-z]+)?", target)
        if host != CAL or not (month or target == "/calendar"):
            return None
        count = int(month[1]) * 12 + int(month[2]) - 1 if month else 2026 * 12
        beside = [f"/calendar?month={at // 12:04}-{at % 12 + 1:02}" for at in (count - 1, count + 1)]
        views = [
            f"/calendar?month={count // 12:04}-{count % 12 + 1:02}&view={view}" for view in ("day", "week", "month")
        ]
        return html(host, target, links([*beside, *views]))

    def _put(self, host: str, target: str, page: Page) -> None:
        assert (host, target) not in self.pages, target
        self.pages[host, target] = page

    def _list(self, host: str, target: str, hrefs: list[str], images: list[str] | None = None) -> None:
        self._put(host, target, html(host, target, links(hrefs, images or [])))

    def _texts(self, host: str, targets: list[str]) -> None:
        for target in targets:
            self._put(host, target, html(host, target, "plain words " * 40))

    def _file(self, host: str, target: str, kind: str | None, size: int, framing: str = "length") -> None:
        headers = (("Content-Type", kind),) if kind is not None else ()
        self._put(host, target, Page(200, headers, filler(host + target, size), framing))


def html(
    host: str,
    target: str,
    inner: str,
    status: int = 200,
    headers: tuple[tuple[str, str], ...] = (),
    framing: str = "length",
) -> Page:
    """An HTML page that says which it is."""
    title = f"{host}{target}".replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    body = f"<!DOCTYPE html><meta charset=utf-8><title>{title}</title>\n<!-- {MARK.decode()} -->\n{inner}\n"
    return Page(status, (("Content-Type", "text/html; charset=utf-8"), *headers), body.encode(), framing)


def text(body: str) -> Page:
    """A plain text, as robots.txt is."""
    return Page(200, (("Content-Type", "text/plain"),), f"# {MARK.decode()}\n{body}".encode())


def links(hrefs: list[str], images: list[str] | None = None) -> str:
    """Anchors and images; an ampersand is escaped as HTML requires, everything else is unchanged."""
    anchors = [f'<a href="{escape(href)}">link</a>' for href in hrefs]
    pictures = [f'<img src="{escape(src)}" alt="">' for src in images or []]
    return "\n".join([*anchors, *pictures])


def escape(href: str) -> str:
    """`&` as HTML writes it, unless the page wrote an entity itself."""
    return re.sub(r"&(?!quot;)", "&amp;", href)


def filler(seed: str, size: int) -> bytes:
    """`size` bytes that no other page has; they begin with the mark."""
    rest = random.Random(seed).randbytes(max(0, size - len(MARK)))
    return (MARK + rest)[:size]
