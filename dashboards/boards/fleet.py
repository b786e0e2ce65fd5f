"""Fleet: differences between instances, their resources, and who owns which hosts."""

from .grafana import Board, Column, heading, lines, number, quantiles, share, table

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

# Of nodes of a fleet only: the panels are empty for proxies that are in none.
OWNERS = [
    heading("Owners of hosts (in a fleet)"),
    number(
        "Members",
        "Nodes that renew their lease, the highest value of all nodes.",
        "short",
        'max(crawlgate_fleet_members{@,state="active"})',
        trend=False,
        width=4,
    ),
    number(
        "Silent members",
        "Nodes that have not renewed their lease for the length of one: dead, hanging, or cut off from the database.",
        "short",
        'max(crawlgate_fleet_members{@,state="silent"})',
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Partitions without an owner",
        "Of 1,024, the lowest value of all nodes. Requests for their hosts wait.",
        "short",
        'min(crawlgate_fleet_partitions{@,state="unowned"})',
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Shortest lease left",
        "0: that node owns nothing.",
        "s",
        "min(crawlgate_fleet_lease_left_seconds{@})",
        base="red",
        steps=[(0.1, "green")],
        width=4,
    ),
    number(
        "Policies of members",
        "More than one: what is refused depends on the owner of the host.",
        "short",
        "max(crawlgate_fleet_policy_revisions{@})",
        steps=[(2, "red")],
        trend=False,
        width=4,
    ),
    number(
        "Failing links",
        "Pairs of nodes that could not connect at the last attempt.",
        "short",
        'sum(crawlgate_fleet_links{@,state="failing"})',
        steps=[(1, "red")],
        trend=False,
        width=4,
    ),
    lines(
        "Partitions by owner",
        "The sum is 1,024 while every host has an owner.",
        "short",
        [("{{instance}}", 'sum by (instance) (crawlgate_fleet_partitions{@,state="own"})')],
        stacked=True,
    ),
    lines(
        "Lease left",
        "Each node renews its lease every fifth of fleet.lease. At 0 it owns nothing.",
        "s",
        [("{{instance}}", "min by (instance) (crawlgate_fleet_lease_left_seconds{@})")],
    ),
    lines(
        "Partitions taken",
        "free: they had no owner. lapsed: the node's own lease had ended. silent: their owner did not renew its lease.",
        "short",
        [("{{why}}, {{instance}}", "sum by (why, instance) (increase(crawlgate_fleet_takeovers_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Refused without an owner",
        "owner_unavailable: no node owns the host, or its owner cannot be reached, for longer than max_hold.",
        "reqps",
        [
            (
                "{{instance}}",
                'sum by (instance) (rate(crawlgate_decisions_total{@,verdict="reject",reason="owner_unavailable"}[~]))',
            )
        ],
        stacked=True,
    ),
]

LINKS = [
    heading("Forwarding (in a fleet)"),
    lines(
        "Share forwarded",
        "The share of requests that arrive at a node that does not own their host. Low behind a load balancer that sends a "
        "request to the owner of its host.",
        "percentunit",
        [
            (
                "forwarded",
                share(
                    'sum(rate(crawlgate_fleet_forwarded_total{@,result="answered"}[~]))',
                    "sum(rate(crawlgate_decisions_total{@}[~]))",
                ),
            )
        ],
        most=1,
    ),
    lines(
        "Attempts to forward",
        "answered; moved: another node owns the host by now; unreachable: no link; lost: the link broke off; refused: "
        "owner_unavailable.",
        "reqps",
        [("{{result}}", "sum by (result) (rate(crawlgate_fleet_forwarded_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Time until the owner answers",
        "Includes the time for which the owner holds the request, and that of the origin.",
        "s",
        quantiles("crawlgate_fleet_forward_seconds"),
    ),
    lines(
        "Links",
        "Open connections to other nodes, and nodes that could not be reached at the last attempt.",
        "short",
        [
            ("{{instance}}", 'sum by (instance) (crawlgate_fleet_links{@,state="open"})'),
            ("{{instance}} cannot reach {{node}}", "max by (instance, node) (crawlgate_fleet_link_failing{@})"),
        ],
    ),
]

STORE = [
    heading("The database (in a fleet)"),
    lines(
        "Calls",
        "Renewals, and reads of stops, do not depend on the load.",
        "reqps",
        [("{{op}}", "sum by (op) (rate(crawlgate_store_requests_total{@}[~]))")],
    ),
    lines(
        "Failed calls",
        "timeout: longer than store.timeout.",
        "reqps",
        [
            (
                "{{op}} {{result}}, {{instance}}",
                'sum by (op, result, instance) (rate(crawlgate_store_requests_total{@,result!="ok"}[~]))',
            )
        ],
        stacked=True,
    ),
    lines(
        "Time of calls, p95",
        "Must stay far below a fifth of fleet.lease.",
        "s",
        [
            (
                "{{op}}",
                "histogram_quantile(0.95, sum by (le, op) (rate(crawlgate_store_duration_seconds_bucket{@}[~])))",
            )
        ],
        width=24,
    ),
]

BOARD = Board(
    "crawlgate-fleet",
    "crawlgate / Fleet",
    "Instances side by side: versions, policies, load and resources. In a fleet also the owners of hosts, links and the database.",
    [*NOW, *OWNERS, *LINKS, *STORE, *WORK, *MEANS],
)
