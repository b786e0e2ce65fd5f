//! A refusal, with all that its response, its record and its metrics report.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::response::Parts;

use crate::metrics::record::{RequestRecord, UrlRetention};
use crate::model::crawl_status::CrawlStatus;
use crate::model::failure_kind::FailureKind;
use crate::model::intent::Intent;
use crate::model::profile::{Conditional, Profile, WireResponse};
use crate::model::reason::{Reason, StatusSource};
use crate::model::rule_id::{RuleId, Slug};
use crate::model::stage::Stage;
use crate::model::upstream_fault::UpstreamFault;
use crate::pacing::retry_after::round_up_retry_after;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision, PolicyRefusal, Verdict};
use crate::policy::options::schema;
use crate::policy::rule::RuleIndex;
use crate::policy::trail::Trail;
use crate::robots::agent::RobotsAgent;
use crate::robots::state::RobotsState;
use crate::urls::target::LaxReading;

/// The cause of a refusal, and the details beyond the table of reasons.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The row of the table of reasons.
    pub reason: Reason,
    /// The stage that refused.
    pub stage: Stage,
    /// The rule that decided, if one did.
    pub rule: Option<RuleId>,
    /// The text after the reason's title: the rule's `about`, or the mistake in the request.
    pub detail: Option<Cow<'static, str>>,
    /// The intent that the policy chose for this refusal.
    pub intent: Option<Intent>,
    /// A wire status that replaces the profile's or the reason's.
    pub status: Option<u16>,
    /// A Proxy-Status error type that fits better than the reason's usual one.
    pub error: Option<&'static str>,
    /// The failure between the proxy and the origin, for the `details` of Proxy-Status.
    pub fault: Option<&'static UpstreamFault>,
    /// The parent proxy that has failed, or through which the exchange has failed.
    pub parent: Option<Slug>,
    /// A code that fits better than the reason's usual one.
    pub code: Option<u16>,
    /// The status of the origin's response, if there was one.
    pub received_status: Option<StatusCode>,
    /// The time for `Retry-After`, in whole seconds, if it is known.
    pub retry_after: Option<Duration>,
    /// The part that the host's robots.txt has in it.
    pub robots: Option<Box<RobotsDetail>>,
    /// The kind of error that the exchange counts as, if it failed.
    pub failure: Option<FailureKind>,
    /// The rule that is counted as the cause.
    pub cause: Option<RuleIndex>,
    /// The part of the URL that the log keeps.
    pub url_retention: UrlRetention,
    /// The address of the origin, if it has failed. Boxed, since few refusals have one.
    pub address: Option<Box<IpAddr>>,
}

/// The part that a host's robots.txt has in a refusal.
#[derive(Clone, Debug)]
pub enum RobotsDetail {
    /// A line of it decided.
    Line(RobotsCause),
    /// It is what the request reads, of a host that is refused as a whole. The answer is this file, with the reason
    /// headers.
    Substitute(SubstituteRobots),
}

/// A line of a host's robots.txt, and the crawler that it addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotsCause {
    /// The number of the line, from 1.
    pub line: u32,
    /// The crawler's product token.
    pub agent: Box<str>,
}

impl RobotsCause {
    pub(crate) fn new(line: u32, agent: RobotsAgent<'_>) -> Self {
        Self {
            line,
            agent: agent.token().into(),
        }
    }
}

/// The robots.txt that is served for a host that is refused as a whole.
#[derive(Clone, Debug)]
pub enum SubstituteRobots {
    /// A file that allows nothing.
    DisallowAll,
    /// A file that allows everything, so that the crawler learns of each page why it is refused.
    AllowAll,
    /// The host's own, from the cache.
    Cached(Arc<RobotsState>),
}

impl Refusal {
    /// Creates a refusal with the defaults of its reason.
    pub fn new(reason: Reason, stage: Stage) -> Self {
        Self {
            reason,
            stage,
            rule: None,
            detail: None,
            intent: None,
            status: None,
            error: None,
            fault: None,
            parent: None,
            code: None,
            received_status: None,
            retry_after: None,
            robots: None,
            failure: reason.row().failure,
            cause: None,
            url_retention: UrlRetention::Full,
            address: None,
        }
    }

    /// Adds the text after the reason's title.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the status of the origin's response.
    #[must_use]
    pub(crate) fn with_received_status(self, head: &Parts) -> Self {
        Self {
            received_status: Some(head.status),
            ..self
        }
    }

    /// Returns the OmniFind code: that of the refusal, or that of its reason.
    pub fn crawl_code(&self) -> Option<u16> {
        self.code.or(self.reason.row().code)
    }

    /// Adds the time for `Retry-After`, rounded up to whole seconds.
    #[must_use]
    pub fn with_retry_after(self, time: Option<Duration>) -> Self {
        Self {
            retry_after: time.map(round_up_retry_after),
            ..self
        }
    }

    /// Adds what exactly failed between the proxy and the origin.
    #[must_use]
    pub fn with_fault(self, fault: &'static UpstreamFault) -> Self {
        let (status, failure) = if fault.error_type == "connection_timeout" {
            (Some(504), Some(FailureKind::Temporary))
        } else {
            (self.status, self.failure)
        };
        Self {
            status,
            failure,
            error: Some(fault.error_type),
            fault: Some(fault),
            ..self.with_detail(fault.description)
        }
    }

    /// Returns a policy's rejection; `None` if the decision does not reject. An undecided tunnel is rejected unless the
    /// policy allows such tunnels (`tunnel_undecided: allow`).
    pub fn from_decision(policy: &Policy, trail: &Trail, decision: &Decision) -> Option<Self> {
        let reason = match decision.verdict {
            Verdict::Admit => return None,
            Verdict::Reject(reason) => reason,
            Verdict::Undecided if trail.word(policy, schema::TUNNEL_UNDECIDED) == Some("allow") => {
                return None;
            }
            Verdict::Undecided => Reason::Undecided,
        };
        let refusing = policy.refusal(trail, decision);
        // The rule that would refuse a URL inside the tunnel is not known, so its `about` and status do not apply.
        let undecided = reason == Reason::Undecided;
        let profile_decides = matches!(reason.row().status, StatusSource::Profile(_)) && !undecided;
        let refusal = Self {
            rule: refusing.rule.and_then(RuleId::new),
            detail: match decision.reading {
                _ if undecided => Some(Cow::Owned(undecided_text(refusing.rule))),
                Some(reading) => Some(Cow::Owned(reading_text(reading, &refusing))),
                None => detail_text(trail, reason, refusing.about),
            },
            intent: profile_decides.then_some(refusing.intent),
            status: refusing
                .status
                .filter(|_| profile_decides || reason == Reason::SoftError),
            code: refusing.code,
            cause: if let Cause::Rule(rule) = decision.cause {
                Some(rule)
            } else {
                None
            },
            ..Self::new(reason, decision.stage)
        };
        let by_log = if decision.logged {
            UrlRetention::Full
        } else {
            refusal.unlogged_url_retention()
        };
        Some(Self {
            url_retention: recorded_url_retention(policy, trail, by_log),
            ..refusal
        })
    }

    /// Returns what `record: by-log` keeps of the URL if no rule logs the refusal: the URL of a request that was lost,
    /// the host of one that the policy or the site excludes.
    pub(crate) fn unlogged_url_retention(&self) -> UrlRetention {
        if self.is_failure() || self.intent() == Some(Intent::Later) {
            UrlRetention::Unrepeated
        } else {
            UrlRetention::Host
        }
    }

    /// Records the refusal as the outcome of a request.
    pub fn record_in(&self, record: &mut RequestRecord) {
        record.set_rejected(
            self.reason,
            self.cause.map(|rule| rule.0),
            self.url_retention,
        );
        // A crawler that gets a robots.txt in place of the refusal has lost nothing, even if the host is refused for now.
        let is_answered = self.substitute_robots().is_some();
        record.set_refusal_intent(self.intent().filter(|_| !is_answered));
        if let Some(code) = self.code {
            record.set_refusal_code(code);
        }
        if let Some(cause) = self.robots_cause() {
            record.set_robots_agent(&cause.agent);
        }
        if let Some(address) = &self.address {
            record.set_address(**address);
        }
        let row = self.reason.row();
        if self.is_failure() {
            record.set_refusal_error(self.error.unwrap_or(row.error));
        }
        if self.is_failure() || self.reason == Reason::RobotsUnreachable {
            record.set_failure_cause(self.detail.as_deref().unwrap_or(row.title));
        }
    }

    /// Adds the address of the origin, if the request is refused because the origin has failed.
    pub(crate) fn add_origin_address(&mut self, address: Option<IpAddr>) {
        if self.is_failure() {
            self.address = address.map(Box::new);
        }
    }

    /// Returns `true` if the origin or the proxy has failed.
    fn is_failure(&self) -> bool {
        self.reason.row().crawl_status == CrawlStatus::Error
    }

    /// Returns the line of the host's robots.txt that decided.
    pub fn robots_cause(&self) -> Option<&RobotsCause> {
        match self.robots.as_deref()? {
            RobotsDetail::Line(cause) => Some(cause),
            RobotsDetail::Substitute(_) => None,
        }
    }

    /// Returns the file that answers a request for the robots.txt of a host that is refused as a whole.
    pub fn substitute_robots(&self) -> Option<&SubstituteRobots> {
        match self.robots.as_deref()? {
            RobotsDetail::Substitute(file) => Some(file),
            RobotsDetail::Line(_) => None,
        }
    }

    /// Returns the intent of the refusal, if it has one; the key `intent` of JSON forms.
    pub fn intent(&self) -> Option<Intent> {
        self.intent.or_else(|| self.reason.intent())
    }

    /// Returns what a crawler with this profile gets.
    pub fn to_wire(&self, profile: Profile, conditional: Conditional) -> WireResponse {
        if let Some(status) = self.status {
            return WireResponse::Status(status);
        }
        match self.reason.row().status {
            StatusSource::Profile(status) => {
                profile.wire_response(self.intent.unwrap_or(status), conditional)
            }
            StatusSource::Fixed(503) => match profile.wire_response(Intent::Later, conditional) {
                WireResponse::Close => WireResponse::Close,
                WireResponse::Status(_) => WireResponse::Status(503),
            },
            StatusSource::Fixed(status) => WireResponse::Status(status),
            StatusSource::Gateway => WireResponse::Status(502),
        }
    }
}

/// Returns the trap's description, then the rule's `about`.
fn detail_text(trail: &Trail, reason: Reason, about: Option<&str>) -> Option<Cow<'static, str>> {
    match (trail.trap().filter(|_| reason == Reason::Trap), about) {
        (None, about) => about.map(|about| Cow::Owned(about.to_owned())),
        (Some(trap), None) => Some(Cow::Borrowed(trap.description())),
        (Some(trap), Some(about)) => Some(Cow::Owned(format!("{}; {about}", trap.description()))),
    }
}

/// Names the servers that read the URL as one that is rejected, and the rule that rejects it.
fn reading_text(reading: LaxReading, refusing: &PolicyRefusal<'_>) -> String {
    let subject = refusing
        .rule
        .map_or("the policy".to_owned(), |rule| format!("rule {rule}"));
    let about = refusing
        .about
        .map_or(String::new(), |about| format!(": {about}"));
    format!(
        "{subject} rejects it as {} read it{about}",
        reading.servers()
    )
}

/// Describes what an undecided tunnel depends on, and the two ways to decide it (docs/policy/reference.md "Tunnels").
fn undecided_text(rule: Option<&str>) -> String {
    let subject = rule.map_or("the policy".to_owned(), |rule| format!("rule {rule}"));
    format!(
        "{subject} depends on what is inside the tunnel: let the proxy read it (tls: intercept), or allow such tunnels \
         (tunnel_undecided: allow)"
    )
}

/// Applies the option `record`, where `by-log` means the given value.
pub(crate) fn recorded_url_retention(
    policy: &Policy,
    trail: &Trail,
    by_log: UrlRetention,
) -> UrlRetention {
    match trail.word(policy, schema::RECORD) {
        Some("full") => UrlRetention::Full,
        Some("host") => UrlRetention::Host,
        Some("none") => UrlRetention::None,
        Some(_) | None => by_log,
    }
}
