"""Decision log: hosts and URLs, which metrics do not have. Its queries go to Loki."""

from .grafana import Board, from_log, heading, lines, log_lines, ranking


def entries(*fields: str, where: str = "") -> str:
    """The lines of the selected crawlers, with these of their fields as labels."""
    named = ", ".join(f'{field}="{field}"' for field in dict.fromkeys(("crawler", *fields)))
    return f'{{@}} | json {named} | crawler=~"$crawler"{where}'


def top(count: int, labels: str, fields: tuple[str, ...], where: str = "") -> str:
    """The values of these labels with most lines in the time range."""
    return f"topk({count}, sum by ({labels}) (count_over_time({entries(*fields, where=where)} [$__range])))"


def milliseconds(field: str) -> str:
    return f"{entries('host', field)} | {field} != `` | unwrap {field} | __error__ = ``"


REFUSED = ' | verdict = "reject"'
LOST = " | loss != ``"

HOSTS = [
    heading("Hosts"),
    from_log(
        ranking(
            "Hosts with most requests",
            "Requests by host, allowed and refused. Allowed requests that `logs.allows` leaves out are missing.",
            "short",
            top(20, "host", ("host",)),
            "{{host}}",
        )
    ).opening_decisions(host="{host}"),
    from_log(
        ranking(
            "Hosts refused most",
            "Refusals by host and reason. Refusals whose URL is masked (`record: none`) have no host.",
            "short",
            top(20, "host, reason", ("host", "reason", "verdict"), REFUSED),
            "{{host}} {{reason}}",
        )
    ).opening_decisions(verdict="reject", host="{host}", reason="{reason}"),
    from_log(
        ranking(
            "Slowest hosts",
            "95 of 100 responses of the host began within this time after the request was sent.",
            "ms",
            f"topk(20, quantile_over_time(0.95, {milliseconds('ttfb_ms')} [$__range]) by (host))",
            "{{host}}",
        )
    ),
    from_log(
        ranking(
            "Hosts with the longest waits",
            "The time that requests waited for the host's turn, in all.",
            "ms",
            f"topk(20, sum by (host) (sum_over_time({milliseconds('held_ms')} [$__range])))",
            "{{host}}",
        )
    ).opening_decisions(host="{host}"),
]

URLS = [
    heading("URLs"),
    from_log(
        ranking(
            "URLs refused most",
            "Refusals by crawler, URL and reason: crawlers that repeat refused requests. A line without URL stands for a "
            "repetition, or for a URL that the policy's option `record` hides.",
            "short",
            top(20, "crawler, url, reason", ("url", "reason", "verdict"), REFUSED),
            "{{crawler}} {{url}} {{reason}}",
        )
    ).opening_decisions(crawler="{crawler}", url="{url}", reason="{reason}"),
    from_log(
        ranking(
            "Lost URLs",
            "Requests that were refused for now, failed or were given up, although the policy does not exclude them. "
            "`crawlgate decisions --lost` lists those that were not fetched later.",
            "short",
            top(20, "crawler, host, loss", ("host", "loss"), LOST),
            "{{crawler}} {{host}} {{loss}}",
        )
    ),
    from_log(
        lines(
            "Refusals over time, by reason",
            "Lines of the decision log with a refusal, per second.",
            "reqps",
            [("{{reason}}", f"sum by (reason) (rate({entries('reason', 'verdict', where=REFUSED)} [$__auto]))")],
            stacked=True,
        )
    ),
    from_log(
        lines(
            "Bytes by crawler",
            "Bytes of answers that were sent to each crawler, per second.",
            "Bps",
            [("{{crawler}}", f"sum by (crawler) (rate({entries('bytes')} | unwrap bytes | __error__ = `` [$__auto]))")],
            stacked=True,
        )
    ),
]

LINES = [
    heading("Lines"),
    log_lines(
        "Latest refusals",
        "Refused requests. A line's `decision` is the id in the answer's Crawl-Decision header.",
        f"{entries('verdict', where=REFUSED)}",
    ),
]

BOARD = Board(
    uid="crawlgate-log",
    title="crawlgate / Decision log",
    about="Top hosts and URLs, from the decision log in Loki",
    panels=HOSTS + URLS + LINES,
    reads_log=True,
)
