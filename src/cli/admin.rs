//! Asks the admin API of a running proxy: one request on a connection of its own.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value as Json;

use crate::config::settings::Admin;

/// How long the proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer.
const LONGEST: u64 = 64 << 20;

/// The document at a path.
///
/// # Errors
/// Why there is none, in words.
pub(super) fn get(admin: &Admin, path: &str) -> Result<Json, String> {
    let address = reachable(admin.listen);
    let authorization = match &admin.token_file {
        Some(file) => {
            let token = fs::read_to_string(file)
                .map_err(|error| format!("the token file {} cannot be read: {error}", file.display()))?;
            format!("Authorization: Bearer {}\r\n", token.trim())
        }
        None => String::new(),
    };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{authorization}Connection: close\r\n\r\n");
    let answer = exchange(address, &request)
        .map_err(|error| format!("the proxy does not answer at {address} (admin.listen): {error}"))?;
    document(&answer).ok_or_else(|| format!("what answers at {address} is not crawlgate's admin API"))?
}

/// What listens on every address is asked on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

fn exchange(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    Ok(answer)
}

/// The document of a 200, or the words of a refusal; `None` if it is neither.
fn document(answer: &str) -> Option<Result<Json, String>> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status: u16 = head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()?;
    let document: Json = serde_json::from_str(body).ok()?;
    if status == 200 {
        return Some(Ok(document));
    }
    let detail = document.get("detail").and_then(Json::as_str).unwrap_or_default();
    Some(Err(format!("the proxy answers {status}: {detail}")))
}
