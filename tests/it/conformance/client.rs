//! The client of one row: a raw socket to the proxy, and a reader of responses.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wire::{self, Message, WireEnding};

/// The time for which a client waits for the next byte.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Larger texts are sent by a separate thread: the proxy may respond, and stop reading, before all is sent.
const LARGE: usize = 32 * 1024;

/// A connection to a proxy.
pub(crate) struct RowClient {
    socket: TcpStream,
    unread: Vec<u8>,
    ended: Option<End>,
    sending: Option<JoinHandle<()>>,
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order (FIN).
    Closed,
    /// Broken (RST).
    Reset,
}

/// A response, and how its message ended.
#[derive(Clone, Debug)]
pub(crate) struct RowResponse {
    /// The answer.
    pub(crate) message: Message,
    /// `true` if the connection ended before the message did.
    pub(crate) cut: bool,
}

impl RowClient {
    /// Connects to a proxy.
    pub(crate) fn connect(gate: SocketAddr) -> Self {
        let socket = TcpStream::connect(gate).expect("the gate listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket.set_nodelay(true).expect("a socket");
        Self {
            socket,
            unread: Vec::new(),
            ended: None,
            sending: None,
        }
    }

    /// Sends bytes; a peer that stops reading is no failure of the client.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) {
        self.finish_sending();
        if bytes.len() <= LARGE {
            let _ = self.socket.write_all(&bytes);
            return;
        }
        let mut socket = self.socket.try_clone().expect("a socket");
        self.sending = Some(thread::spawn(move || {
            let _ = socket.set_write_timeout(Some(PATIENCE));
            let _ = socket.write_all(&bytes);
        }));
    }

    /// Ends the sending direction.
    pub(crate) fn half_close(&mut self) {
        self.finish_sending();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Closes the connection, whatever is unread.
    pub(crate) fn leave(&mut self) {
        self.finish_sending();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Waits until these bytes have come; they stay unread.
    pub(crate) fn sees(&mut self, bytes: &[u8]) -> Result<(), String> {
        while !self.unread.windows(bytes.len()).any(|w| w == bytes) {
            self.fill().map_err(|why| {
                format!("{} before {}", why.told(&self.unread), wire::show(bytes))
            })?;
        }
        Ok(())
    }

    /// Reads one response.
    pub(crate) fn answer(&mut self, bodyless: bool) -> Result<RowResponse, String> {
        loop {
            let read = wire::answer(&self.unread, bodyless)?;
            if let Some((message, used)) = &read
                && message.ending == WireEnding::Whole
            {
                let got = RowResponse {
                    message: message.clone(),
                    cut: false,
                };
                self.unread.drain(..used);
                return Ok(got);
            }
            match (self.fill(), read) {
                (Ok(()), _) => {}
                (Err(Why::Ended(end)), Some((message, _))) => {
                    self.unread.clear();
                    let whole =
                        end == End::Closed && wire::ends_with_connection(&message, bodyless)?;
                    return Ok(RowResponse {
                        message,
                        cut: !whole,
                    });
                }
                (Err(why), _) => {
                    return Err(format!("{} instead of an answer", why.told(&self.unread)));
                }
            }
        }
    }

    /// Waits for the end of the connection, with nothing before it.
    pub(crate) fn end(&mut self) -> Result<End, String> {
        if !self.unread.is_empty() {
            return Err(format!(
                "more bytes instead of the end: {}",
                wire::show(&self.unread)
            ));
        }
        match self.fill() {
            Ok(()) => Err(format!(
                "more bytes instead of the end: {}",
                wire::show(&self.unread)
            )),
            Err(Why::Ended(end)) => Ok(end),
            Err(Why::Silent) => Err(format!("the connection stays open for {PATIENCE:?}")),
        }
    }

    fn finish_sending(&mut self) {
        if let Some(thread) = self.sending.take() {
            let _ = thread.join();
        }
    }

    fn fill(&mut self) -> Result<(), Why> {
        if let Some(end) = self.ended {
            return Err(Why::Ended(end));
        }
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(0) => self.ended = Some(End::Closed),
            Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Why::Silent);
            }
            Err(_) => self.ended = Some(End::Reset),
        }
        self.ended.map_or(Ok(()), |end| Err(Why::Ended(end)))
    }
}

/// The reason why no more bytes came.
#[derive(Clone, Copy, Debug)]
enum Why {
    Ended(End),
    Silent,
}

impl Why {
    fn told(self, unread: &[u8]) -> String {
        let what = match self {
            Self::Ended(End::Closed) => "the connection was closed".to_owned(),
            Self::Ended(End::Reset) => "the connection was reset".to_owned(),
            Self::Silent => format!("nothing more for {PATIENCE:?}"),
        };
        if unread.is_empty() {
            what
        } else {
            format!("{what} after {}", wire::show(unread))
        }
    }
}
