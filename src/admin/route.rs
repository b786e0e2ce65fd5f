//! The table of the admin listener's paths: what each takes, who may ask for it, and who answers.

use std::error::Error;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body;
use http_body_util::Full;

use crate::metrics::TEXT_FORMAT;
use crate::pipeline::stop_registry::StopId;

use super::body::AdminBody;
use super::guard::PathAccess;
use super::ledger::LedgerApi;
use super::response::{self, TEXT_PLAIN, problem, text_response};
use super::ui::Asset;
use super::{AdminServer, health, openapi};

/// What clients import as a certificate.
const PEM: &str = "application/x-pem-file";

/// The paths that exist.
#[derive(Clone, Copy, Debug)]
enum AdminRoute<'p> {
    Metrics,
    Health,
    Ready,
    Authorities,
    Status,
    Policy,
    PolicyDiff,
    Explain,
    Shadow,
    Reload,
    Stops,
    Stop(StopId),
    Decisions,
    /// By its id, as it stands in the path.
    Decision(&'p str),
    Hosts,
    /// By its name, as it stands in the path.
    Host(&'p str),
    Ledger(LedgerRoute<'p>),
    OpenApi,
    Ui(Asset),
}

/// The paths of what is remembered of URLs.
#[derive(Clone, Copy, Debug)]
enum LedgerRoute<'p> {
    Urls,
    /// By its key, as it stands in the path.
    Url(&'p str),
    Events,
    Stats,
    Sweep,
}

/// The methods that a path takes; reading is GET and HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedMethods {
    Read,
    Post,
    ReadOrPost,
    ReadOrDelete,
}

impl<'p> AdminRoute<'p> {
    fn from_path(path: &'p str) -> Option<Self> {
        match path {
            "/metrics" => Some(Self::Metrics),
            "/healthz" => Some(Self::Health),
            "/readyz" => Some(Self::Ready),
            "/ca.pem" => Some(Self::Authorities),
            "/api/v1/status" => Some(Self::Status),
            "/api/v1/policy" => Some(Self::Policy),
            "/api/v1/policy/diff" => Some(Self::PolicyDiff),
            "/api/v1/explain" => Some(Self::Explain),
            "/api/v1/shadow" => Some(Self::Shadow),
            "/api/v1/reload" => Some(Self::Reload),
            "/api/v1/stops" => Some(Self::Stops),
            "/api/v1/decisions" => Some(Self::Decisions),
            "/api/v1/hosts" => Some(Self::Hosts),
            "/api/v1/urls" => Some(Self::Ledger(LedgerRoute::Urls)),
            "/api/v1/events" => Some(Self::Ledger(LedgerRoute::Events)),
            "/api/v1/ledger" => Some(Self::Ledger(LedgerRoute::Stats)),
            "/api/v1/ledger/sweep" => Some(Self::Ledger(LedgerRoute::Sweep)),
            "/api/v1/openapi.json" => Some(Self::OpenApi),
            other => Self::from_item_path(other),
        }
    }

    /// The paths that name one thing of many.
    fn from_item_path(path: &'p str) -> Option<Self> {
        let stop = path
            .strip_prefix("/api/v1/stops/")
            .and_then(StopId::parse)
            .map(Self::Stop);
        let decision = path.strip_prefix("/api/v1/decisions/").map(Self::Decision);
        let host = path.strip_prefix("/api/v1/hosts/").map(Self::Host);
        let url = path
            .strip_prefix("/api/v1/urls/")
            .map(|key| Self::Ledger(LedgerRoute::Url(key)));
        stop.or(decision)
            .or(host)
            .or(url)
            .or_else(|| Asset::from_path(path).map(Self::Ui))
    }

    fn methods(self) -> AllowedMethods {
        match self {
            Self::Explain | Self::Reload | Self::Ledger(LedgerRoute::Sweep) => AllowedMethods::Post,
            Self::Stops => AllowedMethods::ReadOrPost,
            Self::Stop(_) => AllowedMethods::ReadOrDelete,
            Self::Metrics
            | Self::Health
            | Self::Ready
            | Self::Authorities
            | Self::Status
            | Self::Policy
            | Self::PolicyDiff
            | Self::Shadow
            | Self::Decisions
            | Self::Decision(_)
            | Self::Hosts
            | Self::Host(_)
            | Self::Ledger(
                LedgerRoute::Urls | LedgerRoute::Url(_) | LedgerRoute::Events | LedgerRoute::Stats,
            )
            | Self::OpenApi
            | Self::Ui(_) => AllowedMethods::Read,
        }
    }
}

impl AllowedMethods {
    fn allows(self, method: &Method) -> bool {
        match *method {
            Method::GET | Method::HEAD => self != Self::Post,
            Method::POST => matches!(self, Self::Post | Self::ReadOrPost),
            Method::DELETE => self == Self::ReadOrDelete,
            _ => false,
        }
    }

    /// For `Allow`.
    fn as_allow_value(self) -> &'static str {
        match self {
            Self::Read => "GET, HEAD",
            Self::Post => "POST",
            Self::ReadOrPost => "GET, HEAD, POST",
            Self::ReadOrDelete => "GET, HEAD, DELETE",
        }
    }
}

/// Which paths are open to those without a token: what probes and scrapers ask for, and the CA that clients need.
pub(super) fn path_access(path: &str) -> PathAccess {
    match path {
        "/metrics" | "/healthz" | "/readyz" | "/ca.pem" => PathAccess::Open,
        _ => PathAccess::Token,
    }
}

impl AdminServer {
    /// Answers a request that the guard has let in.
    pub(super) async fn dispatch<B>(&self, request: Request<B>) -> Response<AdminBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let Some(route) = AdminRoute::from_path(head.uri.path()) else {
            return problem(StatusCode::NOT_FOUND, "there is nothing at this path")
                .map(AdminBody::from);
        };
        let methods = route.methods();
        if !methods.allows(&head.method) {
            return response::method_not_allowed(methods.as_allow_value()).map(AdminBody::from);
        }
        match (route, &self.decisions) {
            (AdminRoute::Decisions, Some(live)) => live.list(&head.method, head.uri.query()).await,
            _ => self.respond(route, &head, body).await.map(AdminBody::from),
        }
    }

    /// The answers that are one document.
    async fn respond<B>(
        &self,
        route: AdminRoute<'_>,
        head: &request::Parts,
        body: B,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        match route {
            AdminRoute::Metrics => {
                text_response(StatusCode::OK, TEXT_FORMAT, self.metrics.render())
            }
            AdminRoute::Health => text_response(StatusCode::OK, TEXT_PLAIN, "ok\n".into()),
            AdminRoute::Ready => health::response(&self.readiness),
            AdminRoute::Authorities => self.show_authorities(),
            AdminRoute::Status => self.show_status(),
            AdminRoute::Policy => self.policy.show().await,
            AdminRoute::PolicyDiff => self.policy.show_diff().await,
            AdminRoute::Explain => self.policy.explain(body).await,
            AdminRoute::Shadow => self.policy.show_shadow(),
            AdminRoute::Reload => self.policy.reload().await,
            AdminRoute::Stops if head.method == Method::POST => self.stops.create(body).await,
            AdminRoute::Stops => self.stops.list(),
            AdminRoute::Stop(id) if head.method == Method::DELETE => self.stops.lift(id).await,
            AdminRoute::Stop(id) => self.stops.show(id),
            AdminRoute::OpenApi => openapi::response(),
            AdminRoute::Decisions => not_available(),
            AdminRoute::Decision(id) => match &self.decisions {
                Some(live) => live.show(id).await,
                None => not_available(),
            },
            AdminRoute::Hosts => match &self.hosts {
                Some(hosts) => hosts.list_hosts(head.uri.query()).await,
                None => not_available(),
            },
            AdminRoute::Host(name) => match &self.hosts {
                Some(hosts) => hosts.show_host(name, head.uri.query()).await,
                None => not_available(),
            },
            AdminRoute::Ledger(path) => match &self.ledger {
                Some(ledger) => ledger_response(ledger, path, head.uri.query(), body).await,
                None => not_available(),
            },
            AdminRoute::Ui(asset) => asset.response(&head.headers),
        }
    }

    fn show_authorities(&self) -> Response<Full<Bytes>> {
        match &self.authorities {
            Some(pem) => text_response(StatusCode::OK, PEM, pem.clone()),
            None => problem(
                StatusCode::NOT_FOUND,
                "there is no certificate authority to trust: this proxy does not look into TLS (tls.intercept)",
            ),
        }
    }
}

/// What the ledger's paths show.
async fn ledger_response<B>(
    ledger: &LedgerApi,
    path: LedgerRoute<'_>,
    query: Option<&str>,
    body: B,
) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match path {
        LedgerRoute::Urls => ledger.list_urls(query).await,
        LedgerRoute::Url(key) => ledger.show_url(key).await,
        LedgerRoute::Events => ledger.list_events(query).await,
        LedgerRoute::Stats => ledger.show_stats().await,
        LedgerRoute::Sweep => ledger.start_sweep(body).await,
    }
}

/// Of a server that was not given what would be shown.
fn not_available() -> Response<Full<Bytes>> {
    problem(StatusCode::NOT_FOUND, "this proxy does not show that")
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::admin::openapi;

    /// A value for each parameter of a path.
    const NAMED: [(&str, &str); 4] = [
        ("{key}", "00"),
        ("{id}", "1"),
        ("{host}", "www.example.com"),
        ("{file}", "app.js"),
    ];

    /// Paths of the description, with the methods that each takes.
    fn described() -> Vec<(String, Vec<String>)> {
        let document: Json = serde_json::from_str(openapi::DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let methods = |item: &Json| {
            let keys = item
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "parameters");
            keys.map(|key| key.to_uppercase()).collect()
        };
        paths
            .map(|(path, item)| (path.clone(), methods(item)))
            .collect()
    }

    #[test]
    fn what_is_described_is_there_with_these_methods() {
        for (path, methods) in described() {
            let sample = NAMED.iter().fold(path.clone(), |path, (name, value)| {
                path.replace(name, value)
            });
            let route =
                AdminRoute::from_path(&sample).unwrap_or_else(|| panic!("{path} leads nowhere"));
            let mut takes: Vec<&str> = route.methods().as_allow_value().split(", ").collect();
            takes.retain(|method| *method != "HEAD");
            assert_eq!(methods, takes, "{path}");
        }
    }

    /// The paths are read from this file, since a path is no value of a route.
    #[test]
    fn what_is_there_is_described() {
        let described = described();
        let code = include_str!("route.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap();
        let texts = code
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|text| text.starts_with('/'));
        let mut seen = 0;
        for text in texts {
            seen += 1;
            let known = |path: &str| path == text || text.ends_with('/') && path.starts_with(text);
            assert!(
                described.iter().any(|(path, _)| known(path)),
                "{text} is not described"
            );
        }
        assert!(seen >= 12, "{seen} paths: is this still reading them?");
    }

    /// Paths that need no token are those that say so.
    #[test]
    fn who_may_ask_is_described() {
        let document: Json = serde_json::from_str(openapi::DOCUMENT).unwrap();
        for (path, methods) in described() {
            let operation = &document["paths"][&path][methods[0].to_lowercase()];
            let open = operation["security"] == serde_json::json!([{}]);
            assert_eq!(open, path_access(&path) == PathAccess::Open, "{path}");
        }
    }
}
