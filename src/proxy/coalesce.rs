//! Sending what something else follows at once: both leave in one packet, which saves its sender and its receiver one.
//!
//! What is held back so leaves after 200 ms at the latest (tcp(7), `TCP_CORK` and `MSG_MORE`), whatever follows.

use std::io::{self, IoSlice};

use tokio::net::TcpStream;

/// The content type of TLS records that are encrypted (RFC 8446 section 5.1).
const APPLICATION_DATA: u8 = 23;
/// The record that TLS 1.3 puts before a client's last flight, for the sake of old boxes on the way (appendix D.4).
const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// What waits for what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteCoalescing {
    /// Nothing.
    Nothing,
    /// The last flight of a TLS 1.3 handshake: a server's tickets, a client's `Finished`. The other side need not have it
    /// before the first request or answer.
    LastFlight,
    /// All of it: the socket is about to be shut down.
    All,
}

impl WriteCoalescing {
    /// Whether these bytes wait. In TLS 1.3 a flight that begins encrypted is the last one, and nothing else that waits
    /// for an answer; in TLS 1.2 no flight begins so.
    pub(crate) fn holds_back(self, slices: &[IoSlice<'_>]) -> bool {
        match self {
            Self::Nothing => false,
            Self::LastFlight => begins_encrypted(slices),
            Self::All => true,
        }
    }
}

fn begins_encrypted(slices: &[IoSlice<'_>]) -> bool {
    let mut bytes = slices
        .iter()
        .flat_map(|slice| slice.iter().copied())
        .peekable();
    if bytes.peek() != Some(&CHANGE_CIPHER_SPEC[0]) {
        return bytes.next() == Some(APPLICATION_DATA);
    }
    CHANGE_CIPHER_SPEC
        .iter()
        .all(|byte| bytes.next() == Some(*byte))
        && bytes.next() == Some(APPLICATION_DATA)
}

/// Sends without waiting for room; more follows.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`], and what else a socket says.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn send(tcp: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    socket2::SockRef::from(tcp).send_vectored_with_flags(slices, libc::MSG_MORE)
}

/// Elsewhere it leaves at once.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn send(tcp: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    socket2::SockRef::from(tcp).send_vectored(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(gather: WriteCoalescing, parts: &[&[u8]]) -> bool {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        gather.holds_back(&slices)
    }

    #[test]
    fn only_a_last_flight_waits() {
        let tickets: &[u8] = &[23, 3, 3, 0, 9];
        let finished: &[u8] = &[20, 3, 3, 0, 1, 1, 23, 3, 3];
        let hello: &[u8] = &[22, 3, 3, 0, 9];
        let second_hello: &[u8] = &[20, 3, 3, 0, 1, 1, 22, 3, 3];
        let tls12_finished: &[u8] = &[20, 3, 3, 0, 1, 1, 22];
        let alert: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
        for (parts, expected) in [
            (vec![tickets], true),
            (vec![tickets, tickets], true),
            (vec![finished], true),
            (vec![&finished[..6], &finished[6..]], true),
            (vec![hello], false),
            (vec![second_hello], false),
            (vec![&second_hello[..6], hello], false),
            (vec![tls12_finished], false),
            (vec![&finished[..6]], false),
            (vec![alert], false),
            (vec![], false),
        ] {
            assert_eq!(
                holds(WriteCoalescing::LastFlight, &parts),
                expected,
                "{parts:?}"
            );
            assert!(
                !holds(WriteCoalescing::Nothing, &parts) && holds(WriteCoalescing::All, &parts)
            );
        }
    }
}
