//! The first bytes inside a tunnel: which protocol they are, and which host a TLS ClientHello asks for.
//!
//! A small parser of its own: what is wanted is one extension of one message, from bytes that are sent on unchanged, and
//! nothing of TLS is spoken here. It reads the records (RFC 8446 section 5.1), puts their fragments together, and walks
//! the ClientHello (section 4.1.2) down to `server_name` (RFC 6066 section 3). Every byte is looked at once, and never
//! more than [`MAX_CLIENT_HELLO`] of them.

use crate::metrics::labels::SniCheck;
use crate::urls::target::{HostTarget, canonical_host};

/// Bytes that a ClientHello may have, records and all. Real ones have up to 2 KiB.
pub const MAX_CLIENT_HELLO: usize = 16 * 1024;

const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446 section 5.1.
const LONGEST_RECORD: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// RFC 9849 section 10.1.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// Collects what a client sends until it is known what it is.
#[derive(Debug, Default)]
pub struct Sniffer {
    raw: Vec<u8>,
    /// Where in `raw` the next record begins.
    at: usize,
    /// The handshake message, as far as it has come.
    message: Vec<u8>,
}

/// What the bytes are, as far as they have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SniffResult {
    /// The beginning of a ClientHello.
    NeedMore,
    /// A ClientHello.
    Hello(ClientHello),
    /// No TLS.
    NotTls,
    /// TLS that does not begin with a ClientHello as it should be, or with one that is too large.
    Malformed,
}

/// What a ClientHello says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The host that it asks for, in the open.
    pub server_name: Option<String>,
    /// Whether it may ask for another one in secret.
    pub ech: EchExtension,
}

/// Whether a ClientHello carries `encrypted_client_hello`. Browsers send one without meaning, too: nobody on the way can
/// tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchExtension {
    /// It does not.
    Absent,
    /// It does.
    Present,
}

impl Sniffer {
    /// How many bytes it may still be given.
    pub fn remaining(&self) -> usize {
        MAX_CLIENT_HELLO.saturating_sub(self.raw.len())
    }

    /// All bytes that it was given, to be sent on.
    pub fn into_bytes(self) -> Vec<u8> {
        self.raw
    }

    /// Takes more bytes. Beyond [`Self::remaining`] they make the whole malformed.
    pub fn feed(&mut self, bytes: &[u8]) -> SniffResult {
        let fits = bytes.len() <= self.remaining();
        self.raw.extend_from_slice(bytes);
        match self.advance() {
            Some(sniffed) => sniffed,
            None if fits && self.remaining() > 0 => SniffResult::NeedMore,
            None => SniffResult::Malformed,
        }
    }

    /// Takes whole records apart; `None` if more is needed to know.
    fn advance(&mut self) -> Option<SniffResult> {
        if *self.raw.first()? != HANDSHAKE {
            return Some(SniffResult::NotTls);
        }
        loop {
            if let Some(sniffed) = self.parse_message() {
                return Some(sniffed);
            }
            let mut rest = ByteReader(self.raw.get(self.at..)?);
            let (kind, major) = (rest.read_u8()?, rest.read_u8()?);
            if kind != HANDSHAKE || major != 3 {
                return Some(SniffResult::Malformed);
            }
            rest.read_u8()?;
            let length = usize::from(rest.read_u16()?);
            if length == 0 || length > LONGEST_RECORD {
                return Some(SniffResult::Malformed);
            }
            // A fragment is taken when it is whole: a look at half of it would be taken again with each byte.
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

/// Whether a ClientHello asks for the host of its CONNECT.
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

/// Whether a tunnel may stay open after this. An address has no name to ask for.
pub fn is_allowed(check: SniCheck, host: &HostTarget) -> bool {
    match check {
        SniCheck::Match | SniCheck::Ech => true,
        SniCheck::None => host.ip().is_some(),
        SniCheck::Mismatch | SniCheck::NotTls | SniCheck::Malformed | SniCheck::Timeout => false,
    }
}

/// Reads a ClientHello; `None` if it is not one.
fn parse_client_hello(mut body: ByteReader<'_>) -> Option<ClientHello> {
    let mut hello = ClientHello {
        server_name: None,
        ech: EchExtension::Absent,
    };
    let (_version, _random) = (body.read_u16()?, body.take(32)?);
    let session = body.read_short_vector()?;
    let (ciphers, compressions) = (body.read_long_vector()?, body.read_short_vector()?);
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
        let (kind, data) = (extensions.read_u16()?, extensions.read_long_vector()?);
        match kind {
            // Twice, and another reader may see the other one.
            SERVER_NAME if hello.server_name.is_some() => return None,
            SERVER_NAME => hello.server_name = Some(parse_server_name(ByteReader(data))?),
            ENCRYPTED_CLIENT_HELLO => hello.ech = EchExtension::Present,
            _ => {}
        }
    }
    Some(hello)
}

/// The one host name of the list, which may hold no other.
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

/// Bytes that are taken from the front, as far as there are so many.
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

    /// What stands behind a length of one byte.
    fn read_short_vector(&mut self) -> Option<&'b [u8]> {
        let length = self.read_u8()?;
        self.take(usize::from(length))
    }

    /// What stands behind a length of two bytes.
    fn read_long_vector(&mut self) -> Option<&'b [u8]> {
        let length = self.read_u16()?;
        self.take(usize::from(length))
    }
}
