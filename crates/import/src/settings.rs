//! A proposal of the settings that are not policy: `configuration.yaml`.

use serde_json::Value as Json;

use crate::yaml::{YamlEntry, YamlNode, write_document};

/// Settings that the source implies for crawlgate's configuration. They are never applied.
#[derive(Debug, Default)]
pub struct SettingsDraft {
    pub crawlers: Vec<CrawlerProposal>,
    /// Other settings, by path (`timeouts.connect`), each with a comment.
    pub settings: Vec<(String, Json, String)>,
}

/// A crawler of the configuration.
#[derive(Clone, Debug, Default)]
pub struct CrawlerProposal {
    pub name: String,
    /// Comments above the entry.
    pub notes: Vec<String>,
    /// The keys of the entry besides the name, such as `profile`, `port`, `may`.
    pub keys: Vec<(String, Json)>,
}

impl SettingsDraft {
    pub(crate) fn to_yaml(&self) -> String {
        let mut entries = Vec::new();
        if !self.crawlers.is_empty() {
            let crawlers = self.crawlers.iter().map(CrawlerProposal::to_item).collect();
            entries.push(YamlEntry::new("crawlers", YamlNode::List(crawlers)));
        }
        let mut settings = Vec::new();
        for (path, value, note) in &self.settings {
            let notes = vec![note.clone()];
            crate::yaml::insert(&mut settings, path, YamlNode::from_json(value), notes);
        }
        entries.extend(settings);
        let head = [
            "A proposal of the settings that are not policy. Nothing reads this file: copy what you want into crawlgate.yaml.",
        ];
        write_document(&head.map(str::to_owned), &entries)
    }
}

impl CrawlerProposal {
    fn to_item(&self) -> crate::yaml::Item {
        let mut entries = vec![YamlEntry::new("name", YamlNode::text(&self.name))];
        for (key, value) in &self.keys {
            entries.push(YamlEntry::new(key, YamlNode::from_json(value)));
        }
        crate::yaml::Item {
            notes: self.notes.clone(),
            node: Some(YamlNode::Map(entries)),
        }
    }
}
