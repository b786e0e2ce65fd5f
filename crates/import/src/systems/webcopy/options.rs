//! The options of a project by their names, and the words by which `--var` says what others mean.

/// Options without a meaning for a policy, by their names without case and separators.
pub(super) const UNRELATED: [(&str, &str); 35] = [
    ("lastcrawled", "the last run"),
    ("duration", "the last run"),
    ("scanindex", "the last run"),
    ("urivalidated", "the last run"),
    ("title", "a description"),
    ("description", "a description"),
    ("savefolder", "storage of WebCopy"),
    ("emptybeforecrawl", "storage of WebCopy"),
    ("createfolderfordomain", "storage of WebCopy"),
    ("flattenwebsitefolder", "storage of WebCopy"),
    ("remapextensions", "storage of WebCopy"),
    ("keeporiginalextension", "storage of WebCopy"),
    ("updatelocaltimestamps", "storage of WebCopy"),
    ("usealternatedirectorycharacter", "storage of WebCopy"),
    ("originreport", "storage of WebCopy"),
    ("savelinkmap", "storage of WebCopy"),
    ("clearlinkmapbeforecrawl", "storage of WebCopy"),
    ("keepalive", "the connections of WebCopy"),
    ("contentencoding", "the requests of WebCopy"),
    ("useheaderchecking", "the requests of WebCopy"),
    ("usedefaultuseragent", "the requests of WebCopy"),
    ("useragent", "the requests of WebCopy"),
    ("acceptlanguage", "the requests of WebCopy"),
    ("alwaysrequestlatestversion", "the requests of WebCopy"),
    (
        "followredirects",
        "WebCopy requests the target of a redirection itself",
    ),
    ("removefragments", "requests carry no fragment"),
    (
        "removeemptypathsegments",
        "WebCopy changes URLs before it requests them",
    ),
    (
        "lowercaseurls",
        "WebCopy changes URLs before it requests them",
    ),
    ("useproxy", "where WebCopy connects: to crawlgate now"),
    ("proxy", "where WebCopy connects: to crawlgate now"),
    ("forms", "forms that WebCopy sends before a crawl"),
    ("passwords", "credentials of WebCopy"),
    ("cookies", "cookies of WebCopy"),
    ("document", "the version of the file"),
    ("custom", "settings of other programs"),
];

/// The words of `--var` for options of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProjectWord {
    Ignored,
    Reach(WebCopyReach),
    MaxDepth,
    MaxSize,
    PerSecond,
    PerMinute,
}

/// The hosts beside that of the URI which are crawled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WebCopyReach {
    Site,
    Subdomains,
    Siblings,
    Everything,
}

pub(super) const PROJECT_WORDS: [(&str, ProjectWord); 9] = [
    ("ignore", ProjectWord::Ignored),
    ("site", ProjectWord::Reach(WebCopyReach::Site)),
    ("subdomains", ProjectWord::Reach(WebCopyReach::Subdomains)),
    ("siblings", ProjectWord::Reach(WebCopyReach::Siblings)),
    ("everything", ProjectWord::Reach(WebCopyReach::Everything)),
    ("max-depth", ProjectWord::MaxDepth),
    ("max-size", ProjectWord::MaxSize),
    ("per-second", ProjectWord::PerSecond),
    ("per-minute", ProjectWord::PerMinute),
];

/// Options whose numbers are known by their names.
pub(super) const NUMBERS: [(&str, ProjectWord); 8] = [
    ("maximumdepth", ProjectWord::MaxDepth),
    ("maxdepth", ProjectWord::MaxDepth),
    ("scandepth", ProjectWord::MaxDepth),
    ("maximumfilesize", ProjectWord::MaxSize),
    ("maxfilesize", ProjectWord::MaxSize),
    ("requestspersecond", ProjectWord::PerSecond),
    ("requestsperminute", ProjectWord::PerMinute),
    ("speedlimit", ProjectWord::Ignored),
];

/// The values of the option `crawlMode` as the program shows them.
pub(super) const MODES: [(&str, WebCopyReach); 5] = [
    ("siteonly", WebCopyReach::Site),
    ("subdomains", WebCopyReach::Subdomains),
    ("siblingdomains", WebCopyReach::Siblings),
    ("subandsiblingdomains", WebCopyReach::Siblings),
    ("everything", WebCopyReach::Everything),
];
