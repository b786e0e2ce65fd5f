//! SURT prefixes as Heritrix reads them, and their conditions.

use crawlgate_policy::internal::urls::target::canonical_host;

use crate::draft::ConditionDraft;

/// A line of a SURT source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurtLine<'a> {
    /// A formal prefix, `http://(org,example,`, in lower case when it is compared.
    Formal(&'a str),
    /// A host or a URL, which implies a prefix.
    Plain(&'a str),
}

/// A prefix in the parts that a condition needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SurtCondition {
    /// A beginning of the host, with all that is below: the value of `surt`.
    Host(String),
    /// A host with the beginning of a path, which is compared without regard to case.
    Path(String),
}

impl<'a> SurtLine<'a> {
    /// Reads a line of Heritrix's mixed form, or what follows `+` in a seed list. `None` for a comment.
    pub fn read(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (text, is_directive) = match line.strip_prefix('+') {
            Some(text) => (text, true),
            None => (line, false),
        };
        // What follows a word is a comment.
        let text = text.split_whitespace().next().unwrap_or_default();
        if is_directive && text.find('(').is_some_and(|at| at > 0) {
            Some(Self::Formal(text))
        } else {
            Some(Self::Plain(text))
        }
    }
}

/// Returns the condition of a prefix, or the reason why no URL has it.
pub(crate) fn condition_of(line: SurtLine<'_>) -> Result<SurtCondition, String> {
    match line {
        SurtLine::Formal(text) => formal_condition(&text.to_lowercase()),
        SurtLine::Plain(text) => plain_condition(&text.to_lowercase()),
    }
}

fn formal_condition(text: &str) -> Result<SurtCondition, String> {
    let rest = text
        .strip_prefix("http://(")
        .ok_or("no URL of http or https has this prefix: in SURTs of Heritrix both are http://(")?;
    let (labels, path) = rest.split_once(')').unwrap_or((rest, ""));
    check_labels(labels, rest.contains(')'))?;
    if !rest.contains(')') {
        return Ok(SurtCondition::Host(rest.to_owned()));
    }
    if !path.is_empty() && !path.starts_with('/') {
        return Err("a path begins with / after the parenthesis".to_owned());
    }
    if path.len() <= 1 {
        return Ok(SurtCondition::Host(format!("{labels}){path}")));
    }
    let host = host_of_labels(labels).ok_or("each label of a host ends in a comma")?;
    Ok(SurtCondition::Path(format!("{host}{path}")))
}

/// Returns `true` for whole labels with letters beyond ASCII that are a name.
fn is_international_name(names: &str) -> bool {
    let labels = names
        .strip_suffix(',')
        .map(|names| names.rsplit(',').collect::<Vec<_>>());
    labels.is_some_and(|labels| canonical_host(&labels.join(".")).is_ok())
}

/// Returns an error for labels that no host has.
fn check_labels(labels: &str, is_closed: bool) -> Result<(), String> {
    let (names, port) = match labels.split_once(':') {
        Some((names, port)) if !labels.starts_with('[') => (names, Some(port)),
        _ => (labels, None),
    };
    if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("not a port".to_owned());
    }
    let is_address = names.starts_with('[') && names.ends_with(']')
        || names
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
            && !names.is_empty();
    if is_address {
        return Ok(());
    }
    if (is_closed || port.is_some()) && !names.ends_with(',') {
        return Err("no URL has this prefix: each label of a host ends in a comma".to_owned());
    }
    let top = names.split(',').next().unwrap_or_default();
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
    };
    let is_whole = names.is_ascii() || is_international_name(names);
    let mut labels = names.strip_suffix(',').unwrap_or(names).split(',');
    if !is_whole || !labels.all(is_label) || top.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("no URL has this prefix: not the labels of a host".to_owned());
    }
    Ok(())
}

/// Returns the authority of the labels of a SURT that is closed by a parenthesis.
fn host_of_labels(labels: &str) -> Option<String> {
    let (names, port) = match labels.split_once(':') {
        Some((names, port)) if !labels.starts_with('[') => (names, format!(":{port}")),
        _ => (labels, String::new()),
    };
    let is_address = names.starts_with('[') || names.parse::<std::net::Ipv4Addr>().is_ok();
    if is_address {
        return Some(format!("{names}{port}"));
    }
    let names = names.strip_suffix(',')?;
    let labels: Vec<&str> = names.rsplit(',').collect();
    Some(format!("{}{port}", labels.join(".")))
}

fn plain_condition(text: &str) -> Result<SurtCondition, String> {
    let bare = match text.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        Some(_) => return Err("only URLs of http and https are requested".to_owned()),
        None => text,
    };
    if bare.contains(['(', ')', ',']) {
        let why = "Heritrix reads this as the name of a host, which no URL has: a SURT begins with +http://(";
        return Err(why.to_owned());
    }
    let bare = bare.split('#').next().unwrap_or(bare);
    let host_end = bare.find(['/', '?']).unwrap_or(bare.len());
    let (host, rest) = bare.split_at_checked(host_end).unwrap_or((bare, ""));
    let authority = host.rsplit('@').next().unwrap_or(host);
    let authority = authority.strip_suffix(":80").unwrap_or(authority);
    if authority.is_empty() || !authority.chars().all(is_host_char) {
        return Err("not the name of a host or a URL".to_owned());
    }
    check_labels(&open_labels(authority), true)?;
    let Some(slash) = rest.rfind('/') else {
        // Without a slash the port and the hosts below are open.
        return Ok(SurtCondition::Host(open_labels(authority)));
    };
    let directory = rest.get(..=slash).unwrap_or("/");
    if directory == "/" {
        return Ok(SurtCondition::Host(format!("{})/", open_labels(authority))));
    }
    Ok(SurtCondition::Path(format!("{authority}{directory}")))
}

fn is_host_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']')
}

/// Returns the labels of a host in reverse order, each with a comma.
fn open_labels(authority: &str) -> String {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, format!(":{port}")),
        _ => (authority, String::new()),
    };
    if host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok() {
        return format!("{host}{port}");
    }
    let labels: String = host.rsplit('.').flat_map(|label| [label, ","]).collect();
    format!("{labels}{port}")
}

/// Returns the condition of several prefixes, of which one must fit.
pub(crate) fn any_of(prefixes: &[SurtCondition]) -> ConditionDraft {
    let mut hosts: Vec<&str> = Vec::new();
    let mut paths: Vec<&str> = Vec::new();
    for prefix in prefixes {
        match prefix {
            SurtCondition::Host(surt) => hosts.push(surt),
            SurtCondition::Path(path) => paths.push(path),
        }
    }
    let mut parts = Vec::new();
    if !hosts.is_empty() {
        parts.push(ConditionDraft::is("surt", hosts));
    }
    if !paths.is_empty() {
        let test = ConditionDraft::test("authority_path_query", "prefix", paths);
        parts.push(test.ignoring_case(true));
    }
    ConditionDraft::any(parts)
}

/// Returns a URL that a prefix fits.
pub(crate) fn sample(prefix: &SurtCondition) -> Option<String> {
    match prefix {
        SurtCondition::Path(path) => Some(format!("http://{path}")),
        SurtCondition::Host(surt) => {
            let (labels, path) = surt.split_once(')').unwrap_or((surt, "/"));
            let (names, port) = labels.split_once(':').unwrap_or((labels, ""));
            if names.starts_with('[') {
                return None;
            }
            let names = names.strip_suffix(',').unwrap_or(names);
            let labels: Vec<&str> = match names.parse::<std::net::Ipv4Addr>() {
                Ok(_) => vec![names],
                Err(_) => names.rsplit(',').collect(),
            };
            let port = if port.is_empty() {
                String::new()
            } else {
                format!(":{port}")
            };
            let path = if path.is_empty() { "/" } else { path };
            Some(format!("http://{}{port}{path}", labels.join(".")))
        }
    }
}

/// Returns the labels of the host of a prefix: `org,example,`.
pub(crate) fn host_prefix(line: SurtLine<'_>) -> Option<String> {
    let labels = match line {
        SurtLine::Formal(text) => {
            let text = text.to_lowercase();
            let rest = text.strip_prefix("http://(")?.to_owned();
            rest.split(')').next().unwrap_or_default().to_owned()
        }
        SurtLine::Plain(_) => match condition_of(line).ok()? {
            SurtCondition::Host(surt) => surt.split(')').next().unwrap_or_default().to_owned(),
            SurtCondition::Path(path) => open_labels(path.split('/').next().unwrap_or_default()),
        },
    };
    if labels.contains(':') || labels.ends_with(',') || labels.is_empty() {
        return Some(labels);
    }
    Some(format!("{labels},"))
}
