"""Ledger: what is remembered of URLs, what was told of them, what memory refuses, and whether the disk keeps up."""

from .grafana import Board, heading, lines, number

EVENTS = "crawlgate_ledger_events_total"
FEED = "crawlgate_ledger_feed_events_total"
URLS = "crawlgate_ledger_urls"
BY_MEMORY = 'crawlgate_decisions_total{@,verdict="reject",reason=~"budget|premature|unmodified|duplicate|trap|too_deep"}'

NOW = [
    heading("Now"),
    number(
        "URLs",
        "URLs that are remembered, one for each crawler that asked for it.",
        "short",
        f"sum({URLS}{{@}})",
        width=4,
    ),
    number(
        "Accepted",
        "Of the URLs that are remembered, those whose last answer was passed on.",
        "percentunit",
        f'sum({URLS}{{@,status="ACCEPTED"}}) / (sum({URLS}{{@}}) > 0)',
        width=4,
    ),
    number(
        "Removals",
        "Removal orders that were written in the time range. Many at once after a reload mean that a crawl space shrank: "
        "was that meant?",
        "short",
        f'sum(increase({EVENTS}{{@,kind="removal"}}[$__range]))',
        width=4,
        trend=False,
    ),
    number(
        "Not written yet",
        "Changes that are not on the disk, on the instance that has most. The limit is ledger.queue, 10,000 by default; at "
        "the limit requests wait.",
        "short",
        "max(crawlgate_ledger_queue{@})",
        width=4,
        steps=[(5000, "yellow"), (9500, "red")],
    ),
    number(
        "Lost looks",
        "Looks at URLs that the ledger does not remember, in the time range: the disk too slow with ledger.on_full: drop, "
        "or a disk that fails.",
        "short",
        "sum(increase(crawlgate_ledger_dropped_total{@}[$__range]))",
        width=4,
        steps=[(1, "red")],
        trend=False,
    ),
    number(
        "Dead letters",
        "Events that the webhook did not take, in the time range; they are in events-undelivered.ndjson.",
        "short",
        f'sum(increase({FEED}{{@,result="dead_letter"}}[$__range]))',
        width=4,
        steps=[(1, "red")],
        trend=False,
    ),
]

KEPT = [
    heading("What is remembered"),
    lines(
        "URLs by what became of them",
        "The last thing that happened to each URL, in the words of Crawl-Status.",
        "short",
        [("{{status}}", f"sum by (status) ({URLS}{{@}}) > 0")],
        stacked=True,
    ),
    lines(
        "Refused by memory",
        "premature: asked for again too soon. unmodified, duplicate: the document is known. budget: the day's allowance is "
        "used up. trap, too_deep: patterns without end, and links too far from a start.",
        "reqps",
        [("{{reason}}", f"sum by (reason) (rate({BY_MEMORY}[~]))")],
        stacked=True,
    ),
]

TOLD = [
    heading("What is told to those who keep an index"),
    lines(
        "Events by kind",
        "removal: must leave the index. permanent_error: failed for good, and no index has it. moved: another crawler has it.",
        "cps",
        [("{{kind}}", f"sum by (kind) (rate({EVENTS}{{@}}[~]))")],
        stacked=True,
    ),
    lines(
        "Events on their way out",
        "Events that ledger.events.file and .webhook took, and those that the webhook did not.",
        "cps",
        [("{{feed}} {{result}}", f"sum by (feed, result) (rate({FEED}{{@}}[~]))")],
    ),
    lines(
        "Events not delivered yet",
        "The more, the later an index hears of a removal.",
        "short",
        [("{{instance}} {{feed}}", "max by (instance, feed) (crawlgate_ledger_feed_behind{@})")],
    ),
    lines(
        "Deliveries that failed",
        "Tries of the file or the webhook that failed, a second; what can help is tried again.",
        "cps",
        [("{{feed}}", "sum by (feed) (rate(crawlgate_ledger_feed_failures_total{@}[~]))")],
    ),
]

DISK = [
    heading("The disk"),
    lines(
        "Changes not written yet",
        "A queue that stays long means that the disk does not keep up.",
        "short",
        [("{{instance}}", "max by (instance) (crawlgate_ledger_queue{@})")],
    ),
    lines(
        "Waits, losses and failed commits",
        "Requests that waited for room, looks that were lost, and attempts to write that failed, a second.",
        "cps",
        [
            ("waits", "sum(rate(crawlgate_ledger_waits_total{@}[~]))"),
            ("lost", "sum(rate(crawlgate_ledger_dropped_total{@}[~]))"),
            ("failed commits", "sum(rate(crawlgate_ledger_failures_total{@}[~]))"),
        ],
    ),
]

BOARD = Board(
    "crawlgate-ledger",
    "crawlgate / Ledger and events",
    "What is remembered of URLs, what was told of them, and whether the disk keeps up.",
    [*NOW, *KEPT, *TOLD, *DISK],
)
