//! Settings that change an index: checksums, and the deletion of bad pages.

use crate::draft::to_slug;
use crate::report::{MissingPart, PartNeed};

use super::convert::UnitWriter;
use super::others::is_off;
use super::read::find;
use super::session::NorconexVersion;
use super::tree::Setting;

const METADATA_CHECKSUMMERS: [&str; 2] = ["metadataChecksummer", "httpHeadersChecksummer"];
const DOCUMENT_CHECKSUMMERS: [&str; 2] = ["documentChecksummer", "httpDocumentChecksummer"];
pub(super) const CHECKSUMMERS: [&str; 4] = [
    "metadataChecksummer",
    "httpHeadersChecksummer",
    "documentChecksummer",
    "httpDocumentChecksummer",
];

impl UnitWriter<'_, '_> {
    /// One option is for both checksums: of the head and of the document.
    pub(super) fn write_checksums(&mut self) {
        let own: Vec<&Setting> = self.settings.clone();
        let own = own
            .into_iter()
            .filter(|setting| CHECKSUMMERS.contains(&setting.name.as_str()));
        let own: Vec<&Setting> = own.collect();
        if own.is_empty() {
            return;
        }
        let is_on = |names: &[&str]| {
            let setting = find(&self.effective, names);
            setting.is_none_or(|setting| !is_off(setting, self.version))
        };
        let any = is_on(&METADATA_CHECKSUMMERS) || is_on(&DOCUMENT_CHECKSUMMERS);
        let value = if any { "reject" } else { "pass" };
        self.options.set("unmodified", value);
        for setting in own {
            self.write_feature(setting, "unmodified", PartNeed::Ledger);
        }
    }

    /// `GenericSpoiledReferenceStrategizer`: what leaves the index, by the state of a page.
    pub(super) fn write_spoiled(&mut self) {
        let Some(setting) = find(&self.settings, &["spoiledReferenceStrategizer"]) else {
            return;
        };
        let class = setting
            .class()
            .unwrap_or("GenericSpoiledReferenceStrategizer");
        if !class.eq_ignore_ascii_case("GenericSpoiledReferenceStrategizer") {
            let why = "the class is not known";
            let instead = Some("`removal`");
            self.not_converted(setting, why, MissingPart::OtherSetting, instead);
            return;
        }
        let mut changes: Vec<(&str, &str)> = Vec::new();
        for child in &setting.children {
            self.report
                .converted(child.part, "removal", PartNeed::Ledger);
        }
        self.report
            .converted(setting.part, "removal", PartNeed::Ledger);
        if let Some(fallback) = setting.get(&["fallbackStrategy"]) {
            const OTHERS: [&str; 6] = [
                "robots_txt",
                "rule",
                "noindex",
                "noncanonical",
                "duplicate",
                "too_large",
            ];
            match strategy(&fallback.text) {
                Some("remove") => {}
                Some(value) => changes.extend(OTHERS.map(|key| (key, value))),
                None => self.unknown_strategy(fallback),
            }
        }
        let list = setting.get(&["mappings"]);
        let mappings = list.unwrap_or(setting).elements();
        let is_mapping = |it: &&Setting| it.is_item || it.name == "mapping" || list.is_some();
        let mut seen = Vec::new();
        for mapping in mappings.filter(is_mapping).collect::<Vec<_>>() {
            // A map of YAML has the state as its key.
            let state = mapping.value(&["state"]).unwrap_or(&mapping.name);
            let text = mapping.value(&["strategy"]).unwrap_or(&mapping.text);
            let keys = removals(state);
            let Some(value) = strategy(text).filter(|_| !keys.is_empty()) else {
                self.unknown_strategy(mapping);
                continue;
            };
            seen.push(state);
            let differing = keys.iter().filter(|(_, preset)| value != *preset);
            changes.extend(differing.map(|(key, _)| (*key, value)));
            self.converted(mapping, "removal", PartNeed::Ledger);
        }
        // In version 4 a list replaces that of the defaults, and the fallback is for what it does not name.
        if self.version == NorconexVersion::V4 && !seen.is_empty() {
            let fallback = setting.value(&["fallbackStrategy"]).and_then(strategy);
            let fallback = fallback.unwrap_or("remove");
            for state in ["NOT_FOUND", "BAD_STATUS", "ERROR"] {
                let keys = removals(state).iter();
                let differing = keys.filter(|(_, preset)| fallback != *preset);
                if !seen.contains(&state) {
                    changes.extend(differing.map(|(key, _)| (*key, fallback)));
                }
            }
        }
        if changes.is_empty() {
            self.options.set("removal", "norconex");
            return;
        }
        self.options.set("removal.preset", "norconex");
        for (key, value) in changes {
            self.options.set(&format!("removal.{key}"), value);
        }
    }

    fn unknown_strategy(&mut self, setting: &Setting) {
        let why = "the state or the strategy has no counterpart";
        let instead = Some("`removal`");
        self.not_converted(setting, why, MissingPart::OtherSetting, instead);
    }
}

/// Returns the keys of `removal` for a state, each with its value in the preset.
fn removals(state: &str) -> &'static [(&'static str, &'static str)] {
    match state {
        "NOT_FOUND" => &[("not_found", "remove"), ("gone", "remove")],
        "BAD_STATUS" => &[("bad_status", "once_more")],
        "ERROR" => &[("error", "once_more")],
        "REJECTED" => &[("rule", "remove"), ("robots_txt", "remove")],
        _ => &[],
    }
}

fn strategy(text: &str) -> Option<&'static str> {
    match to_slug(text).as_str() {
        "delete" => Some("remove"),
        "ignore" => Some("keep"),
        "grace-once" => Some("once_more"),
        _ => None,
    }
}
