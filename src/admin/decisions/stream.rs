//! The stream to one reader of decisions: the lines that match, and a blank line from time to time while none does.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::time::{interval, timeout};

use crate::metrics::log::filter::LogFilterSet;
use crate::metrics::log::tap::{FollowEvent, TapFollower, chunk_end};

/// The time between blank lines.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The time for which a connection may accept no chunk. A slow connection that goes on reading is not closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends the recent lines and then those of the follower, until the log is closed, or the reader disconnects or stalls.
pub(super) async fn run(
    recent: Bytes,
    follower: Option<TapFollower>,
    filters: &LogFilterSet,
    out: Sender<Bytes>,
) {
    if send_all(recent, &out).await == StreamReaderState::Gone {
        return;
    }
    let Some(mut follower) = follower else { return };
    let mut heartbeat = interval(HEARTBEAT_INTERVAL);
    heartbeat.reset();
    loop {
        let chunk = tokio::select! {
            () = out.closed() => return,
            event = follower.next() => match event {
                None => return,
                Some(FollowEvent::Lines(lines)) => filters.filter_lines(lines).await,
                Some(FollowEvent::Lost(lines)) => format!("{{\"lost\":{lines}}}\n").into(),
            },
            _ = heartbeat.tick() => Bytes::from_static(b"\n"),
        };
        if chunk.is_empty() {
            // A filter that rejects everything must not keep the thread busy.
            tokio::task::yield_now().await;
            continue;
        }
        if send_chunk(&out, chunk).await == StreamReaderState::Gone {
            return;
        }
        heartbeat.reset();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamReaderState {
    Connected,
    Gone,
}

/// Sends the lines chunk by chunk. That a connection accepts a chunk is the only sign that its reader is alive.
async fn send_all(mut lines: Bytes, out: &Sender<Bytes>) -> StreamReaderState {
    while !lines.is_empty() {
        let chunk = lines.split_to(chunk_end(&lines));
        if send_chunk(out, chunk).await == StreamReaderState::Gone {
            return StreamReaderState::Gone;
        }
    }
    StreamReaderState::Connected
}

async fn send_chunk(out: &Sender<Bytes>, chunk: Bytes) -> StreamReaderState {
    match timeout(STALL_TIMEOUT, out.send(chunk)).await {
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
    async fn a_blank_line_is_sent_while_nothing_else_is() {
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
        let mut heartbeat = interval(HEARTBEAT_INTERVAL);
        heartbeat.tick().await;
        assert_eq!(pieces.recv().await.unwrap(), "old\n");
        for _ in 0..3 {
            assert!(pieces.try_recv().is_err());
            let (_, piece) = tokio::join!(heartbeat.tick(), pieces.recv());
            assert_eq!(piece.unwrap(), "\n");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_goes_on_reading_gets_everything() {
        let (out, mut pieces) = mpsc::channel(2);
        let all: String = (0..100_000).map(|n| format!("{n:09}\n")).collect();
        let first = all.clone().into();
        tokio::spawn(async move { run(first, None, &LogFilterSet::match_all(), out).await });
        let mut clock = interval(STALL_TIMEOUT - Duration::from_secs(1));
        let mut read = String::new();
        let mut taken = 0;
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
    async fn a_reader_that_stalls_is_dropped() {
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
        // The recent line at once and a blank one after 10 s fill the buffer; the next one does not fit.
        assert!((50..=53).contains(&seconds), "{seconds}");
        assert_eq!(
            (pieces.recv().await.unwrap(), pieces.recv().await.unwrap()),
            ("a\n".into(), "\n".into())
        );
        assert_eq!(pieces.recv().await, None);
    }
}
