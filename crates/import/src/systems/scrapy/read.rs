//! Finds settings and spiders among the statements of files.

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place};
use crate::report::{MissingPart, PartId, Report};
use crate::systems::scrapy::python::{
    self, Argument, Call, PythonNames, PythonValue, StatementKind,
};
use crate::systems::scrapy::token::tokenize;
use crate::systems::scrapy::{LinkExpression, ScrapySetting, ScrapySource, Spider, SpiderRule};

pub(super) fn read(
    input: &ImportInput<'_>,
    report: &mut Report,
) -> Result<ScrapySource, ImportError> {
    let mut source = ScrapySource::default();
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_DOCUMENT)?;
        let file = Place::start(&path.path);
        let tokens = tokenize(&text.text).map_err(|(line, why)| {
            ImportError::invalid(
                &Place {
                    line,
                    ..file.clone()
                },
                why,
            )
        })?;
        let mut reader = ScrapyReader { report, file };
        let statements = python::parse(&tokens, &mut PythonNames::new());
        reader.read_module(statements, &mut source);
    }
    Ok(source)
}

struct ScrapyReader<'r> {
    report: &'r mut Report,
    file: Place,
}

/// Attributes of a spider that say which pages it may fetch.
const SCOPE: [&str; 5] = [
    "allowed_domains",
    "start_urls",
    "rules",
    "sitemap_rules",
    "sitemap_follow",
];

impl ScrapyReader<'_> {
    /// Adds a part; values are shown only where they cannot be secrets.
    fn add(&mut self, line: u32, column: u32, text: impl Into<String>) -> PartId {
        let place = Place {
            line,
            column,
            ..self.file.clone()
        };
        self.report.add(place, text)
    }

    fn read_module(&mut self, statements: Vec<python::Statement>, source: &mut ScrapySource) {
        let upper = |statement: &python::Statement| matches!(&statement.kind, StatementKind::Assign(name, _) if is_setting(name));
        let classes =
            |statement: &python::Statement| matches!(statement.kind, StatementKind::Class { .. });
        let is_settings = statements.iter().any(upper) && !statements.iter().any(classes);
        source.has_settings |= is_settings;
        for statement in statements {
            let (line, column) = (statement.line, statement.column);
            match statement.kind {
                StatementKind::Assign(name, value) if is_settings => {
                    let part = self.add(line, column, shown(&name, &value.value));
                    source.settings.push(ScrapySetting {
                        part,
                        name,
                        value: value.value,
                    });
                }
                StatementKind::Class { name, bases, body } => {
                    let part =
                        self.add(line, column, format!("class {name}({})", bases.join(", ")));
                    self.read_class(part, &name, &bases, body, source);
                }
                kind @ (StatementKind::Assign(..)
                | StatementKind::Function { .. }
                | StatementKind::Import
                | StatementKind::Text
                | StatementKind::Other { .. }) => self.other(line, column, &kind, is_settings),
            }
        }
    }

    fn other(&mut self, line: u32, column: u32, kind: &StatementKind, is_settings: bool) {
        match kind {
            StatementKind::Assign(name, _) => {
                let part = self.add(line, column, format!("{name} = …"));
                self.report
                    .unrelated(part, "a constant; where it is used, its value is");
            }
            StatementKind::Import => {
                let part = self.add(line, column, "import");
                self.report.unrelated(part, "imports are not followed");
            }
            StatementKind::Text => {
                let part = self.add(line, column, "a text");
                self.report.unrelated(part, "documentation");
            }
            StatementKind::Function { name, .. } => {
                let part = self.add(line, column, format!("def {name}"));
                self.report.unrelated(part, "code, which is not run");
            }
            StatementKind::Class { name, .. } => {
                let part = self.add(line, column, format!("class {name}"));
                self.report.unrelated(part, "no spider");
            }
            StatementKind::Other { word, names } => {
                let part = self.add(line, column, format!("{word} …"));
                let decides = names
                    .iter()
                    .find(|name| SCOPE.contains(&name.as_str()) || is_settings && is_setting(name));
                match decides {
                    Some(name) => self.report.not_converted(
                        part,
                        format!("{name} depends on code that is not run"),
                        MissingPart::LetsThrough,
                        Some("write the value as a literal"),
                    ),
                    None => self.report.unrelated(part, "code, which is not run"),
                }
            }
        }
    }

    fn read_class(
        &mut self,
        part: PartId,
        name: &str,
        bases: &[String],
        body: Vec<python::Statement>,
        source: &mut ScrapySource,
    ) {
        let is_spider = bases.iter().any(|base| base.ends_with("Spider"))
            || body.iter().any(|statement| {
                matches!(&statement.kind, StatementKind::Assign(name, _) if SCOPE.contains(&name.as_str()))
            });
        if !is_spider {
            self.report.unrelated(part, "no spider");
            return;
        }
        self.report
            .unrelated(part, "a spider; its attributes follow");
        let mut spider = Spider {
            name: name.to_owned(),
            ..Spider::default()
        };
        for statement in body {
            let (line, column) = (statement.line, statement.column);
            match statement.kind {
                StatementKind::Assign(name, value) => {
                    self.read_attribute(line, column, &name, value, &mut spider);
                }
                StatementKind::Function { name, requests } if !requests.is_empty() => {
                    let part = self.add(line, column, format!("def {name}"));
                    self.report.unrelated(part, "code, which is not run");
                    for line in requests {
                        let part = self.add(line, 1, format!("a request in {name}"));
                        spider.requests.push(part);
                    }
                }
                kind @ (StatementKind::Class { .. }
                | StatementKind::Function { .. }
                | StatementKind::Import
                | StatementKind::Text
                | StatementKind::Other { .. }) => self.other(line, column, &kind, false),
            }
        }
        source.spiders.push(spider);
    }

    fn read_attribute(
        &mut self,
        line: u32,
        column: u32,
        name: &str,
        value: Argument,
        spider: &mut Spider,
    ) {
        let part = self.add(line, column, shown(name, &value.value));
        match (name, value.value) {
            ("name", PythonValue::Text(text)) => {
                spider.name = text;
                self.report
                    .unrelated(part, "the name of the crawler in configuration.yaml");
            }
            ("allowed_domains", value) => match texts(&value) {
                Some(domains) => spider.allowed_domains = Some((part, domains)),
                None => self.computed(part, name, MissingPart::LetsThrough),
            },
            ("start_urls", value) => match texts(&value) {
                Some(urls) => spider.start_urls = Some((part, urls)),
                None => self.computed(part, name, MissingPart::KeepsOut),
            },
            ("custom_settings", PythonValue::Dict(entries)) => {
                self.report.unrelated(part, "its settings follow");
                for (key, value) in entries {
                    let key = key.as_text().unwrap_or("…").to_owned();
                    let part = self.add(value.line, value.column, shown(&key, &value.value));
                    spider.settings.push(ScrapySetting {
                        part,
                        name: key,
                        value: value.value,
                    });
                }
            }
            ("custom_settings", _) => self.computed(part, name, MissingPart::OtherSetting),
            ("rules", PythonValue::List(values)) => {
                self.report.unrelated(part, "its rules follow");
                let rules = values
                    .into_iter()
                    .map(|value| self.read_rule(value, line, column));
                spider.rules = Some(rules.collect());
            }
            ("rules", value @ PythonValue::Call(_)) => {
                self.report.unrelated(part, "its rule follows");
                spider.rules = Some(vec![self.read_rule(value, line, column)]);
            }
            ("rules", _) => {
                self.computed(part, name, MissingPart::KeepsOut);
                spider.rules = Some(Vec::new());
            }
            ("sitemap_rules" | "sitemap_follow" | "sitemap_filter", _) => {
                self.report.not_converted(
                    part,
                    "which URLs of sitemaps are fetched depends on the sitemap",
                    MissingPart::LetsThrough,
                    Some("rules with the same expressions on `url`"),
                )
            }
            (name, _) if is_setting(name) || name == "download_delay" => {
                self.report
                    .unrelated(part, "an attribute that Scrapy does not read as a setting");
            }
            _ => self
                .report
                .unrelated(part, "an attribute of the spider's own code"),
        }
    }

    fn computed(&mut self, part: PartId, name: &str, failure: MissingPart) {
        self.report.not_converted(
            part,
            format!("{name} is computed when the spider runs"),
            failure,
            Some("write the value as a literal"),
        );
    }

    fn read_rule(&mut self, value: PythonValue, line: u32, column: u32) -> SpiderRule {
        let call = match value {
            PythonValue::Call(call) if call.name == "Rule" || is_extractor(&call.name) => call,
            PythonValue::Call(_)
            | PythonValue::Text(_)
            | PythonValue::Number(_)
            | PythonValue::Bool(_)
            | PythonValue::None
            | PythonValue::List(_)
            | PythonValue::Dict(_)
            | PythonValue::Computed => {
                let part = self.add(line, column, "a rule");
                return SpiderRule {
                    part: Some(part),
                    line,
                    problem: Some("it is computed when the spider runs".to_owned()),
                    ..SpiderRule::default()
                };
            }
        };
        let part = self.add(call.line, call.column, format!("{}(…)", call.name));
        let mut rule = SpiderRule {
            part: Some(part),
            line: call.line,
            ..SpiderRule::default()
        };
        for (index, (key, argument)) in call.arguments.into_iter().enumerate() {
            let key = key.unwrap_or_else(|| {
                let names = [
                    "link_extractor",
                    "callback",
                    "cb_kwargs",
                    "follow",
                    "process_links",
                    "process_request",
                ];
                names.get(index).copied().unwrap_or("…").to_owned()
            });
            match (key.as_str(), argument.value) {
                ("link_extractor", PythonValue::Call(call)) if is_extractor(&call.name) => {
                    self.read_extractor(call, &mut rule);
                }
                ("link_extractor", _) => {
                    let part = self.add(argument.line, argument.column, "a link extractor");
                    let why = "its link extractor is computed or of another class";
                    self.report
                        .not_converted(part, why, MissingPart::KeepsOut, None);
                    rule.problem = Some(why.to_owned());
                }
                (key @ ("process_links" | "process_request"), value)
                    if value != PythonValue::None =>
                {
                    let part = self.add(argument.line, argument.column, format!("{key} = …"));
                    let why = "a function of the spider can drop links";
                    self.report
                        .not_converted(part, why, MissingPart::LetsThrough, None);
                }
                (key, value) => {
                    let part = self.add(argument.line, argument.column, shown(key, &value));
                    self.report
                        .unrelated(part, "what the spider does with the pages");
                    if let ("callback", PythonValue::Text(text)) = (key, value) {
                        rule.callback = Some(text);
                    }
                }
            }
        }
        rule
    }

    fn read_extractor(&mut self, call: Call, rule: &mut SpiderRule) {
        let names = [
            "allow",
            "deny",
            "allow_domains",
            "deny_domains",
            "restrict_xpaths",
        ];
        for (index, (key, argument)) in call.arguments.into_iter().enumerate() {
            let key = key.unwrap_or_else(|| names.get(index).copied().unwrap_or("…").to_owned());
            let part = self.add(argument.line, argument.column, shown(&key, &argument.value));
            self.read_link_argument(&key, &argument.value, part, rule);
        }
    }

    fn read_link_argument(
        &mut self,
        key: &str,
        value: &PythonValue,
        part: PartId,
        rule: &mut SpiderRule,
    ) {
        let is_empty = matches!(value, PythonValue::None)
            || matches!(value, PythonValue::List(list) if list.is_empty());
        match key {
            "deny_extensions" if *value == PythonValue::None => {
                self.report.unrelated(part, "the default");
            }
            "deny_extensions" => match texts(value) {
                Some(found) => rule.deny_extensions = Some((part, found)),
                None => {
                    self.computed(part, key, MissingPart::LetsThrough);
                    rule.deny_extensions = Some((part, Vec::new()));
                }
            },
            _ if is_empty => self.report.unrelated(part, "empty: it has no effect"),
            "allow" => match expressions(value) {
                Some(found) => rule.allow = Some((part, found)),
                None => {
                    self.computed(part, key, MissingPart::KeepsOut);
                    rule.problem = Some("its allow is computed".to_owned());
                }
            },
            "allow_domains" => match texts(value) {
                Some(found) => rule.allow_domains = Some((part, found)),
                None => {
                    self.computed(part, key, MissingPart::KeepsOut);
                    rule.problem = Some("its allow_domains are computed".to_owned());
                }
            },
            "deny" => match expressions(value) {
                Some(found) => rule.deny = Some((part, found)),
                None => self.computed(part, key, MissingPart::LetsThrough),
            },
            "deny_domains" => match texts(value) {
                Some(found) => rule.deny_domains = Some((part, found)),
                None => self.computed(part, key, MissingPart::LetsThrough),
            },
            "restrict_xpaths" | "restrict_css" | "restrict_text" | "tags" | "attrs"
            | "process_value" => {
                self.report.not_converted(
                    part,
                    "which links of a page are followed depends on the page",
                    MissingPart::LetsThrough,
                    Some("an expression in `allow` that fits the links"),
                );
            }
            "canonicalize" | "unique" | "strip" => {
                self.report.unrelated(part, "how the spider collects links");
            }
            _ => self.report.not_converted(
                part,
                "an argument that is not known",
                MissingPart::LetsThrough,
                None,
            ),
        }
    }
}

fn is_extractor(name: &str) -> bool {
    name.ends_with("LinkExtractor")
}

fn is_setting(name: &str) -> bool {
    name.len() > 2
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
}

/// Returns a text, or the texts of a list.
fn texts(value: &PythonValue) -> Option<Vec<String>> {
    match value {
        PythonValue::Text(text) => Some(vec![text.clone()]),
        PythonValue::List(values) => values
            .iter()
            .map(|value| value.as_text().map(str::to_owned))
            .collect(),
        PythonValue::Number(_)
        | PythonValue::Bool(_)
        | PythonValue::None
        | PythonValue::Dict(_)
        | PythonValue::Call(_)
        | PythonValue::Computed => None,
    }
}

/// Returns the expressions of a text, of `re.compile`, or of a list of them.
fn expressions(value: &PythonValue) -> Option<Vec<LinkExpression>> {
    match value {
        PythonValue::Text(text) => Some(vec![LinkExpression {
            text: text.clone(),
            ignore_case: false,
        }]),
        PythonValue::Call(call) if call.name == "compile" => Some(vec![compiled(call)?]),
        PythonValue::List(values) => {
            let found: Option<Vec<Vec<LinkExpression>>> = values.iter().map(expressions).collect();
            found.map(|found| found.concat())
        }
        PythonValue::Number(_)
        | PythonValue::Bool(_)
        | PythonValue::None
        | PythonValue::Dict(_)
        | PythonValue::Call(_)
        | PythonValue::Computed => None,
    }
}

fn compiled(call: &Call) -> Option<LinkExpression> {
    let mut arguments = call.arguments.iter();
    let (_, pattern) = arguments.next()?;
    let PythonValue::Text(text) = &pattern.value else {
        return None;
    };
    let ignore_case = match arguments.next() {
        None => false,
        Some((_, flags)) if flags.value == PythonValue::Text("re.I".to_owned()) => true,
        Some(_) => return None,
    };
    Some(LinkExpression {
        text: text.clone(),
        ignore_case,
    })
}

/// Shows an assignment. Values are shown for names that say which pages are fetched, and how fast.
fn shown(name: &str, value: &PythonValue) -> String {
    let is_known = SCOPE.contains(&name)
        || matches!(
            name,
            "name"
                | "allow"
                | "deny"
                | "allow_domains"
                | "deny_domains"
                | "deny_extensions"
                | "callback"
                | "follow"
                | "restrict_xpaths"
                | "restrict_css"
        )
        || crate::systems::scrapy::settings::is_converted(name);
    match show(value).filter(|_| is_known) {
        Some(value) => format!("{name} = {value}"),
        None => format!("{name} = …"),
    }
}

fn show(value: &PythonValue) -> Option<String> {
    match value {
        PythonValue::Text(text) => Some(format!("{text:?}")),
        PythonValue::Number(number) => Some(number.to_string()),
        PythonValue::Bool(true) => Some("True".to_owned()),
        PythonValue::Bool(false) => Some("False".to_owned()),
        PythonValue::None => Some("None".to_owned()),
        PythonValue::List(values) => {
            let values: Option<Vec<String>> = values.iter().map(show).collect();
            Some(format!("[{}]", values?.join(", ")))
        }
        PythonValue::Call(call) if call.name == "compile" => Some("re.compile(…)".to_owned()),
        PythonValue::Dict(_) | PythonValue::Call(_) | PythonValue::Computed => None,
    }
}
