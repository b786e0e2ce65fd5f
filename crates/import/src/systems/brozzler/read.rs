//! Reads a job: every key is a part.

use std::io::Read;

use crawlgate_policy::internal::diagnostics::problems::Problems;
use crawlgate_policy::internal::yaml::{Node, YamlValue, parse};

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place};
use crate::report::{MissingPart, PartId, Report};
use crate::systems::brozzler::{
    BrozzlerJob, BrozzlerScope, BrozzlerSeed, MatchCondition, MatchRule,
};

pub(super) fn read(
    input: &ImportInput<'_>,
    report: &mut Report,
) -> Result<BrozzlerJob, ImportError> {
    let mut job = BrozzlerJob::default();
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_DOCUMENT)?;
        let mut problems = Problems::new();
        let node = parse(&text.file, text.text.as_str(), &mut problems);
        let Some(node) = node else {
            let first = problems.into_vec().into_iter().next();
            let why = first.map_or_else(String::new, |problem| format!(": {}", problem.message));
            let message = format!("neither YAML nor JSON{why}");
            return Err(ImportError::invalid(&Place::start(&path.path), message));
        };
        let file = Place::start(&path.path);
        let mut reader = BrozzlerReader { report, file };
        reader.job(&node, &mut job);
    }
    Ok(job)
}

struct BrozzlerReader<'r> {
    report: &'r mut Report,
    file: Place,
}

/// A key with its place and its value.
type JobEntry<'n> = (&'n str, Place, &'n Node);

impl BrozzlerReader<'_> {
    fn entries<'n>(&self, node: &'n Node) -> Vec<JobEntry<'n>> {
        let YamlValue::Mapping(entries) = &node.value else {
            return Vec::new();
        };
        let entries = entries.iter().map(|entry| {
            let place = Place {
                line: entry.key.place.line,
                column: entry.key.place.column,
                ..self.file.clone()
            };
            (&*entry.key.text, place, &entry.value)
        });
        entries.collect()
    }

    fn items<'n>(&self, node: &'n Node) -> &'n [Node] {
        match &node.value {
            YamlValue::Sequence(items) => items,
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::Int(..)
            | YamlValue::Float(..)
            | YamlValue::Text(_)
            | YamlValue::Mapping(_) => &[],
        }
    }

    fn add(&mut self, place: Place, key: &str, value: &Node) -> PartId {
        let is_secret = ["password", "username", "user", "token"].contains(&key);
        let text = match value.spelling() {
            Some(_) if is_secret => format!("{key}: ***"),
            Some(text) => format!("{key}: {text}"),
            None => format!("{key}:"),
        };
        self.report.add(place, text)
    }

    fn job(&mut self, node: &Node, job: &mut BrozzlerJob) {
        let is_job = node.get("seeds").is_some();
        job.has_seeds |= is_job;
        if !is_job {
            self.warcprox_meta(node, job);
            return;
        }
        for (key, place, value) in self.entries(node) {
            let part = self.add(place, key, value);
            match key {
                "seeds" => {
                    self.report.unrelated(part, "its seeds follow");
                    let seeds = self.items(value);
                    for seed in seeds {
                        self.seed(seed, seeds.len() > 1, job);
                    }
                }
                "scope" => job.scope = self.scope(part, value),
                key => self.setting(part, key, value, job),
            }
        }
    }

    fn seed(&mut self, node: &Node, is_one_of_many: bool, job: &mut BrozzlerJob) {
        let mut seed = None;
        let mut scope = BrozzlerScope::default();
        for (key, place, value) in self.entries(node) {
            let part = self.add(place, key, value);
            match key {
                "url" => seed = value.spelling().map(|url| (part, url.to_owned())),
                "scope" => scope = self.scope(part, value),
                "warcprox_meta" if is_one_of_many && value.get("blocks").is_some() => {
                    self.report.not_converted(
                        part,
                        "its blocks are for one seed, and requests do not say for which seed they are",
                        MissingPart::LetsThrough,
                        Some("the same blocks for the job"),
                    );
                }
                "ignore_robots" if is_one_of_many => self.report.not_converted(
                    part,
                    "it is for one seed",
                    MissingPart::OtherSetting,
                    Some("`set: { robots: { obey: false } }` in the rule of the seed"),
                ),
                key => self.setting(part, key, value, job),
            }
        }
        if let Some((part, url)) = seed {
            job.seeds.push(BrozzlerSeed { part, url, scope });
        }
    }

    fn setting(&mut self, part: PartId, key: &str, value: &Node, job: &mut BrozzlerJob) {
        match key {
            "ignore_robots" => {
                job.options
                    .push((part, "robots.obey", value.value != YamlValue::Bool(true)));
            }
            "warcprox_meta" => {
                self.report.unrelated(part, "its keys follow");
                self.warcprox_meta(value, job);
            }
            "time_limit" => self.report.not_converted(
                part,
                "a limit on the time of a crawl",
                MissingPart::LetsThrough,
                Some("end the crawl in brozzler"),
            ),
            "pdfs_only" => self.report.not_converted(
                part,
                "which documents brozzler keeps",
                MissingPart::LetsThrough,
                Some("`then: exclude-but-scan` for pages, `require` for PDFs"),
            ),
            _ => self.unrelated(part, value, "none of a policy's business"),
        }
    }

    /// Lists a key, and everything in its value, as unrelated.
    fn unrelated(&mut self, part: PartId, value: &Node, why: &str) {
        for part in self.with_value(part, value) {
            self.report.unrelated(part, why);
        }
    }

    /// Adds everything in the value of a key to the report. Returns these parts, after that of the key.
    fn with_value(&mut self, part: PartId, value: &Node) -> Vec<PartId> {
        let mut parts = vec![part];
        for (key, place, value) in self.entries(value) {
            let part = self.add(place, key, value);
            parts.extend(self.with_value(part, value));
        }
        for item in self.items(value) {
            let place = Place {
                line: item.place.line,
                column: item.place.column,
                ..self.file.clone()
            };
            let text = item.spelling().map(|text| format!("- {text}"));
            let part = self
                .report
                .add(place, text.unwrap_or_else(|| "-".to_owned()));
            parts.extend(self.with_value(part, item));
        }
        parts
    }

    fn scope(&mut self, part: PartId, node: &Node) -> BrozzlerScope {
        self.report.unrelated(part, "its rules follow");
        let mut scope = BrozzlerScope::default();
        for (key, place, value) in self.entries(node) {
            let part = self.add(place.clone(), key, value);
            match (key, &value.value) {
                ("accepts", _) => {
                    self.report.unrelated(part, "its rules follow");
                    scope.accepts.extend(self.rules(value));
                }
                ("blocks", _) => {
                    self.report.unrelated(part, "its rules follow");
                    scope.blocks.extend(self.rules(value));
                }
                ("surt", _) => {
                    let value = value.spelling().unwrap_or_default().to_owned();
                    let condition = MatchCondition {
                        part,
                        key: "surt".to_owned(),
                        value,
                    };
                    let conditions = vec![condition];
                    scope.accepts.push(MatchRule {
                        line: place.line,
                        conditions,
                        problem: None,
                    });
                }
                ("max_hops", YamlValue::Int(hops, _)) => scope.max_hops = Some((part, *hops)),
                ("max_hops_off" | "max_hops_off_surt", YamlValue::Int(0, _)) => {
                    self.report.unrelated(part, "the default");
                }
                ("max_hops_off" | "max_hops_off_surt", _) => self.report.not_converted(
                    part,
                    "the number of hops since a page in scope is not known",
                    MissingPart::KeepsOut,
                    Some("a rule for the hosts that are linked"),
                ),
                _ => self
                    .report
                    .not_converted(part, "not known", MissingPart::LetsThrough, None),
            }
        }
        scope
    }

    fn rules(&mut self, node: &Node) -> Vec<MatchRule> {
        let mut rules = Vec::new();
        for item in self.items(node) {
            let mut rule = MatchRule {
                line: item.place.line,
                conditions: Vec::new(),
                problem: None,
            };
            for (key, place, value) in self.entries(item) {
                let part = self.add(place, key, value);
                let value = value.spelling().unwrap_or_default().to_owned();
                let is_known = matches!(
                    key,
                    "domain"
                        | "substring"
                        | "regex"
                        | "surt"
                        | "ssurt"
                        | "parent_url_regex"
                        | "url_match"
                        | "value"
                );
                if !is_known {
                    rule.problem = Some(format!("the condition {key} is not known"));
                }
                rule.conditions.push(MatchCondition {
                    part,
                    key: key.to_owned(),
                    value,
                });
            }
            rules.push(rule);
        }
        rules
    }

    fn warcprox_meta(&mut self, node: &Node, job: &mut BrozzlerJob) {
        for (key, place, value) in self.entries(node) {
            let part = self.add(place, key, value);
            match key {
                "blocks" => {
                    self.report.unrelated(part, "its rules follow");
                    let rules = self.rules(value);
                    job.warcprox_blocks.extend(rules);
                }
                "compressed_blocks" => self.compressed_blocks(part, value, job),
                "limits" | "soft-limits" => {
                    for part in self.with_value(part, value) {
                        self.report.not_converted(
                            part,
                            "limits of buckets are those of a whole crawl",
                            MissingPart::LetsThrough,
                            Some("`budget` limits a day"),
                        );
                    }
                }
                "mime-type-filters" => {
                    for part in self.with_value(part, value) {
                        self.report.not_converted(
                            part,
                            "they choose what is written, not what is fetched",
                            MissingPart::OtherSetting,
                            Some("`forbid: { content_type: … }` if it need not be fetched"),
                        );
                    }
                }
                _ => self.unrelated(part, value, "how and where warcprox writes"),
            }
        }
    }

    /// Reads blocks that are JSON in zlib in base64.
    fn compressed_blocks(&mut self, part: PartId, node: &Node, job: &mut BrozzlerJob) {
        let text = node.spelling().and_then(unpack);
        let mut problems = Problems::new();
        let rules = text.and_then(|text| parse(&self.file.file, text.as_str(), &mut problems));
        let Some(rules) = rules else {
            let why = "neither base64 of zlib of JSON, nor small enough";
            let instead = Some("the same rules as `blocks`");
            self.report
                .not_converted(part, why, MissingPart::LetsThrough, instead);
            return;
        };
        self.report.unrelated(part, "its rules follow");
        let inner = format!("{}#compressed_blocks", self.file.file);
        let outer = std::mem::replace(&mut self.file, Place::start(&inner));
        let rules = self.rules(&rules);
        self.file = outer;
        job.warcprox_blocks.extend(rules);
    }
}

/// Decodes base64 and zlib, to 16 times the size and 16 MiB at most.
fn unpack(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let (mut value, mut bits) = (0_u32, 0);
    for c in text
        .bytes()
        .filter(|c| !c.is_ascii_whitespace() && *c != b'=')
    {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        value = (value << 6 | u32::from(digit)) & 0xff_ffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((value >> bits & 0xff) as u8);
        }
    }
    let limit = MAX_DOCUMENT.min(bytes.len().saturating_mul(16).max(1 << 20));
    let decoder = flate2::read::ZlibDecoder::new(bytes.as_slice());
    let mut unpacked = Vec::new();
    let length = decoder
        .take(limit as u64 + 1)
        .read_to_end(&mut unpacked)
        .ok()?;
    String::from_utf8(unpacked).ok().filter(|_| length <= limit)
}
