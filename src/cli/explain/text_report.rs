//! An explanation for a terminal: the rules as a tree with what became of each and why, the options with who set them,
//! the decision and its answer.
//!
//! Long values are cut to the width of the terminal; JSON has them whole.

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::policy::decide::Verdict;
use crate::policy::explain::decisive_test::{DecisiveTest, ObservedValue};
use crate::policy::explain::{OptionExplanation, RuleExplanation, RuleStatus};
use crate::policy::fact::Fact;
use crate::policy::options::{OptionSetter, OptionValue};
use crate::policy::rule::{EnforcementMode, PolicyStage, RuleBody};
use crate::report::decision;
use crate::report::explanation::set_by;
use crate::report::response::{PredictedResponse, ProfileResponses};

use super::super::color::{ConsoleColors, Tone, replace_controls, truncate, wrap};

/// How much is shown of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionDetail {
    /// Those that the policy sets; of the others how many there are.
    SetOnly,
    /// All of them.
    All,
}

/// The most reasons shown of one rule.
const MAX_REASONS: usize = 3;
/// With less room than this beside the rules, reasons stand below them.
const MIN_NOTE_COLUMNS: usize = 44;
/// The least width for reasons, however narrow the terminal is.
const MIN_COLUMNS: usize = 24;

/// A text being written.
pub(super) struct ExplanationText {
    text: String,
    paint: ConsoleColors,
    width: usize,
    detail: OptionDetail,
}

impl ExplanationText {
    /// An empty one.
    pub(super) fn new(paint: ConsoleColors, width: usize, depth: OptionDetail) -> Self {
        Self {
            text: String::new(),
            paint,
            width,
            detail: depth,
        }
    }

    /// The whole explanation.
    pub(super) fn render(mut self, trial: &OfflineEvaluation<'_>, facts: &CaseFacts) -> String {
        let url = self
            .paint
            .paint(Tone::Strong, replace_controls(facts.url()));
        self.push_line(&url);
        for line in wrap(&replace_controls(&summary_sentence(trial)), self.width) {
            self.push_line(&self.paint.paint(verdict_tone(trial), line));
        }
        self.write_rules(trial, facts);
        self.write_options(trial);
        self.write_decision(trial);
        self.write_answer(trial, facts);
        self.text
    }

    fn push_line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn push_headline(&mut self, words: &str) {
        let words = self.paint.paint(Tone::Strong, words);
        self.push_line("");
        self.push_line(&words);
    }

    fn write_rules(&mut self, trial: &OfflineEvaluation<'_>, facts: &CaseFacts) {
        let lines: Vec<RuleExplanation<'_>> = trial.policy.explain_rules(&trial.trail).collect();
        self.push_headline("Rules");
        if lines.is_empty() {
            self.push_line("  none");
        }
        let name =
            |line: &RuleExplanation<'_>| format!("{:1$}{2}", "", 2 * line.depth, line.rule.id);
        let longest = lines.iter().map(|line| name(line).len()).max().unwrap_or(0);
        let names = longest.min(self.width / 3).max(12);
        let states = lines
            .iter()
            .map(|line| line.status.as_str().len())
            .max()
            .unwrap_or(0);
        for line in &lines {
            self.write_rule(trial, facts, line, &name(line), (names, states));
        }
    }

    fn write_rule(
        &mut self,
        trial: &OfflineEvaluation<'_>,
        facts: &CaseFacts,
        line: &RuleExplanation<'_>,
        name: &str,
        (names, states): (usize, usize),
    ) {
        let beside = 2 + names + 2 + states + 2;
        // In a narrow terminal the notes get lines of their own.
        let own_lines = self.width < beside + MIN_NOTE_COLUMNS;
        let indent = if own_lines {
            2 + 2 * line.depth + 4
        } else {
            beside
        };
        let room = self.width.saturating_sub(indent).max(MIN_COLUMNS);
        let notes: Vec<String> = rule_notes(trial, facts, line, room)
            .iter()
            .map(|note| truncate(note, room))
            .collect();
        let notes = notes.into_iter().map(|note| match line.status {
            RuleStatus::Matched => note,
            RuleStatus::NoMatch
            | RuleStatus::Stopped
            | RuleStatus::Disabled
            | RuleStatus::Parent
            | RuleStatus::Undecided => self.paint.paint(Tone::Faint, note),
        });
        let mut notes: Vec<String> = notes.collect();
        let first = if own_lines || notes.is_empty() {
            String::new()
        } else {
            notes.remove(0)
        };
        let decided = trial.rule_id() == Some(line.rule.id.as_str());
        // A name that is too long for its column pushes the rest of its line to the right.
        let name = format!("{name:names$}");
        let name = if decided {
            self.paint.paint(verdict_tone(trial), name)
        } else {
            name
        };
        let state = self.paint.paint(
            status_tone(line.status),
            format!("{:states$}", line.status.as_str()),
        );
        self.push_line(&format!("  {name}  {state}  {first}"));
        notes
            .iter()
            .for_each(|note| self.push_line(&format!("{:indent$}{note}", "")));
    }

    /// First what the policy sets, then, faint, the rest or how many there are.
    fn write_options(&mut self, trial: &OfflineEvaluation<'_>) {
        let (set, built_in): (Vec<_>, Vec<_>) = trial
            .policy
            .explain_options(&trial.trail)
            .partition(|line| line.set_by != OptionSetter::BuiltIn);
        let shown = || {
            set.iter()
                .chain(built_in.iter().filter(|_| self.detail == OptionDetail::All))
        };
        let paths = shown().map(|line| line.path.len()).max().unwrap_or(0);
        let values = shown()
            .map(|line| format_value(line.value).chars().count())
            .max()
            .unwrap_or(0)
            .min(32);
        let row = |line: &OptionExplanation<'_>| {
            let value = truncate(
                &format_value(line.value),
                self.width.saturating_sub(paths + 24).max(MIN_COLUMNS),
            );
            format!(
                "  {:paths$}  {value:values$}  {}",
                line.path,
                set_by(trial, line)
            )
        };
        let rows: Vec<String> = set.iter().map(row).collect();
        let rest = match self.detail {
            OptionDetail::All => built_in.iter().map(row).collect(),
            OptionDetail::SetOnly => {
                vec![format!(
                    "  {} more with their built-in values (--all shows them)",
                    built_in.len()
                )]
            }
        };
        self.push_headline("Options");
        rows.iter().for_each(|row| self.push_line(row));
        for row in rest {
            self.push_line(&self.paint.paint(Tone::Faint, row));
        }
    }

    fn write_decision(&mut self, trial: &OfflineEvaluation<'_>) {
        let decision = &trial.decision;
        self.push_headline("Decision");
        self.write_field(
            "verdict",
            &self
                .paint
                .paint(verdict_tone(trial), decision::verdict(trial)),
        );
        self.write_field("reason", decision.reason().as_str());
        if let Some(rule) = trial.rule_id() {
            self.write_field("rule", rule);
        }
        self.write_field("stage", decision.stage.as_str());
        if decision.rejects() {
            self.write_field("logged", if decision.logged { "yes" } else { "no" });
        }
        self.write_field("policy", &decision::policy_name(trial));
    }

    fn write_field(&mut self, name: &str, value: &str) {
        self.push_line(&format!("  {name:8} {value}"));
    }

    fn write_answer(&mut self, trial: &OfflineEvaluation<'_>, facts: &CaseFacts) {
        self.push_headline("Answer");
        let profile = self
            .paint
            .paint(Tone::Faint, format!("(profile {})", trial.profile.as_str()));
        match ProfileResponses::for_trial(trial, facts).for_profile(trial.profile) {
            PredictedResponse::Refused {
                status_line,
                headers,
            } => {
                self.push_line(&format!(
                    "  {}  {profile}",
                    self.paint.paint(Tone::Bad, status_line)
                ));
                self.write_headers(&headers);
            }
            PredictedResponse::Closed => {
                self.push_line(&format!(
                    "  the connection is closed without an answer  {profile}"
                ));
            }
            PredictedResponse::Forwarded { headers } => {
                self.push_line("  the origin's, with");
                self.write_headers(&headers);
            }
            PredictedResponse::Tunnel => self.push_line("  200 OK, and a tunnel to the host"),
        }
    }

    fn write_headers(&mut self, headers: &[(String, String)]) {
        headers.iter().for_each(|(name, value)| {
            self.push_line(&format!("  {name}: {}", replace_controls(value)))
        });
    }
}

/// The decision in one sentence.
fn summary_sentence(trial: &OfflineEvaluation<'_>) -> String {
    let about = trial
        .refusal
        .as_ref()
        .and_then(|refusal| refusal.detail.as_deref());
    let about = about.map_or(String::new(), |about| format!(": {about}"));
    let by = match trial.rule_id() {
        Some(rule) => format!("by rule {rule}"),
        None => "by the policy's default".to_owned(),
    };
    match trial.decision.verdict {
        Verdict::Admit => format!("allowed {by}"),
        Verdict::Reject(Reason::Rule | Reason::Default) => format!("rejected {by}{about}"),
        Verdict::Reject(reason) => format!("rejected {by}, as {}{about}", reason.as_str()),
        Verdict::Undecided if trial.refusal.is_none() => {
            "undecided, and let through: tunnel_undecided is allow".to_owned()
        }
        Verdict::Undecided => format!("undecided, and so refused{about}"),
    }
}

/// Why a rule has its state, and what it did.
fn rule_notes(
    trial: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
    line: &RuleExplanation<'_>,
    room: usize,
) -> Vec<String> {
    let grounds = trial.policy.decisive_tests(line, &facts.facts());
    let shown = grounds.len().min(MAX_REASONS);
    let mut notes: Vec<String> = grounds
        .iter()
        .take(shown)
        .map(|ground| replace_controls(&shorten_ground(ground, room)))
        .collect();
    if let (true, Some(last)) = (grounds.len() > shown, notes.last_mut()) {
        last.push_str(&format!(", and {} more", grounds.len() - shown));
    }
    // A stage that was not run says more than the facts that it would have brought.
    notes = match line
        .pending_stage()
        .filter(|stage| !was_run(trial, facts, *stage))
    {
        Some(stage) => vec![not_run_note(trial, stage)],
        None => notes,
    };
    if line.rule.mode == EnforcementMode::Shadow {
        notes.push("in shadow: judged beside the policy, and changes nothing".to_owned());
    }
    if line.status == RuleStatus::Matched {
        notes.extend(describe_effect(trial, &line.rule.body));
    }
    notes
}

/// Whether the policy was asked at a stage; of a tunnel it is asked at all of them.
fn was_run(trial: &OfflineEvaluation<'_>, facts: &CaseFacts, stage: PolicyStage) -> bool {
    let given = facts.facts();
    match (facts.target(), stage) {
        (CaseTarget::Tunnel(..), _) | (CaseTarget::Url(_), PolicyStage::Request) => true,
        (CaseTarget::Url(_), PolicyStage::Destination) => {
            given.address != Fact::Unknown && trial.decision.stage >= Stage::Destination
        }
        (CaseTarget::Url(_), PolicyStage::Response | PolicyStage::Document) => {
            trial.decision.stage >= stage.to_stage()
        }
    }
}

fn not_run_note(trial: &OfflineEvaluation<'_>, stage: PolicyStage) -> String {
    let over = trial.decision.rejects() && trial.decision.stage < stage.to_stage();
    let why = if over {
        "was not reached"
    } else {
        "was not run: none of its facts are given"
    };
    format!("the {} stage {why}", stage.as_str())
}

/// A reason with its value shortened, so that the test behind it can be read.
fn shorten_ground(ground: &DecisiveTest, room: usize) -> String {
    let whole = ground.to_string();
    let (ObservedValue::Value(value), Some(over)) =
        (&ground.observed, whole.chars().count().checked_sub(room))
    else {
        return whole;
    };
    let length = value.chars().count();
    let left = length.saturating_sub(over).max(room / 3);
    let seen = ObservedValue::Value(truncate(value, left.min(length)));
    DecisiveTest {
        observed: seen,
        ..ground.clone()
    }
    .to_string()
}

/// What a rule that matched did, where it did anything.
fn describe_effect(trial: &OfflineEvaluation<'_>, body: &RuleBody) -> Option<String> {
    let all: Vec<String> = match body {
        RuleBody::Filter(filter) if filter.log => vec!["filters, and logs it".to_owned()],
        RuleBody::Filter(_) => vec!["filters".to_owned()],
        RuleBody::Group(group) => {
            let assigned = group.assignments.iter().map(|a| {
                format!(
                    "{} {}",
                    trial.policy.option_path(a.slot),
                    format_value(&a.value)
                )
            });
            assigned
                .chain(group.stop.then(|| "stop".to_owned()))
                .collect()
        }
    };
    (!all.is_empty()).then(|| replace_controls(&format!("-> {}", all.join(", "))))
}

fn format_value(value: &OptionValue) -> String {
    replace_controls(&value.to_string())
}

fn verdict_tone(trial: &OfflineEvaluation<'_>) -> Tone {
    match trial.decision.verdict {
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
