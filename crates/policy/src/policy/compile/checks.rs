//! Checks of rules and of the policy as a whole.

use std::collections::{HashMap, HashSet};

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::stage::Stage;
use crate::policy::Policy;
use crate::policy::cases::{Case, CaseAssertion, ExpectedVerdict};
use crate::policy::decide::Verdict;
use crate::policy::field::Field;
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::FilterKind;
use crate::policy::source::tree::{SourceFilter, SourcePolicy, SourceRuleBody};

use super::drafts::{RuleDrafts, RuleScope};

/// Reports duplicate ids, and advises to name rules without an id: their positions change when
/// rules move.
pub(super) fn check_ids(drafts: &RuleDrafts<'_>, problems: &mut Problems) {
    let mut seen: HashMap<&str, &SourceLocation> = HashMap::new();
    let mut nameless: Vec<&SourceLocation> = Vec::new();
    for draft in &drafts.all {
        let rule = draft.source;
        let place = rule.id.as_ref().map_or(&rule.place, |id| &id.place);
        if rule.id.is_none() {
            nameless.push(place);
        }
        if let Some(first) = seen.insert(rule.name().as_str(), place) {
            let message = format!("duplicate id: another rule has it at {first}");
            let problem = Problem::error(place, message).with_found(rule.name().as_str());
            problems.push(problem.with_rule(Some(rule.name())));
        }
    }
    // If the policy is rejected, an id may be what is wrong.
    if let Some(first) = nameless.first().filter(|_| !problems.has_errors()) {
        let message = match nameless.len() {
            1 => "a rule has no id, so headers, logs and metrics name it by its position".into(),
            n => format!(
                "{n} rules have no id, so headers, logs and metrics name them by their positions"
            ),
        };
        problems.push(Problem::advice(first, message).with_help("write `id: a-name`"));
    }
}

/// Warns of `require` on facts that are often unknown: it refuses a request unless its condition
/// holds.
pub(super) fn check_filter(filter: &SourceFilter, problems: &mut Problems) {
    if filter.sense != FilterKind::Require {
        return;
    }
    let mut found = Vec::new();
    filter.condition.for_each_atom(&mut |atom| {
        if atom.field.as_ref().is_some_and(Field::is_often_absent) {
            found.push(atom);
        }
    });
    for atom in found {
        let message = format!(
            "`require` on `{}` refuses every request for which it is unknown",
            atom.word
        );
        let problem = Problem::warning(&atom.place, message).with_found(&*atom.word);
        problems.push(problem.with_help("use `forbid` with the unwanted values"));
    }
}

/// Warns where depth is counted from seeds that no file lists.
pub(super) fn check_depth_starts(
    source: &SourcePolicy,
    drafts: &RuleDrafts<'_>,
    problems: &mut Problems,
) {
    let any_seeds = source.spaces.iter().any(|space| space.seeds.is_some());
    let document = source.options.iter().map(|option| (option, any_seeds));
    let spaces = source.spaces.iter().flat_map(|space| {
        let options = space.options.iter();
        options.map(|option| (option, space.seeds.is_some()))
    });
    let rules = drafts.all.iter().flat_map(|draft| {
        let has_seeds = match draft.scope {
            RuleScope::Space(at) => source
                .spaces
                .get(at)
                .is_some_and(|space| space.seeds.is_some()),
            RuleScope::Document | RuleScope::Global => any_seeds,
        };
        let options = match &draft.source.body {
            SourceRuleBody::Group(group) => group.set.as_slice(),
            SourceRuleBody::Filter(_) => &[],
        };
        options.iter().map(move |option| (option, has_seeds))
    });
    for (option, has_seeds) in document.chain(spaces).chain(rules) {
        let counts_seeds = *option.path == *schema::DEPTH_START_PATH
            && option.value == OptionValue::Word(schema::SEEDS_WORD);
        if counts_seeds && !has_seeds {
            let message = "no seeds are listed, so only `Crawl-Depth: 0` makes a URL a start: every other depth \
                           is unknown, and an unknown depth exceeds no limit";
            let problem = Problem::warning(&option.place, message).with_found(schema::SEEDS_WORD);
            problems.push(problem.with_help("name a file with URLs in `seeds` of the space"));
        }
    }
}

/// Reports cases and assertions that name a rule that does not exist, and cases that give an origin
/// status that cannot matter.
pub(super) fn check_cases(
    policy: &Policy,
    cases: &[Case],
    assertions: &[CaseAssertion],
    problems: &mut Problems,
) {
    let expected = cases.iter().filter_map(|case| {
        let message = "the case expects a rule that does not exist";
        Some((&case.place, case.expect.rule.as_deref()?, message))
    });
    let asserted = assertions.iter().filter_map(|assertion| {
        let message = "the assertion names a rule that does not exist";
        Some((&assertion.place, assertion.claim.rule()?, message))
    });
    let mut named = expected.chain(asserted).peekable();
    if named.peek().is_some() {
        let ids: HashSet<&str> = policy.rules.iter().map(|rule| rule.id.as_str()).collect();
        for (place, rule, message) in named.filter(|(_, rule, _)| !ids.contains(rule)) {
            problems.push(
                Problem::error(place, message)
                    .with_found(rule)
                    .with_suggestion_from(policy.rules.iter().map(|rule| rule.id.as_str())),
            );
        }
    }
    // The decisions of a policy with errors are meaningless.
    if problems.has_errors() {
        return;
    }
    for case in cases
        .iter()
        .filter(|case| expects_answer_status(policy, case))
    {
        let message = "`status` is the origin's status, but the request is refused before it reaches the origin";
        let problem = Problem::warning(&case.place, message);
        problems.push(problem.with_help(
            "for the status of the response write `expect: { verdict: reject, status: … }`",
        ));
    }
}

/// Returns `true` if the author probably meant the status of the response.
fn expects_answer_status(policy: &Policy, case: &Case) -> bool {
    if case.expect.verdict != ExpectedVerdict::Reject || !case.facts.has_only_status() {
        return false;
    }
    let (_, decision) = policy.decide(&case.facts.facts());
    matches!(decision.verdict, Verdict::Reject(_)) && decision.stage < Stage::Response
}

#[cfg(test)]
mod tests {
    use crate::policy::fact::{Fact, Facts};
    use crate::policy::field::{FIXED_FIELDS, ValueType};
    use crate::policy::rule::PolicyStage;
    use crate::urls::target::UrlTarget;

    #[test]
    fn the_fields_that_a_plain_request_lacks_are_those_that_require_warns_of() {
        let target = UrlTarget::parse("http://a.test:8080/p/x?q=1").unwrap();
        let facts = Facts::for_url(&target);
        let of_requests = FIXED_FIELDS
            .iter()
            .filter(|field| field.stage() == PolicyStage::Request);
        for field in of_requests {
            let is_present = match field.value_type() {
                ValueType::Text => field.any_text_matches(&facts, |text| !text.is_empty()),
                ValueType::Number => field.number(&facts).map(|number| number.is_some()),
                ValueType::Address => field.address(&facts).map(|address| address.is_some()),
            };
            let expected = Fact::Known(!field.is_often_absent());
            assert_eq!(is_present, expected, "{field:?}");
        }
    }
}
