//! `GET /api/v1/urls`: records page by page, or those of one URL; `GET /api/v1/urls/{key}`: one record.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::query::{ParameterError, parse_query, reject_duplicates};
use crate::admin::response::{self, problem};
use crate::ledger::filter::{LedgerFilter, read_page};
use crate::ledger::key::LedgerKey;
use crate::ledger::record::LedgerRecord;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::CaseFacts;
use crate::report::record;
use crate::store::ledger::LedgerUnavailable;
use crate::urls::target::UrlTarget;

use super::{DEFAULT_LIMIT, LedgerApi, LedgerReadContext, parse_limit};

/// What is asked for.
#[derive(Debug)]
struct LedgerUrlsQuery {
    after: Option<LedgerKey>,
    limit: usize,
    filter: LedgerFilter,
    /// The URL whose records are asked for, and for which crawler.
    url: Option<UrlTarget>,
    crawler: Option<String>,
}

impl LedgerApi {
    /// `GET /api/v1/urls`.
    pub(crate) async fn list_urls(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        match LedgerUrlsQuery::parse(query) {
            Ok(asked) => self.read_blocking(move |look| asked.response(look)).await,
            Err(mistake) => mistake.to_response(),
        }
    }

    /// `GET /api/v1/urls/{key}`.
    pub(crate) async fn show_url(&self, key: &str) -> Response<Full<Bytes>> {
        let Some(key) = LedgerKey::from_hex(key) else {
            return ParameterError("a key has 32 hex digits; the list of URLs shows them".into())
                .to_response();
        };
        self.read_blocking(move |look| {
            Ok(match look.ledger.try_look_up(key)? {
                Some(found) => response::json(StatusCode::OK, &record::to_json(key, &found)),
                None => problem(StatusCode::NOT_FOUND, "no URL is remembered under this key"),
            })
        })
        .await
    }
}

impl LedgerUrlsQuery {
    fn parse(query: Option<&str>) -> Result<Self, ParameterError> {
        let mut asked = Self {
            after: None,
            limit: DEFAULT_LIMIT,
            filter: LedgerFilter::default(),
            url: None,
            crawler: None,
        };
        let mut keys = vec!["after", "limit", "url"];
        keys.extend(LedgerFilter::KEYS);
        for (key, value) in reject_duplicates(parse_query(query)?, &keys)? {
            match key.as_str() {
                "after" if value.is_empty() => {}
                "after" => asked.after = Some(parse_after(&value)?),
                "limit" => asked.limit = parse_limit(&value)?,
                "url" if value.is_empty() => {}
                "url" => asked.url = Some(parse_url(&value)?),
                key if !keys.contains(&key) => return Err(unknown_parameter(&keys)),
                key => {
                    asked
                        .filter
                        .set(key, &value)
                        .map_err(|error| ParameterError(error.to_string()))?;
                    if key == "crawler" && !value.is_empty() {
                        asked.crawler = Some(value);
                    }
                }
            }
        }
        Ok(asked)
    }

    fn response(
        &self,
        context: &LedgerReadContext,
    ) -> Result<Response<Full<Bytes>>, LedgerUnavailable> {
        let (found, next) = match &self.url {
            Some(url) => (self.find_records(url, context)?, None),
            None => {
                let read = |after, most| context.ledger.records(after, most);
                let piece = read_page(
                    read,
                    &self.filter,
                    self.after,
                    self.limit,
                    context.time_check(),
                )?;
                (piece.records, piece.next)
            }
        };
        let urls: Vec<Json> = found
            .iter()
            .map(|(key, found)| record::to_json(*key, found))
            .collect();
        Ok(response::json(
            StatusCode::OK,
            &json!({ "urls": urls, "next": next.map(|key| key.to_string()) }),
        ))
    }

    /// Each crawler has a record of its own.
    fn find_records(
        &self,
        url: &UrlTarget,
        context: &LedgerReadContext,
    ) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, LedgerUnavailable> {
        let all = || {
            context
                .crawlers
                .iter()
                .map(Crawler::as_str)
                .chain([Crawler::ANONYMOUS])
        };
        let crawlers: Vec<&str> = match &self.crawler {
            Some(crawler) => vec![crawler],
            None => all().collect(),
        };
        let keys = crawlers
            .into_iter()
            .map(|crawler| context.url_key(crawler, url));
        let found = keys.map(|key| Ok(context.ledger.try_look_up(key)?.map(|found| (key, found))));
        let found: Vec<Option<(LedgerKey, Arc<LedgerRecord>)>> =
            found.collect::<Result<_, LedgerUnavailable>>()?;
        Ok(found
            .into_iter()
            .flatten()
            .filter(|(_, found)| self.filter.matches(found))
            .collect())
    }
}

impl LedgerReadContext {
    /// Under which key a GET for a URL is kept for a crawler.
    fn url_key(&self, crawler: &str, url: &UrlTarget) -> LedgerKey {
        let facts = json!({ "url": url.as_str(), "crawler": crawler });
        let facts = facts
            .as_object()
            .and_then(|facts| CaseFacts::from_json(facts).ok());
        match (&self.policy, facts) {
            (Some(policy), Some(facts)) => {
                let trial = OfflineEvaluation::new(policy, &facts, Profile::Generic);
                LedgerKey::for_url(crawler, &policy.key_url(&trial.trail, url))
            }
            (None, _) | (_, None) => LedgerKey::for_url(crawler, url.as_str()),
        }
    }
}

fn parse_after(text: &str) -> Result<LedgerKey, ParameterError> {
    LedgerKey::from_hex(text)
        .ok_or_else(|| ParameterError("`after` is a key, as `next` of an answer is".into()))
}

fn parse_url(text: &str) -> Result<UrlTarget, ParameterError> {
    UrlTarget::parse(text).map_err(|_| {
        ParameterError("`url` is a whole URL, such as http://www.example.com/a".into())
    })
}

fn unknown_parameter(keys: &[&str]) -> ParameterError {
    ParameterError(format!(
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
            assert_eq!(LedgerUrlsQuery::parse(Some(query)).is_ok(), fits, "{query}");
        }
    }
}
