//! What is known of a host's robots.txt as JSON, and which line decides a URL.

use serde_json::{Value as Json, json};

use crate::admin::query::{ParameterError, parse_query, reject_duplicates};
use crate::clock::Rfc3339;
use crate::model::certificate_verification::CertificateVerification;
use crate::pipeline::robots_fetch::inspection::{RobotsFileStatus, RobotsFileText};
use crate::urls::target::UrlTarget;

use super::host::ceil_millis;
use super::selector::HostSelector;

/// For whom robots.txt is asked if no agent is named.
const ANY_AGENT: &str = "*";
/// The most files that are shown.
const MAX_FILES: usize = 16;
/// Bytes of all their texts together.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// What robots.txt is asked for.
#[derive(Debug)]
pub(super) struct HostRobotsQuery {
    agent: String,
    target: RobotsQueryTarget,
}

#[derive(Debug)]
enum RobotsQueryTarget {
    Nothing,
    /// A URL, which one file alone speaks of.
    Url(UrlTarget),
    /// A path and query, of each file.
    Path(String),
}

impl HostRobotsQuery {
    /// Reads `url` (or a path that begins with `/`) and `agent`.
    pub(super) fn parse(
        query: Option<&str>,
        selector: &HostSelector,
    ) -> Result<Self, ParameterError> {
        let mut judged = Self {
            agent: ANY_AGENT.into(),
            target: RobotsQueryTarget::Nothing,
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &["url", "agent"])? {
            match key.as_str() {
                "agent" | "url" if value.is_empty() => {}
                "agent" => judged.agent = value,
                "url" => judged.target = RobotsQueryTarget::parse(&value, selector)?,
                _ => {
                    return Err(ParameterError(
                        "there is no such parameter; allowed: url, agent".into(),
                    ));
                }
            }
        }
        Ok(judged)
    }

    /// The path and query that a file is asked for, and the URL that this is.
    fn target_in<'j>(&'j self, file: &RobotsFileStatus) -> Option<(&'j str, String)> {
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
    fn parse(text: &str, selector: &HostSelector) -> Result<Self, ParameterError> {
        let parse = |url: &str| {
            UrlTarget::parse(url).map_err(|mistake| ParameterError(format!("`url`: {mistake}")))
        };
        if text.starts_with('/') {
            return Ok(Self::Path(
                parse(&format!("http://x{text}"))?
                    .path_and_query()
                    .to_owned(),
            ));
        }
        let url = parse(text)?;
        match url.host() == selector.host {
            true => Ok(Self::Url(url)),
            false => Err(ParameterError("`url` is of another host".into())),
        }
    }
}

/// The files of a host: the first of them, and no more of their texts than there is room for. Who runs a host may have a
/// file on each of its ports.
pub(super) fn files_to_json(files: &[RobotsFileStatus], query: &HostRobotsQuery) -> Json {
    let mut room = MAX_TEXT_BYTES;
    files
        .iter()
        .take(MAX_FILES)
        .map(|file| file_to_json(file, query, &mut room))
        .collect()
}

fn file_to_json(seen: &RobotsFileStatus, query: &HostRobotsQuery, room: &mut usize) -> Json {
    let file = seen.file.as_ref();
    let text = file.map(RobotsFileText::text);
    let size = text.as_ref().map(|text| text.len());
    let left = room.checked_sub(size.unwrap_or(0));
    *room = left.unwrap_or(*room);
    let asked = query.target_in(seen);
    json!({
        "scheme": seen.scheme,
        "authority": seen.authority,
        "verified": seen.verify == CertificateVerification::On,
        "status": seen.status,
        "outcome": seen.outcome,
        "http_status": seen.http_status,
        "fetched_at": Rfc3339(seen.fetched).to_string(),
        "fresh_until": Rfc3339(seen.fresh_until).to_string(),
        "size": size,
        "crawl_delay_ms": file.and_then(|file| file.crawl_delay(&query.agent)).map(ceil_millis),
        "sitemaps": file.map(RobotsFileText::sitemaps).unwrap_or_default(),
        "text": text.filter(|_| left.is_some()).map(|text| String::from_utf8_lossy(&text).into_owned()),
        "cut": left.is_none(),
        "agent": query.agent,
        "ruling": asked.and_then(|(path, url)| ruling_to_json(file?, &query.agent, path, &url)),
    })
}

/// Only where a file holds; without one `status` says whether everything is allowed, or nothing until it can be had.
fn ruling_to_json(
    file: &RobotsFileText,
    agent: &str,
    path_and_query: &str,
    url: &str,
) -> Option<Json> {
    let ruling = file.ruling(agent, path_and_query)?;
    let (line, rule) = ruling.cause.unzip();
    Some(
        json!({ "url": url, "allow": ruling.allow, "line": line, "rule": rule, "group": ruling.group }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_judged_is_of_that_host() {
        let name = HostSelector::parse("a.test").unwrap();
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
                HostRobotsQuery::parse(Some(query), &name).is_ok(),
                fits,
                "{query}"
            );
        }
    }
}
