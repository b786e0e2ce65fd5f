"""Politeness and robots: rate limits, back-off and robots.txt."""

from .grafana import Board, heading, heat, lines, number, quantiles, share

# Results of a fetch after which robots.txt is unavailable: the last known one is used; without one, requests are refused.
UNREACHABLE = "limited|server_error|elsewhere|prohibited|refused|tls|dns|timeout|broken|coding|held|redirect_unreachable"
FETCHES = "sum(rate(crawlgate_robots_fetches_total{@}[~]))"
ALL = "sum(rate(crawlgate_decisions_total{@}[~]))"

NOW = [
    heading("Now"),
    number(
        "Held",
        "Requests that are waiting for their host's turn, or for the end of a stop. The limit is limits.queue, 10,000 by "
        "default.",
        "short",
        "sum(crawlgate_held_requests{@})",
        steps=[(1000, "yellow"), (8000, "red")],
        width=4,
    ),
    number(
        "Hosts backing off",
        "Hosts that get no requests for a while, because they answered 429 or 503 or kept failing.",
        "short",
        "sum(crawlgate_hosts_backing_off{@})",
        steps=[(10, "yellow"), (100, "red")],
        width=4,
    ),
    number(
        "Hosts tracked",
        "Hosts, addresses and domains with rate limit state.",
        "short",
        "sum(crawlgate_hosts_tracked{@})",
        width=4,
    ),
    number(
        "Slots in use",
        "Concurrency slots in use: the number of requests that hosts are serving now.",
        "short",
        "sum(crawlgate_leases{@})",
        width=4,
    ),
    number(
        "robots.txt cached",
        "Hosts whose robots.txt, or its absence, is cached.",
        "short",
        "sum(crawlgate_robots_cache_entries{@})",
        width=4,
    ),
    number(
        "Active stops",
        "Hosts, crawlers and rules that an operator has stopped (`crawlgate stop --list`).",
        "short",
        "max(crawlgate_stops{@})",
        steps=[(1, "yellow")],
        trend=False,
        width=4,
    ),
]

PACE = [
    heading("Rate limits"),
    heat(
        "How long requests wait",
        "Requests that had to wait for their host's turn, by waiting time.",
        "sum by (le) (increase(crawlgate_hold_seconds_bucket{@}[~]))",
    ),
    lines(
        "How long requests wait, quantiles",
        "A client whose timeout is shorter than this disconnects before its turn.",
        "s",
        quantiles("crawlgate_hold_seconds"),
    ),
    lines(
        "Requests that had to wait",
        "Share of completed requests that were held.",
        "percentunit",
        [("held", share("sum(rate(crawlgate_hold_seconds_count{@}[~]))", ALL))],
        most=1,
    ),
    lines(
        "Refused for politeness",
        "queue_full: too many requests are waiting already. rate_limited: the wait would exceed the longest allowed wait. "
        "host_backoff: the host is backing off. stopped: an operator has stopped it. Each answer has the time to retry.",
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
        "Clients that disconnected while waiting",
        "Clients that disconnected while their request was held: their timeout is shorter than the wait.",
        "reqps",
        [("{{crawler}}", "sum by (crawler) (rate(crawlgate_held_disconnects_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Waiting requests and slots",
        "Waiting requests, and concurrency slots in use, by instance.",
        "short",
        [
            ("held, {{instance}}", "sum by (instance) (crawlgate_held_requests{@})"),
            ("slots, {{instance}}", "sum by (instance) (crawlgate_leases{@})"),
        ],
    ),
]

HOSTS = [
    heading("Hosts"),
    lines(
        "Hosts",
        "Hosts with rate limit state, and those of them that are backing off.",
        "short",
        [
            ("tracked", "sum(crawlgate_hosts_tracked{@})"),
            ("backing off", "sum(crawlgate_hosts_backing_off{@})"),
        ],
    ),
    lines(
        "Answers of origins by class",
        "4xx includes 429 and 5xx includes 503: a rise means that hosts are overloaded.",
        "reqps",
        [("{{code_class}}", "sum by (code_class) (rate(crawlgate_upstream_responses_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "First byte of origins",
        "From the decision to send a request, after any wait, to the head of the answer; includes connecting. A rise means that hosts slow down under "
        "the crawl.",
        "s",
        quantiles("crawlgate_upstream_ttfb_seconds"),
    ),
    lines(
        "Suspected bans",
        "Signs that a host has banned this proxy: a burst of 403, or a challenge.",
        "cps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_ban_suspicions_total{@}[~]))")],
    ),
]

ROBOTS = [
    heading("robots.txt"),
    lines(
        "Fetches by result",
        "One fetch serves all requests that wait for it. file: it was read. unchanged: the known file remains valid. "
        "absent, page, redirects, elsewhere and odd_status: everything is allowed. All others: unavailable.",
        "reqps",
        [("{{result}}", "sum by (result) (rate(crawlgate_robots_fetches_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "Share of failed fetches",
        "robots.txt was unavailable: the last known one is used; without one, requests to the host are refused.",
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
        "robots_txt: a line of robots.txt forbids the URL. robots_unreachable: robots.txt is unavailable. usage: the site "
        "denies a use that the policy declares.",
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
        "Shortened Crawl-delay",
        "Requests that were sent sooner than their host's robots.txt asks, because of robots.crawl_delay_cap.",
        "reqps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_crawl_delay_capped_total{@}[~]))")],
    ),
]

BOARD = Board(
    "crawlgate-politeness",
    "crawlgate / Politeness and robots",
    "Waiting times, back-off, refusals for politeness, and robots.txt.",
    [*NOW, *PACE, *HOSTS, *ROBOTS],
)
