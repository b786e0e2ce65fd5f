//! The files of Nutch as they are read.

use crate::input::{ImportError, SourceText};
use crate::report::{PartId, Report};

/// A plugin that filters URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterPlugin {
    Regex,
    Automaton,
    Prefix,
    Suffix,
    Domain,
    DomainDenylist,
    Fast,
}

impl FilterPlugin {
    pub const ALL: [Self; 7] = [
        Self::Regex,
        Self::Automaton,
        Self::Prefix,
        Self::Suffix,
        Self::Domain,
        Self::DomainDenylist,
        Self::Fast,
    ];

    /// The word in the plugin's name, its property and its file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Regex => "regex",
            Self::Automaton => "automaton",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
            Self::Domain => "domain",
            Self::DomainDenylist => "domaindenylist",
            Self::Fast => "fast",
        }
    }

    /// The name of its class, as in `urlfilter.order`.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Regex => "RegexURLFilter",
            Self::Automaton => "AutomatonURLFilter",
            Self::Prefix => "PrefixURLFilter",
            Self::Suffix => "SuffixURLFilter",
            Self::Domain => "DomainURLFilter",
            Self::DomainDenylist => "DomainDenylistURLFilter",
            Self::Fast => "FastURLFilter",
        }
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        format!("{}-urlfilter.txt", self.word())
    }

    /// Returns the plugin that a file belongs to, by its name or else by its lines.
    pub fn of_file(path: &str, text: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let words = [
            ("automaton", Self::Automaton),
            ("prefix", Self::Prefix),
            ("suffix", Self::Suffix),
            ("denylist", Self::DomainDenylist),
            ("blacklist", Self::DomainDenylist),
            ("domain", Self::Domain),
            ("fast", Self::Fast),
            ("regex", Self::Regex),
        ];
        let named = words.into_iter().find(|(word, _)| name.contains(word));
        named.map_or_else(|| Self::of_text(text), |(_, plugin)| plugin)
    }

    fn of_text(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
        match first {
            Some(line) if line.starts_with("Host ") || line.starts_with("Domain ") => Self::Fast,
            Some(line) if line.starts_with("http") => Self::Prefix,
            Some(_) | None => Self::Regex,
        }
    }
}

/// A file of a filter.
#[derive(Clone, Debug)]
pub struct FilterFile {
    pub plugin: FilterPlugin,
    pub file: String,
    pub lines: FilterLines,
}

#[derive(Clone, Debug)]
pub enum FilterLines {
    /// The first line that fits decides.
    Regex(Vec<RegexLine>),
    /// URLs that begin with a line are allowed.
    Prefix(Vec<TextLine>),
    Suffix(SuffixLines),
    Domains {
        denies: bool,
        lines: Vec<TextLine>,
    },
    Fast(Vec<FastBlock>),
}

/// A line of `regex-urlfilter.txt` or `automaton-urlfilter.txt`.
#[derive(Clone, Debug)]
pub struct RegexLine {
    pub part: PartId,
    pub line: u32,
    /// The comment above it.
    pub comment: Option<String>,
    /// `+`: URLs that the expression fits are allowed.
    pub allows: bool,
    /// The host or domain of its block.
    pub host: Option<String>,
    pub expression: String,
}

/// A line that is a value.
#[derive(Clone, Debug)]
pub struct TextLine {
    pub part: PartId,
    pub text: String,
}

/// `suffix-urlfilter.txt`.
#[derive(Clone, Debug, Default)]
pub struct SuffixLines {
    /// `+`: URLs with a suffix are refused, the others allowed; `-`: the reverse.
    pub allows_others: bool,
    pub ignores_case: bool,
    pub compares_path: bool,
    pub modes: Vec<PartId>,
    pub suffixes: Vec<TextLine>,
}

/// A `Host` or `Domain` of `fast-urlfilter.txt`, and what is under it.
#[derive(Clone, Debug)]
pub struct FastBlock {
    pub part: PartId,
    pub line: u32,
    pub scope: FastScope,
    pub rules: Vec<FastRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastScope {
    Host(String),
    Domain(String),
    /// `Domain .`
    All,
}

/// A line that refuses.
#[derive(Clone, Debug)]
pub struct FastRule {
    pub part: PartId,
    pub line: u32,
    pub comment: Option<String>,
    pub kind: FastRuleKind,
    pub expression: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastRuleKind {
    /// Every URL.
    All,
    Path,
    PathAndQuery,
}

/// Reads the file of a filter.
pub(super) fn read_filter(
    plugin: FilterPlugin,
    source: &SourceText,
    report: &mut Report,
) -> Result<FilterFile, ImportError> {
    let lines = match plugin {
        FilterPlugin::Regex | FilterPlugin::Automaton => {
            FilterLines::Regex(read_regex_lines(source, report)?)
        }
        FilterPlugin::Prefix => FilterLines::Prefix(read_prefixes(source, report)),
        FilterPlugin::Suffix => FilterLines::Suffix(read_suffixes(source, report)),
        FilterPlugin::Domain | FilterPlugin::DomainDenylist => FilterLines::Domains {
            denies: plugin == FilterPlugin::DomainDenylist,
            lines: read_domains(source, report),
        },
        FilterPlugin::Fast => FilterLines::Fast(read_fast(source, report)),
    };
    Ok(FilterFile {
        plugin,
        file: source.file.to_string(),
        lines,
    })
}

/// The comment lines directly above a line.
#[derive(Default)]
struct LineComments(Vec<String>);

impl LineComments {
    fn add(&mut self, line: &str) {
        let text = line.trim().trim_start_matches('#').trim();
        if !text.is_empty() {
            self.0.push(text.to_owned());
        }
    }

    /// Returns the comment of a line; one of more than three lines is about the whole file.
    fn take(&mut self) -> Option<String> {
        let lines = std::mem::take(&mut self.0);
        (1..=3).contains(&lines.len()).then(|| lines.join(" "))
    }
}

fn read_regex_lines(
    source: &SourceText,
    report: &mut Report,
) -> Result<Vec<RegexLine>, ImportError> {
    let mut lines = Vec::new();
    let mut host: Option<(String, PartId)> = None;
    let mut comments = LineComments::default();
    for (place, line) in source.lines() {
        let rest = line.get(1..).unwrap_or_default();
        match line.chars().next() {
            None => comments = LineComments::default(),
            Some('#') => comments.add(line),
            Some(' ') if line.trim().is_empty() => comments = LineComments::default(),
            Some(' ') => {
                let part = report.add(place, line);
                report.dead(part, "Nutch skips lines that begin with a space");
            }
            Some('>') => {
                let part = report.add(place, line);
                report.unrelated(part, "begins a block in which no line follows");
                host = Some((rest.trim().to_owned(), part));
                comments = LineComments::default();
            }
            Some('<') => {
                let part = report.add(place, line);
                report.unrelated(part, "ends a block");
                host = None;
            }
            Some(sign @ ('+' | '-')) => {
                let part = report.add(place.clone(), line);
                lines.push(RegexLine {
                    part,
                    line: place.line,
                    comment: comments.take(),
                    allows: sign == '+',
                    host: host.as_ref().map(|(host, _)| host.clone()),
                    expression: rest.to_owned(),
                });
                if let Some((_, block)) = &host {
                    report.unrelated(*block, "begins a block, whose host is in each of its rules");
                }
            }
            Some(_) => {
                return Err(ImportError::invalid(&place, "a rule begins with + or -"));
            }
        }
    }
    Ok(lines)
}

fn read_prefixes(source: &SourceText, report: &mut Report) -> Vec<TextLine> {
    let lines = source.lines();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with([' ', '#']));
    lines
        .map(|(place, line)| TextLine {
            part: report.add(place, line),
            text: line.to_owned(),
        })
        .collect()
}

fn read_domains(source: &SourceText, report: &mut Report) -> Vec<TextLine> {
    let lines = source.lines();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(place, line)| TextLine {
            part: report.add(place, line),
            text: line.trim().to_lowercase(),
        })
        .collect()
}

fn read_suffixes(source: &SourceText, report: &mut Report) -> SuffixLines {
    let mut found = SuffixLines::default();
    for (place, line) in source.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let part = report.add(place, line);
        if line.starts_with(['+', '-']) {
            found.allows_others = line.starts_with('+');
            found.compares_path |= line.contains('P');
            found.ignores_case |= line.contains('I');
            found.modes.push(part);
        } else {
            found.suffixes.push(TextLine {
                part,
                text: line.to_owned(),
            });
        }
    }
    found
}

fn read_fast(source: &SourceText, report: &mut Report) -> Vec<FastBlock> {
    let mut blocks: Vec<FastBlock> = Vec::new();
    let mut comments = LineComments::default();
    for (place, line) in source.lines() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            if line.trim().is_empty() {
                comments = LineComments::default();
            } else {
                comments.add(line);
            }
            continue;
        }
        let number = place.line;
        let part = report.add(place, line.trim());
        let mut words = text.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next());
        let is_host = first.starts_with("Host");
        if is_host || first.starts_with("Domain") {
            comments = LineComments::default();
            let scope = match second {
                Some(".") if !is_host => FastScope::All,
                Some(name) if is_host => FastScope::Host(name.to_owned()),
                Some(name) => FastScope::Domain(name.to_owned()),
                None => {
                    report.dead(part, "Nutch refuses a line without a name");
                    continue;
                }
            };
            blocks.push(FastBlock {
                part,
                line: number,
                scope,
                rules: Vec::new(),
            });
            continue;
        }
        let kind = match first {
            _ if is_catch_all(text) => FastRuleKind::All,
            first if first.starts_with("DenyPathQuery") => FastRuleKind::PathAndQuery,
            first if first.starts_with("DenyPath") => FastRuleKind::Path,
            _ => {
                report.dead(
                    part,
                    "Nutch skips the line: it begins with none of its words",
                );
                continue;
            }
        };
        match (blocks.last_mut(), second) {
            (Some(block), Some(expression)) => block.rules.push(FastRule {
                part,
                line: number,
                comment: comments.take(),
                kind,
                expression: expression.to_owned(),
            }),
            (None, _) => report.dead(part, "Nutch skips the line: no Host or Domain is above it"),
            (_, None) => report.dead(part, "Nutch skips the line: it has no expression"),
        }
    }
    blocks
}

/// Returns `true` for `DenyPath .*`.
fn is_catch_all(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let words = [words.next(), words.next(), words.next()];
    matches!(
        words,
        [Some("DenyPath" | "DenyPathQuery"), Some(".*" | ".?"), None]
    )
}
