//! What rejects at the response and at the document, in the order of policy.md section 4: rules, and the options that
//! look at the answer itself.

use super::Cause;
use crate::model::reason::Reason;
use crate::policy::Policy;
use crate::policy::fact::{EvaluationTarget, Fact, Facts, ResponseFacts, UsagePreference};
use crate::policy::options::robots::RobotsOption;
use crate::policy::options::{OptionSlot, schema};
use crate::policy::trail::Trail;
use crate::policy::{field, signals};
use crate::robots::robots_tag::forbids_index;
use crate::urls::target::UrlTarget;

type Rejection = Option<(Reason, Cause)>;

/// What options with the word `tag` have found in an answer that passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentTags {
    /// It asks not to be indexed.
    pub noindex: bool,
    /// It names this URL as its canonical one, which it is not.
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

    /// What options with the word `tag` find in an answer, as far as it is known; `None` if that is nothing.
    pub fn content_tags(&self, trail: &Trail, facts: &Facts<'_>) -> Option<ContentTags> {
        let Fact::Known(response) = facts.response else {
            return None;
        };
        if !self.document_needs.checks || !response.is_success_with_content() {
            return None;
        }
        let tags = |slot: OptionSlot| trail.word(self, slot) == Some(schema::TAG_WORD);
        let canonical = if tags(schema::NONCANONICAL) {
            other_canonical(facts, &response)
        } else {
            None
        };
        let noindex = tags(schema::NOINDEX) && forbids_indexing(facts, &response);
        (noindex || canonical.is_some()).then_some(ContentTags { noindex, canonical })
    }

    fn rejection_by_size(&self, trail: &Trail, response: &ResponseFacts<'_>) -> Rejection {
        let limit = trail.number(self, schema::MAX_BODY)?;
        let larger =
            response.is_success_with_content() && response.size.is_some_and(|size| size > limit);
        larger.then(|| (Reason::BodyTooLarge, self.cause_of(trail, schema::MAX_BODY)))
    }

    /// `html_only` rejects as the rule that last assigned it; as the default if none did.
    fn rejection_by_html_only(&self, trail: &Trail, response: &ResponseFacts<'_>) -> Rejection {
        let rejects = trail.is_on(self, schema::HTML_ONLY)
            && response.is_success_with_content()
            && !response.is_html();
        rejects.then(|| {
            let cause = self.cause_of(trail, schema::HTML_ONLY);
            (
                if cause == Cause::Default {
                    Reason::Default
                } else {
                    Reason::Rule
                },
                cause,
            )
        })
    }

    /// The answer names another URL as its canonical one.
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

    /// The answer asks not to be indexed, in a header or in the document.
    fn rejection_by_noindex(
        &self,
        trail: &Trail,
        facts: &Facts<'_>,
        response: &ResponseFacts<'_>,
    ) -> Rejection {
        let asked = self.rejects_by_option(trail, schema::NOINDEX, response)
            && forbids_indexing(facts, response);
        asked.then(|| (Reason::Noindex, self.cause_of(trail, schema::NOINDEX)))
    }

    /// The site denies a use that the option `robots.usage` declares: in a header, or in its robots.txt, of which the gate
    /// asks earlier.
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
        let denied =
            |name: &str| field::usage_preference(response, facts, name) == UsagePreference::Deny;
        option
            .uses()
            .any(denied)
            .then(|| (Reason::Usage, self.cause_of(trail, schema::ROBOTS_USAGE)))
    }

    /// Whether an option that checks answers rejects, and looks at this one.
    fn rejects_by_option(
        &self,
        trail: &Trail,
        slot: OptionSlot,
        response: &ResponseFacts<'_>,
    ) -> bool {
        trail.word(self, slot) == Some(schema::REJECT_WORD) && response.is_success_with_content()
    }
}

/// The URL that the answer names as its canonical one, in a header or else in the document, if that is another.
fn other_canonical(facts: &Facts<'_>, response: &ResponseFacts<'_>) -> Option<UrlTarget> {
    let EvaluationTarget::Url(target) = facts.target else {
        return None;
    };
    let header = response.headers.header("link");
    let link = header.as_deref().and_then(signals::canonical_link);
    let of_document = || {
        if let Fact::Known(document) = facts.document {
            document.canonical
        } else {
            None
        }
    };
    let canonical = target.join(link.or_else(of_document)?).ok()?;
    (canonical != *target).then_some(canonical)
}

/// Whether the answer asks the crawler not to index it, in a header or in the document.
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
