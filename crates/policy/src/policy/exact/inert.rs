//! Rules that can never act, because their values match no canonical URL.

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::policy::Policy;
use crate::policy::condition::{AtomTest, Condition, Polarity};
use crate::policy::field::Field;
use crate::policy::pattern::{CaseSensitivity, LiteralTestKind, TextKind, TextTest};

use super::formula::Formula;
use super::question::{Solution, Solver};
use super::regions::AnalysedPolicy;

/// Returns an error for each rule that can never act because of a value that no URL matches. Only
/// the rules at `suspects` have such values.
pub(crate) fn find_inert_rules(
    policy: &Policy,
    places: &[&SourceLocation],
    suspects: &[usize],
) -> Vec<Problem> {
    if suspects.is_empty() {
        return Vec::new();
    }
    let Ok(mut solver) = Solver::new() else {
        return Vec::new();
    };
    let analysed = AnalysedPolicy::new(policy);
    let mut inert = Vec::new();
    for at in suspects.iter().copied() {
        let rule = policy.rules.get(at).filter(|_| analysed.view.is_live(at));
        let Some((rule, place)) = rule.zip(places.get(at)) else {
            continue;
        };
        solver.begin_question();
        let own = own_formula(&analysed, &mut solver, at);
        let never = own == Formula::Constant(false)
            || matches!(solver.solve(&own, &|_| false), Solution::Never);
        if never {
            let key = rule.condition_key().unwrap_or("when");
            let message = format!("`{key}` never has an effect: nothing matches its values");
            inert.push(Problem::error(place, message).with_rule(Some(&rule.id)));
        }
    }
    inert
}

/// Returns the requests for which a rule acts, as far as its own condition says.
fn own_formula(analysed: &AnalysedPolicy<'_>, solver: &mut Solver, at: usize) -> Formula {
    let Some(assertion) = analysed.view.assertion(at) else {
        return Formula::Constant(true);
    };
    let condition = without_impossible_atoms(assertion.condition);
    let formula = solver.table.condition(&condition, &analysed.policy.lists);
    match assertion.polarity {
        Polarity::Yes => formula,
        Polarity::No => formula.negate(),
    }
}

/// Replaces the tests of texts that their field never has, such as `content_type: video`, by an empty alternative,
/// which never holds. The analysis knows the possible texts of URLs only.
fn without_impossible_atoms(condition: &Condition) -> Condition {
    let convert_all = |parts: &[Condition]| parts.iter().map(without_impossible_atoms).collect();
    match condition {
        Condition::Always => Condition::Always,
        Condition::All(parts) => Condition::All(convert_all(parts)),
        Condition::Any(parts) => Condition::Any(convert_all(parts)),
        Condition::Not(part) => Condition::Not(Box::new(without_impossible_atoms(part))),
        Condition::Atom(atom) => match &atom.test {
            AtomTest::Text(test) if is_impossible(&atom.field, test) => {
                Condition::Any(Box::default())
            }
            AtomTest::Text(_)
            | AtomTest::Number(_)
            | AtomTest::Address(_)
            | AtomTest::InList(_) => Condition::Atom(atom.clone()),
        },
    }
}

/// Returns `true` if the field never has a text of a test. Methods are not proved to be impossible: a client may send any
/// token, and the origin decides what it means.
fn is_impossible(field: &Field, test: &TextTest) -> bool {
    let compares_case = test.case == CaseSensitivity::Sensitive || field.ignores_case();
    if !compares_case || *field == Field::Method {
        return false;
    }
    match &test.kind {
        TextKind::Literal(LiteralTestKind::Exact, values) => values
            .iter()
            .all(|value| field.impossible_text(value).is_some()),
        TextKind::Literal(..) | TextKind::Regex(_) | TextKind::Count(..) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::compile::load;
    use crate::policy::source::MemoryFileSystem;

    /// Returns the messages about rules without effect.
    fn inert_rules(rule: &str) -> Vec<String> {
        let text = format!(
            "policy: 1\nname: t\noptions: {{ disposition: allow }}\nrules:\n  - {{ id: r, {rule} }}\n"
        );
        let files = MemoryFileSystem::new().with_file("p.yaml", text);
        let compiled = load(&files, "p.yaml").unwrap();
        let rules = compiled.inert_rules.iter();
        rules.map(|problem| problem.message.clone()).collect()
    }

    #[test]
    fn values_that_a_field_never_has() {
        for (rule, key) in [
            ("forbid: { path: { prefix: x } }", Some("forbid")),
            ("forbid: { content_type: video }", Some("forbid")),
            ("forbid: { content_type: [video, audio] }", Some("forbid")),
            ("forbid: { content_type: [video, audio/*] }", None),
            (
                "forbid: { content_type: video, host: a.test }",
                Some("forbid"),
            ),
            (
                "forbid: { any: [{ content_type: video }, { host: a.test }] }",
                None,
            ),
            ("forbid: { not: { content_type: video } }", None),
            ("require: { not: { content_type: video } }", Some("require")),
            ("require: { content_type: video }", None),
            ("forbid: { method: get }", None),
            ("forbid: { dest: { exact: Embed, case: ignore } }", None),
            ("when: { dest: document }, then: disallow", Some("when")),
            ("unless: { usage.ai-train: yes }, then: disallow", None),
            ("forbid: { under: '/a*' }", None),
            ("forbid: { path: '/a*' }", None),
            ("forbid: { url_prefix: 'http://a.test/*' }", None),
        ] {
            let expected: Vec<String> = key
                .map(|key| format!("`{key}` never has an effect: nothing matches its values"))
                .into_iter()
                .collect();
            assert_eq!(inert_rules(rule), expected, "{rule}");
        }
    }
}
