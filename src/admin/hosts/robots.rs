//! What is known of a host's robots.txt as JSON, and which line decides a URL.

use serde_json::{Value as Json, json};

use crate::admin::query::{Mistake, parameters, single};
use crate::clock::Rfc3339;
use crate::gate::robots::seen::{RobotsSeen, Text};
use crate::vocab::target::UrlTarget;
use crate::vocab::verify::Verify;

use super::host::ms;
use super::name::Name;

/// For whom robots.txt is asked if no agent is named.
const EVERYBODY: &str = "*";
/// The most files that are shown.
const FILES: usize = 16;
/// Bytes of all their texts together.
const TEXTS: usize = 1 << 20;

/// What robots.txt is asked for.
#[derive(Debug)]
pub(super) struct Judged {
    agent: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Nothing,
    /// A URL, which one file alone speaks of.
    Url(UrlTarget),
    /// A path and query, of each file.
    Path(String),
}

impl Judged {
    /// Reads `url` (or a path that begins with `/`) and `agent`.
    pub(super) fn read(query: Option<&str>, name: &Name) -> Result<Self, Mistake> {
        let mut judged = Self {
            agent: EVERYBODY.into(),
            what: What::Nothing,
        };
        for (key, value) in single(parameters(query)?, &["url", "agent"])? {
            match key.as_str() {
                "agent" | "url" if value.is_empty() => {}
                "agent" => judged.agent = value,
                "url" => judged.what = What::read(&value, name)?,
                _ => {
                    return Err(Mistake(
                        "there is no such parameter; allowed: url, agent".into(),
                    ));
                }
            }
        }
        Ok(judged)
    }

    /// The path and query that a file is asked for, and the URL that this is.
    fn of<'j>(&'j self, file: &RobotsSeen) -> Option<(&'j str, String)> {
        let base = file.base();
        match &self.what {
            What::Nothing => None,
            What::Url(url) if url.base() == base => {
                Some((url.path_and_query(), url.as_str().to_owned()))
            }
            What::Url(_) => None,
            What::Path(path) => Some((path, format!("{}{path}", base.trim_end_matches('/')))),
        }
    }
}

impl What {
    fn read(text: &str, name: &Name) -> Result<Self, Mistake> {
        let parse = |url: &str| {
            UrlTarget::parse(url).map_err(|mistake| Mistake(format!("`url`: {mistake}")))
        };
        if text.starts_with('/') {
            return Ok(Self::Path(
                parse(&format!("http://x{text}"))?
                    .path_and_query()
                    .to_owned(),
            ));
        }
        let url = parse(text)?;
        match url.host() == name.host {
            true => Ok(Self::Url(url)),
            false => Err(Mistake("`url` is of another host".into())),
        }
    }
}

/// The files of a host: the first of them, and no more of their texts than there is room for. Who runs a host may have a
/// file on each of its ports.
pub(super) fn shown(files: &[RobotsSeen], judged: &Judged) -> Json {
    let mut room = TEXTS;
    files
        .iter()
        .take(FILES)
        .map(|file| one(file, judged, &mut room))
        .collect()
}

fn one(seen: &RobotsSeen, judged: &Judged, room: &mut usize) -> Json {
    let file = seen.file.as_ref();
    let text = file.map(Text::text);
    let size = text.as_ref().map(|text| text.len());
    let left = room.checked_sub(size.unwrap_or(0));
    *room = left.unwrap_or(*room);
    let asked = judged.of(seen);
    json!({
        "scheme": seen.scheme,
        "authority": seen.authority,
        "verified": seen.verify == Verify::On,
        "status": seen.status,
        "outcome": seen.outcome,
        "http_status": seen.http_status,
        "fetched_at": Rfc3339(seen.fetched).to_string(),
        "fresh_until": Rfc3339(seen.fresh_until).to_string(),
        "size": size,
        "crawl_delay_ms": file.and_then(|file| file.crawl_delay(&judged.agent)).map(ms),
        "sitemaps": file.map(Text::sitemaps).unwrap_or_default(),
        "text": text.filter(|_| left.is_some()).map(|text| String::from_utf8_lossy(&text).into_owned()),
        "cut": left.is_none(),
        "agent": judged.agent,
        "ruling": asked.and_then(|(path, url)| ruling(file?, &judged.agent, path, &url)),
    })
}

/// Only where a file holds; without one `status` says whether everything is allowed, or nothing until it can be had.
fn ruling(file: &Text, agent: &str, path_and_query: &str, url: &str) -> Option<Json> {
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
        let name = Name::read("a.test").unwrap();
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
            assert_eq!(Judged::read(Some(query), &name).is_ok(), fits, "{query}");
        }
    }
}
