//! The state of an origin in the parts of the proxy service, for the admin API.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use crate::pipeline::request::dry_run::{self, DryRun, DryRunRequest, DryRunner};
use crate::pipeline::robots_fetch::inspection::{OriginInspector, RobotsFileStatus};

use super::http::ProxyService;

impl OriginInspector for ProxyService {
    fn robots(&self, host: &str) -> Vec<RobotsFileStatus> {
        self.robots.inspect_host(host)
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        self.address_vetter.cached_addresses(host)
    }

    fn refusing_addresses(&self, host: &str) -> Vec<(SocketAddr, Duration)> {
        self.address_vetter.refused_addresses(host)
    }
}

impl DryRunner for ProxyService {
    fn dry_run(&self, request: DryRunRequest) -> Pin<Box<dyn Future<Output = DryRun> + Send + '_>> {
        Box::pin(async move {
            let services = self.request_services();
            dry_run::dry_run(request, &services).await
        })
    }
}
