//! The latest lines of the decision log, in memory: a bounded ring that the log's writer thread fills.
//!
//! Lines are in the JSON format, whatever the log's own format is, with as much of a URL as the log shows. A follower
//! reads from the ring at its own pace; lines that were dropped from the ring before they were read are lost to that
//! follower only, which learns how many. No request ever waits for the tap or takes its lock.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::entry::{LogEntry, LogField, LogFieldSet};
use super::filter::LogFilterSet;

/// The maximum size of a chunk of lines, unless a single line is longer.
const CHUNK_BYTES: usize = 64 << 10;

/// The ring, and its followers.
#[derive(Debug)]
pub struct LogTap {
    ring: Mutex<LineRing>,
    events: watch::Sender<TapEvent>,
    bounds: TapBounds,
}

/// The limits of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapBounds {
    /// The maximum number of lines.
    pub lines: usize,
    /// The maximum number of bytes.
    pub bytes: usize,
}

impl TapBounds {
    /// 10,000 lines, 8 MiB.
    pub const DEFAULT: Self = Self {
        lines: 10_000,
        bytes: 8 << 20,
    };
}

/// Lines are numbered, including those that were lost before they reached the ring.
#[derive(Debug, Default)]
struct LineRing {
    chunks: VecDeque<LineChunk>,
    lines: usize,
    bytes: usize,
    /// The number of the next line.
    next: u64,
}

#[derive(Clone, Debug)]
struct LineChunk {
    first_number: u64,
    lines: usize,
    bytes: Bytes,
}

impl LineChunk {
    fn end_number(&self) -> u64 {
        self.first_number + self.lines as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TapEvent {
    /// There may be new lines.
    Lines,
    /// The log is closed.
    End,
}

/// The lines in the ring at one moment, oldest first.
#[derive(Clone, Debug)]
pub struct RecentLines(Vec<LineChunk>);

/// Reads new lines of the ring. While there is a follower, every decision is written to the ring.
#[derive(Debug)]
pub struct TapFollower {
    tap: Arc<LogTap>,
    next: u64,
    events: watch::Receiver<TapEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowEvent {
    /// Complete lines, each with its line feed.
    Lines(Bytes),
    /// The number of lines that were lost: the follower is too slow, or the log was full.
    Lost(u64),
}

impl LogTap {
    /// Creates an empty ring.
    pub fn new(bounds: TapBounds) -> Arc<Self> {
        let (events, _) = watch::channel(TapEvent::Lines);
        Arc::new(Self {
            ring: Mutex::default(),
            events,
            bounds,
        })
    }

    /// Returns `true` if there are followers; read at the end of each request.
    pub(crate) fn has_followers(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Appends whole lines.
    pub(super) fn append(&self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let mut ring = self.ring.lock();
        let mut rest = lines;
        while !rest.is_empty() {
            let (chunk, others) = rest
                .split_at_checked(chunk_end(rest))
                .unwrap_or((rest, b""));
            ring.push(chunk);
            rest = others;
        }
        ring.trim(self.bounds);
        drop(ring);
        self.events.send_replace(TapEvent::Lines);
    }

    /// Records lines that were lost before they reached the ring.
    pub(super) fn record_missed(&self, lines: u64) {
        if lines > 0 {
            self.ring.lock().next += lines;
            self.events.send_replace(TapEvent::Lines);
        }
    }

    /// Records that no further lines come.
    pub(super) fn close(&self) {
        self.events.send_replace(TapEvent::End);
    }

    /// Returns the lines in the ring.
    pub fn recent_lines(&self) -> RecentLines {
        RecentLines(self.ring.lock().chunks.iter().cloned().collect())
    }

    /// Returns the lines in the ring, and a follower of all later ones.
    pub fn follow(self: &Arc<Self>) -> (RecentLines, TapFollower) {
        let events = self.events.subscribe();
        let ring = self.ring.lock();
        let recent = RecentLines(ring.chunks.iter().cloned().collect());
        (
            recent,
            TapFollower {
                tap: Arc::clone(self),
                next: ring.next,
                events,
            },
        )
    }
}

impl LineRing {
    fn push(&mut self, bytes: &[u8]) {
        let lines = memchr::memchr_iter(b'\n', bytes).count();
        let chunk = LineChunk {
            first_number: self.next,
            lines,
            bytes: Bytes::copy_from_slice(bytes),
        };
        self.next = chunk.end_number();
        self.lines += lines;
        self.bytes += bytes.len();
        self.chunks.push_back(chunk);
    }

    /// Drops the oldest chunks until the others are within the limits; the last one always stays.
    fn trim(&mut self, bounds: TapBounds) {
        while (self.lines > bounds.lines || self.bytes > bounds.bytes) && self.chunks.len() > 1 {
            let Some(oldest) = self.chunks.pop_front() else {
                return;
            };
            self.lines -= oldest.lines;
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Returns the event for the line with this number or the next available one, and the number after it.
    fn read_from(&self, next: u64) -> Option<(FollowEvent, u64)> {
        let at = self
            .chunks
            .partition_point(|chunk| chunk.end_number() <= next);
        match self.chunks.get(at) {
            Some(chunk) if chunk.first_number > next => Some((
                FollowEvent::Lost(chunk.first_number - next),
                chunk.first_number,
            )),
            Some(chunk) => Some((FollowEvent::Lines(chunk.bytes.clone()), chunk.end_number())),
            None => (self.next > next).then(|| (FollowEvent::Lost(self.next - next), self.next)),
        }
    }
}

/// Returns the end of a chunk: after as many whole lines as fit into 64 KiB, and at least one.
pub fn chunk_end(lines: &[u8]) -> usize {
    if lines.len() <= CHUNK_BYTES {
        return lines.len();
    }
    let within = lines
        .get(..CHUNK_BYTES)
        .and_then(|head| memchr::memrchr(b'\n', head));
    let end = within.or_else(|| memchr::memchr(b'\n', lines));
    end.map_or(lines.len(), |end| end + 1)
}

impl TapFollower {
    /// Waits for the next event; `None` once the log is closed and everything was read. Nothing is lost if the wait is
    /// cancelled.
    pub async fn next(&mut self) -> Option<FollowEvent> {
        loop {
            // Read before the ring, so that a later change ends the wait.
            let event = *self.events.borrow_and_update();
            let found = self.tap.ring.lock().read_from(self.next);
            match (found, event) {
                (Some((found, next)), _) => {
                    self.next = next;
                    return Some(found);
                }
                (None, TapEvent::End) => return None,
                (None, TapEvent::Lines) => self.events.changed().await.ok()?,
            }
        }
    }
}

impl RecentLines {
    /// Returns the latest matching lines, at most `most`, oldest first. This may take a while, since 10,000 lines are
    /// parsed; it ends early once `is_awaited` returns `false`.
    pub fn latest(
        &self,
        most: usize,
        filters: &LogFilterSet,
        is_awaited: impl Fn() -> bool,
    ) -> Vec<u8> {
        let awaited = self.newest_first().take_while(|_| is_awaited());
        let mut found: Vec<&[u8]> = awaited
            .filter(|line| filters.matches_line(line))
            .take(most)
            .collect();
        found.reverse();
        found.concat()
    }

    /// Returns the lines that contain this text, newest first.
    pub fn containing<'k>(&'k self, word: &str) -> impl Iterator<Item = &'k [u8]> + use<'k> {
        let finder = memchr::memmem::Finder::new(word.as_bytes()).into_owned();
        let within = finder.clone();
        let chunks = self
            .0
            .iter()
            .rev()
            .filter(move |chunk| within.find(&chunk.bytes).is_some());
        chunks
            .flat_map(|chunk| split_lines(&chunk.bytes).rev())
            .filter(move |line| finder.find(line).is_some())
    }

    /// Returns the time of the oldest line; `None` without lines.
    pub fn oldest_time(&self) -> Option<String> {
        let oldest = self
            .0
            .iter()
            .find_map(|chunk| split_lines(&chunk.bytes).next())?;
        let entry = LogEntry::parse(oldest, LogFieldSet::from_fields([])).ok()?;
        Some(entry.text(LogField::Ts).into_owned())
    }

    /// Returns the number of lines.
    pub fn line_count(&self) -> usize {
        self.0.iter().map(|chunk| chunk.lines).sum()
    }

    fn newest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .rev()
            .flat_map(|chunk| split_lines(&chunk.bytes).rev())
    }
}

/// Splits text into lines with their line feeds.
pub(super) fn split_lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: usize) -> String {
        format!("{{\"ts\":\"t{id}\",\"decision\":\"0-{id}\",\"verdict\":\"allow\"}}\n")
    }

    fn tap(lines: usize, bytes: usize) -> Arc<LogTap> {
        LogTap::new(TapBounds { lines, bytes })
    }

    #[test]
    fn the_ring_keeps_the_latest_lines_within_both_bounds() {
        for (bounds, kept) in [
            ((3, 1 << 20), 3),
            ((100, 5 * line(10).len()), 5),
            ((0, 0), 1),
        ] {
            let tap = tap(bounds.0, bounds.1);
            (10..30).for_each(|id| tap.append(line(id).as_bytes()));
            let all = tap.recent_lines();
            let expected: String = (30 - kept..30).map(line).collect();
            assert_eq!(
                all.latest(usize::MAX, &LogFilterSet::match_all(), || true),
                expected.as_bytes(),
                "{bounds:?}"
            );
            assert_eq!(
                (all.line_count(), all.oldest_time()),
                (kept, Some(format!("t{}", 30 - kept)))
            );
            assert_eq!(
                all.latest(1, &LogFilterSet::match_all(), || true),
                line(29).as_bytes()
            );
            let named: Vec<&[u8]> = all.containing("0-2").collect();
            let newest_first: Vec<String> = (30 - kept..30).rev().map(line).collect();
            assert_eq!(
                named,
                newest_first
                    .iter()
                    .map(String::as_bytes)
                    .collect::<Vec<_>>()
            );
            assert_eq!(all.containing("0-10").count(), 0);
            assert_eq!(
                all.latest(usize::MAX, &LogFilterSet::match_all(), || false),
                b""
            );
        }
        assert_eq!(
            (
                tap(9, 9).recent_lines().line_count(),
                tap(9, 9).recent_lines().oldest_time()
            ),
            (0, None)
        );
    }

    #[test]
    fn a_burst_is_kept_in_pieces_so_that_the_bounds_hold() {
        let burst: String = (0..5_000).map(line).collect();
        let tap = tap(10_000, 100_000);
        tap.append(burst.as_bytes());
        let all = tap.recent_lines();
        assert!(
            all.0
                .iter()
                .all(|chunk| chunk.bytes.len() <= CHUNK_BYTES && chunk.bytes.ends_with(b"\n"))
        );
        let bytes: usize = all.0.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!((30_000..=100_000).contains(&bytes), "{bytes}");
        let all = tap_of_one_mib();
        let long = format!("{}\n", "x".repeat(3 * CHUNK_BYTES));
        all.append(format!("{}{long}{}", line(1), line(2)).as_bytes());
        let sizes: Vec<usize> = all
            .recent_lines()
            .0
            .iter()
            .map(|chunk| chunk.bytes.len())
            .collect();
        assert_eq!(sizes, [line(1).len(), long.len(), line(2).len()]);
    }

    fn tap_of_one_mib() -> Arc<LogTap> {
        tap(100, 1 << 20)
    }

    #[tokio::test]
    async fn a_follower_receives_all_lines_or_the_number_lost() {
        let tap = tap(3, 1 << 20);
        tap.append(line(0).as_bytes());
        assert!(!tap.has_followers());
        let (kept, mut follower) = tap.follow();
        assert!(tap.has_followers());
        assert_eq!(kept.line_count(), 1);
        let lines = |ids: &[usize]| {
            Some(FollowEvent::Lines(
                ids.iter().map(|id| line(*id)).collect::<String>().into(),
            ))
        };
        tap.append((line(1) + &line(2)).as_bytes());
        assert_eq!(follower.next().await, lines(&[1, 2]));
        // It does not read for a while.
        (3..=8).for_each(|id| tap.append(line(id).as_bytes()));
        assert_eq!(follower.next().await, Some(FollowEvent::Lost(3)));
        for id in 6..=8 {
            assert_eq!(follower.next().await, lines(&[id]));
        }
        // Lost before they reached the ring.
        tap.record_missed(7);
        assert_eq!(follower.next().await, Some(FollowEvent::Lost(7)));
        tap.append(line(9).as_bytes());
        tap.close();
        assert_eq!(
            (follower.next().await, follower.next().await),
            (lines(&[9]), None)
        );
        drop(follower);
        assert!(!tap.has_followers());
    }

    #[tokio::test]
    async fn a_cancelled_wait_loses_nothing() {
        let tap = tap(10, 1 << 20);
        let (_, mut follower) = tap.follow();
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, follower.next()).await;
        assert!(waiting.is_err());
        tap.append(line(1).as_bytes());
        assert_eq!(
            follower.next().await,
            Some(FollowEvent::Lines(line(1).into()))
        );
    }
}
