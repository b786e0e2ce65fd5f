//! The list of hosts: which, in what order, how many.

use std::cmp::Ordering;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::page;
use crate::admin::query::{Mistake, parameters, single};
use crate::gate::hold::Hold;
use crate::gate::hold::seen::HostSeen;

use super::host::row;

/// The most rows, and how many if nothing is said.
const MOST: usize = 1_000;
const USUAL: usize = 100;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Listed {
    sort: Sort,
    limit: usize,
    /// What names have somewhere; lower case.
    part: String,
}

/// Which come first. Of equals the names decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// For whom most wait.
    Waiting,
    /// To whom the next may go soonest.
    Next,
    /// Who rests for longest.
    Rest,
    Name,
}

const SORTS: [(&str, Sort); 4] = [
    ("waiting", Sort::Waiting),
    ("next", Sort::Next),
    ("rest", Sort::Rest),
    ("name", Sort::Name),
];

impl Sort {
    fn order(self, one: &HostSeen, other: &HostSeen) -> Ordering {
        let rest = |host: &HostSeen| host.rest.map(|rest| rest.left);
        let first = match self {
            Self::Waiting => other.waiting.cmp(&one.waiting),
            Self::Next => one.next.cmp(&other.next),
            Self::Rest => rest(other).cmp(&rest(one)),
            Self::Name => Ordering::Equal,
        };
        first.then_with(|| one.name.cmp(&other.name))
    }
}

impl Listed {
    /// Reads `sort`, `limit` and `q`.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Mistake> {
        let mut listed = Self {
            sort: Sort::Waiting,
            limit: USUAL,
            part: String::new(),
        };
        for (key, value) in single(parameters(query)?, &["sort", "limit", "q"])? {
            match key.as_str() {
                "sort" => listed.sort = sort(&value)?,
                "limit" => listed.limit = limit(&value)?,
                "q" => listed.part = value.to_lowercase(),
                _ => {
                    return Err(Mistake(
                        "there is no such parameter; allowed: sort, limit, q".into(),
                    ));
                }
            }
        }
        Ok(listed)
    }

    pub(super) fn answer(&self, hold: &Hold) -> Response<Full<Bytes>> {
        let mut hosts = hold.seen(|name| name.contains(&self.part));
        let total = hosts.len();
        if self.limit < total {
            hosts.select_nth_unstable_by(self.limit, |one, other| self.sort.order(one, other));
            hosts.truncate(self.limit);
        }
        hosts.sort_by(|one, other| self.sort.order(one, other));
        let rows: Vec<Json> = hosts.iter().map(row).collect();
        page::json(StatusCode::OK, &json!({ "total": total, "hosts": rows }))
    }
}

fn sort(word: &str) -> Result<Sort, Mistake> {
    let known = SORTS.into_iter().find(|(name, _)| *name == word);
    known
        .map(|(_, sort)| sort)
        .ok_or_else(|| Mistake("`sort` is waiting, next, rest or name".into()))
}

fn limit(text: &str) -> Result<usize, Mistake> {
    let limit = text
        .parse()
        .ok()
        .filter(|limit| (1..=MOST).contains(limit) && !text.starts_with('+'));
    limit.ok_or_else(|| Mistake(format!("`limit` is a number from 1 to {MOST}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_or_refused() {
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
            assert_eq!(Listed::read(query).is_ok(), fits, "{query:?}");
        }
        assert_eq!(Listed::read(Some("q=A.test")).unwrap().part, "a.test");
    }
}
