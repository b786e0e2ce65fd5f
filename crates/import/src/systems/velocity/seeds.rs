//! Start URLs of the component `vse-crawler-seed-urls`.

use roxmltree::Node;

use crate::systems::urls::check_host;

/// Returns the text with the start URLs.
pub(super) fn seed_text<'a>(element: Node<'a, '_>) -> Option<&'a str> {
    let mut children = element.children();
    let with = children.find(|child| child.attribute("name") == Some("urls"))?;
    with.text().filter(|text| !text.trim().is_empty())
}

/// Returns the hosts of start URLs, each once.
pub(super) fn hosts_of(text: &str) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some((scheme, rest)) = line.split_once("://") else {
            continue;
        };
        if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
            continue;
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
            Some(_) | None => authority,
        };
        let host = host.to_ascii_lowercase();
        let is_host = check_host(&host).is_ok();
        if is_host && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}
