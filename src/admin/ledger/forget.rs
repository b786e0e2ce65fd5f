//! `POST /api/v1/ledger/forget`: deletes the records of a URL, of a host, or of the URLs that begin with a text.
//!
//! A request deletes at most a page of records, and `next` of the response continues it. Once the response is sent, the
//! deletion is on disk.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::admin::api_request::{ApiError, ApiResult, RequestBody, read_object};
use crate::admin::query::MAX_LIMIT;
use crate::admin::response;
use crate::ledger::filter::{LedgerFilter, RecordPage, read_page};
use crate::ledger::key::LedgerKey;
use crate::store::ledger::LedgerUnavailable;
use crate::urls::target::UrlTarget;

use super::urls::{parse_after, parse_url};
use super::{LedgerApi, LedgerReadContext};

/// The longest body, which may contain a URL.
const MAX_BODY_BYTES: usize = 64 << 10;
/// The time limit for writing the deletions to disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of a request. One of `url`, `host` and `prefix` is given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct LedgerForgetRequest {
    #[serde(default, deserialize_with = "present_text")]
    url: Option<String>,
    #[serde(default, deserialize_with = "present_text")]
    host: Option<String>,
    #[serde(default, deserialize_with = "present_text")]
    prefix: Option<String>,
    #[serde(default, deserialize_with = "present_text")]
    crawler: Option<String>,
    #[serde(default, deserialize_with = "present_text")]
    after: Option<String>,
    dry_run: bool,
}

/// Reads a key that is present: null is no value.
fn present_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// The records to delete.
struct LedgerForgetQuery {
    /// The URL, whose records are found by their keys.
    url: Option<UrlTarget>,
    filter: LedgerFilter,
    crawler: Option<String>,
    after: Option<LedgerKey>,
    dry_run: bool,
    /// The selection in words, for the log.
    description: String,
}

impl LedgerApi {
    /// `POST /api/v1/ledger/forget`.
    pub(in crate::admin) async fn forget(&self, body: RequestBody) -> ApiResult {
        let content = "with `dry_run` and one of `url`, `host` and `prefix`";
        let request = read_object(body, MAX_BODY_BYTES, content).await?;
        let query = LedgerForgetQuery::new(request)?;
        let deletes = !query.dry_run;
        let response = self
            .read_blocking(move |context| query.response(context))
            .await?;
        if deletes && response.status() == StatusCode::OK && !self.flush().await {
            return Ok(super::ledger_unavailable());
        }
        Ok(response)
    }

    /// Waits until the changes are on disk. Returns `false` if that takes too long.
    pub(super) async fn flush(&self) -> bool {
        match self.ledger.get() {
            Some(ledger) => tokio::time::timeout(FLUSH_TIMEOUT, ledger.flush())
                .await
                .is_ok(),
            None => true,
        }
    }
}

impl LedgerForgetQuery {
    fn new(request: LedgerForgetRequest) -> Result<Self, ApiError> {
        let subjects = [
            ("url", &request.url),
            ("host", &request.host),
            ("prefix", &request.prefix),
        ];
        let mut given = subjects.into_iter().filter_map(|(key, value)| {
            let value = value.as_deref().filter(|value| !value.is_empty())?;
            Some((key, value))
        });
        let (Some((key, value)), None) = (given.next(), given.next()) else {
            let message = "exactly one of `url`, `host` and `prefix` is needed";
            return Err(ApiError::Invalid(message.into()));
        };
        let mut filter = LedgerFilter::default();
        let url = if key == "url" {
            Some(parse_url(value)?)
        } else {
            set_filter(&mut filter, key, value)?;
            None
        };
        let mut description = format!("{key} {value:?}");
        if let Some(crawler) = &request.crawler {
            set_filter(&mut filter, "crawler", crawler)?;
            description.push_str(&format!(" of crawler {crawler:?}"));
        }
        Ok(Self {
            url,
            filter,
            after: request.after.as_deref().map(parse_after).transpose()?,
            crawler: request.crawler.filter(|name| !name.is_empty()),
            dry_run: request.dry_run,
            description,
        })
    }

    fn response(
        &self,
        context: &LedgerReadContext,
    ) -> Result<Response<Full<Bytes>>, LedgerUnavailable> {
        let page = self.find_page(context)?;
        let count = if self.dry_run {
            page.records.len()
        } else {
            self.delete(context, &page)?
        };
        Ok(response::json(
            StatusCode::OK,
            &json!({
                "dry_run": self.dry_run,
                "urls": count,
                "next": page.next.map(|key| key.to_string()),
            }),
        ))
    }

    fn find_page(&self, context: &LedgerReadContext) -> Result<RecordPage, LedgerUnavailable> {
        match &self.url {
            Some(url) => Ok(RecordPage {
                records: context.find_records(url, self.crawler.as_deref(), &self.filter)?,
                next: None,
            }),
            None => read_page(
                |after, limit| context.ledger.records(after, limit),
                &self.filter,
                self.after,
                MAX_LIMIT,
                context.time_check(),
            ),
        }
    }

    /// Deletes the records of a page, and returns their number.
    fn delete(
        &self,
        context: &LedgerReadContext,
        page: &RecordPage,
    ) -> Result<usize, LedgerUnavailable> {
        let mut count = 0;
        for (key, _) in &page.records {
            count += usize::from(context.ledger.forget(*key, &self.filter)?);
        }
        if count > 0 {
            tracing::warn!(
                urls = count,
                "records of the ledger are deleted: {}",
                self.description
            );
        }
        Ok(count)
    }
}

fn set_filter(filter: &mut LedgerFilter, key: &str, value: &str) -> Result<(), ApiError> {
    filter
        .set(key, value)
        .map_err(|error| ApiError::Invalid(error.to_string()))
}
