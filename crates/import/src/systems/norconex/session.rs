//! The frame of a configuration: defaults, crawlers, versions.

use crate::input::{ImportError, Place};

use super::tree::Setting;

/// The major version of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NorconexVersion {
    V1,
    /// 2 and 3, which have the same defaults.
    V2,
    V4,
}

/// A configuration by its crawlers.
#[derive(Debug)]
pub(super) struct Session<'t> {
    pub version: NorconexVersion,
    pub root: &'t Setting,
    /// `crawlerDefaults`.
    pub defaults: Option<&'t Setting>,
    pub crawlers: Vec<&'t Setting>,
}

const FILTERS_OF_V1: [&str; 5] = [
    "httpURLFilters",
    "httpHeadersFilters",
    "httpDocumentFilters",
    "httpHeadersFetcher",
    "httpHeadersChecksummer",
];

impl<'t> Session<'t> {
    /// Finds the crawlers of a configuration.
    pub(super) fn new(root: &'t Setting, place: &Place) -> Result<Self, ImportError> {
        let crawlers = match root.get(&["crawlers"]) {
            Some(crawlers) => crawlers.elements().collect(),
            None if is_crawler(root) => vec![root],
            None => {
                let message = format!(
                    "<{}> is no configuration of Norconex: expected httpcollector, crawlSession or crawler",
                    root.name
                );
                return Err(ImportError::invalid(place, message));
            }
        };
        let defaults = root.get(&["crawlerDefaults"]);
        let mut all = defaults.into_iter().chain(crawlers.iter().copied());
        let version = if all.any(|crawler| crawler.get(&FILTERS_OF_V1).is_some()) {
            NorconexVersion::V1
        } else if root.name == "httpcollector" {
            NorconexVersion::V2
        } else {
            NorconexVersion::V4
        };
        Ok(Self {
            version,
            root,
            defaults,
            crawlers,
        })
    }

    /// Returns the settings of the frame, without the crawlers and their defaults.
    pub(super) fn frame(&self) -> Vec<&'t Setting> {
        if self.root.get(&["crawlers"]).is_none() {
            return Vec::new();
        }
        let children = self.root.children.iter();
        let others = children
            .filter(|child| !matches!(child.name.as_str(), "crawlers" | "crawlerDefaults" | "id"));
        others.collect()
    }

    /// Returns the settings that a crawler has: its own, and the defaults that it does not override.
    pub(super) fn effective(&self, crawler: &'t Setting) -> Vec<&'t Setting> {
        let inherited = self.default_settings();
        let inherited = inherited.filter(|setting| crawler.get(&[&setting.name]).is_none());
        inherited.chain(crawler_settings(crawler)).collect()
    }

    fn default_settings(&self) -> impl Iterator<Item = &'t Setting> {
        self.defaults.into_iter().flat_map(crawler_settings)
    }

    /// Returns the defaults that no crawler overrides: they are settings of all crawlers.
    pub(super) fn shared(&self) -> Vec<&'t Setting> {
        let settings = self.default_settings();
        settings
            .filter(|setting| self.overriding(setting) == 0)
            .collect()
    }

    /// Returns the settings of one crawler that are not those of all.
    pub(super) fn own(&self, crawler: &'t Setting) -> Vec<&'t Setting> {
        let settings = self.effective(crawler).into_iter();
        let is_own = |setting: &&Setting| {
            let is_default = self
                .default_settings()
                .any(|default| std::ptr::eq(default, *setting));
            !is_default || self.overriding(setting) > 0
        };
        settings.filter(is_own).collect()
    }

    /// Returns the defaults that every crawler overrides.
    pub(super) fn overridden(&self) -> Vec<&'t Setting> {
        let settings = self.default_settings();
        let all = self.crawlers.len();
        settings
            .filter(|setting| all > 0 && self.overriding(setting) == all)
            .collect()
    }

    fn overriding(&self, setting: &Setting) -> usize {
        let crawlers = self.crawlers.iter();
        crawlers
            .filter(|crawler| crawler.get(&[&setting.name]).is_some())
            .count()
    }

    /// Returns the name of a crawler.
    pub(super) fn crawler_name(&self, crawler: &Setting) -> String {
        crawler.value(&["id"]).unwrap_or("crawler").to_owned()
    }
}

fn crawler_settings(crawler: &Setting) -> impl Iterator<Item = &Setting> {
    let settings = crawler.children.iter();
    settings.filter(|setting| !matches!(setting.name.as_str(), "id" | "class"))
}

fn is_crawler(root: &Setting) -> bool {
    let has_crawler_settings = root
        .get(&[
            "startReferences",
            "startReferencesFiles",
            "startReferencesSitemaps",
            "startURLs",
            "start",
            "referenceFilters",
            "httpURLFilters",
            "metadataFilters",
            "documentFilters",
            "maxDepth",
        ])
        .is_some();
    matches!(root.name.as_str(), "crawler" | "configuration") && has_crawler_settings
}
