//! Nutch: the policy against the algorithm of its filters, written plainly.

use crawlgate_import::System;
use regex::Regex;
use serde_json::Map;

use super::support::{REQUESTS, compare_verdicts, import_texts};

const FILTER: &str = "-\\.(?:gif|zip)$\n-[?*!@=]\n+^https?://([a-z0-9]*\\.)*example\\.com/\n-.\n";

#[test]
fn the_first_line_that_fits_decides() {
    let imported = import_texts(System::Nutch, &[("regex-urlfilter.txt", FILTER)]);
    let lines: Vec<(bool, Regex)> = FILTER
        .lines()
        .map(|line| (line.starts_with('+'), Regex::new(&line[1..]).unwrap()))
        .collect();
    let mut random = fastrand::Rng::with_seed(1);
    let hosts = [
        "example.com",
        "www.example.com",
        "a.b.example.com",
        "example.org",
        "xexample.com",
    ];
    let paths = ["", "a", "a.gif", "a.zip", "a?b=c", "a@b", "a.gif/x", "zip"];
    let urls = (0..REQUESTS).map(|_| {
        let host = hosts[random.usize(..hosts.len())];
        let path = paths[random.usize(..paths.len())];
        (format!("http://{host}/{path}"), Map::new())
    });
    let urls: Vec<_> = urls.collect();
    let announced = compare_verdicts(&imported, urls, |url, _| {
        let found = lines.iter().find(|(_, regex)| regex.is_match(url));
        found.is_some_and(|(allows, _)| *allows)
    });
    assert_eq!(announced, 0);
}
