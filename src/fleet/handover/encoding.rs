//! The state of a partition as text: JSON, in which fields without a value are left out. A later release may add fields.
//!
//! Times since something are rounded down, and times that remain are rounded up, so that no delay becomes shorter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pacing::backoff::{BackoffCause, BackoffRecord};
use crate::pacing::host_limiter::LimiterRecord;
use crate::pipeline::admission::handover::{HostRecord, PartitionRecord};
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::state::RobotsRecord;

use super::RobotsFileRecord;

/// The longest text of the hosts of a partition. Hosts that do not fit count as asked at the takeover.
const MAX_BYTES: usize = 64 << 10;

#[derive(Serialize, Deserialize)]
struct PartitionText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_takeover_ms: Option<u64>,
    hosts: Vec<HostText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    robots: Vec<RobotsText>,
}

#[derive(Serialize, Deserialize)]
struct RobotsText {
    base: Box<str>,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_modified: Option<Box<str>>,
    age_ms: u64,
    fresh_ms: u64,
    stale_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct HostText {
    host: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pages: Option<LimiterText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    embeds: Option<LimiterText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<RestText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latency_us: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    byte_debt_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct LimiterText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_sent_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero_draw")]
    draw: f32,
    #[serde(default, skip_serializing_if = "is_zero_count")]
    in_flight: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    in_flight_ms: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    until_full_ms: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    longest_delay_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct RestText {
    cause: String,
    #[serde(default)]
    strikes: u8,
    #[serde(default)]
    failures: u8,
    ends_in_ms: i64,
    #[serde(default)]
    proved: bool,
}

/// Returns the state as text, in which the length of the hosts is limited: first those that rest.
pub(super) fn encode(
    record: &PartitionRecord,
    files: Vec<RobotsFileRecord>,
) -> Result<String, serde_json::Error> {
    let mut text = PartitionText {
        since_takeover_ms: record.since_takeover.map(round_down),
        hosts: vec![],
        robots: files.into_iter().map(RobotsText::new).collect(),
    };
    let is_resting = |host: &HostRecord| host.backoff.is_some_and(|backoff| backoff.is_rest());
    let resting = record.hosts.iter().filter(|(_, host)| is_resting(host));
    let others = record.hosts.iter().filter(|(_, host)| !is_resting(host));
    let mut length = 0;
    for (name, host) in resting.chain(others) {
        let host = HostText::new(name, host);
        length += serde_json::to_string(&host)?.len() + 1;
        if length > MAX_BYTES {
            text.since_takeover_ms = Some(0);
            break;
        }
        text.hosts.push(host);
    }
    serde_json::to_string(&text)
}

/// Returns the state of a text that was written some time ago.
pub(super) fn decode(
    text: &str,
    age: Duration,
) -> Result<(PartitionRecord, Vec<RobotsFileRecord>), serde_json::Error> {
    let text: PartitionText = serde_json::from_str(text)?;
    let hosts = text.hosts.into_iter();
    let hosts: BTreeMap<_, _> = hosts
        .map(|host| (Arc::from(&*host.host), host.record().after(age)))
        .collect();
    let record = PartitionRecord {
        since_takeover: text.since_takeover_ms.map(Duration::from_millis),
        hosts,
    };
    let files = text.robots.into_iter();
    Ok((record, files.filter_map(|file| file.record(age)).collect()))
}

impl RobotsText {
    fn new(file: RobotsFileRecord) -> Self {
        let RobotsFileRecord { base, record } = file;
        Self {
            base,
            outcome: record.outcome.as_str().to_owned(),
            status: record.status,
            text: record.text,
            etag: record.etag,
            last_modified: record.last_modified,
            age_ms: round_up(record.age),
            fresh_ms: round_down(record.fresh_for),
            stale_ms: round_down(record.stale_for),
        }
    }

    /// Returns the record; `None` if a later release has written an outcome that this one does not know.
    fn record(self, age: Duration) -> Option<RobotsFileRecord> {
        let record = RobotsRecord {
            outcome: RobotsFetchOutcome::from_word(&self.outcome)?,
            status: self.status,
            text: self.text,
            etag: self.etag,
            last_modified: self.last_modified,
            age: Duration::from_millis(self.age_ms).saturating_add(age),
            fresh_for: Duration::from_millis(self.fresh_ms),
            stale_for: Duration::from_millis(self.stale_ms),
        };
        let base = self.base;
        Some(RobotsFileRecord { base, record })
    }
}

impl HostText {
    fn new(name: &Arc<str>, record: &HostRecord) -> Self {
        Self {
            host: (**name).into(),
            pages: record.navigations.as_ref().map(LimiterText::new),
            embeds: record.embeds.as_ref().map(LimiterText::new),
            rest: record.backoff.as_ref().map(RestText::new),
            latency_us: record
                .latency
                .map(|latency| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)),
            byte_debt_ms: round_up(record.byte_debt),
        }
    }

    fn record(&self) -> HostRecord {
        HostRecord {
            navigations: self.pages.as_ref().map(LimiterText::record),
            embeds: self.embeds.as_ref().map(LimiterText::record),
            backoff: self.rest.as_ref().map(RestText::record),
            latency: self.latency_us.map(Duration::from_micros),
            byte_debt: Duration::from_millis(self.byte_debt_ms),
        }
    }
}

impl LimiterText {
    fn new(record: &LimiterRecord) -> Self {
        Self {
            since_sent_ms: record.since_sent.map(round_down),
            draw: record.draw,
            in_flight: record.in_flight,
            in_flight_ms: round_up(record.in_flight_for),
            until_full_ms: round_up(record.until_full),
            longest_delay_ms: round_up(record.longest_delay),
        }
    }

    fn record(&self) -> LimiterRecord {
        LimiterRecord {
            since_sent: self.since_sent_ms.map(Duration::from_millis),
            draw: self.draw,
            in_flight: self.in_flight,
            in_flight_for: Duration::from_millis(self.in_flight_ms),
            until_full: Duration::from_millis(self.until_full_ms),
            longest_delay: Duration::from_millis(self.longest_delay_ms),
        }
    }
}

impl RestText {
    fn new(record: &BackoffRecord) -> Self {
        Self {
            cause: record.cause.as_str().to_owned(),
            strikes: record.strikes,
            failures: record.consecutive_failures,
            ends_in_ms: record.ends_in_ms,
            proved: record.is_proved,
        }
    }

    fn record(&self) -> BackoffRecord {
        BackoffRecord {
            // Only its description depends on the cause.
            cause: BackoffCause::from_word(&self.cause).unwrap_or_default(),
            strikes: self.strikes,
            consecutive_failures: self.failures,
            ends_in_ms: self.ends_in_ms,
            is_proved: self.proved,
        }
    }
}

fn round_down(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn round_up(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero_count(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero_draw(draw: &f32) -> bool {
    *draw == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_record(random: &mut fastrand::Rng) -> HostRecord {
        let time = |random: &mut fastrand::Rng| match random.u8(..3) {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(random.u64(..10_000_000_000)),
            _ => Duration::from_millis(random.u64(..100_000)),
        };
        let limiter = |random: &mut fastrand::Rng| LimiterRecord {
            since_sent: random.bool().then(|| time(random)),
            draw: random.f32(),
            in_flight: random.u32(..3),
            in_flight_for: time(random),
            until_full: time(random),
            longest_delay: time(random),
        };
        let causes = [
            BackoffCause::Failed,
            BackoffCause::Overload,
            BackoffCause::RetryAfter,
        ];
        HostRecord {
            navigations: random.bool().then(|| limiter(random)),
            embeds: random.bool().then(|| limiter(random)),
            backoff: random.bool().then(|| BackoffRecord {
                cause: causes[random.usize(..3)],
                strikes: random.u8(..),
                consecutive_failures: random.u8(..),
                ends_in_ms: random.i64(-700_000..4_000_000),
                is_proved: random.bool(),
            }),
            latency: random
                .bool()
                .then(|| Duration::from_micros(random.u64(..60_000_000))),
            byte_debt: time(random),
        }
    }

    fn is_at_least(restored: Duration, original: Duration) -> bool {
        original <= restored && restored <= original + Duration::from_millis(1)
    }

    #[test]
    fn a_state_is_the_same_afterwards_but_for_a_millisecond_on_the_safe_side() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let hosts = (0..random.usize(..20))
                .map(|number| (format!("{number}.test").into(), random_record(&mut random)));
            let mut record = PartitionRecord {
                since_takeover: None,
                hosts: hosts.collect(),
            };
            record.since_takeover = random
                .bool()
                .then(|| Duration::from_millis(random.u64(..9_000)));
            let text = encode(&record, vec![]).unwrap();
            let (decoded, files) = decode(&text, Duration::ZERO).unwrap();
            assert!(files.is_empty());
            assert_eq!(decoded.since_takeover, record.since_takeover);
            assert!(decoded.hosts.keys().eq(record.hosts.keys()));
            for (name, before) in &record.hosts {
                let after = decoded.hosts[name];
                assert_eq!(
                    (after.backoff, after.latency),
                    (before.backoff, before.latency)
                );
                assert!(is_at_least(after.byte_debt, before.byte_debt));
                for (after, before) in [
                    (after.navigations, before.navigations),
                    (after.embeds, before.embeds),
                ] {
                    let (Some(after), Some(before)) = (after, before) else {
                        assert_eq!(after, before);
                        continue;
                    };
                    assert_eq!(
                        (after.draw, after.in_flight),
                        (before.draw, before.in_flight)
                    );
                    let (sent, original) = (after.since_sent, before.since_sent);
                    assert_eq!(sent.is_some(), original.is_some());
                    assert!(is_at_least(
                        original.unwrap_or_default(),
                        sent.unwrap_or_default()
                    ));
                    assert!(is_at_least(after.in_flight_for, before.in_flight_for));
                    assert!(is_at_least(after.until_full, before.until_full));
                    assert!(is_at_least(after.longest_delay, before.longest_delay));
                }
            }
        }
    }

    #[test]
    fn time_in_the_store_shortens_rests_and_not_delays() {
        let mut record = PartitionRecord::default();
        let limiter = LimiterRecord {
            since_sent: Some(Duration::from_secs(1)),
            until_full: Duration::from_secs(2),
            ..LimiterRecord::default()
        };
        let host = HostRecord {
            navigations: Some(limiter),
            backoff: Some(BackoffRecord {
                cause: BackoffCause::RetryAfter,
                strikes: 1,
                consecutive_failures: 0,
                ends_in_ms: 60_000,
                is_proved: false,
            }),
            ..HostRecord::default()
        };
        record.hosts.insert("a.test".into(), host);
        let text = encode(&record, vec![]).unwrap();
        let decoded = decode(&text, Duration::from_secs(5)).unwrap().0.hosts["a.test"];
        let limiter = decoded.navigations.unwrap();
        assert_eq!(limiter.since_sent, Some(Duration::from_secs(1)));
        assert_eq!(limiter.until_full, Duration::ZERO);
        assert_eq!(decoded.backoff.unwrap().ends_in_ms, 55_000);
    }

    #[test]
    fn files_become_older_in_the_store() {
        let file = RobotsFileRecord {
            base: "https://a.test/".into(),
            record: RobotsRecord {
                outcome: RobotsFetchOutcome::File,
                status: Some(200),
                text: Some("User-agent: *\nDisallow: /\u{0}\u{fffd}\n".into()),
                etag: Some("\"7\"".into()),
                last_modified: None,
                age: Duration::from_secs(10),
                fresh_for: Duration::from_secs(100),
                stale_for: Duration::from_secs(1_000),
            },
        };
        let record = PartitionRecord::default();
        let text = encode(&record, vec![file.clone()]).unwrap();
        let (decoded, files) = decode(&text, Duration::from_secs(5)).unwrap();
        assert_eq!(decoded, record);
        let mut expected = file;
        expected.record.age += Duration::from_secs(5);
        assert_eq!(files, [expected]);
        let other = text.replace("\"file\"", "\"riddle\"");
        assert!(decode(&other, Duration::ZERO).unwrap().1.is_empty());
    }

    #[test]
    fn too_many_hosts_are_cut_and_the_resting_ones_stay() {
        let mut random = fastrand::Rng::with_seed(4);
        let hosts = (0..2_000).map(|number| {
            (
                format!("host-{number}.test").into(),
                random_record(&mut random),
            )
        });
        let record = PartitionRecord {
            since_takeover: None,
            hosts: hosts.collect(),
        };
        let text = encode(&record, vec![]).unwrap();
        assert!(text.len() <= MAX_BYTES + 100, "{}", text.len());
        let (decoded, _) = decode(&text, Duration::ZERO).unwrap();
        assert_eq!(decoded.since_takeover, Some(Duration::ZERO));
        assert!(decoded.hosts.len() > 100 && decoded.hosts.len() < 2_000);
        assert!(decoded.hosts.values().all(|host| host.backoff.is_some()));
    }

    #[test]
    fn odd_texts_are_errors_or_harmless() {
        for text in [
            "",
            "{",
            "[]",
            "{}",
            "{\"hosts\":7}",
            "{\"hosts\":[{}]}",
            "{\"hosts\":[{\"host\":\"a\",\"rest\":{}}]}",
        ] {
            assert!(decode(text, Duration::ZERO).is_err(), "{text}");
        }
        // Fields and causes of a later release.
        let text = "{\"hosts\":[{\"host\":\"a\",\"color\":1,\"rest\":{\"cause\":\"mood\",\"ends_in_ms\":9000}}],\"x\":[]}";
        let (decoded, files) = decode(text, Duration::MAX).unwrap();
        assert!(files.is_empty());
        let backoff = decoded.hosts["a"].backoff.unwrap();
        assert_eq!(
            (backoff.cause, backoff.ends_in_ms < 0),
            (BackoffCause::Failed, true)
        );
    }
}
