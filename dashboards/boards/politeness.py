"""Politeness and robots: do hosts get their rest, and is robots.txt known?"""

from .grafana import Board, heading, heat, lines, number, quantiles, share

# How a fetch of robots.txt ends when it cannot be had: the last known one holds, then the host is left alone.
UNREACHABLE = "limited|server_error|prohibited|refused|tls|dns|timeout|broken|coding|held"
FETCHES = "sum(rate(crawlgate_robots_fetches_total{@}[~]))"
ALL = "sum(rate(crawlgate_decisions_total{@}[~]))"

NOW = [
    heading("Now"),
    number(
        "Held",
        "Requests that wait for their host's turn, or for the end of a stop. The limit is limits.queue, 10,000 by "
        "default.",
        "short",
        "sum(crawlgate_held_requests{@})",
        steps=[(1000, "yellow"), (8000, "red")],
        width=4,
    ),
    number(
        "Hosts backing off",
        "Hosts that are left alone for a while: they asked for rest by 429 or 503, or kept failing.",
        "short",
        "sum(crawlgate_hosts_backing_off{@})",
        steps=[(10, "yellow"), (100, "red")],
        width=4,
    ),
    number(
        "Hosts tracked",
        "Hosts, addresses and domains whose pace is remembered.",
        "short",
        "sum(crawlgate_hosts_tracked{@})",
        width=4,
    ),
    number(
        "Slots taken",
        "Slots of hosts that requests hold: how many requests hosts are serving now.",
        "short",
        "sum(crawlgate_leases{@})",
        width=4,
    ),
    number(
        "robots.txt remembered",
        "Hosts whose robots.txt, or the lack of one, is remembered.",
        "short",
        "sum(crawlgate_robots_cache_entries{@})",
        width=4,
    ),
    number(
        "Stops in force",
        "Hosts, crawlers and rules that an operator has stopped (`crawlgate stop --list`).",
        "short",
        "max(crawlgate_stops{@})",
        steps=[(1, "yellow")],
        trend=False,
        width=4,
    ),
]

PACE = [
    heading("Pace"),
    heat(
        "How long requests wait",
        "Requests that had to wait for their host's turn, by the length of the wait.",
        "sum by (le) (increase(crawlgate_hold_seconds_bucket{@}[~]))",
    ),
    lines(
        "How long requests wait, quantiles",
        "A client whose own time-out is shorter than this leaves before its turn comes.",
        "s",
        quantiles("crawlgate_hold_seconds"),
    ),
    lines(
        "Requests that had to wait",
        "Share of requests that were held, of those that ended.",
        "percentunit",
        [("held", share("sum(rate(crawlgate_hold_seconds_count{@}[~]))", ALL))],
        most=1,
    ),
    lines(
        "Refused for politeness",
        "queue_full: too many wait already. rate_limited: the wait would be longer than the client waits. host_backoff: "
        "the host rests. stopped: an operator has stopped it. All of them say when to come back.",
        "reqps",
        [
            (
                "{{reason}}",
                'sum by (reason) (rate(crawlgate_decisions_total{@,verdict="reject",stage="pace"}[~]))',
            )
        ],
        stacked=True,
    ),
    lines(
        "Clients that did not wait",
        "They left while their request was held: their time-out is shorter than the wait.",
        "reqps",
        [("{{crawler}}", "sum by (crawler) (rate(crawlgate_held_disconnects_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Waiting and being served",
        "Requests that wait, and slots of hosts that are taken, by instance.",
        "short",
        [
            ("held, {{instance}}", "sum by (instance) (crawlgate_held_requests{@})"),
            ("slots, {{instance}}", "sum by (instance) (crawlgate_leases{@})"),
        ],
    ),
]

HOSTS = [
    heading("What hosts say"),
    lines(
        "Hosts",
        "Hosts whose pace is remembered, and those of them that rest.",
        "short",
        [
            ("tracked", "sum(crawlgate_hosts_tracked{@})"),
            ("backing off", "sum(crawlgate_hosts_backing_off{@})"),
        ],
    ),
    lines(
        "Answers of origins by class",
        "Among 4xx is 429, among 5xx 503: a rise means that hosts have had enough.",
        "reqps",
        [("{{code_class}}", "sum by (code_class) (rate(crawlgate_upstream_responses_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "First byte of origins",
        "From the last sent byte of a request's head to the head of the answer. A rise shows hosts that slow down under "
        "the crawl.",
        "s",
        quantiles("crawlgate_upstream_ttfb_seconds"),
    ),
    lines(
        "Suspected bans",
        "Times that a host seemed to have banned this proxy: a burst of 403, or a challenge.",
        "cps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_ban_suspicions_total{@}[~]))")],
    ),
]

ROBOTS = [
    heading("robots.txt"),
    lines(
        "Fetches by result",
        "One fetch serves all requests that wait for it. file: it was read; unchanged: the one that is known holds on; "
        "absent, page, redirects, elsewhere and odd_status allow all; the others could not be had.",
        "reqps",
        [("{{result}}", "sum by (result) (rate(crawlgate_robots_fetches_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "Share of fetches that brought nothing",
        "robots.txt could not be had: the last known one holds, and without one the host is left alone.",
        "percentunit",
        [
            (
                "unreachable",
                share(f'sum(rate(crawlgate_robots_fetches_total{{@,result=~"{UNREACHABLE}"}}[~]))', FETCHES),
            )
        ],
        most=1,
        steps=[(0.5, "red")],
    ),
    lines(
        "Refused by robots.txt",
        "robots_txt: a line of it forbids the URL. robots_unreachable: it could not be had. usage: it denies a use that "
        "the policy asks for.",
        "reqps",
        [
            (
                "{{reason}}",
                "sum by (reason) (rate(crawlgate_decisions_total"
                '{@,verdict="reject",reason=~"robots_.*|usage"}[~]))',
            )
        ],
        stacked=True,
    ),
    lines(
        "Crawl-delay that was shortened",
        "Requests that went sooner than their host's robots.txt asks, because of robots.crawl_delay_cap.",
        "reqps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_crawl_delay_capped_total{@}[~]))")],
    ),
]

BOARD = Board(
    "crawlgate-politeness",
    "crawlgate / Politeness and robots",
    "Waiting, backing off, refusals for politeness, and what robots.txt says.",
    [*NOW, *PACE, *HOSTS, *ROBOTS],
)
