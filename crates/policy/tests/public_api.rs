//! The public items of the crate are few and listed in `lib.rs`; everything else is under
//! `internal`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

const LIB: &str = include_str!("../src/lib.rs");

/// The maximum number of documented items.
const MAX_ITEMS: usize = 60;

/// The modules without a promise of stability.
const INTERNAL: [&str; 9] = [
    "diagnostics",
    "embed",
    "ledger",
    "model",
    "pacing",
    "policy",
    "robots",
    "urls",
    "yaml",
];

/// Returns the names that `pub use` re-exports.
fn public_items() -> Vec<&'static str> {
    LIB.split("\npub use ")
        .skip(1)
        .filter_map(|rest| rest.split_once(';'))
        .flat_map(|(path, _)| {
            let names = path.rsplit_once("::").map_or(path, |(_, names)| names);
            names
                .trim_matches(['{', '}'])
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
        })
        .collect()
}

#[test]
fn the_public_items_are_few_and_unique() {
    let mut items = public_items();
    for item in ["Policy", "load", "explain", "RobotsFile", "HostLimiter"] {
        assert!(items.contains(&item), "{item} is not in {items:?}");
    }
    let count = items.len();
    assert!(count <= MAX_ITEMS, "{count} items: {items:?}");
    items.sort_unstable();
    items.dedup();
    assert_eq!(items.len(), count, "duplicates in {items:?}");
    assert!(!items.contains(&"*"));
}

#[test]
fn everything_else_is_internal() {
    let public: Vec<&str> = LIB
        .lines()
        .filter(|line| line.starts_with("pub ") && !line.starts_with("pub use "))
        .collect();
    assert_eq!(public, ["pub mod internal {"]);
    let (_, internal) = LIB
        .split_once("#[doc(hidden)]\n#[path = \".\"]\npub mod internal {\n")
        .unwrap();
    let (internal, _) = internal.split_once("\n}\n").unwrap();
    let modules: Vec<&str> = internal
        .lines()
        .map(|line| {
            line.trim()
                .trim_start_matches("pub mod ")
                .trim_end_matches(';')
        })
        .collect();
    assert_eq!(modules, INTERNAL);
}

/// Uses the public items as a crawler does: a decision before the request and one on the response.
#[test]
fn a_request_is_decided_before_and_after_it_is_sent() {
    use crawlgate_policy::{Facts, HeaderView, PolicyStage, UrlTarget, load};

    struct NoHeaders;
    impl HeaderView for NoHeaders {
        fn header(&self, _name: &str) -> Option<std::borrow::Cow<'_, str>> {
            None
        }
        fn for_each_line(&self, _name: &str, _visit: &mut dyn FnMut(&str)) {}
    }

    let policy = load(
        "policy: 1\nname: p\noptions: { disposition: allow }\n\
         rules:\n  - { id: html, require: { content_type: text/html } }\n",
    )
    .unwrap()
    .policy;
    let url = UrlTarget::parse("http://example.com/").unwrap();
    let facts = Facts::for_url(&url);
    let (mut trail, decision) = policy.decide_request(&facts);
    assert!(!decision.rejects());
    let facts = Facts {
        response: crawlgate_policy::Fact::Known(crawlgate_policy::ResponseFacts {
            status: 200,
            content_type: "image/png",
            size: None,
            headers: &NoHeaders,
            content: crawlgate_policy::ContentAvailability::Possible,
        }),
        ..facts
    };
    let decision = policy.decide_stage(&mut trail, PolicyStage::Response, &facts);
    assert!(decision.rejects());
    assert_eq!(policy.refusal(&trail, &decision).rule, Some("html"));
}

#[test]
fn all_problems_are_reported_at_once() {
    let error = crawlgate_policy::load("policy: 1\nname: p\nrules:\n  - { forbid: { pth: /a } }\n")
        .unwrap_err();
    assert!(error.problems().len() >= 2, "{error}");
    assert!(error.to_string().contains("pth"), "{error}");
}
