//! `plugin.includes` and `plugin.excludes`: the plugins that Nutch uses.

use fancy_regex::Regex;

use super::source::FilterPlugin;

/// The plugins that Nutch uses if the property does not say.
const DEFAULT_PLUGINS: &str = "urlfilter-(regex|validator)|urlnormalizer-(pass|regex|basic)";

/// The mark of a part of an expression that stands for several texts.
const OPEN: char = '\u{0}';
/// The maximum number of texts of an expression.
const MAX_NAMES: usize = 1_000;
/// The maximum number of groups in each other.
const MAX_DEPTH: usize = 50;

/// The plugins that a source uses.
pub(super) struct UsedPlugins {
    includes: String,
    included: Option<Regex>,
    excluded: Option<Regex>,
}

impl UsedPlugins {
    /// Reads the values of the two properties.
    pub(super) fn new(includes: Option<&str>, excludes: Option<&str>) -> Self {
        let text = includes.unwrap_or(DEFAULT_PLUGINS);
        let whole = |text: &str| Regex::new(&format!("^(?:{text})$")).ok();
        Self {
            includes: text.to_owned(),
            included: whole(text),
            excluded: excludes.filter(|text| !text.is_empty()).and_then(whole),
        }
    }

    /// Returns `true` for a plugin that is used, or of which that cannot be told.
    pub(super) fn uses(&self, plugin: &str) -> bool {
        let fits = |regex: &Regex| regex.is_match(plugin);
        let is_included = self.included.as_ref();
        let is_included = is_included.is_none_or(|regex| fits(regex).unwrap_or(true));
        let is_excluded = self.excluded.as_ref();
        is_included && !is_excluded.is_some_and(|regex| fits(regex).unwrap_or(false))
    }

    /// Returns the reasons why filters are missing: names that no file is known of, and expressions that may stand
    /// for any name.
    pub(super) fn unknown_filters(&self) -> Vec<String> {
        let mut reader = PluginNames {
            rest: self.includes.chars().collect(),
            at: 0,
            depth: 0,
        };
        let Some(names) = reader.alternatives().filter(|_| reader.is_at_end()) else {
            let why = "it is not told which filters the expression names";
            return vec![why.to_owned()];
        };
        let mut found: Vec<String> = Vec::new();
        for name in names {
            let why = match name.split_once(OPEN) {
                Some((beginning, _)) if may_be_filter(beginning) => {
                    let name = name.replace(OPEN, ".*");
                    format!("`{name}` may stand for any filter")
                }
                None if self.is_unknown(&name) => {
                    format!("the filter `{name}` is not known to this importer")
                }
                Some(_) | None => continue,
            };
            if !found.contains(&why) {
                found.push(why);
            }
        }
        found
    }

    fn is_unknown(&self, name: &str) -> bool {
        // What the validator refuses is no valid URL, which nobody requests.
        let known = FilterPlugin::ALL.iter().map(|plugin| plugin.word());
        let word = name.strip_prefix("urlfilter-");
        word.is_some_and(|word| !known.chain(["validator"]).any(|known| known == word))
            && self.uses(name)
    }
}

fn may_be_filter(beginning: &str) -> bool {
    beginning.starts_with("urlfilter-") || "urlfilter-".starts_with(beginning)
}

/// A reader of the texts that an expression fits.
struct PluginNames {
    rest: Vec<char>,
    at: usize,
    depth: usize,
}

impl PluginNames {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.rest.len()
    }

    /// Returns the texts up to the end of the group; `None` if there are too many, or the syntax is not known.
    fn alternatives(&mut self) -> Option<Vec<String>> {
        let mut found = self.sequence()?;
        while self.peek() == Some('|') {
            self.at += 1;
            found.extend(self.sequence()?);
        }
        (found.len() <= MAX_NAMES).then_some(found)
    }

    fn sequence(&mut self) -> Option<Vec<String>> {
        let mut found = vec![String::new()];
        while let Some(c) = self.peek().filter(|c| !"|)".contains(*c)) {
            self.at += 1;
            let atom = self.atom(c)?;
            let atom = self.repeated(atom);
            if found.len() * atom.len() > MAX_NAMES {
                return None;
            }
            let with_atom = |text: &String| {
                let joined = atom.iter().map(|end| format!("{text}{end}"));
                joined.collect::<Vec<_>>()
            };
            found = found.iter().flat_map(with_atom).collect();
        }
        Some(found)
    }

    fn atom(&mut self, c: char) -> Option<Vec<String>> {
        let text = match c {
            '(' => return self.group(),
            '[' => {
                while self.peek()? != ']' {
                    self.at += 1;
                }
                self.at += 1;
                OPEN.to_string()
            }
            '.' => OPEN.to_string(),
            '^' | '$' => String::new(),
            '\\' => {
                let escaped = self.peek()?;
                self.at += 1;
                match escaped.is_ascii_alphanumeric() {
                    true => OPEN.to_string(),
                    false => escaped.to_string(),
                }
            }
            c => c.to_string(),
        };
        Some(vec![text])
    }

    fn group(&mut self) -> Option<Vec<String>> {
        if self.peek() == Some('?') {
            self.at += 1;
            if self.peek() != Some(':') {
                return None;
            }
            self.at += 1;
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = self.alternatives()?;
        self.depth -= 1;
        if self.peek() != Some(')') {
            return None;
        }
        self.at += 1;
        Some(found)
    }

    /// Applies a quantifier.
    fn repeated(&mut self, mut atom: Vec<String>) -> Vec<String> {
        let Some(quantifier) = self.peek().filter(|c| "?*+{".contains(*c)) else {
            return atom;
        };
        self.at += 1;
        if quantifier == '{' {
            while self.peek().is_some_and(|c| c != '}') {
                self.at += 1;
            }
            self.at += 1;
        }
        if self.peek().is_some_and(|c| "?+".contains(c)) {
            self.at += 1;
        }
        if quantifier != '?' {
            for text in &mut atom {
                if !text.ends_with(OPEN) {
                    text.push(OPEN);
                }
            }
        }
        if quantifier != '+' {
            atom.push(String::new());
        }
        atom
    }
}
