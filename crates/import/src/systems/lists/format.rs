//! The formats of lists, and how they are recognized.

use crawlgate_policy::internal::urls::target::canonical_host;

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFormat {
    /// A domain a line.
    Domains,
    /// `/etc/hosts`: an address, then names.
    Hosts,
    /// Heritrix's mixed form: SURTs, hosts and URLs.
    Surts,
    /// Filters of Adblock Plus and uBlock Origin.
    Adblock,
    /// MediaWiki's spam blacklist: a part of an expression a line.
    SpamBlacklist,
    /// Python expressions, a line each or as JSON.
    IgnoreSet,
}

impl ListFormat {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::Domains,
        Self::Hosts,
        Self::Surts,
        Self::Adblock,
        Self::SpamBlacklist,
        Self::IgnoreSet,
    ];

    /// Returns the name in `--var format=NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Domains => "domains",
            Self::Hosts => "hosts",
            Self::Surts => "surts",
            Self::Adblock => "adblock",
            Self::SpamBlacklist => "spam-blacklist",
            Self::IgnoreSet => "ignore-set",
        }
    }

    /// Returns the format with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// The number of lines by which a list is recognized.
const MAX_LINES: usize = 1_000;

/// Recognizes the format by the lines; `None` if it is not clear.
pub(super) fn recognize(text: &str) -> Option<ListFormat> {
    if text.trim_start().starts_with('{') {
        return text
            .contains("\"patterns\"")
            .then_some(ListFormat::IgnoreSet);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.take(MAX_LINES).collect();
    if lines.iter().any(|line| is_adblock(line)) {
        return Some(ListFormat::Adblock);
    }
    let items: Vec<&str> = lines
        .into_iter()
        .filter(|line| !line.starts_with('#'))
        .collect();
    if items.is_empty() {
        return None;
    }
    let is_ignore = |line: &&&str| line.starts_with("^http") || line.contains("_netloc}");
    if items.iter().any(|line| is_ignore(&line)) {
        return Some(ListFormat::IgnoreSet);
    }
    if items.iter().all(|line| is_hosts_line(line)) {
        return Some(ListFormat::Hosts);
    }
    // Words without a dot are any text.
    let is_item = |line: &&str| line.contains(['.', '(']);
    if !items.iter().all(is_item) {
        return None;
    }
    if items.iter().all(|line| is_domain(line)) {
        return Some(ListFormat::Domains);
    }
    let is_surt = |line: &&&str| line.contains("://(") || line.starts_with('+');
    if items.iter().any(|line| is_surt(&line)) || items.iter().all(|line| is_url(line)) {
        return Some(ListFormat::Surts);
    }
    let is_fragment = |line: &&str| line.contains("\\.") || line.contains("\\b");
    items
        .iter()
        .any(is_fragment)
        .then_some(ListFormat::SpamBlacklist)
}

fn is_adblock(line: &str) -> bool {
    line.starts_with("[Adblock")
        || line.starts_with("||")
        || line.starts_with("@@||")
        || line.contains("##")
        || line.contains("#@#")
}

fn is_hosts_line(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default();
    let mut words = line.split_whitespace();
    let is_address = words
        .next()
        .is_some_and(|word| word.parse::<std::net::IpAddr>().is_ok());
    is_address && words.next().is_some()
}

/// Returns `true` for a name that a host can have.
pub(super) fn is_host_name(name: &str) -> bool {
    name.len() <= 253 && !name.starts_with('-') && canonical_host(name).is_ok()
}

/// Returns `true` for the name of a domain, possibly with `*.` or a comment.
pub(super) fn is_domain(line: &str) -> bool {
    let name = line.split('#').next().unwrap_or_default().trim();
    let name = name
        .strip_prefix("*.")
        .or_else(|| name.strip_prefix('.'))
        .unwrap_or(name);
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    };
    name.split('.').all(is_label) && !name.is_empty()
}

fn is_url(line: &str) -> bool {
    let line = line.split_whitespace().next().unwrap_or_default();
    line.starts_with("http://") || line.starts_with("https://") || is_domain(line)
}
