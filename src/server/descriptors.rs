//! The file descriptors of the process: the limit is raised at the start and shared out, so that it is never reached.
//! A proxy without a free descriptor could neither refuse a client nor answer a probe.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::admin::AdminServer;
use crate::config::settings::Settings;

/// Descriptors of the process itself: standard streams, runtime, listeners, logs, the ledger.
const OWN_DESCRIPTORS: usize = 24;
/// The part of the other descriptors that the admin listener may use, and that refusals of clients may use.
const RESERVED_PART: usize = 8;

/// The use of the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorShares {
    /// Connections of clients. Each may need a second descriptor, for its request's connection to the origin.
    connections: usize,
    /// Idle connections to origins.
    idle_pool: usize,
    /// Connections that are only told that the proxy is overloaded.
    overload_replies: usize,
    /// Connections of the admin listener.
    pub(super) admin_connections: usize,
}

impl DescriptorShares {
    /// Raises the soft limit of open files to the hard one, and shares it out. Logs the limits, and warns if they are
    /// lower than half of the settings.
    pub(super) fn allocate(settings: &Settings) -> Self {
        let limit = raise_limit();
        let shares = Self::new(limit, settings);
        let Self {
            connections,
            idle_pool,
            admin_connections,
            ..
        } = shares;
        let max_connections = settings.accept.connections;
        let max_idle = settings.upstream.pool.total;
        if connections < max_connections || idle_pool < max_idle {
            let message = format!(
                "the limit of open files ({limit}) suffices for {connections} client connections and {idle_pool} idle \
                 connections to origins, not for limits.connections ({max_connections}) and limits.idle_pool \
                 ({max_idle}), and the lower numbers apply. Raise the hard limit to {} (`ulimit -Hn`, LimitNOFILE= of \
                 the systemd unit, `--ulimit nofile=` of a container), or lower these settings",
                required_limit(settings)
            );
            // Few crawls need all that the settings permit.
            if connections < max_connections / 2 || idle_pool < max_idle / 2 {
                tracing::warn!("{message}");
            } else {
                tracing::info!("{message}");
            }
        }
        tracing::info!(
            "limits: {connections} client connections, {idle_pool} idle connections to origins, {admin_connections} \
             connections of the admin listener, {limit} open files"
        );
        shares
    }

    fn new(limit: usize, settings: &Settings) -> Self {
        let free = limit.saturating_sub(OWN_DESCRIPTORS);
        let reserve = free / RESERVED_PART;
        let admin_connections = reserve.clamp(2, AdminServer::MAX_CONNECTIONS);
        let overload_replies = reserve.clamp(1, settings.accept.overload_replies);
        let rest = free.saturating_sub(admin_connections + overload_replies);
        let idle_pool = settings.upstream.pool.total.min(rest / 4);
        Self {
            connections: settings
                .accept
                .connections
                .min((rest - idle_pool) / 2)
                .max(1),
            idle_pool,
            overload_replies,
            admin_connections,
        }
    }

    /// Returns the settings with these limits.
    pub(super) fn apply(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        settings.accept.connections = self.connections;
        settings.accept.overload_replies = self.overload_replies;
        settings.upstream.pool.total = self.idle_pool;
        settings
    }
}

/// Returns a limit of open files that suffices for the settings.
fn required_limit(settings: &Settings) -> usize {
    let idle = settings.upstream.pool.total;
    let rest = (2 * settings.accept.connections + idle).max(4 * idle);
    let reserve = AdminServer::MAX_CONNECTIONS + settings.accept.overload_replies;
    // With 2/8 of the free descriptors reserved, 6/8 remain.
    let free = (rest + reserve).min(rest.div_ceil(RESERVED_PART - 2) * RESERVED_PART);
    OWN_DESCRIPTORS + free
}

/// Raises the soft limit of open files to the hard one, and returns the limit that then applies.
fn raise_limit() -> usize {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    // `None` is unlimited. Some systems do not allow that for open files, although it is their hard limit.
    let applied = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limits.current,
    };
    applied.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(connections: usize, idle_pool: usize) -> Settings {
        let mut settings = Settings::default();
        settings.accept.connections = connections;
        settings.upstream.pool.total = idle_pool;
        settings
    }

    fn used(shares: &DescriptorShares) -> usize {
        OWN_DESCRIPTORS
            + 2 * shares.connections
            + shares.idle_pool
            + shares.overload_replies
            + shares.admin_connections
    }

    #[test]
    fn what_is_shared_out_never_exceeds_the_limit() {
        for limit in [32, 64, 100, 256, 1_024, 4_096, 65_536, usize::MAX] {
            for (connections, idle_pool) in [(1, 0), (100, 1_000), (10_000, 1_024), (10_000, 0)] {
                let shares = DescriptorShares::new(limit, &settings(connections, idle_pool));
                assert!(used(&shares) <= limit, "{limit}: {shares:?}");
                assert!(shares.connections >= 1 && shares.connections <= connections);
                assert!(shares.idle_pool <= idle_pool);
                assert!(shares.admin_connections >= 2 && shares.overload_replies >= 1);
            }
        }
    }

    #[test]
    fn the_defaults_fit_the_unit_and_a_third_of_a_low_limit_is_for_clients() {
        let settings = settings(10_000, 1_024);
        let shares = DescriptorShares::new(65_536, &settings);
        assert_eq!((shares.connections, shares.idle_pool), (10_000, 1_024));
        assert_eq!(
            (shares.overload_replies, shares.admin_connections),
            (256, AdminServer::MAX_CONNECTIONS)
        );
        for (limit, connections) in [(24, 1), (64, 11), (256, 65), (1_024, 281), (4_096, 1_383)] {
            let shares = DescriptorShares::new(limit, &settings);
            assert_eq!(shares.connections, connections, "{limit}");
        }
    }

    #[test]
    fn the_documentation_has_the_limit_of_the_defaults() {
        let hundreds = (required_limit(&Settings::default()) + 50) / 100 * 100;
        let text = format!("about {},{:03} in all", hundreds / 1_000, hundreds % 1_000);
        assert!(
            include_str!("../../docs/operations.md").contains(&text),
            "{text}"
        );
    }

    #[test]
    fn the_required_limit_suffices_and_is_not_excessive() {
        for (connections, idle_pool) in
            [(1, 1), (10, 0), (100, 1_000), (1_000, 64), (10_000, 1_024)]
        {
            let settings = settings(connections, idle_pool);
            let limit = required_limit(&settings);
            let shares = DescriptorShares::new(limit, &settings);
            assert_eq!(
                (shares.connections, shares.idle_pool),
                (connections, idle_pool),
                "{limit}"
            );
            let less = DescriptorShares::new(limit * 9 / 10, &settings);
            assert!(less.connections < connections || less.idle_pool < idle_pool || limit < 64);
        }
    }
}
