//! Identifies the protocol of the first bytes inside a tunnel, and extracts the server name from a
//! TLS ClientHello.
//!
//! A small parser suffices: only one extension of one message is needed, the bytes are forwarded
//! unchanged, and no TLS is spoken here. It reads the records (RFC 8446 section 5.1), reassembles
//! their fragments, and walks the ClientHello (section 4.1.2) down to `server_name` (RFC 6066
//! section 3). Every byte is inspected once, and never more than [`MAX_CLIENT_HELLO`] of them.

use crate::metrics::labels::SniCheck;
use crate::urls::target::{HostTarget, canonical_host};

/// The maximum size of a ClientHello, including the record headers. Real ones have up to 2 KiB.
pub const MAX_CLIENT_HELLO: usize = 16 * 1024;

const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The maximum record length of RFC 8446 section 5.1.
const LONGEST_RECORD: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// The extension type of RFC 9849 section 10.1.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Collects the bytes of a client until the protocol is known.
#[derive(Debug, Default)]
pub struct Sniffer {
    raw: Vec<u8>,
    /// The start of the next record in `raw`.
    at: usize,
    /// The handshake message, as far as it has arrived.
    message: Vec<u8>,
}

/// The result for the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SniffResult {
    /// The beginning of a ClientHello.
    NeedMore,
    /// A complete ClientHello.
    Hello(ClientHello),
    NotTls,
    /// TLS that does not begin with a valid ClientHello, or with one that is too large.
    Malformed,
}

/// The relevant contents of a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The unencrypted server name.
    pub server_name: Option<String>,
    /// `Present` if the client may request another name in encrypted form.
    pub ech: EchExtension,
}

/// The presence of `encrypted_client_hello`. Browsers also send meaningless ones (GREASE), which an
/// observer cannot distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchExtension {
    Absent,
    Present,
}

impl Sniffer {
    /// Returns the number of bytes that may still be added.
    pub fn remaining(&self) -> usize {
        MAX_CLIENT_HELLO.saturating_sub(self.raw.len())
    }

    /// Returns all bytes, for forwarding.
    pub fn into_bytes(self) -> Vec<u8> {
        self.raw
    }

    /// Adds bytes. The result is malformed if they exceed [`Self::remaining`].
    pub fn feed(&mut self, bytes: &[u8]) -> SniffResult {
        let fits = bytes.len() <= self.remaining();
        self.raw.extend_from_slice(bytes);
        match self.advance() {
            Some(sniffed) => sniffed,
            None if fits && self.remaining() > 0 => SniffResult::NeedMore,
            None => SniffResult::Malformed,
        }
    }

    /// Parses complete records; returns `None` if more bytes are needed.
    fn advance(&mut self) -> Option<SniffResult> {
        if *self.raw.first()? != HANDSHAKE {
            return Some(SniffResult::NotTls);
        }
        loop {
            if let Some(sniffed) = self.parse_message() {
                return Some(sniffed);
            }
            let mut rest = ByteReader(self.raw.get(self.at..)?);
            let kind = rest.read_u8()?;
            let major = rest.read_u8()?;
            if kind != HANDSHAKE || major != 3 {
                return Some(SniffResult::Malformed);
            }
            rest.read_u8()?;
            let length = usize::from(rest.read_u16()?);
            if length == 0 || length > LONGEST_RECORD {
                return Some(SniffResult::Malformed);
            }
            // A fragment is consumed only when it is complete: otherwise each byte would cause
            // another parse.
            self.message.extend_from_slice(rest.take(length)?);
            self.at += RECORD_HEADER + length;
        }
    }

    fn parse_message(&self) -> Option<SniffResult> {
        let mut message = ByteReader(&self.message);
        if message.read_u8()? != CLIENT_HELLO {
            return Some(SniffResult::Malformed);
        }
        let length = usize::from(message.read_u8()?) << 16 | usize::from(message.read_u16()?);
        if length + MESSAGE_HEADER > MAX_CLIENT_HELLO {
            return Some(SniffResult::Malformed);
        }
        let body = message.take(length)?;
        Some(
            parse_client_hello(ByteReader(body)).map_or(SniffResult::Malformed, SniffResult::Hello),
        )
    }
}

/// Compares the server name of a ClientHello with the host of its CONNECT.
pub fn check_sni(hello: &ClientHello, host: &HostTarget) -> SniCheck {
    let Some(name) = &hello.server_name else {
        return SniCheck::None;
    };
    let same = canonical_host(name).is_ok_and(|name| name == host.host());
    match (same, hello.ech) {
        (false, _) => SniCheck::Mismatch,
        (true, EchExtension::Absent) => SniCheck::Match,
        (true, EchExtension::Present) => SniCheck::Ech,
    }
}

/// Returns `true` if the tunnel may stay open. An IP address has no server name.
pub fn is_allowed(check: SniCheck, host: &HostTarget) -> bool {
    match check {
        SniCheck::Match | SniCheck::Ech => true,
        SniCheck::None => host.ip().is_some(),
        SniCheck::Mismatch | SniCheck::NotTls | SniCheck::Malformed | SniCheck::Timeout => false,
    }
}

/// Parses a ClientHello; returns `None` if it is invalid.
fn parse_client_hello(mut body: ByteReader<'_>) -> Option<ClientHello> {
    let mut hello = ClientHello {
        server_name: None,
        ech: EchExtension::Absent,
    };
    let _version = body.read_u16()?;
    let _random = body.take(32)?;
    let session = body.read_short_vector()?;
    let ciphers = body.read_long_vector()?;
    let compressions = body.read_short_vector()?;
    if session.len() > 32 || ciphers.len() < 2 || compressions.is_empty() {
        return None;
    }
    if body.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = ByteReader(body.read_long_vector()?);
    if !body.0.is_empty() {
        return None;
    }
    while !extensions.0.is_empty() {
        let kind = extensions.read_u16()?;
        let data = extensions.read_long_vector()?;
        match kind {
            // With two names, another parser might use the other one.
            SERVER_NAME if hello.server_name.is_some() => return None,
            SERVER_NAME => hello.server_name = Some(parse_server_name(ByteReader(data))?),
            ENCRYPTED_CLIENT_HELLO => hello.ech = EchExtension::Present,
            _ => {}
        }
    }
    Some(hello)
}

/// Parses the host name. The list must not contain another one.
fn parse_server_name(mut data: ByteReader<'_>) -> Option<String> {
    let mut list = ByteReader(data.read_long_vector()?);
    if list.read_u8()? != HOST_NAME {
        return None;
    }
    let name = list.read_long_vector()?;
    let alone = data.0.is_empty() && list.0.is_empty();
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty() && name.is_ascii())?;
    alone.then(|| name.to_owned())
}

/// Reads bytes from the front of a slice, as far as they exist.
struct ByteReader<'b>(&'b [u8]);

impl<'b> ByteReader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn read_u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn read_u16(&mut self) -> Option<u16> {
        Some(u16::from(self.read_u8()?) << 8 | u16::from(self.read_u8()?))
    }

    /// Reads a vector with a length of one byte.
    fn read_short_vector(&mut self) -> Option<&'b [u8]> {
        let length = self.read_u8()?;
        self.take(usize::from(length))
    }

    /// Reads a vector with a length of two bytes.
    fn read_long_vector(&mut self) -> Option<&'b [u8]> {
        let length = self.read_u16()?;
        self.take(usize::from(length))
    }
}
