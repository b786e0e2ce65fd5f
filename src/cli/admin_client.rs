//! A client of the admin API of a running proxy, with one connection per request.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a byte of the response. The proxy answers a reload after 20 s at the latest.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time without a byte of a stream, which has a blank line every 10 s.
const STREAM_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_HEAD_BYTES: usize = 16 << 10;
const NOT_ADMIN_API: &str = "the server there is not crawlgate's admin API";
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// A request to the admin API.
#[derive(Clone, Debug)]
pub(super) struct AdminClientRequest<'a> {
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    /// The JSON body.
    pub(super) body: Option<String>,
    /// The user to record as the author of a change.
    pub(super) user: Option<String>,
}

impl<'a> AdminClientRequest<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            body: None,
            user: None,
        }
    }

    pub(super) fn post(path: &'a str, body: Option<String>) -> Self {
        Self {
            method: "POST",
            path,
            body,
            user: None,
        }
    }
}

/// An error of a request to the admin API.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum AdminClientError {
    /// There was no response of an admin API, for this reason.
    #[error("{0}")]
    Unavailable(String),
    /// The response has an error status, and this detail.
    #[error("the proxy responds with status {0}: {1}")]
    Status(u16, String),
}

/// A response of the admin API.
#[derive(Clone, Debug)]
pub(super) struct AdminResponse {
    pub(super) status: u16,
    pub(super) body: String,
}

impl AdminResponse {
    /// Returns the JSON document, whatever the status is.
    ///
    /// # Errors
    /// If the body is no JSON document: the response is not from an admin API.
    pub(super) fn document(&self) -> Result<Json, AdminClientError> {
        serde_json::from_str(&self.body)
            .map_err(|_| AdminClientError::Unavailable(NOT_ADMIN_API.to_owned()))
    }

    /// Returns the JSON document of a 2xx response.
    ///
    /// # Errors
    /// If the status is another, or there is no document.
    pub(super) fn into_result(self) -> Result<Json, AdminClientError> {
        let document = self.document()?;
        if (200..300).contains(&self.status) {
            return Ok(document);
        }
        let mut detail = get_str(&document, "detail").to_owned();
        if self.status == 401 {
            detail.push_str(
                "; commands read the token from `admin.token_file`: name the configuration with --config or $CRAWLGATE_CONFIG",
            );
        }
        Err(AdminClientError::Status(self.status, detail))
    }
}

/// Sends a request, and returns the response.
///
/// # Errors
/// If there is no response of an HTTP server.
pub(super) fn send(
    address: SocketAddr,
    token: Option<&str>,
    request: &AdminClientRequest<'_>,
) -> Result<AdminResponse, AdminClientError> {
    let text = format_request(request, address, token, "HTTP/1.1");
    exchange(address, &text)
        .map_err(|error| AdminClientError::Unavailable(error.to_string()))
        .and_then(|response| parse_response(&response))
}

/// Sends a GET request whose response may be a stream without end, and returns the reader of its body.
///
/// # Errors
/// If there is no response, or its status is not 200.
pub(super) fn open_stream(
    address: SocketAddr,
    token: Option<&str>,
    path: &str,
) -> Result<BufReader<TcpStream>, AdminClientError> {
    // The body of a response to HTTP/1.0 ends with the connection, without chunks.
    let text = format_request(&AdminClientRequest::get(path), address, token, "HTTP/1.0");
    let mut stream = begin_exchange(address, &text, STREAM_TIMEOUT)
        .map(BufReader::new)
        .map_err(|error| AdminClientError::Unavailable(error.to_string()))?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match stream.read_line(&mut head) {
            Ok(1..) if head.len() <= MAX_HEAD_BYTES => {}
            Ok(_) => return Err(AdminClientError::Unavailable(NOT_ADMIN_API.to_owned())),
            Err(error) => return Err(AdminClientError::Unavailable(error.to_string())),
        }
    }
    if parse_response(&head)?.status == 200 {
        return Ok(stream);
    }
    let mut body = String::new();
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_string(&mut body)
        .map_err(|error| AdminClientError::Unavailable(error.to_string()))?;
    parse_response(&(head + &body))?.into_result()?;
    Err(AdminClientError::Unavailable(NOT_ADMIN_API.to_owned()))
}

/// Reads the token of `admin.token_file`, if it is set.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn read_token(file: Option<&Path>) -> Result<Option<String>, AdminClientError> {
    let Some(file) = file else { return Ok(None) };
    match fs::read_to_string(file) {
        Ok(token) => Ok(Some(token.trim().to_owned())),
        Err(error) => Err(AdminClientError::Unavailable(format!(
            "the token file {} (admin.token_file) cannot be read: {error}",
            file.display()
        ))),
    }
}

fn format_request(
    request: &AdminClientRequest<'_>,
    address: SocketAddr,
    token: Option<&str>,
    version: &str,
) -> String {
    let AdminClientRequest {
        method,
        path,
        body,
        user,
    } = request;
    let authorization = match (token, user) {
        (Some(token), Some(user)) => {
            let credentials = STANDARD.encode(format!("{user}:{token}"));
            format!("Authorization: Basic {credentials}\r\n")
        }
        (Some(token), None) => format!("Authorization: Bearer {token}\r\n"),
        (None, _) => String::new(),
    };
    let body = body.as_deref().unwrap_or_default();
    let fields = match body.len() {
        0 => String::new(),
        length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    format!(
        "{method} {path} {version}\r\nHost: {address}\r\n{authorization}{fields}Connection: close\r\n\r\n{body}"
    )
}

/// Returns the address at which a client on this machine reaches a listener: loopback, if it listens on all addresses.
pub(super) fn client_address(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listener.port())
}

fn exchange(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = connect(address, RESPONSE_TIMEOUT)?;
    let written = stream.write_all(request.as_bytes());
    let mut response = String::new();
    let read = stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_string(&mut response);
    // A proxy that refuses a long request answers before it has read all of it.
    if response.is_empty() {
        written?;
        read?;
    }
    Ok(response)
}

fn begin_exchange(
    address: SocketAddr,
    request: &str,
    read_timeout: Duration,
) -> io::Result<TcpStream> {
    let mut stream = connect(address, read_timeout)?;
    stream.write_all(request.as_bytes())?;
    Ok(stream)
}

fn connect(address: SocketAddr, read_timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    stream.set_read_timeout(Some(read_timeout))?;
    stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    Ok(stream)
}

fn parse_response(response: &str) -> Result<AdminResponse, AdminClientError> {
    let parse = || {
        let (head, body) = response.split_once("\r\n\r\n")?;
        let version = head.strip_prefix("HTTP/1.")?;
        let status = version.split(' ').nth(1)?.parse().ok()?;
        Some(AdminResponse {
            status,
            body: body.to_owned(),
        })
    };
    parse().ok_or_else(|| AdminClientError::Unavailable(NOT_ADMIN_API.to_owned()))
}

/// Returns the value of a key, or null if the key does not exist.
pub(super) fn get_or_null<'j>(document: &'j Json, key: &str) -> &'j Json {
    document.get(key).unwrap_or(&Json::Null)
}

/// Returns the text of a key, or an empty string if the key has no text.
pub(super) fn get_str<'j>(document: &'j Json, key: &str) -> &'j str {
    get_or_null(document, key).as_str().unwrap_or_default()
}

/// Returns the number of a key, or 0 if the key has no number.
pub(super) fn get_u64(document: &Json, key: &str) -> u64 {
    get_or_null(document, key).as_u64().unwrap_or_default()
}

/// Returns the elements of an array, or none if the key has no array.
pub(super) fn get_array<'j>(document: &'j Json, key: &str) -> &'j [Json] {
    get_or_null(document, key)
        .as_array()
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        for (listener, address) in [
            ("0.0.0.0:3128", "127.0.0.1:3128"),
            ("[::]:3128", "[::1]:3128"),
            ("192.0.2.1:1", "192.0.2.1:1"),
        ] {
            assert_eq!(
                client_address(listener.parse().unwrap()),
                address.parse().unwrap()
            );
        }
    }
}
