"""Hooks of the documentation's site: its navigation, and links out of docs/."""

import logging
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
ROW = re.compile(r"^\| \[(?P<title>.+?)\]\((?P<path>[^)#]+\.md)\)")
# The tests mark examples by further words; the highlighter takes one.
FENCE = re.compile(r"^(```[a-z]+) .*$", re.MULTILINE)
log = logging.getLogger("mkdocs.hooks.site")


def on_config(config):
    config.nav = [{"Overview": "README.md"}]
    for heading, pages in sections(Path(config.docs_dir), "README.md"):
        config.nav.append({heading: pages})
    return config


def sections(docs, index):
    """Yields the headings of an index with the pages of the tables below them. An index among them is a section."""
    folder = posixpath.dirname(index)
    heading, pages = None, []
    for line in (docs / index).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            if pages:
                yield heading, pages
            heading, pages = line[3:], []
        row = ROW.match(line)
        if row is None:
            continue
        page = posixpath.normpath(posixpath.join(folder, row["path"]))
        if page.startswith("../"):
            continue
        if posixpath.basename(page) == "README.md":
            inner = [inner for _, found in sections(docs, page) for inner in found]
            pages.append({row["title"]: [page, *inner]})
        else:
            pages.append({row["title"]: page})
    if pages:
        yield heading, pages


def on_page_markdown(markdown, page, config, files):
    markdown = FENCE.sub(r"\1", markdown)
    return LINK.sub(lambda link: target(link[0], page.file.src_uri, config), markdown)


def target(link, page, config):
    """Returns the address in the repository of a link that leads out of docs/, or to a folder in it; others as they are."""
    if re.match(r"[a-z]+:|#|/", link):
        return link
    path, _, fragment = link.partition("#")
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), path))
    file = ROOT / path
    if path.startswith("docs/") and not file.is_dir():
        return link
    if path.startswith("..") or not file.exists():
        log.warning("%s: the repository has no %s", page, path)
        return link
    kind = "tree" if file.is_dir() else "blob"
    address = f"{config.extra['repository']}/{kind}/{config.extra['branch']}/{path}"
    return f"{address}#{fragment}" if fragment else address
