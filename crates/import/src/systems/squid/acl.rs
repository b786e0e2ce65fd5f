//! Conversion of one `acl` into a condition.

use std::collections::BTreeMap;

use crate::draft::{ConditionDraft, ListDraft, RuleIds, to_slug};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::report::PartNeed;
use crate::systems::squid::network::SquidRange;
use crate::systems::squid::{SquidAcl, SquidSource};

/// More values than these are written as a list.
const MAX_INLINE_VALUES: usize = 4;

/// An `acl` as a condition.
#[derive(Clone, Debug)]
pub(super) struct ConvertedAcl {
    pub term: Term,
    pub need: PartNeed,
    /// The assumption; several are joined.
    pub assumptions: Vec<String>,
    /// The lists that it became.
    pub lists: Vec<String>,
}

/// A condition, or what is known without a request.
#[derive(Clone, Debug)]
pub(super) enum Term {
    Always,
    Never,
    /// The request is a CONNECT.
    Connect,
    /// The request is for a page of squid itself.
    Manager,
    Test(ConditionDraft),
    /// A test of the address of the origin.
    Address(ConditionDraft),
}

/// Converts the `acl`s of a source, each once.
pub(super) struct AclConverter<'a> {
    source: &'a SquidSource,
    /// The names of crawlers by the name of their `acl`.
    crawlers: &'a BTreeMap<String, Vec<String>>,
    pub lists: Vec<ListDraft>,
    names: RuleIds,
    known: BTreeMap<String, Result<ConvertedAcl, String>>,
}

impl<'a> AclConverter<'a> {
    pub(super) fn new(
        source: &'a SquidSource,
        crawlers: &'a BTreeMap<String, Vec<String>>,
    ) -> Self {
        Self {
            source,
            crawlers,
            lists: Vec::new(),
            names: RuleIds::default(),
            known: BTreeMap::new(),
        }
    }

    /// Converts the `acl` with a name. The error is the reason why it cannot be converted.
    pub(super) fn convert(&mut self, name: &str) -> Result<ConvertedAcl, String> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let converted = match self.source.acl(name) {
            None => Err(format!("no acl has the name {name}")),
            Some(acl) => match &acl.problem {
                Some(problem) => Err(format!("acl {name}: {problem}")),
                None => self
                    .convert_acl(acl)
                    .map_err(|why| format!("acl {name}: {why}")),
            },
        };
        let converted = converted.map(|mut converted| {
            let notes = self.source.acl(name).map(|acl| acl.notes.clone());
            converted.assumptions.extend(notes.unwrap_or_default());
            converted
        });
        self.known.insert(name.to_owned(), converted.clone());
        converted
    }

    fn convert_acl(&mut self, acl: &SquidAcl) -> Result<ConvertedAcl, String> {
        let values: Vec<&str> = acl.values.iter().map(|value| value.text.as_str()).collect();
        match acl.kind.as_str() {
            "squid-manager" => Ok(term(Term::Manager, PartNeed::Url)),
            _ if values.is_empty() => Ok(term(Term::Never, PartNeed::Url)),
            "dstdomain" => Ok(self.domains(acl, &values)),
            "dstdom_regex" => self.expressions(acl, "host"),
            "url_regex" => self.expressions(acl, "url"),
            "urlpath_regex" => self.expressions(acl, "path_and_query"),
            "referer_regex" => self.expressions(acl, "referer"),
            "rep_mime_type" => self.expressions(acl, "header.Content-Type"),
            "port" => ports(&values),
            "proto" => Ok(schemes(&values)),
            "method" => methods(&values),
            "dst" => addresses(&values),
            "src" | "proxy_auth" => self.clients(acl, &values),
            "http_status" => statuses(&values),
            kind => Err(reason_for(kind)),
        }
    }

    /// `.example.com` is the domain with its subdomains, `example.com` the host alone.
    fn domains(&mut self, acl: &SquidAcl, values: &[&str]) -> ConvertedAcl {
        let mut domains = Vec::new();
        let mut hosts = Vec::new();
        for value in values {
            let value = value.to_ascii_lowercase();
            match value.strip_prefix('.') {
                // A host never ends in a dot: it would have to be empty.
                Some("") => {}
                Some(domain) => domains.push(domain.to_owned()),
                None => hosts.push(value),
            }
        }
        domains.retain(|item| is_host(item));
        hosts.retain(|item| is_host(item));
        let as_lists = domains.len() + hosts.len() > MAX_INLINE_VALUES;
        let mut lists = Vec::new();
        let mut parts = Vec::new();
        for (kind, shortcut, items) in [("domains", "domain", domains), ("hosts", "host", hosts)] {
            if as_lists && !items.is_empty() {
                let suffix = if lists.is_empty() { "" } else { "-hosts" };
                let name = self.add_list(acl, suffix, kind, items);
                parts.push(ConditionDraft::is("in", [name.as_str()]));
                lists.push(name);
            } else if !items.is_empty() {
                parts.push(ConditionDraft::is(shortcut, items));
            }
        }
        if parts.is_empty() {
            return term(Term::Never, PartNeed::Host);
        }
        ConvertedAcl {
            term: Term::Test(ConditionDraft::any(parts)),
            need: PartNeed::Host,
            assumptions: Vec::new(),
            lists,
        }
    }

    fn add_list(
        &mut self,
        acl: &SquidAcl,
        suffix: &str,
        kind: &'static str,
        items: Vec<String>,
    ) -> String {
        let name = self.names.next(&format!("{}{suffix}", to_slug(&acl.name)));
        self.lists.push(ListDraft {
            name: name.clone(),
            notes: acl.about.iter().cloned().collect(),
            kind,
            items,
        });
        name
    }

    fn expressions(&mut self, acl: &SquidAcl, field: &str) -> Result<ConvertedAcl, String> {
        let mut conditions = Vec::new();
        let mut assumptions = Vec::new();
        for value in &acl.values {
            let expression = SourceExpression {
                text: &value.text,
                dialect: Dialect::Posix,
                anchoring: Anchoring::Search,
                ignore_case: value.ignore_case && field != "host",
            };
            let translated = expression
                .translate(field)
                .map_err(|why| format!("{}: {why}", value.text))?;
            conditions.push(translated.condition);
            assumptions.extend(translated.assumption.map(|(text, _)| text));
        }
        let is_url = matches!(field, "url" | "path_and_query");
        if is_url {
            assumptions
                .push("URLs have no escapes that matter (squid undoes them first)".to_owned());
        }
        if is_url && !self.source.bumps {
            assumptions.push(
                "https is to be treated like http (of a tunnel, squid compared only host:port)"
                    .to_owned(),
            );
        }
        let mut lists = Vec::new();
        let condition = self.merge(acl, conditions, &mut lists);
        let need = match field {
            "host" => PartNeed::Host,
            "header.Content-Type" => PartNeed::Response,
            _ => PartNeed::Url,
        };
        Ok(ConvertedAcl {
            term: Term::Test(condition),
            need,
            assumptions,
            lists,
        })
    }

    /// Merges tests of one field and kind into one, or into a list if there are many.
    fn merge(
        &mut self,
        acl: &SquidAcl,
        conditions: Vec<ConditionDraft>,
        lists: &mut Vec<String>,
    ) -> ConditionDraft {
        let mut merged: Vec<ConditionDraft> = Vec::new();
        for condition in conditions {
            match (merged.last_mut(), condition) {
                (Some(ConditionDraft::Test(last)), ConditionDraft::Test(test))
                    if last.field == test.field
                        && last.kind == test.kind
                        && last.ignore_case == test.ignore_case =>
                {
                    last.values.extend(test.values);
                }
                (_, condition) => merged.push(condition),
            }
        }
        for condition in &mut merged {
            let ConditionDraft::Test(test) = condition else {
                continue;
            };
            if test.kind == Some("regex") && test.values.len() > MAX_INLINE_VALUES {
                let name = self.add_list(acl, "", "regexes", std::mem::take(&mut test.values));
                test.kind = Some("in");
                test.values = vec![name.clone()];
                lists.push(name);
            }
        }
        ConditionDraft::any(merged)
    }

    /// Returns what is assumed of clients that two `acl`s fit, since a client is one crawler.
    fn overlap(&self, acl: &SquidAcl) -> Option<String> {
        let others = self
            .source
            .acls
            .iter()
            .filter(|other| other.name != acl.name && self.crawlers.contains_key(&other.name));
        let own = ranges(acl);
        for other in others {
            if other.kind != acl.kind {
                return Some(
                    "a client is known by its user or by its network, never by both".to_owned(),
                );
            }
            let theirs = ranges(other);
            let is_within = |inner: &[SquidRange], outer: &[SquidRange]| {
                inner
                    .iter()
                    .all(|one| outer.iter().any(|range| range.contains(*one)))
            };
            let overlaps = own
                .iter()
                .any(|one| theirs.iter().any(|range| range.overlaps(*one)));
            if overlaps && !is_within(&own, &theirs) && !is_within(&theirs, &own) {
                return Some(format!(
                    "no client is in {} and in {}, whose networks overlap",
                    acl.name, other.name
                ));
            }
        }
        None
    }

    fn clients(&self, acl: &SquidAcl, values: &[&str]) -> Result<ConvertedAcl, String> {
        if acl.kind == "src" && values.iter().any(|value| is_everyone(value)) {
            return Ok(term(Term::Always, PartNeed::Host));
        }
        if acl.kind == "proxy_auth" && values.contains(&"REQUIRED") {
            let known = ConditionDraft::is("crawler", ["anonymous"]).negated();
            return Ok(ConvertedAcl {
                assumptions: vec![
                    "each crawler has a user and a password in the configuration".to_owned(),
                ],
                ..term(Term::Test(known), PartNeed::Host)
            });
        }
        let Some(crawlers) = self.crawlers.get(&acl.name) else {
            let unknown = values
                .iter()
                .find(|value| SquidRange::parse(value).is_none());
            return Err(match unknown {
                Some(value) => format!("{value} is no address: squid looks it up when it starts"),
                None => "no crawler is made of it".to_owned(),
            });
        };
        let names: Vec<String> = crawlers.iter().map(|name| format!("`{name}`")).collect();
        let plural = if names.len() == 1 { "" } else { "s" };
        let mut assumptions = vec![format!(
            "the configuration has the crawler{plural} {}, as in configuration.yaml",
            names.join(", ")
        )];
        assumptions.extend(self.overlap(acl));
        Ok(ConvertedAcl {
            assumptions,
            ..term(
                Term::Test(ConditionDraft::is(
                    "crawler",
                    crawlers.iter().map(String::as_str),
                )),
                PartNeed::Host,
            )
        })
    }
}

/// Returns the ranges of addresses that an `acl` about clients has.
fn ranges(acl: &SquidAcl) -> Vec<SquidRange> {
    let ranges = acl
        .values
        .iter()
        .filter_map(|value| SquidRange::parse(&value.text));
    ranges.flatten().collect()
}

/// Returns `true` for a value of `src` that fits every client of IPv4.
pub(super) fn is_everyone(value: &str) -> bool {
    let ranges = SquidRange::parse(value).unwrap_or_default();
    ranges.iter().any(|range| range.is_whole())
}

fn term(term: Term, need: PartNeed) -> ConvertedAcl {
    ConvertedAcl {
        term,
        need,
        assumptions: Vec::new(),
        lists: Vec::new(),
    }
}

fn is_host(text: &str) -> bool {
    let is_label =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']');
    text.chars().all(is_label) && !text.starts_with('.') && !text.contains("..")
}

fn ports(values: &[&str]) -> Result<ConvertedAcl, String> {
    let mut ranges = Vec::new();
    for value in values {
        let (first, last) = value.split_once('-').unwrap_or((value, value));
        let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
            return Err(format!("{value} is no port and no range of ports"));
        };
        match (first, last) {
            // No URL has port 0.
            (_, 0) => {}
            (first, last) if first == last => ranges.push(first.to_string()),
            (first, last) => ranges.push(format!("[{}:{last}]", first.max(1))),
        }
    }
    if ranges.is_empty() {
        return Ok(term(Term::Never, PartNeed::Host));
    }
    Ok(term(
        Term::Test(ConditionDraft::is("port", ranges)),
        PartNeed::Host,
    ))
}

fn schemes(values: &[&str]) -> ConvertedAcl {
    let schemes = values.iter().map(|value| value.to_ascii_lowercase());
    let schemes: Vec<String> = schemes
        .filter(|scheme| matches!(scheme.as_str(), "http" | "https"))
        .collect();
    let managed = values.contains(&"cache_object");
    match schemes.as_slice() {
        [] if managed => term(Term::Manager, PartNeed::Url),
        [] => term(Term::Never, PartNeed::Host),
        _ => term(
            Term::Test(ConditionDraft::is("scheme", schemes)),
            PartNeed::Host,
        ),
    }
}

fn methods(values: &[&str]) -> Result<ConvertedAcl, String> {
    if values.iter().all(|value| *value == "CONNECT") {
        return Ok(term(Term::Connect, PartNeed::Host));
    }
    if values.contains(&"CONNECT") {
        return Err("it has CONNECT and other methods: give CONNECT an acl of its own".to_owned());
    }
    Ok(term(
        Term::Test(ConditionDraft::is("method", values.iter().copied())),
        PartNeed::Url,
    ))
}

fn addresses(values: &[&str]) -> Result<ConvertedAcl, String> {
    let mut networks = Vec::new();
    for value in values {
        let ranges = SquidRange::parse(value)
            .ok_or_else(|| format!("{value} is no address: squid looks it up when it starts"))?;
        if ranges.iter().any(|range| range.is_whole()) {
            return Ok(term(Term::Always, PartNeed::Host));
        }
        networks.extend(ranges.into_iter().flat_map(SquidRange::to_networks));
    }
    Ok(term(
        Term::Address(ConditionDraft::is("address", networks)),
        PartNeed::Response,
    ))
}

fn statuses(values: &[&str]) -> Result<ConvertedAcl, String> {
    let mut ranges = Vec::new();
    for value in values {
        let (first, last) = value.split_once('-').unwrap_or((value, value));
        match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) if first == last => ranges.push(first.to_string()),
            (Ok(first), Ok(last)) => ranges.push(format!("[{first}:{last}]")),
            _ => return Err(format!("{value} is no status")),
        }
    }
    Ok(term(
        Term::Test(ConditionDraft::is("status", ranges)),
        PartNeed::Response,
    ))
}

/// Returns the reason why a type cannot be converted.
fn reason_for(kind: &str) -> String {
    match kind {
        "time" => {
            "hours are no condition of a policy (`politeness.schedule` changes the pace by hours)"
                .to_owned()
        }
        "browser" | "req_header" | "req_mime_type" => {
            "headers of requests are no condition of a policy, except Referer".to_owned()
        }
        "external" => "an external program decides".to_owned(),
        "maxconn" | "max_user_ip" => {
            "numbers of connections are no condition of a policy".to_owned()
        }
        "rep_header" => "write it by hand as a condition on `header.NAME`".to_owned(),
        "any-of" | "all-of" => "combinations of other acls are not read".to_owned(),
        "random" => "it is random".to_owned(),
        kind => format!("the type {kind} has no counterpart"),
    }
}
