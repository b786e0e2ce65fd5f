//! The facts that a command is given, owned: by `explain` on its command line, by `decide` in a JSON object.

use std::borrow::Cow;
use std::net::IpAddr;

use serde_json::{Map, Value as Json};

use crate::policy::fact::{Content, Dest, Fact, Facts, HeaderView, ResponseFacts, Subject};
use crate::vocab::crawler::Crawler;
use crate::vocab::media_type::essence;
use crate::vocab::target::{HostTarget, UrlTarget};

use super::args::ExplainArgs;

/// What is known of a request.
#[derive(Clone, Debug)]
pub(super) struct Given {
    /// What is asked for.
    pub(super) target: Target,
    crawler: String,
    method: String,
    referer: String,
    dest: Option<Dest>,
    depth: Option<u64>,
    address: Option<IpAddr>,
    response: Option<Response>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// A URL.
    Url(UrlTarget),
    /// A tunnel to a URL's host and port.
    Tunnel(HostTarget, String),
}

/// What is known of the response head.
#[derive(Clone, Debug, Default)]
struct Response {
    status: Option<u16>,
    content_type: String,
    size: Option<u64>,
    headers: Headers,
}

/// Header fields by name in lower case.
#[derive(Clone, Debug, Default)]
struct Headers(Vec<(String, String)>);

impl HeaderView for Headers {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let first = Cow::Borrowed(values.next()?);
        Some(values.fold(first, |all, next| Cow::Owned(format!("{all}, {next}"))))
    }
}

impl Target {
    fn of_url(text: &str) -> Result<Self, String> {
        UrlTarget::parse(text).map(Self::Url).map_err(|mistake| mistake.to_string())
    }

    /// A tunnel to the host and port of a URL, whatever its scheme: the client says only these.
    fn of_tunnel(text: &str) -> Result<Self, String> {
        let url = UrlTarget::parse(text).map_err(|mistake| mistake.to_string())?;
        Ok(Self::Tunnel(url.host_target(), url.as_str().to_owned()))
    }

    /// The canonical URL.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Url(url) => url.as_str(),
            Self::Tunnel(_, url) => url,
        }
    }
}

impl Given {
    /// A GET for a URL, of which nothing else is known.
    pub(super) fn of_url(text: &str) -> Result<Self, String> {
        Target::of_url(text).map(Self::of_target)
    }

    fn of_target(target: Target) -> Self {
        Self {
            target,
            crawler: Crawler::ANONYMOUS.to_owned(),
            method: "GET".to_owned(),
            referer: String::new(),
            dest: None,
            depth: None,
            address: None,
            response: None,
        }
    }

    /// Reads the arguments of `explain`.
    pub(super) fn of_args(args: &ExplainArgs) -> Result<Self, String> {
        let target = if args.tunnel { Target::of_tunnel(&args.url) } else { Target::of_url(&args.url) };
        let mut given = Self::of_target(target?);
        given.crawler = args.crawler.clone().unwrap_or(given.crawler);
        given.method.clone_from(&args.method);
        given.referer = args.referer.clone().unwrap_or_default();
        given.depth = args.depth;
        given.address = args.address;
        let tells = args.status.is_some() || args.size.is_some() || args.content_type.is_some();
        if tells || !args.headers.is_empty() {
            let mut response = Response { status: args.status, size: args.size, ..Response::default() };
            response.headers.0.clone_from(&args.headers);
            if let Some(value) = &args.content_type {
                response.set_content_type(value);
            }
            given.response = Some(response.completed());
        }
        Ok(given)
    }

    /// Reads a JSON object of facts (operations.md, "Commands").
    pub(super) fn of_json(facts: &Map<String, Json>) -> Result<Self, String> {
        let Some(url) = facts.get("url") else { return Err("the key `url` is missing".into()) };
        let url = text("url", url)?;
        let tunnel = facts.get("tunnel").map_or(Ok(false), |value| boolean("tunnel", value))?;
        let target = if tunnel { Target::of_tunnel(url) } else { Target::of_url(url) };
        let mut given = Self::of_target(target?);
        for (key, value) in facts.iter().filter(|(_, value)| !value.is_null()) {
            given.set(key, value)?;
        }
        given.response = given.response.map(Response::completed);
        Ok(given)
    }

    fn set(&mut self, key: &str, value: &Json) -> Result<(), String> {
        match key {
            "url" | "tunnel" => {}
            "crawler" => self.crawler = text(key, value)?.to_owned(),
            "method" => self.method = text(key, value)?.to_owned(),
            "referer" => self.referer = text(key, value)?.to_owned(),
            "dest" => self.dest = Some(dest(value)?),
            "depth" => self.depth = Some(number(key, value)?),
            "address" => self.address = Some(address(value)?),
            "known" | "title" | "body_prefix" => return Err(format!("`{key}` is not in this version")),
            _ => return self.response.get_or_insert_default().set(key, value),
        }
        Ok(())
    }

    /// The facts as the policy takes them.
    pub(super) fn facts(&self) -> Facts<'_> {
        let subject = match &self.target {
            Target::Url(url) => Subject::Url(url),
            Target::Tunnel(host, _) => Subject::Tunnel(host),
        };
        let response = self.response.as_ref();
        Facts {
            subject,
            crawler: &self.crawler,
            method: &self.method,
            referer: &self.referer,
            dest: self.dest,
            depth: self.depth,
            address: self.address.map_or(Fact::Unknown, |a| Fact::Known(Some(a))),
            response: response.map_or(Fact::Unknown, |r| Fact::Known(r.facts(&self.method))),
        }
    }
}

impl Response {
    fn set(&mut self, key: &str, value: &Json) -> Result<(), String> {
        match key {
            "status" => self.status = Some(status(value)?),
            "content_type" => self.set_content_type(text(key, value)?),
            "size" => self.size = Some(number(key, value)?),
            "headers" => self.set_headers(value)?,
            _ => return Err(unknown(key)),
        }
        Ok(())
    }

    fn set_content_type(&mut self, value: &str) {
        self.headers.0.retain(|(name, _)| name != "content-type");
        self.headers.0.push(("content-type".into(), value.to_owned()));
    }

    fn set_headers(&mut self, value: &Json) -> Result<(), String> {
        let Some(headers) = value.as_object() else { return Err("`headers` must be an object".into()) };
        for (name, value) in headers {
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for value in values {
                let value = text(&format!("headers.{name}"), value)?;
                self.headers.0.push((name.to_ascii_lowercase(), value.to_owned()));
            }
        }
        Ok(())
    }

    /// Facts that headers hold too are taken from there, so that `--header content-type:…` is enough.
    fn completed(mut self) -> Self {
        if let Some(value) = self.headers.header("content-type") {
            self.content_type = essence(&value).into_owned();
        }
        let length = self.headers.header("content-length").and_then(|v| v.trim().parse().ok());
        self.size = self.size.or(length);
        self
    }

    fn facts(&self, method: &str) -> ResponseFacts<'_> {
        ResponseFacts {
            status: self.status.unwrap_or(200),
            content_type: &self.content_type,
            size: self.size,
            headers: &self.headers,
            content: if method == "HEAD" { Content::HeadOnly } else { Content::Possible },
        }
    }
}

/// Keys of the facts, for a word that is none of them.
const KEYS: [&str; 12] = [
    "url",
    "crawler",
    "method",
    "depth",
    "referer",
    "dest",
    "tunnel",
    "address",
    "status",
    "content_type",
    "size",
    "headers",
];

fn unknown(key: &str) -> String {
    format!("unknown key `{key}`: known are {}", KEYS.join(", "))
}

fn text<'a>(key: &str, value: &'a Json) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("`{key}` must be text"))
}

fn number(key: &str, value: &Json) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("`{key}` must be a whole number"))
}

fn boolean(key: &str, value: &Json) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("`{key}` must be true or false"))
}

fn status(value: &Json) -> Result<u16, String> {
    let number = value.as_u64().and_then(|n| u16::try_from(n).ok());
    number.filter(|n| (100..=999).contains(n)).ok_or_else(|| "`status` must be 100 to 999".into())
}

fn dest(value: &Json) -> Result<Dest, String> {
    let word = text("dest", value)?;
    Dest::from_word(word).ok_or_else(|| "`dest` must be navigation or embed".into())
}

fn address(value: &Json) -> Result<IpAddr, String> {
    text("address", value)?.parse().map_err(|_| "`address` must be an IP address".into())
}
