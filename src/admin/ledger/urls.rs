//! `GET /api/v1/urls`: records page by page, or those of one URL; `GET /api/v1/urls/{key}`: one record.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::page::{self, problem};
use crate::admin::query::{Mistake, parameters, single};
use crate::gate::trial::Trial;
use crate::ledger::key::Key;
use crate::ledger::record::Record;
use crate::ledger::sought::{Sought, piece};
use crate::policy::cases::CaseFacts;
use crate::report::record;
use crate::store::ledger::Failed;
use crate::vocab::crawler::Crawler;
use crate::vocab::profile::Profile;
use crate::vocab::target::UrlTarget;

use super::{LedgerApi, Look, USUAL, limit};

/// What is asked for.
#[derive(Debug)]
struct Asked {
    after: Option<Key>,
    limit: usize,
    sought: Sought,
    /// The URL whose records are asked for, and for which crawler.
    url: Option<UrlTarget>,
    crawler: Option<String>,
}

impl LedgerApi {
    /// `GET /api/v1/urls`.
    pub(in crate::admin) async fn urls(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        match Asked::read(query) {
            Ok(asked) => self.look(move |look| asked.answer(look)).await,
            Err(mistake) => mistake.answer(),
        }
    }

    /// `GET /api/v1/urls/{key}`.
    pub(in crate::admin) async fn url(&self, key: &str) -> Response<Full<Bytes>> {
        let Some(key) = Key::from_hex(key) else {
            return Mistake("a key has 32 hex digits; the list of URLs shows them".into()).answer();
        };
        self.look(move |look| {
            Ok(match look.ledger.find(key)? {
                Some(found) => page::json(StatusCode::OK, &record::to_json(key, &found)),
                None => problem(StatusCode::NOT_FOUND, "no URL is remembered under this key"),
            })
        })
        .await
    }
}

impl Asked {
    fn read(query: Option<&str>) -> Result<Self, Mistake> {
        let mut asked = Self {
            after: None,
            limit: USUAL,
            sought: Sought::default(),
            url: None,
            crawler: None,
        };
        let mut keys = vec!["after", "limit", "url"];
        keys.extend(Sought::KEYS);
        for (key, value) in single(parameters(query)?, &keys)? {
            match key.as_str() {
                "after" if value.is_empty() => {}
                "after" => asked.after = Some(after(&value)?),
                "limit" => asked.limit = limit(&value)?,
                "url" if value.is_empty() => {}
                "url" => asked.url = Some(url(&value)?),
                key if !keys.contains(&key) => return Err(unknown(&keys)),
                key => {
                    asked
                        .sought
                        .set(key, &value)
                        .map_err(|error| Mistake(error.to_string()))?;
                    if key == "crawler" && !value.is_empty() {
                        asked.crawler = Some(value);
                    }
                }
            }
        }
        Ok(asked)
    }

    fn answer(&self, look: &Look) -> Result<Response<Full<Bytes>>, Failed> {
        let (found, next) = match &self.url {
            Some(url) => (self.records_of(url, look)?, None),
            None => {
                let read = |after, most| look.ledger.records(after, most);
                let piece = piece(read, &self.sought, self.after, self.limit, look.time())?;
                (piece.found, piece.next)
            }
        };
        let urls: Vec<Json> = found
            .iter()
            .map(|(key, found)| record::to_json(*key, found))
            .collect();
        Ok(page::json(
            StatusCode::OK,
            &json!({ "urls": urls, "next": next.map(|key| key.to_string()) }),
        ))
    }

    /// Each crawler has a record of its own.
    fn records_of(&self, url: &UrlTarget, look: &Look) -> Result<Vec<(Key, Arc<Record>)>, Failed> {
        let all = || {
            look.crawlers
                .iter()
                .map(Crawler::as_str)
                .chain([Crawler::ANONYMOUS])
        };
        let crawlers: Vec<&str> = match &self.crawler {
            Some(crawler) => vec![crawler],
            None => all().collect(),
        };
        let keys = crawlers.into_iter().map(|crawler| look.key(crawler, url));
        let found = keys.map(|key| Ok(look.ledger.find(key)?.map(|found| (key, found))));
        let found: Vec<Option<(Key, Arc<Record>)>> = found.collect::<Result<_, Failed>>()?;
        Ok(found
            .into_iter()
            .flatten()
            .filter(|(_, found)| self.sought.fits(found))
            .collect())
    }
}

impl Look {
    /// Under which key a GET for a URL is kept for a crawler.
    fn key(&self, crawler: &str, url: &UrlTarget) -> Key {
        let facts = json!({ "url": url.as_str(), "crawler": crawler });
        let facts = facts
            .as_object()
            .and_then(|facts| CaseFacts::from_json(facts).ok());
        match (&self.policy, facts) {
            (Some(policy), Some(facts)) => {
                let trial = Trial::new(policy, &facts, Profile::Generic);
                Key::of_url(crawler, &policy.key_url(&trial.trail, url))
            }
            (None, _) | (_, None) => Key::of_url(crawler, url.as_str()),
        }
    }
}

fn after(text: &str) -> Result<Key, Mistake> {
    Key::from_hex(text).ok_or_else(|| Mistake("`after` is a key, as `next` of an answer is".into()))
}

fn url(text: &str) -> Result<UrlTarget, Mistake> {
    UrlTarget::parse(text)
        .map_err(|_| Mistake("`url` is a whole URL, such as http://www.example.com/a".into()))
}

fn unknown(keys: &[&str]) -> Mistake {
    Mistake(format!(
        "there is no such parameter; allowed: {}",
        keys.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_or_refused() {
        for (query, fits) in [
            ("", true),
            (
                "after=&limit=1000&host=*.a.test&status=ACCEPTED&code=&known=true",
                true,
            ),
            (
                "after=000000000000000000000000000000ff&prefix=http%3A%2F%2Fa.test",
                true,
            ),
            ("url=http%3A%2F%2Fa.test%2F&crawler=news", true),
            ("after=ff", false),
            ("limit=0", false),
            ("limit=1001", false),
            ("limit=1&limit=1", false),
            ("host=a.test&host=b.test", false),
            ("url=a.test", false),
            ("known=maybe", false),
            ("Host=a.test", false),
            ("page=1", false),
        ] {
            assert_eq!(Asked::read(Some(query)).is_ok(), fits, "{query}");
        }
    }
}
