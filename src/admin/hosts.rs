//! The hosts that are tracked: who waits for them, their pace, their rest and their robots.txt; `/api/v1/hosts` and
//! `/api/v1/hosts/{host}`.

mod host;
mod list;
mod robots;
mod selector;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::admission::host_status::HostStatus;
use crate::pipeline::robots_fetch::inspection::OriginInspector;
use crate::urls::domain::registrable_domain;

use super::query::percent_decode;
use super::response::{self, problem};
use list::HostListQuery;
use robots::HostRobotsQuery;
use selector::HostSelector;

/// Looks at once: each may go through all that is tracked.
const MAX_CONCURRENT_READS: usize = 2;

/// What the proxy knows of hosts.
#[derive(Clone, Debug)]
pub struct HostsApi {
    queue: Arc<AdmissionQueue>,
    host_memory: Arc<dyn OriginInspector>,
    read_permits: Arc<Semaphore>,
}

impl HostsApi {
    /// Shows what these know; nothing is changed by it.
    pub fn new(queue: Arc<AdmissionQueue>, host_memory: Arc<dyn OriginInspector>) -> Self {
        Self {
            queue,
            host_memory,
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
        }
    }

    /// `GET /api/v1/hosts`: those that fit, in order.
    pub(super) async fn list_hosts(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        match HostListQuery::parse(query) {
            Ok(listed) => {
                self.read_blocking(move |api| listed.response(&api.queue))
                    .await
            }
            Err(mistake) => mistake.to_response(),
        }
    }

    /// `GET /api/v1/hosts/{host}`: all that is known of one, and how its robots.txt rules a URL.
    pub(super) async fn show_host(&self, host: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        let name = percent_decode(host).and_then(|text| HostSelector::parse(&text));
        match name.and_then(|name| Ok((HostRobotsQuery::parse(query, &name)?, name))) {
            Ok((judged, name)) => {
                self.read_blocking(move |api| api.response(&name, &judged))
                    .await
            }
            Err(mistake) => mistake.to_response(),
        }
    }

    /// Looks apart from the threads that serve.
    async fn read_blocking(
        &self,
        read: impl FnOnce(&Self) -> Response<Full<Bytes>> + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let Ok(place) = Arc::clone(&self.read_permits).acquire_owned().await else {
            return response::internal_error();
        };
        let api = self.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let _place = place;
            read(&api)
        });
        looked.await.unwrap_or_else(|_| response::internal_error())
    }

    fn response(&self, selector: &HostSelector, query: &HostRobotsQuery) -> Response<Full<Bytes>> {
        let own = self.queue.untracked_host_status(&selector.host);
        let seen = self
            .find_paced(selector)
            .map_or(own.clone(), |seen| seen.merge_host(own));
        let mut robots = self.host_memory.robots(&selector.host);
        robots.retain(|file| selector.selects(file));
        if !seen.is_known() && robots.is_empty() {
            return problem(
                StatusCode::NOT_FOUND,
                "this host is not tracked: nobody asked for it lately, it is not stopped, and no robots.txt of it is remembered",
            );
        }
        let dead = self.host_memory.refusing_addresses(&selector.host);
        response::json(
            StatusCode::OK,
            &host::host_to_json(
                selector,
                &seen,
                &dead,
                robots::files_to_json(&robots, query),
            ),
        )
    }

    /// What the host is paced as: itself, or its domain, or one of its addresses.
    fn find_paced(&self, selector: &HostSelector) -> Option<HostStatus> {
        let of = |key: &str| self.queue.host_status(key);
        let own = selector.pacing_keys().into_iter().find_map(of);
        own.or_else(|| of(registrable_domain(&selector.host)))
            .or_else(|| {
                let addresses = self.host_memory.addresses(&selector.host);
                addresses
                    .iter()
                    .find_map(|address| of(&address.to_string()))
            })
    }
}
