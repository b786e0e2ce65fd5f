//! The tracked hosts: their queues, pace, backoff and robots.txt. `/api/v1/hosts` and `/api/v1/hosts/{host}`.

mod host;
mod list;
mod robots;
mod selector;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::admission::host_status::HostStatus;
use crate::pipeline::robots_fetch::inspection::OriginInspector;
use crate::urls::domain::registrable_domain;

use super::api_request::{ApiError, ApiResult, run_blocking};
use super::fleet::{FleetApi, HostOwner};
use super::query::percent_decode;
use super::response::{self, problem, problem_with};
use list::HostListQuery;
use robots::HostRobotsQuery;
use selector::HostSelector;

/// The most concurrent reads, since each may go through all tracked hosts.
const MAX_CONCURRENT_READS: usize = 2;

/// The part of the API that shows hosts.
#[derive(Clone, Debug)]
pub struct HostsApi {
    queue: Arc<AdmissionQueue>,
    origins: Arc<dyn OriginInspector>,
    /// The fleet, of whose hosts this node owns a part.
    fleet: Option<FleetApi>,
    read_permits: Arc<Semaphore>,
}

impl HostsApi {
    /// Creates the API for the hosts of a queue and their origins, neither of which it changes.
    pub fn new(
        queue: Arc<AdmissionQueue>,
        origins: Arc<dyn OriginInspector>,
        fleet: Option<FleetApi>,
    ) -> Self {
        Self {
            queue,
            origins,
            fleet,
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
        }
    }

    /// `GET /api/v1/hosts`: the matching hosts, sorted.
    pub(super) async fn list_hosts(&self, query: Option<&str>) -> ApiResult {
        let query = HostListQuery::parse(query)?;
        self.read_blocking(move |api| query.response(&api.queue, api.fleet.as_ref()))
            .await
    }

    /// `GET /api/v1/hosts/{host}`: the state of one host, and the decision of its robots.txt about a URL.
    pub(super) async fn show_host(&self, host: &str, query: Option<&str>) -> ApiResult {
        let selector = HostSelector::parse(&percent_decode(host)?)?;
        let query = HostRobotsQuery::parse(query, &selector)?;
        self.read_blocking(move |api| api.response(&selector, &query))
            .await
    }

    /// Reads on a thread that may block.
    async fn read_blocking(
        &self,
        read: impl FnOnce(&Self) -> Response<Full<Bytes>> + Send + 'static,
    ) -> ApiResult {
        let permit = Arc::clone(&self.read_permits).acquire_owned().await;
        let permit = permit.map_err(|_| ApiError::Internal)?;
        let api = self.clone();
        run_blocking(move || {
            let _permit = permit;
            read(&api)
        })
        .await
    }

    fn response(&self, selector: &HostSelector, query: &HostRobotsQuery) -> Response<Full<Bytes>> {
        let own = self.queue.untracked_host_status(&selector.host);
        let status = match self.find_paced(selector) {
            Some(paced) => paced.merge_host(own),
            None => own,
        };
        let owner = self.owner(selector);
        let mut robots = self.origins.robots(&selector.host);
        robots.retain(|file| selector.selects(file));
        if !status.is_known() && robots.is_empty() {
            if let Some(owner) = owner.filter(|owner| !owner.is_here) {
                return misdirected(&owner);
            }
            return problem(
                StatusCode::NOT_FOUND,
                "this host is not tracked: it had no recent requests, is not stopped, and none of its robots.txt files is cached",
            );
        }
        let refusing = self.origins.refusing_addresses(&selector.host);
        let robots = robots::files_to_json(&robots, query);
        response::json(
            StatusCode::OK,
            &host::host_to_json(selector, &status, &refusing, robots, owner.as_ref()),
        )
    }

    /// Returns the node that owns the host. An address that is paced in addition to its hosts has no owner.
    fn owner(&self, selector: &HostSelector) -> Option<HostOwner> {
        let fleet = self.fleet.as_ref()?;
        (!selector.is_address()).then(|| fleet.owner(&selector.host))?
    }

    /// Returns the status of the limiter of the host: its own, that of its domain, or that of one of its addresses.
    fn find_paced(&self, selector: &HostSelector) -> Option<HostStatus> {
        for key in selector.pacing_keys() {
            if let Some(status) = self.queue.host_status(key) {
                return Some(status);
            }
        }
        let domain = registrable_domain(&selector.host);
        self.queue.host_status(domain).or_else(|| {
            let addresses = self.origins.addresses(&selector.host);
            addresses
                .iter()
                .find_map(|address| self.queue.host_status(&address.to_string()))
        })
    }
}

/// Returns the answer for a host that another node owns, and of which this one knows nothing.
fn misdirected(owner: &HostOwner) -> Response<Full<Bytes>> {
    let node = &owner.node;
    let place = match &owner.admin {
        Some(url) => format!(" at {url}"),
        None => String::new(),
    };
    let detail = format!("the node {node} of the fleet owns this host: ask it{place}");
    let members = json!({ "detail": detail, "owner": owner.to_json() });
    problem_with(StatusCode::MISDIRECTED_REQUEST, &members)
}
