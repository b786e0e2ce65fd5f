//! `GET /api/v1/policy/rules`: a part of the active policy's rules with their counters, searched and sorted.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::SystemTime;

use http::StatusCode;
use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::policy::RuleCounts;
use crate::metrics::shadow::ShadowSource;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::rule::{EnforcementMode, Rule, RuleIndex};

use super::api_request::{ApiError, ApiResult, run_blocking};
use super::policy::{disposition_to_json, rule_to_json, space_name};
use super::policy_api::PolicyApi;
use super::query::{
    DEFAULT_LIMIT, parse_limit, parse_query, parse_word, reject_duplicates, unknown_parameter,
};
use super::response;
use super::rule_trends::{PARTS, RuleTrends};

/// The parameters of `GET /api/v1/policy/rules`.
#[derive(Debug)]
struct RuleListQuery {
    offset: usize,
    limit: usize,
    /// A part of the id, the description, the file or the condition, in lower case.
    search: String,
    sort: RuleSort,
    /// `None` for the usual direction of the sort.
    order: Option<SortDirection>,
    group: RuleGroup,
}

/// The key of the sort. The position in the policy breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleSort {
    Position,
    Id,
    Kind,
    Condition,
    Space,
    Matched,
    Decided,
    Allowed,
    Rejected,
    LastHour,
    LastMatch,
    /// The number of decisions that rules in shadow mode would change.
    Shadow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortDirection {
    Ascending,
    Descending,
}

/// The value of a rule by which it is sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RuleSortKey {
    Number(u64),
    Text(String),
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

const KEYS: [&str; 6] = ["offset", "limit", "search", "sort", "order", "group"];

const SORT_KEYS: [(&str, RuleSort); 12] = [
    ("position", RuleSort::Position),
    ("id", RuleSort::Id),
    ("kind", RuleSort::Kind),
    ("condition", RuleSort::Condition),
    ("space", RuleSort::Space),
    ("matched", RuleSort::Matched),
    ("decided", RuleSort::Decided),
    ("allowed", RuleSort::Allowed),
    ("rejected", RuleSort::Rejected),
    ("last_hour", RuleSort::LastHour),
    ("last_match", RuleSort::LastMatch),
    ("shadow", RuleSort::Shadow),
];

const ORDER_KEYS: [(&str, SortDirection); 2] = [
    ("asc", SortDirection::Ascending),
    ("desc", SortDirection::Descending),
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
    pub(super) async fn list_rules(
        &self,
        query: Option<&str>,
        trends: &Arc<RuleTrends>,
    ) -> ApiResult {
        let query = RuleListQuery::parse(query)?;
        let snapshot = self.active_policy.load();
        let trends = Arc::clone(trends);
        let document = run_blocking(move || query.document(&snapshot, &trends)).await?;
        Ok(response::json(StatusCode::OK, &document))
    }
}

impl RuleListQuery {
    fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let mut parsed = Self {
            offset: 0,
            limit: DEFAULT_LIMIT,
            search: String::new(),
            sort: RuleSort::Position,
            order: None,
            group: RuleGroup::All,
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &KEYS)? {
            match key.as_str() {
                "offset" => parsed.offset = parse_offset(&value)?,
                "limit" => parsed.limit = parse_limit(&value)?,
                "search" => parsed.search = value.trim().to_lowercase(),
                "sort" => parsed.sort = parse_word(&value, "sort", &SORT_KEYS)?,
                "order" => parsed.order = Some(parse_word(&value, "order", &ORDER_KEYS)?),
                "group" => parsed.group = parse_word(&value, "group", &GROUP_KEYS)?,
                _ => return Err(unknown_parameter(&KEYS)),
            }
        }
        Ok(parsed)
    }

    fn document(&self, snapshot: &PolicySnapshot, trends: &RuleTrends) -> Json {
        let policy = &snapshot.policy;
        let mut group_sizes = GROUP_KEYS.map(|(_, group)| (group, 0_usize));
        let mut found = Vec::new();
        for (rule, index) in policy.rules().iter().zip(0_u32..) {
            let counts = snapshot.counters.counts(index);
            for (group, size) in &mut group_sizes {
                *size += usize::from(group.contains(rule, counts));
            }
            if self.group.contains(rule, counts) && self.finds(snapshot, rule, index) {
                found.push(index);
            }
        }
        self.sort_rules(&mut found, snapshot, trends);
        let shown: Vec<u32> = found
            .iter()
            .skip(self.offset)
            .take(self.limit)
            .copied()
            .collect();
        let trends = trends.read(snapshot, shown.iter().copied());
        let rules = shown.iter().zip(&trends).filter_map(|(index, trend)| {
            let mut rule = rule_to_json(snapshot, *index)?;
            let counted = snapshot.counters.counts(*index).is_some();
            response::extend(&mut rule, &trend_to_json(counted.then_some(trend)));
            Some(rule)
        });
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

    /// Sorts rules that are in the order of their positions.
    fn sort_rules(&self, found: &mut Vec<u32>, snapshot: &PolicySnapshot, trends: &RuleTrends) {
        let direction = self.order.unwrap_or(self.sort.usual_direction());
        if self.sort == RuleSort::Position {
            if direction == SortDirection::Descending {
                found.reverse();
            }
            return;
        }
        let keys: Vec<RuleSortKey> = if self.sort == RuleSort::LastHour {
            let trends = trends.read(snapshot, found.iter().copied());
            trends
                .iter()
                .map(|trend| RuleSortKey::Number(trend.iter().sum()))
                .collect()
        } else {
            found
                .iter()
                .map(|index| self.sort.key(snapshot, *index))
                .collect()
        };
        let mut keyed: Vec<(RuleSortKey, u32)> = keys.into_iter().zip(found.drain(..)).collect();
        // The sort is stable.
        keyed.sort_by(|(one, _), (other, _)| direction.apply(one.cmp(other)));
        found.extend(keyed.into_iter().map(|(_, index)| index));
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

impl SortDirection {
    fn apply(self, order: Ordering) -> Ordering {
        match self {
            Self::Ascending => order,
            Self::Descending => order.reverse(),
        }
    }
}

impl RuleSort {
    /// Returns the direction if none is asked for: texts from A, and the largest number first.
    fn usual_direction(self) -> SortDirection {
        match self {
            Self::Position | Self::Id | Self::Kind | Self::Condition | Self::Space => {
                SortDirection::Ascending
            }
            Self::Matched
            | Self::Decided
            | Self::Allowed
            | Self::Rejected
            | Self::LastHour
            | Self::LastMatch
            | Self::Shadow => SortDirection::Descending,
        }
    }

    /// Returns the key of a rule: 0 or an empty text if it has none.
    fn key(self, snapshot: &PolicySnapshot, index: u32) -> RuleSortKey {
        let policy = &snapshot.policy;
        let number = |of: fn(RuleCounts) -> u64| {
            RuleSortKey::Number(snapshot.counters.counts(index).map_or(0, of))
        };
        let text = |of: &dyn Fn(&Rule) -> Option<String>| {
            let rule = policy.rule(RuleIndex(index));
            RuleSortKey::Text(rule.and_then(of).unwrap_or_default())
        };
        match self {
            // The trends have it.
            Self::Position | Self::LastHour => RuleSortKey::Number(0),
            Self::Id => text(&|rule| Some(rule.id.as_str().to_owned())),
            Self::Kind => text(&|rule| rule.condition_key().map(str::to_owned)),
            Self::Condition => text(&|rule| policy.describe_condition(rule)),
            Self::Space => text(&|_| space_name(policy, RuleIndex(index)).map(str::to_owned)),
            Self::Matched => number(|counts| counts.matched),
            Self::Decided => number(|counts| counts.decided()),
            Self::Allowed => number(|counts| counts.allowed),
            Self::Rejected => number(|counts| counts.rejected),
            Self::LastMatch => number(|counts| counts.last_match.map_or(0, unix_seconds)),
            Self::Shadow => RuleSortKey::Number(shadow_effect(snapshot, index)),
        }
    }
}

/// Returns the number of decisions that a rule in shadow mode would change.
fn shadow_effect(snapshot: &PolicySnapshot, index: u32) -> u64 {
    let stats = snapshot.counters.shadow_stats();
    let tallies = stats.tallies(ShadowSource::Rule(index));
    tallies.would_reject.total + tallies.would_allow.total
}

/// Returns the matches in the last hour, in all and in twelve parts; `null` if the rule is not counted.
fn trend_to_json(trend: Option<&[u64; PARTS]>) -> Json {
    json!({ "last_hour": trend.map(|trend| trend.iter().sum::<u64>()), "trend": trend })
}

fn unix_seconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn parse_offset(text: &str) -> Result<usize, ApiError> {
    let offset = text.parse().ok().filter(|_| !text.starts_with('+'));
    offset.ok_or_else(|| ApiError::Invalid("`offset` is a number from 0".into()))
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
            (Some("sort=condition&order=desc"), true),
            (Some("order=down"), false),
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
