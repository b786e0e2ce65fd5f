//! The pace by `hosts` against a plain oracle: the entry that names the host, else that of the longest
//! domain, found by comparing with all of them.

use crawlgate_policy::internal::policy::compile;
use crawlgate_policy::internal::policy::fact::Facts;
use crawlgate_policy::internal::policy::options::politeness::PolitenessOption;
use crawlgate_policy::internal::policy::source::MemoryFileSystem;
use crawlgate_policy::internal::urls::target::UrlTarget;

use super::policies;

/// A name in the table, with the delay of its entry in seconds.
struct PacedName {
    name: String,
    is_domain: bool,
    delay: u64,
}

fn random_host(random: &mut fastrand::Rng) -> String {
    let labels = ["a", "b", "co", "example", "x-y"];
    let count = random.usize(1..=4);
    let labels: Vec<&str> = (0..count).map(|_| random.choice(labels).unwrap()).collect();
    labels.join(".")
}

/// Returns the entries as YAML, and their names. Some are named in a list.
fn random_table(random: &mut fastrand::Rng) -> (String, String, Vec<PacedName>) {
    let mut names: Vec<PacedName> = Vec::new();
    let mut lists = String::new();
    let mut entries = String::new();
    for number in 0..random.u64(0..6) {
        let delay = 10 + number;
        let is_domain = random.bool();
        let mut hosts: Vec<String> = Vec::new();
        for _ in 0..random.usize(1..=3) {
            let name = random_host(random);
            let is_new = !names
                .iter()
                .any(|known| known.name == name && known.is_domain == is_domain);
            if is_new {
                hosts.push(name.clone());
                names.push(PacedName {
                    name,
                    is_domain,
                    delay,
                });
            }
        }
        if hosts.is_empty() {
            continue;
        }
        let hosts = hosts.join(", ");
        let key = if is_domain { "domain" } else { "host" };
        if random.bool() {
            lists.push_str(&format!(
                "  l{number}: {{ kind: {key}s, items: [ {hosts} ] }}\n"
            ));
            entries.push_str(&format!("  - {{ in: l{number}, delay: {delay}s }}\n"));
        } else {
            entries.push_str(&format!("  - {{ {key}: [ {hosts} ], delay: {delay}s }}\n"));
        }
    }
    let section = |name: &str, text: String| {
        if text.is_empty() {
            text
        } else {
            format!("{name}:\n{text}")
        }
    };
    (section("lists", lists), section("hosts", entries), names)
}

fn expected_delay(names: &[PacedName], host: &str) -> Option<u64> {
    let exact = names
        .iter()
        .find(|paced| !paced.is_domain && paced.name == host);
    let domains = names.iter().filter(|paced| {
        paced.is_domain && (paced.name == host || host.ends_with(&format!(".{}", paced.name)))
    });
    let longest = domains.max_by_key(|paced| paced.name.len());
    exact.or(longest).map(|paced| paced.delay)
}

#[test]
fn the_most_specific_entry_applies_to_every_crawler() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut paced = 0;
    for _ in 0..policies() / 10 {
        let (lists, hosts, names) = random_table(&mut random);
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow }}\n{lists}{hosts}rules:\n  \
             - {{ id: set, when: {{ under: /set }}, set: {{ politeness: {{ delay: 3s }} }} }}\nspaces:\n  \
             - {{ name: s, crawlers: [ c ], options: {{ politeness: {{ delay: 2s }} }} }}\n"
        );
        let files = MemoryFileSystem::new().with_file("p", text.as_bytes());
        let policy = compile::load(&files, "p")
            .unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
            .policy;
        for _ in 0..20 {
            let host = random_host(&mut random);
            let sets = random.bool();
            let crawler = if random.bool() { "c" } else { "d" };
            let path = if sets { "set" } else { "" };
            let target = UrlTarget::parse(&format!("http://{host}/{path}")).unwrap();
            let facts = Facts {
                crawler,
                ..Facts::for_url(&target)
            };
            let usual = match (sets, crawler) {
                (true, _) => 3,
                (false, "c") => 2,
                (false, _) => 1,
            };
            let expected = expected_delay(&names, &host);
            paced += u64::from(expected.is_some());
            let (trail, _) = policy.decide(&facts);
            let found = PolitenessOption::new(&policy, &trail).pages().delay;
            assert_eq!(
                found.as_secs(),
                expected.unwrap_or(usual),
                "{host} {crawler}\n{text}"
            );
            assert_eq!(trail.host_pace().is_some(), expected.is_some());
        }
    }
    assert!(paced > policies() / 10);
}
