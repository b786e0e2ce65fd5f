//! Detection of hosts that have apparently banned this proxy: a burst of 403s, or a challenge.
//!
//! Detection only reports; it does not change the pace. Many hosts forbid some of their pages, so
//! only a burst after good responses counts, or 403s alone.

use std::time::{Duration, Instant};

/// The number of 403s that make a burst.
const BURST_SIZE: usize = 5;
/// The number of responses among which they must be.
const BURST_ANSWERS: u32 = 10;
/// The time within which they must arrive, and the minimum time between two reports of a host.
const BURST_WINDOW: Duration = Duration::from_secs(600);

/// The history of a host's refusals.
#[derive(Debug, Default)]
pub struct BanDetector {
    access: AccessHistory,
    /// Boxed because it exists only for the few hosts that forbid something.
    recent: Option<Box<ForbiddenHistory>>,
}

/// `Served` once the host has answered successfully.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AccessHistory {
    #[default]
    NeverServed,
    Served,
}

#[derive(Debug, Default)]
struct ForbiddenHistory {
    /// The last 403s, oldest first: the time and the number of the response.
    forbidden: [Option<(Instant, u32)>; BURST_SIZE],
    responses: u32,
    last_report: Option<Instant>,
}

/// The result of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BanSuspicion {
    /// No sign of a ban, or it was reported recently.
    None,
    /// A ban that has to be reported.
    Ban,
}

impl BanDetector {
    /// Records a successful response.
    pub fn record_success(&mut self) {
        self.access = AccessHistory::Served;
        self.record_response();
    }

    /// Records a failure or a complaint.
    pub fn record_response(&mut self) {
        if let Some(recent) = &mut self.recent {
            recent.responses = recent.responses.saturating_add(1);
            if recent.is_expired() {
                self.recent = None;
            }
        }
    }

    /// Records a 403.
    pub fn record_forbidden(&mut self, now: Instant) -> BanSuspicion {
        let recent = self.recent.get_or_insert_default();
        if recent.record_forbidden(now, self.access) {
            recent.report(now)
        } else {
            BanSuspicion::None
        }
    }

    /// Records a challenge by a system in front of the origin.
    pub fn record_challenge(&mut self, now: Instant) -> BanSuspicion {
        self.recent.get_or_insert_default().report(now)
    }

    /// Returns `true` if there is a history that must not be dropped yet.
    pub fn has_history(&self) -> bool {
        self.recent.is_some()
    }
}

impl ForbiddenHistory {
    /// Records a 403. Returns `true` if it completes a burst.
    fn record_forbidden(&mut self, now: Instant, served: AccessHistory) -> bool {
        self.responses = self.responses.saturating_add(1);
        self.forbidden.rotate_left(1);
        let [.., last] = &mut self.forbidden;
        *last = Some((now, self.responses));
        let [Some((first, number)), ..] = self.forbidden else {
            return false;
        };
        let window = self.responses - number + 1;
        let nothing_else = usize::try_from(window) == Ok(BURST_SIZE);
        now.saturating_duration_since(first) <= BURST_WINDOW
            && window <= BURST_ANSWERS
            && (nothing_else || served == AccessHistory::Served)
    }

    fn report(&mut self, now: Instant) -> BanSuspicion {
        if self
            .last_report
            .is_some_and(|reported| now.saturating_duration_since(reported) < BURST_WINDOW)
        {
            return BanSuspicion::None;
        }
        self.last_report = Some(now);
        BanSuspicion::Ban
    }

    fn is_expired(&self) -> bool {
        let newest = self
            .forbidden
            .last()
            .copied()
            .flatten()
            .map_or(0, |(_, number)| number);
        self.last_report.is_none() && BURST_ANSWERS <= self.responses - newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the number of reported bans: `+` is a page, `-` 500, `x` 403, `c` a challenge, `m`
    /// ten minutes.
    fn count_suspicions(responses: &str) -> usize {
        let ((clock, control), mut bans) = (TestClock::manual(), BanDetector::default());
        let mut suspicions = 0;
        for response in responses.chars() {
            control.advance(SECOND);
            let suspicion = match response {
                '+' => {
                    bans.record_success();
                    continue;
                }
                '-' => {
                    bans.record_response();
                    continue;
                }
                'm' => {
                    control.advance(BURST_WINDOW);
                    continue;
                }
                'x' => bans.record_forbidden(clock.now()),
                'c' => bans.record_challenge(clock.now()),
                other => panic!("{other}"),
            };
            suspicions += usize::from(suspicion == BanSuspicion::Ban);
        }
        suspicions
    }

    #[test]
    fn a_suspicion_is_reported_once_in_ten_minutes() {
        for (answers, times) in [
            ("xxxx", 0),
            ("xxxxx", 1),
            ("+x+x+x+x+x", 1),
            ("+x+x+x++x++x", 0),
            // Without a good response before, only 403s in a row count.
            ("-x-x-x-x-x-x-x", 0),
            ("+xxxxmx", 0),
            ("+xxxxxxxxxx", 1),
            ("+xxxxxmxxxxx", 2),
            ("+xxxx++++++++++xxxx", 0),
            ("+c", 1),
            ("ccxxxxxc", 1),
            ("cmc", 2),
        ] {
            assert_eq!(count_suspicions(answers), times, "{answers}");
        }
    }

    #[test]
    fn old_responses_are_forgotten() {
        let ((clock, _control), mut bans) = (TestClock::manual(), BanDetector::default());
        let _ = bans.record_forbidden(clock.now());
        assert!(bans.has_history());
        (0..BURST_ANSWERS).for_each(|_| bans.record_success());
        assert!(!bans.has_history());
        assert!(size_of::<BanDetector>() <= 16 && size_of::<ForbiddenHistory>() <= 192);
    }
}
