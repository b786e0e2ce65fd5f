"""Policy: decisions by rule, rules without effect, shadow rules, and the effect of a reload."""

from .grafana import Board, Column, heading, heat, lines, number, quantiles, ranking, share, table

# Refusals that tell the client to retry later; a repeated request is expected there.
LATER = "budget|premature|robots_unreachable|rate_limited|queue_full|host_backoff|stopped|owner_unavailable|upstream_.*|overloaded|shutting_down"
# Refusals by the policy itself: by a rule, by the default, or because a tunnel is undecided.
BY_POLICY = 'crawlgate_decisions_total{@,verdict="reject",reason=~"rule|default|undecided"}'
ALL = "sum(rate(crawlgate_decisions_total{@}[~]))"
REFUSED = 'crawlgate_decisions_total{@,verdict="reject"}'
BY_RULES = 'crawlgate_rule_decided_total{@,mode="enforce",verdict="reject"}'
ADMITTED = 'crawlgate_rule_decided_total{@,mode="enforce",verdict="allow"}'
SHADOW = 'crawlgate_rule_decided_total{@,mode="shadow"}'


def by_rule(function: str, of: str, window: str) -> str:
    return f"sum by (rule) ({function}({of}[{window}]))"


NOW = [
    heading("Now"),
    number(
        "Refused by the policy",
        "Requests per second that were refused by a rule, by the default, or because a tunnel was undecided (reasons rule, "
        "default and undecided).",
        "reqps",
        f"sum(rate({BY_POLICY}[~]))",
        width=4,
    ),
    number(
        "Share refused by the policy",
        "Share of all requests that the policy itself refuses.",
        "percentunit",
        share(f"sum(rate({BY_POLICY}[~]))", ALL),
        width=4,
        steps=[(0.5, "yellow"), (0.9, "red")],
    ),
    number(
        "Shadow would refuse",
        "Share of the allowed requests that a rule in shadow would have refused.",
        "percentunit",
        share(
            'sum(rate(crawlgate_decisions_total{@,verdict="shadow_reject"}[~]))',
            'sum(rate(crawlgate_decisions_total{@,verdict!="reject"}[~]))',
        ),
        width=4,
        steps=[(0.05, "yellow"), (0.25, "red")],
    ),
    number(
        "Rules",
        "Rules of the active policy, including groups, on the instance with the most rules.",
        "short",
        "max(crawlgate_policy_rules{@})",
        trend=False,
    ),
    number(
        "Disabled",
        "Disabled rules of the active policy: they are ignored.",
        "short",
        "max(crawlgate_policy_rules_disabled{@})",
        trend=False,
    ),
    number(
        "Active revisions",
        "More than one, for longer than a reload takes, means that instances have different policies.",
        "short",
        "count(count by (policy, revision) (crawlgate_policy_info{@}))",
        steps=[(2, "red")],
        trend=False,
    ),
    number(
        "Failed loads",
        "Failed attempts to load a policy in the time range. /readyz and the log have the cause.",
        "short",
        'sum(increase(crawlgate_policy_reloads_total{@,result="failure"}[$__range]))',
        steps=[(1, "red")],
        trend=False,
    ),
]

RULES = [
    heading("Rules"),
    ranking(
        "Top rejections",
        "The 20 rules that refused most requests in the time range, with their counts.",
        "short",
        f"topk(20, {by_rule('increase', BY_RULES, '$__range')} > 0)",
        "{{rule}}",
        height=12,
    ).opening_decisions(verdict="reject", rule="{rule}"),
    table(
        "Rules that never matched",
        "No request matched these rules in the time range, on any instance: dead rules, mistyped patterns, or sites that "
        "no longer exist. Select a long range before removing one.",
        ["rule", "mode"],
        [Column("Matches", "sum by (rule, mode) (increase(crawlgate_rule_matched_total{@}[$__range])) == 0")],
        height=12,
    ),
    lines(
        "Rejections by rule, over time",
        "Requests per second refused by each of the ten rules that refuse most.",
        "reqps",
        [("{{rule}}", f"topk(10, {by_rule('rate', BY_RULES, '~')} > 0)")],
        stacked=True,
    ).opening_decisions(verdict="reject", rule="{rule}"),
    ranking(
        "Top allowing rules",
        "The 20 rules, usually groups with `then: allow`, that allowed most requests, with their counts. Requests that the "
        "policy's `disposition` option allows are not included.",
        "short",
        f"topk(20, {by_rule('increase', ADMITTED, '$__range')} > 0)",
        "{{rule}}",
        height=8,
    ).opening_decisions(verdict="allow", rule="{rule}"),
    lines(
        "Refusals by stage",
        "The stage that refused the request. Most refusals should happen at the request stage, before anything is fetched; "
        "a refusal at the response stage costs a request to the origin.",
        "reqps",
        [("{{stage}}", f"sum by (stage) (rate({REFUSED}[~])) > 0")],
        stacked=True,
    ).opening_decisions(verdict="reject", stage="{stage}"),
]

SHADOWS = [
    heading("Shadow and enforced rules"),
    lines(
        "Verdicts",
        "shadow_reject: allowed, but a rule in shadow, or the shadow policy, would have refused it.",
        "reqps",
        [("{{verdict}}", "sum by (verdict) (rate(crawlgate_decisions_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Shadow decisions, by rule",
        "Requests per second that a rule in shadow would have decided. Rules of a shadow policy are prefixed with its "
        "name.",
        "reqps",
        [("{{rule}}", f"topk(10, {by_rule('rate', SHADOW, '~')})")],
    ),
    table(
        "Shadow against enforced, by rule",
        "What each rule did in the time range or, in mode shadow, would have done. A shadow rule that matches but would "
        "decide nothing is covered by other rules.",
        ["rule", "mode"],
        [
            Column("Matched", "sum by (rule, mode) (increase(crawlgate_rule_matched_total{@}[$__range]))", decimals=0),
            *(
                Column(
                    title,
                    f'sum by (rule, mode) (increase(crawlgate_rule_decided_total{{@,verdict="{verdict}"}}[$__range]))',
                    decimals=0,
                )
                for title, verdict in (("Refused", "reject"), ("Allowed", "allow"))
            ),
        ],
        width=24,
        sort="Refused",
    ),
]

LAST = f"sum by (rule) (increase({BY_RULES}[$compare]))"
BEFORE = f"sum by (rule) (increase({BY_RULES}[$compare] offset $compare))"

RELOADS = [
    heading("Before and after a reload"),
    lines(
        "Share refused by the policy, now and before",
        "Does the policy refuse more than before? Select above how long ago \"before\" is. Purple marks show when a policy "
        "took effect.",
        "percentunit",
        [
            ("now", share(f"sum(rate({BY_POLICY}[~]))", ALL)),
            (
                "$compare before",
                share(
                    f"sum(rate({BY_POLICY}[~] offset $compare))",
                    "sum(rate(crawlgate_decisions_total{@}[~] offset $compare))",
                ),
            ),
        ],
        most=1,
    ),
    lines(
        "Loads of the policy",
        "Attempts to load the policy, by result. unchanged: the files had the same content as before.",
        "short",
        [("{{result}}", "sum by (result) (increase(crawlgate_policy_reloads_total{@}[~]))")],
    ),
    table(
        "Rules: the last $compare against the $compare before",
        "Requests that each rule refused. A new rule has no earlier refusals, a removed one no later refusals.",
        ["rule"],
        [
            Column("Last", f"{LAST} or 0 * {BEFORE}", decimals=0),
            Column("Before", f"{BEFORE} or 0 * {LAST}", decimals=0),
            Column("Change", f"({LAST} or 0 * {BEFORE}) - ({BEFORE} or 0 * {LAST})", decimals=0),
        ],
        sort="Change",
    ),
    lines(
        "Refusals by reason: change against $compare before",
        "Above zero: more refusals for this reason than before.",
        "reqps",
        [
            (
                "{{reason}}",
                f"(sum by (reason) (rate({REFUSED}[~])) - sum by (reason) (rate({REFUSED}[~] offset $compare))) != 0",
            )
        ],
        height=10,
        least=None,
    ),
]

FIRST = f'sum by (crawler) (rate(crawlgate_decisions_total{{@,verdict="reject",reason!~"{LATER}"}}[~]))'
AGAIN = "sum by (crawler) (rate(crawlgate_repeat_rejections_total{@}[~]))"

CRAWLERS = [
    heading("Crawlers and repeated requests"),
    lines(
        "First refusals and repeats",
        "A repeat is a URL that was refused to the same crawler within the last ten minutes: the crawler does not remember "
        "refusals. First refusals are URLs that the crawler found. Refusals that ask the crawler to retry later (rate "
        "limit, back-off, failing host) are in neither.",
        "reqps",
        [("first", f"sum({FIRST} - {AGAIN})"), ("again", f"sum({AGAIN})")],
        stacked=True,
    ),
    lines(
        "Share of repeats, by crawler",
        "Share of a crawler's refusals that are repeats. Near 1: it requests the same URLs over and over.",
        "percentunit",
        [("{{crawler}}", share(AGAIN, FIRST))],
        most=1,
        steps=[(0.5, "red")],
    ),
    ranking(
        "Refused by the policy, by crawler",
        "Number of refusals in the time range.",
        "short",
        f"topk(20, sum by (crawler) (increase({BY_POLICY}[$__range])) > 0)",
        "{{crawler}}",
        height=8,
    ),
    lines(
        "Share refused by the policy, by crawler",
        "A crawler far above the others has a seed list or a scope that does not match the policy.",
        "percentunit",
        [
            (
                "{{crawler}}",
                share(
                    f"sum by (crawler) (rate({BY_POLICY}[~]))", "sum by (crawler) (rate(crawlgate_decisions_total{@}[~]))"
                ),
            )
        ],
        most=1,
    ),
]

TIMES = [
    heading("Cost of decisions"),
    heat(
        "Time of decisions",
        "From a request's head to the verdict of the request stage; no network access is involved.",
        "sum by (le) (increase(crawlgate_decision_duration_seconds_bucket{@}[~]))",
    ),
    lines(
        "Time of decisions, quantiles",
        "Microseconds are normal; milliseconds mean that the machine is short of processor time.",
        "s",
        quantiles("crawlgate_decision_duration_seconds"),
        steps=[(0.005, "red")],
    ),
]

BOARD = Board(
    "crawlgate-policy",
    "crawlgate / Policy",
    "Decisions by rule, rules that never match, shadow rules, the effect of reloads, and repeated requests.",
    [*NOW, *RULES, *SHADOWS, *RELOADS, *CRAWLERS, *TIMES],
    compares=True,
)
