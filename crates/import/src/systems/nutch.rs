//! Apache Nutch: `regex-urlfilter.txt`.

use crate::draft::{Condition, GroupDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem, to_slug};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::input::{ImportError, ImportInput, MAX_RULE_FILE};
use crate::reference::nutch::RegexUrlFilter;
use crate::report::{MissingPart, PartId, PartNeed, Report};
use crate::settings::SettingsDraft;
use crate::system::Conversion;

/// A line of `regex-urlfilter.txt`.
#[derive(Clone, Debug)]
pub struct RegexLine {
    pub part: PartId,
    /// `+`: URLs that the expression fits are allowed.
    pub allows: bool,
    pub expression: String,
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let mut lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_rule = |line: &str| line.starts_with(['+', '-']) && line.len() > 1;
    lines.next().is_some_and(is_rule) && lines.all(is_rule)
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let mut lines = Vec::new();
    for path in &input.paths {
        let source = input.read_text(&path.path, MAX_RULE_FILE)?;
        for (place, line) in source.lines() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let part = report.add(place.clone(), line);
            let allows = match line.as_bytes().first() {
                Some(b'+') => true,
                Some(b'-') => false,
                _ => return Err(ImportError::invalid(&place, "a rule begins with + or -")),
            };
            let expression = line.get(1..).unwrap_or_default().to_owned();
            lines.push(RegexLine {
                part,
                allows,
                expression,
            });
        }
    }
    let mut ids = RuleIds::default();
    let rules = lines.iter().map(|line| rule(line, &mut report, &mut ids));
    let group = GroupDraft {
        first: true,
        rules: rules.collect(),
        ..GroupDraft::default()
    };
    let name = input.name.as_deref().unwrap_or("nutch");
    let mut policy = PolicyDraft {
        name: to_slug(name),
        ..PolicyDraft::default()
    };
    policy.options.set("disposition", "disallow");
    policy
        .rules
        .push(RuleDraft::group(ids.next("regex-urlfilter"), group).into());
    lines.retain(|line| report.is_converted(line.part));
    Ok(Conversion {
        policy,
        report,
        settings: SettingsDraft::default(),
        evaluator: Box::new(RegexUrlFilter::new(&lines)),
    })
}

fn rule(line: &RegexLine, report: &mut Report, ids: &mut RuleIds) -> RuleItem {
    let number = report.part(line.part).map_or(0, |part| part.place.line);
    let id = ids.next(&format!("line-{number}"));
    let condition = match line.expression.as_str() {
        "." => Ok(Condition::Always),
        text => {
            let expression = SourceExpression {
                text,
                dialect: Dialect::Java,
                anchoring: Anchoring::Search,
                ignore_case: false,
            };
            expression
                .translate("url")
                .map(|translated| translated.condition)
        }
    };
    match condition {
        Ok(condition) => {
            report.converted(line.part, id.as_str(), PartNeed::Url);
            let then = if line.allows { "allow" } else { "disallow" };
            RuleDraft::when(id, condition, then).into()
        }
        Err(why) => {
            let failure = if line.allows {
                MissingPart::KeepsOut
            } else {
                MissingPart::LetsThrough
            };
            report.not_converted(line.part, why.as_str(), failure, None);
            RuleItem::Comment(format!("not converted: {why}\n{}", line.expression))
        }
    }
}
