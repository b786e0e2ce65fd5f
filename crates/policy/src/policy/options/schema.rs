//! Which options exist, what values they take, their defaults, and what this version does with them.
//!
//! One row an option; a key of a map is an option of its own. The only keys without a row are those of the open maps
//! ([`OPEN_MAPS`]).

mod table;

use std::time::Duration;

use super::{OptionSlot, OptionValue};
use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::policy::rule::PolicyStage;

pub use table::SPECS;

/// `disposition`.
pub const DISPOSITION: OptionSlot = OptionSlot(0);
/// `reject`.
pub const REJECT: OptionSlot = OptionSlot(1);
/// `reject_status`.
pub const REJECT_STATUS: OptionSlot = OptionSlot(2);
/// `record`.
pub const RECORD: OptionSlot = OptionSlot(3);
/// `html_only`.
pub const HTML_ONLY: OptionSlot = OptionSlot(4);
/// `max_depth`.
pub const MAX_DEPTH: OptionSlot = OptionSlot(5);
/// `max_body`.
pub const MAX_BODY: OptionSlot = OptionSlot(6);
/// `tunnel_undecided`.
pub const TUNNEL_UNDECIDED: OptionSlot = OptionSlot(7);
/// `noncanonical`.
pub const NONCANONICAL: OptionSlot = slot("noncanonical");
/// `noindex`.
pub const NOINDEX: OptionSlot = slot("noindex");
/// `enforce_index`.
pub const ENFORCE_INDEX: OptionSlot = slot("enforce_index");
/// `enforce_follow`.
pub const ENFORCE_FOLLOW: OptionSlot = slot("enforce_follow");
/// `unmodified`.
pub const UNMODIFIED: OptionSlot = slot("unmodified");
/// `duplicate`.
pub const DUPLICATE: OptionSlot = slot("duplicate");
/// `max_buffer`.
pub const MAX_BUFFER: OptionSlot = slot("max_buffer");
/// The word with which `enforce_index` and `enforce_follow` take out of a document what it is not to have.
pub const STRIP_WORD: &str = "strip";
/// `strip_params`.
pub const STRIP_PARAMS: OptionSlot = slot("strip_params");
/// The path of `replace`.
pub const REPLACE_PATH: &str = "replace";
/// `replace`.
pub const REPLACE: OptionSlot = slot(REPLACE_PATH);
/// `traps`.
pub const TRAPS: OptionSlot = slot("traps");
/// `budget.urls`.
pub const BUDGET_URLS: OptionSlot = slot("budget.urls");
/// `budget.bytes`.
pub const BUDGET_BYTES: OptionSlot = slot("budget.bytes");
/// `budget.hosts`.
pub const BUDGET_HOSTS: OptionSlot = slot("budget.hosts");
/// `budget.per`.
pub const BUDGET_PER: OptionSlot = slot("budget.per");
/// `budget.new_urls`.
pub const BUDGET_NEW_URLS: OptionSlot = slot("budget.new_urls");
/// The word with which an option that checks answers only says what it finds.
pub const TAG_WORD: &str = "tag";
/// The word with which an option that checks answers refuses them.
pub const REJECT_WORD: &str = "reject";
/// `robots.usage`.
pub const ROBOTS_USAGE: OptionSlot = slot("robots.usage");
/// `verify`.
pub const VERIFY: OptionSlot = slot("verify");

/// The place of an option that has no place of its own above, found while this is compiled.
pub const fn slot(path: &str) -> OptionSlot {
    let mut at = 0;
    while at < SPECS.len() {
        #[allow(
            clippy::indexing_slicing,
            reason = "within its bounds, and known when this is compiled"
        )]
        let spec = &SPECS[at];
        if bytes_equal(spec.path.as_bytes(), path.as_bytes()) {
            return OptionSlot(at as u16);
        }
        at += 1;
    }
    panic!("there is unknown option")
}

const fn bytes_equal(a: &[u8], b: &[u8]) -> bool {
    match (a.split_first(), b.split_first()) {
        (Some((x, a)), Some((y, b))) => *x == *y && bytes_equal(a, b),
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// The open map whose keys end the names of `Crawl-Meta-` fields.
pub const META: &str = "meta";
/// The open map of fields that origins get.
pub const SET_HEADERS: &str = "request_headers.set";
/// `request_headers.remove`.
pub const REMOVE_HEADERS: OptionSlot = slot("request_headers.remove");
/// `source`.
pub const SOURCE: OptionSlot = slot("source");
/// `priority`.
pub const PRIORITY: OptionSlot = slot("priority");
/// `index`.
pub const INDEX: OptionSlot = slot("index");
/// `follow`.
pub const FOLLOW: OptionSlot = slot("follow");

/// A map whose keys are the writer's own: each is an option without a row, text or `none`, none by default. As they are
/// names of fields, or parts of such, capital letters do not tell them apart.
#[derive(Clone, Copy, Debug)]
pub struct OpenMap {
    /// Its path.
    pub path: &'static str,
    /// When its keys act.
    pub deadline: OptionDeadline,
    /// How many different keys a policy may have.
    pub max_keys: usize,
}

/// The open maps.
pub const OPEN_MAPS: [OpenMap; 2] = [
    OpenMap {
        path: META,
        deadline: OptionDeadline::Until(PolicyStage::Response),
        max_keys: 64,
    },
    OpenMap {
        path: SET_HEADERS,
        deadline: OptionDeadline::Until(PolicyStage::Destination),
        max_keys: 64,
    },
];

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its path: `politeness.delay`.
    pub path: &'static str,
    /// Which values it takes.
    pub shape: OptionShape,
    /// Its value where nobody assigns one.
    pub default: OptionDefault,
    /// When it acts.
    pub deadline: OptionDeadline,
    /// What this version does with it.
    pub support: OptionSupport,
}

/// Which values an option takes; `null` stands for the default in all of them.
#[derive(Clone, Copy, Debug)]
pub enum OptionShape {
    /// A disposition.
    Disposition,
    /// An intent of a rejection.
    Intent,
    /// A wire status that the proxy can answer with, or `none`.
    RejectStatus,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or `none`.
    WordOrNone(&'static [&'static str]),
    /// One of `highest` to `lowest`, or -2 to 2.
    Priority,
    /// True or false.
    Bool,
    /// A whole number from here on.
    AtLeast(i64),
    /// A whole number from 0, or `none`.
    CountOrNone,
    /// A number in this range, or `none`.
    DecimalOrNone(f64, f64),
    /// A duration.
    Duration,
    /// A duration, or `none`.
    DurationOrNone,
    /// A size in bytes.
    Size,
    /// A size in bytes, or `none`.
    SizeOrNone,
    /// So many in so long, or `none`.
    RateOrNone,
    /// Two factors, `1.0..1.5`, or `none`.
    FactorsOrNone,
    /// A name, or `none`.
    TextOrNone,
    /// A list of names.
    Names,
    /// A list of names of uses, as `robots::usage::purpose` writes them.
    Uses,
    /// One of these words or a list of them, or `none`.
    WordsOrNone(&'static [&'static str]),
    /// A list of names, or `{names, rewrite}`.
    StripParams,
    /// A list of `{regex, with, rewrite}`.
    Replace,
    /// A list of `{days, hours, tz}` and politeness keys.
    Schedule,
}

/// A default, as a constant.
#[derive(Clone, Copy, Debug)]
pub enum OptionDefault {
    /// `none`.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A word.
    Word(&'static str),
    /// So many seconds.
    Seconds(u64),
    /// So many bytes.
    Bytes(u64),
    /// Two factors.
    Factors(f64, f64),
    /// An empty list.
    EmptyList,
    /// No disposition is implied: the document must give one.
    Required,
    /// The intent `deny`.
    Deny,
}

impl OptionDefault {
    /// The default as a value.
    pub fn to_value(self) -> OptionValue {
        match self {
            Self::None => OptionValue::None,
            Self::Bool(value) => OptionValue::Bool(value),
            Self::Integer(value) => OptionValue::Integer(value),
            Self::Word(word) => OptionValue::Word(word),
            Self::Seconds(seconds) => OptionValue::Duration(Duration::from_secs(seconds)),
            Self::Bytes(bytes) => OptionValue::Size(bytes),
            Self::Factors(from, to) => OptionValue::Range(from, to),
            Self::EmptyList => OptionValue::List([].into()),
            Self::Required => OptionValue::Disposition(Disposition::Disallow),
            Self::Deny => OptionValue::Intent(Intent::Deny),
        }
    }
}

/// When an option acts: a rule that runs later sets it in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionDeadline {
    /// Before a connection of any kind: only scheme, host, port and crawler are known.
    Connect,
    /// At this stage or soon after it, before the next one.
    Until(PolicyStage),
}

/// What this version does with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSupport {
    /// What the documentation says.
    Supported,
    /// Nothing yet, and that lets nothing through: a warning.
    Ignored,
    /// As [`Self::Ignored`], but these values refuse or change something, so that a policy that counts on them
    /// cannot be accepted.
    IgnoredExcept(EssentialValues),
}

/// The values that a policy may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EssentialValues {
    /// All but the default.
    AllButDefault,
    /// This word.
    Word(&'static str),
    /// Any item of a list.
    Items,
}

impl EssentialValues {
    /// Whether the value is one of them.
    pub fn contains(self, value: &OptionValue, default: &OptionValue) -> bool {
        match self {
            Self::AllButDefault => value != default,
            Self::Word(word) => *value == OptionValue::Word(word),
            Self::Items => matches!(value, OptionValue::List(items) if !items.is_empty()),
        }
    }
}

/// A value of an option with a closed set of words.
pub fn as_word(value: &OptionValue) -> Option<&'static str> {
    if let OptionValue::Word(word) = value {
        Some(word)
    } else {
        None
    }
}

/// The place and the row of an option; none for keys of the open map and for paths that do not exist.
pub fn find_spec(path: &str) -> Option<(OptionSlot, &'static OptionSpec)> {
    let at = SPECS.iter().position(|spec| spec.path == path)?;
    Some((OptionSlot(u16::try_from(at).ok()?), SPECS.get(at)?))
}

/// The open map at this path.
pub fn find_open_map(path: &str) -> Option<&'static OpenMap> {
    OPEN_MAPS.iter().find(|map| map.path == path)
}

/// The open map that the path is a key of, and the key.
pub fn split_open_key(path: &str) -> Option<(&'static OpenMap, &str)> {
    OPEN_MAPS
        .iter()
        .find_map(|map| Some((map, strip_map_prefix(path, map.path)?)))
}

/// The open maps at a path or below it.
pub fn open_maps_in(path: &str) -> impl Iterator<Item = &'static OpenMap> {
    OPEN_MAPS
        .iter()
        .filter(move |map| map.path == path || strip_map_prefix(map.path, path).is_some())
}

/// The options below a map: those whose paths begin with its path and a dot.
pub fn specs_below(map: &str) -> impl Iterator<Item = &'static OptionSpec> {
    SPECS.iter().filter(move |spec| {
        spec.path
            .strip_prefix(map)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// The keys directly in a map, `""` for the outermost one, in the order of the table.
pub fn keys_in(map: &str) -> Vec<&'static str> {
    let mut keys: Vec<&str> = Vec::new();
    for spec in SPECS {
        let rest = if map.is_empty() {
            Some(spec.path)
        } else {
            strip_map_prefix(spec.path, map)
        };
        let key = rest.and_then(|rest| rest.split('.').next());
        if let Some(key) = key.filter(|key| !keys.contains(key)) {
            keys.push(key);
        }
    }
    let open = OPEN_MAPS.iter().filter_map(|open| {
        if map.is_empty() {
            Some(open.path)
        } else {
            strip_map_prefix(open.path, map)
        }
    });
    for key in open.filter_map(|rest| rest.split('.').next()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn strip_map_prefix<'p>(path: &'p str, map: &str) -> Option<&'p str> {
    path.strip_prefix(map)?.strip_prefix('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn slots_are_places_in_the_table() {
        for (slot, path) in [
            (DISPOSITION, "disposition"),
            (REJECT, "reject"),
            (REJECT_STATUS, "reject_status"),
            (RECORD, "record"),
            (HTML_ONLY, "html_only"),
            (MAX_DEPTH, "max_depth"),
            (MAX_BODY, "max_body"),
            (TUNNEL_UNDECIDED, "tunnel_undecided"),
        ] {
            assert_eq!(find_spec(path).map(|(slot, _)| slot), Some(slot), "{path}");
        }
    }

    #[test]
    fn paths_are_unique_and_no_option_is_also_a_map() {
        let paths: BTreeSet<_> = SPECS.iter().map(|s| s.path).collect();
        assert_eq!(paths.len(), SPECS.len());
        for spec in SPECS {
            assert_eq!(specs_below(spec.path).count(), 0, "{}", spec.path);
        }
    }

    #[test]
    fn keys_of_a_map_stand_once() {
        assert_eq!(keys_in("politeness.embeds"), ["delay", "concurrency"]);
        assert!(keys_in("").contains(&"politeness"));
        assert!(keys_in("").ends_with(&[META]));
        assert_eq!(keys_in("request_headers"), ["remove", "set"]);
    }
}
