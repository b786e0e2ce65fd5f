//! From the source of a policy to the policy, with all problems in one run.
//!
//! What is checked here is meaning: ids, stages, patterns, lists, and whether this version can do what is asked. A
//! [`Policy`] is made nowhere else, so whoever holds one holds one without errors.

mod canonical;
mod checks;
mod condition;
mod crawlers;
mod document_needs;
mod drafts;
mod escape;
mod ledger_needs;
mod lists;
mod options;
mod regex;
mod replacements;
mod rules;
mod spaces;
mod stages;
mod usage_purposes;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::{Problems, SourceTexts};

use super::Policy;
use super::cases::Case;
use super::decide::DocumentNeeds;
use super::lint;
use super::options::budget;
use super::options::prepared::PreparedOption;
use super::options::schema;
use super::options::url_rewrite::UrlRewriter;
use super::rule::{EnforcementMode, StageSet};
use super::shadow;
use super::source::tree::{LocatedText, SourcePolicy, SourceRule};
use super::source::{self, FileSystem, MemoryFileSystem};
use super::traps::TrapSet;
use drafts::RuleDrafts;
use lists::ListTable;
use options::OptionCompiler;

/// A policy that can be used, and what came with it.
#[derive(Debug)]
pub struct CompiledPolicy {
    /// The policy.
    pub policy: Policy,
    /// Its cases, not yet run.
    pub cases: Vec<Case>,
    /// Where each of its rules begins, in the order of [`Policy::rules`].
    pub rule_places: Vec<SourceLocation>,
    /// The crawlers that its rules name; whether the configuration knows them is not looked at.
    pub named_crawlers: Vec<LocatedText>,
    /// Warnings and advice, in the order of the text.
    pub problems: Vec<Problem>,
    /// What it was read from, to show the lines of problems that others find.
    pub texts: SourceTexts,
}

/// Reads and compiles the policy at a path, a file or a directory of `*.yaml` files.
///
/// # Errors
/// Everything that is wrong, warnings included, in the order of the text; at least one of it an error.
pub fn load(files: &dyn FileSystem, path: &str) -> Result<CompiledPolicy, Vec<Problem>> {
    let mut problems = Problems::new();
    match source::read_policy(files, path, &mut problems) {
        Some(source) => compile(&source, problems),
        None => Err(problems.into_vec()),
    }
}

/// The policy that is used where there is no policy file at all: everything may be fetched.
///
/// # Errors
/// As [`load`]; only a mistake in this program could lead to one.
pub fn load_builtin() -> Result<CompiledPolicy, Vec<Problem>> {
    let text = "policy: 1\nname: builtin\noptions: { disposition: allow }\n";
    load(
        &MemoryFileSystem::new().with_file("builtin", text),
        "builtin",
    )
}

/// Checks cases that are written apart from their policy, as those in it are.
pub fn check_cases(policy: &Policy, cases: &[Case], problems: &mut Problems) {
    checks::check_cases(policy, cases, problems);
}

/// Compiles a policy; `problems` are those found when it was read.
///
/// # Errors
/// As [`load`].
pub fn compile(
    source: &SourcePolicy,
    mut problems: Problems,
) -> Result<CompiledPolicy, Vec<Problem>> {
    let mut lists = ListTable::compile(&source.lists, &mut problems);
    let mut options = OptionCompiler::from_document(source, &mut problems);
    let drafts = RuleDrafts::from_source(source, &mut lists, &mut problems);
    let placings = stages::compute_stage_bounds(&drafts, &mut problems);
    let classes = spaces::classify_rules(&drafts);
    let rules = rules::compile_rules(&drafts, &placings, &classes, &mut options, &mut problems);
    let spaces = spaces::compile_spaces(source, &drafts, &mut options, &mut problems);
    options.report_ineffective(&mut problems);
    // Of a policy that is refused, the condition that names a list may be what is wrong.
    if !problems.has_errors() {
        lists.report_unused(&source.lists, &mut problems);
    }
    checks::check_ids(&drafts, &mut problems);
    let mut stages = StageSet::default();
    rules
        .iter()
        .filter(|rule| rule.mode == EnforcementMode::Enforce)
        .for_each(|rule| stages.insert_all(rule.active_stages));
    let mut policy = Policy {
        name: source.name.clone(),
        revision: source.revision.clone(),
        disabled_rules: drafts.disabled_rules,
        options: options.into_table(&rules),
        shadow_rules: shadow::outermost_shadow_rules(&rules),
        rules,
        spaces,
        lists: lists.into_lists(),
        active_stages: stages,
        document_needs: DocumentNeeds::default(),
        usage_purposes: Box::default(),
        url_rewriter: UrlRewriter::default(),
        rewrites_urls: false,
        traps: None,
        has_budgets: false,
        needs_ledger: false,
        compares_content: false,
    };
    policy.usage_purposes = usage_purposes::collect(&policy);
    policy.document_needs = document_needs::collect(&policy);
    policy.set_url_rewriter(UrlRewriter::for_policy(
        &policy,
        replacements::compile_replacement,
    ));
    policy.traps = PreparedOption::prepare(&policy, schema::TRAPS, TrapSet::from_value);
    policy.has_budgets = budget::has_limits(&policy);
    policy.compares_content = ledger_needs::compares_content(&policy);
    policy.needs_ledger = ledger_needs::needs_ledger(&policy);
    checks::check_cases(&policy, &source.cases, &mut problems);
    let sources: Vec<&SourceRule> = drafts.all.iter().map(|draft| draft.source).collect();
    lint::lint(&policy, &sources, &problems)
        .into_iter()
        .for_each(|problem| problems.push(problem));
    let refused = problems.has_errors();
    let texts = problems.texts();
    let problems = problems.into_vec();
    if refused {
        return Err(problems);
    }
    let crawlers = crawlers::collect_names(source);
    let places = drafts
        .all
        .iter()
        .map(|draft| draft.source.place.clone())
        .collect();
    Ok(CompiledPolicy {
        policy,
        cases: source.cases.clone(),
        rule_places: places,
        named_crawlers: crawlers,
        problems,
        texts,
    })
}
