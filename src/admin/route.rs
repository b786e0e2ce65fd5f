//! The table of the admin listener's paths: the methods of each, whether it needs the token, and what answers it.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, request};
use http_body_util::Full;

use crate::metrics::TEXT_FORMAT;
use crate::pipeline::stop_registry::StopId;
use crate::store::policies::ChangeAuthor;

use super::api_request::{ApiError, ApiResult, RequestBody, run_blocking};
use super::body::AdminBody;
use super::guard::{PathAccess, claimed_user};
use super::response::{self, TEXT_PLAIN, problem, text_response};
use super::ui::Asset;
use super::{AdminConnection, AdminServer, health, messages};

use AllowedMethods::{Post, PutOrDelete, Read, ReadOrDelete, ReadOrPost};
use PathAccess::{Open, RequiredToken, Token};

/// The media type from which clients import certificates.
const PEM_TYPE: &str = "application/x-pem-file";

/// The description of every path, in OpenAPI 3.1. Written by hand; tests compare it with the table and with answers.
const OPENAPI: &str = include_str!("openapi.json");

/// All paths, under the names that the OpenAPI document gives them. A path that matches no row needs the token.
const ROUTES: &[Route] = &[
    // Probes and scrapers carry no token, and clients fetch the CA before they have one.
    Route::fixed("/metrics", Read, Open, Handler::Metrics),
    Route::fixed("/healthz", Read, Open, Handler::Health),
    Route::fixed("/readyz", Read, Open, Handler::Ready),
    Route::fixed("/ca.pem", Read, Open, Handler::Authorities),
    Route::fixed("/api/v1/status", Read, Token, Handler::Status),
    Route::fixed("/api/v1/history", Read, Token, Handler::History),
    Route::fixed("/api/v1/messages", Read, Token, Handler::Messages),
    Route::fixed("/api/v1/config", Read, Token, Handler::Config),
    Route::fixed("/api/v1/crawlers", Read, Token, Handler::Crawlers),
    Route::fixed("/api/v1/fleet", Read, Token, Handler::Fleet),
    Route::fixed(
        "/api/v1/fleet/partitions",
        Read,
        Token,
        Handler::FleetPartitions,
    ),
    Route::fixed("/api/v1/policy", Read, Token, Handler::Policy),
    Route::fixed("/api/v1/policy/rules", Read, Token, Handler::PolicyRules),
    Route::fixed("/api/v1/policy/diff", Read, Token, Handler::PolicyDiff),
    Route::fixed(
        "/api/v1/policy/history",
        Read,
        Token,
        Handler::PolicyHistory,
    ),
    Route::fixed(
        "/api/v1/policy/rollback",
        Post,
        RequiredToken,
        Handler::Rollback,
    ),
    Route::fixed("/api/v1/explain", Post, Token, Handler::Explain),
    Route::fixed("/api/v1/shadow", Read, Token, Handler::Shadow),
    Route::fixed(
        "/api/v1/shadow/policy",
        PutOrDelete,
        RequiredToken,
        Handler::ShadowPolicy,
    ),
    Route::fixed(
        "/api/v1/shadow/promote",
        Post,
        RequiredToken,
        Handler::Promote,
    ),
    Route::fixed("/api/v1/reload", Post, Token, Handler::Reload),
    Route::fixed("/api/v1/stops", ReadOrPost, Token, Handler::Stops),
    Route::item("/api/v1/stops/{id}", ReadOrDelete, Token, |id| {
        StopId::parse(id).map(Handler::Stop)
    }),
    Route::fixed("/api/v1/decisions", Read, Token, Handler::Decisions),
    Route::item("/api/v1/decisions/{id}", Read, Token, |id| {
        Some(Handler::Decision(id))
    }),
    Route::fixed("/api/v1/hosts", Read, Token, Handler::Hosts),
    Route::item("/api/v1/hosts/{host}", Read, Token, |host| {
        Some(Handler::Host(host))
    }),
    Route::fixed("/api/v1/urls", Read, Token, Handler::Urls),
    Route::item("/api/v1/urls/{key}", Read, Token, |key| {
        Some(Handler::Url(key))
    }),
    Route::fixed("/api/v1/events", Read, Token, Handler::Events),
    Route::fixed("/api/v1/ledger", Read, Token, Handler::Ledger),
    Route::fixed("/api/v1/ledger/sweep", Post, Token, Handler::Sweep),
    Route::fixed("/api/v1/ledger/forget", Post, Token, Handler::Forget),
    Route::fixed(
        "/api/v1/ledger/removals",
        Post,
        Token,
        Handler::ConfirmRemovals,
    ),
    Route::fixed("/api/v1/openapi.json", Read, Token, Handler::OpenApi),
    Route::fixed("/", Read, Open, Handler::Root),
    Route::fixed("/ui", Read, Token, Handler::Page),
    Route::item("/ui/{file}", Read, Token, |name| {
        Asset::from_name(name).map(Handler::Ui)
    }),
];

/// One row of the table.
#[derive(Debug)]
struct Route {
    path: &'static str,
    methods: AllowedMethods,
    access: PathAccess,
    handler: RouteHandler,
}

/// The handler of a row.
#[derive(Debug)]
enum RouteHandler {
    Fixed(Handler<'static>),
    /// Depends on the text in the place of the path's placeholder; `None` if there is nothing of that name.
    Item(for<'p> fn(&'p str) -> Option<Handler<'p>>),
}

/// The handler of a request. Items carry their part of the path, which is not decoded.
#[derive(Clone, Copy, Debug)]
enum Handler<'p> {
    Metrics,
    Health,
    Ready,
    Authorities,
    Status,
    History,
    Messages,
    Config,
    Crawlers,
    Fleet,
    FleetPartitions,
    Policy,
    PolicyRules,
    PolicyDiff,
    PolicyHistory,
    Rollback,
    Explain,
    Shadow,
    ShadowPolicy,
    Promote,
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
    Forget,
    ConfirmRemovals,
    OpenApi,
    Root,
    Page,
    Ui(Asset),
}

/// The methods of a path. `Read` is GET and HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedMethods {
    Read,
    Post,
    ReadOrPost,
    ReadOrDelete,
    PutOrDelete,
}

impl Route {
    const fn fixed(
        path: &'static str,
        methods: AllowedMethods,
        access: PathAccess,
        handler: Handler<'static>,
    ) -> Self {
        Self {
            path,
            methods,
            access,
            handler: RouteHandler::Fixed(handler),
        }
    }

    /// A row whose path ends in a placeholder: `{id}` matches the rest of the request's path.
    const fn item(
        path: &'static str,
        methods: AllowedMethods,
        access: PathAccess,
        handler: for<'p> fn(&'p str) -> Option<Handler<'p>>,
    ) -> Self {
        Self {
            path,
            methods,
            access,
            handler: RouteHandler::Item(handler),
        }
    }

    fn handler<'p>(&self, path: &'p str) -> Option<Handler<'p>> {
        match self.handler {
            RouteHandler::Fixed(handler) => (path == self.path).then_some(handler),
            RouteHandler::Item(handler) => {
                let (prefix, _) = self.path.split_once('{')?;
                handler(path.strip_prefix(prefix)?)
            }
        }
    }
}

/// Returns the row and the handler of a path.
fn find(path: &str) -> Option<(&'static Route, Handler<'_>)> {
    ROUTES
        .iter()
        .find_map(|route| Some((route, route.handler(path)?)))
}

impl AllowedMethods {
    fn allows(self, method: &Method) -> bool {
        match *method {
            Method::GET | Method::HEAD => !matches!(self, Self::Post | Self::PutOrDelete),
            Method::POST => matches!(self, Self::Post | Self::ReadOrPost),
            Method::PUT => self == Self::PutOrDelete,
            Method::DELETE => matches!(self, Self::ReadOrDelete | Self::PutOrDelete),
            _ => false,
        }
    }

    fn as_allow_value(self) -> &'static str {
        match self {
            Self::Read => "GET, HEAD",
            Self::Post => "POST",
            Self::ReadOrPost => "GET, HEAD, POST",
            Self::ReadOrDelete => "GET, HEAD, DELETE",
            Self::PutOrDelete => "PUT, DELETE",
        }
    }
}

impl AdminServer {
    /// Answers the request of a connection.
    pub async fn handle(
        &self,
        request: Request<RequestBody>,
        connection: &AdminConnection,
    ) -> Response<AdminBody> {
        let (head, body) = request.into_parts();
        let found = find(head.uri.path());
        let access = found.map_or(Token, |(route, _)| route.access);
        if let Err(refusal) = self.guard.check(&head, connection.local, access) {
            return refusal.into_response().map(AdminBody::from);
        }
        let Some((route, handler)) = found else {
            return problem(StatusCode::NOT_FOUND, "there is nothing at this path")
                .map(AdminBody::from);
        };
        if !route.methods.allows(&head.method) {
            return response::method_not_allowed(route.methods.as_allow_value())
                .map(AdminBody::from);
        }
        if access != Open && !connection.begin_api() {
            return response::too_many_requests().map(AdminBody::from);
        }
        self.respond(handler, &head, body, connection).await
    }

    async fn respond(
        &self,
        handler: Handler<'_>,
        head: &request::Parts,
        body: RequestBody,
        connection: &AdminConnection,
    ) -> Response<AdminBody> {
        let api = &self.apis;
        let query = head.uri.query();
        let text = |content_type, text| text_response(StatusCode::OK, content_type, text);
        let whole: ApiResult = match handler {
            // The one answer that may be a stream.
            Handler::Decisions => return api.decisions.list(&head.method, query).await,
            Handler::Metrics => {
                // Thousands of series take a millisecond.
                let metrics = api.metrics.clone();
                run_blocking(move || text(TEXT_FORMAT, metrics.render())).await
            }
            Handler::Health => Ok(text(TEXT_PLAIN, "ok\n".into())),
            Handler::Ready => Ok(health::response(&api.readiness)),
            Handler::Authorities => Ok(self.show_authorities()),
            Handler::Status => Ok(self.show_status()),
            Handler::History => Ok(self.show_history()),
            Handler::Messages => messages::list(query),
            Handler::Config => Ok(self.show_config()),
            Handler::Crawlers => Ok(self.show_crawlers()),
            Handler::Fleet => Ok(self.show_fleet()),
            Handler::FleetPartitions => Ok(self.show_fleet_partitions()),
            Handler::Policy => api.policy.show().await,
            Handler::PolicyRules => api.policy.list_rules(query, &self.rule_trends).await,
            Handler::PolicyDiff => api.policy.show_diff().await,
            Handler::Explain => api.policy.explain(body, api.fleet.as_ref()).await,
            Handler::Shadow => Ok(api.policy.show_shadow()),
            Handler::ShadowPolicy if head.method == Method::DELETE => {
                let author = change_author(head, connection);
                api.rollout.clear_shadow(author, query).await
            }
            Handler::ShadowPolicy => {
                let author = change_author(head, connection);
                api.rollout.set_shadow(author, body).await
            }
            Handler::Promote => {
                let author = change_author(head, connection);
                api.rollout.promote(author, body).await
            }
            Handler::PolicyHistory => api.rollout.show_history(&api.policy).await,
            Handler::Rollback => {
                let author = change_author(head, connection);
                api.rollout.roll_back(author, body).await
            }
            Handler::Reload => Ok(api.policy.reload().await),
            Handler::Stops if head.method == Method::POST => api.stops.create(body).await,
            Handler::Stops => Ok(api.stops.list()),
            Handler::Stop(id) if head.method == Method::DELETE => api.stops.lift(id).await,
            Handler::Stop(id) => Ok(api.stops.show(id)),
            Handler::Decision(id) => api.decisions.show(id).await,
            Handler::Hosts => api.hosts.list_hosts(query).await,
            Handler::Host(name) => api.hosts.show_host(name, query).await,
            Handler::Urls => api.ledger.list_urls(query).await,
            Handler::Url(key) => api.ledger.show_url(key).await,
            Handler::Events => api.ledger.list_events(query).await,
            Handler::Ledger => api.ledger.show_stats().await,
            Handler::Sweep => api.ledger.start_sweep(body).await,
            Handler::Forget => api.ledger.forget(body).await,
            Handler::ConfirmRemovals => api.ledger.confirm_removals(body).await,
            Handler::OpenApi => Ok(text("application/json", OPENAPI.into())),
            Handler::Root => Ok(response::redirect("/ui")),
            Handler::Page => Ok(Asset::PAGE.response(&head.headers)),
            Handler::Ui(asset) => Ok(asset.response(&head.headers)),
        };
        whole
            .unwrap_or_else(ApiError::into_response)
            .map(AdminBody::from)
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

/// Returns the client that requests a change, for its record.
fn change_author(head: &request::Parts, connection: &AdminConnection) -> ChangeAuthor {
    ChangeAuthor {
        user: claimed_user(&head.headers),
        address: Some(connection.client.to_canonical().to_string()),
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
            ("/", Some("/")),
        ] {
            assert_eq!(find(path).map(|(route, _)| route.path), row, "{path}");
        }
    }
}
