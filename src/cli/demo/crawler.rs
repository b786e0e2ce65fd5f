//! The crawler of the demo: breadth first, every link, no opinion of its own.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What the crawler got for a URL.
pub(super) struct CrawledPage {
    pub(super) url: String,
    /// The status; 0 if the answer broke off or never came.
    pub(super) status: u16,
    /// `Crawl-Reason`.
    pub(super) reason: Option<String>,
    /// `Crawl-Rule`.
    pub(super) rule: Option<String>,
    links: Vec<String>,
}

/// Crawls through the proxy until no link is new; tells of each page as it comes.
pub(super) async fn crawl(
    proxy: SocketAddr,
    start: &str,
    mut tell: impl FnMut(&CrawledPage),
) -> Vec<CrawledPage> {
    let mut known = BTreeSet::from([start.to_owned()]);
    let mut frontier = VecDeque::from([start.to_owned()]);
    let mut pages = vec![];
    while let Some(url) = frontier.pop_front() {
        let page = fetch(proxy, url).await;
        tell(&page);
        for link in &page.links {
            let link = resolve_link(&page.url, link);
            if known.insert(link.clone()) {
                frontier.push_back(link);
            }
        }
        pages.push(page);
    }
    pages
}

async fn fetch(proxy: SocketAddr, url: String) -> CrawledPage {
    let answer = send_request(proxy, &url).await.unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let whole = field("content-length").is_none_or(|length| length == body.len().to_string());
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .filter(|_| whole);
    let (reason, rule) = (field("crawl-reason"), field("crawl-rule"));
    // A refusal is no page: its body is not read for links.
    let links = if reason.is_none() {
        extract_links(body)
    } else {
        vec![]
    };
    CrawledPage {
        status: status.unwrap_or(0),
        reason,
        rule,
        links,
        url,
    }
}

/// One request a connection, as many simple crawlers do.
async fn send_request(proxy: SocketAddr, url: &str) -> std::io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(proxy).await?;
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: demo\r\nUser-Agent: demo\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut answer = vec![];
    // What came before a break is kept: the length tells that something is missing.
    let _ = socket.read_to_end(&mut answer).await;
    Ok(answer)
}

fn extract_links(html: &str) -> Vec<String> {
    let attributes = html.split("href=\"").skip(1);
    attributes
        .filter_map(|rest| rest.split_once('"'))
        .map(|(link, _)| link.to_owned())
        .collect()
}

/// A link as written on a page: absolute, or a path on the same host.
fn resolve_link(page: &str, link: &str) -> String {
    if link.contains("://") {
        return link.to_owned();
    }
    let root: String = page.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    format!("{root}{link}")
}
