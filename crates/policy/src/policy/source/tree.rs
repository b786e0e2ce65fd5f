//! The types of the source tree.

use std::sync::Arc;

use crate::diagnostics::problem::SourceLocation;
use crate::model::intent::Intent;
use crate::model::rule_id::{RuleId, Slug};
use crate::policy::cases::Case;
use crate::policy::field::Field;
use crate::policy::list::ListKind;
use crate::policy::options::OptionValue;
use crate::policy::pattern::{CaseSensitivity as LetterCase, TextForm};
use crate::policy::rule::{FilterKind, PolicyStage};

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// Where.
    pub place: SourceLocation,
    /// What.
    pub value: T,
}

/// Text and where it is written.
pub type LocatedText = Located<Box<str>>;

/// A policy as it was written: one document, or the files of a directory joined.
#[derive(Clone, Debug)]
pub struct SourcePolicy {
    /// The policy's name.
    pub name: Slug,
    /// What becomes of a rule whose own condition cannot be compiled.
    pub on_invalid_rule: OnInvalidRule,
    /// Where the document's options stand, or would stand.
    pub options_place: SourceLocation,
    /// The document's options.
    pub options: Vec<SourceOption>,
    /// Named sets.
    pub lists: Vec<SourceList>,
    /// The rules that apply to every crawler.
    pub rules: Vec<SourceRule>,
    /// The crawl spaces.
    pub spaces: Vec<SourceSpace>,
    /// `global_space`, where its key stands and what it says.
    pub global: Option<Located<SourceGlobalSpace>>,
    /// Tests that travel with the policy.
    pub cases: Vec<Case>,
    /// The first 8 hex digits of SHA-256 over the policy's files and lists.
    pub revision: Arc<str>,
}

/// `on_invalid_rule`: what becomes of a rule whose own condition cannot be compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalidRule {
    /// The whole policy is refused.
    #[default]
    Refuse,
    /// The rule and all in it is disabled.
    Disable,
}

/// One assignment of an option.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceOption {
    /// Where its key stands.
    pub place: SourceLocation,
    /// Its path: `politeness.delay`, `meta.team`.
    pub path: Box<str>,
    /// Its value, of the right type and in range; `null` has become the default.
    pub value: OptionValue,
}

/// A named set.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceList {
    /// Its name.
    pub name: LocatedText,
    /// How it is compared; none if that could not be read.
    pub kind: Option<ListKind>,
    /// Its items as written.
    pub items: SourceListItems,
}

/// The items of a list before they are brought to canonical form.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceListItems {
    /// `items: […]`, each with its place.
    Inline(Vec<LocatedText>),
    /// The text of a list file, one item a line. The place of an item is worked out only for one that is wrong.
    File {
        /// The file's name as it is shown.
        file: Arc<str>,
        /// What is in it.
        text: Arc<str>,
    },
}

/// A crawl space.
#[derive(Clone, Debug)]
pub struct SourceSpace {
    /// Its name.
    pub name: Located<Slug>,
    /// The crawlers in it; none: all that are in no other.
    pub crawlers: Vec<LocatedText>,
    /// Its options.
    pub options: Vec<SourceOption>,
    /// Its rules.
    pub rules: Vec<SourceRule>,
}

/// `global_space`.
#[derive(Clone, Debug)]
pub enum SourceGlobalSpace {
    /// `union`.
    Union,
    /// Its rules, perhaps none.
    Rules(Vec<SourceRule>),
}

/// A rule.
#[derive(Clone, Debug)]
pub struct SourceRule {
    /// Where it begins.
    pub place: SourceLocation,
    /// Its own id.
    pub id: Option<Located<RuleId>>,
    /// Its place in the policy, from 1: `rules.3.1`.
    pub position: RuleId,
    /// The text shown by explain and in the reason.
    pub about: Option<Box<str>>,
    /// `enabled`.
    pub enabled: bool,
    /// `mode: shadow`, and where it stands.
    pub shadow: Option<SourceLocation>,
    /// `stage`.
    pub stage: Option<Located<PolicyStage>>,
    /// What it is.
    pub body: SourceRuleBody,
}

impl SourceRule {
    /// Its id, or its position.
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

/// `when`, `unless`, or neither.
#[derive(Clone, Debug)]
pub struct SourceGroup {
    /// When it applies.
    pub guard: SourceGuard,
    /// `then`.
    pub then: Option<Located<ThenAction>>,
    /// `set`.
    pub set: Vec<SourceOption>,
    /// `stop`.
    pub stop: bool,
    /// `match: first`, and where it stands.
    pub match_first: Option<SourceLocation>,
    /// The rules in it.
    pub rules: Vec<SourceRule>,
}

/// When a group applies.
#[derive(Clone, Debug)]
pub enum SourceGuard {
    /// Always.
    Always,
    /// If the condition holds.
    When(SourceCondition),
    /// If it does not.
    Unless(SourceCondition),
}

/// `forbid` or `require`.
#[derive(Clone, Debug)]
pub struct SourceFilter {
    /// Which of the two.
    pub sense: FilterKind,
    /// Its condition.
    pub condition: SourceCondition,
    /// `log`.
    pub log: bool,
    /// `reject`.
    pub reject: Option<Intent>,
    /// `reject_status`.
    pub reject_status: Option<u16>,
    /// `as`.
    pub soft_error: Option<Located<u16>>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceCondition {
    /// `always: true`.
    Always,
    /// `all`, and the keys of one mapping.
    All(Vec<SourceCondition>),
    /// `any`.
    Any(Vec<SourceCondition>),
    /// `not`.
    Not(Box<SourceCondition>),
    /// A test of a field.
    Atom(SourceAtom),
}

impl SourceCondition {
    /// Calls a function for every atom.
    pub fn for_each_atom<'a>(&'a self, visit: &mut dyn FnMut(&'a SourceAtom)) {
        match self {
            Self::Always => {}
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|p| p.for_each_atom(visit))
            }
            Self::Not(part) => part.for_each_atom(visit),
            Self::Atom(atom) => visit(atom),
        }
    }
}

/// One test of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceAtom {
    /// Where its field stands.
    pub place: SourceLocation,
    /// The word by which the field or shortcut is named: `host`, `domain`.
    pub word: Box<str>,
    /// The field; none for `in: LIST`, which takes the one of the list's kind.
    pub field: Option<Field>,
    /// The test.
    pub test: SourceTest,
    /// `case`.
    pub case: LetterCase,
    /// `norm`.
    pub form: TextForm,
}

/// What an atom asks. Several values: any of them.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceTest {
    /// Of text.
    Text(TextTestKind, Vec<LocatedText>),
    /// How many of something: a number or a range.
    Count(CountTestKind, Vec<Located<SourceRange>>),
    /// Of a number.
    Number(Vec<Located<SourceRange>>),
    /// Of the address: networks.
    Networks(Vec<LocatedText>),
    /// Membership in one of these lists.
    In(Vec<LocatedText>),
}

/// The kinds of test on text, with the shortcuts that are kinds of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextTestKind {
    /// The whole text.
    Exact,
    /// Its beginning.
    Prefix,
    /// Its end.
    Suffix,
    /// Any part of it.
    Contains,
    /// A regular expression.
    Regex,
    /// `*` for any run.
    Glob,
    /// The host or any below it.
    Domain,
    /// The end of the path's name.
    Ext,
    /// A directory.
    Under,
    /// A site: the URL begins with it.
    Site,
    /// The beginning of the SURT form.
    Surt,
}

impl TextTestKind {
    /// The word in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
            Self::Contains => "contains",
            Self::Regex => "regex",
            Self::Glob => "glob",
            Self::Domain => "domain",
            Self::Ext => "ext",
            Self::Under => "under",
            Self::Site => "site",
            Self::Surt => "surt",
        }
    }
}

/// What can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountTestKind {
    /// Characters of the field.
    Length,
    /// Segments of the path.
    Segments,
    /// The commonest segment of the path.
    Repeats,
    /// Query parameters.
    Params,
}

/// A number or a range of numbers as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceRange {
    /// `404`, `5xx`, `"[30:]"`, `10MiB`.
    Literal(Box<str>),
    /// `{min, max}`, either of them in the same way.
    Between(Option<LocatedText>, Option<LocatedText>),
}

/// The value of `then`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThenAction {
    /// `allow`.
    Allow,
    /// `disallow`.
    Disallow,
    /// `disallow-log`.
    DisallowLog,
    /// `download`, `index-and-follow`.
    Download,
    /// `exclude`.
    Exclude,
    /// `ignore`.
    Ignore,
    /// `exclude-but-scan`.
    ExcludeButScan,
    /// `follow-only`.
    FollowOnly,
    /// `download-no-scan`, `index-only`.
    DownloadNoScan,
    /// `index`.
    Index,
    /// `follow`.
    Follow,
    /// `no-index`.
    NoIndex,
    /// `no-follow`.
    NoFollow,
}

impl ThenAction {
    /// Every word with its meaning, in the order of the documentation.
    pub const WORDS: [(&'static str, Self); 15] = [
        ("allow", Self::Allow),
        ("disallow", Self::Disallow),
        ("disallow-log", Self::DisallowLog),
        ("download", Self::Download),
        ("index-and-follow", Self::Download),
        ("exclude", Self::Exclude),
        ("ignore", Self::Ignore),
        ("exclude-but-scan", Self::ExcludeButScan),
        ("follow-only", Self::FollowOnly),
        ("download-no-scan", Self::DownloadNoScan),
        ("index-only", Self::DownloadNoScan),
        ("index", Self::Index),
        ("follow", Self::Follow),
        ("no-index", Self::NoIndex),
        ("no-follow", Self::NoFollow),
    ];
}
