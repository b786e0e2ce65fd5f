"""Overview: traffic, refusals and failures of all instances."""

from .grafana import Board, Column, heading, lines, number, p95, quantiles, share, table

ALL = "sum(rate(crawlgate_decisions_total{@}[~]))"
REJECTS = 'sum(rate(crawlgate_decisions_total{@,verdict="reject"}[~]))'
ERRORS = "sum(rate(crawlgate_upstream_errors_total{@}[~]))"
ANSWERS = "sum(rate(crawlgate_upstream_responses_total{@}[~]))"

NOW = [
    heading("Now"),
    number(
        "Requests",
        "Completed requests per second, allowed and refused.",
        "reqps",
        "sum(rate(crawlgate_requests_total{@}[~]))",
    ),
    number(
        "Refused",
        "Share of requests that were refused, for any reason. The usual level depends on the policy; look for a jump "
        "after a reload.",
        "percentunit",
        share(REJECTS, ALL),
        steps=[(0.5, "yellow"), (0.9, "red")],
    ),
    number(
        "Answer time, p95",
        "95 of 100 answers from origins were complete within this time, including the wait for the host's turn.",
        "s",
        'histogram_quantile(0.95, sum by (le) (rate(crawlgate_request_duration_seconds_bucket{@,source="origin"}[~])))',
        steps=[(10, "yellow"), (30, "red")],
    ),
    number(
        "Origins failing",
        "Share of exchanges with origins that failed: name lookup, connection, TLS, timeout or an incomplete response.",
        "percentunit",
        share(ERRORS, f"({ERRORS} + {ANSWERS})"),
        steps=[(0.05, "yellow"), (0.2, "red")],
    ),
    number(
        "Held",
        "Requests that are waiting for their host's turn, or for the end of a stop. The limit is limits.queue, 10,000 by "
        "default.",
        "short",
        "sum(crawlgate_held_requests{@})",
        steps=[(1000, "yellow"), (8000, "red")],
    ).leading_to("politeness", "Waiting times"),
    number(
        "Instances down",
        "Instances that Prometheus cannot scrape, of all that exported crawlgate metrics within the last day. Covers all "
        "instances of the job, regardless of the selection above.",
        "short",
        'count(up{job=~"$job"} == 0 and on (job, instance) last_over_time(crawlgate_build_info{job=~"$job"}[1d])) '
        "or vector(0)",
        steps=[(1, "red")],
        trend=False,
    ),
    number(
        "Failed reloads",
        "Instances whose last attempt to load the policy failed: they continue with the previous policy.",
        "short",
        "count(crawlgate_policy_last_reload_success{@} == 0) or vector(0)",
        steps=[(1, "red")],
        trend=False,
    ).leading_to("fleet", "Instance by instance"),
    number(
        "Since the last good load",
        "Time since the policy was last loaded successfully, on the instance with the oldest load.",
        "s",
        "time() - min(crawlgate_policy_last_reload_success_timestamp_seconds{@})",
        trend=False,
    ),
]

DECISIONS = [
    heading("Allowed and refused requests"),
    lines(
        "Requests by source of the answer",
        "origin: the origin's answer was passed on. proxy: crawlgate answered itself, usually with a refusal.",
        "reqps",
        [("{{source}}", "sum by (source) (rate(crawlgate_requests_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Refusals by reason",
        "The reason that clients get in Crawl-Reason. Reasons without a refusal are omitted.",
        "reqps",
        [("{{reason}}", 'sum by (reason) (rate(crawlgate_decisions_total{@,verdict="reject"}[~])) > 0')],
        stacked=True,
    )
    .leading_to("policy", "Rule by rule")
    .opening_decisions(verdict="reject", reason="{reason}"),
    lines(
        "Share refused, by crawler",
        "Crawlers by their configured names; all others are anonymous.",
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
    )
    .leading_to("policy", "Repeated requests")
    .opening_decisions(verdict="reject", crawler="{crawler}"),
    lines(
        "Answers by status",
        "The status that was sent, and its source. none: the client disconnected before an answer. Statuses that did not "
        "occur are omitted.",
        "reqps",
        [("{{code}} {{source}}", "sum by (code, source) (rate(crawlgate_requests_total{@}[~])) > 0")],
        stacked=True,
    ).opening_decisions(status="{code}"),
]

LOAD = [
    heading("Latency and load"),
    lines(
        "Answer time of origins",
        "From a request's head to the last byte of its answer, including the wait for the host's turn.",
        "s",
        quantiles("crawlgate_request_duration_seconds", ',source="origin"'),
    ),
    lines(
        "Where the time goes, p95",
        "origin: from the decision to send a request, connecting included, to the head of the response. held: waiting for the host's turn, of requests that had "
        "to. lookup, connection, TLS handshake: of new connections to origins. decision: evaluating the policy.",
        "s",
        [
            ("origin", p95("crawlgate_upstream_ttfb_seconds")),
            ("held", p95("crawlgate_hold_seconds")),
            ("lookup", p95("crawlgate_dns_duration_seconds")),
            ("connection", p95("crawlgate_connect_duration_seconds")),
            ("TLS handshake", p95("crawlgate_tls_handshake_seconds", ',side="origin"')),
            ("decision", p95("crawlgate_decision_duration_seconds")),
        ],
    ),
    lines(
        "Waiting for the host's turn",
        "How long requests were held, of those that had to wait. Long waits are a normal effect of rate limits; clients "
        "need longer timeouts.",
        "s",
        quantiles("crawlgate_hold_seconds"),
    )
    .leading_to("politeness", "Rate limits and robots.txt")
    .opening_decisions(held="1000"),
    lines(
        "In progress",
        "Open requests, client connections and tunnels, and requests that are waiting.",
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
        "Failed exchanges by RFC 9209 error type, as in the Proxy-Status header.",
        "reqps",
        [("{{error}}", "sum by (error) (rate(crawlgate_upstream_errors_total{@}[~])) > 0")],
        stacked=True,
    ).leading_to("tls", "TLS, connections, name lookups"),
    lines(
        "Traffic",
        "Bytes of bodies, exchanged with clients or origins, by direction as seen from crawlgate.",
        "Bps",
        [("{{direction}}, {{side}}", "sum by (direction, side) (rate(crawlgate_bytes_total{@}[~]))")],
    ),
    table(
        "Active policy, by instance",
        "All instances should show the same revision; after a reload they may differ for a moment.",
        ["instance", "policy", "revision"],
        [
            Column("", "max by (instance, policy, revision) (crawlgate_policy_info{@})"),
            Column(
                "Last load",
                "max by (instance) (crawlgate_policy_last_reload_success{@})",
                words={0: ("failed", "red"), 1: ("ok", "green")},
            ),
            Column(
                "Active since",
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
    "Traffic, refusals by reason, latency and failures of all instances.",
    [*NOW, *DECISIONS, *LOAD],
)
