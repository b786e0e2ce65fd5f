"""Fleet: differences between instances, and their resources."""

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
        "More than one during an upgrade.",
        "short",
        "count(count by (version) (crawlgate_build_info{@}))",
        steps=[(2, "yellow")],
        trend=False,
        width=4,
    ),
    number(
        "Policy revisions",
        "More than one: instances have different policies.",
        "short",
        "count(count by (policy, revision) (crawlgate_policy_info{@}))",
        steps=[(2, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Panics",
        "Requests in the time range that ended in a panic. Each is a bug; its message is on standard error.",
        "short",
        "sum(increase(crawlgate_panics_total{@}[$__range]))",
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Log lines lost",
        "Lines of the decision log that were not written in the time range: the log is too slow, or the disk is full.",
        "short",
        "sum(increase(crawlgate_decision_log_dropped_total{@}[$__range]))",
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Processor time per request",
        "Mean over all instances.",
        "s",
        "sum(rate(process_cpu_seconds_total{@}[~])) / sum(rate(crawlgate_requests_total{@}[~]) > 0)",
        width=4,
    ),
    table(
        "Instances",
        "All instances. Sort by a column to find one that differs from the others.",
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
    heading("Load"),
    lines("Requests", "Requests per second of each instance.", "reqps", [("{{instance}}", REQUESTS)], stacked=True),
    lines(
        "Share refused",
        "Instances with the same policy and traffic refuse about the same share. One that differs has another policy or "
        "other clients.",
        "percentunit",
        [("{{instance}}", share(REJECTS, "sum by (instance) (rate(crawlgate_decisions_total{@}[~]))"))],
        most=1,
    ),
    lines(
        "Client connections",
        "At most limits.connections, 10,000 by default; fewer if the limit of open files is too low (a warning at the start).",
        "short",
        [
            ("{{instance}}", "sum by (instance) (crawlgate_connections{@})"),
            ("limit of {{instance}}", "sum by (instance) (crawlgate_connections_limit{@})"),
        ],
    ),
    lines(
        "Requests in progress",
        "Requests whose answer is not complete, including those that wait for their host's turn.",
        "short",
        [("{{instance}}", "sum by (instance) (crawlgate_inflight_requests{@})")],
    ),
]

MEANS = [
    heading("Resources"),
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
        "Share of open files",
        "Open files divided by the limit. A request in progress needs two, an idle connection one. The proxy refuses "
        "clients (503, overloaded) before the limit is reached.",
        "percentunit",
        [("{{instance}}", "max by (instance) (process_open_fds{@} / process_max_fds{@})")],
        most=1,
        steps=[(0.8, "red")],
    ),
    lines(
        "Lost log lines",
        "Lost lines of the decision log. With `logs.on_full: wait`, requests wait instead.",
        "cps",
        [("{{instance}}", "sum by (instance) (rate(crawlgate_decision_log_dropped_total{@}[~]))")],
    ),
    lines(
        "Refused for lack of capacity",
        "overloaded: a limit of connections or tunnels. queue_full: limits.queue. shutting_down: the instance is draining.",
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
        "Attempts to load the policy on each instance, by result.",
        "short",
        [("{{result}}, {{instance}}", "sum by (result, instance) (increase(crawlgate_policy_reloads_total{@}[~]))")],
    ),
]

BOARD = Board(
    "crawlgate-fleet",
    "crawlgate / Fleet",
    "Instances side by side: versions, policies, load and resources.",
    [*NOW, *WORK, *MEANS],
)
