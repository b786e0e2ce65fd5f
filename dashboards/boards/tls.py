"""TLS and tunnels: what is looked into, what is not, and where handshakes fail; addresses and bytes that should not be."""

from .grafana import Board, heading, lines, number, quantiles, share

TUNNELS = "sum(rate(crawlgate_tunnels_total{@}[~]))"
HANDSHAKES = 'rate(crawlgate_tls_handshake_seconds_count{@,side="client"}[~])'
DAY = 86_400
# What a ClientHello may say of the CONNECT's host without the tunnel being closed.
GOOD = "match|ech"

NOW = [
    heading("Now"),
    number(
        "Authority expires in",
        "When the certificate authority that signs for crawlgate ends; from then on no client trusts it. Without "
        "interception there is none.",
        "s",
        "min(crawlgate_ca_not_after_timestamp_seconds{@} > 0) - time()",
        width=4,
        trend=False,
        base="red",
        steps=[(7 * DAY, "orange"), (30 * DAY, "green")],
    ),
    number("Open tunnels", "Tunnels that are open or being dialled.", "short", "sum(crawlgate_tunnels{@})", width=4),
    number(
        "Looked into",
        "Of the CONNECTs, those that are looked into: what is inside is judged URL by URL.",
        "percentunit",
        share('sum(rate(crawlgate_tunnels_total{@,verdict="intercept"}[~]))', TUNNELS),
        width=4,
    ),
    number(
        "Clients failing TLS",
        "Of the handshakes with clients, those that clients broke off: most often they do not trust the authority.",
        "percentunit",
        share(
            "sum(rate(crawlgate_client_tls_failures_total{@}[~]))",
            f"(sum(rate(crawlgate_client_tls_failures_total{{@}}[~])) + sum({HANDSHAKES}))",
        ),
        width=4,
        steps=[(0.01, "yellow"), (0.1, "red")],
    ),
    number(
        "Unverified origins",
        "Handshakes with origins whose certificate nobody looked at (tls.verify_upstream: false, or verify: skip).",
        "reqps",
        "sum(rate(crawlgate_upstream_unverified_total{@}[~]))",
        width=4,
        steps=[(0.000001, "red")],
    ),
    number(
        "Addresses refused",
        "Attempts in the time range to reach an address that must not be dialled: private, loopback, cloud metadata.",
        "short",
        "sum(increase(crawlgate_addresses_refused_total{@}[$__range]))",
        width=4,
        steps=[(1, "yellow"), (100, "red")],
        trend=False,
    ),
]

INSIDE = [
    heading("Tunnels"),
    lines(
        "CONNECT by verdict",
        "intercept: let through to be looked into. allow: let through unseen. undecided: refused because the policy judges "
        "what a tunnel hides.",
        "reqps",
        [("{{verdict}}", "sum by (verdict) (rate(crawlgate_tunnels_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Server names inside tunnels",
        "What the ClientHello says of the CONNECT's host. All but match, ech, and none to an address, close the tunnel.",
        "reqps",
        [("{{category}}", "sum by (category) (rate(crawlgate_sni_checks_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "Share of tunnels with a name that does not match",
        "Other names, none, or no TLS at all: fronting, or clients that misuse tunnels.",
        "percentunit",
        [
            (
                "not match or ech",
                share(
                    f'sum(rate(crawlgate_sni_checks_total{{@,category!~"{GOOD}"}}[~]))',
                    "sum(rate(crawlgate_sni_checks_total{@}[~]))",
                ),
            )
        ],
        most=1,
        steps=[(0.05, "red")],
    ),
    lines(
        "Open tunnels, by instance",
        "At most limits.tunnels_per_host to one host.",
        "short",
        [("{{instance}}", "sum by (instance) (crawlgate_tunnels{@})")],
    ),
]

HANDSHAKE = [
    heading("Handshakes and certificates"),
    lines(
        "Handshakes",
        "TLS handshakes that succeeded: with clients inside their tunnels, and with origins.",
        "reqps",
        [("{{side}}", "sum by (side) (rate(crawlgate_tls_handshake_seconds_count{@}[~]))")],
    ),
    lines(
        "Time of handshakes, p95",
        "With clients this holds the making of a certificate, with origins a round trip or two.",
        "s",
        [
            (
                "{{side}}",
                "histogram_quantile(0.95, sum by (side, le) (rate(crawlgate_tls_handshake_seconds_bucket{@}[~])))",
            )
        ],
    ),
    lines(
        "Clients that broke off, by crawler",
        "Each of them has an environment that does not trust the authority: `crawlgate env` sets it.",
        "reqps",
        [("{{crawler}}", "sum by (crawler) (rate(crawlgate_client_tls_failures_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Certificates made",
        "One for each host, kept for a day (tls.leaf_cache of them). waits: handshakes of clients that had too many made "
        "at once (tls.mints_per_client).",
        "cps",
        [
            ("made", "sum(rate(crawlgate_leaf_certificates_total{@}[~]))"),
            ("waits", "sum(rate(crawlgate_mint_waits_total{@}[~]))"),
        ],
    ),
    lines(
        "Failures of TLS with origins",
        "Certificates that cannot be believed, and handshakes that failed, by RFC 9209 error type.",
        "reqps",
        [("{{error}}", 'sum by (error) (rate(crawlgate_upstream_errors_total{@,error=~"tls_.*"}[~]))')],
        stacked=True,
    ),
    lines(
        "Refusals around tunnels",
        "Of the CONNECT itself, and of requests whose Host is not the tunnel's.",
        "reqps",
        [
            (
                "{{reason}}",
                "sum by (reason) (rate(crawlgate_decisions_total"
                '{@,verdict="reject",reason=~"undecided|host_mismatch|port_denied|upstream_tls"}[~]))',
            )
        ],
        stacked=True,
    ),
]

EDGES = [
    heading("What should not be"),
    lines(
        "Addresses refused, by range",
        "Names and literals that lead to a special address; nothing was dialled. A steady rate means that somebody tries.",
        "cps",
        [("{{range}}", "sum by (range) (rate(crawlgate_addresses_refused_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "Foreign bytes",
        "Connections closed because their first bytes are another protocol's: TLS or HTTP/2 on the proxy's port, or "
        "something unknown inside a tunnel.",
        "cps",
        [("{{reason}}", "sum by (reason) (rate(crawlgate_foreign_bytes_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Heads refused",
        "Request heads that never became a request: broken, too large, too slow.",
        "cps",
        [("{{reason}}", "sum by (reason) (rate(crawlgate_head_rejections_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Name look-up and connection, p95",
        "Of requests that needed one.",
        "s",
        [quantiles("crawlgate_dns_duration_seconds")[1], quantiles("crawlgate_connect_duration_seconds")[1]],
    ),
]

BOARD = Board(
    "crawlgate-tls",
    "crawlgate / TLS and tunnels",
    "Interception, tunnels, certificates, and what tries to get past the proxy.",
    [*NOW, *INSIDE, *HANDSHAKE, *EDGES],
)
