"""Ledger: the recorded URLs, refusals based on them, events, and the disk."""

from .grafana import Board, heading, lines, number

EVENTS = "crawlgate_ledger_events_total"
FEED = "crawlgate_ledger_feed_events_total"
URLS = "crawlgate_ledger_urls"
BY_MEMORY = 'crawlgate_decisions_total{@,verdict="reject",reason=~"budget|premature|unmodified|duplicate|trap|too_deep"}'

NOW = [
    heading("Now"),
    number(
        "URLs",
        "URLs in the ledger, counted once for each crawler that requested them.",
        "short",
        f"sum({URLS}{{@}})",
        width=4,
    ),
    number(
        "Accepted",
        "Share of the URLs in the ledger whose last answer was passed on.",
        "percentunit",
        f'sum({URLS}{{@,status="ACCEPTED"}}) / (sum({URLS}{{@}}) > 0)',
        width=4,
    ),
    number(
        "Removals",
        "Removal events in the time range. Many at once after a reload mean that a crawl space became smaller: was that "
        "intended?",
        "short",
        f'sum(increase({EVENTS}{{@,kind="removal"}}[$__range]))',
        width=4,
        trend=False,
    ),
    number(
        "Pending changes",
        "Changes that are not yet on disk, on the instance with the most. The limit is ledger.queue, 10,000 by default; at "
        "the limit requests wait.",
        "short",
        "max(crawlgate_ledger_queue{@})",
        width=4,
        steps=[(5000, "yellow"), (9500, "red")],
    ),
    number(
        "Lost looks",
        "Changes that the ledger lost in the time range: the disk is too slow and ledger.on_full is drop, or the disk "
        "fails.",
        "short",
        "sum(increase(crawlgate_ledger_dropped_total{@}[$__range]))",
        width=4,
        steps=[(1, "red")],
        trend=False,
    ),
    number(
        "Dead letters",
        "Events in the time range that the webhook did not accept; they are in events-undelivered.ndjson.",
        "short",
        f'sum(increase({FEED}{{@,result="dead_letter"}}[$__range]))',
        width=4,
        steps=[(1, "red")],
        trend=False,
    ),
]

KEPT = [
    heading("URLs"),
    lines(
        "URLs by status",
        "The last outcome for each URL, as in Crawl-Status.",
        "short",
        [("{{status}}", f"sum by (status) ({URLS}{{@}}) > 0")],
        stacked=True,
    ),
    lines(
        "Refused because of earlier requests, or as traps",
        "premature: requested again too soon. unmodified, duplicate: the document is known. budget: the day's budget is "
        "used up. trap: an endless pattern of URLs. too_deep: too many links from a start page.",
        "reqps",
        [("{{reason}}", f"sum by (reason) (rate({BY_MEMORY}[~]))")],
        stacked=True,
    ),
    lines(
        "URLs by code",
        "OmniFind's code of the last refusal or failure. 760: the URL must leave the index. 761: it stays, since another "
        "crawler has it.",
        "short",
        [("{{code}}", "sum by (code) (crawlgate_ledger_codes{@}) > 0")],
        stacked=True,
    ),
    lines(
        "Requests of unknown depth",
        "Requests under a policy with max_depth or a condition on depth, to which neither applies because their depth is "
        "unknown.",
        "reqps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_depth_unknown_total{@}[~]))")],
    ),
]

TOLD = [
    heading("Events for systems that keep an index"),
    lines(
        "Events by kind",
        "removal: remove the URL from the index. permanent_error: it failed permanently, and is in no index. moved: another "
        "crawler has it. restored: a removal no longer applies.",
        "cps",
        [("{{kind}}", f"sum by (kind) (rate({EVENTS}{{@}}[~]))")],
        stacked=True,
    ),
    lines(
        "Event deliveries",
        "Events that ledger.events.file and .webhook accepted, and those that the webhook did not.",
        "cps",
        [("{{feed}} {{result}}", f"sum by (feed, result) (rate({FEED}{{@}}[~]))")],
    ),
    lines(
        "Pending events",
        "Events that are not delivered yet. The more there are, the later an index is told of a removal.",
        "short",
        [("{{instance}} {{feed}}", "max by (instance, feed) (crawlgate_ledger_feed_behind{@})")],
    ),
    lines(
        "Failed deliveries",
        "Failed attempts per second to write the file or post to the webhook. Errors that may be temporary are retried.",
        "cps",
        [("{{feed}}", "sum by (feed) (rate(crawlgate_ledger_feed_failures_total{@}[~]))")],
    ),
]

REMOVALS = [
    heading("Removals that are not ordered yet"),
    lines(
        "Pending and held removals, by cause",
        "URLs that leave the index after the grace time, and those of them that are held because one cause would remove "
        "too many (ledger.removal_guard).",
        "short",
        [
            ("pending: {{cause}}", "sum by (cause) (crawlgate_ledger_pending_removals{@})"),
            ("held: {{cause}}", "sum by (cause) (crawlgate_ledger_held_removals{@})"),
        ],
    ),
]

DISK = [
    heading("Disk"),
    lines(
        "Pending changes, by instance",
        "A queue that stays long means that the disk cannot keep up.",
        "short",
        [("{{instance}}", "max by (instance) (crawlgate_ledger_queue{@})")],
    ),
    lines(
        "Waits, losses and failed commits",
        "Requests that waited for space in the queue, lost changes, and failed attempts to write, per second.",
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
    "The URLs in the ledger, the events about them, and the disk.",
    [*NOW, *KEPT, *TOLD, *REMOVALS, *DISK],
)
