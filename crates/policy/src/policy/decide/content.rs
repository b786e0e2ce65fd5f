//! Rejections at the response and document stages, in order: rules, and the options that check the
//! response.

use super::Cause;
use crate::model::reason::Reason;
use crate::policy::Policy;
use crate::policy::fact::{EvaluationTarget, Fact, Facts, ResponseFacts, UsagePreference};
use crate::policy::options::checks::{self, CheckAction, LinksOnly};
use crate::policy::options::robots::RobotsOption;
use crate::policy::options::schema;
use crate::policy::trail::Trail;
use crate::policy::{field, signals};
use crate::robots::robots_tag::{forbids_follow, forbids_index};
use crate::urls::target::UrlTarget;

/// The statuses with which a site asks for a license or a payment.
const UNAUTHORIZED: u16 = 401;
const PAYMENT_REQUIRED: u16 = 402;

type Rejection = Option<(Reason, Cause)>;

/// The findings in a response that is not rejected: of options with the value `tag` or `links`, and
/// of the terms that the site states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentTags {
    /// The response asks not to be indexed.
    pub noindex: bool,
    /// The other URL that the response names as its canonical one.
    pub canonical: Option<UrlTarget>,
    /// The uses that the policy names and the site denies.
    pub denied_uses: Vec<Box<str>>,
    /// The URL of the license, as written.
    pub license: Option<Box<str>>,
    /// The price that the site asks for the page.
    pub price: Option<Box<str>>,
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
            .or_else(|| self.rejection_by_html_only(trail, &response))
    }

    /// Records whether a response that is not rejected has links to give, and whether `noindex: links`
    /// withholds the rest.
    pub(super) fn record_links(&self, trail: &mut Trail, facts: &Facts<'_>) {
        let Fact::Known(response) = facts.response else {
            return;
        };
        if !self.document_needs.links || !response.is_success_with_content() {
            return;
        }
        trail.has_links = self.has_links(trail, facts, &response);
        let noindex = checks::read_action(self, trail, schema::NOINDEX) == CheckAction::Links;
        if noindex && forbids_indexing(facts, &response) {
            trail.pass_links_only(LinksOnly::Noindex);
        }
    }

    /// Returns `true` if the response is HTML, and neither the page nor the policy forbids to follow
    /// its links.
    fn has_links(&self, trail: &Trail, facts: &Facts<'_>, response: &ResponseFacts<'_>) -> bool {
        response.is_html()
            && trail.is_on(self, schema::FOLLOW)
            && !any_directive(facts, response, forbids_follow)
    }

    /// Returns the findings in a response, as far as it is known; `None` if there are none.
    pub fn content_tags(&self, trail: &Trail, facts: &Facts<'_>) -> Option<ContentTags> {
        let Fact::Known(response) = facts.response else {
            return None;
        };
        let is_page = response.is_success_with_content();
        let mut tags = ContentTags::default();
        if self.document_needs.checks && is_page {
            self.add_check_tags(trail, facts, &response, &mut tags);
        }
        if is_page {
            let denied = self.usage_purposes().filter(|name| {
                field::usage_preference(&response, facts, name) == UsagePreference::Deny
            });
            tags.denied_uses = denied.map(Box::from).collect();
        }
        if is_page || matches!(response.status, UNAUTHORIZED | PAYMENT_REQUIRED) {
            let license = field::license_url(&response, facts);
            tags.license = (!license.is_empty()).then(|| license.into());
            tags.price = signals::quoted_price(&response).map(Box::from);
        }
        (tags != ContentTags::default()).then_some(tags)
    }

    /// Adds the findings of options with the value `tag` or `links`.
    fn add_check_tags(
        &self,
        trail: &Trail,
        facts: &Facts<'_>,
        response: &ResponseFacts<'_>,
        tags: &mut ContentTags,
    ) {
        if checks::read_action(self, trail, schema::NONCANONICAL) == CheckAction::Tag {
            tags.canonical = other_canonical(facts, response);
        }
        tags.noindex = matches!(
            checks::read_action(self, trail, schema::NOINDEX),
            CheckAction::Tag | CheckAction::Links
        ) && forbids_indexing(facts, response);
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
        let rejects = checks::read_action(self, trail, schema::NONCANONICAL) == CheckAction::Reject
            && response.is_success_with_content();
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
        let rejects = match checks::read_action(self, trail, schema::NOINDEX) {
            CheckAction::Pass | CheckAction::Tag => false,
            CheckAction::Links => !self.has_links(trail, facts, response),
            CheckAction::Reject => true,
        };
        let forbidden =
            rejects && response.is_success_with_content() && forbids_indexing(facts, response);
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
    any_directive(facts, response, forbids_index)
}

/// Applies a test to the directives in the headers and to those in the document.
fn any_directive(facts: &Facts<'_>, response: &ResponseFacts<'_>, test: fn(&str) -> bool) -> bool {
    let agent = facts.robots_agent();
    if test(&signals::robots_tag_directives(response.headers, agent)) {
        return true;
    }
    let in_document = if let Fact::Known(document) = facts.document {
        document.meta_robots
    } else {
        None
    };
    test(&signals::meta_robots_directives(
        in_document.unwrap_or_default(),
        agent,
    ))
}
