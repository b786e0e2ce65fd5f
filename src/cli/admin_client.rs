//! Asks the admin API of a running proxy: one request on a connection of its own.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;

use crate::config::settings::AdminConfig;

/// How long the proxy may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct AdminClientRequest<'a> {
    /// The method.
    pub(super) method: &'static str,
    /// The path.
    pub(super) path: &'a str,
    /// The body: JSON.
    pub(super) body: Option<String>,
}

impl<'a> AdminClientRequest<'a> {
    /// The document at a path.
    pub(super) fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            body: None,
        }
    }
}

/// Why there is no document.
#[derive(Clone, Debug)]
pub(super) enum AdminClientError {
    /// The proxy could not be asked, for this reason.
    Unavailable(String),
    /// It has answered with this status and these words.
    Status(u16, String),
}

impl fmt::Display for AdminClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => f.write_str(why),
            Self::Status(status, words) => write!(f, "the proxy answers {status}: {words}"),
        }
    }
}

/// The document at a path.
///
/// # Errors
/// Why there is none, in words.
pub(super) fn get(admin: &AdminConfig, path: &str) -> Result<Json, String> {
    send(admin, &AdminClientRequest::get(path)).map_err(|refused| refused.to_string())
}

/// The document that the proxy answers with.
///
/// # Errors
/// If it answers with none, or not at all.
pub(super) fn send(
    admin: &AdminConfig,
    request: &AdminClientRequest<'_>,
) -> Result<Json, AdminClientError> {
    let address = client_address(admin.listen);
    let authorization = match &admin.token_file {
        Some(file) => {
            let unread =
                |error| format!("the token file {} cannot be read: {error}", file.display());
            let token = fs::read_to_string(file)
                .map_err(|error| AdminClientError::Unavailable(unread(error)))?;
            format!("Authorization: Bearer {}\r\n", token.trim())
        }
        None => String::new(),
    };
    let answer =
        exchange(address, &format_request(request, address, &authorization)).map_err(|error| {
            AdminClientError::Unavailable(format!(
                "the proxy does not answer at {address} (admin.listen): {error}"
            ))
        })?;
    let foreign = || {
        AdminClientError::Unavailable(format!(
            "what answers at {address} is not crawlgate's admin API"
        ))
    };
    parse_response(&answer).ok_or_else(foreign)?
}

fn format_request(
    request: &AdminClientRequest<'_>,
    address: SocketAddr,
    authorization: &str,
) -> String {
    let AdminClientRequest { method, path, body } = request;
    let body = body.as_deref().unwrap_or_default();
    let fields = match body.len() {
        0 => String::new(),
        length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{authorization}{fields}Connection: close\r\n\r\n{body}"
    )
}

/// What listens on every address is asked on loopback.
fn client_address(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn exchange(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_string(&mut answer)?;
    Ok(answer)
}

/// The document of a 2xx, or the words of a refusal; `None` if it is neither.
fn parse_response(answer: &str) -> Option<Result<Json, AdminClientError>> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status: u16 = head
        .strip_prefix("HTTP/1.1 ")?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    let document: Json = serde_json::from_str(body).ok()?;
    if (200..300).contains(&status) {
        return Some(Ok(document));
    }
    let detail = document
        .get("detail")
        .and_then(Json::as_str)
        .unwrap_or_default();
    Some(Err(AdminClientError::Status(status, detail.to_owned())))
}
