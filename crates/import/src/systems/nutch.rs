//! Apache Nutch: the files of its URL filters, `regex-normalize.xml` and `nutch-site.xml`.

mod filters;
pub(crate) mod normalize;
mod site;
pub mod source;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, RuleIds, to_slug};
use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, MAX_RULE_FILE, SourceText};
use crate::reference::nutch::NutchEvaluator;
use crate::report::Report;
use crate::settings::SettingsDraft;

use filters::FilterConverter;
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
    filters: Vec<FilterFile>,
    normalizers: Vec<SourceText>,
}

impl NutchSource {
    fn property(&self, name: &str) -> Option<&SiteProperty> {
        self.properties
            .iter()
            .find(|property| property.name == name)
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
            input,
        };
        site.convert();
    }
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
    if source.filters.is_empty() && !source.properties.is_empty() {
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
        source
            .properties
            .extend(site::read_properties(text, report)?);
    } else {
        let plugin = FilterPlugin::of_file(path, &text.text);
        source
            .filters
            .push(source::read_filter(plugin, text, report)?);
    }
    Ok(())
}

/// The plugins that Nutch uses if the property does not say.
const DEFAULT_PLUGINS: &str = "urlfilter-(regex|validator)|urlnormalizer-(pass|regex|basic)";

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
    let plugins = source.property("plugin.includes");
    let plugins = plugins.map_or(DEFAULT_PLUGINS, |property| property.value.as_str());
    let pattern = fancy_regex::Regex::new(&format!("^(?:{plugins})$")).ok();
    let is_used = |plugin: &str| {
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(plugin).unwrap_or(true))
    };
    let mut names = Vec::new();
    for plugin in FilterPlugin::ALL {
        if is_used(&format!("urlfilter-{}", plugin.word())) {
            let property = source.property(&format!("urlfilter.{}.file", plugin.word()));
            let name = property.map(|property| property.value.clone());
            names.push((plugin, name.unwrap_or_else(|| plugin.file_name())));
        }
    }
    let has_normalizer = is_used("urlnormalizer-regex") && source.normalizers.is_empty();
    for (plugin, name) in names {
        match input.read_text(&in_directory(&name), MAX_RULE_FILE) {
            Ok(text) => source
                .filters
                .push(source::read_filter(plugin, &text, report)?),
            Err(ImportError::File { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let name = source.property("urlnormalizer.regex.file");
    let name = name.map_or("regex-normalize.xml", |property| property.value.as_str());
    if has_normalizer {
        match input.read_text(&in_directory(name), MAX_DOCUMENT) {
            Ok(text) => source.normalizers.push(text),
            Err(ImportError::File { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
