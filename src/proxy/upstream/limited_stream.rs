//! The stream that hyper reads an origin's responses from. It limits what an origin can make the
//! proxy read: the bytes of one poll, and the number of interim responses (1xx).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use crate::proxy::origin_tls::OriginStream;
use crate::proxy::read_allowance::ReadAllowance;

/// The maximum number of interim responses to one request.
pub(super) const MAX_INTERIM: usize = 32;

/// A connection to an origin, with limits.
#[derive(Debug)]
pub struct LimitedStream {
    stream: OriginStream,
    allowance: Arc<ReadAllowance>,
    interim: InterimCounter,
}

/// The origin has sent more interim responses than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_INTERIM} interim responses")]
pub(super) struct TooManyInterim;

impl LimitedStream {
    pub(super) fn new(stream: OriginStream, allowance: Arc<ReadAllowance>) -> Self {
        Self {
            stream,
            allowance,
            interim: InterimCounter::default(),
        }
    }
}

/// Counts the interim responses before the response to a request. It looks only at status lines and
/// at the ends of interim heads, in which hyper would find them too.
#[derive(Debug, Default)]
struct InterimCounter {
    position: ResponsePosition,
    count: usize,
}

/// A position in what an origin sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ResponsePosition {
    /// After this number of bytes of a status line.
    StatusLine(usize),
    /// After the status code of an interim response.
    Interim { line: LineContent },
    /// After the status code of the response, or before the first request.
    #[default]
    Response,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineContent {
    Empty,
    Some,
}

/// The offset of the first digit of the status code: `HTTP/1.1 200`.
const STATUS_CODE: usize = 9;

impl InterimCounter {
    /// Called when the request is written. What is written after the head of the response is the
    /// next request, or the rest of an upload, after which nothing else is read on this connection.
    fn record_written(&mut self) {
        if self.position == ResponsePosition::Response {
            *self = Self {
                position: ResponsePosition::StatusLine(0),
                count: 0,
            };
        }
    }

    fn scan(&mut self, bytes: &[u8]) -> Result<(), TooManyInterim> {
        for byte in bytes {
            self.position = match self.position {
                ResponsePosition::Response => return Ok(()),
                ResponsePosition::StatusLine(0) if matches!(byte, b'\r' | b'\n') => continue,
                ResponsePosition::StatusLine(STATUS_CODE) if *byte == b'1' => {
                    self.count += 1;
                    if self.count > MAX_INTERIM {
                        return Err(TooManyInterim);
                    }
                    ResponsePosition::Interim {
                        line: LineContent::Some,
                    }
                }
                ResponsePosition::StatusLine(STATUS_CODE) => ResponsePosition::Response,
                ResponsePosition::StatusLine(read) => ResponsePosition::StatusLine(read + 1),
                ResponsePosition::Interim { line } => match (byte, line) {
                    (b'\n', LineContent::Empty) => ResponsePosition::StatusLine(0),
                    (b'\n', LineContent::Some) => ResponsePosition::Interim {
                        line: LineContent::Empty,
                    },
                    (b'\r', line) => ResponsePosition::Interim { line },
                    _ => ResponsePosition::Interim {
                        line: LineContent::Some,
                    },
                },
            };
        }
        Ok(())
    }
}

/// Implements tokio's trait for the stream: only through it are the bytes visible that were read.
struct ObservedRead<'r>(&'r mut LimitedStream);

impl AsyncRead for ObservedRead<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self.get_mut().0;
        ready!(this.allowance.poll_available(cx));
        let before = out.filled().len();
        let room = this.allowance.remaining() as u64;
        let mut limited = TokioIo::new(&mut this.stream).take(room);
        ready!(Pin::new(&mut limited).poll_read(cx, out))?;
        let received = out.filled().get(before..).unwrap_or_default();
        this.allowance.spend(received.len());
        Poll::Ready(this.interim.scan(received).map_err(io::Error::other))
    }
}

impl Read for LimitedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut TokioIo::new(ObservedRead(self.get_mut()))).poll_read(cx, cursor)
    }
}

impl Write for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.interim.record_written();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.interim.record_written();
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans what an origin sends in parts of this size, after a request.
    fn scan(counter: &mut InterimCounter, bytes: &str, part: usize) -> Result<(), TooManyInterim> {
        counter.record_written();
        bytes
            .as_bytes()
            .chunks(part)
            .try_for_each(|bytes| counter.scan(bytes))
    }

    #[test]
    fn interim_responses_are_counted_until_the_response() {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let bare = "\r\nHTTP/1.1 100 Continue\n\n";
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n";
        for part in [1, 2, 7, 4096] {
            for interim in [hints, bare] {
                let mut counter = InterimCounter::default();
                let many = interim.repeat(MAX_INTERIM);
                for _ in 0..3 {
                    // What follows the response is its body.
                    let all = format!("{many}{response}{many}");
                    assert_eq!(scan(&mut counter, &all, part), Ok(()));
                }
                let more = format!("{many}{interim}");
                assert_eq!(
                    scan(&mut counter, &more, part),
                    Err(TooManyInterim),
                    "{part}"
                );
            }
        }
    }
}
