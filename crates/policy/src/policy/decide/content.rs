//! Rejections at the response and document stages, in order: rules, and the options that check the
//! response.

use super::Cause;
use crate::model::reason::Reason;
use crate::policy::Policy;
use crate::policy::fact::{EvaluationTarget, Fact, Facts, ResponseFacts, UsagePreference};
use crate::policy::options::robots::RobotsOption;
use crate::policy::options::{OptionIndex, schema};
use crate::policy::trail::Trail;
use crate::policy::{field, signals};
use crate::robots::robots_tag::forbids_index;
use crate::urls::target::UrlTarget;

type Rejection = Option<(Reason, Cause)>;

/// The findings of options with the value `tag` in a response that is not rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentTags {
    /// The response asks not to be indexed.
    pub noindex: bool,
    /// The other URL that the response names as its canonical one.
    pub canonical: Option<UrlTarget>,
}

impl Policy {
    pub(super) fn rejection_by_response(&self, trail: &Trail, facts: &Facts<'_>) -> Rejection {
        let Fact::Known(response) = facts.response else {
            return self.rejection_by_rules(trail);
        };
        self.rejection_by_size(trail, &response)
            .or_else(|| self.rejection_by_canonical(trail, facts, &response))
            .or_else(|| self.rejection_by_rules(trail))
            .or_else(|| self.rejection_by_html_only(trail, &response))
            .or_else(|| self.rejection_by_usage(trail, facts, &response))
            .or_else(|| self.rejection_by_noindex(trail, facts, &response))
    }

    pub(super) fn rejection_by_document(&self, trail: &Trail, facts: &Facts<'_>) -> Rejection {
        let Fact::Known(response) = facts.response else {
            return self.rejection_by_rules(trail);
        };
        let soft_error = trail
            .soft_error
            .map(|filter| (Reason::SoftError, Cause::Rule(filter)));
        soft_error
            .or_else(|| self.rejection_by_canonical(trail, facts, &response))
            .or_else(|| self.rejection_by_noindex(trail, facts, &response))
            .or_else(|| self.rejection_by_rules(trail))
    }

    /// Returns the findings of options with the value `tag`, as far as the response is known;
    /// `None` if there are none.
    pub fn content_tags(&self, trail: &Trail, facts: &Facts<'_>) -> Option<ContentTags> {
        let Fact::Known(response) = facts.response else {
            return None;
        };
        if !self.document_needs.checks || !response.is_success_with_content() {
            return None;
        }
        let canonical = if self.is_tagged(trail, schema::NONCANONICAL) {
            other_canonical(facts, &response)
        } else {
            None
        };
        let noindex = self.is_tagged(trail, schema::NOINDEX) && forbids_indexing(facts, &response);
        (noindex || canonical.is_some()).then_some(ContentTags { noindex, canonical })
    }

    fn is_tagged(&self, trail: &Trail, index: OptionIndex) -> bool {
        trail.word(self, index) == Some(schema::TAG_WORD)
    }

    fn rejection_by_size(&self, trail: &Trail, response: &ResponseFacts<'_>) -> Rejection {
        let limit = trail.number(self, schema::MAX_BODY)?;
        let larger =
            response.is_success_with_content() && response.size.is_some_and(|size| size > limit);
        larger.then(|| (Reason::BodyTooLarge, self.cause_of(trail, schema::MAX_BODY)))
    }

    /// Applies `html_only`. The cause is the rule that set it, else the default.
    fn rejection_by_html_only(&self, trail: &Trail, response: &ResponseFacts<'_>) -> Rejection {
        let rejects = trail.is_on(self, schema::HTML_ONLY)
            && response.is_success_with_content()
            && !response.is_html();
        rejects.then(|| match self.cause_of(trail, schema::HTML_ONLY) {
            Cause::Default => (Reason::Default, Cause::Default),
            cause @ Cause::Rule(_) => (Reason::Rule, cause),
        })
    }

    /// Applies `noncanonical`: the response names another canonical URL.
    fn rejection_by_canonical(
        &self,
        trail: &Trail,
        facts: &Facts<'_>,
        response: &ResponseFacts<'_>,
    ) -> Rejection {
        let rejects = self.rejects_by_option(trail, schema::NONCANONICAL, response);
        let names_another = rejects && other_canonical(facts, response).is_some();
        names_another.then(|| {
            (
                Reason::Noncanonical,
                self.cause_of(trail, schema::NONCANONICAL),
            )
        })
    }

    /// Applies `noindex`: a header or the document asks not to be indexed.
    fn rejection_by_noindex(
        &self,
        trail: &Trail,
        facts: &Facts<'_>,
        response: &ResponseFacts<'_>,
    ) -> Rejection {
        let forbidden = self.rejects_by_option(trail, schema::NOINDEX, response)
            && forbids_indexing(facts, response);
        forbidden.then(|| (Reason::Noindex, self.cause_of(trail, schema::NOINDEX)))
    }

    /// Applies `robots.usage`: the site denies a declared use in a header or in its robots.txt. The
    /// robots stage has checked robots.txt before.
    fn rejection_by_usage(
        &self,
        trail: &Trail,
        facts: &Facts<'_>,
        response: &ResponseFacts<'_>,
    ) -> Rejection {
        let option = RobotsOption::new(self, trail);
        if !option.obeys() || !response.is_success_with_content() {
            return None;
        }
        let mut uses = option.uses();
        uses.any(|name| field::usage_preference(response, facts, name) == UsagePreference::Deny)
            .then(|| (Reason::Usage, self.cause_of(trail, schema::ROBOTS_USAGE)))
    }

    /// Returns `true` if an option has the value `reject` and applies to this response.
    fn rejects_by_option(
        &self,
        trail: &Trail,
        index: OptionIndex,
        response: &ResponseFacts<'_>,
    ) -> bool {
        trail.word(self, index) == Some(schema::REJECT_WORD) && response.is_success_with_content()
    }
}

/// Returns the canonical URL in the `Link` header, else in the document, if it is not the requested
/// one.
fn other_canonical(facts: &Facts<'_>, response: &ResponseFacts<'_>) -> Option<UrlTarget> {
    let EvaluationTarget::Url(target) = facts.target else {
        return None;
    };
    let header = response.headers.header("link");
    let link = header.as_deref().and_then(signals::canonical_link);
    let in_document = if let Fact::Known(document) = facts.document {
        document.canonical
    } else {
        None
    };
    let canonical = target.join(link.or(in_document)?).ok()?;
    (canonical != *target).then_some(canonical)
}

/// Returns `true` if a header or the document asks not to be indexed.
fn forbids_indexing(facts: &Facts<'_>, response: &ResponseFacts<'_>) -> bool {
    let in_document = if let Fact::Known(document) = facts.document {
        document.meta_robots
    } else {
        None
    };
    let in_document =
        signals::meta_robots_directives(in_document.unwrap_or_default(), facts.robots_agent());
    forbids_index(&signals::robots_tag_directives(
        response.headers,
        facts.robots_agent(),
    )) || forbids_index(&in_document)
}
