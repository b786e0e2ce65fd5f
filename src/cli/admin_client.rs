//! A client of the admin API of a running proxy, with one connection per request.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;

use crate::config::settings::AdminConfig;

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: u64 = 64 << 20;

/// A request to the admin API.
#[derive(Clone, Debug)]
pub(super) struct AdminClientRequest<'a> {
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    /// The JSON body.
    pub(super) body: Option<String>,
}

impl<'a> AdminClientRequest<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            body: None,
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

/// Sends a request, and returns the JSON document of the response.
///
/// # Errors
/// If there is no response, or its status is not 2xx.
pub(super) fn send(
    admin: &AdminConfig,
    request: &AdminClientRequest<'_>,
) -> Result<Json, AdminClientError> {
    let address = client_address(admin.listen);
    let authorization = match &admin.token_file {
        Some(file) => {
            let token = fs::read_to_string(file).map_err(|error| {
                AdminClientError::Unavailable(format!(
                    "the token file {} (admin.token_file) cannot be read: {error}",
                    file.display()
                ))
            })?;
            format!("Authorization: Bearer {}\r\n", token.trim())
        }
        None => String::new(),
    };
    let response =
        exchange(address, &format_request(request, address, &authorization)).map_err(|error| {
            AdminClientError::Unavailable(format!(
                "the proxy does not answer at {address} (admin.listen): {error}"
            ))
        })?;
    parse_response(&response).ok_or_else(|| {
        AdminClientError::Unavailable(format!(
            "the server at {address} (admin.listen) is not crawlgate's admin API"
        ))
    })?
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
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream
        .take(MAX_RESPONSE_BYTES)
        .read_to_string(&mut response)?;
    Ok(response)
}

/// Returns the document of a 2xx response, or the detail of any other; `None` if the response is not from an admin API.
fn parse_response(response: &str) -> Option<Result<Json, AdminClientError>> {
    let (head, body) = response.split_once("\r\n\r\n")?;
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
