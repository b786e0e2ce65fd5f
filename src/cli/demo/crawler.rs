//! The crawler of the demo, which follows every link, breadth first.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The response to a URL.
pub(super) struct CrawledPage {
    pub(super) url: String,
    /// The status; 0 if the response is incomplete or missing.
    pub(super) status: u16,
    /// The value of `Crawl-Reason`.
    pub(super) reason: Option<String>,
    /// The value of `Crawl-Rule`.
    pub(super) rule: Option<String>,
    links: Vec<String>,
}

/// Crawls through the proxy until there are no new links, and calls `on_page` for each page.
pub(super) async fn crawl(
    proxy: SocketAddr,
    start: &str,
    mut on_page: impl FnMut(&CrawledPage),
) -> Vec<CrawledPage> {
    let mut known = BTreeSet::from([start.to_owned()]);
    let mut frontier = VecDeque::from([start.to_owned()]);
    let mut pages = vec![];
    while let Some(url) = frontier.pop_front() {
        let page = fetch(proxy, url).await;
        on_page(&page);
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
    let response = send_request(proxy, &url).await.unwrap_or_default();
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    let complete =
        header(head, "content-length").is_none_or(|length| length == body.len().to_string());
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .filter(|_| complete);
    let reason = header(head, "crawl-reason");
    // The body of a refusal contains no links of the site.
    let links = if reason.is_none() {
        extract_links(body)
    } else {
        vec![]
    };
    CrawledPage {
        status: status.unwrap_or(0),
        reason,
        rule: header(head, "crawl-rule"),
        links,
        url,
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.to_owned())
}

/// Sends a request on a new connection, as many simple crawlers do.
async fn send_request(proxy: SocketAddr, url: &str) -> std::io::Result<Vec<u8>> {
    let mut socket = TcpStream::connect(proxy).await?;
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: demo\r\nUser-Agent: demo\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut response = vec![];
    // The caller detects a truncated response by its Content-Length.
    let _ = socket.read_to_end(&mut response).await;
    Ok(response)
}

fn extract_links(html: &str) -> Vec<String> {
    let attributes = html.split("href=\"").skip(1);
    attributes
        .filter_map(|rest| rest.split_once('"'))
        .map(|(link, _)| link.to_owned())
        .collect()
}

/// Resolves a link of a page: an absolute URL, or a path on the same host.
fn resolve_link(page: &str, link: &str) -> String {
    if link.contains("://") {
        return link.to_owned();
    }
    let root: String = page.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    format!("{root}{link}")
}
