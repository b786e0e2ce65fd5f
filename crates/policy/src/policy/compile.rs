//! Compiles the source of a policy, and reports all problems in one run.
//!
//! This module checks meaning: ids, stages, patterns, lists, and support for the options. Nothing
//! else creates a [`Policy`], so that every existing one is free of errors.

mod canonical;
mod checks;
mod condition;
mod crawlers;
mod drafts;
mod escape;
mod host_paces;
mod lists;
mod needs;
mod options;
mod regex;
mod replacements;
mod reusable;
mod rules;
mod spaces;
mod stages;
mod surt;

use std::collections::BTreeSet;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::{Problems, SourceTexts};

use super::Policy;
use super::cases::{Case, CaseAssertion};
use super::exact::inert::find_inert_rules;
use super::expression::prepare::prepare_expressions;
use super::expression::table::{ExpressionInterner, ExpressionTable};
use super::host_pace::HostPaceTable;
use super::index::{self, PolicyIndex};
use super::lint::{self, LintReport};
use super::options::prepared::PreparedOption;
use super::options::url_rewrite::UrlRewriter;
use super::options::{OptionSetter, OptionSources, budget, politeness, schema};
use super::pace_conflicts::PaceConflict;
use super::rule::{EnforcementMode, Rule, StageSet};
use super::shadow;
use super::source::rule_texts::ReusableRules;
use super::source::tree::{LocatedText, SourcePolicy, SourceRule};
use super::source::{self, CaseFile, FileSystem, MemoryFileSystem};
use super::traps::TrapSet;
use drafts::RuleDrafts;
use lists::ListTable;
use options::OptionCompiler;

/// A valid policy, with what is needed to test and explain it.
#[derive(Debug)]
pub struct CompiledPolicy {
    pub policy: Policy,
    /// The cases in the policy. They have not been run.
    pub cases: Vec<Case>,
    /// The assertions among the cases. They have not been checked.
    pub assertions: Vec<CaseAssertion>,
    /// The location of each rule, in the order of [`Policy::rules`].
    pub rule_places: Vec<SourceLocation>,
    /// The crawlers that the rules name. They have not been compared with the configuration.
    pub named_crawlers: Vec<LocatedText>,
    /// The crawlers of spaces and conditions that get different paces for one host. `problems`
    /// has them, too.
    pub pace_conflicts: Vec<PaceConflict>,
    /// Warnings and advice, sorted by location.
    pub problems: Vec<Problem>,
    /// Errors of rules that can never act, because no URL matches their values. Such a policy is
    /// in effect as before these errors were known, but replaces no other.
    pub inert_rules: Vec<Problem>,
    /// The warning among `problems` that not all rules were compared with the others to find those that can
    /// never decide. [`ExactCheck`](super::exact::ExactCheck) compares all.
    pub incomplete_lint: Option<Problem>,
    /// The rules of which `problems` say that they can never decide.
    pub(crate) dead_rules: BTreeSet<usize>,
    /// The texts of the policy, which show the source lines of problems that are found later.
    pub texts: SourceTexts,
}

/// Reads and compiles the policy at a path, a file or a directory of `*.yaml` files.
///
/// # Errors
/// Returns all problems, including warnings, sorted by location. At least one of them is an error.
pub fn load(files: &dyn FileSystem, path: &str) -> Result<CompiledPolicy, Vec<Problem>> {
    load_again(files, path, None)
}

/// Reads and compiles a policy like [`load`], and takes over from `previous` what has not changed:
/// rules with the same text, and expressions, compiled or not. The outcome is that of [`load`].
///
/// # Errors
/// Returns all problems like [`load`].
pub fn load_again(
    files: &dyn FileSystem,
    path: &str,
    previous: Option<&Policy>,
) -> Result<CompiledPolicy, Vec<Problem>> {
    let mut problems = Problems::new();
    match source::read_policy(files, path, previous, &mut problems) {
        Some(source) => compile(&source, previous, problems),
        None => Err(problems.into_vec()),
    }
}

/// Compiles the policy that is used without a policy file: it allows everything.
///
/// # Errors
/// Returns an error only if there is a bug in this crate.
pub fn load_builtin() -> Result<CompiledPolicy, Vec<Problem>> {
    let text = "policy: 1\nname: builtin\noptions: { disposition: allow }\n";
    load(
        &MemoryFileSystem::new().with_file("builtin", text),
        "builtin",
    )
}

/// Checks the cases of a case file in the same way as those in the policy.
pub fn check_cases(policy: &Policy, file: &CaseFile, problems: &mut Problems) {
    checks::check_cases(policy, &file.cases, &file.assertions, problems);
}

/// Compiles a policy. `problems` are those that were found while it was read, `previous` is a policy
/// that has some of its expressions.
///
/// # Errors
/// Returns all problems like [`load`].
pub fn compile(
    source: &SourcePolicy,
    previous: Option<&Policy>,
    mut problems: Problems,
) -> Result<CompiledPolicy, Vec<Problem>> {
    let mut expressions = ExpressionInterner::new(previous.map(|policy| &policy.expressions));
    let mut lists = ListTable::compile(&source.lists, &mut expressions, &mut problems);
    let mut options = OptionCompiler::from_document(source, &mut problems);
    let mut drafts = RuleDrafts::from_source(source, &mut lists, &mut expressions, &mut problems);
    let host_paces =
        host_paces::compile_host_paces(source, &mut lists, &mut options, &mut problems);
    lists.report_doubtful_items(&mut expressions, &mut problems);
    let tables = PolicyTables {
        lists,
        options,
        host_paces,
        expressions: expressions.into_table(),
    };
    let mut policy = compile_policy(source, &mut drafts, tables, &mut problems);
    checks::check_cases(&policy, &source.cases, &source.assertions, &mut problems);
    let sources: Vec<&SourceRule> = drafts.all.iter().map(|draft| draft.source).collect();
    let lint = lint_and_index(&mut policy, &sources, &problems);
    for problem in lint.problems {
        problems.push(problem);
    }
    let has_errors = problems.has_errors();
    if !has_errors {
        prepare_expressions(&policy.rules, &policy.lists, &policy.index);
    }
    let named_crawlers = crawlers::collect_names(source);
    let pace_conflicts = if has_errors {
        Vec::new()
    } else {
        policy.pace_conflicts(named_crawlers.iter().map(|name| &*name.value))
    };
    for conflict in &pace_conflicts {
        let place = pace_setter_place(source, &sources, conflict.reported_setter());
        problems.push(conflict.problem(&policy, place));
    }
    let texts = problems.texts();
    let problems = problems.into_vec();
    if has_errors {
        return Err(problems);
    }
    let places: Vec<&SourceLocation> = sources.iter().map(|rule| &rule.place).collect();
    let suspects: Vec<usize> = drafts
        .all
        .iter()
        .enumerate()
        .filter(|(_, draft)| draft.has_dead_values)
        .map(|(at, _)| at)
        .collect();
    let mut inert_rules = find_inert_rules(&policy, &places, &suspects);
    texts.add_excerpts(&mut inert_rules);
    policy.inert_rules = inert_rules.len();
    policy.reusable_rules = reusable::select_rules(source, &drafts, &policy.rules, &problems);
    Ok(CompiledPolicy {
        inert_rules,
        dead_rules: lint.dead_rules,
        incomplete_lint: lint.incomplete,
        policy,
        cases: source.cases.clone(),
        assertions: source.assertions.clone(),
        rule_places: sources.iter().map(|rule| rule.place.clone()).collect(),
        named_crawlers,
        pace_conflicts,
        problems,
        texts,
    })
}

/// Returns the place where a pace is set.
fn pace_setter_place<'s>(
    source: &'s SourcePolicy,
    rules: &[&'s SourceRule],
    setter: OptionSetter,
) -> &'s SourceLocation {
    let place = match setter {
        OptionSetter::Rule(rule) => rules.get(rule.0 as usize).map(|rule| &rule.place),
        OptionSetter::Space(space) => source.spaces.get(usize::from(space.0)).map(|space| {
            let mut options = space.options.iter();
            let first = options.find(|option| option.path.starts_with(politeness::MAP));
            first.map_or(&space.name.place, |option| &option.place)
        }),
        OptionSetter::Host(entry) => source
            .hosts
            .get(usize::from(entry.0))
            .map(|entry| &entry.place),
        OptionSetter::BuiltIn | OptionSetter::Document => None,
    };
    place.unwrap_or(&source.options_place)
}

/// The parts of a policy that its rules refer to.
struct PolicyTables<'s> {
    lists: ListTable<'s>,
    options: OptionCompiler,
    host_paces: HostPaceTable,
    expressions: ExpressionTable,
}

/// Finds rules that can never decide, and builds the index. Both take long in a large policy, so they are
/// done at the same time, unless the one needs the other: that spaces overlap is proved by decisions.
fn lint_and_index(policy: &mut Policy, sources: &[&SourceRule], problems: &Problems) -> LintReport {
    let build = |policy: &Policy| {
        index::build(
            &policy.rules,
            &policy.spaces,
            &policy.lists,
            index::SHORTEST_INDEXED_LIST,
        )
    };
    if policy.spaces.all().len() > 1 {
        policy.index = build(policy);
        return lint::lint(policy, sources, problems);
    }
    let (report, index) = run_beside(|| lint::lint(policy, sources, problems), || build(policy));
    policy.index = index;
    report
}

/// Calls two functions, the second one in a new thread if there can be one.
fn run_beside<A, B: Send>(here: impl FnOnce() -> A, beside: impl Fn() -> B + Sync) -> (A, B) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("policy".into());
        let thread = thread.spawn_scoped(scope, &beside);
        let first = here();
        let second = match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(second)) => second,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => beside(),
        };
        (first, second)
    })
}

/// Returns a policy without index.
fn compile_policy(
    source: &SourcePolicy,
    drafts: &mut RuleDrafts<'_>,
    tables: PolicyTables<'_>,
    problems: &mut Problems,
) -> Policy {
    let PolicyTables {
        lists,
        mut options,
        host_paces,
        expressions,
    } = tables;
    let placements = stages::place_rules(drafts, problems);
    let classes = spaces::classify_rules(drafts);
    spaces::check_global_rules(drafts, problems);
    let rules = rules::compile_rules(drafts, &placements, &classes, &mut options, problems);
    let spaces = spaces::compile_spaces(source, drafts, &mut options, problems);
    // If the policy has errors, the missing use of a list may be a consequence.
    if !problems.has_errors() {
        lists.report_unused(problems);
    }
    checks::check_ids(drafts, problems);
    let options = options.into_table(&rules);
    let sources = OptionSources {
        options: &options,
        spaces: &spaces,
        rules: &rules,
        host_paces: &host_paces,
    };
    if needs::uses_depth(sources) {
        checks::check_depth_starts(source, drafts, problems);
    }
    let lists = lists.into_lists();
    let url_rewriter = UrlRewriter::new(sources, replacements::compile_replacement);
    Policy {
        active_stages: active_stages(&rules),
        shadow_rules: shadow::outermost_shadow_rules(&rules),
        document_needs: needs::document_needs(sources),
        usage_purposes: needs::usage_purposes(sources),
        rewrites_urls: url_rewriter.rewrites_urls(),
        url_rewriter,
        traps: PreparedOption::from_sources(sources, schema::TRAPS, TrapSet::from_value),
        has_budgets: budget::has_limits(sources),
        needs_ledger: needs::needs_ledger(sources),
        uses_depth: needs::uses_depth(sources),
        compares_content: needs::compares_content(sources),
        name: source.name.clone(),
        revision: source.revision.clone(),
        disabled_rules: drafts.disabled_rules,
        index: PolicyIndex::default(),
        lists,
        host_paces,
        expressions,
        reusable_rules: ReusableRules::default(),
        inert_rules: 0,
        rules,
        spaces,
        options,
    }
}

/// Returns the stages at which an enforced rule is active.
fn active_stages(rules: &[Rule]) -> StageSet {
    let mut stages = StageSet::default();
    for rule in rules {
        if rule.mode == EnforcementMode::Enforce {
            stages.insert_all(rule.active_stages);
        }
    }
    stages
}
