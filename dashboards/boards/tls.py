"""TLS and tunnels: interception, certificates, failed handshakes, refused addresses and unexpected protocols."""

from .grafana import Board, heading, lines, number, quantiles, share

TUNNELS = "sum(rate(crawlgate_tunnels_total{@}[~]))"
DISTRUST = 'sum(rate(crawlgate_client_tls_failures_total{@,cause="distrust"}[~]))'
HANDSHAKES = 'rate(crawlgate_tls_handshake_seconds_count{@,side="client"}[~])'
DAY = 86_400
# Results of the server name check after which the tunnel stays open.
GOOD = "match|ech"

NOW = [
    heading("Now"),
    number(
        "Authority expires in",
        "Time until crawlgate's certificate authority expires; after that no client trusts it. Without interception there "
        "is none.",
        "s",
        "min(crawlgate_ca_not_after_timestamp_seconds{@} > 0) - time()",
        width=4,
        trend=False,
        base="red",
        steps=[(7 * DAY, "orange"), (30 * DAY, "green")],
    ),
    number("Open tunnels", "Tunnels that are open or being dialled.", "short", "sum(crawlgate_tunnels{@})", width=4),
    number(
        "Intercepted",
        "Share of CONNECT requests that are intercepted: the requests inside are evaluated URL by URL.",
        "percentunit",
        share('sum(rate(crawlgate_tunnels_total{@,verdict="intercept"}[~]))', TUNNELS),
        width=4,
    ),
    number(
        "Clients failing TLS",
        "Share of handshakes in which a client rejected the certificate: it does not trust the certificate authority.",
        "percentunit",
        share(DISTRUST, f"({DISTRUST} + sum({HANDSHAKES}))"),
        width=4,
        steps=[(0.01, "yellow"), (0.1, "red")],
    ),
    number(
        "Unverified origins",
        "Handshakes with origins whose certificate was not verified (tls.verify_upstream: false, or verify: skip).",
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
        "intercept: allowed and intercepted. allow: allowed without interception. undecided: refused because the policy "
        "depends on what a tunnel hides.",
        "reqps",
        [("{{verdict}}", "sum by (verdict) (rate(crawlgate_tunnels_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Server names inside tunnels",
        "The server name in the ClientHello, compared with the host of the CONNECT. Tunnels are closed except for match, ech, "
        "and none to an address.",
        "reqps",
        [("{{category}}", "sum by (category) (rate(crawlgate_sni_checks_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "Share of tunnels with a name that does not match",
        "Different names, no name, or no TLS: domain fronting, or clients that misuse tunnels.",
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
        "Opaque tunnels, of which at most limits.tunnels_per_host may go to one host, and tunnels with plain HTTP.",
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
        "With clients this includes creating a certificate, with origins one or two round trips.",
        "s",
        [
            (
                "{{side}}",
                "histogram_quantile(0.95, sum by (side, le) (rate(crawlgate_tls_handshake_seconds_bucket{@}[~])))",
            )
        ],
    ),
    lines(
        "Handshakes aborted by clients, by crawler",
        "distrust: the environment of these clients does not trust the certificate authority; `crawlgate env` sets it up. "
        "left: clients that leave in a handshake but complete others, such as the probes of Crawlee.",
        "reqps",
        [
            (
                "{{crawler}}: {{cause}}",
                "sum by (crawler, cause) (rate(crawlgate_client_tls_failures_total{@}[~])) > 0",
            )
        ],
        stacked=True,
    ),
    lines(
        "Certificates created",
        "One for each host, cached for a day (up to tls.leaf_cache). waits: handshakes of clients that exceeded "
        "tls.mints_per_client.",
        "cps",
        [
            ("made", "sum(rate(crawlgate_leaf_certificates_total{@}[~]))"),
            ("waits", "sum(rate(crawlgate_mint_waits_total{@}[~]))"),
        ],
    ),
    lines(
        "TLS failures with origins",
        "Untrusted certificates and failed handshakes, by RFC 9209 error type.",
        "reqps",
        [("{{error}}", 'sum by (error) (rate(crawlgate_upstream_errors_total{@,error=~"tls_.*"}[~]))')],
        stacked=True,
    ),
    lines(
        "Refusals for tunnels",
        "Refusals of the CONNECT itself, and of requests whose Host is not the tunnel's host.",
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
    heading("Anomalies"),
    lines(
        "Addresses refused, by range",
        "Names and literals that resolve to a special address; nothing was dialled. A steady rate suggests deliberate attempts.",
        "cps",
        [("{{range}}", "sum by (range) (rate(crawlgate_addresses_refused_total{@}[~])) > 0")],
        stacked=True,
    ),
    lines(
        "Unexpected protocols",
        "Connections closed because their first bytes belong to another protocol: TLS or HTTP/2 on the proxy's port, or an "
        "unknown protocol inside a tunnel.",
        "cps",
        [("{{reason}}", "sum by (reason) (rate(crawlgate_foreign_bytes_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "HTTP/2 with origins",
        "HTTP/2 connections to origins that were opened, and streams and connections that failed, by reason.",
        "cps",
        [
            ("opened", "sum(rate(crawlgate_upstream_http2_connections_total{@}[~]))"),
            ("{{reason}}", "sum by (reason) (rate(crawlgate_upstream_http2_failures_total{@}[~])) > 0"),
        ],
        stacked=True,
    ),
    lines(
        "HTTP/2 limits and errors",
        "HTTP/2 connections that were closed, and streams that were reset, because of what the client sent, or did not read.",
        "cps",
        [
            ("limit {{limit}}", "sum by (limit) (rate(crawlgate_http2_limits_total{@}[~])) > 0"),
            ("{{scope}} {{code}}", "sum by (scope, code) (rate(crawlgate_http2_errors_total{@}[~])) > 0"),
        ],
        stacked=True,
    ),
    lines(
        "Refused request heads",
        "Request heads that were refused as malformed, too large or too slow.",
        "cps",
        [("{{reason}}", "sum by (reason) (rate(crawlgate_head_rejections_total{@}[~]))")],
        stacked=True,
    ),
    lines(
        "Proxies before and behind",
        "Connections that a parent proxy did not open, proxies of parents that are down, and connections of load balancers "
        "without a valid header of the PROXY protocol.",
        "short",
        [
            ("parent {{parent}}: {{error}}", "sum by (parent, error) (rate(crawlgate_parent_failures_total{@}[~])) > 0"),
            ("parent {{parent}}: proxies down", "sum by (parent) (1 - crawlgate_parent_up{@}) > 0"),
            ("balancer: {{reason}}", "sum by (reason) (rate(crawlgate_proxy_protocol_failures_total{@}[~]))"),
        ],
    ),
    lines(
        "Name lookup and connection, p95",
        "For requests that needed one.",
        "s",
        [quantiles("crawlgate_dns_duration_seconds")[1], quantiles("crawlgate_connect_duration_seconds")[1]],
    ),
]

BOARD = Board(
    "crawlgate-tls",
    "crawlgate / TLS and tunnels",
    "Interception, tunnels, certificates, and attempts to bypass the proxy.",
    [*NOW, *INSIDE, *HANDSHAKE, *EDGES],
)
