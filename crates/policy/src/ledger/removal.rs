//! Removals from an index: their causes, those that wait for the end of their grace time, and the
//! guard that stops them if one cause removes too many URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::crawl_status::CrawlStatus;
use crate::model::words::words;

use super::event::LedgerEventReason;
use super::filter::url_host;
use super::record::UnixMillis;

/// The cause of a removal. All causes but [`Self::Page`] may concern many URLs at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalCause {
    /// A policy of this revision excludes the URL.
    Policy { revision: Arc<str> },
    /// The robots.txt of this host forbids it, or denies the use.
    RobotsTxt { host: Arc<str> },
    /// A page of this host asks not to be indexed.
    Noindex { host: Arc<str> },
    /// The page alone: an error, or the properties of its document.
    Page,
}

impl RemovalCause {
    /// Returns the cause of a removal by a refusal with this status.
    pub fn of_refusal(status: CrawlStatus, url: &str, revision: &Arc<str>) -> Self {
        use CrawlStatus as Of;
        match status {
            Of::RobotsTxt | Of::Usage => Self::RobotsTxt {
                host: url_host(url).into(),
            },
            Of::Noindex => Self::Noindex {
                host: url_host(url).into(),
            },
            Of::Filter
            | Of::Import
            | Of::TooDeep
            | Of::Trap
            | Of::Budget
            | Of::Premature
            | Of::Address
            | Of::Politeness
            | Of::Request
            | Of::Unauthorized
            | Of::Unavailable
            | Of::Accepted => Self::Policy {
                revision: Arc::clone(revision),
            },
            Of::Unmodified
            | Of::Duplicate
            | Of::Noncanonical
            | Of::NotFound
            | Of::BadStatus
            | Of::Error => Self::Page,
        }
    }
}

impl RemovalCause {
    /// Returns the account that a removal by this cause is counted in; `None` for [`Self::Page`],
    /// which has neither a grace time nor a limit.
    pub fn account(&self) -> Option<RemovalAccount> {
        match self {
            Self::Policy { .. } => Some(RemovalAccount::Policy),
            Self::RobotsTxt { host } => Some(RemovalAccount::RobotsTxt(Arc::clone(host))),
            Self::Noindex { host } => Some(RemovalAccount::Noindex(Arc::clone(host))),
            Self::Page => None,
        }
    }

    /// Returns `true` for an exclusion by a policy.
    pub fn is_policy(&self) -> bool {
        matches!(self, Self::Policy { .. })
    }

    /// Parses the text that [`fmt::Display`] writes.
    pub fn from_text(text: &str) -> Option<Self> {
        let (kind, subject) = text.split_once(':').unwrap_or((text, ""));
        let subject = || Arc::from(subject);
        match kind {
            "policy" => Some(Self::Policy {
                revision: subject(),
            }),
            "robots_txt" => Some(Self::RobotsTxt { host: subject() }),
            "noindex" => Some(Self::Noindex { host: subject() }),
            "page" => Some(Self::Page),
            _ => None,
        }
    }
}

/// Writes `policy:REVISION`, `robots_txt:HOST`, `noindex:HOST` or `page`.
impl fmt::Display for RemovalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { revision } => write!(f, "policy:{revision}"),
            Self::RobotsTxt { host } => write!(f, "robots_txt:{host}"),
            Self::Noindex { host } => write!(f, "noindex:{host}"),
            Self::Page => f.write_str("page"),
        }
    }
}

words! {
    /// The kinds of causes with a grace time and a limit: keys in JSON, and values of a label.
    pub enum RemovalCauseKind {
        Policy = "policy",
        RobotsTxt = "robots_txt",
        Noindex = "noindex",
    }
}

/// An account in which removals are counted. All policies share one, so that loading a mistake again
/// with another revision does not permit further removals.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalAccount {
    Policy,
    /// The robots.txt of a host.
    RobotsTxt(Arc<str>),
    /// The noindex of a host.
    Noindex(Arc<str>),
}

impl RemovalAccount {
    pub fn kind(&self) -> RemovalCauseKind {
        match self {
            Self::Policy => RemovalCauseKind::Policy,
            Self::RobotsTxt(_) => RemovalCauseKind::RobotsTxt,
            Self::Noindex(_) => RemovalCauseKind::Noindex,
        }
    }

    /// Parses the text that [`fmt::Display`] writes.
    pub fn from_text(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => (text == "policy").then_some(Self::Policy),
            Some((_, "")) => None,
            Some(("robots_txt", host)) => Some(Self::RobotsTxt(host.into())),
            Some(("noindex", host)) => Some(Self::Noindex(host.into())),
            Some(_) => None,
        }
    }
}

/// Writes `policy`, `robots_txt:HOST` or `noindex:HOST`.
impl fmt::Display for RemovalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::RobotsTxt(host) => write!(f, "robots_txt:{host}"),
            Self::Noindex(host) => write!(f, "noindex:{host}"),
        }
    }
}

/// A removal that is not ordered yet: an observation that keeps the URL cancels it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRemoval {
    /// The time of the first observation that removes the URL.
    pub since: UnixMillis,
    pub cause: RemovalCause,
    /// The reason, origin's status, rule and revision of the event.
    pub reason: LedgerEventReason,
    pub status: Option<u16>,
    pub rule: Option<Arc<str>>,
    pub revision: Arc<str>,
    /// The `User-Agent` of the request, if robots.txt has refused it.
    pub user_agent: Option<Arc<str>>,
}

/// The time at which a removal with an account is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemovalSchedule {
    /// At once: there is neither a grace time nor a limit.
    #[default]
    Immediate,
    /// When a later decision orders it.
    Deferred,
}

/// The decision about a pending removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalDecision {
    /// It is ordered, and counts towards the limit of its account.
    Order,
    /// It is ordered, and does not count: an operator has confirmed it.
    OrderConfirmed,
    /// It is canceled.
    Cancel,
}

/// The settings of the guard: `ledger.removal_guard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalGuardSettings {
    /// The share of an index that one account may remove within 24 hours, in percent; `None` for no
    /// limit.
    pub hold: Option<u8>,
    /// The time between the first observation that removes a URL and the order.
    pub grace: Duration,
}

impl RemovalGuardSettings {
    /// Returns when removals with an account are ordered.
    pub fn schedule(self) -> RemovalSchedule {
        if self.hold.is_none() && self.grace.is_zero() {
            RemovalSchedule::Immediate
        } else {
            RemovalSchedule::Deferred
        }
    }
}

impl Default for RemovalGuardSettings {
    fn default() -> Self {
        Self {
            hold: Some(5),
            grace: Duration::from_secs(600),
        }
    }
}

/// The number of removals within 24 hours that is always permitted.
pub const MIN_REMOVALS: u64 = 100;
/// The time over which removals are counted, and for which a confirmation is valid.
pub const REMOVAL_WINDOW: Duration = Duration::from_secs(86_400);

/// The permission to order removals of one cause now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalPermit {
    /// All of them: an operator has confirmed them.
    Confirmed,
    /// At most this number, which is not 0.
    AtMost(u64),
    /// It depends on the number of URLs in the index, which has to be counted.
    NeedsIndexSize,
    /// None: the account is held until an operator confirms its removals.
    Held,
}

/// Removals that are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRemovals {
    /// The cause for which removals were last refused.
    pub cause: RemovalCause,
    /// When the account was first held.
    pub since: UnixMillis,
    /// The number of removals ordered within 24 hours when the account was first held.
    pub ordered: u64,
    /// The limit at that time.
    pub limit: u64,
}

/// The guard that stops removals if one account would order too many of them within 24 hours. It
/// reads no clock and counts nothing: times and numbers are arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalGuard {
    held: BTreeMap<RemovalAccount, HeldRemovals>,
    /// Confirmed causes, with the end of the confirmation.
    confirmed: BTreeMap<RemovalCause, UnixMillis>,
}

impl RemovalGuard {
    /// Restores a guard.
    pub fn from_parts(
        held: impl IntoIterator<Item = HeldRemovals>,
        confirmed: impl IntoIterator<Item = (RemovalCause, UnixMillis)>,
    ) -> Self {
        Self {
            held: held
                .into_iter()
                .filter_map(|held| Some((held.cause.account()?, held)))
                .collect(),
            confirmed: confirmed.into_iter().collect(),
        }
    }

    /// Returns the held accounts.
    pub fn held(&self) -> &BTreeMap<RemovalAccount, HeldRemovals> {
        &self.held
    }

    /// Returns the confirmed causes, with the end of the confirmation.
    pub fn confirmed(&self) -> &BTreeMap<RemovalCause, UnixMillis> {
        &self.confirmed
    }

    /// Returns the permission to order removals of `cause`, of which at least one is due. `ordered`
    /// is the number that its account has ordered within 24 hours, and `indexed` the number of URLs
    /// that the index had before them, if known.
    pub fn permit(
        &mut self,
        settings: RemovalGuardSettings,
        cause: &RemovalCause,
        ordered: u64,
        indexed: Option<u64>,
        now: UnixMillis,
    ) -> RemovalPermit {
        let (Some(account), Some(hold)) = (cause.account(), settings.hold) else {
            return RemovalPermit::AtMost(u64::MAX);
        };
        if self.confirmed.get(cause).is_some_and(|until| now < *until) {
            return RemovalPermit::Confirmed;
        }
        if let Some(held) = self.held.get_mut(&account) {
            held.cause.clone_from(cause);
            return RemovalPermit::Held;
        }
        if ordered < MIN_REMOVALS {
            return RemovalPermit::AtMost(MIN_REMOVALS - ordered);
        }
        let Some(indexed) = indexed else {
            return RemovalPermit::NeedsIndexSize;
        };
        let share = indexed.saturating_mul(hold.into()) / 100;
        let limit = share.max(MIN_REMOVALS);
        if ordered < limit {
            return RemovalPermit::AtMost(limit - ordered);
        }
        let held = HeldRemovals {
            cause: cause.clone(),
            since: now,
            ordered,
            limit,
        };
        self.held.insert(account, held);
        RemovalPermit::Held
    }

    /// Confirms what is held, of one account or of all, and returns the confirmed causes. Their
    /// removals are not limited for 24 hours.
    pub fn confirm(&mut self, only: Option<&RemovalAccount>, now: UnixMillis) -> Vec<RemovalCause> {
        let window = u64::try_from(REMOVAL_WINDOW.as_millis()).unwrap_or(u64::MAX);
        let until = UnixMillis(now.0.saturating_add(window));
        let mut causes = Vec::new();
        self.held.retain(|account, held| {
            let is_confirmed = only.is_none_or(|only| only == account);
            if is_confirmed {
                causes.push(held.cause.clone());
            }
            !is_confirmed
        });
        self.confirmed
            .extend(causes.iter().map(|cause| (cause.clone(), until)));
        causes
    }

    /// Forgets accounts for which nothing is pending any more, and confirmations that have ended.
    /// Returns `true` if there were any.
    pub fn forget_settled(
        &mut self,
        is_pending: impl Fn(&RemovalAccount) -> bool,
        now: UnixMillis,
    ) -> bool {
        let before = self.held.len() + self.confirmed.len();
        self.held.retain(|account, _| is_pending(account));
        self.confirmed.retain(|_, until| now < *until);
        before != self.held.len() + self.confirmed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;

    fn policy(revision: &str) -> RemovalCause {
        RemovalCause::Policy {
            revision: revision.into(),
        }
    }

    fn settings(hold: u8) -> RemovalGuardSettings {
        RemovalGuardSettings {
            hold: Some(hold),
            grace: Duration::ZERO,
        }
    }

    #[test]
    fn causes_and_accounts_are_written_and_parsed() {
        for text in [
            "policy:3f9c2a1b",
            "robots_txt:a.test",
            "noindex:[2001:db8::7]",
            "page",
        ] {
            let cause = RemovalCause::from_text(text).unwrap();
            assert_eq!(cause.to_string(), text);
            let Some(account) = cause.account() else {
                continue;
            };
            assert_eq!(
                RemovalAccount::from_text(&account.to_string()),
                Some(account)
            );
        }
        for text in [
            "",
            "policies",
            "policy:7",
            "robots_txt",
            "robots_txt:",
            "page",
        ] {
            assert_eq!(RemovalAccount::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn removals_stop_at_the_share_or_at_a_hundred_until_they_are_confirmed() {
        for (indexed, limit) in [(0, 100), (2_000, 100), (2_001, 100), (20_000, 1_000)] {
            let mut guard = RemovalGuard::default();
            let mut permit = |ordered, indexed| {
                guard.permit(settings(5), &policy("a"), ordered, indexed, UnixMillis(7))
            };
            assert_eq!(permit(0, None), RemovalPermit::AtMost(100));
            assert_eq!(permit(99, None), RemovalPermit::AtMost(1));
            assert_eq!(permit(100, None), RemovalPermit::NeedsIndexSize);
            if limit > 100 {
                let permitted = permit(100, Some(indexed));
                assert_eq!(permitted, RemovalPermit::AtMost(limit - 100));
            }
            assert_eq!(
                permit(limit, Some(indexed)),
                RemovalPermit::Held,
                "{indexed}"
            );
            // It stays so after a day, and for the next revision.
            assert_eq!(permit(0, Some(indexed)), RemovalPermit::Held);
            let other = guard.permit(settings(5), &policy("b"), 0, Some(indexed), UnixMillis(DAY));
            assert_eq!(other, RemovalPermit::Held);
            let held: Vec<_> = guard.held().values().collect();
            assert_eq!((held[0].limit, &held[0].cause), (limit, &policy("b")));

            assert_eq!(guard.confirm(None, UnixMillis(DAY)), [policy("b")]);
            let mut permit =
                |cause, at| guard.permit(settings(5), &cause, limit, Some(indexed), UnixMillis(at));
            assert_eq!(permit(policy("b"), DAY + 1), RemovalPermit::Confirmed);
            // Only what was confirmed, and only for a day.
            assert_eq!(permit(policy("a"), DAY + 1), RemovalPermit::Held);
            assert_eq!(permit(policy("b"), 2 * DAY), RemovalPermit::Held);
        }
    }

    #[test]
    fn accounts_are_independent_and_end_with_their_pending_removals() {
        let mut guard = RemovalGuard::default();
        let robots = RemovalCause::from_text("robots_txt:a.test").unwrap();
        let noindex = RemovalCause::from_text("noindex:a.test").unwrap();
        let now = UnixMillis(0);
        for cause in [&robots, &policy("a")] {
            let permit = guard.permit(settings(5), cause, 100, Some(0), now);
            assert_eq!(permit, RemovalPermit::Held);
        }
        let permit = guard.permit(settings(5), &noindex, 0, Some(0), now);
        assert_eq!(permit, RemovalPermit::AtMost(100));
        assert_eq!(guard.confirm(robots.account().as_ref(), now), [robots]);
        assert_eq!(guard.held().len(), 1);
        assert!(guard.forget_settled(|_| false, now));
        assert_eq!((guard.held().len(), guard.confirmed().len()), (0, 1));
        assert!(!guard.forget_settled(|_| false, now));
        assert!(guard.forget_settled(|_| false, UnixMillis(DAY)));
        assert_eq!(guard, RemovalGuard::default());
        let copy =
            RemovalGuard::from_parts(guard.held().values().cloned(), guard.confirmed().clone());
        assert_eq!(copy, guard);
    }

    #[test]
    fn without_a_limit_everything_is_permitted() {
        let settings = RemovalGuardSettings {
            hold: None,
            ..settings(5)
        };
        let permit =
            RemovalGuard::default().permit(settings, &policy("a"), DAY, None, UnixMillis(0));
        assert_eq!(permit, RemovalPermit::AtMost(u64::MAX));
        assert_eq!(settings.schedule(), RemovalSchedule::Immediate);
        assert_eq!(
            RemovalGuardSettings::default().schedule(),
            RemovalSchedule::Deferred
        );
    }

    /// No account orders more than its limit within 24 hours, and nothing that is held is ordered
    /// without a confirmation.
    #[test]
    fn no_sequence_of_removals_exceeds_the_limit() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let hold = random.u8(1..=20);
            let mut guard = RemovalGuard::default();
            let mut index = random.u64(..10_000);
            let mut orders: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for _ in 0..200 {
                now += random.u64(..2 * HOUR);
                let recent = |orders: &[(u64, u64)]| -> u64 {
                    let recent = orders.iter().filter(|(at, _)| now - at < DAY);
                    recent.map(|(_, count)| count).sum()
                };
                let cause = policy(["a", "b", "c"][random.usize(..3)]);
                let before = guard.clone();
                let ordered = recent(&orders);
                let known = random.bool().then_some(index + ordered);
                let at = UnixMillis(now);
                match guard.permit(settings(hold), &cause, ordered, known, at) {
                    RemovalPermit::AtMost(most) => {
                        assert!(before.held().is_empty(), "{seed}");
                        let count = random.u64(..=300).min(most).min(index);
                        let whole = index + ordered;
                        orders.push((now, count));
                        index -= count;
                        let limit = (whole * u64::from(hold) / 100).max(MIN_REMOVALS);
                        assert!(recent(&orders) <= limit, "{seed}: {orders:?} of {whole}");
                    }
                    RemovalPermit::Confirmed => {
                        assert!(before.confirmed().contains_key(&cause), "{seed}");
                    }
                    RemovalPermit::NeedsIndexSize => assert_eq!(known, None, "{seed}"),
                    RemovalPermit::Held => assert!(!guard.held().is_empty(), "{seed}"),
                }
                if random.u8(..20) == 0 {
                    let held = guard.held().len();
                    assert_eq!(guard.confirm(None, UnixMillis(now)).len(), held, "{seed}");
                }
            }
        }
    }
}
