//! What editors say of each word of a policy, in one sentence.

use crate::policy::list::ListKind;
use crate::policy::source::tree::ThenAction;

/// The sentence for an option or a map of options; empty for a path that does not exist.
pub(super) fn option(path: &str) -> &'static str {
    OPTIONS
        .iter()
        .find(|(known, _)| *known == path)
        .map_or("", |(_, about)| about)
}

/// The sentence for a field, a shortcut, or a family of fields such as `param.NAME`.
pub(super) fn field(word: &str) -> &'static str {
    FIELDS
        .iter()
        .find(|(known, _)| *known == word)
        .map_or("", |(_, about)| about)
}

/// The sentence for a kind of test.
pub(super) fn kind(word: &str) -> &'static str {
    match word {
        "exact" => "The whole value.",
        "prefix" => "How the value begins.",
        "suffix" => "How the value ends.",
        "contains" => "Any part of the value.",
        "regex" => {
            "A regular expression in linear time, not anchored; no look-around, no back-references."
        }
        "glob" => {
            "* is any run of characters, also over / and ?; everything else is itself; the whole value."
        }
        "length" => "Number of characters.",
        "segments" => "Number of path segments that are not empty.",
        "repeats" => "How often the commonest path segment occurs.",
        "params" => "Number of query parameters.",
        _ => "Membership in a list.",
    }
}

/// The sentence for a word that combines conditions.
pub(super) fn boolean(word: &str) -> &'static str {
    match word {
        "all" => "Every one of these conditions.",
        "any" => "At least one of these conditions.",
        "not" => "The opposite; of a list of values none of them.",
        _ => "Holds always.",
    }
}

/// The sentence for a word of `then`.
pub(super) fn then(then: ThenAction) -> &'static str {
    match then {
        ThenAction::Allow => "Allowed.",
        ThenAction::Disallow => "Refused, no record.",
        ThenAction::DisallowLog => "Refused, and recorded.",
        ThenAction::Download => "Allowed, index, follow, any type.",
        ThenAction::Exclude => "As disallow-log.",
        ThenAction::Ignore => "Refused, no index, no follow.",
        ThenAction::ExcludeButScan => "Allowed, no index, follow, HTML only.",
        ThenAction::FollowOnly => "Allowed, no index, follow, any type.",
        ThenAction::DownloadNoScan => "Allowed, index, no follow, any type.",
        ThenAction::Index => "Allowed, index.",
        ThenAction::Follow => "Allowed, follow.",
        ThenAction::NoIndex => "No index; nothing else.",
        ThenAction::NoFollow => "No follow; nothing else.",
    }
}

/// The sentence for a kind of list.
pub(super) fn list_kind(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Domains => "The host is an item or a subdomain of one.",
        ListKind::Hosts => "The host is an item.",
        ListKind::Urls => "The URL is an item.",
        ListKind::UrlPrefixes => "The URL begins with an item.",
        ListKind::Surts => "The SURT form of the URL begins with an item.",
        ListKind::Addresses => "The address is in an item, a network.",
        ListKind::Values => "Any text equals an item.",
    }
}

/// The sentence for a fact of a case.
pub(super) fn fact(key: &str) -> &'static str {
    match key {
        "url" => "The URL, as a crawler would ask for it.",
        "tunnel" => "true asks for a tunnel to the URL's host and port.",
        "known" => "Whether the URL is in the ledger.",
        "year" => "The year, for the trap calendar; 2026 if none is given.",
        "status" => {
            "The status of the origin's answer; 200 where other facts of the answer are given."
        }
        "headers" => "Header fields of the answer.",
        "usage" => "What the site says of uses.",
        other => field(other),
    }
}

const FIELDS: &[(&str, &str)] = &[
    (
        "url",
        "The whole URL in canonical form; bare values are exact.",
    ),
    ("scheme", "http or https."),
    ("host", "The host; domain takes in all below it."),
    ("port", "The port, also where it is the scheme's default."),
    (
        "authority",
        "The host, with the port where that is not the scheme's default.",
    ),
    ("path", "The path; bare values are prefixes."),
    (
        "path_and_query",
        "Path and query; bare values are prefixes.",
    ),
    (
        "rel_path",
        "The path without its leading slash; bare values are exact.",
    ),
    (
        "rel_path_and_query",
        "Path and query without the leading slash; bare values are exact.",
    ),
    (
        "query",
        "The query without its question mark; bare values are exact.",
    ),
    (
        "authority_path_query",
        "The URL without its scheme; bare values are exact.",
    ),
    ("method", "The method."),
    (
        "crawler",
        "The crawler's name; anonymous for a client without one.",
    ),
    ("referer", "The Referer; empty when missing."),
    (
        "dest",
        "What the answer is wanted for: navigation or embed.",
    ),
    ("depth", "Links from a start page, where that is known."),
    ("address", "The address that would be dialled: networks."),
    (
        "content_type",
        "Type and subtype of the answer; image/* is a family. Judges successes with content only.",
    ),
    ("status", "The status of the answer: 404, 5xx."),
    (
        "size",
        "The size of the answer in bytes: \"[1MiB:]\". Judges successes with content only.",
    ),
    (
        "title",
        "The title of the document; bare values are contained.",
    ),
    (
        "body_prefix",
        "The first bytes of the document; bare values are contained.",
    ),
    (
        "meta_robots",
        "The robots directives of the answer or the document.",
    ),
    (
        "canonical",
        "The canonical URL that the answer or the document names.",
    ),
    (
        "param.NAME",
        "Any occurrence of a query parameter, decoded; empty when missing.",
    ),
    (
        "header.NAME",
        "A header field of the answer; empty when missing.",
    ),
    (
        "usage.NAME",
        "What the site says of a use such as train-ai: allow, deny, unset.",
    ),
    ("domain", "The host is this domain or below it."),
    (
        "ext",
        "The path ends in this extension, in any case; the dot may be left out.",
    ),
    ("under", "The path is this directory or goes on below it."),
    ("url_prefix", "The URL begins with this."),
    ("in_query", "The query contains this."),
    (
        "site",
        "The URL begins with this; without a path its www. twin counts too.",
    ),
    (
        "surt",
        "The SURT form of the URL begins with this: com,example,)/path.",
    ),
];

const OPTIONS: &[(&str, &str)] = &[
    (
        "disposition",
        "What becomes of a URL that no filter refuses: allow, disallow, or disallow-log (refused, and recorded).",
    ),
    (
        "reject",
        "The meaning of a refusal: deny, gone (remove it), keep (leave it in the index), later.",
    ),
    (
        "reject_status",
        "The status of refusals, in place of the one that the crawler's profile has for their meaning.",
    ),
    (
        "record",
        "What is kept of a refused URL; by-log: all of it if the refusal is logged, else its host.",
    ),
    (
        "html_only",
        "Successful answers that are not HTML are refused.",
    ),
    ("max_depth", "The greatest depth that is admitted."),
    ("max_body", "The largest body that is passed on."),
    (
        "tunnel_undecided",
        "What becomes of a tunnel that the policy cannot judge, since it hides the URLs.",
    ),
    (
        "tls",
        "Whether tunnels are looked into; none: as the configuration says.",
    ),
    ("index", "Whether the answer may be indexed: X-Robots-Tag."),
    (
        "follow",
        "Whether links in the answer may be followed: X-Robots-Tag.",
    ),
    (
        "enforce_follow",
        "How follow is enforced: by header, by a meta element, or by taking links out.",
    ),
    (
        "enforce_index",
        "How index is enforced: by header, by a meta element, or by passing links only.",
    ),
    (
        "priority",
        "Moves the request in the queue of its host, by so many classes.",
    ),
    (
        "source",
        "A name for where the URL comes from: header, ledger, metric.",
    ),
    (
        "meta",
        "Names and values for Crawl-Meta headers of the answer.",
    ),
    ("robots", "How robots.txt is obeyed."),
    ("robots.obey", "Whether robots.txt is obeyed."),
    (
        "robots.agent",
        "The product token by which rules are chosen; none: that of the request's User-Agent.",
    ),
    (
        "robots.on_unreachable",
        "What holds where robots.txt cannot be had.",
    ),
    (
        "robots.crawl_delay_cap",
        "The longest Crawl-delay, or interval of a Request-rate, that is obeyed.",
    ),
    (
        "robots.usage",
        "Uses that the crawler makes of pages: what a site denies for one of them is refused.",
    ),
    (
        "politeness",
        "How often a host is asked, by all crawlers together.",
    ),
    ("politeness.key", "What is paced as one."),
    (
        "politeness.delay",
        "The least time between two requests: a floor.",
    ),
    ("politeness.rate", "So many requests in so long: 5/s, 30/m."),
    ("politeness.burst", "How many of the rate may go at once."),
    (
        "politeness.concurrency",
        "Requests under way at once, each until its last byte.",
    ),
    (
        "politeness.max_hold",
        "How long a request may wait for its turn; none: what the crawler's profile bears.",
    ),
    (
        "politeness.overflow",
        "What becomes of a request that cannot go at once.",
    ),
    (
        "politeness.jitter",
        "Two factors between which chance lengthens the delay: 1.0..1.5.",
    ),
    (
        "politeness.adaptive",
        "A delay that follows the host's latency, where that is longer; one key switches it on.",
    ),
    (
        "politeness.adaptive.factor",
        "So many times the latency; 1 if another key is given.",
    ),
    (
        "politeness.adaptive.min",
        "The least such delay; 1s if another key is given.",
    ),
    (
        "politeness.adaptive.max",
        "The longest such delay; 30s if another key is given.",
    ),
    (
        "politeness.order",
        "Who of those that wait goes first: classes by their weights, or the highest, where who waits rises.",
    ),
    (
        "politeness.embeds",
        "Limits for parts of pages (Sec-Fetch-Dest).",
    ),
    (
        "politeness.embeds.delay",
        "The least time between two of them.",
    ),
    (
        "politeness.embeds.concurrency",
        "How many of them are under way at once.",
    ),
    (
        "politeness.per_address",
        "Limits for one address, whatever hosts it has.",
    ),
    (
        "politeness.per_address.delay",
        "The least time between two requests for pages to one address.",
    ),
    (
        "politeness.per_address.concurrency",
        "Requests to one address under way at once; parts of pages are counted apart.",
    ),
    (
        "politeness.bytes_per_second",
        "Bytes of bodies in a second, on average: later requests wait for what earlier ones have cost.",
    ),
    (
        "politeness.request_rate",
        "Whether Request-rate of robots.txt is obeyed.",
    ),
    (
        "politeness.schedule",
        "Hours at which other limits of pages hold; each is that of the last window that gives it.",
    ),
    ("recrawl", "When a URL may be fetched again."),
    (
        "recrawl.min_interval",
        "The least time between two fetches of one URL.",
    ),
    ("recrawl.after_error", "The same after an error."),
    (
        "unmodified",
        "What becomes of an answer that has not changed since the last one.",
    ),
    (
        "duplicate",
        "What becomes of an answer that another URL of the host gave too.",
    ),
    (
        "noncanonical",
        "What becomes of an answer that names another URL as canonical.",
    ),
    (
        "noindex",
        "What becomes of an answer that forbids indexing.",
    ),
    ("max_buffer", "How much of a document is kept to read it."),
    (
        "timeouts",
        "How long the origin may take, in place of the configuration's times.",
    ),
    ("timeouts.connect", "One attempt to connect."),
    ("timeouts.connect_total", "All attempts to connect."),
    (
        "timeouts.response_head",
        "From the end of the request to the end of the response head.",
    ),
    ("timeouts.body_idle", "A body of which nothing arrives."),
    ("timeouts.request", "A request as a whole."),
    (
        "verify",
        "Whether the origin's certificate is verified; skip accepts any.",
    ),
    ("http2", "On which side HTTP/2 may be spoken."),
    (
        "strip_params",
        "Query parameters that do not tell URLs apart.",
    ),
    ("replace", "Replacements by which URLs are the same."),
    ("traps", "Built-in traps that are looked for."),
    ("budget", "How much may be fetched in a day."),
    ("budget.urls", "Requests."),
    ("budget.new_urls", "URLs that were not fetched before."),
    ("budget.bytes", "Bytes of bodies."),
    ("budget.hosts", "Different hosts."),
    ("budget.per", "For what the budget counts."),
    (
        "request_headers",
        "Header fields of requests to the origin.",
    ),
    (
        "request_headers.set",
        "Fields and their values, in place of those of the request.",
    ),
    (
        "request_headers.remove",
        "Fields that the origin does not get.",
    ),
    ("upstream", "A parent proxy of the configuration."),
    ("upgrade", "Whether a request may leave HTTP."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::cases::FACT_KEYS;
    use crate::policy::options::schema;
    use crate::policy::source::condition::keywords;

    /// The path of every option and of every map of options.
    fn paths(map: &str) -> Vec<String> {
        let mut all = Vec::new();
        for key in schema::keys_in(map) {
            let path = if map.is_empty() {
                key.to_owned()
            } else {
                format!("{map}.{key}")
            };
            if schema::find_spec(&path).is_none() && schema::find_open_map(&path).is_none() {
                all.extend(paths(&path));
            }
            all.push(path);
        }
        all
    }

    #[test]
    fn everything_has_its_sentence_and_nothing_else_has() {
        let paths = paths("");
        for path in &paths {
            assert!(!option(path).is_empty(), "{path}");
        }
        for (path, about) in OPTIONS {
            assert!(
                paths.iter().any(|known| known == path) && about.ends_with('.'),
                "{path}"
            );
        }
        let words: Vec<&str> = keywords::all_keywords()
            .filter(|word| !keywords::BOOLEAN.contains(word) && *word != "in")
            .collect();
        for word in &words {
            assert!(field(word).ends_with('.'), "{word}");
        }
        assert!(FIELDS.iter().all(|(word, _)| words.contains(word)));
        assert!(FACT_KEYS.iter().all(|key| fact(key).ends_with('.')));
    }
}
