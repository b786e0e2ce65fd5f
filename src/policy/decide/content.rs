//! What rejects at the response and at the document, in the order of policy.md section 4: rules, and the options that
//! look at the answer itself.

use super::Cause;
use crate::policy::Policy;
use crate::policy::compile::Purpose;
use crate::policy::fact::{Fact, Facts, ResponseFacts, Subject};
use crate::policy::options::{Slot, schema};
use crate::policy::signals;
use crate::policy::trail::Trail;
use crate::vocab::reason::Reason;

type Rejection = Option<(Reason, Cause)>;

impl Policy {
    pub(super) fn by_response(&self, trail: &Trail, facts: &Facts<'_>) -> Rejection {
        let Fact::Known(response) = facts.response else { return self.by_rules(trail) };
        self.too_large(trail, &response)
            .or_else(|| self.noncanonical(trail, facts, &response))
            .or_else(|| self.by_rules(trail))
            .or_else(|| self.not_html(trail, &response))
            .or_else(|| self.noindex(trail, facts, &response))
    }

    pub(super) fn by_document(&self, trail: &Trail, facts: &Facts<'_>) -> Rejection {
        let Fact::Known(response) = facts.response else { return self.by_rules(trail) };
        let soft_error = trail.soft_error.map(|filter| (Reason::SoftError, Cause::Rule(filter)));
        soft_error
            .or_else(|| self.noncanonical(trail, facts, &response))
            .or_else(|| self.noindex(trail, facts, &response))
            .or_else(|| self.by_rules(trail))
    }

    /// The document stage runs for a GET answered with 2xx and content, in HTML or text; an answer that does not tell its
    /// type may be either.
    pub(super) fn reads_document(&self, facts: &Facts<'_>) -> bool {
        let (Fact::Known(response), Fact::Known(_)) = (facts.response, facts.document) else { return false };
        let kind = response.content_type;
        let readable = kind.is_empty() || kind.starts_with("text/") || is_html(kind);
        let content = facts.method == "GET" && response.is_success_with_content();
        self.purpose == Purpose::Study && content && readable
    }

    fn too_large(&self, trail: &Trail, response: &ResponseFacts<'_>) -> Rejection {
        let limit = trail.number(self, schema::MAX_BODY)?;
        let larger = response.is_success_with_content() && response.size.is_some_and(|size| size > limit);
        larger.then(|| (Reason::BodyTooLarge, self.cause_of(trail, schema::MAX_BODY)))
    }

    /// `html_only` rejects as the rule that last assigned it; as the default if none did.
    fn not_html(&self, trail: &Trail, response: &ResponseFacts<'_>) -> Rejection {
        let rejects = trail.is_on(self, schema::HTML_ONLY)
            && response.is_success_with_content()
            && !is_html(response.content_type);
        rejects.then(|| {
            let cause = self.cause_of(trail, schema::HTML_ONLY);
            (if cause == Cause::Default { Reason::Default } else { Reason::Rule }, cause)
        })
    }

    /// The answer names another URL as its canonical one.
    fn noncanonical(&self, trail: &Trail, facts: &Facts<'_>, response: &ResponseFacts<'_>) -> Rejection {
        if !self.checks(trail, schema::NONCANONICAL, response) {
            return None;
        }
        let Subject::Url(target) = facts.subject else { return None };
        let header = response.headers.header("link");
        let link = header.as_deref().and_then(signals::canonical_link);
        let of_document =
            || if let Fact::Known(document) = facts.document { document.canonical } else { None };
        let canonical = target.join(link.or_else(of_document)?).ok()?;
        (canonical != *target).then(|| (Reason::Noncanonical, self.cause_of(trail, schema::NONCANONICAL)))
    }

    /// The answer asks not to be indexed, in a header or in the document.
    fn noindex(&self, trail: &Trail, facts: &Facts<'_>, response: &ResponseFacts<'_>) -> Rejection {
        if !self.checks(trail, schema::NOINDEX, response) {
            return None;
        }
        let by_header = response.headers.header("x-robots-tag");
        let in_document =
            if let Fact::Known(document) = facts.document { document.meta_robots } else { None };
        let asked = [by_header.as_deref(), in_document]
            .into_iter()
            .flatten()
            .any(|directives| signals::forbids_index(directives, facts.crawler));
        asked.then(|| (Reason::Noindex, self.cause_of(trail, schema::NOINDEX)))
    }

    /// Whether an option that checks answers rejects, and looks at this one.
    fn checks(&self, trail: &Trail, slot: Slot, response: &ResponseFacts<'_>) -> bool {
        trail.word(self, slot) == Some(schema::REJECTS) && response.is_success_with_content()
    }
}

fn is_html(content_type: &str) -> bool {
    matches!(content_type, "text/html" | "application/xhtml+xml")
}
