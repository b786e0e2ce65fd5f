//! The handshakes with parent proxies: CONNECT (RFC 9110 section 9.3.6), and SOCKS 5 with names (RFC 1928, RFC 1929).
//!
//! A proxy that sends anything after its answer is not used: the origin's first bytes follow those of the client.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ParentCredentials;
use super::error::{OriginFault, ParentFault};

/// The maximum size of the answer to a CONNECT, with interim answers.
const MAX_ANSWER: usize = 16 * 1024;
const SOCKS_VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
/// The version of the negotiation of user and password.
const PASSWORD_VERSION: u8 = 1;
const SOCKS_CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// An error of the socket means that the proxy has gone.
impl From<io::Error> for ParentFault {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Asks an HTTP proxy for a tunnel to a canonical host.
pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    host: &str,
    port: u16,
    authorization: Option<&HeaderValue>,
) -> Result<(), ParentFault> {
    let mut request =
        format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(value) = authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    stream.flush().await?;
    let mut received = Vec::new();
    let mut begin = 0;
    loop {
        if let Some(end) = find_head_end(received.get(begin..).unwrap_or_default()) {
            let head = received.get(begin..begin + end).unwrap_or_default();
            let status = parse_status(head).ok_or(ParentFault::Broken)?;
            begin += end;
            match status {
                100..=199 => continue,
                200..=299 if begin == received.len() => return Ok(()),
                200..=299 => return Err(ParentFault::Broken),
                407 => return Err(ParentFault::Credentials),
                504 => return Err(ParentFault::Unreachable(OriginFault::Timeout)),
                500 | 502 | 503 => return Err(ParentFault::Unreachable(OriginFault::Other)),
                _ => return Err(ParentFault::Denied),
            }
        }
        if received.len() >= MAX_ANSWER || stream.read_buf(&mut received).await? == 0 {
            return Err(ParentFault::Broken);
        }
    }
}

/// Returns the length of a head with its blank line, if it is complete.
fn find_head_end(bytes: &[u8]) -> Option<usize> {
    let mut lines = 0;
    loop {
        let rest = bytes.get(lines..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest.get(..end)?;
        lines += end + 1;
        if matches!(line, b"" | b"\r") {
            return Some(lines);
        }
    }
}

/// Returns the status of a head: `HTTP/1.1 200 Connection established`.
fn parse_status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.")?;
    let [b'0'..=b'9', b' ', status @ ..] = rest else {
        return None;
    };
    let (status, rest) = status.split_first_chunk::<3>()?;
    let ends = rest
        .first()
        .is_some_and(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    let is_number = status.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(status).ok()?;
    (ends && is_number).then(|| text.parse().ok()).flatten()
}

/// Negotiates the authentication with a SOCKS proxy.
pub(super) async fn negotiate_socks<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    credentials: Option<&ParentCredentials>,
) -> Result<(), ParentFault> {
    let methods: &[u8] = match credentials {
        Some(_) => &[SOCKS_VERSION, 2, NO_AUTHENTICATION, USER_AND_PASSWORD],
        None => &[SOCKS_VERSION, 1, NO_AUTHENTICATION],
    };
    stream.write_all(methods).await?;
    stream.flush().await?;
    let [version, method] = read_array(stream).await?;
    if version != SOCKS_VERSION {
        return Err(ParentFault::Broken);
    }
    match (method, credentials) {
        (NO_AUTHENTICATION, _) => Ok(()),
        (USER_AND_PASSWORD, Some(credentials)) => send_password(stream, credentials).await,
        (NO_METHOD, _) => Err(ParentFault::Credentials),
        _ => Err(ParentFault::Broken),
    }
}

async fn send_password<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    credentials: &ParentCredentials,
) -> Result<(), ParentFault> {
    let mut request = vec![PASSWORD_VERSION];
    push_text(&mut request, &credentials.user);
    push_text(&mut request, &credentials.password);
    stream.write_all(&request).await?;
    stream.flush().await?;
    match read_array(stream).await? {
        [PASSWORD_VERSION, 0] => Ok(()),
        [PASSWORD_VERSION, _] => Err(ParentFault::Credentials),
        _ => Err(ParentFault::Broken),
    }
}

/// Asks a SOCKS proxy for a connection to a canonical host, after the negotiation.
pub(super) async fn connect_socks<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    host: &str,
    port: u16,
) -> Result<(), ParentFault> {
    let mut request = vec![SOCKS_VERSION, SOCKS_CONNECT, 0];
    let bracketed = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(Ok(address)) = bracketed.map(str::parse::<Ipv6Addr>) {
        request.push(IPV6);
        request.extend(address.octets());
    } else if let Ok(address) = host.parse::<Ipv4Addr>() {
        request.push(IPV4);
        request.extend(address.octets());
    } else {
        request.push(NAME);
        push_text(&mut request, host);
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    stream.flush().await?;
    let [version, reply, _, kind] = read_array(stream).await?;
    if version != SOCKS_VERSION {
        return Err(ParentFault::Broken);
    }
    match reply {
        0 => {}
        2 => return Err(ParentFault::Denied),
        3 | 4 => return Err(ParentFault::Unreachable(OriginFault::Unroutable)),
        5 => return Err(ParentFault::Unreachable(OriginFault::Refused)),
        6 => return Err(ParentFault::Unreachable(OriginFault::Timeout)),
        1 => return Err(ParentFault::Unreachable(OriginFault::Other)),
        _ => return Err(ParentFault::Broken),
    }
    // The address that the proxy has bound, which has no meaning here.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let [length] = read_array(stream).await?;
            usize::from(length)
        }
        _ => return Err(ParentFault::Broken),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

/// Appends a text after its length. Texts are at most 255 bytes long.
fn push_text(request: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes().get(..255).unwrap_or(text.as_bytes());
    request.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    request.extend_from_slice(bytes);
}

async fn read_array<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Runs a handshake with a proxy that sends these bytes and closes; returns the result and what was sent.
    async fn run<F>(
        answer: &[u8],
        handshake: impl FnOnce(tokio::io::DuplexStream) -> F,
    ) -> (Result<(), ParentFault>, Vec<u8>)
    where
        F: Future<Output = (Result<(), ParentFault>, tokio::io::DuplexStream)>,
    {
        let (client, mut proxy) = duplex(64 * 1024);
        proxy.write_all(answer).await.unwrap();
        proxy.shutdown().await.unwrap();
        let (result, client) = handshake(client).await;
        drop(client);
        let mut sent = Vec::new();
        proxy.read_to_end(&mut sent).await.unwrap();
        (result, sent)
    }

    #[tokio::test]
    async fn answers_to_connect() {
        let other = Err(ParentFault::Unreachable(OriginFault::Other));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(MAX_ANSWER));
        for (answer, expected) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Ok(())),
            (
                "HTTP/1.0 200 OK\r\nVia: x\r\nContent-Length: 5\r\n\r\n",
                Ok(()),
            ),
            ("HTTP/1.1 204\r\n\r\n", Ok(())),
            ("HTTP/1.1 200 OK\n\n", Ok(())),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
                Ok(()),
            ),
            ("HTTP/1.1 200 OK\r\n\r\nsurplus", Err(ParentFault::Broken)),
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n<html>",
                Err(ParentFault::Credentials),
            ),
            (
                "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nforbidden",
                Err(ParentFault::Denied),
            ),
            (
                "HTTP/1.1 301 Moved\r\nLocation: x\r\n\r\n",
                Err(ParentFault::Denied),
            ),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", other),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", other),
            (
                "HTTP/1.1 504 x\r\n\r\n",
                Err(ParentFault::Unreachable(OriginFault::Timeout)),
            ),
            ("", Err(ParentFault::Broken)),
            ("HTTP/1.1 200 OK\r\n", Err(ParentFault::Broken)),
            ("HTTP/1.1 2000 OK\r\n\r\n", Err(ParentFault::Broken)),
            ("HTTP/1.1 +20 OK\r\n\r\n", Err(ParentFault::Broken)),
            ("HTTP/2 200\r\n\r\n", Err(ParentFault::Broken)),
            ("\u{5}\u{0}", Err(ParentFault::Broken)),
            ("220 mail ESMTP\r\n\r\n", Err(ParentFault::Broken)),
            (&long, Err(ParentFault::Broken)),
        ] {
            let value = HeaderValue::from_static("Basic eA==");
            let (result, sent) = run(answer.as_bytes(), async |mut stream| {
                (
                    connect(&mut stream, "a.test", 443, Some(&value)).await,
                    stream,
                )
            })
            .await;
            assert_eq!(result, expected, "{answer:?}");
            assert_eq!(
                String::from_utf8(sent).unwrap(),
                "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic eA==\r\n\r\n"
            );
        }
    }

    #[tokio::test]
    async fn answers_of_socks() {
        let credentials = ParentCredentials::new("me", "pw").unwrap();
        let broken = Err(ParentFault::Broken);
        let rejected = Err(ParentFault::Credentials);
        let hello: &[u8] = &[5, 2, 0, 2];
        let with_password: &[u8] = &[5, 2, 0, 2, 1, 2, b'm', b'e', 2, b'p', b'w'];
        for (answer, expected, sends) in [
            (&[5_u8, 0][..], Ok(()), hello),
            (&[5, 2, 1, 0], Ok(()), with_password),
            (&[5, 2, 1, 1], rejected, with_password),
            (&[5, 2, 5, 0], broken, with_password),
            (&[5, 0xff], rejected, hello),
            (&[5, 1], broken, hello),
            (&[4, 0], broken, hello),
            (&[5], broken, hello),
            (b"HT", broken, hello),
        ] {
            let (result, sent) = run(answer, async |mut stream| {
                (
                    negotiate_socks(&mut stream, Some(&credentials)).await,
                    stream,
                )
            })
            .await;
            assert_eq!((result, &sent[..]), (expected, sends), "{answer:?}");
        }
        // Without credentials only the method without authentication is offered.
        let (result, sent) = run(&[5, 2], async |mut stream| {
            (negotiate_socks(&mut stream, None).await, stream)
        })
        .await;
        assert_eq!((result, &sent[..]), (broken, &[5, 1, 0][..]));
        let unroutable = Err(ParentFault::Unreachable(OriginFault::Unroutable));
        for (answer, expected) in [
            (&[5_u8, 0, 0, 1, 127, 0, 0, 1, 0, 80][..], Ok(())),
            (
                &[
                    5, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80,
                ],
                Ok(()),
            ),
            (&[5, 0, 0, 3, 1, b'a', 0, 80], Ok(())),
            (&[5, 0, 0, 1, 127, 0, 0, 1, 0], broken),
            (&[5, 0, 0, 9, 127, 0, 0, 1, 0, 80], broken),
            (&[4, 0, 0, 1, 127, 0, 0, 1, 0, 80], broken),
            (
                &[5, 1, 0, 1, 0, 0, 0, 0, 0, 0],
                Err(ParentFault::Unreachable(OriginFault::Other)),
            ),
            (&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0], Err(ParentFault::Denied)),
            (&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0], unroutable),
            (&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0], unroutable),
            (
                &[5, 5, 0, 1, 0, 0, 0, 0, 0, 0],
                Err(ParentFault::Unreachable(OriginFault::Refused)),
            ),
            (
                &[5, 6, 0, 1, 0, 0, 0, 0, 0, 0],
                Err(ParentFault::Unreachable(OriginFault::Timeout)),
            ),
            (&[5, 7, 0, 1, 0, 0, 0, 0, 0, 0], broken),
        ] {
            let (result, sent) = run(answer, async |mut stream| {
                (connect_socks(&mut stream, "a.test", 443).await, stream)
            })
            .await;
            assert_eq!(result, expected, "{answer:?}");
            assert_eq!(sent, b"\x05\x01\x00\x03\x06a.test\x01\xbb");
        }
        for (host, sends) in [
            (
                "192.0.2.1",
                b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50".to_vec(),
            ),
            (
                "[::1]",
                [&b"\x05\x01\x00\x04"[..], &[0; 15], b"\x01\x00\x50"].concat(),
            ),
        ] {
            let (_, sent) = run(&[], async |mut stream| {
                (connect_socks(&mut stream, host, 80).await, stream)
            })
            .await;
            assert_eq!(sent, sends, "{host}");
        }
    }
}
