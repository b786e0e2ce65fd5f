//! Stops after a restart.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::Metrics;
use crawlgate::pacing::stops::StopQuery;
use crawlgate::pipeline::stop_registry::{
    MAX_STOPS, StopId, StopPersistence, StopReason, StopRegistry, StopTarget, TooManyStops,
};
use crawlgate::store::stops::StopsFile;

use super::press;
use crate::support::temp_dir::TempDir;

fn stops(clock: &Clock) -> StopRegistry {
    StopRegistry::new(10, clock.clone(), Metrics::new(&[], &[]).unwrap())
}

fn opened(folder: &TempDir, clock: &Clock) -> Result<StopRegistry, String> {
    let stops = stops(clock);
    let file = StopsFile::in_directory(&folder.path().join("var/crawlgate"));
    stops.restore(file).map_err(|error| error.to_string())?;
    Ok(stops)
}

fn shown(stops: &StopRegistry) -> Vec<String> {
    fn times(time: Duration) -> u64 {
        time.as_secs() - 1_767_225_600
    }
    fn show(stop: &crawlgate::pipeline::stop_registry::EmergencyStop) -> String {
        let until = stop.until.map(times);
        format!(
            "{} {} {} {until:?} {}",
            stop.id,
            stop.target,
            times(stop.since),
            stop.reason.as_str()
        )
    }
    stops.list().iter().map(|stop| show(stop)).collect()
}

fn advance(manual_clock: &ManualClock, seconds: u64) {
    manual_clock.advance(Duration::from_secs(seconds));
}

fn covered(stops: &StopRegistry, host: &str) -> bool {
    stops
        .find_refusal(&StopQuery {
            host,
            crawler: None,
            rules: &[],
        })
        .is_some()
}

#[test]
fn a_restart_keeps_the_stops() {
    let folder = TempDir::new();
    let (clock, manual_clock) = Clock::manual();
    let first = opened(&folder, &clock).unwrap();
    assert!(first.is_clear());
    assert!(
        !folder.path().join("var").exists(),
        "made when something is first kept"
    );
    for (what, seconds) in [
        ("a.test", None),
        ("*.b.test", Some(60)),
        ("crawler:news", Some(10)),
        ("rule:x.1", None),
    ] {
        assert_eq!(
            press(&first, what, seconds).persistence,
            StopPersistence::OnDisk
        );
        advance(&manual_clock, 1);
    }
    let lifted = first.lift(StopId(4)).unwrap();
    assert_eq!(
        (lifted.persistence, lifted.stop.target.to_string()),
        (StopPersistence::OnDisk, "rule:x.1".to_owned())
    );
    assert!(first.lift(StopId(4)).is_none());

    let second = opened(&folder, &clock).unwrap();
    let all = [
        "1 host:a.test 0 None ticket 7",
        "2 domain:b.test 1 Some(61) ticket 7",
        "3 crawler:news 2 Some(12) ticket 7",
    ];
    assert_eq!(shown(&first), all.map(str::to_owned).to_vec());
    assert_eq!(shown(&second), all.map(str::to_owned).to_vec());
    assert!(covered(&second, "x.b.test"));
    assert_eq!(
        press(&second, "c.test", None).stop.id,
        StopId(5),
        "no number is given twice"
    );

    // What ends while nothing runs is over; what does not still ends at its time.
    advance(&manual_clock, 36);
    let third = opened(&folder, &clock).unwrap();
    assert_eq!(shown(&third).len(), 3);
    assert!(covered(&third, "b.test"));
    advance(&manual_clock, 21);
    assert!(!covered(&third, "b.test"));
    assert_eq!(
        (shown(&third).len(), third.lift(StopId(2)).is_none()),
        (2, true)
    );
    third.sweep();
    assert!(third.needs_write());
    assert_eq!(
        (third.persist(), third.needs_write()),
        (StopPersistence::OnDisk, false)
    );
    let path = folder.path().join("var/crawlgate/stops.json");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let text = fs::read_to_string(path).unwrap();
    assert!(!text.contains("b.test"), "{text}");
    assert!(text.contains("a.test"), "{text}");
    assert!(text.contains("\"next\": 6"), "{text}");
    assert_eq!(
        fs::read_dir(folder.path().join("var/crawlgate"))
            .unwrap()
            .count(),
        1,
        "nothing is left beside it"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_no_empty_one() {
    let line =
        |more: &str| format!("{{\"version\": 1, \"next\": 2, \"stops\": [{{\"id\": 1, {more}}}]}}");
    let fine = "\"what\": \"host:a.test\", \"reason\": \"x\", \"since_ms\": 0, \"until_ms\": null";
    for (text, reported) in [
        (String::new(), "EOF"),
        ("{}".into(), "missing field"),
        ("[]".into(), "invalid"),
        (
            line(fine).replace("\"version\": 1", "\"version\": 2"),
            "version 2, and this program reads 1",
        ),
        (
            line(&fine.replace("host:a.test", "host:a b")),
            "stop 1: invalid host",
        ),
        (
            line(&fine.replace("\"x\"", "\"a\\r\\nb\"")),
            "stop 1: a reason is one line",
        ),
        (line(&format!("{fine}, \"who\": 1")), "unknown field `who`"),
        (
            line(&format!("{fine}, \"what\": \"host:b.test\"")),
            "duplicate field `what`",
        ),
        (
            line(&format!("{fine}}}, {{\"id\": 1, {fine}")),
            "it contains stop 1 twice",
        ),
        (
            line(fine).replace("\"id\": 1", "\"id\": -1"),
            "invalid value",
        ),
        (line(fine) + "x", "trailing"),
    ] {
        let folder = TempDir::new();
        folder.write("var/crawlgate/stops.json", &text);
        let told_of = opened(&folder, &Clock::system())
            .err()
            .unwrap_or_else(|| panic!("{text}"));
        assert!(told_of.contains(reported), "{text}: {told_of}");
        assert!(told_of.contains("var/crawlgate/stops.json"), "{told_of}");
        assert!(told_of.contains("move it away"), "{told_of}");
        assert_eq!(
            fs::read_to_string(folder.path().join("var/crawlgate/stops.json")).unwrap(),
            text
        );
    }
    let folder = TempDir::new();
    folder.write("var/crawlgate/stops.json", line(fine));
    assert!(covered(
        &opened(&folder, &Clock::system()).unwrap(),
        "a.test"
    ));
    // A directory in its place, bytes that are no text, a link that leads nowhere: the last is no file yet.
    let folder = TempDir::new();
    folder.write("var/crawlgate/stops.json/x", "");
    assert!(opened(&folder, &Clock::system()).is_err());
    let folder = TempDir::new();
    folder.write("var/crawlgate/stops.json", [0xff, 0xfe]);
    assert!(opened(&folder, &Clock::system()).is_err());
    let folder = TempDir::new();
    fs::create_dir_all(folder.path().join("var/crawlgate")).unwrap();
    symlink(
        "/nowhere/at/all",
        folder.path().join("var/crawlgate/stops.json"),
    )
    .unwrap();
    assert!(opened(&folder, &Clock::system()).unwrap().is_clear());
}

/// A button works when the disk does not.
#[test]
fn a_stop_takes_effect_even_if_it_cannot_be_saved() {
    let folder = TempDir::new();
    let (clock, _hand) = Clock::manual();
    let stops = opened(&folder, &clock).unwrap();
    // A file where the directory is to be.
    folder.write("var", "");
    let change = press(&stops, "a.test", None);
    let StopPersistence::InMemory(why) = change.persistence else {
        panic!("it cannot be kept")
    };
    assert!(why.contains("stops.json: "), "{why}");
    assert!(covered(&stops, "a.test") && stops.needs_write() && stops.has_write_failed());
    fs::remove_file(folder.path().join("var")).unwrap();
    assert_eq!(stops.persist(), StopPersistence::OnDisk);
    assert!(!stops.needs_write());
    assert!(!stops.has_write_failed());
    assert!(covered(&opened(&folder, &clock).unwrap(), "a.test"));

    let without = self::stops(&clock);
    assert_eq!(
        press(&without, "a.test", None).persistence,
        StopPersistence::InMemory("there is no store".into())
    );
    assert!(covered(&without, "a.test") && !without.needs_write());
}

#[test]
fn there_are_only_so_many() {
    let (clock, manual_clock) = Clock::manual();
    let stops = stops(&clock);
    for number in 0..MAX_STOPS {
        press(&stops, &format!("h{number}.test"), Some(60));
    }
    let target = StopTarget::parse("x.test").unwrap();
    let reason = StopReason::new("x").unwrap();
    assert_eq!(stops.add(target, reason, None).unwrap_err(), TooManyStops);
    assert!(!covered(&stops, "x.test"));
    advance(&manual_clock, 60);
    press(&stops, "x.test", None);
    assert_eq!(stops.list().len(), 1, "those that have ended take no place");
}

/// Many at once: every number once, and the disk knows them all.
#[test]
fn concurrent_stops_do_not_conflict() {
    let folder = TempDir::new();
    let clock = Clock::system();
    let stops = opened(&folder, &clock).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let stops = &stops;
            scope.spawn(move || {
                for number in 0..6 {
                    let change = press(stops, &format!("h{number}.t{thread}.test"), None);
                    assert_eq!(change.persistence, StopPersistence::OnDisk);
                    if number % 2 == 1 {
                        stops.lift(change.stop.id).unwrap();
                    }
                }
            });
        }
    });
    let list = shown(&stops);
    let kept = shown(&opened(&folder, &clock).unwrap());
    assert_eq!((list.len(), &list), (12, &kept));
}
