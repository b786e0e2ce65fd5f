//! The policy engine of crawlgate, for crawlers that decide without a proxy: policy text to
//! decisions, robots.txt, and the pacing of requests to a host.
//!
//! The engine is pure: it opens no file or socket and reads no clock. Files are read through a
//! [`FileSystem`], and time and randomness are arguments. The language of policies is described in
//! crawlgate's `docs/policy/reference.md`.
//!
//! # Decisions
//!
//! [`load`] compiles a policy, [`Policy::decide`] decides a request by its [`Facts`], and
//! [`explain`] says why:
//!
//! ```
//! use crawlgate_policy::{Facts, UrlTarget, explain, load};
//!
//! let text = "
//! policy: 1
//! name: example
//! options: { disposition: allow }
//! rules:
//!   - { id: no-images, forbid: { ext: [png, jpg] } }
//! ";
//! let policy = load(text)?.policy;
//! let url = UrlTarget::parse("http://example.com/logo.png")?;
//! let facts = Facts::for_url(&url);
//! let (_, decision) = policy.decide(&facts);
//! assert!(decision.rejects());
//! assert_eq!(
//!     explain(&policy, &facts).to_string(),
//!     "rejected at stage request by rule no-images\n  \
//!      no-images: matched (path /logo.png has the extension png)"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Policy::decide`] evaluates all stages whose facts are known. A crawler that wants to decide
//! before it sends a request calls [`Policy::decide_request`] first and, when the response head has
//! arrived, [`Policy::decide_stage`] with the same [`Trail`] and the additional facts.
//!
//! # robots.txt
//!
//! ```
//! use crawlgate_policy::{RobotsAccess, RobotsFile};
//!
//! let robots = RobotsFile::parse(b"User-agent: *\nDisallow: /private/\n");
//! let decision = robots.decide("ExampleBot", "/private/a.html");
//! assert_eq!(decision.access, RobotsAccess::Disallow);
//! ```
//!
//! # Pacing
//!
//! A [`HostLimiter`] for each host grants requests at the [`HostPace`] that [`host_pace`] reads
//! from the policy:
//!
//! ```
//! use std::time::Instant;
//!
//! use crawlgate_policy::{Facts, HostLimiter, LeaseUse, PaceDecision, UrlTarget, host_pace, load};
//!
//! let policy = load("policy: 1\nname: example\noptions: { disposition: allow }\n")?.policy;
//! let url = UrlTarget::parse("http://example.com/")?;
//! let (trail, _) = policy.decide(&Facts::for_url(&url));
//! let pace = host_pace(&policy, &trail);
//! let mut limiter = HostLimiter::default();
//! match limiter.try_acquire(&pace, Instant::now()) {
//!     PaceDecision::Granted(lease) => {
//!         limiter.record_sent(lease, 0.5, Instant::now());
//!         // … the response is read …
//!         limiter.release(lease, LeaseUse::Used, Instant::now());
//!     }
//!     PaceDecision::Wait(wait) => println!("wait for {:?}", wait.duration),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The modules that the crawlgate proxy is built from. They are not covered by semantic versioning.
#[doc(hidden)]
#[path = "."]
pub mod internal {
    pub mod diagnostics;
    pub mod embed;
    pub mod ledger;
    pub mod model;
    pub mod pacing;
    pub mod policy;
    pub mod robots;
    pub mod urls;
    pub mod yaml;
}

#[cfg(test)]
#[path = "test_clock.rs"]
mod clock;

// Policies, and the facts and decisions of a request.
pub use internal::diagnostics::problem::{Problem, Severity, SourceLocation};
pub use internal::embed::{
    ExplainedRule, Explanation, PolicyError, ValidPolicy, explain, host_pace, load, load_files,
};
pub use internal::model::intent::Intent;
pub use internal::model::profile::{Conditional, Profile, WireResponse};
pub use internal::model::reason::{Reason, RetryHint};
pub use internal::model::stage::Stage;
pub use internal::policy::Policy;
pub use internal::policy::decide::{Cause, Decision, PolicyRefusal, Verdict};
pub use internal::policy::explain::RuleStatus;
pub use internal::policy::fact::{
    ContentAvailability, DocumentFacts, EvaluationTarget, Fact, Facts, FetchDest, HeaderView,
    LedgerPresence, ResponseFacts, UsagePreference,
};
pub use internal::policy::rule::{PolicyStage, RuleIndex};
pub use internal::policy::source::{FileError, FileSystem, MemoryFileSystem};
pub use internal::policy::trail::Trail;
pub use internal::urls::target::{HostTarget, LaxReading, Scheme, TargetError, UrlTarget};

// robots.txt.
pub use internal::robots::extension::UsageRule;
pub use internal::robots::product_token::product_token;
pub use internal::robots::{DecidingLine, RobotsAccess, RobotsDecision, RobotsFile};

// Pacing.
pub use internal::pacing::host_limiter::{HostLimiter, LeaseId, LeaseUse};
pub use internal::pacing::pace::{HostPace, Jitter, PaceDecision, PaceWait, RateLimit, WaitCause};

// Modules name each other by these short paths.
#[cfg(test)]
use internal::ledger;
use internal::{diagnostics, model, pacing, policy, robots, urls, yaml};
