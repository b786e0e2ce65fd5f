//! The table of the admin listener's paths: the methods of each, whether it needs the token, and what answers it.

use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request};
use http_body::Body;
use http_body_util::Full;

use crate::metrics::TEXT_FORMAT;
use crate::pipeline::stop_registry::StopId;

use super::body::AdminBody;
use super::guard::PathAccess;
use super::response::{self, TEXT_PLAIN, problem, text_response};
use super::ui::Asset;
use super::{AdminServer, health};

use AllowedMethods::{Post, Read, ReadOrDelete, ReadOrPost};
use PathAccess::{Open, Token};

/// The media type from which clients import certificates.
const PEM_TYPE: &str = "application/x-pem-file";

/// The description of every path, in OpenAPI 3.1. Written by hand; tests compare it with the table and with answers.
const OPENAPI: &str = include_str!("openapi.json");

/// All paths, under the names that the OpenAPI document gives them. A path that matches no row needs the token.
const ROUTES: &[Route] = &[
    // Probes and scrapers carry no token, and clients fetch the CA before they have one.
    Route::new("/metrics", Read, Open, |_| Some(AdminEndpoint::Metrics)),
    Route::new("/healthz", Read, Open, |_| Some(AdminEndpoint::Health)),
    Route::new("/readyz", Read, Open, |_| Some(AdminEndpoint::Ready)),
    Route::new("/ca.pem", Read, Open, |_| Some(AdminEndpoint::Authorities)),
    Route::new("/api/v1/status", Read, Token, |_| {
        Some(AdminEndpoint::Status)
    }),
    Route::new("/api/v1/policy", Read, Token, |_| {
        Some(AdminEndpoint::Policy)
    }),
    Route::new("/api/v1/policy/diff", Read, Token, |_| {
        Some(AdminEndpoint::PolicyDiff)
    }),
    Route::new("/api/v1/explain", Post, Token, |_| {
        Some(AdminEndpoint::Explain)
    }),
    Route::new("/api/v1/shadow", Read, Token, |_| {
        Some(AdminEndpoint::Shadow)
    }),
    Route::new("/api/v1/reload", Post, Token, |_| {
        Some(AdminEndpoint::Reload)
    }),
    Route::new("/api/v1/stops", ReadOrPost, Token, |_| {
        Some(AdminEndpoint::Stops)
    }),
    Route::new("/api/v1/stops/{id}", ReadOrDelete, Token, |id| {
        StopId::parse(id).map(AdminEndpoint::Stop)
    }),
    Route::new("/api/v1/decisions", Read, Token, |_| {
        Some(AdminEndpoint::Decisions)
    }),
    Route::new("/api/v1/decisions/{id}", Read, Token, |id| {
        Some(AdminEndpoint::Decision(id))
    }),
    Route::new("/api/v1/hosts", Read, Token, |_| Some(AdminEndpoint::Hosts)),
    Route::new("/api/v1/hosts/{host}", Read, Token, |host| {
        Some(AdminEndpoint::Host(host))
    }),
    Route::new("/api/v1/urls", Read, Token, |_| Some(AdminEndpoint::Urls)),
    Route::new("/api/v1/urls/{key}", Read, Token, |key| {
        Some(AdminEndpoint::Url(key))
    }),
    Route::new("/api/v1/events", Read, Token, |_| {
        Some(AdminEndpoint::Events)
    }),
    Route::new("/api/v1/ledger", Read, Token, |_| {
        Some(AdminEndpoint::Ledger)
    }),
    Route::new("/api/v1/ledger/sweep", Post, Token, |_| {
        Some(AdminEndpoint::Sweep)
    }),
    Route::new("/api/v1/openapi.json", Read, Token, |_| {
        Some(AdminEndpoint::OpenApi)
    }),
    Route::new("/ui", Read, Token, |name| {
        Asset::from_name(name).map(AdminEndpoint::Ui)
    }),
    Route::new("/ui/{file}", Read, Token, |name| {
        Asset::from_name(name).map(AdminEndpoint::Ui)
    }),
];

/// One row of the table.
#[derive(Debug)]
struct Route {
    /// A path, or one that ends in a placeholder: `{id}` matches the rest of the request's path.
    path: &'static str,
    methods: AllowedMethods,
    access: PathAccess,
    /// Returns the endpoint for the text in the place of the placeholder, or `None` if there is nothing of that name.
    resolve: for<'p> fn(&'p str) -> Option<AdminEndpoint<'p>>,
}

/// The handler of a request. Items carry the undecoded last segment of the path.
#[derive(Clone, Copy, Debug)]
enum AdminEndpoint<'p> {
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
    Decision(&'p str),
    Hosts,
    Host(&'p str),
    Urls,
    Url(&'p str),
    Events,
    Ledger,
    Sweep,
    OpenApi,
    Ui(Asset),
}

/// The methods of a path. `Read` is GET and HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedMethods {
    Read,
    Post,
    ReadOrPost,
    ReadOrDelete,
}

impl Route {
    const fn new(
        path: &'static str,
        methods: AllowedMethods,
        access: PathAccess,
        resolve: for<'p> fn(&'p str) -> Option<AdminEndpoint<'p>>,
    ) -> Self {
        Self {
            path,
            methods,
            access,
            resolve,
        }
    }

    fn endpoint<'p>(&self, path: &'p str) -> Option<AdminEndpoint<'p>> {
        match self.path.split_once('{') {
            Some((prefix, _)) => (self.resolve)(path.strip_prefix(prefix)?),
            None if path == self.path => (self.resolve)(""),
            None => None,
        }
    }
}

/// Returns the row and the endpoint of a path.
fn find(path: &str) -> Option<(&'static Route, AdminEndpoint<'_>)> {
    ROUTES
        .iter()
        .find_map(|route| Some((route, route.endpoint(path)?)))
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

    /// The value of `Allow`.
    fn as_allow_value(self) -> &'static str {
        match self {
            Self::Read => "GET, HEAD",
            Self::Post => "POST",
            Self::ReadOrPost => "GET, HEAD, POST",
            Self::ReadOrDelete => "GET, HEAD, DELETE",
        }
    }
}

impl AdminServer {
    /// Answers one request that arrived on a connection to `local`.
    pub async fn handle<B>(&self, request: Request<B>, local: SocketAddr) -> Response<AdminBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let found = find(head.uri.path());
        let access = found.map_or(Token, |(route, _)| route.access);
        if let Err(refusal) = self.guard.check(&head, local, access) {
            return refusal.into_response().map(AdminBody::from);
        }
        let Some((route, endpoint)) = found else {
            return problem(StatusCode::NOT_FOUND, "there is nothing at this path")
                .map(AdminBody::from);
        };
        if !route.methods.allows(&head.method) {
            return response::method_not_allowed(route.methods.as_allow_value())
                .map(AdminBody::from);
        }
        self.respond(endpoint, &head, body).await
    }

    async fn respond<B>(
        &self,
        endpoint: AdminEndpoint<'_>,
        head: &request::Parts,
        body: B,
    ) -> Response<AdminBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let api = &self.apis;
        let query = head.uri.query();
        let whole: Response<Full<Bytes>> = match endpoint {
            // The one answer that may be a stream.
            AdminEndpoint::Decisions => return api.decisions.list(&head.method, query).await,
            AdminEndpoint::Metrics => {
                text_response(StatusCode::OK, TEXT_FORMAT, api.metrics.render())
            }
            AdminEndpoint::Health => text_response(StatusCode::OK, TEXT_PLAIN, "ok\n".into()),
            AdminEndpoint::Ready => health::response(&api.readiness),
            AdminEndpoint::Authorities => self.show_authorities(),
            AdminEndpoint::Status => self.show_status(),
            AdminEndpoint::Policy => api.policy.show().await,
            AdminEndpoint::PolicyDiff => api.policy.show_diff().await,
            AdminEndpoint::Explain => api.policy.explain(body).await,
            AdminEndpoint::Shadow => api.policy.show_shadow(),
            AdminEndpoint::Reload => api.policy.reload().await,
            AdminEndpoint::Stops if head.method == Method::POST => api.stops.create(body).await,
            AdminEndpoint::Stops => api.stops.list(),
            AdminEndpoint::Stop(id) if head.method == Method::DELETE => api.stops.lift(id).await,
            AdminEndpoint::Stop(id) => api.stops.show(id),
            AdminEndpoint::Decision(id) => api.decisions.show(id).await,
            AdminEndpoint::Hosts => api.hosts.list_hosts(query).await,
            AdminEndpoint::Host(name) => api.hosts.show_host(name, query).await,
            AdminEndpoint::Urls => api.ledger.list_urls(query).await,
            AdminEndpoint::Url(key) => api.ledger.show_url(key).await,
            AdminEndpoint::Events => api.ledger.list_events(query).await,
            AdminEndpoint::Ledger => api.ledger.show_stats().await,
            AdminEndpoint::Sweep => api.ledger.start_sweep(body).await,
            AdminEndpoint::OpenApi => {
                text_response(StatusCode::OK, "application/json", OPENAPI.into())
            }
            AdminEndpoint::Ui(asset) => asset.response(&head.headers),
        };
        whole.map(AdminBody::from)
    }

    fn show_authorities(&self) -> Response<Full<Bytes>> {
        match &self.apis.authorities {
            Some(pem) => text_response(StatusCode::OK, PEM_TYPE, pem.clone()),
            None => problem(
                StatusCode::NOT_FOUND,
                "there is no certificate authority to trust: this proxy does not intercept TLS (tls.intercept)",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value as Json;

    use super::*;

    #[test]
    fn the_document_describes_each_path_with_its_methods_and_access() {
        let document: Json = serde_json::from_str(OPENAPI).unwrap();
        let mut described = BTreeMap::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                if method != "parameters" {
                    let open = operation["security"] == serde_json::json!([{}]);
                    described.insert((path.clone(), method.to_uppercase()), open);
                }
            }
        }
        let mut routed = BTreeMap::new();
        for route in ROUTES {
            for method in route.methods.as_allow_value().split(", ") {
                if method != "HEAD" {
                    let open = route.access == PathAccess::Open;
                    routed.insert((route.path.to_owned(), method.to_owned()), open);
                }
            }
        }
        assert_eq!(described, routed);
    }

    #[test]
    fn paths_lead_to_their_rows() {
        for (path, row) in [
            ("/metrics", Some("/metrics")),
            ("/metrics/", None),
            ("/api/v1/policy/diff", Some("/api/v1/policy/diff")),
            ("/api/v1/stops/1", Some("/api/v1/stops/{id}")),
            ("/api/v1/stops/", None),
            ("/api/v1/stops/x", None),
            ("/api/v1/hosts/", Some("/api/v1/hosts/{host}")),
            ("/api/v1/hosts/a/b", Some("/api/v1/hosts/{host}")),
            ("/ui", Some("/ui")),
            ("/ui/", Some("/ui/{file}")),
            ("/ui/app.js", Some("/ui/{file}")),
            ("/ui/none.js", None),
            ("/uix", None),
            ("/", None),
        ] {
            assert_eq!(find(path).map(|(route, _)| route.path), row, "{path}");
        }
    }
}
