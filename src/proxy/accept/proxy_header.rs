//! The header of the PROXY protocol, versions 1 and 2, in which a load balancer names the client of a
//! connection (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! Only the source address is used. Optional fields (TLVs) are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::BufMut as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::metrics::labels::ProxyHeaderFailure;

/// The maximum size of a header of version 1, with its line end.
const MAX_TEXT: usize = 107;
/// The maximum size of a header of version 2. Real ones have up to a few hundred bytes.
const MAX_BINARY: usize = 4096;
const TEXT_START: &[u8] = b"PROXY ";
const BINARY_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The size of the fixed part of version 2.
const BINARY_FIXED: usize = 16;

/// The client that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedClient {
    Address(SocketAddr),
    /// The header names none: a health check of the balancer itself (`LOCAL`), or a client without an
    /// IP address (`UNKNOWN`, `UNSPEC`). The address of the connection applies.
    Unnamed,
}

/// A header that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    pub client: ProxiedClient,
    /// The number of its bytes. The client's own bytes follow.
    pub length: usize,
}

/// Parses the header at the start of `bytes`; returns `None` if more bytes are needed.
///
/// # Errors
/// If the bytes do not begin with a valid header.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderFailure> {
    if has_common_start(bytes, TEXT_START) {
        parse_text(bytes)
    } else if has_common_start(bytes, BINARY_START) {
        parse_binary(bytes)
    } else {
        Err(ProxyHeaderFailure::Missing)
    }
}

/// Reads the header of a connection. Returns the client and the bytes that follow; `None` if the
/// connection was closed before its first byte, as by a health check that only connects.
pub(super) async fn read(
    socket: &mut TcpStream,
    limit: Duration,
) -> Result<Option<(ProxiedClient, Vec<u8>)>, ProxyHeaderFailure> {
    let mut received = Vec::new();
    let reading = async {
        loop {
            let room = MAX_BINARY - received.len();
            // Errors mean that the connection has ended, too.
            let count = socket.read_buf(&mut (&mut received).limit(room)).await;
            if count.unwrap_or(0) == 0 {
                return match received.is_empty() {
                    true => Ok(None),
                    false => Err(ProxyHeaderFailure::Incomplete),
                };
            }
            if let Some(header) = parse(&received)? {
                received.drain(..header.length);
                return Ok(Some((header.client, std::mem::take(&mut received))));
            }
        }
    };
    tokio::time::timeout(limit, reading)
        .await
        .unwrap_or(Err(ProxyHeaderFailure::Timeout))
}

/// Returns `true` if one of the two begins with the other.
fn has_common_start(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(a, b)| a == b)
}

fn parse_text(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderFailure> {
    let begin = bytes.get(..MAX_TEXT).unwrap_or(bytes);
    let Some(end) = begin.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() < MAX_TEXT {
            true => Ok(None),
            false => Err(ProxyHeaderFailure::TooLong),
        };
    };
    let line = begin.get(TEXT_START.len()..end).unwrap_or_default();
    let fields = line
        .strip_suffix(b"\r")
        .and_then(|fields| std::str::from_utf8(fields).ok());
    let client = fields.and_then(parse_text_fields);
    let client = client.ok_or(ProxyHeaderFailure::Malformed)?;
    let length = end + 1;
    Ok(Some(ProxyHeader { client, length }))
}

/// Parses the fields after `PROXY `: protocol, source, destination, source port, destination port.
fn parse_text_fields(fields: &str) -> Option<ProxiedClient> {
    let mut fields = fields.split(' ');
    let protocol = fields.next()?;
    if protocol == "UNKNOWN" {
        // The rest of the line has no meaning.
        return Some(ProxiedClient::Unnamed);
    }
    let mut address = || parse_text_address(protocol, fields.next()?);
    let (source, _destination) = (address()?, address()?);
    let mut port = || parse_text_port(fields.next()?);
    let (source_port, _destination_port) = (port()?, port()?);
    if fields.next().is_some() {
        return None;
    }
    let source = SocketAddr::new(source, source_port);
    Some(ProxiedClient::Address(source))
}

fn parse_text_address(protocol: &str, text: &str) -> Option<IpAddr> {
    match protocol {
        "TCP4" => text.parse().ok().map(IpAddr::V4),
        "TCP6" => text.parse().ok().map(IpAddr::V6),
        _ => None,
    }
}

/// Parses a port. It has no leading zeros.
fn parse_text_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    (is_plain && !has_leading_zero)
        .then(|| text.parse().ok())
        .flatten()
}

fn parse_binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderFailure> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<BINARY_FIXED>() else {
        return Ok(None);
    };
    let [.., version_and_command, family_and_transport, high, low] = *fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let has_address = match version_and_command {
        0x20 => false,
        0x21 => true,
        _ => return Err(ProxyHeaderFailure::Malformed),
    };
    let (family, transport) = (family_and_transport >> 4, family_and_transport & 0x0f);
    if family > 3 || transport > 2 {
        return Err(ProxyHeaderFailure::Malformed);
    }
    if BINARY_FIXED + length > MAX_BINARY {
        return Err(ProxyHeaderFailure::TooLong);
    }
    let Some(content) = rest.get(..length) else {
        return Ok(None);
    };
    let client = match family_and_transport {
        0x11 if has_address => parse_binary_ipv4(content),
        0x21 if has_address => parse_binary_ipv6(content),
        // Without addresses, of Unix sockets or datagrams, which no client of this proxy uses.
        _ => Some(ProxiedClient::Unnamed),
    };
    let client = client.ok_or(ProxyHeaderFailure::Malformed)?;
    Ok(Some(ProxyHeader {
        client,
        length: BINARY_FIXED + length,
    }))
}

/// Parses source, destination, source port and destination port.
fn parse_binary_ipv4(content: &[u8]) -> Option<ProxiedClient> {
    let (source, rest) = content.split_first_chunk::<4>()?;
    binary_client(Ipv4Addr::from(*source).into(), rest.get(4..)?)
}

fn parse_binary_ipv6(content: &[u8]) -> Option<ProxiedClient> {
    let (source, rest) = content.split_first_chunk::<16>()?;
    binary_client(Ipv6Addr::from(*source).into(), rest.get(16..)?)
}

fn binary_client(source: IpAddr, ports: &[u8]) -> Option<ProxiedClient> {
    let [high, low, _, _, ..] = *ports else {
        return None;
    };
    let source = SocketAddr::new(source, u16::from_be_bytes([high, low]));
    Some(ProxiedClient::Address(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(bytes: &[u8]) -> Result<Option<(String, usize)>, ProxyHeaderFailure> {
        parse(bytes).map(|header| {
            header.map(|header| {
                let client = match header.client {
                    ProxiedClient::Address(address) => address.to_string(),
                    ProxiedClient::Unnamed => "-".to_owned(),
                };
                (client, header.length)
            })
        })
    }

    fn binary(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = BINARY_START.to_vec();
        bytes.extend([command, family]);
        bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        bytes.extend(content);
        bytes
    }

    #[test]
    fn lines_of_version_1() {
        for (line, expected) in [
            ("TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", "192.0.2.1:56324"),
            (
                "TCP4 255.255.255.255 0.0.0.0 65535 0\r\n",
                "255.255.255.255:65535",
            ),
            ("TCP6 2001:db8::1 ::1 1 2\r\n", "[2001:db8::1]:1"),
            (
                "TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            ),
            ("UNKNOWN\r\n", "-"),
            ("UNKNOWN ffff::1 anything 65535 65535\r\n", "-"),
        ] {
            let line = format!("PROXY {line}");
            let expected = (expected.to_owned(), line.len());
            assert!(line.len() <= MAX_TEXT, "{line:?}");
            assert_eq!(
                client(line.as_bytes()),
                Ok(Some(expected.clone())),
                "{line:?}"
            );
            let followed = format!("{line}GET / HTTP/1.1\r\n\r\n");
            assert_eq!(client(followed.as_bytes()), Ok(Some(expected)), "{line:?}");
            for cut in 0..line.len() {
                assert_eq!(client(&line.as_bytes()[..cut]), Ok(None), "{line:?} {cut}");
            }
        }
    }

    #[test]
    fn wrong_lines_of_version_1() {
        for line in [
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 \r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2 192.0.2.2 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 056324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +56324 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 -1 443\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2  443\r\n",
            "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 [2001:db8::1] ::1 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY \r\n",
            "PROXY TCP4 h\u{f6}st 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1\0 192.0.2.2 1 2\r\n",
        ] {
            let expected = Err(ProxyHeaderFailure::Malformed);
            assert_eq!(client(line.as_bytes()), expected, "{line:?}");
        }
        for other in [
            "GET / HTTP/1.1\r\n\r\n",
            "proxy TCP4",
            "PROXY\tTCP4",
            "\u{16}\u{3}\u{1}",
            "\r\n\r\nGET /",
        ] {
            let expected = Err(ProxyHeaderFailure::Missing);
            assert_eq!(client(other.as_bytes()), expected, "{other:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(MAX_TEXT));
        assert_eq!(client(&long.as_bytes()[..MAX_TEXT - 1]), Ok(None));
        let too_long = Err(ProxyHeaderFailure::TooLong);
        assert_eq!(client(&long.as_bytes()[..MAX_TEXT]), too_long);
        let cut = |length| long.chars().take(length).collect::<String>();
        let ended = format!("{}\r\n", cut(MAX_TEXT - 1));
        assert_eq!(client(ended.as_bytes()), too_long, "one byte too long");
        let longest = format!("{}\r\n", cut(MAX_TEXT - 2));
        assert_eq!(client(longest.as_bytes()), Ok(Some(("-".into(), MAX_TEXT))));
    }

    #[test]
    fn headers_of_version_2() {
        let ipv4 = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 0x04, 1, 0xbb];
        let mut ipv6 = [0; 36];
        ipv6[..2].copy_from_slice(&[0x20, 0x01]);
        ipv6[15] = 1;
        ipv6[33] = 80;
        let with_tlv = [&ipv4[..], &[0x04, 0, 2, 0, 0, 0xff, 0xff, 0xff]].concat();
        let malformed = Err(ProxyHeaderFailure::Malformed);
        let named = |text: &str, length| Ok(Some((text.to_owned(), BINARY_FIXED + length)));
        for (command, family, content, expected) in [
            (0x21, 0x11, &ipv4[..], named("192.0.2.1:56324", 12)),
            (0x21, 0x11, &with_tlv, named("192.0.2.1:56324", 20)),
            (0x21, 0x21, &ipv6, named("[2001::1]:80", 36)),
            (0x20, 0x00, &[], named("-", 0)),
            (0x20, 0x11, &ipv4, named("-", 12)),
            (0x21, 0x00, &[], named("-", 0)),
            (0x21, 0x00, &[1, 2, 3], named("-", 3)),
            (0x21, 0x31, &[0; 216], named("-", 216)),
            (0x21, 0x12, &ipv4, named("-", 12)),
            (0x21, 0x11, &ipv4[..11], malformed.clone()),
            (0x21, 0x21, &ipv4, malformed.clone()),
            (0x21, 0x41, &ipv4, malformed.clone()),
            (0x21, 0x13, &ipv4, malformed.clone()),
            (0x22, 0x11, &ipv4, malformed.clone()),
            (0x11, 0x11, &ipv4, malformed.clone()),
            (0x31, 0x11, &ipv4, malformed.clone()),
            (
                0x21,
                0x11,
                &[0; MAX_BINARY - BINARY_FIXED + 1],
                Err(ProxyHeaderFailure::TooLong),
            ),
            (
                0x21,
                0x11,
                &[0; MAX_BINARY - BINARY_FIXED],
                named("0.0.0.0:0", MAX_BINARY - BINARY_FIXED),
            ),
        ] {
            let bytes = binary(command, family, content);
            let about = format!("{command:#x} {family:#x} {}", content.len());
            assert_eq!(client(&bytes), expected, "{about}");
            let followed = [&bytes[..], b"\x16\x03\x01"].concat();
            assert_eq!(client(&followed), expected, "{about}");
            if expected.is_ok() {
                for cut in 0..bytes.len() {
                    assert_eq!(client(&bytes[..cut]), Ok(None), "{about} {cut}");
                }
            }
        }
    }
}
