//! squid: the first access line of which every `acl` fits decides; without one the opposite of the last line.

use std::collections::BTreeMap;

use fancy_regex::{Regex, RegexBuilder};

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::{Report, ReportList, ReportedPart};
use crate::systems::squid::network::SquidRange;
use crate::systems::squid::{AccessLine, SquidAcl, SquidSource};

/// Evaluates `http_access` and `http_reply_access`.
///
/// https URLs are compared whole, as with `ssl_bump`: the report announces it where squid sees less.
pub struct SquidEvaluator {
    requests: Vec<AccessLine>,
    replies: Vec<AccessLine>,
    request_default: bool,
    reply_default: bool,
    bumps: bool,
    acls: BTreeMap<String, AclMatcher>,
    /// Networks of the crawlers, by their names.
    clients: BTreeMap<String, Vec<SquidRange>>,
}

/// A compiled `acl`.
struct AclMatcher {
    kind: String,
    values: Vec<String>,
    expressions: Vec<Option<Regex>>,
    ranges: Vec<SquidRange>,
}

/// The parts of a request that squid looks at.
struct Request<'a> {
    scheme: &'a str,
    host: &'a str,
    port: u16,
    url: String,
    path: String,
    is_connect: bool,
    source: SourceRequest<'a>,
}

/// `None`: the request does not say.
type SquidAnswer = Option<bool>;

impl SquidEvaluator {
    /// Compiles all lines except for those that could not be converted: a line that is dead in the policy still
    /// has its place in squid.
    pub fn new(source: &SquidSource, report: &Report) -> Self {
        let acts = |line: &&AccessLine| {
            let list = report.part(line.part).and_then(ReportedPart::list);
            !matches!(list, Some(ReportList::NotConverted) | None)
        };
        let keep = |lines: &[AccessLine]| -> Vec<AccessLine> {
            lines.iter().filter(acts).cloned().collect()
        };
        let opposite = |lines: &[AccessLine], none: bool| match lines.last() {
            Some(last) => !last.allows,
            None => none,
        };
        let mut clients = BTreeMap::new();
        for acl in source.acls.iter().filter(|acl| acl.kind == "src") {
            clients.insert(crawler_name(&acl.name), ranges(acl));
        }
        Self {
            requests: keep(&source.requests),
            replies: keep(&source.replies),
            request_default: opposite(&source.requests, false),
            reply_default: opposite(&source.replies, true),
            bumps: source.bumps,
            acls: source
                .acls
                .iter()
                .map(|acl| (acl.name.clone(), AclMatcher::new(acl)))
                .collect(),
            clients,
        }
    }

    fn first(&self, lines: &[AccessLine], default: bool, request: &Request<'_>) -> SquidAnswer {
        for line in lines {
            let mut fits = Some(true);
            for used in &line.acls {
                let answer = match self.acls.get(&used.name) {
                    Some(acl) => self.fits(acl, request),
                    None => Some(false),
                };
                match answer.map(|answer| answer != used.negated) {
                    Some(true) => {}
                    Some(false) => {
                        fits = Some(false);
                        break;
                    }
                    None => fits = None,
                }
            }
            match fits {
                Some(true) => return Some(line.allows),
                Some(false) => {}
                None => return None,
            }
        }
        Some(default)
    }

    fn fits(&self, acl: &AclMatcher, request: &Request<'_>) -> SquidAnswer {
        let any_value =
            |test: &dyn Fn(&str) -> bool| Some(acl.values.iter().any(|value| test(value)));
        match acl.kind.as_str() {
            "dstdomain" => any_value(&|value| domain_fits(request.host, value)),
            "dstdom_regex" => acl.is_found(request.host),
            "url_regex" => acl.is_found(&unescape(&request.url)),
            "urlpath_regex" => acl.is_found(&unescape(&request.path)),
            "referer_regex" => match request.source.text("referer") {
                Some(referer) => acl.is_found(referer),
                None => Some(false),
            },
            "rep_mime_type" => acl.is_found(&content_type(&request.source)?),
            "http_status" => {
                let status = request.source.number("status").unwrap_or(200);
                any_value(&|value| number_fits(status, value))
            }
            "port" => any_value(&|value| number_fits(u64::from(request.port), value)),
            // The target of a CONNECT is host:port, without a scheme. That of a tunnel which is intercepted is
            // announced, like its method: the requests inside decide.
            "proto" if request.is_connect && self.bumps => None,
            "proto" if request.is_connect => Some(false),
            "proto" => any_value(&|value| value.eq_ignore_ascii_case(request.scheme)),
            "method"
                if request.is_connect
                    && self.bumps
                    && !acl.values.iter().any(|value| value == "CONNECT") =>
            {
                None
            }
            "method" => {
                let method = request.source.text("method").unwrap_or("GET");
                let method = if request.is_connect {
                    "CONNECT"
                } else {
                    method
                };
                any_value(&|value| value == method)
            }
            "dst" => {
                if acl.ranges.iter().any(|range| range.is_whole()) {
                    return Some(true);
                }
                let address = SquidRange::of_address(request.source.text("address")?)?;
                Some(acl.ranges.iter().any(|range| range.contains(address)))
            }
            "src" => Some(self.client_fits(acl, request)),
            "proxy_auth" => {
                let crawler = request.source.text("crawler").unwrap_or("anonymous");
                any_value(&|value| match value {
                    "REQUIRED" => crawler != "anonymous",
                    user => crawler_name(user) == crawler,
                })
            }
            _ => Some(false),
        }
    }

    /// The client's address is in the networks of its crawler.
    fn client_fits(&self, acl: &AclMatcher, request: &Request<'_>) -> bool {
        if acl.ranges.iter().any(|range| range.is_whole()) {
            return true;
        }
        let crawler = request.source.text("crawler").unwrap_or("anonymous");
        let Some(addresses) = self.clients.get(crawler).filter(|found| !found.is_empty()) else {
            return false;
        };
        let within = |address: &SquidRange| acl.ranges.iter().any(|range| range.contains(*address));
        addresses.iter().all(within)
    }
}

impl SourceEvaluator for SquidEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let Some(mut parsed) = Request::parse(*request) else {
            return SourceVerdict::Unknown;
        };
        let is_https = parsed.scheme == "https";
        parsed.is_connect = is_https;
        let mut allowed = self.first(&self.requests, self.request_default, &parsed);
        if is_https && self.bumps {
            parsed.is_connect = false;
            let inside = self.first(&self.requests, self.request_default, &parsed);
            allowed = match (allowed, inside) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true) | None, inside) => inside,
            };
        }
        let has_answer = ["status", "content_type", "headers"]
            .iter()
            .any(|fact| request.facts.contains_key(*fact));
        // Without `ssl_bump` it sees no response in a tunnel.
        let sees_answer = has_answer && (!is_https || self.bumps);
        if allowed == Some(true) && sees_answer {
            parsed.is_connect = false;
            allowed = self.first(&self.replies, self.reply_default, &parsed);
        }
        match allowed {
            Some(true) => SourceVerdict::Allow,
            Some(false) => SourceVerdict::Refuse,
            None => SourceVerdict::Unknown,
        }
    }
}

impl AclMatcher {
    fn new(acl: &SquidAcl) -> Self {
        let is_regex = acl.kind.ends_with("_regex") || acl.kind == "rep_mime_type";
        let expressions = acl.values.iter().filter(|_| is_regex).map(|value| {
            let mut builder = RegexBuilder::new(&value.text);
            builder.case_insensitive(value.ignore_case);
            builder.build().ok()
        });
        Self {
            kind: acl.kind.clone(),
            values: acl.values.iter().map(|value| value.text.clone()).collect(),
            expressions: expressions.collect(),
            ranges: ranges(acl),
        }
    }

    fn is_found(&self, text: &str) -> SquidAnswer {
        let mut answer = Some(false);
        for expression in &self.expressions {
            match expression.as_ref().map(|regex| regex.is_match(text)) {
                Some(Ok(true)) => return Some(true),
                Some(Ok(false)) => {}
                Some(Err(_)) | None => answer = None,
            }
        }
        answer
    }
}

impl<'a> Request<'a> {
    fn parse(source: SourceRequest<'a>) -> Option<Self> {
        let (scheme, rest) = source.url.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let digits = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if digits(port) => (host, port.parse().ok()?),
            _ if scheme == "https" => (authority, 443),
            _ => (authority, 80),
        };
        Some(Self {
            scheme,
            host,
            port,
            url: source.url.to_owned(),
            path: path.to_owned(),
            is_connect: false,
            source,
        })
    }
}

fn ranges(acl: &SquidAcl) -> Vec<SquidRange> {
    let values = acl.values.iter();
    let is_address = matches!(acl.kind.as_str(), "src" | "dst");
    let ranges = values
        .filter(|_| is_address)
        .filter_map(|value| SquidRange::parse(&value.text));
    ranges.flatten().collect()
}

/// Returns the name that a crawler gets: letters in lower case, digits, and `-` for the rest.
fn crawler_name(name: &str) -> String {
    crate::draft::to_slug(name)
}

/// `matchDomainName`: compares from the end; a leading dot of the value also fits the domain itself.
fn domain_fits(host: &str, value: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let value = value.to_ascii_lowercase();
    match value.strip_prefix('.') {
        Some(domain) => host == domain || host.ends_with(&value),
        None => host == value,
    }
}

fn number_fits(number: u64, value: &str) -> bool {
    let (first, last) = value.split_once('-').unwrap_or((value, value));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => first <= number && number <= last,
        _ => false,
    }
}

/// `rfc1738_unescape`.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut found = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        let digits = bytes.get(index + 1..index + 3);
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value.filter(|value| *byte == b'%' && *value != 0) {
            Some(value) => {
                found.push(value);
                index += 3;
            }
            None => {
                found.push(*byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&found).into_owned()
}

/// Returns the header `Content-Type`; empty if the answer has none, `None` if there is no answer.
fn content_type(request: &SourceRequest<'_>) -> Option<String> {
    if let Some(text) = request.text("content_type") {
        return Some(text.to_owned());
    }
    let headers = request
        .facts
        .get("headers")
        .and_then(|headers| headers.as_object());
    let found = headers.and_then(|headers| {
        headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
    });
    match found.and_then(|(_, value)| value.as_str()) {
        Some(text) => Some(text.to_owned()),
        None if headers.is_some() || request.facts.contains_key("status") => Some(String::new()),
        None => None,
    }
}
