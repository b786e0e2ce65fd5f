//! The types of the source tree.

use std::sync::Arc;

use crate::diagnostics::problem::SourceLocation;
use crate::model::intent::Intent;
use crate::model::rule_id::{RuleId, Slug};
use crate::model::words::words;
use crate::policy::cases::{Case, CaseAssertion};
use crate::policy::condition::Condition;
use crate::policy::field::Field;
use crate::policy::list::ListKind;
use crate::policy::options::OptionValue;
use crate::policy::pattern::{CaseSensitivity as LetterCase, CountTestKind, TextForm};
use crate::policy::rule::{FilterKind, PolicyStage};

use super::rule_texts::SourceRuleTexts;

/// A value and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    pub place: SourceLocation,
    pub value: T,
}

/// Text and its location.
pub type LocatedText = Located<Box<str>>;

/// A policy as it was written: one document, or the joined files of a directory.
#[derive(Clone, Debug)]
pub struct SourcePolicy {
    pub name: Slug,
    /// The handling of rules with conditions that cannot be compiled.
    pub on_invalid_rule: OnInvalidRule,
    /// The location of the document's `options`, or of the place where they belong.
    pub options_place: SourceLocation,
    pub options: Vec<SourceOption>,
    pub lists: Vec<SourceList>,
    /// The rules that apply to every crawler.
    pub rules: Vec<SourceRule>,
    pub spaces: Vec<SourceSpace>,
    /// The entries of `hosts`.
    pub hosts: Vec<SourceHostPace>,
    /// `global_space`, with the location of its key.
    pub global: Option<Located<SourceGlobalSpace>>,
    /// Tests that are part of the policy.
    pub cases: Vec<Case>,
    /// Assertions about sets of URLs, which are among the cases.
    pub assertions: Vec<CaseAssertion>,
    /// The first 8 hex digits of SHA-256 over the policy's files and lists.
    pub revision: Arc<str>,
    /// The texts of rules that are read one after the other.
    pub(crate) rule_texts: Vec<SourceRuleTexts>,
}

/// The value of `on_invalid_rule`: the handling of a rule whose own condition cannot be compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalidRule {
    /// Refuse the whole policy.
    #[default]
    Refuse,
    /// Disable the rule and all rules in it.
    Disable,
}

/// An assignment of an option.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceOption {
    /// The location of its key.
    pub place: SourceLocation,
    /// The path: `politeness.delay`, `meta.team`.
    pub path: Box<str>,
    /// The value, of the right type and in range; `null` has been replaced by the default.
    pub value: OptionValue,
}

/// A named list.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceList {
    pub name: LocatedText,
    /// `None` if the kind could not be read.
    pub kind: Option<ListKind>,
    /// The items as written.
    pub items: SourceListItems,
}

/// The items of a list before they are brought to canonical form.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceListItems {
    /// `items: […]`, each with its location.
    Inline(Vec<LocatedText>),
    /// The text of a list file, one item per line. Locations are computed for invalid items only.
    File {
        /// The file name as displayed to the user.
        file: Arc<str>,
        text: Arc<str>,
    },
}

/// A crawl space.
#[derive(Clone, Debug)]
pub struct SourceSpace {
    pub name: Located<Slug>,
    /// The crawlers in it. Empty for the space of all crawlers that are in no other space.
    pub crawlers: Vec<LocatedText>,
    /// The URLs that they start from; the location of the name is that of the file's.
    pub seeds: Option<SourceList>,
    pub options: Vec<SourceOption>,
    pub rules: Vec<SourceRule>,
}

/// An entry of `hosts`: hosts and the options of their pace.
#[derive(Clone, Debug)]
pub struct SourceHostPace {
    pub place: SourceLocation,
    pub hosts: Vec<SourceHostName>,
    pub options: Vec<SourceOption>,
}

/// A name in an entry of `hosts`.
#[derive(Clone, Debug)]
pub enum SourceHostName {
    Host(LocatedText),
    Domain(LocatedText),
    /// The name of a list of hosts or domains.
    List(LocatedText),
}

/// The value of `global_space`.
#[derive(Clone, Debug)]
pub enum SourceGlobalSpace {
    Union,
    /// Its rules, which may be empty.
    Rules(Vec<SourceRule>),
}

#[derive(Clone, Debug)]
pub struct SourceRule {
    pub place: SourceLocation,
    /// The id that the policy gives it.
    pub id: Option<Located<RuleId>>,
    /// The position in the policy, from 1: `rules.3.1`.
    pub position: RuleId,
    /// The text of `about`, shown by `explain` and in refusals.
    pub about: Option<Box<str>>,
    pub enabled: bool,
    /// The location of `mode: shadow`.
    pub shadow: Option<SourceLocation>,
    pub stage: Option<Located<PolicyStage>>,
    pub body: SourceRuleBody,
}

impl SourceRule {
    /// Returns the id, or the position of a rule without one.
    pub fn name(&self) -> &RuleId {
        self.id.as_ref().map_or(&self.position, |id| &id.value)
    }
}

/// The two kinds of rule.
#[derive(Clone, Debug)]
pub enum SourceRuleBody {
    /// Assigns options and contains rules.
    Group(SourceGroup),
    /// Filters URLs.
    Filter(SourceFilter),
}

/// A rule with `when`, `unless`, or neither.
#[derive(Clone, Debug)]
pub struct SourceGroup {
    pub guard: SourceGuard,
    pub then: Option<Located<ThenAction>>,
    pub set: Vec<SourceOption>,
    pub stop: bool,
    /// The location of `match: first`.
    pub match_first: Option<SourceLocation>,
    pub rules: Vec<SourceRule>,
}

/// The condition under which a group applies.
#[derive(Clone, Debug)]
pub enum SourceGuard {
    Always,
    /// Applies if the condition is true.
    When(SourceCondition),
    /// Applies if the condition is false.
    Unless(SourceCondition),
}

/// A rule with `forbid` or `require`.
#[derive(Clone, Debug)]
pub struct SourceFilter {
    pub sense: FilterKind,
    pub condition: SourceCondition,
    pub log: bool,
    pub reject: Option<Intent>,
    pub reject_status: Option<u16>,
    /// `as`.
    pub soft_error: Option<Located<u16>>,
}

#[derive(Clone, Debug)]
pub enum SourceCondition {
    /// `always: true`.
    Always,
    /// `all`, or several keys in one mapping.
    All(Vec<SourceCondition>),
    Any(Vec<SourceCondition>),
    Not(Box<SourceCondition>),
    Atom(SourceAtom),
    /// A whole condition that the policy before has compiled from the same text. It has no lists and
    /// no crawlers, and nothing to warn of.
    TakenOver(Condition),
}

impl SourceCondition {
    /// Calls a function for every test.
    pub fn for_each_atom<'a>(&'a self, visit: &mut dyn FnMut(&'a SourceAtom)) {
        match self {
            Self::Always | Self::TakenOver(_) => {}
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|p| p.for_each_atom(visit))
            }
            Self::Not(part) => part.for_each_atom(visit),
            Self::Atom(atom) => visit(atom),
        }
    }
}

/// A test of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceAtom {
    /// The location of its field.
    pub place: SourceLocation,
    /// The keyword by which the policy names the field or shortcut: `host`, `domain`.
    pub word: Arc<str>,
    /// `None` for `in: LIST`, which tests the field that the list's kind implies.
    pub field: Option<Field>,
    pub test: SourceTest,
    pub case: LetterCase,
    /// `norm`.
    pub form: TextForm,
}

/// The kind and values of a test. A test with several values holds if any of them does.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceTest {
    Text(TextTestKind, Vec<LocatedText>),
    /// A count of something, compared with numbers or ranges.
    Count(CountTestKind, Vec<Located<SourceRange>>),
    Number(Vec<Located<SourceRange>>),
    /// An address, compared with networks.
    Networks(Vec<LocatedText>),
    /// Membership in one of these lists.
    In(Vec<LocatedText>),
}

words! {
    /// The kinds of test on text, including the shortcuts.
    pub enum TextTestKind {
        Exact = "exact",
        Prefix = "prefix",
        Suffix = "suffix",
        Contains = "contains",
        Regex = "regex",
        /// A pattern in which `*` matches any run of characters.
        Glob = "glob",
        /// The host is the value, or below it.
        Domain = "domain",
        /// The extension at the end of the path.
        Ext = "ext",
        /// The path is a directory or below it.
        Under = "under",
        /// The URL begins with a site.
        Site = "site",
        /// The SURT form of the URL begins with the value.
        Surt = "surt",
    }
}

/// A number or a range of numbers as written.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceRange {
    /// `404`, `5xx`, `"[30:]"`, `10MiB`.
    Literal(Box<str>),
    /// `{min, max}`, each end written like a literal.
    Between(Option<LocatedText>, Option<LocatedText>),
}

/// The value of `then`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThenAction {
    Allow,
    Disallow,
    DisallowLog,
    /// `download`, `index-and-follow`.
    Download,
    Exclude,
    Ignore,
    ExcludeButScan,
    FollowOnly,
    /// `download-no-scan`, `index-only`.
    DownloadNoScan,
    Index,
    Follow,
    NoIndex,
    NoFollow,
}

impl ThenAction {
    /// Every word with its meaning and a description, in the order of the documentation.
    pub const WORDS: [(&'static str, Self, &'static str); 15] = [
        ("allow", Self::Allow, "Allowed."),
        ("disallow", Self::Disallow, "Refused, not recorded."),
        ("disallow-log", Self::DisallowLog, "Refused, and recorded."),
        ("download", Self::Download, DOWNLOAD),
        ("index-and-follow", Self::Download, DOWNLOAD),
        ("exclude", Self::Exclude, "The same as disallow-log."),
        ("ignore", Self::Ignore, "Refused, no index, no follow."),
        (
            "exclude-but-scan",
            Self::ExcludeButScan,
            "Allowed, no index, follow, HTML only.",
        ),
        (
            "follow-only",
            Self::FollowOnly,
            "Allowed, no index, follow, any type.",
        ),
        ("download-no-scan", Self::DownloadNoScan, INDEX_ONLY),
        ("index-only", Self::DownloadNoScan, INDEX_ONLY),
        ("index", Self::Index, "Allowed, index."),
        ("follow", Self::Follow, "Allowed, follow."),
        ("no-index", Self::NoIndex, "No index; nothing else."),
        ("no-follow", Self::NoFollow, "No follow; nothing else."),
    ];
}

const DOWNLOAD: &str = "Allowed, index, follow, any type.";
const INDEX_ONLY: &str = "Allowed, index, no follow, any type.";
