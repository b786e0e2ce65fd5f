//! The table of options (policy.md section 5).

use super::{
    EssentialValues, OptionDeadline, OptionDefault, OptionShape, OptionSpec, OptionSupport,
    REJECT_WORD, STRIP_WORD, TAG_WORD,
};
use crate::policy::rule::PolicyStage::{Destination, Document, Request, Response};
use crate::policy::traps::Trap;

use OptionDeadline::{Connect, Until};
use OptionSupport::{Ignored, IgnoredExcept, Supported};

const CHECK: &[&str] = &["pass", TAG_WORD, REJECT_WORD];
const ENFORCE: &[&str] = &["header", "meta", STRIP_WORD];

/// Every option; those with a slot constant first, in the order of the constants.
pub const SPECS: &[OptionSpec] = &[
    row(
        "disposition",
        OptionShape::Disposition,
        OptionDefault::Required,
        Until(Document),
        Supported,
    ),
    row(
        "reject",
        OptionShape::Intent,
        OptionDefault::Deny,
        Until(Document),
        Supported,
    ),
    row(
        "reject_status",
        OptionShape::RejectStatus,
        OptionDefault::None,
        Until(Document),
        Supported,
    ),
    row(
        "record",
        OptionShape::Word(&["by-log", "full", "host", "none"]),
        OptionDefault::Word("by-log"),
        Until(Document),
        Supported,
    ),
    row(
        "html_only",
        OptionShape::Bool,
        OptionDefault::Bool(false),
        Until(Response),
        Supported,
    ),
    row(
        "max_depth",
        OptionShape::CountOrNone,
        OptionDefault::None,
        Until(Request),
        Supported,
    ),
    row(
        "max_body",
        OptionShape::SizeOrNone,
        OptionDefault::None,
        Until(Response),
        Supported,
    ),
    row(
        "tunnel_undecided",
        OptionShape::Word(&["allow", "reject"]),
        OptionDefault::Word("reject"),
        Connect,
        Supported,
    ),
    row(
        "tls",
        OptionShape::WordOrNone(&["intercept", "tunnel", "reject"]),
        OptionDefault::None,
        Connect,
        Supported,
    ),
    row(
        "index",
        OptionShape::Bool,
        OptionDefault::Bool(true),
        Until(Document),
        Supported,
    ),
    row(
        "follow",
        OptionShape::Bool,
        OptionDefault::Bool(true),
        Until(Document),
        Supported,
    ),
    enforcement_row("enforce_follow"),
    enforcement_row("enforce_index"),
    row(
        "priority",
        OptionShape::Priority,
        OptionDefault::Word("normal"),
        Until(Destination),
        Supported,
    ),
    row(
        "source",
        OptionShape::TextOrNone,
        OptionDefault::None,
        Until(Document),
        Supported,
    ),
    row(
        "robots.obey",
        OptionShape::Bool,
        OptionDefault::Bool(true),
        Until(Destination),
        Supported,
    ),
    row(
        "robots.agent",
        OptionShape::TextOrNone,
        OptionDefault::None,
        Until(Destination),
        Supported,
    ),
    row(
        "robots.on_unreachable",
        OptionShape::Word(&["stale_then_deny", "deny", "allow"]),
        OptionDefault::Word("stale_then_deny"),
        Until(Destination),
        Supported,
    ),
    row(
        "robots.crawl_delay_cap",
        OptionShape::Duration,
        OptionDefault::Seconds(300),
        Until(Destination),
        Supported,
    ),
    row(
        "robots.usage",
        OptionShape::Uses,
        OptionDefault::EmptyList,
        Until(Response),
        Supported,
    ),
    politeness_row(
        "politeness.key",
        OptionShape::Word(&["host", "address", "registrable_domain"]),
        OptionDefault::Word("host"),
    ),
    politeness_row(
        "politeness.delay",
        OptionShape::Duration,
        OptionDefault::Seconds(1),
    ),
    politeness_row(
        "politeness.rate",
        OptionShape::RateOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.burst",
        OptionShape::AtLeast(1),
        OptionDefault::Integer(1),
    ),
    politeness_row(
        "politeness.concurrency",
        OptionShape::AtLeast(1),
        OptionDefault::Integer(2),
    ),
    politeness_row(
        "politeness.max_hold",
        OptionShape::DurationOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.overflow",
        OptionShape::Word(&["hold", "refuse"]),
        OptionDefault::Word("hold"),
    ),
    politeness_row(
        "politeness.jitter",
        OptionShape::FactorsOrNone,
        OptionDefault::Factors(1.0, 1.5),
    ),
    politeness_row(
        "politeness.adaptive.factor",
        OptionShape::DecimalOrNone(0.0, 1000.0),
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.adaptive.min",
        OptionShape::DurationOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.adaptive.max",
        OptionShape::DurationOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.order",
        OptionShape::Word(&["weighted", "strict"]),
        OptionDefault::Word("weighted"),
    ),
    politeness_row(
        "politeness.embeds.delay",
        OptionShape::Duration,
        OptionDefault::Seconds(0),
    ),
    politeness_row(
        "politeness.embeds.concurrency",
        OptionShape::AtLeast(1),
        OptionDefault::Integer(20),
    ),
    politeness_row(
        "politeness.per_address.delay",
        OptionShape::DurationOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.per_address.concurrency",
        OptionShape::CountOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.bytes_per_second",
        OptionShape::SizeOrNone,
        OptionDefault::None,
    ),
    politeness_row(
        "politeness.request_rate",
        OptionShape::Word(&["obey", "ignore"]),
        OptionDefault::Word("obey"),
    ),
    politeness_row(
        "politeness.schedule",
        OptionShape::Schedule,
        OptionDefault::EmptyList,
    ),
    row(
        "recrawl.min_interval",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Request),
        Supported,
    ),
    row(
        "recrawl.after_error",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Request),
        Supported,
    ),
    check_row("unmodified", Supported),
    check_row("duplicate", Supported),
    check_row("noncanonical", Supported),
    check_row("noindex", Supported),
    row(
        "max_buffer",
        OptionShape::Size,
        OptionDefault::Bytes(1 << 20),
        Until(Response),
        Supported,
    ),
    row(
        "timeouts.connect",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Destination),
        Supported,
    ),
    row(
        "timeouts.connect_total",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Destination),
        Supported,
    ),
    row(
        "timeouts.response_head",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Destination),
        Supported,
    ),
    row(
        "timeouts.body_idle",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Response),
        Supported,
    ),
    row(
        "timeouts.request",
        OptionShape::DurationOrNone,
        OptionDefault::None,
        Until(Response),
        Supported,
    ),
    row(
        "verify",
        OptionShape::Word(&["on", "skip"]),
        OptionDefault::Word("on"),
        Until(Destination),
        Supported,
    ),
    row(
        "http2",
        OptionShape::Word(&["both", "client", "origin", "none"]),
        OptionDefault::Word("both"),
        Until(Destination),
        Ignored,
    ),
    row(
        "strip_params",
        OptionShape::StripParams,
        OptionDefault::EmptyList,
        Until(Request),
        Supported,
    ),
    row(
        "replace",
        OptionShape::Replace,
        OptionDefault::EmptyList,
        Until(Request),
        Supported,
    ),
    row(
        "traps",
        OptionShape::WordsOrNone(&Trap::WORDS),
        OptionDefault::None,
        Until(Request),
        Supported,
    ),
    budget_row("budget.urls", OptionShape::CountOrNone),
    budget_row("budget.new_urls", OptionShape::CountOrNone),
    budget_row("budget.bytes", OptionShape::SizeOrNone),
    budget_row("budget.hosts", OptionShape::CountOrNone),
    budget_row(
        "budget.per",
        OptionShape::WordOrNone(&["host", "registrable_domain", "crawler", "space"]),
    ),
    row(
        "request_headers.remove",
        OptionShape::Names,
        OptionDefault::EmptyList,
        Until(Destination),
        Supported,
    ),
    unsupported_row("upstream", OptionShape::TextOrNone),
    row(
        "upgrade",
        OptionShape::Word(&["allow", "deny"]),
        OptionDefault::Word("deny"),
        Until(Request),
        IgnoredExcept(EssentialValues::Word("allow")),
    ),
];

const fn row(
    path: &'static str,
    shape: OptionShape,
    default: OptionDefault,
    acts: OptionDeadline,
    effect: OptionSupport,
) -> OptionSpec {
    OptionSpec {
        path,
        shape,
        default,
        deadline: acts,
        support: effect,
    }
}

/// How `index` and `follow` are enforced: by header; the other ways change documents.
const fn enforcement_row(path: &'static str) -> OptionSpec {
    row(
        path,
        OptionShape::Word(ENFORCE),
        OptionDefault::Word("header"),
        Until(Document),
        Supported,
    )
}

/// A check of responses and documents.
const fn check_row(path: &'static str, effect: OptionSupport) -> OptionSpec {
    row(
        path,
        OptionShape::Word(CHECK),
        OptionDefault::Word("pass"),
        Until(Document),
        effect,
    )
}

/// Anything but the default refuses or changes requests.
const fn unsupported_row(path: &'static str, shape: OptionShape) -> OptionSpec {
    row(
        path,
        shape,
        OptionDefault::None,
        Until(Destination),
        IgnoredExcept(EssentialValues::AllButDefault),
    )
}

/// A key of the map `budget`.
const fn budget_row(path: &'static str, shape: OptionShape) -> OptionSpec {
    row(path, shape, OptionDefault::None, Until(Request), Supported)
}

/// A key of the map `politeness` that works.
const fn politeness_row(
    path: &'static str,
    shape: OptionShape,
    default: OptionDefault,
) -> OptionSpec {
    row(path, shape, default, Until(Destination), Supported)
}
