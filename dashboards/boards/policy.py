"""Policy: which rules refuse, which never did anything, and what a reload changed."""

from .grafana import Board, Column, heading, heat, lines, number, quantiles, ranking, share, table

# Refusals after which a client is told to come back later; asking again is no repeat there.
LATER = "budget|premature|robots_unreachable|rate_limited|queue_full|host_backoff|stopped|upstream_.*|overloaded|shutting_down"
# What the policy itself refuses: by a rule, because no rule admits it, or because it cannot judge a tunnel.
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
        "Requests a second that a rule refuses, that no rule admits, or that are tunnels which it cannot judge (reasons "
        "rule, default and undecided).",
        "reqps",
        f"sum(rate({BY_POLICY}[~]))",
        width=4,
    ),
    number(
        "Share refused by the policy",
        "Of all requests, those that the policy itself refuses.",
        "percentunit",
        share(f"sum(rate({BY_POLICY}[~]))", ALL),
        width=4,
        steps=[(0.5, "yellow"), (0.9, "red")],
    ),
    number(
        "Shadow would refuse",
        "Of the requests that were let through, those that a rule in shadow would have refused.",
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
        "Rules of the policy in force, groups included, on the instance that has the most.",
        "short",
        "max(crawlgate_policy_rules{@})",
        trend=False,
    ),
    number(
        "Disabled",
        "Rules of the policy in force that are disabled: they are as if they were not there.",
        "short",
        "max(crawlgate_policy_rules_disabled{@})",
        trend=False,
    ),
    number(
        "Revisions in force",
        "More than one for longer than a reload takes means that instances do not agree.",
        "short",
        "count(count by (policy, revision) (crawlgate_policy_info{@}))",
        steps=[(2, "red")],
        trend=False,
    ),
    number(
        "Failed loads",
        "Attempts to load a policy that failed in the time range. /readyz and the log say why.",
        "short",
        'sum(increase(crawlgate_policy_reloads_total{@,result="failure"}[$__range]))',
        steps=[(1, "red")],
        trend=False,
    ),
]

RULES = [
    heading("Rule by rule"),
    ranking(
        "Top rejections",
        "The 20 rules that refused most requests in the time range, and how many each.",
        "short",
        f"topk(20, {by_rule('increase', BY_RULES, '$__range')} > 0)",
        "{{rule}}",
        height=12,
    ),
    table(
        "Rules that never matched",
        "No request matched them in the time range, on any instance: dead rules, typing mistakes, or sites that are gone. "
        "Take a long range before removing one.",
        ["rule", "mode"],
        [Column("Matches", "sum by (rule, mode) (increase(crawlgate_rule_matched_total{@}[$__range])) == 0")],
        height=12,
    ),
    lines(
        "Rejections by rule, over time",
        "Requests a second refused by each of the ten rules that refuse most.",
        "reqps",
        [("{{rule}}", f"topk(10, {by_rule('rate', BY_RULES, '~')} > 0)")],
        stacked=True,
    ),
    ranking(
        "Rules that let most through",
        "The 20 rules, most often groups with `then: allow`, that were what let requests through, and how many each. What "
        "no rule decides, the policy's `disposition` does.",
        "short",
        f"topk(20, {by_rule('increase', ADMITTED, '$__range')} > 0)",
        "{{rule}}",
        height=8,
    ),
    lines(
        "Refusals by stage",
        "How far requests came: most should end at the request stage, before anything is fetched; those of the response "
        "stage cost a request to the origin.",
        "reqps",
        [("{{stage}}", f"sum by (stage) (rate({REFUSED}[~])) > 0")],
        stacked=True,
    ),
]

SHADOWS = [
    heading("In shadow, and in force"),
    lines(
        "Verdicts",
        "shadow_reject: let through, although a rule in shadow, or the shadow policy, would have refused it.",
        "reqps",
        [("{{verdict}}", "sum by (verdict) (rate(crawlgate_decisions_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "What shadows would decide, by rule",
        "Requests a second whose verdict a rule in shadow would have been the cause of. Rules of a shadow policy have its "
        "name before theirs.",
        "reqps",
        [("{{rule}}", f"topk(10, {by_rule('rate', SHADOW, '~')})")],
    ),
    table(
        "Shadow against enforced, by rule",
        "What each rule did in the time range; in mode shadow, would have done. One in shadow that matches and would decide "
        "nothing is covered by others.",
        ["rule", "mode"],
        [
            Column("Matched", "sum by (rule, mode) (increase(crawlgate_rule_matched_total{@}[$__range]))", decimals=0),
            *(
                Column(
                    title,
                    f'sum by (rule, mode) (increase(crawlgate_rule_decided_total{{@,verdict="{verdict}"}}[$__range]))',
                    decimals=0,
                )
                for title, verdict in (("Refused", "reject"), ("Let through", "allow"))
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
        "Does the policy refuse more than it did? Choose above how long ago \"before\" "
        "was; purple marks show when a policy took force.",
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
        "Attempts to load it, by result; unchanged: the files said the same as before.",
        "short",
        [("{{result}}", "sum by (result) (increase(crawlgate_policy_reloads_total{@}[~]))")],
    ),
    table(
        "Rules: the last $compare against the $compare before",
        "Requests that each rule refused. A rule that is new has refused nothing before; one that is gone, nothing since.",
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
        "Above zero: more refusals for this reason than then.",
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
    heading("Crawlers: do they learn?"),
    lines(
        "First refusals and repeats",
        "A repeat is a URL that the same crawler was refused within the last ten minutes: it does not remember refusals. "
        "First refusals say more of what crawlers find. Those that may come back later (a held, resting or failing host) "
        "are in neither.",
        "reqps",
        [("first", f"sum({FIRST} - {AGAIN})"), ("again", f"sum({AGAIN})")],
        stacked=True,
    ),
    lines(
        "Share of repeats, by crawler",
        "Of its refusals, those that a crawler had been told before. Near 1: it asks for the same URLs over and over.",
        "percentunit",
        [("{{crawler}}", share(AGAIN, FIRST))],
        most=1,
        steps=[(0.5, "red")],
    ),
    ranking(
        "Refused by the policy, by crawler",
        "In the time range.",
        "short",
        f"topk(20, sum by (crawler) (increase({BY_POLICY}[$__range])) > 0)",
        "{{crawler}}",
        height=8,
    ),
    lines(
        "Share refused by the policy, by crawler",
        "A crawler far above the others has a seed list or a scope that does not fit the policy.",
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
    heading("What deciding costs"),
    heat(
        "Time of decisions",
        "From a request's head to the verdict of the request stage; no network is asked.",
        "sum by (le) (increase(crawlgate_decision_duration_seconds_bucket{@}[~]))",
    ),
    lines(
        "Time of decisions, quantiles",
        "Microseconds are usual; milliseconds mean a machine that is short of processor time.",
        "s",
        quantiles("crawlgate_decision_duration_seconds"),
        steps=[(0.005, "red")],
    ),
]

BOARD = Board(
    "crawlgate-policy",
    "crawlgate / Policy",
    "Rule by rule: what decides, what never matches, what shadows would do, what a reload changed, who does not learn.",
    [*NOW, *RULES, *SHADOWS, *RELOADS, *CRAWLERS, *TIMES],
    compares=True,
)
