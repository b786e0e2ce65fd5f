//! The table of options (policy.md section 5).

use super::{Acts, Counted, Default, Effect, REJECTS, STRIP, Shape, Spec, TAGS};
use crate::policy::rule::PolicyStage::{Destination, Document, Request, Response};
use crate::policy::traps::Trap;

use Acts::{Connect, Until};
use Effect::{NotYet, NotYetExcept, Works};

const CHECK: &[&str] = &["pass", TAGS, REJECTS];
const ENFORCE: &[&str] = &["header", "meta", STRIP];

/// Every option; those with a slot constant first, in the order of the constants.
pub const SPECS: &[Spec] = &[
    row(
        "disposition",
        Shape::Disposition,
        Default::Required,
        Until(Document),
        Works,
    ),
    row(
        "reject",
        Shape::Intent,
        Default::Deny,
        Until(Document),
        Works,
    ),
    row(
        "reject_status",
        Shape::RejectStatus,
        Default::None,
        Until(Document),
        Works,
    ),
    row(
        "record",
        Shape::Word(&["by-log", "full", "host", "none"]),
        Default::Word("by-log"),
        Until(Document),
        Works,
    ),
    row(
        "html_only",
        Shape::Bool,
        Default::Bool(false),
        Until(Response),
        Works,
    ),
    row(
        "max_depth",
        Shape::CountOrNone,
        Default::None,
        Until(Request),
        Works,
    ),
    row(
        "max_body",
        Shape::SizeOrNone,
        Default::None,
        Until(Response),
        Works,
    ),
    row(
        "tunnel_undecided",
        Shape::Word(&["allow", "reject"]),
        Default::Word("reject"),
        Connect,
        Works,
    ),
    row(
        "tls",
        Shape::WordOrNone(&["intercept", "tunnel", "reject"]),
        Default::None,
        Connect,
        Works,
    ),
    row(
        "index",
        Shape::Bool,
        Default::Bool(true),
        Until(Document),
        Works,
    ),
    row(
        "follow",
        Shape::Bool,
        Default::Bool(true),
        Until(Document),
        Works,
    ),
    enforce("enforce_follow"),
    enforce("enforce_index"),
    row(
        "priority",
        Shape::Priority,
        Default::Word("normal"),
        Until(Destination),
        Works,
    ),
    row(
        "source",
        Shape::TextOrNone,
        Default::None,
        Until(Document),
        Works,
    ),
    row(
        "robots.obey",
        Shape::Bool,
        Default::Bool(true),
        Until(Destination),
        Works,
    ),
    row(
        "robots.agent",
        Shape::TextOrNone,
        Default::None,
        Until(Destination),
        Works,
    ),
    row(
        "robots.on_unreachable",
        Shape::Word(&["stale_then_deny", "deny", "allow"]),
        Default::Word("stale_then_deny"),
        Until(Destination),
        Works,
    ),
    row(
        "robots.crawl_delay_cap",
        Shape::Duration,
        Default::Seconds(300),
        Until(Destination),
        Works,
    ),
    row(
        "robots.usage",
        Shape::Uses,
        Default::Empty,
        Until(Response),
        Works,
    ),
    paced(
        "politeness.key",
        Shape::Word(&["host", "address", "registrable_domain"]),
        Default::Word("host"),
    ),
    paced("politeness.delay", Shape::Duration, Default::Seconds(1)),
    paced("politeness.rate", Shape::RateOrNone, Default::None),
    paced("politeness.burst", Shape::AtLeast(1), Default::Integer(1)),
    paced(
        "politeness.concurrency",
        Shape::AtLeast(1),
        Default::Integer(2),
    ),
    paced("politeness.max_hold", Shape::DurationOrNone, Default::None),
    paced(
        "politeness.overflow",
        Shape::Word(&["hold", "refuse"]),
        Default::Word("hold"),
    ),
    paced(
        "politeness.jitter",
        Shape::FactorsOrNone,
        Default::Factors(1.0, 1.5),
    ),
    paced(
        "politeness.adaptive.factor",
        Shape::DecimalOrNone(0.0, 1000.0),
        Default::None,
    ),
    paced(
        "politeness.adaptive.min",
        Shape::DurationOrNone,
        Default::None,
    ),
    paced(
        "politeness.adaptive.max",
        Shape::DurationOrNone,
        Default::None,
    ),
    paced(
        "politeness.order",
        Shape::Word(&["weighted", "strict"]),
        Default::Word("weighted"),
    ),
    paced(
        "politeness.embeds.delay",
        Shape::Duration,
        Default::Seconds(0),
    ),
    paced(
        "politeness.embeds.concurrency",
        Shape::AtLeast(1),
        Default::Integer(20),
    ),
    paced(
        "politeness.per_address.delay",
        Shape::DurationOrNone,
        Default::None,
    ),
    paced(
        "politeness.per_address.concurrency",
        Shape::CountOrNone,
        Default::None,
    ),
    paced(
        "politeness.bytes_per_second",
        Shape::SizeOrNone,
        Default::None,
    ),
    paced(
        "politeness.request_rate",
        Shape::Word(&["obey", "ignore"]),
        Default::Word("obey"),
    ),
    paced("politeness.schedule", Shape::Schedule, Default::Empty),
    row(
        "recrawl.min_interval",
        Shape::DurationOrNone,
        Default::None,
        Until(Request),
        Works,
    ),
    row(
        "recrawl.after_error",
        Shape::DurationOrNone,
        Default::None,
        Until(Request),
        Works,
    ),
    check("unmodified", Works),
    check("duplicate", Works),
    check("noncanonical", Works),
    check("noindex", Works),
    row(
        "max_buffer",
        Shape::Size,
        Default::Bytes(1 << 20),
        Until(Response),
        Works,
    ),
    row(
        "timeouts.connect",
        Shape::DurationOrNone,
        Default::None,
        Until(Destination),
        Works,
    ),
    row(
        "timeouts.connect_total",
        Shape::DurationOrNone,
        Default::None,
        Until(Destination),
        Works,
    ),
    row(
        "timeouts.response_head",
        Shape::DurationOrNone,
        Default::None,
        Until(Destination),
        Works,
    ),
    row(
        "timeouts.body_idle",
        Shape::DurationOrNone,
        Default::None,
        Until(Response),
        Works,
    ),
    row(
        "timeouts.request",
        Shape::DurationOrNone,
        Default::None,
        Until(Response),
        Works,
    ),
    row(
        "verify",
        Shape::Word(&["on", "skip"]),
        Default::Word("on"),
        Until(Destination),
        Works,
    ),
    row(
        "http2",
        Shape::Word(&["both", "client", "origin", "none"]),
        Default::Word("both"),
        Until(Destination),
        NotYet,
    ),
    row(
        "strip_params",
        Shape::StripParams,
        Default::Empty,
        Until(Request),
        Works,
    ),
    row(
        "replace",
        Shape::Replace,
        Default::Empty,
        Until(Request),
        Works,
    ),
    row(
        "traps",
        Shape::WordsOrNone(&Trap::WORDS),
        Default::None,
        Until(Request),
        Works,
    ),
    spent("budget.urls", Shape::CountOrNone),
    spent("budget.new_urls", Shape::CountOrNone),
    spent("budget.bytes", Shape::SizeOrNone),
    spent("budget.hosts", Shape::CountOrNone),
    spent(
        "budget.per",
        Shape::WordOrNone(&["host", "registrable_domain", "crawler", "space"]),
    ),
    row(
        "request_headers.remove",
        Shape::Names,
        Default::Empty,
        Until(Destination),
        Works,
    ),
    counted("upstream", Shape::TextOrNone),
    row(
        "upgrade",
        Shape::Word(&["allow", "deny"]),
        Default::Word("deny"),
        Until(Request),
        NotYetExcept(Counted::Word("allow")),
    ),
];

const fn row(
    path: &'static str,
    shape: Shape,
    default: Default,
    acts: Acts,
    effect: Effect,
) -> Spec {
    Spec {
        path,
        shape,
        default,
        acts,
        effect,
    }
}

/// How `index` and `follow` are enforced: by header; the other ways change documents.
const fn enforce(path: &'static str) -> Spec {
    row(
        path,
        Shape::Word(ENFORCE),
        Default::Word("header"),
        Until(Document),
        Works,
    )
}

/// A check of responses and documents.
const fn check(path: &'static str, effect: Effect) -> Spec {
    row(
        path,
        Shape::Word(CHECK),
        Default::Word("pass"),
        Until(Document),
        effect,
    )
}

/// Anything but the default refuses or changes requests.
const fn counted(path: &'static str, shape: Shape) -> Spec {
    row(
        path,
        shape,
        Default::None,
        Until(Destination),
        NotYetExcept(Counted::AllButDefault),
    )
}

/// A key of the map `budget`.
const fn spent(path: &'static str, shape: Shape) -> Spec {
    row(path, shape, Default::None, Until(Request), Works)
}

/// A key of the map `politeness` that works.
const fn paced(path: &'static str, shape: Shape, default: Default) -> Spec {
    row(path, shape, default, Until(Destination), Works)
}
