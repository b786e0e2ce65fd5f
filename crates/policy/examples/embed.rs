//! A crawler that checks each request against a policy before it sends it.

use crawlgate_policy::{Facts, UrlTarget, explain, load};

const POLICY: &str = "
policy: 1
name: example
options: { disposition: disallow }
rules:
  - { id: own-site, when: { domain: example.com }, then: allow }
  - { id: no-images, forbid: { ext: [png, jpg] } }
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = load(POLICY)?.policy;
    for url in ["https://www.example.com/", "https://example.com/logo.png"] {
        let target = UrlTarget::parse(url)?;
        let facts = Facts::for_url(&target);
        let (_, decision) = policy.decide(&facts);
        if decision.rejects() {
            println!("skip {url}: {}", explain(&policy, &facts));
        } else {
            println!("fetch {url}");
        }
    }
    Ok(())
}
