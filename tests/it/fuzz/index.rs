//! The text of a policy, a NUL, and URLs, one a line: the index rules out only rules that have no effect, on requests and on
//! tunnels.

use crawlgate::policy::Policy;
use crawlgate::policy::compile;
use crawlgate::policy::fact::Facts;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::urls::target::{HostTarget, UrlTarget};

/// The most URLs of one input.
const URLS: usize = 16;
/// The crawlers that send the requests.
const CRAWLERS: [&str; 2] = ["anonymous", "news-bot"];

/// Evaluates the policy on each URL with the index and by every rule.
pub(crate) fn run(input: &[u8]) {
    let at = input.iter().position(|byte| *byte == 0);
    let (text, urls) = input.split_at(at.unwrap_or(input.len()));
    let files = MemoryFileSystem::new().with_file("policy.yaml", text);
    let Ok(compiled) = compile::load(&files, "policy.yaml") else {
        return;
    };
    let policy = compiled.policy.with_lists_indexed_from(1);
    let urls = String::from_utf8_lossy(urls.get(1..).unwrap_or_default());
    for url in urls.lines().take(URLS) {
        let Ok(target) = UrlTarget::parse(url) else {
            continue;
        };
        for crawler in CRAWLERS {
            let request = Facts {
                crawler,
                ..Facts::for_url(&target)
            };
            compare(&policy, &request, url);
            if let Ok(host) = HostTarget::parse_authority(&with_port(&target)) {
                let tunnel = Facts {
                    crawler,
                    ..Facts::for_tunnel(&host)
                };
                compare(&policy, &tunnel, url);
            }
        }
    }
}

fn with_port(target: &UrlTarget) -> String {
    format!("{}:{}", target.host(), target.port())
}

fn compare(policy: &Policy, facts: &Facts<'_>, url: &str) {
    let (trail, decision) = policy.decide(facts);
    let (every, expected) = policy.decide_every_rule(facts);
    assert_eq!(decision, expected, "{url}");
    assert_eq!(trail.matched_rules(), every.matched_rules(), "{url}");
    for (option, expected) in policy
        .explain_options(&trail)
        .zip(policy.explain_options(&every))
    {
        assert_eq!(option.value, expected.value, "{} {url}", option.path);
        assert_eq!(option.set_by, expected.set_by, "{} {url}", option.path);
    }
}
