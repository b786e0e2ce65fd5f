"""Overview: is it working, what does it refuse, and does anything look wrong?"""

from .grafana import Board, Column, heading, lines, number, quantiles, share, table

ALL = "sum(rate(crawlgate_decisions_total{@}[~]))"
REJECTS = 'sum(rate(crawlgate_decisions_total{@,verdict="reject"}[~]))'
ERRORS = "sum(rate(crawlgate_upstream_errors_total{@}[~]))"
ANSWERS = "sum(rate(crawlgate_upstream_responses_total{@}[~]))"

NOW = [
    heading("Now"),
    number(
        "Requests",
        "Requests a second that ended, allowed and refused.",
        "reqps",
        "sum(rate(crawlgate_requests_total{@}[~]))",
    ),
    number(
        "Refused",
        "Share of requests that were refused, for whatever reason. What is usual depends on the policy; a jump after a "
        "reload is what to look for.",
        "percentunit",
        share(REJECTS, ALL),
        steps=[(0.5, "yellow"), (0.9, "red")],
    ),
    number(
        "Answer time, p95",
        "95 of 100 answers of origins were complete within this time, waiting for the host's turn included.",
        "s",
        'histogram_quantile(0.95, sum by (le) (rate(crawlgate_request_duration_seconds_bucket{@,source="origin"}[~])))',
        steps=[(10, "yellow"), (30, "red")],
    ),
    number(
        "Origins failing",
        "Share of exchanges with origins that failed: name look-up, connection, TLS, time-out or a broken answer.",
        "percentunit",
        share(ERRORS, f"({ERRORS} + {ANSWERS})"),
        steps=[(0.05, "yellow"), (0.2, "red")],
    ),
    number(
        "Held",
        "Requests that wait for their host's turn now, or for the end of a stop. The limit is limits.queue, 10,000 by "
        "default.",
        "short",
        "sum(crawlgate_held_requests{@})",
        steps=[(1000, "yellow"), (8000, "red")],
    ).leading_to("politeness", "Who waits, and for how long"),
    number(
        "Instances down",
        "Instances that Prometheus cannot scrape, of all that had metrics of crawlgate within the last day; for all "
        "instances of the job, whichever are chosen above.",
        "short",
        'count(up{job=~"$job"} == 0 and on (job, instance) last_over_time(crawlgate_build_info{job=~"$job"}[1d])) '
        "or vector(0)",
        steps=[(1, "red")],
        trend=False,
    ),
    number(
        "Failed reloads",
        "Instances whose last attempt to load the policy failed: they go on with the one before.",
        "short",
        "count(crawlgate_policy_last_reload_success{@} == 0) or vector(0)",
        steps=[(1, "red")],
        trend=False,
    ).leading_to("fleet", "Instance by instance"),
    number(
        "Since the last good load",
        "Time since the policy was last loaded, on the instance where that was the longest ago.",
        "s",
        "time() - min(crawlgate_policy_last_reload_success_timestamp_seconds{@})",
        trend=False,
    ),
]

DECISIONS = [
    heading("What is let through, and what is refused"),
    lines(
        "Requests by who answered",
        "origin: the origin's answer was passed on. proxy: crawlgate answered by itself, most often with a refusal.",
        "reqps",
        [("{{source}}", "sum by (source) (rate(crawlgate_requests_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Refusals by reason",
        "The reason that clients read in Crawl-Reason. Reasons without a refusal are left out.",
        "reqps",
        [("{{reason}}", 'sum by (reason) (rate(crawlgate_decisions_total{@,verdict="reject"}[~])) > 0')],
        stacked=True,
    ).leading_to("policy", "Rule by rule"),
    lines(
        "Share refused, by crawler",
        "Crawlers are the configured names; all others are anonymous.",
        "percentunit",
        [
            (
                "{{crawler}}",
                share(
                    'sum by (crawler) (rate(crawlgate_decisions_total{@,verdict="reject"}[~]))',
                    "sum by (crawler) (rate(crawlgate_decisions_total{@}[~]))",
                ),
            )
        ],
        most=1,
    ).leading_to("policy", "Do they learn?"),
    lines(
        "Answers by status",
        "The status that was sent, and who made it; none: the client left before an answer. Statuses that did not occur "
        "are left out.",
        "reqps",
        [("{{code}} {{source}}", "sum by (code, source) (rate(crawlgate_requests_total{@}[~])) > 0")],
        stacked=True,
    ),
]

LOAD = [
    heading("Time and load"),
    lines(
        "Answer time of origins' answers",
        "From a request's head to the last byte of its answer, waiting for the host's turn included.",
        "s",
        quantiles("crawlgate_request_duration_seconds", ',source="origin"'),
    ),
    lines(
        "Waiting for the host's turn",
        "For how long requests were held, of those that had to wait. Long waits are politeness at work; clients need "
        "time-outs that are longer.",
        "s",
        quantiles("crawlgate_hold_seconds"),
    ).leading_to("politeness", "Pace and robots.txt"),
    lines(
        "Under way",
        "Requests, client connections and tunnels that are open, and requests that wait.",
        "short",
        [
            ("requests", "sum(crawlgate_inflight_requests{@})"),
            ("held", "sum(crawlgate_held_requests{@})"),
            ("connections", "sum(crawlgate_connections{@})"),
            ("tunnels", "sum(crawlgate_tunnels{@})"),
        ],
    ),
    lines(
        "Failures of origins",
        "Exchanges that failed, by their RFC 9209 error type; the same word stands in Proxy-Status.",
        "reqps",
        [("{{error}}", "sum by (error) (rate(crawlgate_upstream_errors_total{@}[~])) > 0")],
        stacked=True,
    ).leading_to("tls", "TLS, connections, look-ups"),
    lines(
        "Traffic",
        "Body bytes, by whom they were exchanged with and in which direction, seen from crawlgate.",
        "Bps",
        [("{{direction}}, {{side}}", "sum by (direction, side) (rate(crawlgate_bytes_total{@}[~]))")],
    ),
    table(
        "Policy in force, by instance",
        "All instances should show the same revision; after a reload they differ for moments.",
        ["instance", "policy", "revision"],
        [
            Column("", "max by (instance, policy, revision) (crawlgate_policy_info{@})"),
            Column(
                "Last load",
                "max by (instance) (crawlgate_policy_last_reload_success{@})",
                words={0: ("failed", "red"), 1: ("ok", "green")},
            ),
            Column(
                "In force since",
                "1000 * max by (instance) (crawlgate_policy_last_reload_success_timestamp_seconds{@})",
                "dateTimeFromNow",
            ),
        ],
        height=8,
    ).leading_to("fleet", "Instance by instance"),
]

BOARD = Board(
    "crawlgate-overview",
    "crawlgate / Overview",
    "Traffic, refusals by reason, times and failures of all instances together.",
    [*NOW, *DECISIONS, *LOAD],
)
