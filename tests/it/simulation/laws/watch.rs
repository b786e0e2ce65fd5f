//! One host, as its origin sees it, and the laws that hold there.

use std::time::{Duration, Instant};

use crate::simulation::crawl::DIAL;
use crate::simulation::sites::{Extra, Few, STOPPED, Sort, Temper, sort_of};

/// So many failures in a row give a host rest, and a rest is so long at least.
const IN_A_ROW: u32 = 3;
const SHORTEST_REST: Duration = Duration::from_secs(5);
/// Timers go by whole milliseconds.
const TICK: Duration = Duration::from_millis(1);
/// By strict order who waits rises by one class every so often.
const RISES_EVERY: Duration = Duration::from_secs(30);
/// Until who waits there is above all that come.
const RISEN: Duration = Duration::from_secs(150);

/// The kind of the requested resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantKind {
    Page,
    Embed,
}

/// A request that the pipeline has admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedGrant {
    pub(crate) host: usize,
    pub(crate) crawler: usize,
    pub(crate) kind: GrantKind,
    pub(crate) asked: Instant,
    pub(crate) granted: Instant,
}

/// The requests in progress, and the time of the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    under_way: usize,
    last_sent: Option<Instant>,
}

/// The origin's side of one host.
pub(super) struct Watch {
    pub(super) sort: &'static Sort,
    /// The beginning of the hour.
    began: Instant,
    pages: Way,
    embeds: Way,
    /// When the bucket of its rate is full again.
    full: Option<Instant>,
    rest: Option<Rest>,
    /// Behind a rest and before a good answer.
    on_trial: bool,
    /// Failures since the last good answer.
    in_a_row: u32,
    /// Pages.
    pub(super) received: u64,
    /// By crawler: how many it was granted, and the longest that it waited for one.
    pub(super) shares: Vec<Share>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    began: Instant,
    until: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) granted: u64,
    pub(super) longest: Duration,
    /// `true` if the crawler requests this host.
    pub(super) comes: bool,
    /// `true` if it always waits until it is admitted.
    pub(super) patient: bool,
    /// The class of its waiting request, and the time since which it waits.
    waits: Option<(usize, Instant)>,
}

impl Way {
    /// A request starts: the number of concurrent ones is limited.
    pub(super) fn goes(&mut self, most: usize) -> Option<String> {
        self.under_way += 1;
        (self.under_way > most).then(|| format!("{} at once", self.under_way))
    }

    /// A request is sent: at least the delay after the last one.
    pub(super) fn sent(&mut self, delay: Duration, now: Instant) -> Option<String> {
        let gap = self.last_sent.replace(now).map(|last| now - last)?;
        (gap < delay).then(|| format!("a gap of {gap:?}"))
    }

    pub(super) fn ended(&mut self) {
        self.under_way -= 1;
    }
}

impl Watch {
    pub(super) fn new(host: usize, crawlers: usize, began: Instant) -> Self {
        Self {
            sort: sort_of(host),
            began,
            pages: Way::default(),
            embeds: Way::default(),
            full: None,
            rest: None,
            on_trial: false,
            in_a_row: 0,
            received: 0,
            shares: vec![Share::default(); crawlers],
        }
    }

    /// It waits from now on for something of this class.
    pub(super) fn asks(&mut self, crawler: usize, class: usize, now: Instant) {
        self.shares[crawler].waits = Some((class, now));
    }

    /// It goes, or it is gone.
    pub(super) fn waits_no_more(&mut self, crawler: usize) {
        self.shares[crawler].waits = None;
    }

    pub(super) fn granted(&mut self, grant: ObservedGrant) -> Vec<String> {
        let now = grant.granted;
        let laws = match grant.kind {
            GrantKind::Page => {
                let first = self.check_first(grant.crawler, now);
                let share = &mut self.shares[grant.crawler];
                (share.granted, share.longest) =
                    (share.granted + 1, share.longest.max(now - grant.asked));
                [
                    self.pages.goes(self.sort.limits.concurrency),
                    self.check_rate(now),
                    first,
                ]
            }
            GrantKind::Embed => [self.embeds.goes(self.few().concurrency), None, None],
        };
        let rest = [self.check_rest(now), self.check_trial(now)];
        laws.into_iter().chain(rest).flatten().collect()
    }

    pub(super) fn sent(&mut self, grant: ObservedGrant, now: Instant) -> Vec<String> {
        let gap = match grant.kind {
            GrantKind::Page => {
                self.received += 1;
                self.pages.sent(self.delay(grant), now)
            }
            GrantKind::Embed => self.embeds.sent(self.few().delay, now),
        };
        // Requests admitted before the rest began may still be connecting.
        let under_way = self
            .rest
            .is_some_and(|rest| grant.granted <= rest.began && now <= rest.began + DIAL);
        let rests = if under_way {
            None
        } else {
            self.check_rest(now)
        };
        [gap, rests].into_iter().flatten().collect()
    }

    pub(super) fn ended(&mut self, kind: GrantKind) {
        match kind {
            GrantKind::Page => self.pages.ended(),
            GrantKind::Embed => self.embeds.ended(),
        }
    }

    /// The origin complains; for so long, if it says. Requests that were admitted before a backoff can only lengthen it.
    pub(super) fn complained(
        &mut self,
        grant: ObservedGrant,
        reported: Option<Duration>,
        now: Instant,
    ) {
        if !self.is_late(grant) {
            self.rests(now, reported.unwrap_or(SHORTEST_REST));
        } else if let (Some(rest), Some(reported)) = (&mut self.rest, reported) {
            rest.until = rest.until.max(now + reported);
        }
    }

    /// The origin fails, or answers 5xx: the third in a row should begin a backoff, and after a backoff the first.
    pub(super) fn failed(&mut self, grant: ObservedGrant, now: Instant) {
        if self.is_late(grant) {
            return;
        }
        self.in_a_row += 1;
        if self.in_a_row >= IN_A_ROW || self.on_trial {
            self.rests(now, SHORTEST_REST);
        }
    }

    /// Requests admitted before a rest do not affect the time after it.
    pub(super) fn answered_well(&mut self, grant: ObservedGrant) {
        if !self.is_late(grant) {
            (self.on_trial, self.in_a_row) = (false, 0);
        }
    }

    /// Of those that always wait here, each gets what any other gets; and who is sent away again and again gets at least a
    /// third of that.
    pub(super) fn starved(&self) -> Vec<String> {
        let patient = self.shares.iter().filter(|share| share.patient);
        let granted = patient.clone().map(|share| share.granted);
        let (Some(least), Some(most)) = (granted.clone().min(), granted.max()) else {
            return vec![];
        };
        let mut laws = vec![];
        // Those that come first need not wait for one another; at the end some wait still.
        if most - least > u64::from(self.sort.limits.at_once) + 1 + most / 20 {
            laws.push(format!("one got {least} where another got {most}"));
        }
        let others = self
            .shares
            .iter()
            .filter(|share| !share.patient && share.comes);
        // The order after two consecutive queues is more random.
        let lag = if matches!(self.sort.extra, Extra::Address(_)) {
            12
        } else {
            3
        };
        let few = others
            .map(|share| share.granted)
            .min()
            .filter(|few| 3 * few + lag < most);
        laws.extend(few.map(|few| format!("one got only {few} where another got {most}")));
        let longest = patient
            .clone()
            .map(|share| share.longest)
            .max()
            .unwrap_or_default();
        if self.sort.temper == Temper::Steady && longest > self.longest_wait(patient.count()) {
            laws.push(format!("one waited for {longest:?}"));
        }
        laws
    }

    fn longest_wait(&self, patient: usize) -> Duration {
        let more = match self.sort.extra {
            Extra::Strict => RISEN,
            Extra::Halts => STOPPED,
            Extra::None | Extra::Embeds(..) | Extra::Address(_) | Extra::Schedule(..) => {
                Duration::ZERO
            }
        };
        self.sort.limits.period * (2 * patient as u32 + 8) + more
    }

    fn rests(&mut self, began: Instant, time: Duration) {
        let until = (began + time).max(self.rest.map_or(began, |rest| rest.until));
        self.rest = Some(Rest { began, until });
        (self.on_trial, self.in_a_row) = (true, 0);
    }

    fn is_late(&self, grant: ObservedGrant) -> bool {
        self.rest.is_some_and(|rest| grant.granted <= rest.began)
    }

    fn few(&self) -> Few {
        let Extra::Embeds(few, _) = self.sort.extra else {
            panic!("only pages are asked for")
        };
        few
    }

    fn delay(&self, grant: ObservedGrant) -> Duration {
        let Extra::Schedule(from, delay) = self.sort.extra else {
            return self.sort.limits.delay;
        };
        if grant.granted < self.began + from {
            self.sort.limits.delay
        } else {
            delay
        }
    }

    fn check_rest(&self, now: Instant) -> Option<String> {
        let rest = self.rest.filter(|rest| now < rest.until)?;
        Some(format!("{:?} before the end of its rest", rest.until - now))
    }

    /// One at a time, and what was under way when the rest began comes first.
    fn check_trial(&self, now: Instant) -> Option<String> {
        let behind = self.rest.is_some_and(|rest| rest.until <= now);
        let at_once = self.pages.under_way + self.embeds.under_way;
        (self.on_trial && behind && at_once > 1).then(|| format!("{at_once} at once on trial"))
    }

    fn check_rate(&mut self, now: Instant) -> Option<String> {
        let (interval, burst) = self.sort.limits.rate?;
        let full = self.full.unwrap_or(now).max(now) + interval;
        self.full = Some(full);
        let most = interval * burst + TICK;
        (full - now > most).then(|| format!("over its rate by {:?}", full - now - most))
    }

    /// Nobody goes while another waits whose class is higher, by what it has risen.
    fn check_first(&mut self, crawler: usize, now: Instant) -> Option<String> {
        let (class, since) = self.shares[crawler].waits.take()?;
        let class = risen(class, since, now);
        let waiting = self.shares.iter().filter_map(|share| share.waits);
        // Who rises at this very moment may not have been seen.
        let higher = waiting
            .map(|(class, since)| risen(class, since + TICK, now))
            .min()?;
        (higher < class).then(|| format!("one of class {class} before one of class {higher}"))
    }
}

fn risen(class: usize, since: Instant, now: Instant) -> usize {
    let times = now.saturating_duration_since(since).as_secs() / RISES_EVERY.as_secs();
    class.saturating_sub(times as usize)
}
