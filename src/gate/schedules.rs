//! The option `politeness.schedule`, made ready when a policy is loaded: a request only looks which window holds.
//!
//! A policy that sets none pays one look at nothing, and no wall clock is read for it. What a window means is said in
//! `politeness/schedule.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::policy::Policy;
use crate::policy::options::Value;
use crate::policy::options::chosen::Chosen;
use crate::policy::options::politeness::{Pages, SCHEDULE};
use crate::policy::trail::Trail;
use crate::politeness::schedule::{Limits, Quota, Schedule, Window};
use crate::vocab::week::{Days, Hours, Offset};

/// The schedules of a policy, by who sets them.
#[derive(Debug, Default)]
pub struct Schedules(Option<Chosen<Schedule>>);

impl Schedules {
    /// Makes those that a policy's options can ask for.
    pub fn of(policy: &Policy) -> Self {
        Self(Chosen::of(policy, SCHEDULE, schedule))
    }

    /// The limits that hold for a request now; the wall clock is read only if there is a schedule for it.
    pub(in crate::gate) fn now(
        &self,
        policy: &Policy,
        trail: &Trail,
        wall: impl FnOnce() -> SystemTime,
    ) -> Limits {
        let chosen = self.0.as_ref().and_then(|chosen| chosen.now(policy, trail));
        chosen.map_or(Limits::default(), |schedule| {
            schedule.at(since_1970(wall()))
        })
    }
}

/// A wall time as the time since 1970; an earlier one counts as 1970.
pub(in crate::gate) fn since_1970(wall: SystemTime) -> Duration {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A policy's limits with those of a window in their place.
pub(in crate::gate) fn scheduled(pages: Pages, limits: Limits) -> Pages {
    let rate = match limits.rate {
        None => pages.rate,
        Some(Quota::Unlimited) => None,
        Some(Quota::Of(count, per)) => Some((count, per)),
    };
    let concurrency = limits.concurrency.unwrap_or(pages.concurrency);
    Pages {
        delay: limits.delay.unwrap_or(pages.delay),
        rate,
        concurrency,
        ..pages
    }
}

/// `None` for a list without windows: the one that is set where a rule takes a schedule back.
fn schedule(value: &Value) -> Option<Schedule> {
    let Value::List(items) = value else {
        return None;
    };
    (!items.is_empty()).then(|| Schedule::new(items.iter().filter_map(window)))
}

/// `compile` lets no item through that is no window.
fn window(item: &Value) -> Option<Window> {
    let Value::Map(entries) = item else {
        return None;
    };
    let mut window = Window {
        days: Days::ALL,
        hours: Hours::ALL,
        offset: Offset::UTC,
        limits: Limits::default(),
    };
    for (key, value) in entries {
        set(&mut window, key, value)?;
    }
    Some(window)
}

fn set(window: &mut Window, key: &str, value: &Value) -> Option<()> {
    let Window {
        days,
        hours,
        offset,
        limits,
    } = window;
    match (key, value) {
        ("days", Value::List(names)) => {
            *days = names.iter().filter_map(word).fold(Days::NONE, Days::and)
        }
        ("hours", Value::Text(text)) => *hours = Hours::parse(text)?,
        ("tz", Value::Text(text)) => *offset = Offset::parse(text)?,
        ("delay", Value::Duration(delay)) => limits.delay = Some(*delay),
        ("rate", Value::Rate { count, per }) => limits.rate = Some(Quota::Of(*count, *per)),
        ("rate", Value::None) => limits.rate = Some(Quota::Unlimited),
        ("concurrency", Value::Integer(count)) => {
            limits.concurrency = Some(u32::try_from(*count).unwrap_or(u32::MAX));
        }
        _ => return None,
    }
    Some(())
}

fn word(value: &Value) -> Option<&'static str> {
    if let Value::Word(word) = value {
        Some(word)
    } else {
        None
    }
}
