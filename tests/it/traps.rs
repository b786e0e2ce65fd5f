//! Traps and keys of 20,000 random URLs against oracles that are written another way.

use std::collections::BTreeMap;

use crawlgate::policy::compile::load;
use crawlgate::policy::fact::Facts;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::policy::traps::Trap;
use crawlgate::urls::target::UrlTarget;
use regex::Regex;

const URLS: usize = 20_000;
const YEAR: u16 = 2026;

/// The same numbers in every run (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
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
        let (longest, most) = (
            [4, 10, 30][self.below(3) as usize],
            [3, 8, 40][self.below(3) as usize],
        );
        let path: String = (0..self.below(longest))
            .map(|_| format!("/{}", self.pick(&SEGMENTS)))
            .collect();
        let query: Vec<String> = (0..self.below(most))
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

fn most<'a>(all: impl Iterator<Item = &'a str>) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
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
    let count = |pattern: &str, text: &str| Regex::new(pattern).unwrap().find_iter(text).count();
    let path_and_query = &url[url::Position::BeforePath..];
    match trap {
        Trap::RepeatedSegment => most(segments.iter().copied()) >= 3,
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
        // Of the first 64 parameters.
        Trap::RepeatedParam => {
            most(
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
            let far = |year: &str| year.parse::<u16>().unwrap().abs_diff(YEAR) > 5;
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
    let (mut chance, mut caught) = (Chance(1), BTreeMap::<&str, usize>::new());
    for _ in 0..URLS {
        let target = chance.url();
        for trap in Trap::ALL {
            let catches = trap.matches(&target, YEAR);
            assert_eq!(
                catches,
                oracle(trap, &target),
                "{} {target:?}",
                trap.as_str()
            );
            *caught.entry(trap.as_str()).or_default() += usize::from(catches);
        }
    }
    caught.remove("long_url");
    assert!(
        caught.values().all(|times| (100..URLS).contains(times)),
        "{caught:?}"
    );
}

#[test]
fn keys_equal_their_oracle() {
    let text =
        "policy: 1\nname: p\noptions: { disposition: allow, strip_params: [sid, 'utm_*'] }\n";
    let policy = load(&MemoryFileSystem::new().with_file("p", text), "p")
        .unwrap()
        .policy;
    let stripped = Regex::new("^(sid|utm_.*)$").unwrap();
    let (mut chance, mut changed) = (Chance(2), 0);
    for _ in 0..URLS {
        let target = chance.url();
        let (trail, _) = policy.decide_request(&Facts::for_url(&target));
        let key = policy.key_url(&trail, &target);
        let (before, after) = (
            url::Url::parse(target.as_str()).unwrap(),
            url::Url::parse(&key).unwrap(),
        );
        let kept: Vec<_> = before
            .query_pairs()
            .filter(|(name, _)| !stripped.is_match(name))
            .collect();
        assert_eq!(
            after.query_pairs().collect::<Vec<_>>(),
            kept,
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
            "the key of a key is that key"
        );
        changed += usize::from(*key != *target.as_str());
    }
    assert!((1_000..URLS).contains(&changed), "{changed}");
}

/// Whatever a policy looks for, a URL is refused by the first trap that catches it, and by none that is not looked for.
#[test]
fn the_first_trap_that_is_looked_for_decides() {
    let mut chance = Chance(3);
    for _ in 0..200 {
        let names: Vec<&str> = Trap::ALL
            .iter()
            .filter(|_| chance.below(2) == 0)
            .map(|t| t.as_str())
            .collect();
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, traps: [{}] }}\nrules: [{{ id: no, when: {{ path: /b }}, set: {{ traps: none }} }}]\n",
            names.join(", ")
        );
        let policy = load(&MemoryFileSystem::new().with_file("p", text), "p")
            .unwrap()
            .policy;
        for _ in 0..50 {
            let target = chance.url();
            let (trail, decision) = policy.decide_request(&Facts::for_url(&target));
            if decision.reason().as_str() == "ambiguous_url" {
                continue;
            }
            let looked_for =
                |trap: &&Trap| names.contains(&trap.as_str()) && !target.path().starts_with("/b");
            let first = Trap::ALL
                .iter()
                .filter(looked_for)
                .find(|trap| oracle(**trap, &target));
            assert_eq!(trail.trap(), first.copied(), "{names:?} {target:?}");
            assert_eq!(decision.rejects(), first.is_some());
        }
    }
}
