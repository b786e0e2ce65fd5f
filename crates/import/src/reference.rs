//! Evaluation of a source as its own system does it, for the cases of the policy and for comparisons.
//!
//! It works on the parsed source, and shares no code with the conversion or with the policy engine.

pub mod browsertrix;
pub mod brozzler;
pub mod exalead;
pub mod expression;
pub mod heritrix;
pub mod lists;
pub mod norconex;
pub mod nutch;
pub mod omnifind;
pub(crate) mod requested;
pub mod robots;
pub mod scrapy;
pub mod squid;
pub mod stormcrawler;
pub mod velocity;
pub mod webcopy;
pub mod wget;

use serde_json::{Map, Value as Json};

/// Decides requests as the source's system does, by those parts of the source that were converted.
pub trait SourceEvaluator {
    /// Returns the verdict on a request.
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict;
}

/// A request, described as in a case of a policy.
#[derive(Clone, Copy, Debug)]
pub struct SourceRequest<'a> {
    pub url: &'a str,
    /// The facts besides the URL: `crawler`, `content_type`, `status`, `referer`, `address` …
    pub facts: &'a Map<String, Json>,
}

impl<'a> SourceRequest<'a> {
    /// Returns a fact that is text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.facts.get(name).and_then(Json::as_str)
    }

    /// Returns a fact that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.facts.get(name).and_then(Json::as_u64)
    }
}

/// The verdict of a source's system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceVerdict {
    Allow,
    Refuse,
    /// The request does not say what the system would look at.
    Unknown,
}
