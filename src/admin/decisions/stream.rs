//! One reader of decisions: what passes is handed to its connection, with a blank line now and then while nothing does.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::time::{interval, timeout};

use crate::metrics::log::filter::LogFilterSet;
use crate::metrics::log::tap::{FollowEvent, TapFollower, chunk_end};

/// Between blank lines.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// How long a connection may take no piece while there is one to take: a slow one that goes on taking is not cut off.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Hands on what is kept and what follows, until the log is closed or the reader has left or takes nothing.
pub(super) async fn run(
    first: Bytes,
    follower: Option<TapFollower>,
    filters: &LogFilterSet,
    out: Sender<Bytes>,
) {
    if send_all(first, &out).await == StreamReaderState::Gone {
        return;
    }
    let Some(mut follower) = follower else { return };
    let mut beat = interval(HEARTBEAT_INTERVAL);
    beat.reset();
    loop {
        let piece = tokio::select! {
            () = out.closed() => return,
            heard = follower.next() => match heard {
                None => return,
                Some(FollowEvent::Lines(lines)) => filters.filter_lines(lines).await,
                Some(FollowEvent::Lost(lines)) => format!("{{\"lost\":{lines}}}\n").into(),
            },
            _ = beat.tick() => Bytes::from_static(b"\n"),
        };
        if piece.is_empty() {
            // What passes nothing on may have much to look at.
            tokio::task::yield_now().await;
            continue;
        }
        if send_piece(&out, piece).await == StreamReaderState::Gone {
            return;
        }
        beat.reset();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamReaderState {
    Connected,
    Gone,
}

/// What is kept, piece by piece: that a connection takes one is all that can be seen of its reader.
async fn send_all(mut lines: Bytes, out: &Sender<Bytes>) -> StreamReaderState {
    while !lines.is_empty() {
        let piece = lines.split_to(chunk_end(&lines));
        if send_piece(out, piece).await == StreamReaderState::Gone {
            return StreamReaderState::Gone;
        }
    }
    StreamReaderState::Connected
}

async fn send_piece(out: &Sender<Bytes>, piece: Bytes) -> StreamReaderState {
    match timeout(STALL_TIMEOUT, out.send(piece)).await {
        Ok(Ok(())) => StreamReaderState::Connected,
        Ok(Err(_)) | Err(_) => StreamReaderState::Gone,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::metrics::log::tap::{LogTap, TapBounds};

    #[tokio::test(start_paused = true)]
    async fn a_blank_line_comes_while_nothing_else_does() {
        let (out, mut pieces) = mpsc::channel(2);
        let tap = LogTap::new(TapBounds::DEFAULT);
        let (_, follower) = tap.follow();
        tokio::spawn(async move {
            run(
                "old\n".into(),
                Some(follower),
                &LogFilterSet::match_all(),
                out,
            )
            .await
        });
        let mut beat = interval(HEARTBEAT_INTERVAL);
        beat.tick().await;
        assert_eq!(pieces.recv().await.unwrap(), "old\n");
        for _ in 0..3 {
            assert!(pieces.try_recv().is_err());
            let (_, piece) = tokio::join!(beat.tick(), pieces.recv());
            assert_eq!(piece.unwrap(), "\n");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_goes_on_reading_gets_all() {
        let (out, mut pieces) = mpsc::channel(2);
        let all: String = (0..100_000).map(|n| format!("{n:09}\n")).collect();
        let first = all.clone().into();
        tokio::spawn(async move { run(first, None, &LogFilterSet::match_all(), out).await });
        let (mut clock, mut read, mut taken) = (
            interval(STALL_TIMEOUT - Duration::from_secs(1)),
            String::new(),
            0,
        );
        while let Some(piece) = pieces.recv().await {
            assert!(
                piece.len() <= 64 << 10 && piece.ends_with(b"\n"),
                "{}",
                piece.len()
            );
            read.push_str(str::from_utf8(&piece).unwrap());
            taken += 1;
            clock.tick().await;
        }
        assert!(
            read == all && taken >= 16,
            "{} bytes in {taken} pieces",
            read.len()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up() {
        let (out, mut pieces) = mpsc::channel(2);
        let tap = LogTap::new(TapBounds::DEFAULT);
        let (_, follower) = tap.follow();
        let mut clock = interval(Duration::from_secs(1));
        let source = tokio::spawn(async move {
            run(
                "a\n".into(),
                Some(follower),
                &LogFilterSet::match_all(),
                out,
            )
            .await
        });
        let mut seconds = 0;
        while !source.is_finished() {
            clock.tick().await;
            seconds += 1;
        }
        // The old lines at once, a blank one behind 10 s; another does not fit.
        assert!((50..=53).contains(&seconds), "{seconds}");
        assert_eq!(
            (pieces.recv().await.unwrap(), pieces.recv().await.unwrap()),
            ("a\n".into(), "\n".into())
        );
        assert_eq!(pieces.recv().await, None);
    }
}
