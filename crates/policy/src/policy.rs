//! The policy: from text to a decision, pure.
//!
//! The same facts give the same decision on every machine. Nothing here opens a file, reads a clock, or knows of
//! sockets: files are asked for through a [`source::Files`] value, time is an argument.
//!
//! The road of a policy: [`source`] (text to tree) → [`compile`] (tree to [`Policy`], all problems at once) →
//! [`decide`] (facts to [`decide::Decision`]) → [`explain`] (why). `cases` are the tests that travel with it.

pub mod cases;
pub mod compare;
pub mod compile;
pub mod condition;
pub mod coverage;
pub mod decide;
pub mod explain;
pub mod fact;
pub mod field;
pub(crate) mod lint;
pub mod list;
pub mod options;
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

use list::PolicyList;
use options::OptionTable;
use rule::Rule;
use space::{SpaceIndex, Spaces};

/// A compiled policy. Only `compile` makes one, so whoever holds it holds one without errors.
#[derive(Debug)]
pub struct Policy {
    /// The policy's name, shown in headers, logs and metrics.
    pub(crate) name: Slug,
    /// The first 8 hex digits of SHA-256 over the policy files and the lists they name.
    pub(crate) revision: Arc<str>,
    /// The document's rules and all that they contain, parents before children, in document order; then those of each
    /// space, and of the global space.
    pub(crate) rules: Box<[Rule]>,
    /// Which of the rules belong to whom.
    pub(crate) spaces: Spaces,
    /// Named sets.
    pub(crate) lists: Box<[PolicyList]>,
    /// Every option with its value before the first rule: the built-in defaults and the document's `options`.
    pub(crate) options: OptionTable,
    /// How many rules `on_invalid_rule: disable` disabled, those in them aside.
    pub(crate) disabled_rules: u32,
    /// The stages at which any live rule could do something.
    pub(crate) active_stages: rule::StageSet,
    /// The outermost rules in shadow.
    pub(crate) shadow_rules: Box<[rule::RuleIndex]>,
    /// What it asks of documents.
    pub(crate) document_needs: decide::DocumentNeeds,
    /// The uses of which it depends on what sites say.
    pub(crate) usage_purposes: Box<[Box<str>]>,
    /// What its `strip_params` and `replace` have become.
    pub(crate) url_rewriter: options::url_rewrite::UrlRewriter,
    /// Whether any of those change what is fetched.
    pub(crate) rewrites_urls: bool,
    /// Which traps it looks for; none if it never does.
    pub(crate) traps: Option<options::prepared::PreparedOption<traps::TrapSet>>,
    /// Whether anything limits what is fetched in a day.
    pub(crate) has_budgets: bool,
    /// Whether it needs the ledger.
    pub(crate) needs_ledger: bool,
    /// Whether anything asks whether a document is one that the crawler has.
    pub(crate) compares_content: bool,
}

impl Policy {
    /// The policy's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The policy's revision: 8 hex digits.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The same, to be kept without a copy.
    pub fn shared_revision(&self) -> Arc<str> {
        Arc::clone(&self.revision)
    }

    /// Whether any live rule could do something at this stage.
    pub fn is_active_at(&self, stage: rule::PolicyStage) -> bool {
        self.active_stages.contains(stage)
    }

    /// The uses of which a verdict may depend on what a site says: a rule names `usage.NAME`, or `robots.usage` has it.
    pub fn usage_purposes(&self) -> impl Iterator<Item = &str> + Clone {
        self.usage_purposes.iter().map(|name| &**name)
    }

    /// Whether it needs the ledger: it has spaces, or `recrawl`, `unmodified`, `duplicate`, `max_depth`,
    /// `budget.new_urls` or a condition on `depth`.
    pub fn needs_ledger(&self) -> bool {
        self.needs_ledger
    }

    /// Whether anything sets `unmodified` or `duplicate` to more than `pass`: a policy that does not spares every answer
    /// the look at the options.
    pub fn compares_content(&self) -> bool {
        self.compares_content
    }

    /// Whether a decision may depend on the year: something sets the trap `calendar`.
    pub fn depends_on_year(&self) -> bool {
        let sets = self
            .traps
            .iter()
            .flat_map(options::prepared::PreparedOption::values);
        sets.copied().any(|set| set.contains(traps::Trap::Calendar))
    }

    /// Whether anything limits what is fetched in a day: the option `budget`.
    pub fn has_budgets(&self) -> bool {
        self.has_budgets
    }

    /// How many rules are disabled because their own condition cannot be compiled (`on_invalid_rule: disable`).
    pub fn disabled_rules(&self) -> u32 {
        self.disabled_rules
    }

    /// Its crawl spaces.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// What sets an option of a space, in words: `spaces.news.options`.
    pub fn space_options_path(&self, space: SpaceIndex) -> &str {
        self.spaces
            .get(space)
            .map_or("", |space| &space.options_path)
    }

    /// Every rule, parents before children, in document order: the document's, then those of each space, then those of
    /// the global space, which decide nothing but a code.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }
}
