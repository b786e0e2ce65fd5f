//! The options of a crawl that its scope does not need.

/// The outcome of an option, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionEffect {
    /// It limits the whole crawl, unless it is 0.
    CrawlLimit,
    /// It is none of a policy's business.
    Unrelated(&'static str),
}

const WRITING: &str = "what Browsertrix writes, and where";
const LOADING: &str = "how Browsertrix loads pages and looks for links in them";
const RUNNING: &str = "how Browsertrix runs, and what it does after errors";
const PACE: &str = "Browsertrix itself waits";

/// Options by their names, with their aliases, in the order of Browsertrix's `--help`.
const OPTIONS: &[(&[&str], OptionEffect)] = &[
    (&["workers", "w"], OptionEffect::Unrelated(RUNNING)),
    (&["crawlId", "id"], OptionEffect::Unrelated(RUNNING)),
    (&["waitUntil"], OptionEffect::Unrelated(LOADING)),
    (&["pageLimit", "limit"], OptionEffect::CrawlLimit),
    (&["maxPageLimit"], OptionEffect::CrawlLimit),
    (
        &["pageLoadTimeout", "timeout"],
        OptionEffect::Unrelated(LOADING),
    ),
    (
        &["selectLinks", "linkSelector"],
        OptionEffect::Unrelated(LOADING),
    ),
    (&["clickSelector"], OptionEffect::Unrelated(LOADING)),
    (&["blockMessage"], OptionEffect::Unrelated(WRITING)),
    (&["adBlockMessage"], OptionEffect::Unrelated(WRITING)),
    (&["collection", "c"], OptionEffect::Unrelated(WRITING)),
    (&["headless"], OptionEffect::Unrelated(LOADING)),
    (&["driver"], OptionEffect::Unrelated(LOADING)),
    (
        &["generateCDX", "generatecdx", "generateCdx"],
        OptionEffect::Unrelated(WRITING),
    ),
    (
        &["combineWARC", "combinewarc", "combineWarc"],
        OptionEffect::Unrelated(WRITING),
    ),
    (&["rolloverSize"], OptionEffect::Unrelated(WRITING)),
    (
        &["generateWACZ", "generatewacz", "generateWacz"],
        OptionEffect::Unrelated(WRITING),
    ),
    (&["useSHA1"], OptionEffect::Unrelated(WRITING)),
    (&["logging"], OptionEffect::Unrelated(WRITING)),
    (&["logLevel"], OptionEffect::Unrelated(WRITING)),
    (&["context", "logContext"], OptionEffect::Unrelated(WRITING)),
    (&["logExcludeContext"], OptionEffect::Unrelated(WRITING)),
    (&["text"], OptionEffect::Unrelated(WRITING)),
    (&["cwd"], OptionEffect::Unrelated(WRITING)),
    (&["mobileDevice"], OptionEffect::Unrelated(LOADING)),
    (&["userAgent"], OptionEffect::Unrelated(LOADING)),
    (&["userAgentSuffix"], OptionEffect::Unrelated(LOADING)),
    (
        &["sitemapFromDate", "sitemapFrom"],
        OptionEffect::Unrelated(LOADING),
    ),
    (
        &["sitemapToDate", "sitemapTo"],
        OptionEffect::Unrelated(LOADING),
    ),
    (&["statsFilename"], OptionEffect::Unrelated(WRITING)),
    (&["behaviors"], OptionEffect::Unrelated(LOADING)),
    (&["behaviorTimeout"], OptionEffect::Unrelated(LOADING)),
    (&["postLoadDelay"], OptionEffect::Unrelated(PACE)),
    (&["pageExtraDelay", "delay"], OptionEffect::Unrelated(PACE)),
    (
        &["profile", "loadProfile"],
        OptionEffect::Unrelated(LOADING),
    ),
    (&["saveProfile"], OptionEffect::Unrelated(WRITING)),
    (&["screenshot"], OptionEffect::Unrelated(WRITING)),
    (&["screencastPort"], OptionEffect::Unrelated(RUNNING)),
    (&["screencastRedis"], OptionEffect::Unrelated(RUNNING)),
    (&["warcInfo", "warcinfo"], OptionEffect::Unrelated(WRITING)),
    (&["redisStoreUrl"], OptionEffect::Unrelated(RUNNING)),
    (&["redisDedupeUrl"], OptionEffect::Unrelated(WRITING)),
    (&["dedupePagesMinDepth"], OptionEffect::Unrelated(WRITING)),
    (&["dedupeConcurrent"], OptionEffect::Unrelated(WRITING)),
    (&["saveState"], OptionEffect::Unrelated(WRITING)),
    (&["saveStateInterval"], OptionEffect::Unrelated(WRITING)),
    (&["saveStateHistory"], OptionEffect::Unrelated(WRITING)),
    (&["sizeLimit"], OptionEffect::CrawlLimit),
    (&["diskUtilization"], OptionEffect::Unrelated(RUNNING)),
    (&["timeLimit"], OptionEffect::CrawlLimit),
    (&["healthCheckPort"], OptionEffect::Unrelated(RUNNING)),
    (&["overwrite"], OptionEffect::Unrelated(WRITING)),
    (&["waitOnDone"], OptionEffect::Unrelated(RUNNING)),
    (&["restartsOnError"], OptionEffect::Unrelated(RUNNING)),
    (&["netIdleWait"], OptionEffect::Unrelated(LOADING)),
    (&["netIdleMaxRequests"], OptionEffect::Unrelated(LOADING)),
    (&["lang"], OptionEffect::Unrelated(LOADING)),
    (&["title"], OptionEffect::Unrelated(WRITING)),
    (&["description", "desc"], OptionEffect::Unrelated(WRITING)),
    (&["logErrorsToRedis"], OptionEffect::Unrelated(WRITING)),
    (&["logBehaviorsToRedis"], OptionEffect::Unrelated(WRITING)),
    (&["writePagesToRedis"], OptionEffect::Unrelated(WRITING)),
    (
        &["maxPageRetries", "retries"],
        OptionEffect::Unrelated(RUNNING),
    ),
    (&["failOnFailedSeed"], OptionEffect::Unrelated(RUNNING)),
    (&["failOnFailedLimit"], OptionEffect::Unrelated(RUNNING)),
    (&["failOnInvalidStatus"], OptionEffect::Unrelated(RUNNING)),
    (&["failOnContentCheck"], OptionEffect::Unrelated(RUNNING)),
    (&["customBehaviors"], OptionEffect::Unrelated(LOADING)),
    (&["saveStorage"], OptionEffect::Unrelated(WRITING)),
    (&["debugAccessRedis"], OptionEffect::Unrelated(RUNNING)),
    (&["debugAccessBrowser"], OptionEffect::Unrelated(RUNNING)),
    (&["warcPrefix"], OptionEffect::Unrelated(WRITING)),
    (&["serviceWorker", "sw"], OptionEffect::Unrelated(LOADING)),
    (&["proxyServer"], OptionEffect::Unrelated(PROXY)),
    (
        &["proxyServerPreferSingleProxy"],
        OptionEffect::Unrelated(PROXY),
    ),
    (&["proxyServerConfig"], OptionEffect::Unrelated(PROXY)),
    (&["dryRun"], OptionEffect::Unrelated(WRITING)),
    (&["qaSource"], OptionEffect::Unrelated(RUNNING)),
    (&["qaDebugImageDiff"], OptionEffect::Unrelated(WRITING)),
    (&["sshProxyPrivateKeyFile"], OptionEffect::Unrelated(PROXY)),
    (&["sshProxyKnownHostsFile"], OptionEffect::Unrelated(PROXY)),
    (&["extraChromeArgs"], OptionEffect::Unrelated(LOADING)),
    (&["reportSkipped"], OptionEffect::Unrelated(WRITING)),
    (&["rateLimitStatusCodes"], OptionEffect::Unrelated(RUNNING)),
    (&["rateLimitOnMatch"], OptionEffect::Unrelated(RUNNING)),
    (&["rateLimitTimeout"], OptionEffect::Unrelated(RUNNING)),
    (&["rateLimitMaxRetries"], OptionEffect::Unrelated(RUNNING)),
    (
        &["rateLimitInterruptCount"],
        OptionEffect::Unrelated(RUNNING),
    ),
    (&["name"], OptionEffect::Unrelated(WRITING)),
    (
        &["state"],
        OptionEffect::Unrelated("the state of a crawl that was interrupted"),
    ),
    // Of the application, around the crawl.
    (&["crawlTimeout"], OptionEffect::CrawlLimit),
    (&["maxCrawlSize"], OptionEffect::CrawlLimit),
    (&["schedule"], OptionEffect::Unrelated(RUNNING)),
    (&["jobType"], OptionEffect::Unrelated(RUNNING)),
    (&["tags"], OptionEffect::Unrelated(WRITING)),
    (&["autoAddCollections"], OptionEffect::Unrelated(WRITING)),
    (&["browserWindows"], OptionEffect::Unrelated(RUNNING)),
    (&["crawlerChannel"], OptionEffect::Unrelated(RUNNING)),
    (&["profileid"], OptionEffect::Unrelated(LOADING)),
    (&["proxyId"], OptionEffect::Unrelated(PROXY)),
    (&["crawlFilenameTemplate"], OptionEffect::Unrelated(WRITING)),
    (&["oid"], OptionEffect::Unrelated(WRITING)),
    (&["runNow"], OptionEffect::Unrelated(RUNNING)),
];

const PROXY: &str = "Browsertrix is given this proxy instead";

/// Names of the scope's options, each with its other names.
const SCOPE_NAMES: &[&[&str]] = &[
    &["seeds", "url"],
    &["seedFile", "urlFile"],
    &["scopeIncludeRx", "include"],
    &["scopeExcludeRx", "exclude"],
    &["blockAds", "blockads"],
    &["useSitemap", "sitemap"],
    &["useRobots", "robots"],
];

/// Returns the effect of an option that the scope does not need; `None` if it is not known.
pub(super) fn effect(name: &str) -> Option<OptionEffect> {
    let found = OPTIONS.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, effect)| *effect)
}

/// Returns the first of the names of an option. `scope-type` is `scopeType`.
pub(super) fn canonical_name(key: &str) -> String {
    let mut name = String::new();
    let mut is_after_dash = false;
    for c in key.chars() {
        match c {
            '-' => is_after_dash = true,
            c if is_after_dash => {
                name.extend(c.to_uppercase());
                is_after_dash = false;
            }
            c => name.push(c),
        }
    }
    let names = SCOPE_NAMES.iter().copied();
    let mut names = names.chain(OPTIONS.iter().map(|(names, _)| *names));
    let found = names.find(|names| names.contains(&name.as_str()));
    let first = found.and_then(|names| names.first());
    first.map_or(name, |first| (*first).to_owned())
}
