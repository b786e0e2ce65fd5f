//! The robots.txt files of a host as JSON, with the line that decides about a URL.

use serde_json::{Value as Json, json};

use crate::admin::api_request::ApiError;
use crate::admin::query::{parse_query, reject_duplicates, unknown_parameter};
use crate::clock::Rfc3339;
use crate::model::certificate_verification::CertificateVerification;
use crate::pipeline::robots_fetch::inspection::{RobotsFileStatus, RobotsFileText};
use crate::urls::target::UrlTarget;

use super::host::ceil_millis;
use super::selector::HostSelector;

/// The agent if none is given.
const ANY_AGENT: &str = "*";
const KEYS: [&str; 2] = ["url", "agent"];
/// The most files of one response.
const MAX_FILES: usize = 16;
/// The most bytes of all texts together.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The agent and the target of the decision that is shown.
#[derive(Debug)]
pub(super) struct HostRobotsQuery {
    agent: String,
    target: RobotsQueryTarget,
}

#[derive(Debug)]
enum RobotsQueryTarget {
    Nothing,
    /// A URL, to which only one file applies.
    Url(UrlTarget),
    /// A path and query, to which each file applies.
    Path(String),
}

impl HostRobotsQuery {
    /// Parses `url`, which may be a path that begins with `/`, and `agent`.
    pub(super) fn parse(query: Option<&str>, selector: &HostSelector) -> Result<Self, ApiError> {
        let mut parsed = Self {
            agent: ANY_AGENT.into(),
            target: RobotsQueryTarget::Nothing,
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &KEYS)? {
            match key.as_str() {
                "agent" | "url" if value.is_empty() => {}
                "agent" => parsed.agent = value,
                "url" => parsed.target = RobotsQueryTarget::parse(&value, selector)?,
                _ => return Err(unknown_parameter(&KEYS)),
            }
        }
        Ok(parsed)
    }

    /// Returns the path and query to look up in a file, and their whole URL.
    fn target_in<'q>(&'q self, file: &RobotsFileStatus) -> Option<(&'q str, String)> {
        let base = file.base_url();
        match &self.target {
            RobotsQueryTarget::Nothing => None,
            RobotsQueryTarget::Url(url) if url.base() == base => {
                Some((url.path_and_query(), url.as_str().to_owned()))
            }
            RobotsQueryTarget::Url(_) => None,
            RobotsQueryTarget::Path(path) => {
                Some((path, format!("{}{path}", base.trim_end_matches('/'))))
            }
        }
    }
}

impl RobotsQueryTarget {
    fn parse(text: &str, selector: &HostSelector) -> Result<Self, ApiError> {
        if text.starts_with('/') {
            let url = parse_url(&format!("http://x{text}"))?;
            return Ok(Self::Path(url.path_and_query().to_owned()));
        }
        let url = parse_url(text)?;
        if url.host() != selector.host {
            return Err(ApiError::Invalid("`url` is of another host".into()));
        }
        Ok(Self::Url(url))
    }
}

fn parse_url(text: &str) -> Result<UrlTarget, ApiError> {
    UrlTarget::parse(text).map_err(|error| ApiError::Invalid(format!("`url`: {error}")))
}

/// Returns the first files of a host, and as many of their texts as fit. Both are bounded, since the operator of a host
/// may serve a file on each of its ports.
pub(super) fn files_to_json(files: &[RobotsFileStatus], query: &HostRobotsQuery) -> Json {
    let mut bytes_left = MAX_TEXT_BYTES;
    files
        .iter()
        .take(MAX_FILES)
        .map(|file| file_to_json(file, query, &mut bytes_left))
        .collect()
}

fn file_to_json(
    status: &RobotsFileStatus,
    query: &HostRobotsQuery,
    bytes_left: &mut usize,
) -> Json {
    let file = status.file.as_ref();
    let text = file.map(RobotsFileText::text);
    let size = text.as_ref().map(|text| text.len());
    let remaining = bytes_left.checked_sub(size.unwrap_or(0));
    *bytes_left = remaining.unwrap_or(*bytes_left);
    let target = query.target_in(status);
    json!({
        "scheme": status.scheme,
        "authority": status.authority,
        "verified": status.verify == CertificateVerification::On,
        "status": status.status,
        "outcome": status.outcome,
        "http_status": status.http_status,
        "fetched_at": Rfc3339(status.fetched).to_string(),
        "fresh_until": Rfc3339(status.fresh_until).to_string(),
        "size": size,
        "crawl_delay_ms": file.and_then(|file| file.crawl_delay(&query.agent)).map(ceil_millis),
        "sitemaps": file.map(RobotsFileText::sitemaps).unwrap_or_default(),
        "text": text.filter(|_| remaining.is_some()).map(|text| String::from_utf8_lossy(&text).into_owned()),
        "cut": remaining.is_none(),
        "agent": query.agent,
        "ruling": target.and_then(|(path, url)| ruling_to_json(file?, &query.agent, path, &url)),
    })
}

/// Returns the decision of a file. Without a usable file it is `null`: `status` shows then if everything is allowed, or
/// nothing until the file is available.
fn ruling_to_json(
    file: &RobotsFileText,
    agent: &str,
    path_and_query: &str,
    url: &str,
) -> Option<Json> {
    let decision = file.ruling(agent, path_and_query)?;
    let (line, rule) = decision.cause.unzip();
    Some(
        json!({ "url": url, "allow": decision.allow, "line": line, "rule": rule, "group": decision.group }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_must_be_of_the_selected_host() {
        let selector = HostSelector::parse("a.test").unwrap();
        for (query, fits) in [
            ("", true),
            ("url=&agent=", true),
            ("url=http%3A%2F%2FA.test%2Fx%3Fy&agent=news-bot", true),
            ("url=https://a.test:8443/", true),
            ("url=/x%3Fy", true),
            ("url=http://b.test/", false),
            ("url=a.test/x", false),
            ("url=ftp://a.test/", false),
            ("URL=/", false),
            ("url=%zz", false),
            ("url=/x&url=/y", false),
            ("agent=a&agent=a", false),
        ] {
            assert_eq!(
                HostRobotsQuery::parse(Some(query), &selector).is_ok(),
                fits,
                "{query}"
            );
        }
    }
}
