//! The prospect of a request that would arrive now, for explanations. It takes no slot and joins no queue.

use std::time::Duration;

use crate::pacing::pace::{PaceWait, RequestKind, WaitCause};
use crate::policy::options::politeness::Overflow;

use super::{AdmissionQueue, AdmissionRefusal, AdmissionRefusalCause, AdmissionRequest, WaitTerms};

/// The prospect of a request at its limiter.
#[derive(Clone, Debug)]
pub struct TurnForecast {
    /// The name of the limiter.
    pub limiter: Box<str>,
    /// The time until its turn, as far as it is known.
    pub wait: Duration,
    /// The number of requests that go before it.
    pub ahead: usize,
    /// The rest of the host's backoff, and its cause in words.
    pub backoff: Option<(Duration, &'static str)>,
    /// The longest time that it may wait.
    pub max_wait: Duration,
    /// The refusal, if its turn does not come in time.
    pub refusal: Option<AdmissionRefusal>,
}

impl AdmissionQueue {
    /// Returns the prospect of a request, by the state that its limiter has now.
    pub(crate) fn forecast(
        &self,
        request: &AdmissionRequest<'_>,
        terms: WaitTerms,
    ) -> TurnForecast {
        let snapshot = self.store.host_snapshot(request.key.name, self.clock.now());
        let backoff = snapshot.and_then(|snapshot| snapshot.backoff);
        let until_next = snapshot.and_then(|snapshot| match request.key.kind {
            RequestKind::Navigation => Some(snapshot.until_next),
            // Resources of pages do not wait for the turns of pages.
            RequestKind::Embed => backoff.map(|(rest, _)| rest).or(snapshot.byte_debt),
        });
        let until_next = until_next.unwrap_or_default();
        let (ahead, others) = if self.queues.has_waiters(request.key) {
            let class = terms.rank.class;
            let ahead = self
                .queues
                .count_ahead_of_new(request.key, request.crawler, class);
            (ahead, self.queues.len_for(request.key))
        } else {
            (0, 0)
        };
        let queue_time = u32::try_from(ahead).unwrap_or(u32::MAX);
        let wait = until_next.saturating_add(request.pace.interval().saturating_mul(queue_time));
        let has_to_wait = !wait.is_zero() || others > 0;
        let may_wait = request.overflow == Overflow::Hold && wait <= terms.max_wait;
        let pace_wait = PaceWait {
            duration: until_next,
            cause: if backoff.is_some() {
                WaitCause::Backoff
            } else {
                WaitCause::Time
            },
        };
        let refusal = if !has_to_wait {
            None
        } else if request.overflow == Overflow::Hold && self.queues.is_full(request.key) {
            Some(self.refuse_full(request, terms.rank))
        } else if may_wait {
            None
        } else {
            Some(self.refusal_for_wait(pace_wait, ahead, others, request))
        };
        TurnForecast {
            limiter: request.key.name.into(),
            wait,
            ahead,
            backoff: backoff.map(|(rest, cause)| (rest, cause.description())),
            max_wait: terms.max_wait,
            refusal,
        }
    }
}

impl TurnForecast {
    /// Returns the prospect of a request that needs the turns of two limiters.
    pub(crate) fn join(self, other: Self) -> Self {
        let is_other_worse =
            (self.refusal.is_some(), self.wait) < (other.refusal.is_some(), other.wait);
        if is_other_worse { other } else { self }
    }
}

impl AdmissionRefusal {
    /// Returns `true` if the request is held before this refusal.
    pub(crate) fn follows_wait(&self, overflow: Overflow) -> bool {
        let may_wait = match self.cause {
            AdmissionRefusalCause::RateLimited
            | AdmissionRefusalCause::HostBackoff
            | AdmissionRefusalCause::ShuttingDown => true,
            AdmissionRefusalCause::QueueFull => false,
        };
        overflow == Overflow::Hold && may_wait
    }
}
