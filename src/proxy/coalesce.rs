//! Writes that the kernel delays until more data follows, so that both leave in one packet.
//!
//! Delayed data leaves after 200 ms at the latest, whatever follows (tcp(7), `TCP_CORK` and
//! `MSG_MORE`).

use std::io::{self, IoSlice};

use tokio::net::TcpStream;

/// The content type of encrypted TLS records (RFC 8446 section 5.1).
const APPLICATION_DATA: u8 = 23;
/// The record that precedes a TLS 1.3 client's last flight for the sake of middleboxes (RFC 8446
/// appendix D.4).
const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// The writes that are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteCoalescing {
    /// No write is delayed.
    Nothing,
    /// The last flight of a TLS 1.3 handshake: a server's tickets, or a client's `Finished`. The
    /// peer does not need it before the first request or response.
    LastFlight,
    /// All of them: the socket is about to be shut down.
    All,
}

impl WriteCoalescing {
    /// Returns `true` if these bytes are delayed. In TLS 1.3 a flight that begins encrypted is the
    /// last one, and none other that the peer must answer begins like that. In TLS 1.2 no flight
    /// begins encrypted.
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

/// Sends without waiting for buffer space, and announces that more follows.
///
/// # Errors
/// Returns [`io::ErrorKind::WouldBlock`] or any other error of the socket.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn send(tcp: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    socket2::SockRef::from(tcp).send_vectored_with_flags(slices, libc::MSG_MORE)
}

/// Sends at once: this platform has no `MSG_MORE`.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn send(tcp: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    socket2::SockRef::from(tcp).send_vectored(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(coalescing: WriteCoalescing, parts: &[&[u8]]) -> bool {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        coalescing.holds_back(&slices)
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
