//! The facts of one request in `crawlgate decide` and in cases: a JSON object with known keys.

use std::borrow::Cow;
use std::net::IpAddr;

use serde_json::{Map, Value as Json};

use crate::diagnostics::nearest::nearest;
use crate::model::crawler::Crawler;
use crate::model::media_type::essence;
use crate::policy::fact::{
    ContentAvailability, DEFAULT_YEAR, DocumentFacts, EvaluationTarget, Fact, Facts, FetchDest,
    HeaderView, LedgerPresence, ResponseFacts, UsagePreference,
};
use crate::robots::usage::normalize_purpose;
use crate::urls::target::{HostTarget, UrlTarget};

/// The facts of one request, owned.
#[derive(Clone, Debug)]
pub struct CaseFacts {
    target: CaseTarget,
    crawler: Box<str>,
    method: Box<str>,
    referer: Box<str>,
    dest: Option<FetchDest>,
    depth: Option<u64>,
    address: Option<IpAddr>,
    in_ledger: Option<LedgerPresence>,
    year: Option<u16>,
    usage: Vec<(Box<str>, UsagePreference)>,
    license: Box<str>,
    response: Option<CaseResponse>,
    document: Option<CaseDocument>,
}

/// The target of a request.
#[derive(Clone, Debug)]
pub enum CaseTarget {
    Url(UrlTarget),
    /// A tunnel to the host and port of a URL.
    Tunnel(HostTarget, UrlTarget),
}

/// The known part of the response head.
#[derive(Clone, Debug, Default)]
struct CaseResponse {
    status: Option<u16>,
    content_type: String,
    size: Option<u64>,
    headers: CaseHeaders,
}

/// The known part of the document.
#[derive(Clone, Debug, Default)]
struct CaseDocument {
    title: Box<str>,
    body_prefix: Box<str>,
    meta_robots: Option<Box<str>>,
    canonical: Option<Box<str>>,
}

/// Header fields in the given order, with names in lower case.
#[derive(Clone, Debug, Default)]
struct CaseHeaders(Vec<(String, String)>);

impl HeaderView for CaseHeaders {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut values = self
            .0
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str());
        let first = Cow::Borrowed(values.next()?);
        Some(values.fold(first, |all, next| Cow::Owned(format!("{all}, {next}"))))
    }

    fn for_each_line(&self, name: &str, see: &mut dyn FnMut(&str)) {
        self.0
            .iter()
            .filter(|(n, _)| n == name)
            .for_each(|(_, value)| see(value));
    }
}

/// The keys of the object, in the order of the documentation.
pub const FACT_KEYS: [&str; 20] = [
    "url",
    "crawler",
    "method",
    "depth",
    "referer",
    "dest",
    "tunnel",
    "address",
    "known",
    "year",
    "status",
    "content_type",
    "size",
    "headers",
    "usage",
    "license",
    "title",
    "body_prefix",
    "meta_robots",
    "canonical",
];

impl CaseFacts {
    /// Creates the facts of a GET for a URL by an anonymous crawler. The error describes an invalid
    /// URL.
    pub fn for_url(url: &str) -> Result<Self, String> {
        let target = UrlTarget::parse(url).map_err(|mistake| mistake.to_string())?;
        Ok(Self {
            target: CaseTarget::Url(target),
            crawler: Crawler::ANONYMOUS.into(),
            method: "GET".into(),
            referer: "".into(),
            dest: None,
            depth: None,
            address: None,
            in_ledger: None,
            year: None,
            usage: Vec::new(),
            license: "".into(),
            response: None,
            document: None,
        })
    }

    /// Reads a JSON object of facts; `null` is the same as a missing key. The error names the key.
    pub fn from_json(facts: &Map<String, Json>) -> Result<Self, String> {
        let Some(url) = facts.get("url") else {
            return Err("the key `url` is missing".into());
        };
        let mut read = Self::for_url(parse_text("url", url)?)?;
        for (key, value) in facts
            .iter()
            .filter(|(key, value)| *key != "url" && !value.is_null())
        {
            read.set(key, value)?;
        }
        Ok(read)
    }

    /// Sets a fact other than `url`. The error names the key.
    pub fn set(&mut self, key: &str, value: &Json) -> Result<(), String> {
        match key {
            "crawler" => self.crawler = parse_text(key, value)?.into(),
            "method" => self.method = parse_text(key, value)?.into(),
            "referer" => self.referer = parse_text(key, value)?.into(),
            "dest" => self.dest = Some(parse_dest(value)?),
            "depth" => self.depth = Some(parse_number(key, value)?),
            "address" => self.address = Some(parse_address(value)?),
            "tunnel" => self.set_tunnel(parse_boolean(key, value)?),
            "known" => {
                self.in_ledger = Some(if parse_boolean(key, value)? {
                    LedgerPresence::Present
                } else {
                    LedgerPresence::Absent
                });
            }
            "year" => self.year = Some(parse_year(value)?),
            "usage" => self.set_usage(value)?,
            "license" => {
                self.license = parse_text(key, value)?.into();
                // A license implies a response.
                self.response.get_or_insert_default();
            }
            "title" | "body_prefix" | "meta_robots" | "canonical" => {
                self.document
                    .get_or_insert_default()
                    .set(key, parse_text(key, value)?);
                // A document implies a response.
                self.response.get_or_insert_default();
            }
            "status" | "content_type" | "size" | "headers" => {
                return self.response.get_or_insert_default().set(key, value);
            }
            _ => return Err(unknown_key_message(key)),
        }
        Ok(())
    }

    /// Sets the year unless it is given.
    #[must_use]
    pub fn with_default_year(self, year: u16) -> Self {
        Self {
            year: self.year.or(Some(year)),
            ..self
        }
    }

    /// The canonical URL.
    pub fn url(&self) -> &str {
        match &self.target {
            CaseTarget::Url(url) | CaseTarget::Tunnel(_, url) => url.as_str(),
        }
    }

    /// The name of the crawler.
    pub fn crawler(&self) -> &str {
        &self.crawler
    }

    pub fn target(&self) -> &CaseTarget {
        &self.target
    }

    /// Returns `true` if the facts include a response.
    pub fn has_response(&self) -> bool {
        self.response.is_some()
    }

    /// Returns `true` if the status is the only fact of the response.
    pub fn has_only_status(&self) -> bool {
        self.document.is_none()
            && self.usage.is_empty()
            && self.license.is_empty()
            && self.response.as_ref().is_some_and(|response| {
                response.status.is_some()
                    && response.headers.0.is_empty()
                    && response.size.is_none()
            })
    }

    /// The origin's status: 200 if only other facts of the response are given; `None` without a
    /// response.
    pub fn origin_status(&self) -> Option<u16> {
        self.response.as_ref().map(CaseResponse::status)
    }

    /// Returns the fact `known`, if it is given.
    pub fn ledger_presence(&self) -> Option<LedgerPresence> {
        self.in_ledger
    }

    /// Calls a function with the facts in the form that a policy evaluates.
    pub fn with_facts<T>(&self, evaluate: impl FnOnce(&Facts<'_>) -> T) -> T {
        evaluate(&self.facts())
    }

    /// The facts in the form that a policy evaluates.
    pub fn facts(&self) -> Facts<'_> {
        let target = match &self.target {
            CaseTarget::Url(url) => EvaluationTarget::Url(url),
            CaseTarget::Tunnel(host, _) => EvaluationTarget::Tunnel(host),
        };
        Facts {
            read_from: None,
            target,
            crawler: &self.crawler,
            method: &self.method,
            referer: &self.referer,
            dest: self.dest,
            depth: self.depth,
            address: self
                .address
                .map_or(Fact::Unknown, |address| Fact::Known(Some(address))),
            agent: "",
            usage_preferences: &self.usage,
            site_license: &self.license,
            response: self
                .response
                .as_ref()
                .map_or(Fact::Unknown, |r| Fact::Known(r.facts(&self.method))),
            document: self
                .document
                .as_ref()
                .map_or(Fact::Unknown, |d| Fact::Known(d.facts())),
            in_ledger: self.in_ledger.unwrap_or(LedgerPresence::Absent),
            year: self.year.unwrap_or(DEFAULT_YEAR),
        }
    }

    fn set_tunnel(&mut self, tunnel: bool) {
        if let (true, CaseTarget::Url(url)) = (tunnel, &self.target) {
            self.target = CaseTarget::Tunnel(url.host_target(), url.clone());
        }
    }

    /// Reads `{train-ai: deny}`: the combined preferences of robots.txt and the response's headers.
    fn set_usage(&mut self, value: &Json) -> Result<(), String> {
        let Some(preferences) = value.as_object() else {
            return Err("`usage` must be an object".into());
        };
        for (name, preference) in preferences {
            let preference = preference.as_str().and_then(UsagePreference::from_word);
            let preference =
                preference.ok_or_else(|| format!("`usage.{name}` must be allow, deny or unset"))?;
            self.usage.push((
                normalize_purpose(name).unwrap_or_else(|| name.as_str().into()),
                preference,
            ));
        }
        // Preferences imply a response.
        self.response.get_or_insert_default();
        Ok(())
    }
}

impl CaseDocument {
    fn set(&mut self, key: &str, value: &str) {
        match key {
            "title" => self.title = value.into(),
            "body_prefix" => self.body_prefix = value.into(),
            "meta_robots" => self.meta_robots = Some(value.into()),
            _ => self.canonical = Some(value.into()),
        }
    }

    fn facts(&self) -> DocumentFacts<'_> {
        DocumentFacts {
            title: &self.title,
            body_prefix: &self.body_prefix,
            meta_robots: self.meta_robots.as_deref(),
            canonical: self.canonical.as_deref(),
        }
    }
}

impl CaseResponse {
    fn set(&mut self, key: &str, value: &Json) -> Result<(), String> {
        match key {
            "status" => self.status = Some(parse_status(value)?),
            "content_type" => self.set_content_type(parse_text(key, value)?),
            "size" => self.size = Some(parse_number(key, value)?),
            "headers" => self.set_headers(value)?,
            _ => return Err(unknown_key_message(key)),
        }
        Ok(())
    }

    fn set_content_type(&mut self, value: &str) {
        self.content_type = essence(value).into_owned();
        self.headers.0.retain(|(name, _)| name != "content-type");
        self.headers.0.push(("content-type".into(), value.into()));
    }

    /// Reads `{name: value}` or `{name: [value, value]}`. Content type and size are taken from the
    /// headers unless given.
    fn set_headers(&mut self, value: &Json) -> Result<(), String> {
        let Some(fields) = value.as_object() else {
            return Err("`headers` must be an object".into());
        };
        for (name, values) in fields {
            let name = name.to_ascii_lowercase();
            for value in values
                .as_array()
                .map_or(std::slice::from_ref(values), Vec::as_slice)
            {
                self.set_header(&name, parse_text(&format!("headers.{name}"), value)?);
            }
        }
        Ok(())
    }

    fn set_header(&mut self, name: &str, value: &str) {
        if name == "content-type" && self.content_type.is_empty() {
            self.content_type = essence(value).into_owned();
        }
        if name == "content-length" && self.size.is_none() {
            self.size = value.trim().parse().ok();
        }
        self.headers.0.push((name.to_owned(), value.to_owned()));
    }

    fn status(&self) -> u16 {
        self.status.unwrap_or(200)
    }

    fn facts(&self, method: &str) -> ResponseFacts<'_> {
        ResponseFacts {
            status: self.status(),
            content_type: &self.content_type,
            size: self.size,
            headers: &self.headers,
            content: if method == "HEAD" {
                ContentAvailability::HeadOnly
            } else {
                ContentAvailability::Possible
            },
        }
    }
}

fn unknown_key_message(key: &str) -> String {
    match nearest(key, FACT_KEYS) {
        Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
        None => format!(
            "unknown key `{key}`; allowed keys: {}",
            FACT_KEYS.join(", ")
        ),
    }
}

fn parse_text<'a>(key: &str, value: &'a Json) -> Result<&'a str, String> {
    value
        .as_str()
        .ok_or_else(|| format!("`{key}` must be text"))
}

fn parse_number(key: &str, value: &Json) -> Result<u64, String> {
    value
        .as_u64()
        .ok_or_else(|| format!("`{key}` must be a whole number"))
}

fn parse_boolean(key: &str, value: &Json) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| format!("`{key}` must be true or false"))
}

fn parse_status(value: &Json) -> Result<u16, String> {
    let number = value.as_u64().and_then(|n| u16::try_from(n).ok());
    number
        .filter(|n| (100..=999).contains(n))
        .ok_or_else(|| "`status` must be 100 to 999".into())
}

fn parse_year(value: &Json) -> Result<u16, String> {
    let number = value.as_u64().and_then(|n| u16::try_from(n).ok());
    number
        .filter(|n| (1970..=9999).contains(n))
        .ok_or_else(|| "`year` must be 1970 to 9999".into())
}

fn parse_dest(value: &Json) -> Result<FetchDest, String> {
    let word = parse_text("dest", value)?;
    FetchDest::from_word(word).ok_or_else(|| "`dest` must be navigation or embed".into())
}

fn parse_address(value: &Json) -> Result<IpAddr, String> {
    parse_text("address", value)?
        .parse()
        .map_err(|_| "`address` must be an IP address".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(facts: Json) -> Result<CaseFacts, String> {
        CaseFacts::from_json(facts.as_object().unwrap())
    }

    #[test]
    fn a_response_without_status_is_a_200_of_no_type() {
        let facts = read(json!({ "url": "http://h/a", "size": 3 })).unwrap();
        facts.with_facts(|facts| {
            let Fact::Known(response) = facts.response else {
                panic!()
            };
            assert_eq!(
                (response.status, response.content_type, response.size),
                (200, "", Some(3))
            );
            assert!(response.is_success_with_content());
        });
        let facts = read(json!({ "url": "http://h/a" })).unwrap();
        facts.with_facts(|facts| assert!(matches!(facts.response, Fact::Unknown)));
    }

    #[test]
    fn headers_are_joined_and_determine_type_and_size() {
        let headers =
            json!({ "Content-Type": "Text/HTML; x", "Content-Length": "7", "A": ["1", "2"] });
        let facts = read(json!({
            "url": "http://h/", "headers": headers, "usage": { "train-ai": "deny", "search": "unset" },
        }))
        .unwrap();
        facts.with_facts(|facts| {
            let Fact::Known(response) = facts.response else {
                panic!()
            };
            assert_eq!(
                (response.content_type, response.size),
                ("text/html", Some(7))
            );
            assert_eq!(response.headers.header("a").as_deref(), Some("1, 2"));
            let usage = [
                ("train-ai".into(), UsagePreference::Deny),
                ("search".into(), UsagePreference::Unset),
            ];
            assert_eq!(facts.usage_preferences, usage);
        });
    }

    #[test]
    fn document_facts_imply_a_response() {
        let facts = read(json!({ "url": "http://h/", "title": "t", "canonical": "/c" })).unwrap();
        facts.with_facts(|facts| {
            assert!(matches!(
                facts.response,
                Fact::Known(ResponseFacts { status: 200, .. })
            ));
            let Fact::Known(document) = facts.document else {
                panic!()
            };
            assert_eq!((document.title, document.body_prefix), ("t", ""));
            assert_eq!(
                (document.meta_robots, document.canonical),
                (None, Some("/c"))
            );
        });
    }

    #[test]
    fn mistakes_name_their_key() {
        for (facts, expected) in [
            (json!({}), "`url` is missing"),
            (json!({ "url": "http://h:99999/" }), "port"),
            (
                json!({ "url": "http://h/", "dept": 1 }),
                "did you mean `depth`",
            ),
            (
                json!({ "url": "http://h/", "depth": -1 }),
                "`depth` must be a whole number",
            ),
            (
                json!({ "url": "http://h/", "status": 20 }),
                "`status` must be 100 to 999",
            ),
            (
                json!({ "url": "http://h/", "known": 1 }),
                "`known` must be true or false",
            ),
            (
                json!({ "url": "http://h/", "year": 26 }),
                "`year` must be 1970 to 9999",
            ),
            (
                json!({ "url": "http://h/", "usage": { "search": "y" } }),
                "allow, deny or unset",
            ),
            (
                json!({ "url": "http://h/", "address": "x" }),
                "`address` must be an IP address",
            ),
        ] {
            let mistake = read(facts.clone()).unwrap_err();
            assert!(mistake.contains(expected), "{facts} → {mistake}");
        }
    }
}
