//! The latest lines of the decision log, in memory, for whoever watches: a bounded ring that the log's writer thread fills.
//!
//! Lines are the JSON form, whatever the log's own form is, with as much of a URL as the log shows. Who follows reads from
//! the ring at a pace of its own; what the ring has let go of before it was read is lost to that reader alone, who is told.
//! No request ever waits for this, and none takes its lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::entry::{LogEntry, LogField, LogFieldSet};
use super::filter::LogFilterSet;

/// The largest piece that lines are kept in, unless one line is longer.
const CHUNK_BYTES: usize = 64 << 10;

/// The ring, and who is to be woken when it grows.
#[derive(Debug)]
pub struct LogTap {
    ring: Mutex<LineRing>,
    events: watch::Sender<TapEvent>,
    bounds: TapBounds,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapBounds {
    /// Lines.
    pub lines: usize,
    /// Bytes of them.
    pub bytes: usize,
}

impl TapBounds {
    /// 10,000 lines, 8 MiB.
    pub const DEFAULT: Self = Self {
        lines: 10_000,
        bytes: 8 << 20,
    };
}

/// Lines have numbers, those that were lost on their way here too.
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
    /// There may be more.
    Lines,
    /// The log is closed.
    End,
}

/// Lines that were in the ring at one moment, the oldest first.
#[derive(Clone, Debug)]
pub struct RecentLines(Vec<LineChunk>);

/// Reads what comes into the ring from now on. While there is one, every decision comes.
#[derive(Debug)]
pub struct TapFollower {
    tap: Arc<LogTap>,
    next: u64,
    events: watch::Receiver<TapEvent>,
}

/// What a follower hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowEvent {
    /// Whole lines, each with its line feed.
    Lines(Bytes),
    /// So many lines went by unread: this reader is too slow, or the log was full.
    Lost(u64),
}

impl LogTap {
    /// An empty ring.
    pub fn new(bounds: TapBounds) -> Arc<Self> {
        let (news, _) = watch::channel(TapEvent::Lines);
        Arc::new(Self {
            ring: Mutex::default(),
            events: news,
            bounds,
        })
    }

    /// Whether anybody follows; read at the end of each request.
    pub(crate) fn has_followers(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Takes whole lines.
    pub(super) fn append(&self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let mut ring = self.ring();
        let mut rest = lines;
        while !rest.is_empty() {
            let (piece, others) = rest
                .split_at_checked(chunk_end(rest))
                .unwrap_or((rest, b""));
            ring.push(piece);
            rest = others;
        }
        ring.trim(self.bounds);
        drop(ring);
        self.events.send_replace(TapEvent::Lines);
    }

    /// So many lines were lost on their way here.
    pub(super) fn record_missed(&self, lines: u64) {
        if lines > 0 {
            self.ring().next += lines;
            self.events.send_replace(TapEvent::Lines);
        }
    }

    /// No line will come any more.
    pub(super) fn close(&self) {
        self.events.send_replace(TapEvent::End);
    }

    /// What is in the ring.
    pub fn recent_lines(&self) -> RecentLines {
        RecentLines(self.ring().chunks.iter().cloned().collect())
    }

    /// What is in the ring, and all that comes behind it.
    pub fn follow(self: &Arc<Self>) -> (RecentLines, TapFollower) {
        let news = self.events.subscribe();
        let ring = self.ring();
        let kept = RecentLines(ring.chunks.iter().cloned().collect());
        (
            kept,
            TapFollower {
                tap: Arc::clone(self),
                next: ring.next,
                events: news,
            },
        )
    }

    fn ring(&self) -> MutexGuard<'_, LineRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineRing {
    fn push(&mut self, bytes: &[u8]) {
        let lines = memchr::memchr_iter(b'\n', bytes).count();
        let piece = LineChunk {
            first_number: self.next,
            lines,
            bytes: Bytes::copy_from_slice(bytes),
        };
        self.next = piece.end_number();
        self.lines += lines;
        self.bytes += bytes.len();
        self.chunks.push_back(piece);
    }

    /// Lets go of the oldest pieces until the rest is within its bounds; the last one always stays.
    fn trim(&mut self, bounds: TapBounds) {
        while (self.lines > bounds.lines || self.bytes > bounds.bytes) && self.chunks.len() > 1 {
            let Some(oldest) = self.chunks.pop_front() else {
                return;
            };
            self.lines -= oldest.lines;
            self.bytes -= oldest.bytes.len();
        }
    }

    /// What stands at this number or behind it, and the number behind that.
    fn read_from(&self, next: u64) -> Option<(FollowEvent, u64)> {
        let at = self
            .chunks
            .partition_point(|piece| piece.end_number() <= next);
        match self.chunks.get(at) {
            Some(piece) if piece.first_number > next => Some((
                FollowEvent::Lost(piece.first_number - next),
                piece.first_number,
            )),
            Some(piece) => Some((FollowEvent::Lines(piece.bytes.clone()), piece.end_number())),
            None => (self.next > next).then(|| (FollowEvent::Lost(self.next - next), self.next)),
        }
    }
}

/// Where a piece ends: behind as many whole lines as fit into 64 KiB, and at least behind one.
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
    /// Waits for what comes next; `None` once the log is closed and all of it was read. Nothing is lost if the wait is
    /// given up.
    pub async fn next(&mut self) -> Option<FollowEvent> {
        loop {
            // Before the look: what comes behind it wakes the wait.
            let news = *self.events.borrow_and_update();
            let found = self.tap.ring().read_from(self.next);
            match (found, news) {
                (Some((heard, next)), _) => {
                    self.next = next;
                    return Some(heard);
                }
                (None, TapEvent::End) => return None,
                (None, TapEvent::Lines) => self.events.changed().await.ok()?,
            }
        }
    }
}

impl RecentLines {
    /// The latest lines that pass, at most so many, the oldest first. It may take a while, since 10,000 lines are read; it
    /// ends early if nobody waits for it any more.
    pub fn latest(
        &self,
        most: usize,
        sieve: &LogFilterSet,
        is_awaited: impl Fn() -> bool,
    ) -> Vec<u8> {
        let awaited = self.newest_first().take_while(|_| is_awaited());
        let mut found: Vec<&[u8]> = awaited
            .filter(|line| sieve.matches_line(line))
            .take(most)
            .collect();
        found.reverse();
        found.concat()
    }

    /// The lines that have this text somewhere, the newest first.
    pub fn containing<'k>(&'k self, word: &str) -> impl Iterator<Item = &'k [u8]> + use<'k> {
        let finder = memchr::memmem::Finder::new(word.as_bytes()).into_owned();
        let within = finder.clone();
        let pieces = self
            .0
            .iter()
            .rev()
            .filter(move |piece| within.find(&piece.bytes).is_some());
        pieces
            .flat_map(|piece| split_lines(&piece.bytes).rev())
            .filter(move |line| finder.find(line).is_some())
    }

    /// When the oldest line was written; none if there is none.
    pub fn oldest_time(&self) -> Option<String> {
        let oldest = self
            .0
            .iter()
            .find_map(|piece| split_lines(&piece.bytes).next())?;
        let entry = LogEntry::parse(oldest, LogFieldSet::from_fields([])).ok()?;
        Some(entry.text(LogField::Ts).into_owned())
    }

    /// How many lines there are.
    pub fn line_count(&self) -> usize {
        self.0.iter().map(|piece| piece.lines).sum()
    }

    fn newest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .rev()
            .flat_map(|piece| split_lines(&piece.bytes).rev())
    }
}

/// Lines with their line feeds.
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
                .all(|piece| piece.bytes.len() <= CHUNK_BYTES && piece.bytes.ends_with(b"\n"))
        );
        let bytes: usize = all.0.iter().map(|piece| piece.bytes.len()).sum();
        assert!((30_000..=100_000).contains(&bytes), "{bytes}");
        let (all, long) = (
            tap_of_one_mib(),
            format!("{}\n", "x".repeat(3 * CHUNK_BYTES)),
        );
        all.append(format!("{}{long}{}", line(1), line(2)).as_bytes());
        let sizes: Vec<usize> = all
            .recent_lines()
            .0
            .iter()
            .map(|piece| piece.bytes.len())
            .collect();
        assert_eq!(sizes, [line(1).len(), long.len(), line(2).len()]);
    }

    fn tap_of_one_mib() -> Arc<LogTap> {
        tap(100, 1 << 20)
    }

    #[tokio::test]
    async fn a_follower_hears_all_or_how_much_it_lost() {
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
        // Lost before they came here.
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
    async fn a_wait_that_is_given_up_loses_nothing() {
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
