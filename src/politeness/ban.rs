//! Whether a host seems to have banned this proxy: a burst of 403, or a challenge.
//!
//! It is only told; the pace goes on as it was. Many a host forbids some of its pages, so that what counts is a burst
//! behind good answers, or nothing but 403.

use std::time::{Duration, Instant};

/// So many 403 are a burst,
const BURST: usize = 5;
/// if they are among so many answers,
const AMONG: u32 = 10;
/// and came within this time. It is also how long a host is not named again.
const WITHIN: Duration = Duration::from_secs(600);

/// What is remembered of a host.
#[derive(Debug, Default)]
pub struct Bans {
    served: Served,
    /// Rare: of hosts that forbid something.
    recent: Option<Box<Recent>>,
}

/// Whether the host has let us have an answer before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Served {
    #[default]
    NotYet,
    Once,
}

#[derive(Debug, Default)]
struct Recent {
    /// The last 403, the oldest first: when, and as which of the answers.
    forbidden: [Option<(Instant, u32)>; BURST],
    answers: u32,
    told: Option<Instant>,
}

/// Whether a ban is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Suspicion {
    /// There is no sign, or it was told a short time ago.
    None,
    /// There is.
    Ban,
}

impl Bans {
    /// The host has let us have an answer.
    pub fn answered(&mut self) {
        self.served = Served::Once;
        self.passed();
    }

    /// It failed, or asked for rest.
    pub fn passed(&mut self) {
        if let Some(recent) = &mut self.recent {
            recent.answers = recent.answers.saturating_add(1);
            if recent.is_over() {
                self.recent = None;
            }
        }
    }

    /// 403.
    pub fn forbade(&mut self, now: Instant) -> Suspicion {
        let recent = self.recent.get_or_insert_default();
        if recent.forbade(now, self.served) {
            recent.tell(now)
        } else {
            Suspicion::None
        }
    }

    /// Something before the origin has stopped us.
    pub fn challenged(&mut self, now: Instant) -> Suspicion {
        self.recent.get_or_insert_default().tell(now)
    }

    /// Whether there is anything to remember for a while.
    pub fn is_known(&self) -> bool {
        self.recent.is_some()
    }
}

impl Recent {
    /// Notes a 403; whether it makes a burst.
    fn forbade(&mut self, now: Instant, served: Served) -> bool {
        self.answers = self.answers.saturating_add(1);
        self.forbidden.rotate_left(1);
        let [.., last] = &mut self.forbidden;
        *last = Some((now, self.answers));
        let [Some((first, number)), ..] = self.forbidden else {
            return false;
        };
        let among = self.answers - number + 1;
        let nothing_else = usize::try_from(among) == Ok(BURST);
        now.saturating_duration_since(first) <= WITHIN
            && among <= AMONG
            && (nothing_else || served == Served::Once)
    }

    fn tell(&mut self, now: Instant) -> Suspicion {
        if self
            .told
            .is_some_and(|told| now.saturating_duration_since(told) < WITHIN)
        {
            return Suspicion::None;
        }
        self.told = Some(now);
        Suspicion::Ban
    }

    fn is_over(&self) -> bool {
        let newest = self
            .forbidden
            .last()
            .copied()
            .flatten()
            .map_or(0, |(_, number)| number);
        self.told.is_none() && AMONG <= self.answers - newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    /// `+` a page, `-` 500, `x` 403, `c` a challenge, `m` ten minutes; how often a ban is told.
    fn told(answers: &str) -> usize {
        let ((clock, hand), mut bans) = (Clock::manual(), Bans::default());
        let mut told = 0;
        for answer in answers.chars() {
            hand.advance(SECOND);
            let suspicion = match answer {
                '+' => {
                    bans.answered();
                    continue;
                }
                '-' => {
                    bans.passed();
                    continue;
                }
                'm' => {
                    hand.advance(WITHIN);
                    continue;
                }
                'x' => bans.forbade(clock.now()),
                'c' => bans.challenged(clock.now()),
                other => panic!("{other}"),
            };
            told += usize::from(suspicion == Suspicion::Ban);
        }
        told
    }

    #[test]
    fn a_burst_of_403_or_a_challenge_is_told_once_in_ten_minutes() {
        for (answers, times) in [
            ("xxxx", 0),
            ("xxxxx", 1),
            ("+x+x+x+x+x", 1),
            ("+x+x+x++x++x", 0),
            // Without an answer before, some that are forbidden are nothing.
            ("-x-x-x-x-x-x-x", 0),
            ("+xxxxmx", 0),
            ("+xxxxxxxxxx", 1),
            ("+xxxxxmxxxxx", 2),
            ("+xxxx++++++++++xxxx", 0),
            ("+c", 1),
            ("ccxxxxxc", 1),
            ("cmc", 2),
        ] {
            assert_eq!(told(answers), times, "{answers}");
        }
    }

    #[test]
    fn what_is_long_past_takes_no_room() {
        let ((clock, _hand), mut bans) = (Clock::manual(), Bans::default());
        let _ = bans.forbade(clock.now());
        assert!(bans.is_known());
        (0..AMONG).for_each(|_| bans.answered());
        assert!(!bans.is_known());
        assert!(size_of::<Bans>() <= 16 && size_of::<Recent>() <= 192);
    }
}
