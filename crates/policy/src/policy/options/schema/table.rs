//! The table of options.

use super::{BY_LOG_WORD, HEADER_WORD, LINKS_WORD, REJECT_WORD, SEEDS_WORD, STRIP_WORD, TAG_WORD};
use super::{EssentialValues, MapPreset, OptionDeadline, OptionShape, OptionSpec, OptionSupport};
use crate::policy::options::removal::{BY_COUNT, BY_INTENT, KEEP, ONCE_MORE, REMOVE};
use crate::policy::rule::PolicyStage::{Destination, Document, Request, Response};
use crate::policy::traps::Trap;

use OptionDeadline::{Connect, Until};

/// Every option.
pub const SPECS: &[OptionSpec] = &[
    row(
        "disposition",
        OptionShape::Disposition,
        Until(Document),
        "The verdict on a URL that no filter refuses: allow, disallow, or disallow-log (refused, and recorded).",
    ),
    row(
        "reject",
        OptionShape::Intent,
        Until(Document),
        "The meaning of a refusal: deny, gone (remove it), keep (leave it in the index), later.",
    ),
    row(
        "reject_status",
        OptionShape::RejectStatus,
        Until(Document),
        "The status of refusals, instead of the one that the crawler's profile assigns to their meaning.",
    ),
    row(
        "record",
        OptionShape::Word(&[BY_LOG_WORD, "full", "host", "none"], BY_LOG_WORD),
        Until(Document),
        "The part of a refused URL that is recorded; by-log: the whole URL if the refusal is logged or means `later`, else its host.",
    ),
    row(
        "html_only",
        OptionShape::Bool(false),
        Until(Document),
        "If true, successful responses that are not HTML are refused.",
    ),
    row(
        "max_depth",
        OptionShape::CountOrNone,
        Until(Request),
        "The maximum depth of allowed URLs.",
    ),
    row(
        "depth.start",
        OptionShape::Word(&["no_referer", SEEDS_WORD, HEADER_WORD], "no_referer"),
        Until(Request),
        "The URLs that links are counted from, besides those with Crawl-Depth: 0: those requested without Referer of which nothing is known; those in the seeds of the space; or none.",
    ),
    row(
        "max_body",
        OptionShape::SizeOrNone,
        Until(Response),
        "The maximum size of a response body.",
    ),
    row(
        "tunnel_undecided",
        OptionShape::Word(&["allow", "reject"], "reject"),
        Connect,
        "The verdict on a tunnel that the policy cannot decide, because it hides the URLs.",
    ),
    row(
        "tls",
        OptionShape::WordOrNone(&["intercept", "tunnel", "reject"]),
        Connect,
        "Whether tunnels are intercepted; none: as configured.",
    ),
    row(
        "index",
        OptionShape::Bool(true),
        Until(Document),
        "Whether the response may be indexed: X-Robots-Tag.",
    ),
    row(
        "follow",
        OptionShape::Bool(true),
        Until(Document),
        "Whether links in the response may be followed: X-Robots-Tag.",
    ),
    enforcement_row(
        "enforce_follow",
        "How follow is enforced: with a header, with a meta element, or by removing links.",
    ),
    enforcement_row(
        "enforce_index",
        "How index is enforced: with a header, with a meta element, or by reducing the page to its links.",
    ),
    row(
        "priority",
        OptionShape::Priority,
        Until(Destination),
        "Moves the request by this number of classes in the queue of its host.",
    ),
    row(
        "source",
        OptionShape::TextOrNone,
        Until(Document),
        "A name for the origin of the URL, used in a header, the ledger and a metric.",
    ),
    row(
        "robots.obey",
        OptionShape::Bool(true),
        Until(Destination),
        "Whether robots.txt is obeyed.",
    ),
    row(
        "robots.agent",
        OptionShape::TextOrNone,
        Until(Destination),
        "The product token that selects the rules; none: that of the crawler, else of its User-Agent.",
    ),
    row(
        "robots.on_unreachable",
        OptionShape::Word(&["stale_then_deny", "deny", "allow"], "stale_then_deny"),
        Until(Destination),
        "What applies while robots.txt is unavailable.",
    ),
    row(
        "robots.crawl_delay_cap",
        OptionShape::Duration(300),
        Until(Destination),
        "The longest Crawl-delay, or interval of a Request-rate, that is obeyed.",
    ),
    row(
        "robots.usage",
        OptionShape::Uses,
        Until(Response),
        "Uses that the crawler makes of pages: if a site denies one of them, the page is refused.",
    ),
    politeness_row(
        "politeness.key",
        OptionShape::Word(&["host", "address", "registrable_domain"], "host"),
        "The unit that shares one pace.",
    ),
    politeness_row(
        "politeness.delay",
        OptionShape::Duration(1),
        "The minimum time between two requests.",
    ),
    politeness_row(
        "politeness.rate",
        OptionShape::RateOrNone,
        "The maximum number of requests in a period: 5/s, 30/m.",
    ),
    politeness_row(
        "politeness.burst",
        OptionShape::AtLeast { min: 1, default: 1 },
        "The number of requests of the rate that may be sent at once.",
    ),
    politeness_row(
        "politeness.concurrency",
        OptionShape::AtLeast { min: 1, default: 2 },
        "The maximum number of concurrent requests; each ends with its last byte.",
    ),
    politeness_row(
        "politeness.max_hold",
        OptionShape::DurationOrNone,
        "The maximum time that a request waits for its turn; none: that of the crawler's profile.",
    ),
    politeness_row(
        "politeness.overflow",
        OptionShape::Word(&["hold", "refuse"], "hold"),
        "The action for a request that cannot be sent at once.",
    ),
    politeness_row(
        "politeness.jitter",
        OptionShape::FactorsOrNone(1.0, 1.5),
        "The range of the random factor by which the delay is extended: 1.0..1.5.",
    ),
    politeness_row(
        "politeness.adaptive.factor",
        OptionShape::DecimalOrNone(0.0, 1000.0),
        "The multiple of the latency; 1 if another key is given.",
    ),
    politeness_row(
        "politeness.adaptive.min",
        OptionShape::DurationOrNone,
        "The minimum adaptive delay; 1s if another key is given.",
    ),
    politeness_row(
        "politeness.adaptive.max",
        OptionShape::DurationOrNone,
        "The maximum adaptive delay; 30s if another key is given.",
    ),
    politeness_row(
        "politeness.order",
        OptionShape::Word(&["weighted", "strict"], "weighted"),
        "The order of waiting requests: by the weights of their classes, or the highest class first, with requests rising while they wait.",
    ),
    politeness_row(
        "politeness.embeds.delay",
        OptionShape::Duration(0),
        "The minimum time between two of them.",
    ),
    politeness_row(
        "politeness.embeds.concurrency",
        OptionShape::AtLeast {
            min: 1,
            default: 20,
        },
        "The maximum number of concurrent requests for them.",
    ),
    politeness_row(
        "politeness.per_address.delay",
        OptionShape::DurationOrNone,
        "The minimum time between two requests for pages to one address.",
    ),
    politeness_row(
        "politeness.per_address.concurrency",
        OptionShape::CountOrNone,
        "The maximum number of concurrent requests to one address; embedded resources are counted separately.",
    ),
    politeness_row(
        "politeness.bytes_per_second",
        OptionShape::SizeOrNone,
        "The average number of body bytes per second: later requests wait until earlier ones are paid for.",
    ),
    politeness_row(
        "politeness.request_rate",
        OptionShape::Word(&["obey", "ignore"], "obey"),
        "Whether Request-rate in robots.txt is obeyed.",
    ),
    politeness_row(
        "politeness.schedule",
        OptionShape::Schedule,
        "Hours with other limits for pages; if several windows set a limit, the last one applies.",
    ),
    row(
        "recrawl.min_interval",
        OptionShape::DurationOrNone,
        Until(Request),
        "The minimum time between two fetches of one URL.",
    ),
    row(
        "recrawl.after_error",
        OptionShape::DurationOrNone,
        Until(Request),
        "The minimum time between an error and the next fetch of the URL.",
    ),
    check_row(
        "unmodified",
        &["pass", TAG_WORD, REJECT_WORD],
        "The action for a response that has not changed since the last one.",
    ),
    check_row(
        "duplicate",
        &["pass", TAG_WORD, LINKS_WORD, REJECT_WORD],
        "The action for a response that another URL of the host returned as well.",
    ),
    check_row(
        "noncanonical",
        &["pass", TAG_WORD, REJECT_WORD],
        "The action for a response that names another URL as canonical.",
    ),
    check_row(
        "noindex",
        &["pass", TAG_WORD, LINKS_WORD, REJECT_WORD],
        "The action for a response that forbids indexing.",
    ),
    removal_row(
        "removal.robots_txt",
        KEEP,
        "The site forbids the URL, by robots.txt or by its statements on uses.",
    ),
    intent_removal_row(
        "removal.rule",
        "A rule, the default, max_depth or a trap refuses it; by_intent: 760 and reject: gone remove.",
    ),
    intent_removal_row("removal.noindex", "The option noindex refuses it."),
    intent_removal_row(
        "removal.noncanonical",
        "The option noncanonical refuses it.",
    ),
    intent_removal_row("removal.duplicate", "The option duplicate refuses it."),
    removal_row("removal.too_large", KEEP, "It is larger than max_body."),
    removal_row(
        "removal.not_found",
        REMOVE,
        "The origin answers 404, or a soft error counts as one.",
    ),
    removal_row(
        "removal.gone",
        REMOVE,
        "The origin answers 410, or a soft error counts as one.",
    ),
    removal_row(
        "removal.bad_status",
        ONCE_MORE,
        "The origin answers another 4xx or 5xx that is a permanent error.",
    ),
    row(
        "removal.error",
        OptionShape::Word(&[BY_COUNT, REMOVE, KEEP, ONCE_MORE], BY_COUNT),
        Until(Response),
        "The exchange fails, or for a temporary error; by_count: a permanent one removes, and ledger.temporary_errors temporary ones in a row.",
    ),
    row(
        "max_buffer",
        OptionShape::Size(1 << 20),
        Until(Response),
        "The number of bytes of a document that are buffered for its evaluation.",
    ),
    row(
        "timeouts.connect",
        OptionShape::DurationOrNone,
        Until(Destination),
        "One attempt to connect.",
    ),
    row(
        "timeouts.connect_total",
        OptionShape::DurationOrNone,
        Until(Destination),
        "All attempts to connect.",
    ),
    row(
        "timeouts.response_head",
        OptionShape::DurationOrNone,
        Until(Destination),
        "From the end of the request to the end of the response head.",
    ),
    row(
        "timeouts.body_idle",
        OptionShape::DurationOrNone,
        Until(Response),
        "Between two chunks of a body.",
    ),
    row(
        "timeouts.request",
        OptionShape::DurationOrNone,
        Until(Response),
        "A request as a whole.",
    ),
    row(
        "verify",
        OptionShape::Word(&["on", "skip"], "on"),
        Until(Destination),
        "Whether the origin's certificate is verified; skip accepts any.",
    ),
    row(
        "http2",
        OptionShape::Word(&["both", "client", "origin", "none"], "both"),
        Until(Destination),
        "Whether origins may be asked over HTTP/2 (both, origin) or not (client, none); for clients, see h2.clients.",
    ),
    row(
        "strip_params",
        OptionShape::StripParams,
        Until(Request),
        "Query parameters that do not distinguish URLs.",
    ),
    row(
        "replace",
        OptionShape::Replace,
        Until(Request),
        "Replacements that map equivalent URLs to one.",
    ),
    row(
        "traps",
        OptionShape::WordsOrNone(&Trap::WORDS),
        Until(Request),
        "Built-in traps that are detected.",
    ),
    budget_row(
        "budget.urls",
        OptionShape::CountOrNone,
        "The maximum number of requests.",
    ),
    budget_row(
        "budget.new_urls",
        OptionShape::CountOrNone,
        "The maximum number of URLs that were not fetched before.",
    ),
    budget_row(
        "budget.bytes",
        OptionShape::SizeOrNone,
        "The maximum number of body bytes.",
    ),
    budget_row(
        "budget.hosts",
        OptionShape::CountOrNone,
        "The maximum number of different hosts.",
    ),
    budget_row(
        "budget.per",
        OptionShape::WordOrNone(&["host", "registrable_domain", "crawler", "space"]),
        "The unit that the budget applies to.",
    ),
    row(
        "request_headers.remove",
        OptionShape::Names,
        Until(Destination),
        "Fields that are not sent to the origin.",
    ),
    row(
        "upstream",
        OptionShape::TextOrNone,
        Until(Request),
        "A parent proxy of the configuration (egress.parents), through which the request goes.",
    ),
    row(
        "upgrade",
        OptionShape::Word(&["allow", "deny"], "deny"),
        Until(Request),
        "Whether a request may switch to another protocol.",
    )
    .ignored_except(EssentialValues::Word("allow")),
];

/// The maps of options, with their descriptions.
pub const MAPS: &[(&str, &str)] = &[
    ("depth", "How the depth of URLs is found."),
    ("robots", "How robots.txt is obeyed."),
    (
        "politeness",
        "The pace of requests to a host, for all crawlers together.",
    ),
    (
        "politeness.adaptive",
        "A delay that follows the host's latency if that is longer; setting one key enables it.",
    ),
    (
        "politeness.embeds",
        "Limits for embedded resources (Sec-Fetch-Dest).",
    ),
    (
        "politeness.per_address",
        "Limits for one address, regardless of the host.",
    ),
    ("recrawl", "When a URL may be fetched again."),
    (
        "removal",
        "The outcomes after which a page that an index may have is removed from it.",
    ),
    (
        "timeouts",
        "Timeouts for the origin, instead of the configured ones.",
    ),
    ("budget", "Limits for one day."),
    (
        "request_headers",
        "Header fields of requests to the origin.",
    ),
];

const NORCONEX: [(&str, &str); 10] = [
    ("robots_txt", REMOVE),
    ("rule", REMOVE),
    ("noindex", REMOVE),
    ("noncanonical", REMOVE),
    ("duplicate", REMOVE),
    ("too_large", REMOVE),
    ("not_found", REMOVE),
    ("gone", REMOVE),
    ("bad_status", ONCE_MORE),
    ("error", ONCE_MORE),
];

const CLOUDVIEW: [(&str, &str); 10] = [
    ("robots_txt", KEEP),
    ("rule", BY_INTENT),
    ("noindex", BY_INTENT),
    ("noncanonical", BY_INTENT),
    ("duplicate", BY_INTENT),
    ("too_large", KEEP),
    ("not_found", REMOVE),
    ("gone", REMOVE),
    ("bad_status", REMOVE),
    ("error", BY_COUNT),
];

const OMNIFIND: [(&str, &str); 10] = [
    ("robots_txt", KEEP),
    ("rule", BY_INTENT),
    ("noindex", KEEP),
    ("noncanonical", KEEP),
    ("duplicate", KEEP),
    ("too_large", KEEP),
    ("not_found", REMOVE),
    ("gone", REMOVE),
    ("bad_status", KEEP),
    ("error", KEEP),
];

/// The words that set all values of a map of options.
pub const PRESETS: &[MapPreset] = &[
    MapPreset {
        map: "removal",
        name: "norconex",
        values: &NORCONEX,
    },
    MapPreset {
        map: "removal",
        name: "cloudview",
        values: &CLOUDVIEW,
    },
    MapPreset {
        map: "removal",
        name: "omnifind",
        values: &OMNIFIND,
    },
];

const fn row(
    path: &'static str,
    shape: OptionShape,
    deadline: OptionDeadline,
    description: &'static str,
) -> OptionSpec {
    OptionSpec {
        path,
        shape,
        deadline,
        support: OptionSupport::Supported,
        description,
    }
}

impl OptionSpec {
    const fn ignored_except(self, values: EssentialValues) -> Self {
        Self {
            support: OptionSupport::IgnoredExcept(values),
            ..self
        }
    }
}

/// The enforcement of `index` or `follow`.
const fn enforcement_row(path: &'static str, description: &'static str) -> OptionSpec {
    let words = &["header", "meta", STRIP_WORD];
    row(
        path,
        OptionShape::Word(words, "header"),
        Until(Document),
        description,
    )
}

/// A check of responses and documents.
const fn check_row(
    path: &'static str,
    words: &'static [&'static str],
    description: &'static str,
) -> OptionSpec {
    row(
        path,
        OptionShape::Word(words, "pass"),
        Until(Document),
        description,
    )
}

/// The action for a page of the index after an outcome.
const fn removal_row(
    path: &'static str,
    default: &'static str,
    description: &'static str,
) -> OptionSpec {
    row(
        path,
        OptionShape::Word(&[REMOVE, KEEP, ONCE_MORE], default),
        Until(Response),
        description,
    )
}

/// The action after an outcome whose refusals have the intent of the option `reject`.
const fn intent_removal_row(path: &'static str, description: &'static str) -> OptionSpec {
    row(
        path,
        OptionShape::Word(&[BY_INTENT, REMOVE, KEEP, ONCE_MORE], BY_INTENT),
        Until(Response),
        description,
    )
}

const fn budget_row(
    path: &'static str,
    shape: OptionShape,
    description: &'static str,
) -> OptionSpec {
    row(path, shape, Until(Request), description)
}

const fn politeness_row(
    path: &'static str,
    shape: OptionShape,
    description: &'static str,
) -> OptionSpec {
    row(path, shape, Until(Destination), description)
}
