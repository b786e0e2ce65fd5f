//! The policy engine: from text to a decision, pure.
//!
//! The same facts give the same decision on every machine. Nothing here opens a file, reads a clock
//! or uses a socket: files are read through a [`source::FileSystem`] value, and time is an
//! argument.
//!
//! The path of a policy: [`source`] (text to tree) → [`compile`] (tree to [`Policy`], with all
//! problems) → [`decide`] (facts to [`decide::Decision`]) → [`explain`] (the explanation).
//! [`cases`] are the tests in a policy.

pub mod cases;
pub mod compare;
pub mod compile;
pub mod condition;
pub mod coverage;
pub mod crawler_rules;
pub mod decide;
pub mod exact;
pub mod explain;
pub mod expression;
pub mod fact;
pub mod field;
pub mod host_pace;
pub(crate) mod index;
pub(crate) mod lint;
pub mod list;
pub(crate) mod literals;
pub mod options;
pub mod pace_conflicts;
pub mod pattern;
pub mod rule;
pub mod shadow;
pub(crate) mod signals;
pub mod source;
pub mod space;
pub mod trail;
pub mod traps;

use std::sync::Arc;

use crate::model::rule_id::Slug;

use host_pace::HostPaceTable;
use list::PolicyList;
use options::OptionTable;
use rule::Rule;
use space::{SpaceIndex, Spaces};

/// A compiled policy. It has no errors, since only `compile` creates one.
#[derive(Debug)]
pub struct Policy {
    /// The name, which appears in headers, logs and metrics.
    pub(crate) name: Slug,
    /// The first 8 hexadecimal digits of SHA-256 over the policy files and the list files they
    /// name.
    pub(crate) revision: Arc<str>,
    /// All rules, parents before children, in document order: the document's, then those of each
    /// space, then those of the global space.
    pub(crate) rules: Box<[Rule]>,
    /// The ranges of rules that belong to each space.
    pub(crate) spaces: Spaces,
    /// The pace of hosts: `hosts`.
    pub(crate) host_paces: HostPaceTable,
    /// Named lists.
    pub(crate) lists: Box<[PolicyList]>,
    /// The rules by what their conditions need.
    pub(crate) index: index::PolicyIndex,
    /// The expressions, which the next policy takes over.
    pub(crate) expressions: expression::table::ExpressionTable,
    /// The rules with their texts, which the next policy takes over.
    pub(crate) reusable_rules: source::rule_texts::ReusableRules,
    /// Every option with its initial value: the built-in defaults and the document's `options`.
    pub(crate) options: OptionTable,
    /// The number of rules that `on_invalid_rule: disable` disabled, without their children.
    pub(crate) disabled_rules: u32,
    /// The number of rules that can never act, because nothing matches their values.
    pub(crate) inert_rules: usize,
    /// The stages at which a live rule may have an effect.
    pub(crate) active_stages: rule::StageSet,
    /// The outermost rules in shadow mode.
    pub(crate) shadow_rules: Box<[rule::RuleIndex]>,
    /// The parts of documents that it needs.
    pub(crate) document_needs: decide::DocumentNeeds,
    /// The usage purposes for which the decision depends on the site's preferences.
    pub(crate) usage_purposes: Box<[Box<str>]>,
    /// The compiled `strip_params` and `replace`.
    pub(crate) url_rewriter: options::url_rewrite::UrlRewriter,
    /// `true` if `strip_params` or `replace` changes the fetched URL.
    pub(crate) rewrites_urls: bool,
    /// The traps that it detects, if any.
    pub(crate) traps: Option<options::prepared::PreparedOption<traps::TrapSet>>,
    /// `true` if the option `budget` is set anywhere.
    pub(crate) has_budgets: bool,
    /// `true` if it needs the ledger.
    pub(crate) needs_ledger: bool,
    /// `true` if a decision may depend on the depth of URLs.
    pub(crate) uses_depth: bool,
    /// `true` if it compares documents with earlier ones.
    pub(crate) compares_content: bool,
}

impl Policy {
    /// The name of the policy.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The revision: 8 hexadecimal digits.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns `name@revision`.
    pub fn name_and_revision(&self) -> String {
        format!("{}@{}", self.name, self.revision)
    }

    /// The revision, shared.
    pub fn shared_revision(&self) -> Arc<str> {
        Arc::clone(&self.revision)
    }

    /// Returns `true` if a live rule may have an effect at this stage.
    pub fn is_active_at(&self, stage: rule::PolicyStage) -> bool {
        self.active_stages.contains(stage)
    }

    /// The usage purposes for which a decision may depend on the site's preferences: a rule names
    /// `usage.NAME`, or `robots.usage` contains it.
    pub fn usage_purposes(&self) -> impl Iterator<Item = &str> + Clone {
        self.usage_purposes.iter().map(|name| &**name)
    }

    /// Returns `true` if the policy has spaces, or uses `recrawl`, `unmodified`, `duplicate`,
    /// `max_depth`, `budget.new_urls` or a condition on `depth`.
    pub fn needs_ledger(&self) -> bool {
        self.needs_ledger
    }

    /// Returns `true` if a decision may depend on the depth of URLs: `max_depth` is set anywhere, or
    /// a condition names `depth`.
    pub fn uses_depth(&self) -> bool {
        self.uses_depth
    }

    /// Returns `true` if `unmodified` or `duplicate` is set to a value other than `pass` anywhere.
    /// Otherwise responses need not be checked for these options.
    pub fn compares_content(&self) -> bool {
        self.compares_content
    }

    /// Returns `true` if a decision may depend on the year, because the trap `calendar` is enabled
    /// anywhere.
    pub fn depends_on_year(&self) -> bool {
        let sets = self
            .traps
            .iter()
            .flat_map(options::prepared::PreparedOption::values);
        sets.copied().any(|set| set.contains(traps::Trap::Calendar))
    }

    /// Returns `true` if the option `budget` is set anywhere.
    pub fn has_budgets(&self) -> bool {
        self.has_budgets
    }

    /// The number of rules that are disabled because their own condition is invalid
    /// (`on_invalid_rule: disable`).
    pub fn disabled_rules(&self) -> u32 {
        self.disabled_rules
    }

    /// The number of rules that can never act, because nothing matches their values.
    pub fn inert_rules(&self) -> usize {
        self.inert_rules
    }

    /// The crawl spaces.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// The path of a space's options, such as `spaces.news.options`.
    pub fn space_options_path(&self, space: SpaceIndex) -> &str {
        self.spaces
            .get(space)
            .map_or("", |space| &space.options_path)
    }

    /// The index of the rule with an id.
    pub fn rule_index(&self, id: &str) -> Option<rule::RuleIndex> {
        let at = self.rules.iter().position(|rule| rule.id.as_str() == id)?;
        u32::try_from(at).ok().map(rule::RuleIndex)
    }

    /// All rules, parents before children, in document order: the document's, then those of each
    /// space, then those of the global space, which only affect the code of a refusal.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
