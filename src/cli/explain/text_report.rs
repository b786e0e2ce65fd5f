//! An explanation as text: the tree of rules with outcomes and reasons, the options with the rules that set them, the
//! decision and the response.
//!
//! Long values are cut to the width of the terminal. JSON contains the complete values.

use serde_json::Value as Json;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::policy::decide::Verdict;
use crate::policy::explain::decisive_test::{DecisiveTest, ObservedValue};
use crate::policy::explain::{ExplainedRules, OptionExplanation, RuleExplanation, RuleStatus};
use crate::policy::fact::Fact;
use crate::policy::options::{OptionSetter, OptionValue};
use crate::policy::rule::{EnforcementMode, PolicyStage, RuleBody};
use crate::report::decision;
use crate::report::explanation::set_by;
use crate::report::response::{PredictedResponse, ProfileResponses};
use crate::robots::agent::{RobotsAgent, RobotsTokenSource};
use crate::urls::target::UrlTarget;

use super::wire_report;
use crate::cli::text::{ReportText, replace_controls, truncate, wrap};
use crate::console::Tone;

/// The options that an explanation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionDetail {
    /// The options that the policy sets, and the number of the others.
    SetOnly,
    All,
}

/// The maximum number of reasons shown for a rule.
const MAX_REASONS: usize = 3;
/// With less room than this to the right of the rules, reasons are shown below them.
const MIN_NOTE_COLUMNS: usize = 44;
/// The minimum width of a reason, however narrow the terminal is.
const MIN_COLUMNS: usize = 24;
const MAX_OPTION_VALUE_COLUMNS: usize = 32;

/// The parts of an explanation that do not come from the policy.
pub(super) struct Additions<'a> {
    /// The crawler's product token, if it is known.
    pub(super) agent: Option<RobotsAgent<'a>>,
    /// The member `wire` of the running proxy's explanation, if it was asked.
    pub(super) wire: Option<&'a Json>,
}

/// Adds the explanation to a report.
pub(super) fn render(
    evaluation: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
    additions: Additions<'_>,
    detail: OptionDetail,
    report: ReportText,
) -> ReportText {
    let mut text = ExplanationText {
        report,
        evaluation,
        facts,
        detail,
    };
    text.write_summary();
    if let Some(wire) = additions.wire {
        wire_report::write_summary(&mut text.report, wire);
    }
    text.write_rules();
    text.write_options();
    if let Some(agent) = additions.agent {
        text.write_robots_agent(agent);
    }
    text.write_decision();
    text.write_answer();
    text.report
}

/// An explanation under construction.
struct ExplanationText<'a> {
    report: ReportText,
    evaluation: &'a OfflineEvaluation<'a>,
    facts: &'a CaseFacts,
    detail: OptionDetail,
}

/// The widths of the columns in the list of rules.
#[derive(Clone, Copy)]
struct RuleColumns {
    names: usize,
    statuses: usize,
}

impl ExplanationText<'_> {
    fn write_summary(&mut self) {
        let url = replace_controls(self.facts.url());
        self.report.push_line(&self.paint(Tone::Strong, &url));
        let summary = replace_controls(&summary_sentence(self.evaluation));
        for line in wrap(&summary, self.report.width) {
            let line = self.paint(verdict_tone(self.evaluation), &line);
            self.report.push_line(&line);
        }
    }

    fn write_rules(&mut self) {
        let evaluation = self.evaluation;
        let ExplainedRules { rules, left_out } =
            evaluation.policy.explain_relevant_rules(&evaluation.trail);
        self.report.push_headline("Rules");
        if rules.is_empty() && left_out == 0 {
            self.report.push_line("  none");
        }
        let longest_name = rules.iter().map(|rule| indented_id(rule).len()).max();
        let longest_status = rules.iter().map(|rule| status_text(rule).len()).max();
        let columns = RuleColumns {
            names: longest_name.unwrap_or(0).min(self.report.width / 3).max(12),
            statuses: longest_status.unwrap_or(0),
        };
        for rule in &rules {
            self.write_rule(rule, columns);
        }
        if left_out > 0 {
            let line =
                format!("  {left_out} other rules have no effect on this URL; --all shows them");
            let line = self.paint(Tone::Faint, &line);
            self.report.push_line(&line);
        }
    }

    fn write_rule(&mut self, rule: &RuleExplanation<'_>, columns: RuleColumns) {
        let RuleColumns { names, statuses } = columns;
        let note_column = 2 + names + 2 + statuses + 2;
        // In a narrow terminal, notes get lines of their own.
        let own_lines = self.report.width < note_column + MIN_NOTE_COLUMNS;
        let indent = if own_lines {
            2 + 2 * rule.depth + 4
        } else {
            note_column
        };
        let note_width = self.report.width.saturating_sub(indent).max(MIN_COLUMNS);
        let mut notes = rule_notes(self.evaluation, self.facts, rule, note_width);
        for note in &mut notes {
            *note = truncate(note, note_width);
            if rule.status != RuleStatus::Matched {
                *note = self.paint(Tone::Faint, note);
            }
        }
        let first = if own_lines || notes.is_empty() {
            String::new()
        } else {
            notes.remove(0)
        };
        // A name that is too long for its column moves the rest of its line to the right.
        let mut name = format!("{:names$}", indented_id(rule));
        if self.evaluation.rule_id() == Some(rule.rule.id.as_str()) {
            name = self.paint(verdict_tone(self.evaluation), &name);
        }
        let status = format!("{:statuses$}", status_text(rule));
        let status = self.paint(status_tone(rule.status), &status);
        self.report
            .push_line(&format!("  {name}  {status}  {first}"));
        for note in notes {
            self.report.push_line(&format!("{:indent$}{note}", ""));
        }
    }

    /// Writes the options that the policy sets, then the built-in values or their number.
    fn write_options(&mut self) {
        let evaluation = self.evaluation;
        let (set, built_in): (Vec<_>, Vec<_>) = evaluation
            .policy
            .explain_options(&evaluation.trail)
            .partition(|option| option.set_by != OptionSetter::BuiltIn);
        let shown_built_in = match self.detail {
            OptionDetail::All => built_in.as_slice(),
            OptionDetail::SetOnly => &[],
        };
        let mut longest_path = 0;
        let mut longest_value = 0;
        for option in set.iter().chain(shown_built_in) {
            let value = format_value(option.value).chars().count();
            longest_path = longest_path.max(option.path.len());
            longest_value = longest_value.max(value.min(MAX_OPTION_VALUE_COLUMNS));
        }
        self.report.push_headline("Options");
        for option in &set {
            let row = self.option_row(option, longest_path, longest_value);
            self.report.push_line(&row);
        }
        for option in shown_built_in {
            let row = self.option_row(option, longest_path, longest_value);
            self.report.push_line(&self.paint(Tone::Faint, &row));
        }
        if self.detail == OptionDetail::SetOnly {
            let more = format!(
                "  {} more with their built-in values (--all shows them)",
                built_in.len()
            );
            self.report.push_line(&self.paint(Tone::Faint, &more));
        }
    }

    fn option_row(&self, option: &OptionExplanation<'_>, paths: usize, values: usize) -> String {
        let value_width = self
            .report
            .width
            .saturating_sub(paths + 24)
            .max(MIN_COLUMNS);
        format!(
            "  {:paths$}  {:values$}  {}",
            option.path,
            truncate(&format_value(option.value), value_width),
            set_by(self.evaluation, option)
        )
    }

    /// Writes the product token that is looked up in robots.txt, and its source.
    fn write_robots_agent(&mut self, agent: RobotsAgent<'_>) {
        let source = match agent.source() {
            RobotsTokenSource::Policy => "robots.agent",
            RobotsTokenSource::Crawler => "the crawler's robots_agent",
            RobotsTokenSource::Compatible => "after `compatible;` in the User-Agent",
            RobotsTokenSource::First => "the first product of the User-Agent",
            RobotsTokenSource::Default => "the User-Agent has none",
        };
        self.report.push_headline("robots.txt");
        self.write_field("agent", &format!("{}  ({source})", agent.token()));
        if let Some(first) = agent.first_product() {
            self.write_field("", &format!("{first}, too: the stricter answer counts"));
        }
    }

    fn write_decision(&mut self) {
        let evaluation = self.evaluation;
        let decision = &evaluation.decision;
        self.report.push_headline("Decision");
        let verdict = self.paint(verdict_tone(evaluation), decision::verdict(evaluation));
        self.write_field("verdict", &verdict);
        self.write_field("reason", decision.reason().as_str());
        if let Some(rule) = evaluation.rule_id() {
            self.write_field("rule", rule);
        }
        if let Some(reading) = decision.reading
            && let Ok(target) = UrlTarget::parse(self.facts.url())
            && let Some(url) = target.reading(reading)
        {
            let text = format!("{} by {}", url.as_str(), reading.servers());
            self.write_field("read as", &text);
        }
        self.write_field("stage", decision.stage.as_str());
        if decision.rejects() {
            self.write_field("logged", if decision.logged { "yes" } else { "no" });
        }
        self.write_field("policy", &evaluation.policy.name_and_revision());
    }

    fn write_field(&mut self, name: &str, value: &str) {
        self.report.push_line(&format!("  {name:8} {value}"));
    }

    fn write_answer(&mut self) {
        let evaluation = self.evaluation;
        self.report.push_headline("Answer");
        let profile = format!("(profile {})", evaluation.profile.as_str());
        let profile = self.paint(Tone::Faint, &profile);
        match ProfileResponses::for_evaluation(evaluation, self.facts)
            .for_profile(evaluation.profile)
        {
            PredictedResponse::Refused {
                status_line,
                headers,
            } => {
                let status_line = self.paint(Tone::Bad, &status_line);
                self.report
                    .push_line(&format!("  {status_line}  {profile}"));
                self.write_headers(&headers);
            }
            PredictedResponse::Closed => {
                self.report.push_line(&format!(
                    "  the connection is closed without a response  {profile}"
                ));
            }
            PredictedResponse::Forwarded { headers } => {
                self.report
                    .push_line("  the response of the origin, with these headers");
                self.write_headers(&headers);
            }
            PredictedResponse::Tunnel => {
                self.report.push_line("  200 OK, then a tunnel to the host")
            }
        }
    }

    fn write_headers(&mut self, headers: &[(String, String)]) {
        for (name, value) in headers {
            self.report
                .push_line(&format!("  {name}: {}", replace_controls(value)));
        }
    }

    fn paint(&self, tone: Tone, text: &str) -> String {
        self.report.colors.paint(tone, text)
    }
}

/// Returns the outcome of a rule. That its space is another one explains more than any other cause.
fn status_text(rule: &RuleExplanation<'_>) -> &'static str {
    if rule.is_foreign {
        "skipped: space"
    } else {
        rule.status.as_str()
    }
}

/// Returns the id of a rule, indented by its nesting depth.
fn indented_id(rule: &RuleExplanation<'_>) -> String {
    format!("{:indent$}{}", "", rule.rule.id, indent = 2 * rule.depth)
}

/// Returns the decision in one sentence.
fn summary_sentence(evaluation: &OfflineEvaluation<'_>) -> String {
    let detail = evaluation
        .refusal
        .as_ref()
        .and_then(|refusal| refusal.detail.as_deref())
        .map_or(String::new(), |detail| format!(": {detail}"));
    let cause = match evaluation.rule_id() {
        Some(rule) => format!("by rule {rule}"),
        None => "by the policy's default".to_owned(),
    };
    match evaluation.decision.verdict {
        Verdict::Admit => format!("allowed {cause}"),
        Verdict::Reject(Reason::Rule | Reason::Default) => format!("rejected {cause}{detail}"),
        Verdict::Reject(reason) => format!("rejected {cause}, as {}{detail}", reason.as_str()),
        Verdict::Undecided if evaluation.refusal.is_none() => {
            "undecided, but allowed since tunnel_undecided is allow".to_owned()
        }
        Verdict::Undecided => format!("undecided, and therefore refused{detail}"),
    }
}

/// Returns the reasons for the status of a rule, and its effect.
fn rule_notes(
    evaluation: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
    rule: &RuleExplanation<'_>,
    width: usize,
) -> Vec<String> {
    if let Some(space) = rule.space.filter(|_| rule.is_foreign) {
        return vec![format!("{} is not this crawler's", space.name.as_str())];
    }
    let pending_stage = rule
        .pending_stage()
        .filter(|stage| !was_run(evaluation, facts, *stage));
    let mut notes = match pending_stage {
        // That the stage was not run is more useful than the facts that it lacks.
        Some(stage) => vec![not_run_note(evaluation, stage)],
        None => reason_notes(evaluation, facts, rule, width),
    };
    if rule.rule.mode == EnforcementMode::Shadow {
        notes.push("shadow mode: evaluated, but without effect".to_owned());
    }
    if rule.status == RuleStatus::Matched {
        notes.extend(describe_effect(evaluation, &rule.rule.body));
    }
    notes
}

fn reason_notes(
    evaluation: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
    rule: &RuleExplanation<'_>,
    width: usize,
) -> Vec<String> {
    let tests = evaluation.policy.decisive_tests(rule, &facts.facts());
    let mut notes: Vec<String> = tests
        .iter()
        .take(MAX_REASONS)
        .map(|test| replace_controls(&shorten_test(test, width)))
        .collect();
    let more = tests.len() - notes.len();
    if let Some(last) = notes.last_mut()
        && more > 0
    {
        last.push_str(&format!(", and {more} more"));
    }
    notes
}

/// Returns `true` if the policy was evaluated at a stage. A tunnel is evaluated at all stages.
fn was_run(evaluation: &OfflineEvaluation<'_>, facts: &CaseFacts, stage: PolicyStage) -> bool {
    let given = facts.facts();
    match (facts.target(), stage) {
        (CaseTarget::Tunnel(..), _) | (CaseTarget::Url(_), PolicyStage::Request) => true,
        (CaseTarget::Url(_), PolicyStage::Destination) => {
            given.address != Fact::Unknown && evaluation.decision.stage >= Stage::Destination
        }
        (CaseTarget::Url(_), PolicyStage::Response | PolicyStage::Document) => {
            evaluation.decision.stage >= stage.to_stage()
        }
    }
}

fn not_run_note(evaluation: &OfflineEvaluation<'_>, stage: PolicyStage) -> String {
    let refused_before =
        evaluation.decision.rejects() && evaluation.decision.stage < stage.to_stage();
    let reason = if refused_before {
        "was not reached"
    } else {
        "was not run: none of its facts are given"
    };
    format!("the {} stage {reason}", stage.as_str())
}

/// Formats a test in at most `width` columns if possible, by shortening the observed value rather than the operands.
fn shorten_test(test: &DecisiveTest, width: usize) -> String {
    let whole = test.to_string();
    let (ObservedValue::Value(value), Some(excess)) =
        (&test.observed, whole.chars().count().checked_sub(width))
    else {
        return whole;
    };
    let length = value.chars().count();
    let rest = length.saturating_sub(excess).max(width / 3);
    DecisiveTest {
        observed: ObservedValue::Value(truncate(value, rest.min(length))),
        ..test.clone()
    }
    .to_string()
}

/// Returns the effect of a rule that matched, if it has one.
fn describe_effect(evaluation: &OfflineEvaluation<'_>, body: &RuleBody) -> Option<String> {
    let effects: Vec<String> = match body {
        RuleBody::Filter(filter) if filter.log => vec!["filters, and logs it".to_owned()],
        RuleBody::Filter(_) => vec!["filters".to_owned()],
        RuleBody::Group(group) => {
            let assigned = group.assignments.iter().map(|assignment| {
                format!(
                    "{} {}",
                    evaluation.policy.option_path(assignment.index),
                    format_value(&assignment.value)
                )
            });
            assigned
                .chain(group.stop.then(|| "stop".to_owned()))
                .collect()
        }
    };
    (!effects.is_empty()).then(|| replace_controls(&format!("-> {}", effects.join(", "))))
}

fn format_value(value: &OptionValue) -> String {
    replace_controls(&value.to_string())
}

fn verdict_tone(evaluation: &OfflineEvaluation<'_>) -> Tone {
    match evaluation.decision.verdict {
        Verdict::Admit => Tone::Good,
        Verdict::Reject(_) => Tone::Bad,
        Verdict::Undecided => Tone::Warning,
    }
}

fn status_tone(status: RuleStatus) -> Tone {
    match status {
        RuleStatus::Matched => Tone::Good,
        RuleStatus::NoMatch | RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => {
            Tone::Faint
        }
        RuleStatus::Undecided => Tone::Warning,
    }
}
