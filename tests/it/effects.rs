//! The effects of policy options on requests and responses, over real sockets.

mod fields;
mod rejections;
mod rewrite;
mod shadow;
mod shadow_policy;
mod timeouts;

use serde_json::Value;

use crate::support::client::{self, Response};
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::proxy::{CONFIG, TestProxy};

/// A proxy and an origin that answers by the paths of requests.
pub(crate) struct Site {
    pub(crate) gate: TestProxy,
    pub(crate) origin: ScriptedOrigin,
}

impl Site {
    /// `respond` makes the response to a path; [`OK`] is the default.
    pub(crate) fn new(
        policy: &str,
        respond: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::with_config(CONFIG, policy, respond)
    }

    pub(crate) fn with_config(
        config: &str,
        policy: &str,
        respond: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            gate: TestProxy::start(config, policy),
            origin: ScriptedOrigin::respond(move |request| {
                respond(request.path()).unwrap_or_else(|| OK.into())
            }),
        }
    }

    /// GETs a path of `a.test`.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.get_with(path, "")
    }

    /// GETs a path of `a.test` with more header fields, each line with its CRLF.
    pub(crate) fn get_with(&self, path: &str, fields: &str) -> Response {
        client::get_with(self.gate.proxy, &self.origin.url("a.test", path), fields)
    }

    /// The lines of the decision log, once there are this many.
    #[track_caller]
    pub(crate) fn decisions(&self, count: usize) -> Vec<Value> {
        self.gate.decisions(count)
    }
}
