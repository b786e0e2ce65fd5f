//! From the source of a policy to the policy, with all problems in one run.
//!
//! What is checked here is meaning: ids, stages, patterns, lists, and whether this version can do what is asked. A
//! [`Policy`] is made nowhere else, so whoever holds one holds one without errors.

mod canonical;
mod checks;
mod condition;
mod crawlers;
mod documents;
mod drafts;
mod escape;
mod keys;
mod lists;
mod memory;
mod options;
mod regex;
mod rules;
mod spaces;
mod stages;
mod uses;

use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::{Problems, Texts};

use super::Policy;
use super::cases::Case;
use super::decide::OfDocuments;
use super::lint;
use super::options::budget;
use super::options::chosen::Chosen;
use super::options::keys::Keys;
use super::options::schema;
use super::rule::{Mode, StageSet};
use super::shadow;
use super::source::tree::{Source, SourceRule, Text};
use super::source::{self, Files, MemoryFiles};
use super::traps::TrapSet;
use drafts::Drafts;
use lists::Lists;
use options::Options;

/// A policy that can be used, and what came with it.
#[derive(Debug)]
pub struct Compiled {
    /// The policy.
    pub policy: Policy,
    /// Its cases, not yet run.
    pub cases: Vec<Case>,
    /// Where each of its rules begins, in the order of [`Policy::rules`].
    pub places: Vec<Place>,
    /// The crawlers that its rules name; whether the configuration knows them is not looked at.
    pub crawlers: Vec<Text>,
    /// Warnings and advice, in the order of the text.
    pub problems: Vec<Problem>,
    /// What it was read from, to show the lines of problems that others find.
    pub texts: Texts,
}

/// Reads and compiles the policy at a path, a file or a directory of `*.yaml` files.
///
/// # Errors
/// Everything that is wrong, warnings included, in the order of the text; at least one of it an error.
pub fn load(files: &dyn Files, path: &str) -> Result<Compiled, Vec<Problem>> {
    let mut problems = Problems::new();
    match source::read(files, path, &mut problems) {
        Some(source) => compile(&source, problems),
        None => Err(problems.into_vec()),
    }
}

/// The policy that is used where there is no policy file at all: everything may be fetched.
///
/// # Errors
/// As [`load`]; only a mistake in this program could lead to one.
pub fn builtin() -> Result<Compiled, Vec<Problem>> {
    let text = "policy: 1\nname: builtin\noptions: { disposition: allow }\n";
    load(&MemoryFiles::new().with("builtin", text), "builtin")
}

/// Checks cases that are written apart from their policy, as those in it are.
pub fn check_cases(policy: &Policy, cases: &[Case], problems: &mut Problems) {
    checks::cases(policy, cases, problems);
}

/// Compiles a policy; `problems` are those found when it was read.
///
/// # Errors
/// As [`load`].
pub fn compile(source: &Source, mut problems: Problems) -> Result<Compiled, Vec<Problem>> {
    let mut lists = Lists::compile(&source.lists, &mut problems);
    let mut options = Options::of_document(source, &mut problems);
    let drafts = Drafts::of(source, &mut lists, &mut problems);
    let placings = stages::place(&drafts, &mut problems);
    let classes = spaces::classes(&drafts);
    let rules = rules::rules(&drafts, &placings, &classes, &mut options, &mut problems);
    let spaces = spaces::spaces(source, &drafts, &mut options, &mut problems);
    options.report(&mut problems);
    // Of a policy that is refused, the condition that names a list may be what is wrong.
    if !problems.has_errors() {
        lists.unused(&source.lists, &mut problems);
    }
    checks::ids(&drafts, &mut problems);
    let mut stages = StageSet::default();
    rules
        .iter()
        .filter(|rule| rule.mode == Mode::Enforce)
        .for_each(|rule| stages.unite(rule.active));
    let mut policy = Policy {
        name: source.name.clone(),
        revision: source.revision.clone(),
        disabled: drafts.disabled,
        options: options.into_table(&rules),
        shadows: shadow::outermost(&rules),
        rules,
        spaces,
        lists: lists.into_lists(),
        stages,
        documents: OfDocuments::default(),
        uses: Box::default(),
        keys: Keys::default(),
        rewrites: false,
        traps: None,
        budgets: false,
        remembers: false,
        compares: false,
    };
    policy.uses = uses::asked_for(&policy);
    policy.documents = documents::asked_of(&policy);
    policy.set_keys(Keys::of(&policy, keys::replacement));
    policy.traps = Chosen::of(&policy, schema::TRAPS, TrapSet::of);
    policy.budgets = budget::any(&policy);
    policy.compares = memory::compared(&policy);
    policy.remembers = memory::needed(&policy);
    checks::cases(&policy, &source.cases, &mut problems);
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
    let crawlers = crawlers::named(source);
    let places = drafts
        .all
        .iter()
        .map(|draft| draft.source.place.clone())
        .collect();
    Ok(Compiled {
        policy,
        cases: source.cases.clone(),
        places,
        crawlers,
        problems,
        texts,
    })
}
