//! The latest lines of the decision log, in memory, for whoever watches: a bounded ring that the log's writer thread fills.
//!
//! Lines are the JSON form, whatever the log's own form is, with as much of a URL as the log shows. Who follows reads from
//! the ring at a pace of its own; what the ring has let go of before it was read is lost to that reader alone, who is told.
//! No request ever waits for this, and none takes its lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::entry::{Entry, Field, Wanted};
use super::filter::Sieve;

/// The largest piece that lines are kept in, unless one line is longer.
const PIECE: usize = 64 << 10;

/// The ring, and who is to be woken when it grows.
#[derive(Debug)]
pub struct Tap {
    ring: Mutex<Ring>,
    news: watch::Sender<News>,
    bounds: Bounds,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lines.
    pub lines: usize,
    /// Bytes of them.
    pub bytes: usize,
}

impl Bounds {
    /// 10,000 lines, 8 MiB.
    pub const USUAL: Self = Self {
        lines: 10_000,
        bytes: 8 << 20,
    };
}

/// Lines have numbers, those that were lost on their way here too.
#[derive(Debug, Default)]
struct Ring {
    pieces: VecDeque<Piece>,
    lines: usize,
    bytes: usize,
    /// The number of the next line.
    next: u64,
}

#[derive(Clone, Debug)]
struct Piece {
    first: u64,
    lines: usize,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.first + self.lines as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// There may be more.
    Lines,
    /// The log is closed.
    End,
}

/// Lines that were in the ring at one moment, the oldest first.
#[derive(Clone, Debug)]
pub struct Kept(Vec<Piece>);

/// Reads what comes into the ring from now on. While there is one, every decision comes.
#[derive(Debug)]
pub struct Follower {
    tap: Arc<Tap>,
    next: u64,
    news: watch::Receiver<News>,
}

/// What a follower hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Whole lines, each with its line feed.
    Lines(Bytes),
    /// So many lines went by unread: this reader is too slow, or the log was full.
    Lost(u64),
}

impl Tap {
    /// An empty ring.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        let (news, _) = watch::channel(News::Lines);
        Arc::new(Self {
            ring: Mutex::default(),
            news,
            bounds,
        })
    }

    /// Whether anybody follows; read at the end of each request.
    pub(in crate::metrics) fn is_followed(&self) -> bool {
        self.news.receiver_count() > 0
    }

    /// Takes whole lines.
    pub(super) fn feed(&self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let mut ring = self.ring();
        let mut rest = lines;
        while !rest.is_empty() {
            let (piece, others) = rest
                .split_at_checked(piece_end(rest))
                .unwrap_or((rest, b""));
            ring.push(piece);
            rest = others;
        }
        ring.cut(self.bounds);
        drop(ring);
        self.news.send_replace(News::Lines);
    }

    /// So many lines were lost on their way here.
    pub(super) fn miss(&self, lines: u64) {
        if lines > 0 {
            self.ring().next += lines;
            self.news.send_replace(News::Lines);
        }
    }

    /// No line will come any more.
    pub(super) fn end(&self) {
        self.news.send_replace(News::End);
    }

    /// What is in the ring.
    pub fn kept(&self) -> Kept {
        Kept(self.ring().pieces.iter().cloned().collect())
    }

    /// What is in the ring, and all that comes behind it.
    pub fn follow(self: &Arc<Self>) -> (Kept, Follower) {
        let news = self.news.subscribe();
        let ring = self.ring();
        let kept = Kept(ring.pieces.iter().cloned().collect());
        (
            kept,
            Follower {
                tap: Arc::clone(self),
                next: ring.next,
                news,
            },
        )
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
        let lines = memchr::memchr_iter(b'\n', bytes).count();
        let piece = Piece {
            first: self.next,
            lines,
            bytes: Bytes::copy_from_slice(bytes),
        };
        self.next = piece.end();
        self.lines += lines;
        self.bytes += bytes.len();
        self.pieces.push_back(piece);
    }

    /// Lets go of the oldest pieces until the rest is within its bounds; the last one always stays.
    fn cut(&mut self, bounds: Bounds) {
        while (self.lines > bounds.lines || self.bytes > bounds.bytes) && self.pieces.len() > 1 {
            let Some(oldest) = self.pieces.pop_front() else {
                return;
            };
            self.lines -= oldest.lines;
            self.bytes -= oldest.bytes.len();
        }
    }

    /// What stands at this number or behind it, and the number behind that.
    fn from(&self, next: u64) -> Option<(Heard, u64)> {
        let at = self.pieces.partition_point(|piece| piece.end() <= next);
        match self.pieces.get(at) {
            Some(piece) if piece.first > next => {
                Some((Heard::Lost(piece.first - next), piece.first))
            }
            Some(piece) => Some((Heard::Lines(piece.bytes.clone()), piece.end())),
            None => (self.next > next).then(|| (Heard::Lost(self.next - next), self.next)),
        }
    }
}

/// Where a piece ends: behind as many whole lines as fit into 64 KiB, and at least behind one.
pub fn piece_end(lines: &[u8]) -> usize {
    if lines.len() <= PIECE {
        return lines.len();
    }
    let within = lines
        .get(..PIECE)
        .and_then(|head| memchr::memrchr(b'\n', head));
    let end = within.or_else(|| memchr::memchr(b'\n', lines));
    end.map_or(lines.len(), |end| end + 1)
}

impl Follower {
    /// Waits for what comes next; `None` once the log is closed and all of it was read. Nothing is lost if the wait is
    /// given up.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            // Before the look: what comes behind it wakes the wait.
            let news = *self.news.borrow_and_update();
            let found = self.tap.ring().from(self.next);
            match (found, news) {
                (Some((heard, next)), _) => {
                    self.next = next;
                    return Some(heard);
                }
                (None, News::End) => return None,
                (None, News::Lines) => self.news.changed().await.ok()?,
            }
        }
    }
}

impl Kept {
    /// The latest lines that pass, at most so many, the oldest first. It may take a while, since 10,000 lines are read; it
    /// ends early if nobody waits for it any more.
    pub fn latest(&self, most: usize, sieve: &Sieve, is_awaited: impl Fn() -> bool) -> Vec<u8> {
        let awaited = self.newest_first().take_while(|_| is_awaited());
        let mut found: Vec<&[u8]> = awaited
            .filter(|line| sieve.passes(line))
            .take(most)
            .collect();
        found.reverse();
        found.concat()
    }

    /// The lines that have this text somewhere, the newest first.
    pub fn having<'k>(&'k self, word: &str) -> impl Iterator<Item = &'k [u8]> + use<'k> {
        let finder = memchr::memmem::Finder::new(word.as_bytes()).into_owned();
        let within = finder.clone();
        let pieces = self
            .0
            .iter()
            .rev()
            .filter(move |piece| within.find(&piece.bytes).is_some());
        pieces
            .flat_map(|piece| lines(&piece.bytes).rev())
            .filter(move |line| finder.find(line).is_some())
    }

    /// When the oldest line was written; none if there is none.
    pub fn since(&self) -> Option<String> {
        let oldest = self.0.iter().find_map(|piece| lines(&piece.bytes).next())?;
        let entry = Entry::read(oldest, Wanted::of([])).ok()?;
        Some(entry.text(Field::Ts).into_owned())
    }

    /// How many lines there are.
    pub fn lines(&self) -> usize {
        self.0.iter().map(|piece| piece.lines).sum()
    }

    fn newest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .rev()
            .flat_map(|piece| lines(&piece.bytes).rev())
    }
}

/// Lines with their line feeds.
pub(super) fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: usize) -> String {
        format!("{{\"ts\":\"t{id}\",\"decision\":\"0-{id}\",\"verdict\":\"allow\"}}\n")
    }

    fn tap(lines: usize, bytes: usize) -> Arc<Tap> {
        Tap::new(Bounds { lines, bytes })
    }

    #[test]
    fn the_ring_keeps_the_latest_lines_within_both_bounds() {
        for (bounds, kept) in [
            ((3, 1 << 20), 3),
            ((100, 5 * line(10).len()), 5),
            ((0, 0), 1),
        ] {
            let tap = tap(bounds.0, bounds.1);
            (10..30).for_each(|id| tap.feed(line(id).as_bytes()));
            let all = tap.kept();
            let expected: String = (30 - kept..30).map(line).collect();
            assert_eq!(
                all.latest(usize::MAX, &Sieve::open(), || true),
                expected.as_bytes(),
                "{bounds:?}"
            );
            assert_eq!(
                (all.lines(), all.since()),
                (kept, Some(format!("t{}", 30 - kept)))
            );
            assert_eq!(all.latest(1, &Sieve::open(), || true), line(29).as_bytes());
            let named: Vec<&[u8]> = all.having("0-2").collect();
            let newest_first: Vec<String> = (30 - kept..30).rev().map(line).collect();
            assert_eq!(
                named,
                newest_first
                    .iter()
                    .map(String::as_bytes)
                    .collect::<Vec<_>>()
            );
            assert_eq!(all.having("0-10").count(), 0);
            assert_eq!(all.latest(usize::MAX, &Sieve::open(), || false), b"");
        }
        assert_eq!(
            (tap(9, 9).kept().lines(), tap(9, 9).kept().since()),
            (0, None)
        );
    }

    #[test]
    fn a_burst_is_kept_in_pieces_so_that_the_bounds_hold() {
        let burst: String = (0..5_000).map(line).collect();
        let tap = tap(10_000, 100_000);
        tap.feed(burst.as_bytes());
        let all = tap.kept();
        assert!(
            all.0
                .iter()
                .all(|piece| piece.bytes.len() <= PIECE && piece.bytes.ends_with(b"\n"))
        );
        let bytes: usize = all.0.iter().map(|piece| piece.bytes.len()).sum();
        assert!((30_000..=100_000).contains(&bytes), "{bytes}");
        let (all, long) = (tap_of_one_mib(), format!("{}\n", "x".repeat(3 * PIECE)));
        all.feed(format!("{}{long}{}", line(1), line(2)).as_bytes());
        let sizes: Vec<usize> = all.kept().0.iter().map(|piece| piece.bytes.len()).collect();
        assert_eq!(sizes, [line(1).len(), long.len(), line(2).len()]);
    }

    fn tap_of_one_mib() -> Arc<Tap> {
        tap(100, 1 << 20)
    }

    #[tokio::test]
    async fn a_follower_hears_all_or_how_much_it_lost() {
        let tap = tap(3, 1 << 20);
        tap.feed(line(0).as_bytes());
        assert!(!tap.is_followed());
        let (kept, mut follower) = tap.follow();
        assert!(tap.is_followed());
        assert_eq!(kept.lines(), 1);
        let lines = |ids: &[usize]| {
            Some(Heard::Lines(
                ids.iter().map(|id| line(*id)).collect::<String>().into(),
            ))
        };
        tap.feed((line(1) + &line(2)).as_bytes());
        assert_eq!(follower.next().await, lines(&[1, 2]));
        // It does not read for a while.
        (3..=8).for_each(|id| tap.feed(line(id).as_bytes()));
        assert_eq!(follower.next().await, Some(Heard::Lost(3)));
        for id in 6..=8 {
            assert_eq!(follower.next().await, lines(&[id]));
        }
        // Lost before they came here.
        tap.miss(7);
        assert_eq!(follower.next().await, Some(Heard::Lost(7)));
        tap.feed(line(9).as_bytes());
        tap.end();
        assert_eq!(
            (follower.next().await, follower.next().await),
            (lines(&[9]), None)
        );
        drop(follower);
        assert!(!tap.is_followed());
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_loses_nothing() {
        let tap = tap(10, 1 << 20);
        let (_, mut follower) = tap.follow();
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, follower.next()).await;
        assert!(waiting.is_err());
        tap.feed(line(1).as_bytes());
        assert_eq!(follower.next().await, Some(Heard::Lines(line(1).into())));
    }
}
