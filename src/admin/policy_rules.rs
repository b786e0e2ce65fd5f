//! `GET /api/v1/policy/rules`: a part of the active policy's rules with their counters, searched and sorted.

use std::cmp::Reverse;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::policy::RuleCounts;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::rule::{EnforcementMode, Rule};

use super::api_request::run_blocking;
use super::policy::{disposition_to_json, rule_to_json};
use super::policy_api::PolicyApi;
use super::query::{
    DEFAULT_LIMIT, ParameterError, parse_limit, parse_query, parse_word, reject_duplicates,
};
use super::response;

/// The parameters of `GET /api/v1/policy/rules`.
#[derive(Debug)]
struct RuleListQuery {
    offset: usize,
    limit: usize,
    /// A part of the id, the description, the file or the condition, in lower case.
    search: String,
    sort: RuleSort,
    group: RuleGroup,
}

/// The sort order: the largest first, and the position in the policy breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleSort {
    Position,
    Matched,
    Decided,
    Allowed,
    Rejected,
    LastMatch,
}

/// A group of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleGroup {
    All,
    /// Those that are counted and have not matched.
    NeverMatched,
    Rejecting,
    Shadow,
    Disabled,
    /// Those that are enabled, while nothing is counted.
    NotCounted,
}

const KEYS: [&str; 5] = ["offset", "limit", "search", "sort", "group"];

const SORT_KEYS: [(&str, RuleSort); 6] = [
    ("position", RuleSort::Position),
    ("matched", RuleSort::Matched),
    ("decided", RuleSort::Decided),
    ("allowed", RuleSort::Allowed),
    ("rejected", RuleSort::Rejected),
    ("last_match", RuleSort::LastMatch),
];

const GROUP_KEYS: [(&str, RuleGroup); 6] = [
    ("all", RuleGroup::All),
    ("never_matched", RuleGroup::NeverMatched),
    ("rejecting", RuleGroup::Rejecting),
    ("shadow", RuleGroup::Shadow),
    ("disabled", RuleGroup::Disabled),
    ("not_counted", RuleGroup::NotCounted),
];

impl PolicyApi {
    /// Returns the rules that the query selects, and the number of rules in each group.
    pub(super) async fn list_rules(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        let query = match RuleListQuery::parse(query) {
            Ok(query) => query,
            Err(error) => return error.to_response(),
        };
        let snapshot = self.active_policy.load();
        match run_blocking(move || query.document(&snapshot)).await {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }
}

impl RuleListQuery {
    fn parse(query: Option<&str>) -> Result<Self, ParameterError> {
        let mut parsed = Self {
            offset: 0,
            limit: DEFAULT_LIMIT,
            search: String::new(),
            sort: RuleSort::Position,
            group: RuleGroup::All,
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &KEYS)? {
            match key.as_str() {
                "offset" => parsed.offset = parse_offset(&value)?,
                "limit" => parsed.limit = parse_limit(&value)?,
                "search" => parsed.search = value.trim().to_lowercase(),
                "sort" => parsed.sort = parse_word(&value, "sort", &SORT_KEYS)?,
                "group" => parsed.group = parse_word(&value, "group", &GROUP_KEYS)?,
                _ => return Err(ParameterError::unknown(&KEYS)),
            }
        }
        Ok(parsed)
    }

    fn document(&self, snapshot: &PolicySnapshot) -> Json {
        let policy = &snapshot.policy;
        let mut group_sizes = GROUP_KEYS.map(|(_, group)| (group, 0_usize));
        let mut found = Vec::new();
        for (rule, index) in policy.rules().iter().zip(0_u32..) {
            let counts = snapshot.counters.counts(index);
            for (group, size) in &mut group_sizes {
                *size += usize::from(group.contains(rule, counts));
            }
            if self.group.contains(rule, counts) && self.finds(snapshot, rule, index) {
                found.push((self.sort.key(counts), index));
            }
        }
        // The sort is stable, and the rules are in the order of their positions.
        if self.sort != RuleSort::Position {
            found.sort_by_key(|(key, _)| Reverse(*key));
        }
        let shown = found.iter().skip(self.offset).take(self.limit);
        let rules = shown.filter_map(|(_, index)| rule_to_json(snapshot, *index));
        let sizes = GROUP_KEYS.iter().zip(group_sizes);
        json!({
            "name": policy.name(),
            "revision": policy.revision(),
            "loaded_at": snapshot.source.loaded_at.map(|at| Rfc3339(at).to_string()),
            "disposition": disposition_to_json(policy),
            "total": found.len(),
            "offset": self.offset,
            "rules": rules.collect::<Vec<_>>(),
            "groups": sizes
                .map(|((name, _), (_, size))| ((*name).to_owned(), json!(size)))
                .collect::<Map<_, _>>(),
        })
    }

    fn finds(&self, snapshot: &PolicySnapshot, rule: &Rule, index: u32) -> bool {
        let contains = |text: &str| text.to_lowercase().contains(&self.search);
        let file = || snapshot.source.rule_positions.get(index as usize);
        self.search.is_empty()
            || contains(rule.id.as_str())
            || rule.about.as_deref().is_some_and(contains)
            || file().is_some_and(|position| contains(&position.file))
            || snapshot
                .policy
                .describe_condition(rule)
                .is_some_and(|words| contains(&words))
    }
}

impl RuleGroup {
    fn contains(self, rule: &Rule, counts: Option<RuleCounts>) -> bool {
        match self {
            Self::All => true,
            Self::NeverMatched => counts.is_some_and(|counts| counts.matched == 0),
            Self::Rejecting => counts.is_some_and(|counts| counts.rejected > 0),
            Self::Shadow => rule.mode == EnforcementMode::Shadow,
            Self::Disabled => rule.mode == EnforcementMode::Disabled,
            Self::NotCounted => counts.is_none() && rule.mode != EnforcementMode::Disabled,
        }
    }
}

impl RuleSort {
    /// Returns the key of a rule; 0 if it has none.
    fn key(self, counts: Option<RuleCounts>) -> u64 {
        let Some(counts) = counts else { return 0 };
        match self {
            Self::Position => 0,
            Self::Matched => counts.matched,
            Self::Decided => counts.decided(),
            Self::Allowed => counts.allowed,
            Self::Rejected => counts.rejected,
            Self::LastMatch => counts.last_match.map_or(0, unix_seconds),
        }
    }
}

fn unix_seconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn parse_offset(text: &str) -> Result<usize, ParameterError> {
    let offset = text.parse().ok().filter(|_| !text.starts_with('+'));
    offset.ok_or_else(|| ParameterError("`offset` is a number from 0".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_or_refused() {
        for (query, fits) in [
            (None, true),
            (
                Some("offset=0&limit=1000&search=A.test&sort=last_match&group=shadow"),
                true,
            ),
            (Some("offset=100000&limit=1"), true),
            (Some("offset=-1"), false),
            (Some("offset=%2B1"), false),
            (Some("offset="), false),
            (Some("offset=99999999999999999999"), false),
            (Some("limit=0"), false),
            (Some("limit=1001"), false),
            (Some("sort=Matched"), false),
            (Some("sort="), false),
            (Some("group=dead"), false),
            (Some("search=a&search=b"), false),
            (Some("q=a"), false),
            (Some("search=%00"), false),
        ] {
            assert_eq!(RuleListQuery::parse(query).is_ok(), fits, "{query:?}");
        }
        let parsed = RuleListQuery::parse(Some("search=+A.Test+")).unwrap();
        assert_eq!(parsed.search, "a.test");
    }
}
