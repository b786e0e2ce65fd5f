//! The shop that the demo crawls: generated pages, and hosts that misbehave.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The hosts of the shop, and one host outside it.
pub(super) const HOSTS: [&str; 10] = [
    "www.shop.test",
    "shop.test",
    "blog.shop.test",
    "events.shop.test",
    "files.shop.test",
    "broken.shop.test",
    "slow.shop.test",
    "tired.shop.test",
    "locked.shop.test",
    "elsewhere.test",
];

pub(super) struct DemoSite {
    /// The port of all hosts.
    pub(super) port: u16,
    /// A port on which no server listens.
    pub(super) closed_port: u16,
}

impl DemoSite {
    /// Returns the URL at which a crawl starts.
    pub(super) fn start_url(&self) -> String {
        format!("http://www.shop.test:{}/", self.port)
    }
}

/// Starts the site on a free port on loopback.
pub(super) async fn start() -> io::Result<DemoSite> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let closed = TcpListener::bind(("127.0.0.1", 0)).await?;
    let site = DemoSite {
        port: listener.local_addr()?.port(),
        closed_port: closed.local_addr()?.port(),
    };
    drop(closed);
    let port = site.port;
    let closed_port = site.closed_port;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, port, closed_port));
        }
    });
    Ok(site)
}

/// The first byte of a TLS handshake. The site does not support TLS, and responds with 400 as web servers do.
const TLS: &[u8] = &[0x16];

/// Handles one request, and closes the connection.
async fn serve(mut socket: TcpStream, port: u16, closed_port: u16) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.starts_with(TLS) {
        match socket.read_buf(&mut head).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
    if head.starts_with(TLS) {
        let _ = socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            .await;
        return;
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
    let host = head
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or("");
    let name = host.split(':').next().unwrap_or(host);
    if path == "/hang" {
        // Sends nothing until the proxy times out and closes the connection.
        let _ = socket.read_u8().await;
        return;
    }
    let _ = socket
        .write_all(&response_for(name, &path, port, closed_port))
        .await;
}

fn response_for(host: &str, path: &str, port: u16, closed_port: u16) -> Vec<u8> {
    match (host, path) {
        ("broken.shop.test", "/garbage") => b"once upon a time\r\n\r\n".to_vec(),
        ("broken.shop.test", "/cut") => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_vec()
        }
        ("files.shop.test", "/catalogue.pdf") => {
            response("200 OK", "application/pdf", &"%".repeat(100_000))
        }
        ("files.shop.test", "/price-list.pdf") => response("200 OK", "application/pdf", "%PDF-1.7"),
        ("files.shop.test", "/film") => response("200 OK", "Video/MP4; codecs=avc1", "a film"),
        ("blog.shop.test", "/robots.txt") => {
            response("200 OK", "text/plain", "User-agent: *\nDisallow: /drafts\n")
        }
        ("locked.shop.test", "/robots.txt") => {
            response("500 Internal Server Error", "text/plain", "oh")
        }
        (_, "/robots.txt") => response("404 Not Found", "text/plain", "none"),
        ("tired.shop.test", "/") => rate_limited_response(),
        ("blog.shop.test", "/gone") => {
            response("404 Not Found", "text/html", "<p>nothing here</p>")
        }
        _ => response(
            "200 OK",
            "text/html; charset=utf-8",
            &page_html(host, path, port, closed_port),
        ),
    }
}

/// Returns a 429 response with a Retry-After of one minute.
fn rate_limited_response() -> Vec<u8> {
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        .to_vec()
}

fn response(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Generates a page, which is a list of links.
///
/// In the table, `:P` means the port of the site, `:X` the closed port, and `/L` a path that is too long.
fn page_html(host: &str, path: &str, port: u16, closed_port: u16) -> String {
    let links: &[&str] = match (host, path) {
        ("www.shop.test", "/") => &[
            "/products/chair",
            "/products/table",
            "/cart",
            "/checkout/pay",
            "/products/chair?sid=4711",
            "/old/lamp",
            "/a/%2e%2e/products/sofa",
            "/%63art",
            "http://blog.shop.test:P/",
            "http://events.shop.test:P/?month=1",
            "http://files.shop.test:P/",
            "http://broken.shop.test:P/",
            "http://slow.shop.test:P/",
            "http://slow.shop.test:P/next",
            "http://tired.shop.test:P/",
            "http://tired.shop.test:P/next",
            "http://locked.shop.test:P/",
            "http://elsewhere.test:P/",
            "https://www.shop.test:P/account",
            "ftp://www.shop.test/price-list.pdf",
            "http://user:secret@www.shop.test:P/",
        ],
        ("www.shop.test", "/products/chair") => &["/", "/products/table", "/products/sofa"],
        ("blog.shop.test", "/") => &[
            "/first-post",
            "/drafts/second-post",
            "/gone",
            "http://WWW.SHOP.TEST:P/products/sofa",
        ],
        ("files.shop.test", "/") => &["/price-list.pdf", "/catalogue.pdf", "/film"],
        ("broken.shop.test", "/") => &[
            "/garbage",
            "/hang",
            "/cut",
            "/L",
            "http://www.shop.test:X/",
            "http://www.shop.test:25/",
            "http://nowhere.shop.test:P/",
            "http://2130706433:P/",
            "http://metadata.shop.test:P/latest/",
        ],
        _ => &[],
    };
    let next_month = path
        .strip_prefix("/?month=")
        .and_then(|m| m.parse::<u32>().ok())
        .map(|m| m + 1);
    let mut html = String::from("<!doctype html><title>shop</title>");
    for link in links {
        let link = link
            .replace(":P", &format!(":{port}"))
            .replace(":X", &format!(":{closed_port}"));
        let link = if link == "/L" {
            format!("/{}", "more/".repeat(20_000))
        } else {
            link
        };
        html.push_str(&format!("<a href=\"{link}\">x</a>\n"));
    }
    if let Some(month) = next_month {
        html.push_str(&format!("<a href=\"/?month={month}\">next month</a>\n"));
    }
    html
}
