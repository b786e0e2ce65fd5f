//! The hosts that are tracked: who waits for them, their pace, their rest and their robots.txt; `/api/v1/hosts` and
//! `/api/v1/hosts/{host}`.

mod host;
mod listed;
mod name;
mod robots;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::gate::hold::Hold;
use crate::gate::hold::seen::HostSeen;
use crate::gate::robots::seen::Remembered;
use crate::vocab::domain::registrable;

use super::page::{self, problem};
use super::query::decoded;
use listed::Listed;
use name::Name;
use robots::Judged;

/// Looks at once: each may go through all that is tracked.
const LOOKS: usize = 2;

/// What the proxy knows of hosts.
#[derive(Clone, Debug)]
pub struct HostsApi {
    hold: Arc<Hold>,
    remembered: Arc<dyn Remembered>,
    looks: Arc<Semaphore>,
}

impl HostsApi {
    /// Shows what these know; nothing is changed by it.
    pub fn new(hold: Arc<Hold>, remembered: Arc<dyn Remembered>) -> Self {
        Self {
            hold,
            remembered,
            looks: Arc::new(Semaphore::new(LOOKS)),
        }
    }

    /// `GET /api/v1/hosts`: those that fit, in order.
    pub(super) async fn list(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        match Listed::read(query) {
            Ok(listed) => self.look(move |api| listed.answer(&api.hold)).await,
            Err(mistake) => mistake.answer(),
        }
    }

    /// `GET /api/v1/hosts/{host}`: all that is known of one, and how its robots.txt rules a URL.
    pub(super) async fn show(&self, host: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        let name = decoded(host).and_then(|text| Name::read(&text));
        match name.and_then(|name| Ok((Judged::read(query, &name)?, name))) {
            Ok((judged, name)) => self.look(move |api| api.shown(&name, &judged)).await,
            Err(mistake) => mistake.answer(),
        }
    }

    /// Looks apart from the threads that serve.
    async fn look(
        &self,
        look: impl FnOnce(&Self) -> Response<Full<Bytes>> + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let Ok(place) = Arc::clone(&self.looks).acquire_owned().await else {
            return page::broken();
        };
        let api = self.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let _place = place;
            look(&api)
        });
        looked.await.unwrap_or_else(|_| page::broken())
    }

    fn shown(&self, name: &Name, judged: &Judged) -> Response<Full<Bytes>> {
        let own = self.hold.stopped(&name.host);
        let seen = self.paced(name).map_or(own.clone(), |seen| seen.with(own));
        let mut robots = self.remembered.robots(&name.host);
        robots.retain(|file| name.has(file));
        if !seen.is_known() && robots.is_empty() {
            return problem(
                StatusCode::NOT_FOUND,
                "this host is not tracked: nobody asked for it lately, it is not stopped, and no robots.txt of it is remembered",
            );
        }
        let dead = self.remembered.refusing(&name.host);
        page::json(
            StatusCode::OK,
            &host::shown(name, &seen, &dead, robots::shown(&robots, judged)),
        )
    }

    /// What the host is paced as: itself, or its domain, or one of its addresses.
    fn paced(&self, name: &Name) -> Option<HostSeen> {
        let of = |key: &str| self.hold.seen_of(key);
        let own = name.keys().into_iter().find_map(of);
        own.or_else(|| of(registrable(&name.host))).or_else(|| {
            let addresses = self.remembered.addresses(&name.host);
            addresses
                .iter()
                .find_map(|address| of(&address.to_string()))
        })
    }
}
