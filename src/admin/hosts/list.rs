//! The list of hosts, filtered, sorted and limited.

use std::cmp::Ordering;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::api_request::ApiError;
use crate::admin::fleet::FleetApi;
use crate::admin::query::{
    DEFAULT_LIMIT, parse_limit, parse_query, parse_word, reject_duplicates, unknown_parameter,
};
use crate::admin::response;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::admission::host_status::HostStatus;

use super::host::row_to_json;

/// The parameters of `GET /api/v1/hosts`.
#[derive(Debug)]
pub(super) struct HostListQuery {
    sort: HostSort,
    limit: usize,
    /// A part of the names, in lower case.
    substring: String,
}

/// The sort order. Names break ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostSort {
    /// Most waiting requests first.
    Waiting,
    /// Earliest next request first.
    Next,
    /// Longest backoff first.
    Rest,
    Name,
}

const KEYS: [&str; 3] = ["sort", "limit", "q"];

const SORT_KEYS: [(&str, HostSort); 4] = [
    ("waiting", HostSort::Waiting),
    ("next", HostSort::Next),
    ("rest", HostSort::Rest),
    ("name", HostSort::Name),
];

impl HostSort {
    fn compare(self, one: &HostStatus, other: &HostStatus) -> Ordering {
        let order = match self {
            Self::Waiting => other.waiting.cmp(&one.waiting),
            Self::Next => one.next_in.cmp(&other.next_in),
            Self::Rest => {
                let remaining = other.backoff.map(|backoff| backoff.remaining);
                remaining.cmp(&one.backoff.map(|backoff| backoff.remaining))
            }
            Self::Name => Ordering::Equal,
        };
        order.then_with(|| one.name.cmp(&other.name))
    }
}

impl HostListQuery {
    /// Parses `sort`, `limit` and `q`.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut parsed = Self {
            sort: HostSort::Waiting,
            limit: DEFAULT_LIMIT,
            substring: String::new(),
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &KEYS)? {
            match key.as_str() {
                "sort" => parsed.sort = parse_word(&value, "sort", &SORT_KEYS)?,
                "limit" => parsed.limit = parse_limit(&value)?,
                "q" => parsed.substring = value.to_lowercase(),
                _ => return Err(unknown_parameter(&KEYS)),
            }
        }
        Ok(parsed)
    }

    pub(super) fn response(
        &self,
        queue: &AdmissionQueue,
        fleet: Option<&FleetApi>,
    ) -> Response<Full<Bytes>> {
        let mut hosts = queue.host_statuses(|name| name.contains(&self.substring));
        let total = hosts.len();
        if self.limit < total {
            hosts.select_nth_unstable_by(self.limit, |one, other| self.sort.compare(one, other));
            hosts.truncate(self.limit);
        }
        hosts.sort_by(|one, other| self.sort.compare(one, other));
        let rows: Vec<Json> = hosts.iter().map(row_to_json).collect();
        let fleet = fleet.map(FleetApi::coverage_to_json);
        let document = json!({ "total": total, "hosts": rows, "fleet": fleet });
        response::json(StatusCode::OK, &document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_or_refused() {
        for (query, fits) in [
            (None, true),
            (Some("sort=rest&limit=1000&q=A.test"), true),
            (Some("limit=1"), true),
            (Some("limit=0"), false),
            (Some("limit=1001"), false),
            (Some("limit=+1"), false),
            (Some("limit=%2B1"), false),
            (Some("limit="), false),
            (Some("sort=Name"), false),
            (Some("sort="), false),
            (Some("sort=rest&sort=rest"), false),
            (Some("limit=1&q=a&limit=2"), false),
            (Some("q=a&q=b"), false),
            (Some("order=name"), false),
            (Some("q=%00"), false),
        ] {
            assert_eq!(HostListQuery::parse(query).is_ok(), fits, "{query:?}");
        }
        assert_eq!(
            HostListQuery::parse(Some("q=A.test")).unwrap().substring,
            "a.test"
        );
    }
}
