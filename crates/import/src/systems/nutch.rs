//! Apache Nutch: the files of its URL filters, `regex-normalize.xml` and `nutch-site.xml`.

mod filters;
pub(crate) mod normalize;
mod plugins;
mod site;
pub mod source;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, RuleIds, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, MAX_RULE_FILE, SourceText};
use crate::reference::nutch::NutchEvaluator;
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::settings::SettingsDraft;

use filters::FilterConverter;
use plugins::UsedPlugins;
use site::{SiteConverter, SiteProperty};
use source::{FilterFile, FilterPlugin};

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    if is_site(&text) || is_normalizer(&text) {
        return true;
    }
    let lines = text.lines();
    let mut lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let is_rule =
        |line: &str| line.starts_with(['+', '-']) && line.len() > 1 || line.starts_with(['>', '<']);
    let mut fast = text.lines().map(str::trim_start);
    fast.any(|line| line.starts_with("DenyPath"))
        || lines.next().is_some_and(is_rule) && lines.all(is_rule)
}

fn is_site(text: &str) -> bool {
    text.contains("<configuration") && text.contains("<property")
}

fn is_normalizer(text: &str) -> bool {
    text.contains("<regex-normalize")
}

/// The files of a source.
#[derive(Default)]
struct NutchSource {
    properties: Vec<SiteProperty>,
    /// The root element of the properties.
    root: Option<PartId>,
    filters: Vec<FilterFile>,
    normalizers: Vec<SourceText>,
    /// Plugins and files that are in use and were not read.
    missing: Vec<MissingFilter>,
}

/// A filter or a normalizer that Nutch uses, and that the import does not have.
struct MissingFilter {
    /// The property that names it, if one does.
    property: Option<String>,
    why: String,
    failure: MissingPart,
}

impl NutchSource {
    fn property(&self, name: &str) -> Option<&SiteProperty> {
        self.properties
            .iter()
            .find(|property| property.name == name)
    }

    /// Returns the name of a file, and the property that gives it.
    fn file_of(
        &self,
        name: &str,
        usual: String,
        input: &ImportInput<'_>,
    ) -> (Option<String>, String) {
        let Some(property) = self.property(name) else {
            return (None, usual);
        };
        let file = site::resolve(&property.value, &self.properties, input);
        let file = file.unwrap_or_else(|| property.value.clone());
        (Some(name.to_owned()), file)
    }

    fn plugins(&self) -> UsedPlugins {
        let value = |name: &str| self.property(name).map(|property| property.value.as_str());
        UsedPlugins::new(value("plugin.includes"), value("plugin.excludes"))
    }

    /// Announces what was not read.
    fn report_missing(&self, report: &mut Report) {
        let mut known: Vec<&SiteProperty> = Vec::new();
        for missing in &self.missing {
            let name = missing.property.as_deref().unwrap_or("plugin.includes");
            let Some(property) = self.property(name) else {
                self.report_default(missing, report);
                continue;
            };
            if known.iter().any(|known| known.name == property.name) {
                continue;
            }
            known.push(property);
            let same: Vec<&MissingFilter> = self
                .missing
                .iter()
                .filter(|other| other.property == missing.property)
                .collect();
            let why: Vec<&str> = same.iter().map(|missing| missing.why.as_str()).collect();
            let failure = match same
                .iter()
                .any(|missing| missing.failure == MissingPart::LetsThrough)
            {
                true => MissingPart::LetsThrough,
                false => MissingPart::OtherSetting,
            };
            let instead = Some("put the file beside this one, or write the rules by hand");
            for part in &property.parts {
                report.not_converted(*part, why.join("; "), failure, instead);
            }
        }
    }

    /// Announces the missing file of a plugin that no property names.
    fn report_default(&self, missing: &MissingFilter, report: &mut Report) {
        let Some(root) = self
            .root
            .filter(|_| missing.failure == MissingPart::LetsThrough)
        else {
            return;
        };
        let target = PartTarget {
            name: "disposition".to_owned(),
            need: PartNeed::Host,
        };
        let text = format!("every URL is allowed: {}", missing.why);
        report.assumed(root, target, text, AssumptionEffect::RefusesLess);
    }
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let source = read(input, &mut report)?;
    let name = input.name.as_deref().unwrap_or("nutch");
    let mut policy = PolicyDraft {
        name: to_slug(name),
        ..PolicyDraft::default()
    };
    // First, so that it is the first option.
    policy.options.set("disposition", "allow");
    let mut ids = RuleIds::default();
    let mut settings = SettingsDraft::default();
    if !source.properties.is_empty() {
        let mut site = SiteConverter {
            policy: &mut policy,
            report: &mut report,
            ids: &mut ids,
            settings: &mut settings,
            properties: &source.properties,
            plugins: source.plugins(),
            input,
        };
        site.convert();
    }
    source.report_missing(&mut report);
    for normalizer in &source.normalizers {
        normalize::convert(normalizer, &mut policy, &mut report)?;
    }
    let mut converter = FilterConverter {
        policy: &mut policy,
        report: &mut report,
        ids: &mut ids,
    };
    let lengths = convert_lengths(&source, &mut converter);
    converter.convert(&source.filters);
    let evaluator = NutchEvaluator::new(&source.filters, lengths, &report);
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}

/// Converts the maximum lengths of `urlfilter-fast`. Returns those that were.
fn convert_lengths(
    source: &NutchSource,
    converter: &mut FilterConverter<'_>,
) -> Vec<(&'static str, u64)> {
    let mut lengths = Vec::new();
    let has_fast = source
        .filters
        .iter()
        .any(|filter| filter.plugin == FilterPlugin::Fast);
    for (name, field) in [
        ("urlfilter.fast.url.max.length", "url"),
        ("urlfilter.fast.url.path.max.length", "path"),
        ("urlfilter.fast.url.query.max.length", "query"),
    ] {
        let Some(property) = source.property(name) else {
            continue;
        };
        match property.value.parse() {
            Ok(max) if has_fast => {
                converter.max_length(&property.parts, &format!("{field}-length"), field, max);
                lengths.push((field, max));
            }
            Ok(_) | Err(_) => {
                for part in &property.parts {
                    let why = "no length is limited, or urlfilter-fast is not used";
                    converter.report.unrelated(*part, why);
                }
            }
        }
    }
    lengths
}

fn read(input: &ImportInput<'_>, report: &mut Report) -> Result<NutchSource, ImportError> {
    let mut source = NutchSource::default();
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_RULE_FILE)?;
        read_file(&text, &path.path, &mut source, report)?;
    }
    if !source.properties.is_empty() {
        find_files(input, &mut source, report)?;
    }
    sort_by_order(&mut source);
    Ok(source)
}

fn read_file(
    text: &SourceText,
    path: &str,
    source: &mut NutchSource,
    report: &mut Report,
) -> Result<(), ImportError> {
    let is_xml = text.text.trim_start().starts_with('<') && path.ends_with(".xml");
    if is_xml && text.text.len() > MAX_DOCUMENT {
        let place = crate::input::Place::start(path);
        return Err(ImportError::invalid(&place, "larger than 16 MiB"));
    }
    if is_xml && is_normalizer(&text.text) {
        source.normalizers.push(text.clone());
    } else if is_xml {
        let (root, properties) = site::read_properties(text, report)?;
        source.root = source.root.or(root);
        source.properties.extend(properties);
    } else {
        let plugin = FilterPlugin::of_file(path, &text.text);
        source
            .filters
            .push(source::read_filter(plugin, text, report)?);
    }
    Ok(())
}

/// Reads the files that `nutch-site.xml` names, or that have their usual names beside it.
fn find_files(
    input: &ImportInput<'_>,
    source: &mut NutchSource,
    report: &mut Report,
) -> Result<(), ImportError> {
    let directory = input.paths.first().map_or("", |path| {
        path.path
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory)
    });
    let in_directory = |name: &str| match directory {
        "" => name.to_owned(),
        directory => format!("{directory}/{name}"),
    };
    let plugins = source.plugins();
    for plugin in FilterPlugin::ALL {
        let is_read = source.filters.iter().any(|filter| filter.plugin == plugin);
        let name = format!("urlfilter-{}", plugin.word());
        if is_read || !plugins.uses(&name) {
            continue;
        }
        let (property, file) = source.file_of(
            &format!("urlfilter.{}.file", plugin.word()),
            plugin.file_name(),
            input,
        );
        match read_beside(input, &in_directory(&file), MAX_RULE_FILE)? {
            Some(text) => source
                .filters
                .push(source::read_filter(plugin, &text, report)?),
            None => source.missing.push(MissingFilter {
                property,
                why: format!("{file}, the file of {name}, is not beside this one"),
                failure: MissingPart::LetsThrough,
            }),
        }
    }
    let unknown = plugins.unknown_filters().into_iter();
    source.missing.extend(unknown.map(|why| MissingFilter {
        property: None,
        why,
        failure: MissingPart::LetsThrough,
    }));
    if plugins.uses("urlnormalizer-regex") && source.normalizers.is_empty() {
        let name = "urlnormalizer.regex.file";
        let (property, file) = source.file_of(name, "regex-normalize.xml".to_owned(), input);
        match read_beside(input, &in_directory(&file), MAX_DOCUMENT)? {
            Some(text) => source.normalizers.push(text),
            None => source.missing.push(MissingFilter {
                property,
                why: format!("{file}, the file of urlnormalizer-regex, is not beside this one"),
                failure: MissingPart::OtherSetting,
            }),
        }
    }
    Ok(())
}

/// Reads a file; `None` if there is none.
fn read_beside(
    input: &ImportInput<'_>,
    path: &str,
    max: usize,
) -> Result<Option<SourceText>, ImportError> {
    match input.read_text(path, max) {
        Ok(text) => Ok(Some(text)),
        Err(ImportError::File { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sorts the filters by `urlfilter.order`; those that it does not name come last.
fn sort_by_order(source: &mut NutchSource) {
    let Some(order) = source.property("urlfilter.order") else {
        return;
    };
    let order: Vec<String> = order.value.split_whitespace().map(str::to_owned).collect();
    let position = |filter: &FilterFile| {
        let named = |name: &String| name.rsplit('.').next() == Some(filter.plugin.class_name());
        order.iter().position(named).unwrap_or(usize::MAX)
    };
    source.filters.sort_by_key(position);
}
