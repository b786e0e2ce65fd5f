//! The options that exist: their values, defaults, deadlines and descriptions.
//!
//! Each option has one row in [`SPECS`], from which the reader, the defaults, the JSON Schema and the
//! reference are derived; a key of a map is an option. Only the keys of open maps ([`OPEN_MAPS`])
//! have no row.

mod table;

use std::time::Duration;

use super::{OptionIndex, OptionValue};
use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::policy::rule::PolicyStage;

pub use table::{MAPS, PRESETS, SPECS};

pub const DISPOSITION: OptionIndex = option_index("disposition");
pub const REJECT: OptionIndex = option_index("reject");
pub const REJECT_STATUS: OptionIndex = option_index("reject_status");
pub const RECORD: OptionIndex = option_index("record");
pub const HTML_ONLY: OptionIndex = option_index("html_only");
pub const MAX_DEPTH: OptionIndex = option_index("max_depth");
pub const DEPTH_START_PATH: &str = "depth.start";
pub const DEPTH_START: OptionIndex = option_index(DEPTH_START_PATH);
pub const MAX_BODY: OptionIndex = option_index("max_body");
pub const TUNNEL_UNDECIDED: OptionIndex = option_index("tunnel_undecided");
pub const NONCANONICAL: OptionIndex = option_index("noncanonical");
pub const NOINDEX: OptionIndex = option_index("noindex");
pub const ENFORCE_INDEX: OptionIndex = option_index("enforce_index");
pub const ENFORCE_FOLLOW: OptionIndex = option_index("enforce_follow");
pub const UNMODIFIED: OptionIndex = option_index("unmodified");
pub const DUPLICATE: OptionIndex = option_index("duplicate");
pub const MAX_BUFFER: OptionIndex = option_index("max_buffer");
pub const STRIP_PARAMS: OptionIndex = option_index("strip_params");
pub const REPLACE_PATH: &str = "replace";
pub const REPLACE: OptionIndex = option_index(REPLACE_PATH);
pub const TRAPS: OptionIndex = option_index("traps");
pub const BUDGET_URLS: OptionIndex = option_index("budget.urls");
pub const BUDGET_BYTES: OptionIndex = option_index("budget.bytes");
pub const BUDGET_HOSTS: OptionIndex = option_index("budget.hosts");
pub const BUDGET_PER: OptionIndex = option_index("budget.per");
pub const BUDGET_NEW_URLS: OptionIndex = option_index("budget.new_urls");
pub const ROBOTS_USAGE: OptionIndex = option_index("robots.usage");
pub const UPSTREAM: OptionIndex = option_index("upstream");
pub const VERIFY: OptionIndex = option_index("verify");
pub const HTTP2: OptionIndex = option_index("http2");
pub const REMOVE_HEADERS: OptionIndex = option_index("request_headers.remove");
pub const SOURCE: OptionIndex = option_index("source");
pub const PRIORITY: OptionIndex = option_index("priority");
pub const INDEX: OptionIndex = option_index("index");
pub const FOLLOW: OptionIndex = option_index("follow");

/// The word with which `enforce_index` and `enforce_follow` remove content from a document.
pub const STRIP_WORD: &str = "strip";
/// The word with which `record` follows the log.
pub const BY_LOG_WORD: &str = "by-log";
/// The word with which `depth.start` counts from the seeds of a space.
pub const SEEDS_WORD: &str = "seeds";
/// The word with which `depth.start` counts only from URLs with `Crawl-Depth: 0`.
pub const HEADER_WORD: &str = "header";
/// The word with which a check marks responses.
pub const TAG_WORD: &str = "tag";
/// The word with which a check refuses responses.
pub const REJECT_WORD: &str = "reject";
/// The word with which a check passes on only the links of a document.
pub const LINKS_WORD: &str = "links";

/// The open map whose keys end the names of `Crawl-Meta-` fields.
pub const META: &str = "meta";
/// The open map of fields that are sent to origins.
pub const SET_HEADERS: &str = "request_headers.set";

/// Returns the index of an option. Evaluated at compile time; an unknown path is a compile error.
pub const fn option_index(path: &str) -> OptionIndex {
    let mut at = 0;
    while at < SPECS.len() {
        #[allow(
            clippy::indexing_slicing,
            reason = "the index is below the length, and the function is evaluated at compile time"
        )]
        let spec = &SPECS[at];
        if bytes_equal(spec.path.as_bytes(), path.as_bytes()) {
            return OptionIndex(at as u16);
        }
        at += 1;
    }
    panic!("there is no option of this name")
}

const fn bytes_equal(a: &[u8], b: &[u8]) -> bool {
    match (a.split_first(), b.split_first()) {
        (Some((x, a)), Some((y, b))) => *x == *y && bytes_equal(a, b),
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// A map whose keys the author chooses. Each key is an option without a row, whose value is text or
/// `none`, which is the default. The keys become header names, so that their case is ignored.
#[derive(Clone, Copy, Debug)]
pub struct OpenMap {
    pub path: &'static str,
    /// The point at which its keys take effect.
    pub deadline: OptionDeadline,
    /// The maximum number of different keys in a policy.
    pub max_keys: usize,
    /// The description in the JSON Schema.
    pub description: &'static str,
}

pub const OPEN_MAPS: [OpenMap; 2] = [
    OpenMap {
        path: META,
        deadline: OptionDeadline::Until(PolicyStage::Document),
        max_keys: 64,
        description: "Names and values of Crawl-Meta headers of the response.",
    },
    OpenMap {
        path: SET_HEADERS,
        deadline: OptionDeadline::Until(PolicyStage::Destination),
        max_keys: 64,
        description: "Fields and their values, which replace those of the request.",
    },
];

/// A word in place of a map of options, or as the value of its key [`PRESET_KEY`]: a value for each
/// option of the map.
#[derive(Clone, Copy, Debug)]
pub struct MapPreset {
    /// The path of the map.
    pub map: &'static str,
    pub name: &'static str,
    /// The keys of the map, each with a word.
    pub values: &'static [(&'static str, &'static str)],
}

/// The key of a map with a preset, beside which other keys override the preset's values.
pub const PRESET_KEY: &str = "preset";

/// The descriptor of one option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The path: `politeness.delay`.
    pub path: &'static str,
    /// The values that it takes, and its default.
    pub shape: OptionShape,
    /// The point at which it takes effect.
    pub deadline: OptionDeadline,
    /// The support in this version.
    pub support: OptionSupport,
    /// The description in the JSON Schema: one sentence.
    pub description: &'static str,
}

/// The values that an option takes, and its default. `null` always means the default. A shape whose
/// name ends in `OrNone` also takes `none`, which is its default unless the shape gives another.
#[derive(Clone, Copy, Debug)]
pub enum OptionShape {
    /// A disposition. It has no default: the document must set it.
    Disposition,
    /// The intent of a rejection; `deny` by default.
    Intent,
    /// A wire status that the proxy can respond with, or `none`, which is the default.
    RejectStatus,
    /// One of these words, and the default.
    Word(&'static [&'static str], &'static str),
    /// One of these words.
    WordOrNone(&'static [&'static str]),
    /// One of `highest` to `lowest`, or -2 to 2; `normal` by default.
    Priority,
    /// `true` or `false`, and the default.
    Bool(bool),
    /// An integer of at least `min`.
    AtLeast {
        min: i64,
        default: i64,
    },
    /// An integer of at least 0.
    CountOrNone,
    /// A number in this range.
    DecimalOrNone(f64, f64),
    /// A duration, and the default in seconds.
    Duration(u64),
    DurationOrNone,
    /// A size, and the default in bytes.
    Size(u64),
    /// A size in bytes.
    SizeOrNone,
    /// A number of requests in a period: `5/s`.
    RateOrNone,
    /// Two factors, `1.0..1.5`, and the default.
    FactorsOrNone(f64, f64),
    /// A name.
    TextOrNone,
    /// A list of names; empty by default.
    Names,
    /// A list of names of uses, normalized by `robots::usage::normalize_purpose`; empty by default.
    Uses,
    /// One of these words or a list of them.
    WordsOrNone(&'static [&'static str]),
    /// A list of names, or `{names, rewrite}`; empty by default.
    StripParams,
    /// A list of `{regex, with, rewrite}`; empty by default.
    Replace,
    /// A list of `{days, hours, tz}` with politeness keys; empty by default.
    Schedule,
}

impl OptionShape {
    /// Returns the default; for a disposition, which the document must set, a placeholder.
    pub fn default_value(self) -> OptionValue {
        match self {
            Self::Disposition => OptionValue::Disposition(Disposition::Disallow),
            Self::Intent => OptionValue::Intent(Intent::Deny),
            Self::Word(_, default) => OptionValue::Word(default),
            Self::Priority => OptionValue::Word("normal"),
            Self::Bool(default) => OptionValue::Bool(default),
            Self::AtLeast { default, .. } => OptionValue::Integer(default),
            Self::Duration(seconds) => OptionValue::Duration(Duration::from_secs(seconds)),
            Self::Size(bytes) => OptionValue::Size(bytes),
            Self::FactorsOrNone(from, to) => OptionValue::Range(from, to),
            Self::Names | Self::Uses | Self::StripParams | Self::Replace | Self::Schedule => {
                OptionValue::List([].into())
            }
            Self::RejectStatus
            | Self::WordOrNone(_)
            | Self::CountOrNone
            | Self::DecimalOrNone(..)
            | Self::DurationOrNone
            | Self::SizeOrNone
            | Self::RateOrNone
            | Self::TextOrNone
            | Self::WordsOrNone(_) => OptionValue::None,
        }
    }

    /// Returns `true` if `none` is a value.
    pub fn allows_none(self) -> bool {
        matches!(self, Self::FactorsOrNone(..)) || self.default_value() == OptionValue::None
    }
}

/// The point at which an option takes effect: a rule that runs later sets it in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionDeadline {
    /// Before any connection: only scheme, host, port and crawler are known.
    Connect,
    /// At this stage or after it, before the next one.
    Until(PolicyStage),
}

/// The support for an option in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSupport {
    /// It works as documented.
    Supported,
    /// It has no effect, but these values would refuse or change something, so that a policy with
    /// one of them is rejected.
    IgnoredExcept(EssentialValues),
}

/// The values that cannot be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EssentialValues {
    AllButDefault,
    Word(&'static str),
    /// Any item of a list.
    Items,
}

impl EssentialValues {
    pub fn contains(self, value: &OptionValue, default: &OptionValue) -> bool {
        match self {
            Self::AllButDefault => value != default,
            Self::Word(word) => *value == OptionValue::Word(word),
            Self::Items => matches!(value, OptionValue::List(items) if !items.is_empty()),
        }
    }
}

/// Returns the index and the row of an option; `None` for keys of open maps and unknown paths.
pub fn find_spec(path: &str) -> Option<(OptionIndex, &'static OptionSpec)> {
    let at = SPECS.iter().position(|spec| spec.path == path)?;
    Some((OptionIndex(u16::try_from(at).ok()?), SPECS.get(at)?))
}

/// Returns the open map at this path.
pub fn find_open_map(path: &str) -> Option<&'static OpenMap> {
    OPEN_MAPS.iter().find(|map| map.path == path)
}

/// Splits the path of a key of an open map into the map and the key.
pub fn split_open_key(path: &str) -> Option<(&'static OpenMap, &str)> {
    OPEN_MAPS
        .iter()
        .find_map(|map| Some((map, strip_map_prefix(path, map.path)?)))
}

/// Returns the open maps at a path or below it.
pub fn open_maps_in(path: &str) -> impl Iterator<Item = &'static OpenMap> {
    OPEN_MAPS
        .iter()
        .filter(move |map| map.path == path || strip_map_prefix(map.path, path).is_some())
}

/// Returns the options below a map: those whose paths begin with its path and a dot.
pub fn specs_below(map: &str) -> impl Iterator<Item = &'static OptionSpec> {
    SPECS.iter().filter(move |spec| {
        spec.path
            .strip_prefix(map)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// Returns the names of the presets of a map; empty for most maps.
pub fn preset_names(map: &str) -> Vec<&'static str> {
    let presets = PRESETS.iter().filter(|preset| preset.map == map);
    presets.map(|preset| preset.name).collect()
}

/// Returns the options that a preset sets, each with its path and value.
pub fn preset_values(map: &str, name: &str) -> impl Iterator<Item = (String, OptionValue)> {
    PRESETS
        .iter()
        .filter(move |preset| preset.map == map && preset.name == name)
        .flat_map(|preset| {
            let values = preset.values.iter();
            values.map(|(key, word)| (format!("{}.{key}", preset.map), OptionValue::Word(word)))
        })
}

/// Returns the keys directly in a map, in the order of the table. The path of the outermost map is
/// empty.
pub fn keys_in(map: &str) -> Vec<&'static str> {
    let mut keys: Vec<&str> = Vec::new();
    let paths = SPECS.iter().map(|spec| spec.path);
    for path in paths.chain(OPEN_MAPS.iter().map(|open| open.path)) {
        let below = if map.is_empty() {
            Some(path)
        } else {
            strip_map_prefix(path, map)
        };
        if let Some(key) = below.and_then(|rest| rest.split('.').next())
            && !keys.contains(&key)
        {
            keys.push(key);
        }
    }
    keys
}

/// Returns the description of an option or a map of options; empty for unknown paths.
pub fn description(path: &str) -> &'static str {
    let specs = SPECS.iter().map(|spec| (spec.path, spec.description));
    let open_maps = OPEN_MAPS.iter().map(|map| (map.path, map.description));
    specs
        .chain(open_maps)
        .chain(MAPS.iter().copied())
        .find(|(known, _)| *known == path)
        .map_or("", |(_, description)| description)
}

fn strip_map_prefix<'p>(path: &'p str, map: &str) -> Option<&'p str> {
    path.strip_prefix(map)?.strip_prefix('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn descriptions_are_sentences_of_options_and_of_maps_that_exist() {
        for spec in SPECS {
            assert!(spec.description.ends_with('.'), "{}", spec.path);
            for (at, _) in spec.path.match_indices('.') {
                assert!(
                    description(spec.path.split_at(at).0).ends_with('.'),
                    "{}",
                    spec.path
                );
            }
        }
        for (map, _) in MAPS {
            assert!(specs_below(map).next().is_some(), "{map}");
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
    fn a_preset_sets_every_option_of_its_map_to_one_of_its_words() {
        for preset in PRESETS {
            let values: Vec<_> = preset_values(preset.map, preset.name).collect();
            assert_eq!(
                values.len(),
                specs_below(preset.map).count(),
                "{}",
                preset.name
            );
            for (path, value) in values {
                let (_, spec) = find_spec(&path).unwrap_or_else(|| panic!("{path}"));
                let OptionShape::Word(words, _) = spec.shape else {
                    panic!("{path}")
                };
                assert!(
                    words.iter().any(|word| value == OptionValue::Word(word)),
                    "{path}"
                );
            }
        }
    }

    #[test]
    fn keys_of_a_map_are_unique() {
        assert_eq!(keys_in("politeness.embeds"), ["delay", "concurrency"]);
        assert!(keys_in("").contains(&"politeness"));
        assert!(keys_in("").ends_with(&[META]));
        assert_eq!(keys_in("request_headers"), ["remove", "set"]);
    }
}
