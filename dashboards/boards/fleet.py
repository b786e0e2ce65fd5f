"""Fleet: is one instance unlike the others, and is any of them short of something?"""

from .grafana import Board, Column, heading, lines, number, share, table

REJECTS = 'sum by (instance) (rate(crawlgate_decisions_total{@,verdict="reject"}[~]))'
REQUESTS = "sum by (instance) (rate(crawlgate_requests_total{@}[~]))"

NOW = [
    heading("Now"),
    number(
        "Instances up",
        "Instances that answer Prometheus.",
        "short",
        "count(crawlgate_build_info{@})",
        trend=False,
        width=4,
    ),
    number(
        "Versions",
        "More than one while an upgrade is under way.",
        "short",
        "count(count by (version) (crawlgate_build_info{@}))",
        steps=[(2, "yellow")],
        trend=False,
        width=4,
    ),
    number(
        "Policy revisions",
        "More than one: instances do not agree on what is refused.",
        "short",
        "count(count by (policy, revision) (crawlgate_policy_info{@}))",
        steps=[(2, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Panics",
        "Requests in the time range that ended in a panic: each is a bug, and its message is on standard error.",
        "short",
        "sum(increase(crawlgate_panics_total{@}[$__range]))",
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Log lines lost",
        "Lines of the decision log in the time range that were not written: log too slow, or disk full.",
        "short",
        "sum(increase(crawlgate_decision_log_dropped_total{@}[$__range]))",
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Processor time a request",
        "Mean over all instances.",
        "s",
        "sum(rate(process_cpu_seconds_total{@}[~])) / sum(rate(crawlgate_requests_total{@}[~]) > 0)",
        width=4,
    ),
    table(
        "Instances",
        "What runs where. Sort by a column to find the one that is unlike the others.",
        ["instance", "version", "policy", "revision"],
        [
            Column("", "max by (instance, version) (crawlgate_build_info{@})"),
            Column("", "max by (instance, policy, revision) (crawlgate_policy_info{@})"),
            Column("Started", "1000 * max by (instance) (process_start_time_seconds{@})", "dateTimeFromNow"),
            Column("Requests", REQUESTS, "reqps"),
            Column("Refused", share(REJECTS, "sum by (instance) (rate(crawlgate_decisions_total{@}[~]))"), "percentunit"),
            Column("Memory", "max by (instance) (process_resident_memory_bytes{@})", "bytes"),
            Column(
                "Last load",
                "max by (instance) (crawlgate_policy_last_reload_success{@})",
                words={0: ("failed", "red"), 1: ("ok", "green")},
            ),
        ],
        width=24,
        height=8,
    ),
]

WORK = [
    heading("Work"),
    lines("Requests", "Of each instance.", "reqps", [("{{instance}}", REQUESTS)], stacked=True),
    lines(
        "Share refused",
        "Instances with the same policy and traffic refuse about the same share; one that does not has another policy, or "
        "other clients.",
        "percentunit",
        [("{{instance}}", share(REJECTS, "sum by (instance) (rate(crawlgate_decisions_total{@}[~]))"))],
        most=1,
    ),
    lines(
        "Client connections",
        "At most limits.connections, 10,000 by default.",
        "short",
        [("{{instance}}", "sum by (instance) (crawlgate_connections{@})")],
        steps=[(9000, "red")],
    ),
    lines(
        "Requests under way",
        "Whose answer is not complete, those that wait for their host's turn included.",
        "short",
        [("{{instance}}", "sum by (instance) (crawlgate_inflight_requests{@})")],
    ),
]

MEANS = [
    heading("Means"),
    lines(
        "Processor",
        "Cores in use.",
        "short",
        [("{{instance}}", "sum by (instance) (rate(process_cpu_seconds_total{@}[~]))")],
    ),
    lines(
        "Memory",
        "Resident memory.",
        "bytes",
        [("{{instance}}", "sum by (instance) (process_resident_memory_bytes{@})")],
    ),
    lines(
        "Open files, of those allowed",
        "A request under way needs two, an idle connection one; at 1 nothing can be accepted.",
        "percentunit",
        [("{{instance}}", "max by (instance) (process_open_fds{@} / process_max_fds{@})")],
        most=1,
        steps=[(0.8, "red")],
    ),
    lines(
        "Lost log lines",
        "Of the decision log. `logs.on_full: wait` makes requests wait instead.",
        "cps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_decision_log_dropped_total{@}[~]))")],
    ),
    lines(
        "Refused because there is no room",
        "overloaded: limits of connections or tunnels. queue_full: limits.queue. shutting_down: the instance drains.",
        "reqps",
        [
            (
                "{{reason}}, {{instance}}",
                "sum by (reason, instance) (rate(crawlgate_decisions_total"
                '{@,verdict="reject",reason=~"overloaded|queue_full|shutting_down|internal_error"}[~]))',
            )
        ],
        stacked=True,
    ),
    lines(
        "Loads of the policy",
        "Attempts on each instance, by result.",
        "short",
        [("{{result}}, {{instance}}", "sum by (result, instance) (increase(crawlgate_policy_reloads_total{@}[~]))")],
    ),
]

BOARD = Board(
    "crawlgate-fleet",
    "crawlgate / Fleet",
    "Instances side by side: versions, policies, load and means.",
    [*NOW, *WORK, *MEANS],
)
