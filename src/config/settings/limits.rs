//! Limits and time-outs: the numbers that bound what one client, one host or one origin can cost.

use std::time::Duration;

/// Sizes and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Client connections in all.
    pub connections: u64,
    /// Client connections from one address.
    pub per_client: u64,
    /// Bytes of a request head.
    pub head: u64,
    /// Fields of a request head.
    pub fields: u64,
    /// Bytes of a request target.
    pub target: u64,
    /// Bytes of a response head.
    pub origin_head: u64,
    /// Fields of a response head.
    pub origin_fields: u64,
    /// Bytes of a request body.
    pub request_body: u64,
    /// Requests that wait for one host.
    pub queue_per_host: u64,
    /// Requests that wait in all.
    pub queue: u64,
    /// The longest that `Crawl-Max-Wait` can make a request wait.
    pub max_hold: Duration,
    /// Tunnels to one host.
    pub tunnels_per_host: u64,
    /// Idle connections to origins in all.
    pub idle_pool: u64,
    /// Idle connections to one origin.
    pub idle_per_host: u64,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 10_000,
            per_client: 1_000,
            head: 32 << 10,
            fields: 100,
            target: 8 << 10,
            origin_head: 128 << 10,
            origin_fields: 256,
            request_body: 10 << 20,
            queue_per_host: 1_000,
            queue: 10_000,
            max_hold: Duration::from_secs(60),
            tunnels_per_host: 32,
            idle_pool: 1_024,
            idle_per_host: 2,
        }
    }
}

/// Durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeoutsConfig {
    /// A request head, from its first byte.
    pub head: Duration,
    /// A client connection without a request.
    pub idle: Duration,
    /// A TLS handshake.
    pub tls: Duration,
    /// A name look-up.
    pub dns: Duration,
    /// One attempt to connect.
    pub connect: Duration,
    /// All attempts to connect.
    pub connect_total: Duration,
    /// The response head, from the last byte of the request.
    pub response_head: Duration,
    /// A body of which nothing arrives.
    pub body_idle: Duration,
    /// A client that does not read its answer.
    pub write_stall: Duration,
    /// A request from head to last byte.
    pub request: Duration,
    /// A tunnel in which nothing moves.
    pub tunnel_idle: Duration,
    /// A tunnel.
    pub tunnel: Duration,
    /// What runs when the process is told to end.
    pub drain: Duration,
    /// The time in which a process that was told to end still accepts, for load balancers to notice.
    pub drain_delay: Duration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            head: seconds(10),
            idle: seconds(60),
            tls: seconds(10),
            dns: seconds(5),
            connect: seconds(5),
            connect_total: seconds(10),
            response_head: seconds(60),
            body_idle: seconds(60),
            write_stall: seconds(60),
            request: seconds(600),
            tunnel_idle: seconds(300),
            tunnel: seconds(3_600),
            drain: seconds(30),
            drain_delay: Duration::ZERO,
        }
    }
}
