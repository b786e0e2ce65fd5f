//! Detection of rules that set a pace which `hosts` sets for all their hosts, so that they have no
//! effect on it.

use crate::diagnostics::problem::Problem;
use crate::policy::condition::AtomTest;
use crate::policy::field::Field;
use crate::policy::host_pace::HostScope;
use crate::policy::options::politeness::is_pace_option;
use crate::policy::options::schema;
use crate::policy::pattern::{LiteralTestKind, TextForm, TextKind};
use crate::policy::source::tree::{SourceOption, SourceRule, SourceRuleBody};

use super::lint_view::LintView;

/// Returns a warning if the rule sets options of the pace, and all hosts that its condition names have
/// an entry in `hosts`.
pub(super) fn find_problem(view: &LintView<'_>, at: usize, source: &SourceRule) -> Option<Problem> {
    let option = pace_option(source)?;
    let entry = covering_entry(view, at)?;
    let message = format!("`{}` has no effect: {entry} sets the pace", option.path);
    let problem = Problem::warning(&option.place, message);
    Some(problem.with_help("set it in that entry, or remove it here"))
}

fn pace_option(source: &SourceRule) -> Option<&SourceOption> {
    let SourceRuleBody::Group(group) = &source.body else {
        return None;
    };
    let mut options = group.set.iter();
    options.find(|option| {
        schema::find_spec(&option.path).is_some_and(|(index, _)| is_pace_option(index))
    })
}

/// Returns the first entry, if every host to which the rule applies has one.
fn covering_entry<'p>(view: &LintView<'p>, at: usize) -> Option<&'p str> {
    let policy = view.policy();
    view.assumptions(at)?.positive_atoms().find_map(|atom| {
        let AtomTest::Text(test) = &atom.test else {
            return None;
        };
        if test.form == TextForm::Normalized {
            return None;
        }
        let (hosts, scope) = match (&atom.field, &test.kind) {
            (Field::Host, TextKind::Literal(LiteralTestKind::Exact, hosts)) => {
                (hosts, HostScope::Exact)
            }
            (Field::Host, TextKind::Literal(LiteralTestKind::Domain, hosts)) => {
                (hosts, HostScope::Domain)
            }
            _ => return None,
        };
        let mut entries = hosts
            .iter()
            .map(|host| policy.host_paces.find_for_all(host, scope));
        let first = entries.next()??;
        entries
            .all(|entry| entry.is_some())
            .then(|| policy.host_pace_label(first))
    })
}
