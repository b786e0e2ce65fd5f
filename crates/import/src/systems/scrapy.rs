//! Scrapy: `settings.py` and spiders. They are read, and never run.

mod convert;
mod extensions;
mod modules;
pub mod python;
mod read;
mod settings;
mod token;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, to_slug};
use crate::input::{ImportError, ImportInput};
use crate::reference::scrapy::ScrapyEvaluator;
use crate::report::{PartId, Report};
use crate::settings::SettingsDraft;

/// The spiders of a project, and its settings.
#[derive(Clone, Debug, Default)]
pub struct ScrapySource {
    pub settings: Vec<ScrapySetting>,
    /// A file of settings was among the files.
    pub has_settings: bool,
    pub spiders: Vec<Spider>,
}

/// A setting with a value that is a literal.
#[derive(Clone, Debug)]
pub struct ScrapySetting {
    pub part: PartId,
    pub name: String,
    pub value: python::PythonValue,
}

/// A spider.
#[derive(Clone, Debug, Default)]
pub struct Spider {
    pub name: String,
    pub settings: Vec<ScrapySetting>,
    pub allowed_domains: Option<(PartId, Vec<String>)>,
    pub start_urls: Option<(PartId, Vec<String>)>,
    /// `rules`, if it has any.
    pub rules: Option<Vec<SpiderRule>>,
    /// The lines on which it requests pages by itself.
    pub requests: Vec<SpiderRequest>,
    /// Attributes that are settings.
    pub attributes: Vec<ScrapySetting>,
}

/// A request in the code of a spider.
#[derive(Clone, Copy, Debug)]
pub struct SpiderRequest {
    pub part: PartId,
    /// It may go beyond `allowed_domains`.
    pub bypasses_filters: bool,
}

impl Spider {
    /// Returns `true` if the spider has a setting of its own.
    fn sets(&self, name: &str) -> bool {
        self.settings.iter().any(|setting| setting.name == name)
    }

    /// Returns the parts that decide which pages it fetches.
    fn parts(&self) -> Vec<PartId> {
        let lists = [&self.allowed_domains, &self.start_urls];
        let mut parts: Vec<PartId> = lists.into_iter().flatten().map(|(part, _)| *part).collect();
        parts.extend(self.settings.iter().map(|setting| setting.part));
        parts.extend(self.requests.iter().map(|request| request.part));
        parts.extend(self.rules.iter().flatten().flat_map(SpiderRule::parts));
        parts
    }
}

/// A `Rule` with its `LinkExtractor`.
#[derive(Clone, Debug, Default)]
pub struct SpiderRule {
    pub part: Option<PartId>,
    pub line: u32,
    /// The name of its callback.
    pub callback: Option<String>,
    pub allow: Option<(PartId, Vec<LinkExpression>)>,
    pub deny: Option<(PartId, Vec<LinkExpression>)>,
    pub allow_domains: Option<(PartId, Vec<String>)>,
    pub deny_domains: Option<(PartId, Vec<String>)>,
    /// `None`: the extensions that Scrapy ignores.
    pub deny_extensions: Option<(PartId, Vec<String>)>,
    /// The reason why the rule cannot be converted.
    pub problem: Option<String>,
}

impl SpiderRule {
    /// Returns the parts that have no outcome of their own.
    fn parts(&self) -> Vec<PartId> {
        let parts = [
            self.part,
            self.allow.as_ref().map(|(part, _)| *part),
            self.allow_domains.as_ref().map(|(part, _)| *part),
            self.deny.as_ref().map(|(part, _)| *part),
            self.deny_domains.as_ref().map(|(part, _)| *part),
            self.deny_extensions.as_ref().map(|(part, _)| *part),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// An expression of `allow` or `deny`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkExpression {
    pub text: String,
    pub ignore_case: bool,
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let has_line = |test: &dyn Fn(&str) -> bool| text.lines().any(test);
    has_line(&|line| line.starts_with("from scrapy") || line.starts_with("import scrapy"))
        || has_line(&|line| line.starts_with("SPIDER_MODULES") || line.starts_with("BOT_NAME"))
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let source = read::read(input, &mut report)?;
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("scrapy")),
        ..PolicyDraft::default()
    };
    let mut settings = SettingsDraft::default();
    convert::convert(&source, &mut policy, &mut settings, &mut report);
    let evaluator = ScrapyEvaluator::new(&source, &report);
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}
