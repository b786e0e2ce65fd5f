//! Settings besides filters: depth, robots, checksums, deletions, fetchers; and those that no policy has.

use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget};

use super::convert::UnitWriter;
use super::read::{FETCHERS, METADATA_FILTERS, find, read_filters, read_max_depth, read_scope};
use super::tree::Setting;

/// Returns `true` for a feature that is switched off: by an attribute, or in version 4 by an empty element.
pub(super) fn is_off(setting: &Setting, version: super::session::NorconexVersion) -> bool {
    let is_empty = setting.is_null && version == super::session::NorconexVersion::V4;
    is_empty || setting.flag(&["ignore"]) == Some(true) || setting.flag(&["disabled"]) == Some(true)
}

impl UnitWriter<'_, '_> {
    pub(super) fn write_depth(&mut self) {
        let Some(setting) = find(&self.settings, &["maxDepth"]) else {
            return;
        };
        let Some((depth, _)) = read_max_depth(&self.settings) else {
            self.unrelated(setting, "no limit");
            return;
        };
        self.options.set("max_depth", depth);
        if !read_scope(&self.effective, self.input).starts.is_empty() {
            self.options.set("depth.start", "seeds");
        }
        let target = PartTarget {
            name: "max_depth".to_owned(),
            need: PartNeed::Ledger,
        };
        let assumption = "the crawler says how deep a page is (`Crawl-Depth`, or `Referer`)";
        let effect = AssumptionEffect::RefusesLess;
        self.report
            .assumed(setting.part, target, assumption, effect);
    }

    /// Converts the features that are one option each: on or off.
    pub(super) fn write_robots(&mut self) {
        let features = [
            (["robotsTxt", "robotsTxtProvider"], "robots.obey"),
            (["robotsMeta", "robotsMetaProvider"], "noindex"),
            (
                ["canonicalLinkDetector", "canonicalLinkDetector"],
                "noncanonical",
            ),
        ];
        for (names, option) in features {
            let Some(setting) = find(&self.settings, &names) else {
                continue;
            };
            let is_on = !is_off(setting, self.version);
            match (option, is_on) {
                ("robots.obey", _) => self.options.set(option, is_on),
                ("noindex", true) => self.options.set(option, "links"),
                (_, true) => self.options.set(option, "reject"),
                (_, false) => self.options.set(option, "pass"),
            }
            let need = match option {
                "robots.obey" => PartNeed::Url,
                _ => PartNeed::Document,
            };
            self.write_feature(setting, option, need);
        }
        for (names, option) in [(["metadataDeduplicate", "documentDeduplicate"], "duplicate")] {
            let settings: Vec<&Setting> = self.settings.clone();
            for setting in settings {
                if !names.contains(&setting.name.as_str()) {
                    continue;
                }
                if setting.text.eq_ignore_ascii_case("true") {
                    self.options.set(option, "links");
                    self.converted(setting, option, PartNeed::Ledger);
                } else {
                    self.unrelated(setting, "off");
                }
            }
        }
    }

    /// Reports a feature. A class of somebody else may do something else.
    pub(super) fn write_feature(&mut self, setting: &Setting, option: &str, need: PartNeed) {
        const KNOWN: [&str; 7] = [
            "standard",
            "generic",
            "default",
            "lastmodified",
            "md5",
            "robots",
            "canonical",
        ];
        let class = setting.class().unwrap_or("Standard").to_ascii_lowercase();
        let is_known = KNOWN.iter().any(|known| class.starts_with(known));
        for child in &setting.children {
            match child.name.as_str() {
                "class" | "ignore" | "disabled" => {
                    self.report.converted(child.part, option, need);
                }
                "contentTypes" => {
                    let why = "pages of other types have no canonical link that the proxy reads";
                    self.unrelated(child, why);
                }
                "fieldMatcher" | "sourceFields" | "sourceFieldsRegex" => {
                    for part in child.parts() {
                        let target = PartTarget {
                            name: option.to_owned(),
                            need,
                        };
                        let assumption = "the whole document is compared, not the fields alone";
                        let effect = AssumptionEffect::Either;
                        self.report.assumed(part, target, assumption, effect);
                    }
                }
                _ => self.unrelated(child, "of the crawler's own fields"),
            }
        }
        if is_known {
            self.report.converted(setting.part, option, need);
            return;
        }
        let target = PartTarget {
            name: option.to_owned(),
            need,
        };
        let assumption = "the class does what that of Norconex does";
        let effect = AssumptionEffect::Either;
        self.report
            .assumed(setting.part, target, assumption, effect);
    }

    /// Fetchers are the crawler's own, but for what they say about answers.
    pub(super) fn write_fetchers(&mut self) {
        let settings: Vec<&Setting> = self.settings.clone();
        for setting in settings {
            if FETCHERS.contains(&setting.name.as_str()) {
                self.unrelated(setting, "the crawler's own client");
                self.write_fetcher_details(setting);
            }
        }
    }

    fn write_fetcher_details(&mut self, setting: &Setting) {
        for child in &setting.children {
            match child.name.as_str() {
                "validStatusCodes" => {
                    let filters = read_filters(&self.effective, &METADATA_FILTERS, self.version);
                    if !filters.is_empty() {
                        self.converted(child, "metadataFilters", PartNeed::Response);
                    }
                }
                "notFoundStatusCodes" => {
                    let codes = child.list();
                    let is_usual = codes.iter().all(|(code, _)| matches!(*code, "404" | "410"));
                    if !is_usual {
                        let why = "only 404 and 410 mean that a page does not exist";
                        let instead = Some("`forbid: { status: … }` with `reject: gone`");
                        self.not_converted(child, why, MissingPart::OtherSetting, instead);
                    }
                }
                "trustAllSSLCertificates" | "trustAllSslCertificates"
                    if child.text.eq_ignore_ascii_case("true") =>
                {
                    let why = "certificates are verified";
                    let instead = Some("`verify: skip`, in a rule for the hosts that need it");
                    self.not_converted(child, why, MissingPart::KeepsOut, instead);
                }
                "referenceFilters" => {
                    let why = "it chooses the fetcher, which the policy does not know";
                    self.not_converted(child, why, MissingPart::OtherSetting, None);
                }
                _ => self.write_fetcher_details(child),
            }
        }
    }

    /// Reports what no other function of the importer reads.
    pub(super) fn write_others(&mut self) {
        let settings: Vec<&Setting> = self.settings.clone();
        for setting in settings {
            if !self.report.is_set(setting.part) {
                self.write_other(setting);
            }
        }
    }

    pub(super) fn write_other(&mut self, setting: &Setting) {
        const CLIENT: &str = "the crawler's own client";
        const STORAGE: &str = "storage, threads and logs of the crawler";
        const DOCUMENTS: &str = "what the crawler does with documents and links";
        let why = match setting.name.as_str() {
            "userAgent"
            | "httpClientFactory"
            | "httpClientInitializer"
            | "redirectURLProvider"
            | "fetchHttpHead"
            | "fetchHttpGet"
            | "metadataFetchSupport"
            | "documentFetchSupport"
            | "fetchersMaxRetries"
            | "fetchersRetryDelay" => CLIENT,
            "numThreads"
            | "workDir"
            | "progressDir"
            | "logsDir"
            | "tempDir"
            | "dataStoreEngine"
            | "crawlDataStoreFactory"
            | "crawlURLDatabaseFactory"
            | "maxConcurrentCrawlers"
            | "maxParallelCrawlers"
            | "crawlersStartInterval"
            | "cluster"
            | "clusterConfig"
            | "maxStreamCachePoolSize"
            | "maxStreamCacheSize"
            | "maxMemoryPool"
            | "maxMemoryInstance"
            | "deferredShutdownDuration"
            | "idleTimeout"
            | "maxQueueBatchSize"
            | "minProgressLoggingInterval"
            | "stopOnExceptions"
            | "collectorListeners"
            | "jefJobLifeCycleListeners"
            | "jefErrorListeners"
            | "suiteLifeCycleListeners"
            | "startReferencesAsync" => STORAGE,
            "keepDownloads"
            | "keepReferencedLinks"
            | "keepOutOfScopeLinks"
            | "keepMaxDepthLinks"
            | "linkExtractors"
            | "urlExtractor"
            | "linkExtractor"
            | "preImportProcessors"
            | "postImportProcessors"
            | "preImportConsumers"
            | "postImportConsumers"
            | "postImportLinks"
            | "postImportLinksKeep"
            | "committers"
            | "committer" => DOCUMENTS,
            "eventListeners" | "crawlerListeners" => return self.write_listeners(setting),
            "importer" => return self.write_importer(setting),
            "maxDocuments" | "maxURLs" | "maxCrawlDuration" => return self.write_limit(setting),
            "orphansStrategy" | "deleteOrphans" => {
                let why = "pages that no link leads to any more are known to the crawler only";
                return self.not_converted(setting, why, MissingPart::OtherSetting, None);
            }
            "sitemapResolver" | "sitemapResolverFactory" | "sitemapLocator" | "sitemap" => {
                return self.write_sitemap(setting);
            }
            _ => return,
        };
        self.unrelated(setting, why);
    }

    fn write_listeners(&mut self, setting: &Setting) {
        self.unrelated(setting, "logs of the crawler");
        for listener in setting.elements().collect::<Vec<_>>() {
            let class = listener.class().unwrap_or_default();
            if class.contains("DeleteRejected") {
                let why = "pages that are rejected leave the index by the option `removal`";
                let instead = Some("`removal: norconex`");
                self.not_converted(listener, why, MissingPart::OtherSetting, instead);
            }
        }
    }

    fn write_limit(&mut self, setting: &Setting) {
        if setting.text.starts_with('-') || setting.text == "0" {
            self.unrelated(setting, "no limit");
            return;
        }
        let why = "a limit of the whole crawl, which the crawler keeps itself";
        let instead = Some("`budget: { urls: N, per: crawler }`, for a day");
        self.not_converted(setting, why, MissingPart::LetsThrough, instead);
    }

    fn write_sitemap(&mut self, setting: &Setting) {
        if is_off(setting, self.version) {
            self.unrelated(setting, "off");
            return;
        }
        let why = "the crawler reads sitemaps itself, and asks for what they list";
        self.not_converted(setting, why, MissingPart::OtherSetting, None);
    }

    /// The importer parses documents. Of its handlers those that refuse documents matter.
    fn write_importer(&mut self, setting: &Setting) {
        self.unrelated(setting, "parsing of documents");
        self.write_handlers(setting);
    }

    fn write_handlers(&mut self, setting: &Setting) {
        for child in &setting.children {
            let class = child.class().unwrap_or_default();
            let refuses = matches!(child.name.as_str(), "filter" | "reject")
                || class.ends_with("Filter")
                || class == "Reject";
            if refuses {
                let why = "the importer refuses by what it has parsed";
                let instead = Some("a rule on `title` or `body_prefix`");
                self.not_converted(child, why, MissingPart::LetsThrough, instead);
            } else {
                self.write_handlers(child);
            }
        }
    }

    /// The crawler normalizes a URL before it asks for it; replacements also join entries of the ledger.
    pub(super) fn write_normalizer(&mut self) {
        let Some(setting) = find(&self.settings, &["urlNormalizer", "urlNormalizers"]) else {
            return;
        };
        let why = "the crawler normalizes a URL before its filters, and before it asks for it";
        self.unrelated(setting, why);
        let mut replacements = Vec::new();
        self.collect_replacements(setting, &mut replacements);
        if !replacements.is_empty() {
            self.options
                .set("replace", serde_json::Value::Array(replacements));
        }
    }

    fn collect_replacements(&mut self, setting: &Setting, found: &mut Vec<serde_json::Value>) {
        for child in &setting.children {
            let Some(pattern) = child.value(&["match"]) else {
                self.collect_replacements(child, found);
                continue;
            };
            let with = child.value(&["replacement", "value"]).unwrap_or_default();
            let is_known = super::matcher::unresolved_variable(pattern).is_none();
            if is_known && regex_syntax::parse(pattern).is_ok() && !with.contains('\\') {
                found.push(serde_json::json!({ "regex": pattern, "with": with }));
                self.converted(child, "replace", PartNeed::Ledger);
            } else {
                let why = "the expression is not readable here";
                self.not_converted(child, why, MissingPart::OtherSetting, Some("`replace`"));
            }
        }
    }
}
