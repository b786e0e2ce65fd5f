//! The table of the admin listener's paths: what each takes, who may ask for it, and who answers.

use std::error::Error;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body;
use http_body_util::Full;

use crate::gate::stops::StopId;
use crate::metrics::TEXT_FORMAT;

use super::guard::Access;
use super::ledger::LedgerApi;
use super::page::{self, PLAIN, page, problem};
use super::reply::Reply;
use super::ui::Asset;
use super::{Admin, health, openapi};

/// What clients import as a certificate.
const PEM: &str = "application/x-pem-file";

/// The paths that exist.
#[derive(Clone, Copy, Debug)]
enum Route<'p> {
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
    Ledger(Remembered<'p>),
    OpenApi,
    Ui(Asset),
}

/// The paths of what is remembered of URLs.
#[derive(Clone, Copy, Debug)]
enum Remembered<'p> {
    Urls,
    /// By its key, as it stands in the path.
    Url(&'p str),
    Events,
    Stats,
    Sweep,
}

/// The methods that a path takes; reading is GET and HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Methods {
    Read,
    Post,
    ReadOrPost,
    ReadOrDelete,
}

impl<'p> Route<'p> {
    fn of(path: &'p str) -> Option<Self> {
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
            "/api/v1/urls" => Some(Self::Ledger(Remembered::Urls)),
            "/api/v1/events" => Some(Self::Ledger(Remembered::Events)),
            "/api/v1/ledger" => Some(Self::Ledger(Remembered::Stats)),
            "/api/v1/ledger/sweep" => Some(Self::Ledger(Remembered::Sweep)),
            "/api/v1/openapi.json" => Some(Self::OpenApi),
            other => Self::below(other),
        }
    }

    /// The paths that name one thing of many.
    fn below(path: &'p str) -> Option<Self> {
        let stop = path
            .strip_prefix("/api/v1/stops/")
            .and_then(StopId::parse)
            .map(Self::Stop);
        let decision = path.strip_prefix("/api/v1/decisions/").map(Self::Decision);
        let host = path.strip_prefix("/api/v1/hosts/").map(Self::Host);
        let url = path
            .strip_prefix("/api/v1/urls/")
            .map(|key| Self::Ledger(Remembered::Url(key)));
        stop.or(decision)
            .or(host)
            .or(url)
            .or_else(|| Asset::at(path).map(Self::Ui))
    }

    fn methods(self) -> Methods {
        match self {
            Self::Explain | Self::Reload | Self::Ledger(Remembered::Sweep) => Methods::Post,
            Self::Stops => Methods::ReadOrPost,
            Self::Stop(_) => Methods::ReadOrDelete,
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
                Remembered::Urls | Remembered::Url(_) | Remembered::Events | Remembered::Stats,
            )
            | Self::OpenApi
            | Self::Ui(_) => Methods::Read,
        }
    }
}

impl Methods {
    fn take(self, method: &Method) -> bool {
        match *method {
            Method::GET | Method::HEAD => self != Self::Post,
            Method::POST => matches!(self, Self::Post | Self::ReadOrPost),
            Method::DELETE => self == Self::ReadOrDelete,
            _ => false,
        }
    }

    /// For `Allow`.
    fn words(self) -> &'static str {
        match self {
            Self::Read => "GET, HEAD",
            Self::Post => "POST",
            Self::ReadOrPost => "GET, HEAD, POST",
            Self::ReadOrDelete => "GET, HEAD, DELETE",
        }
    }
}

/// Which paths are open to those without a token: what probes and scrapers ask for, and the CA that clients need.
pub(super) fn access(path: &str) -> Access {
    match path {
        "/metrics" | "/healthz" | "/readyz" | "/ca.pem" => Access::Open,
        _ => Access::Token,
    }
}

impl Admin {
    /// Answers a request that the guard has let in.
    pub(super) async fn route<B>(&self, request: Request<B>) -> Response<Reply>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let Some(route) = Route::of(head.uri.path()) else {
            return problem(StatusCode::NOT_FOUND, "there is nothing at this path")
                .map(Reply::from);
        };
        let methods = route.methods();
        if !methods.take(&head.method) {
            return page::only(methods.words()).map(Reply::from);
        }
        match (route, &self.live) {
            (Route::Decisions, Some(live)) => live.decisions(&head.method, head.uri.query()).await,
            _ => self.document(route, &head, body).await.map(Reply::from),
        }
    }

    /// The answers that are one document.
    async fn document<B>(
        &self,
        route: Route<'_>,
        head: &request::Parts,
        body: B,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        match route {
            Route::Metrics => page(StatusCode::OK, TEXT_FORMAT, self.metrics.render()),
            Route::Health => page(StatusCode::OK, PLAIN, "ok\n".into()),
            Route::Ready => health::answer(&self.readiness),
            Route::Authorities => self.show_authorities(),
            Route::Status => self.status(),
            Route::Policy => self.policy.show().await,
            Route::PolicyDiff => self.policy.show_diff().await,
            Route::Explain => self.policy.explain(body).await,
            Route::Shadow => self.policy.show_shadow(),
            Route::Reload => self.policy.reload().await,
            Route::Stops if head.method == Method::POST => self.stops.press(body).await,
            Route::Stops => self.stops.list(),
            Route::Stop(id) if head.method == Method::DELETE => self.stops.lift(id).await,
            Route::Stop(id) => self.stops.show(id),
            Route::OpenApi => openapi::answer(),
            Route::Decisions => unshown(),
            Route::Decision(id) => match &self.live {
                Some(live) => live.decision(id).await,
                None => unshown(),
            },
            Route::Hosts => match &self.hosts {
                Some(hosts) => hosts.list(head.uri.query()).await,
                None => unshown(),
            },
            Route::Host(name) => match &self.hosts {
                Some(hosts) => hosts.show(name, head.uri.query()).await,
                None => unshown(),
            },
            Route::Ledger(path) => match &self.ledger {
                Some(ledger) => remembered(ledger, path, head.uri.query(), body).await,
                None => unshown(),
            },
            Route::Ui(asset) => asset.answer(&head.headers),
        }
    }

    fn show_authorities(&self) -> Response<Full<Bytes>> {
        match &self.authorities {
            Some(pem) => page(StatusCode::OK, PEM, pem.clone()),
            None => problem(
                StatusCode::NOT_FOUND,
                "there is no certificate authority to trust: this proxy does not look into TLS (tls.intercept)",
            ),
        }
    }
}

/// What the ledger's paths show.
async fn remembered<B>(
    ledger: &LedgerApi,
    path: Remembered<'_>,
    query: Option<&str>,
    body: B,
) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match path {
        Remembered::Urls => ledger.urls(query).await,
        Remembered::Url(key) => ledger.url(key).await,
        Remembered::Events => ledger.events(query).await,
        Remembered::Stats => ledger.stats().await,
        Remembered::Sweep => ledger.sweep(body).await,
    }
}

/// Of a server that was not given what would be shown.
fn unshown() -> Response<Full<Bytes>> {
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
            let route = Route::of(&sample).unwrap_or_else(|| panic!("{path} leads nowhere"));
            let mut takes: Vec<&str> = route.methods().words().split(", ").collect();
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
            assert_eq!(open, access(&path) == Access::Open, "{path}");
        }
    }
}
