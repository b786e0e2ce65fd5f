//! Traps and URL keys of 20,000 random URLs, compared with independent oracles.

use std::collections::BTreeMap;

use crawlgate::policy::fact::Facts;
use crawlgate::policy::traps::Trap;
use crawlgate::urls::target::UrlTarget;
use regex::Regex;

use crate::support::policy::compile_policy;

const URLS: usize = 20_000;
const YEAR: u16 = 2026;

/// A random number generator with a fixed seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    fn url(&mut self) -> UrlTarget {
        const SEGMENTS: [&str; 16] = [
            "a",
            "b",
            "c",
            "aa",
            "",
            "calendar",
            "Date",
            "2040",
            "2024",
            "20400131",
            "1066",
            "h.com",
            "H.com",
            "http:",
            "https:",
            "x;jsessionid=1",
        ];
        const NAMES: [&str; 9] = [
            "a",
            "b",
            "sid",
            "s%69d",
            "SID",
            "utm_x",
            "utm_",
            "PHPSESSID",
            "day",
        ];
        const VALUES: [&str; 6] = ["=1", "=", "", "=2040", "=0123456789abcdef", "=a%26b"];
        let max_segments = [4, 10, 30][self.below(3) as usize];
        let max_params = [3, 8, 40][self.below(3) as usize];
        let path: String = (0..self.below(max_segments))
            .map(|_| format!("/{}", self.pick(&SEGMENTS)))
            .collect();
        let query: Vec<String> = (0..self.below(max_params))
            .map(|_| format!("{}{}", self.pick(&NAMES), self.pick(&VALUES)))
            .collect();
        let query = if query.is_empty() {
            String::new()
        } else {
            format!("?{}", query.join("&"))
        };
        let path = if path.is_empty() {
            "/".to_owned()
        } else {
            path
        };
        UrlTarget::parse(&format!(
            "http://{}{path}{query}",
            self.pick(&["h.com", "h"])
        ))
        .unwrap()
    }
}

/// Returns how often the most frequent item occurs.
fn max_count<'a>(items: impl Iterator<Item = &'a str>) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    items.for_each(|item| *counts.entry(item).or_default() += 1);
    counts.into_values().max().unwrap_or(0)
}

fn oracle(trap: Trap, target: &UrlTarget) -> bool {
    let url = url::Url::parse(target.as_str()).unwrap();
    let segments: Vec<&str> = url
        .path_segments()
        .unwrap()
        .filter(|s| !s.is_empty())
        .collect();
    let raw: Vec<&str> = url
        .query()
        .unwrap_or("")
        .split('&')
        .filter(|p| !p.is_empty())
        .collect();
    fn count(pattern: &str, text: &str) -> usize {
        Regex::new(pattern).unwrap().find_iter(text).count()
    }
    let path_and_query = &url[url::Position::BeforePath..];
    match trap {
        Trap::RepeatedSegment => max_count(segments.iter().copied()) >= 3,
        Trap::RepeatedRun => (0..segments.len()).any(|from| {
            (1..segments.len()).any(|n| {
                let part = |k: usize| segments.get(from + k * n..from + (k + 1) * n);
                part(0).is_some() && part(0) == part(1) && part(1) == part(2)
            })
        }),
        Trap::AlternatingSegment => (4..segments.len())
            .any(|at| segments[at] == segments[at - 2] && segments[at - 2] == segments[at - 4]),
        Trap::LongUrl => target.as_str().chars().count() > 2_048,
        Trap::ManySegments => segments.len() > 20,
        Trap::ManyParams => raw.len() > 32,
        // Only the first 64 parameters count.
        Trap::RepeatedParam => {
            max_count(
                raw.iter()
                    .take(64)
                    .map(|p| p.split_once('=').map_or(*p, |(n, _)| n)),
            ) > 3
        }
        Trap::HostInPath => {
            let host = url.host_str().unwrap();
            host.contains('.') && count(&format!("(?i){}", regex::escape(host)), url.path()) >= 2
        }
        Trap::SchemeInPath => count("https?:/", &url.path().replace("/http", "/ http")) >= 2,
        Trap::Calendar => {
            let word = r"(?i)\b(calendar|year|month|day|date|viewcal|calendrier|jour)\b";
            let spaced = path_and_query.replace('_', " ");
            let years =
                Regex::new(r"\b(19\d\d|2\d\d\d)((0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]))?\b").unwrap();
            fn far(year: &str) -> bool {
                year.parse::<u16>().unwrap().abs_diff(YEAR) > 5
            }
            count(word, &spaced) > 0 && years.captures_iter(&spaced).any(|found| far(&found[1]))
        }
        Trap::SessionId => {
            let in_query = r"(?i)[?&](phpsessid=[^&]|(sid|sessid)=[0-9a-z]{16,}(&|$))";
            url.path().contains(";jsessionid=") || count(in_query, target.as_str()) > 0
        }
    }
}

#[test]
fn traps_equal_their_oracles() {
    let mut random = Random(1);
    let mut matches = BTreeMap::<&str, usize>::new();
    for _ in 0..URLS {
        let target = random.url();
        for trap in Trap::ALL {
            let matched = trap.matches(&target, YEAR);
            assert_eq!(
                matched,
                oracle(trap, &target),
                "{} {target:?}",
                trap.as_str()
            );
            *matches.entry(trap.as_str()).or_default() += usize::from(matched);
        }
    }
    matches.remove("long_url");
    assert!(
        matches.values().all(|count| (100..URLS).contains(count)),
        "{matches:?}"
    );
}

#[test]
fn keys_equal_their_oracle() {
    let text =
        "policy: 1\nname: p\noptions: { disposition: allow, strip_params: [sid, 'utm_*'] }\n";
    let policy = compile_policy(text).policy;
    let stripped = Regex::new("^(sid|utm_.*)$").unwrap();
    let mut random = Random(2);
    let mut changed = 0;
    for _ in 0..URLS {
        let target = random.url();
        let (trail, _) = policy.decide_request(&Facts::for_url(&target));
        let key = policy.key_url(&trail, &target);
        let before = url::Url::parse(target.as_str()).unwrap();
        let after = url::Url::parse(&key).unwrap();
        let expected: Vec<_> = before
            .query_pairs()
            .filter(|(name, _)| !stripped.is_match(name))
            .collect();
        assert_eq!(
            after.query_pairs().collect::<Vec<_>>(),
            expected,
            "{target:?} {key}"
        );
        assert_eq!(
            &before[..url::Position::AfterPath],
            &after[..url::Position::AfterPath]
        );
        let again = UrlTarget::parse(&key).unwrap();
        let (trail, _) = policy.decide_request(&Facts::for_url(&again));
        assert_eq!(
            policy.key_url(&trail, &again),
            key,
            "the key of a key is the same key"
        );
        changed += usize::from(*key != *target.as_str());
    }
    assert!((1_000..URLS).contains(&changed), "{changed}");
}

/// A URL is refused by the first enabled trap that matches it, and never by a disabled trap.
#[test]
fn the_first_enabled_trap_that_matches_decides() {
    let mut random = Random(3);
    for _ in 0..200 {
        let names: Vec<&str> = Trap::ALL
            .iter()
            .filter(|_| random.below(2) == 0)
            .map(|t| t.as_str())
            .collect();
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, traps: [{}] }}\nrules: [{{ id: no, when: {{ path: /b }}, set: {{ traps: none }} }}]\n",
            names.join(", ")
        );
        let policy = compile_policy(text).policy;
        for _ in 0..50 {
            let target = random.url();
            let (trail, decision) = policy.decide_request(&Facts::for_url(&target));
            if decision.reason().as_str() == "ambiguous_url" {
                continue;
            }
            let first = Trap::ALL.iter().find(|trap| {
                names.contains(&trap.as_str())
                    && !target.path().starts_with("/b")
                    && oracle(**trap, &target)
            });
            assert_eq!(trail.trap(), first.copied(), "{names:?} {target:?}");
            assert_eq!(decision.rejects(), first.is_some());
        }
    }
}
