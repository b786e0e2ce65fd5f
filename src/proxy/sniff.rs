//! The first bytes inside a tunnel: which protocol they are, and which host a TLS ClientHello asks for.
//!
//! A small parser of its own: what is wanted is one extension of one message, from bytes that are sent on unchanged, and
//! nothing of TLS is spoken here. It reads the records (RFC 8446 section 5.1), puts their fragments together, and walks
//! the ClientHello (section 4.1.2) down to `server_name` (RFC 6066 section 3). Every byte is looked at once, and never
//! more than [`CAP`] of them.

use crate::metrics::labels::SniCheck;
use crate::vocab::target::{HostTarget, canonical_host};

/// Bytes that a ClientHello may have, records and all. Real ones have up to 2 KiB.
pub const CAP: usize = 16 * 1024;

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
pub enum Sniffed {
    /// The beginning of a ClientHello.
    More,
    /// A ClientHello.
    Hello(Hello),
    /// No TLS.
    NotTls,
    /// TLS that does not begin with a ClientHello as it should be, or with one that is too large.
    Malformed,
}

/// What a ClientHello says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The host that it asks for, in the open.
    pub name: Option<String>,
    /// Whether it may ask for another one in secret.
    pub inner: Inner,
}

/// Whether a ClientHello carries `encrypted_client_hello`. Browsers send one without meaning, too: nobody on the way can
/// tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// It does not.
    None,
    /// It does.
    Possible,
}

impl Sniffer {
    /// How many bytes it may still be given.
    pub fn room(&self) -> usize {
        CAP.saturating_sub(self.raw.len())
    }

    /// All bytes that it was given, to be sent on.
    pub fn into_bytes(self) -> Vec<u8> {
        self.raw
    }

    /// Takes more bytes. Beyond [`Self::room`] they make the whole malformed.
    pub fn feed(&mut self, bytes: &[u8]) -> Sniffed {
        let fits = bytes.len() <= self.room();
        self.raw.extend_from_slice(bytes);
        match self.advance() {
            Some(sniffed) => sniffed,
            None if fits && self.room() > 0 => Sniffed::More,
            None => Sniffed::Malformed,
        }
    }

    /// Takes whole records apart; `None` if more is needed to know.
    fn advance(&mut self) -> Option<Sniffed> {
        if *self.raw.first()? != HANDSHAKE {
            return Some(Sniffed::NotTls);
        }
        loop {
            if let Some(sniffed) = self.look_at_message() {
                return Some(sniffed);
            }
            let mut rest = Bytes(self.raw.get(self.at..)?);
            let (kind, major) = (rest.byte()?, rest.byte()?);
            if kind != HANDSHAKE || major != 3 {
                return Some(Sniffed::Malformed);
            }
            rest.byte()?;
            let length = usize::from(rest.number()?);
            if length == 0 || length > LONGEST_RECORD {
                return Some(Sniffed::Malformed);
            }
            // A fragment is taken when it is whole: a look at half of it would be taken again with each byte.
            self.message.extend_from_slice(rest.take(length)?);
            self.at += RECORD_HEADER + length;
        }
    }

    fn look_at_message(&self) -> Option<Sniffed> {
        let mut message = Bytes(&self.message);
        if message.byte()? != CLIENT_HELLO {
            return Some(Sniffed::Malformed);
        }
        let length = usize::from(message.byte()?) << 16 | usize::from(message.number()?);
        if length + MESSAGE_HEADER > CAP {
            return Some(Sniffed::Malformed);
        }
        let body = message.take(length)?;
        Some(hello(Bytes(body)).map_or(Sniffed::Malformed, Sniffed::Hello))
    }
}

/// Whether a ClientHello asks for the host of its CONNECT.
pub fn check(hello: &Hello, host: &HostTarget) -> SniCheck {
    let Some(name) = &hello.name else {
        return SniCheck::None;
    };
    let same = canonical_host(name).is_ok_and(|name| name == host.host());
    match (same, hello.inner) {
        (false, _) => SniCheck::Mismatch,
        (true, Inner::None) => SniCheck::Match,
        (true, Inner::Possible) => SniCheck::Ech,
    }
}

/// Whether a tunnel may stay open after this. An address has no name to ask for.
pub fn passes(check: SniCheck, host: &HostTarget) -> bool {
    match check {
        SniCheck::Match | SniCheck::Ech => true,
        SniCheck::None => host.ip().is_some(),
        SniCheck::Mismatch | SniCheck::NotTls | SniCheck::Malformed | SniCheck::Timeout => false,
    }
}

/// Reads a ClientHello; `None` if it is not one.
fn hello(mut body: Bytes<'_>) -> Option<Hello> {
    let mut hello = Hello {
        name: None,
        inner: Inner::None,
    };
    let (_version, _random) = (body.number()?, body.take(32)?);
    let session = body.short()?;
    let (ciphers, compressions) = (body.long()?, body.short()?);
    if session.len() > 32 || ciphers.len() < 2 || compressions.is_empty() {
        return None;
    }
    if body.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Bytes(body.long()?);
    if !body.0.is_empty() {
        return None;
    }
    while !extensions.0.is_empty() {
        let (kind, data) = (extensions.number()?, extensions.long()?);
        match kind {
            // Twice, and another reader may see the other one.
            SERVER_NAME if hello.name.is_some() => return None,
            SERVER_NAME => hello.name = Some(server_name(Bytes(data))?),
            ENCRYPTED_CLIENT_HELLO => hello.inner = Inner::Possible,
            _ => {}
        }
    }
    Some(hello)
}

/// The one host name of the list, which may hold no other.
fn server_name(mut data: Bytes<'_>) -> Option<String> {
    let mut list = Bytes(data.long()?);
    if list.byte()? != HOST_NAME {
        return None;
    }
    let name = list.long()?;
    let alone = data.0.is_empty() && list.0.is_empty();
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty() && name.is_ascii())?;
    alone.then(|| name.to_owned())
}

/// Bytes that are taken from the front, as far as there are so many.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from(self.byte()?) << 8 | u16::from(self.byte()?))
    }

    /// What stands behind a length of one byte.
    fn short(&mut self) -> Option<&'b [u8]> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }

    /// What stands behind a length of two bytes.
    fn long(&mut self) -> Option<&'b [u8]> {
        let length = self.number()?;
        self.take(usize::from(length))
    }
}
