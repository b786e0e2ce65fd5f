//! `GET /api/v1/urls`: records page by page, or those of one URL; `GET /api/v1/urls/{key}`: one record.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiError, ApiResult};
use crate::admin::query::{
    DEFAULT_LIMIT, parse_limit, parse_query, reject_duplicates, unknown_parameter,
};
use crate::admin::response::{self, problem};
use crate::ledger::filter::{LedgerFilter, read_page};
use crate::ledger::key::LedgerKey;
use crate::ledger::record::LedgerRecord;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::CaseFacts;
use crate::report::{record, url_filter};
use crate::store::ledger::LedgerUnavailable;
use crate::urls::target::UrlTarget;

use super::{LedgerApi, LedgerReadContext};

/// The parameters of `GET /api/v1/urls`.
#[derive(Debug)]
struct LedgerUrlsQuery {
    after: Option<LedgerKey>,
    limit: usize,
    filter: LedgerFilter,
    /// The URL whose records are returned in place of a page.
    url: Option<UrlTarget>,
    /// The crawler of these records; if `None`, all.
    crawler: Option<String>,
}

impl LedgerApi {
    /// `GET /api/v1/urls`.
    pub(in crate::admin) async fn list_urls(&self, query: Option<&str>) -> ApiResult {
        let query = LedgerUrlsQuery::parse(query)?;
        self.read_blocking(move |context| query.response(context))
            .await
    }

    /// `GET /api/v1/urls/{key}`.
    pub(in crate::admin) async fn show_url(&self, key: &str) -> ApiResult {
        let key = LedgerKey::from_hex(key).ok_or_else(|| {
            ApiError::Invalid("a key has 32 hex digits; the list of URLs shows them".into())
        })?;
        self.read_blocking(move |context| {
            Ok(match context.ledger.try_look_up(key)? {
                Some(record) => response::json(StatusCode::OK, &record::to_json(key, &record)),
                None => problem(StatusCode::NOT_FOUND, "the ledger has no URL with this key"),
            })
        })
        .await
    }
}

impl LedgerUrlsQuery {
    fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut parsed = Self {
            after: None,
            limit: DEFAULT_LIMIT,
            filter: LedgerFilter::default(),
            url: None,
            crawler: None,
        };
        let mut keys = vec!["after", "limit", "url"];
        keys.extend(url_filter::KEYS);
        for (key, value) in reject_duplicates(parse_query(query)?, &keys)? {
            match key.as_str() {
                "after" if value.is_empty() => {}
                "after" => parsed.after = Some(parse_after(&value)?),
                "limit" => parsed.limit = parse_limit(&value)?,
                "url" if value.is_empty() => {}
                "url" => parsed.url = Some(parse_url(&value)?),
                key if !keys.contains(&key) => return Err(unknown_parameter(&keys)),
                key => {
                    url_filter::set(&mut parsed.filter, key, &value).map_err(ApiError::Invalid)?;
                    if key == "crawler" && !value.is_empty() {
                        parsed.crawler = Some(value);
                    }
                }
            }
        }
        Ok(parsed)
    }

    fn response(
        &self,
        context: &LedgerReadContext,
    ) -> Result<Response<Full<Bytes>>, LedgerUnavailable> {
        let (records, next) = match &self.url {
            Some(url) => (
                context.find_records(url, self.crawler.as_deref(), &self.filter)?,
                None,
            ),
            None => {
                let page = read_page(
                    |after, limit| context.ledger.records(after, limit),
                    &self.filter,
                    self.after,
                    self.limit,
                    context.time_check(),
                )?;
                (page.records, page.next)
            }
        };
        let urls: Vec<Json> = records
            .iter()
            .map(|(key, record)| record::to_json(*key, record))
            .collect();
        Ok(response::json(
            StatusCode::OK,
            &json!({ "urls": urls, "next": next.map(|key| key.to_string()) }),
        ))
    }
}

impl LedgerReadContext {
    /// Returns the matching records of a URL, of which each crawler may have one; `crawler` selects one of them.
    pub(super) fn find_records(
        &self,
        url: &UrlTarget,
        crawler: Option<&str>,
        filter: &LedgerFilter,
    ) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, LedgerUnavailable> {
        let crawlers: Vec<&str> = match crawler {
            Some(crawler) => vec![crawler],
            None => self
                .crawlers
                .iter()
                .map(Crawler::as_str)
                .chain([Crawler::ANONYMOUS])
                .collect(),
        };
        let mut records = Vec::new();
        for crawler in crawlers {
            let key = self.url_key(crawler, url);
            if let Some(record) = self.ledger.try_look_up(key)?
                && filter.matches(&record)
            {
                records.push((key, record));
            }
        }
        Ok(records)
    }

    /// Returns the key under which the ledger records a GET of a crawler for a URL.
    fn url_key(&self, crawler: &str, url: &UrlTarget) -> LedgerKey {
        let facts = json!({ "url": url.as_str(), "crawler": crawler });
        let facts = facts
            .as_object()
            .and_then(|facts| CaseFacts::from_json(facts).ok());
        match facts {
            Some(facts) => {
                let evaluation = OfflineEvaluation::new(&self.policy, &facts, Profile::Generic);
                LedgerKey::for_url(crawler, &self.policy.key_url(&evaluation.trail, url))
            }
            None => LedgerKey::for_url(crawler, url.as_str()),
        }
    }
}

pub(super) fn parse_after(text: &str) -> Result<LedgerKey, ApiError> {
    LedgerKey::from_hex(text)
        .ok_or_else(|| ApiError::Invalid("`after` is a key, as `next` of a response is".into()))
}

pub(super) fn parse_url(text: &str) -> Result<UrlTarget, ApiError> {
    UrlTarget::parse(text).map_err(|_| {
        ApiError::Invalid("`url` is a whole URL, such as http://www.example.com/a".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_or_refused() {
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
            ("error=permanent&not_seen_since=2026-01-01", true),
            ("error=404", false),
            ("not_seen_since=7d", false),
            ("Host=a.test", false),
            ("page=1", false),
        ] {
            assert_eq!(LedgerUrlsQuery::parse(Some(query)).is_ok(), fits, "{query}");
        }
    }
}
