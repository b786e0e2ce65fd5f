//! An explanation for a terminal: the rules as a tree with what became of each and why, the options with who set them,
//! the decision and its answer.
//!
//! Long values are cut to the width of the terminal; JSON has them whole.

use crate::gate::trial::Trial;
use crate::policy::cases::{CaseFacts, CaseTarget};
use crate::policy::decide::Verdict;
use crate::policy::explain::ground::{Ground, Seen};
use crate::policy::explain::{OptionLine, RuleLine, RuleStatus};
use crate::policy::fact::Fact;
use crate::policy::options::{SetBy, Value};
use crate::policy::rule::{Mode, PolicyStage, RuleBody};
use crate::report::decision;
use crate::report::explanation::set_by;
use crate::report::wire::{Answers, Wire};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::super::paint::{Paint, Tone, fitted, printable, wrapped};

/// How much is shown of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Those that the policy sets; of the others how many there are.
    WhatIsSet,
    /// All of them.
    All,
}

/// The most reasons shown of one rule.
const REASONS: usize = 3;
/// With less room than this beside the rules, reasons stand below them.
const NARROW: usize = 44;
/// The least width for reasons, however narrow the terminal is.
const NARROWEST: usize = 24;

/// A text being written.
pub(super) struct Page {
    text: String,
    paint: Paint,
    width: usize,
    depth: Depth,
}

impl Page {
    /// An empty one.
    pub(super) fn new(paint: Paint, width: usize, depth: Depth) -> Self {
        Self {
            text: String::new(),
            paint,
            width,
            depth,
        }
    }

    /// The whole explanation.
    pub(super) fn of(mut self, trial: &Trial<'_>, facts: &CaseFacts) -> String {
        let url = self.paint.paint(Tone::Strong, printable(facts.url()));
        self.line(&url);
        for line in wrapped(&printable(&sentence(trial)), self.width) {
            self.line(&self.paint.paint(tone_of(trial), line));
        }
        self.rules(trial, facts);
        self.options(trial);
        self.decision(trial);
        self.answer(trial, facts);
        self.text
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn headline(&mut self, words: &str) {
        let words = self.paint.paint(Tone::Strong, words);
        self.line("");
        self.line(&words);
    }

    fn rules(&mut self, trial: &Trial<'_>, facts: &CaseFacts) {
        let lines: Vec<RuleLine<'_>> = trial.policy.rule_lines(&trial.trail).collect();
        self.headline("Rules");
        if lines.is_empty() {
            self.line("  none");
        }
        let name = |line: &RuleLine<'_>| format!("{:1$}{2}", "", 2 * line.depth, line.rule.id);
        let longest = lines.iter().map(|line| name(line).len()).max().unwrap_or(0);
        let names = longest.min(self.width / 3).max(12);
        let states = lines
            .iter()
            .map(|line| line.status.as_str().len())
            .max()
            .unwrap_or(0);
        for line in &lines {
            self.rule(trial, facts, line, &name(line), (names, states));
        }
    }

    fn rule(
        &mut self,
        trial: &Trial<'_>,
        facts: &CaseFacts,
        line: &RuleLine<'_>,
        name: &str,
        (names, states): (usize, usize),
    ) {
        let beside = 2 + names + 2 + states + 2;
        // In a narrow terminal the notes get lines of their own.
        let own_lines = self.width < beside + NARROW;
        let indent = if own_lines {
            2 + 2 * line.depth + 4
        } else {
            beside
        };
        let room = self.width.saturating_sub(indent).max(NARROWEST);
        let notes: Vec<String> = notes(trial, facts, line, room)
            .iter()
            .map(|note| fitted(note, room))
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
        let decided = trial.rule() == Some(line.rule.id.as_str());
        // A name that is too long for its column pushes the rest of its line to the right.
        let name = format!("{name:names$}");
        let name = if decided {
            self.paint.paint(tone_of(trial), name)
        } else {
            name
        };
        let state = self.paint.paint(
            tone(line.status),
            format!("{:states$}", line.status.as_str()),
        );
        self.line(&format!("  {name}  {state}  {first}"));
        notes
            .iter()
            .for_each(|note| self.line(&format!("{:indent$}{note}", "")));
    }

    /// First what the policy sets, then, faint, the rest or how many there are.
    fn options(&mut self, trial: &Trial<'_>) {
        let (set, built_in): (Vec<_>, Vec<_>) = trial
            .policy
            .option_lines(&trial.trail)
            .partition(|line| line.set_by != SetBy::BuiltIn);
        let shown = || {
            set.iter()
                .chain(built_in.iter().filter(|_| self.depth == Depth::All))
        };
        let paths = shown().map(|line| line.path.len()).max().unwrap_or(0);
        let values = shown()
            .map(|line| show(line.value).chars().count())
            .max()
            .unwrap_or(0)
            .min(32);
        let row = |line: &OptionLine<'_>| {
            let value = fitted(
                &show(line.value),
                self.width.saturating_sub(paths + 24).max(NARROWEST),
            );
            format!(
                "  {:paths$}  {value:values$}  {}",
                line.path,
                set_by(trial, line)
            )
        };
        let rows: Vec<String> = set.iter().map(row).collect();
        let rest = match self.depth {
            Depth::All => built_in.iter().map(row).collect(),
            Depth::WhatIsSet => {
                vec![format!(
                    "  {} more with their built-in values (--all shows them)",
                    built_in.len()
                )]
            }
        };
        self.headline("Options");
        rows.iter().for_each(|row| self.line(row));
        for row in rest {
            self.line(&self.paint.paint(Tone::Faint, row));
        }
    }

    fn decision(&mut self, trial: &Trial<'_>) {
        let decision = &trial.decision;
        self.headline("Decision");
        self.field(
            "verdict",
            &self.paint.paint(tone_of(trial), decision::verdict(trial)),
        );
        self.field("reason", decision.reason().as_str());
        if let Some(rule) = trial.rule() {
            self.field("rule", rule);
        }
        self.field("stage", decision.stage.as_str());
        if decision.rejects() {
            self.field("logged", if decision.logged { "yes" } else { "no" });
        }
        self.field("policy", &decision::policy_name(trial));
    }

    fn field(&mut self, name: &str, value: &str) {
        self.line(&format!("  {name:8} {value}"));
    }

    fn answer(&mut self, trial: &Trial<'_>, facts: &CaseFacts) {
        self.headline("Answer");
        let profile = self
            .paint
            .paint(Tone::Faint, format!("(profile {})", trial.profile.as_str()));
        match Answers::of(trial, facts).to(trial.profile) {
            Wire::Refused {
                status_line,
                headers,
            } => {
                self.line(&format!(
                    "  {}  {profile}",
                    self.paint.paint(Tone::Bad, status_line)
                ));
                self.headers(&headers);
            }
            Wire::Closed => {
                self.line(&format!(
                    "  the connection is closed without an answer  {profile}"
                ));
            }
            Wire::Passed { headers } => {
                self.line("  the origin's, with");
                self.headers(&headers);
            }
            Wire::Tunnel => self.line("  200 OK, and a tunnel to the host"),
        }
    }

    fn headers(&mut self, headers: &[(String, String)]) {
        headers
            .iter()
            .for_each(|(name, value)| self.line(&format!("  {name}: {}", printable(value))));
    }
}

/// The decision in one sentence.
fn sentence(trial: &Trial<'_>) -> String {
    let about = trial
        .refusal
        .as_ref()
        .and_then(|refusal| refusal.detail.as_deref());
    let about = about.map_or(String::new(), |about| format!(": {about}"));
    let by = match trial.rule() {
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
fn notes(trial: &Trial<'_>, facts: &CaseFacts, line: &RuleLine<'_>, room: usize) -> Vec<String> {
    let grounds = trial.policy.grounds(line, &facts.facts());
    let shown = grounds.len().min(REASONS);
    let mut notes: Vec<String> = grounds
        .iter()
        .take(shown)
        .map(|ground| printable(&within(ground, room)))
        .collect();
    if let (true, Some(last)) = (grounds.len() > shown, notes.last_mut()) {
        last.push_str(&format!(", and {} more", grounds.len() - shown));
    }
    // A stage that was not run says more than the facts that it would have brought.
    notes = match line
        .waits_for()
        .filter(|stage| !was_run(trial, facts, *stage))
    {
        Some(stage) => vec![not_run(trial, stage)],
        None => notes,
    };
    if line.rule.mode == Mode::Shadow {
        notes.push("in shadow: judged beside the policy, and changes nothing".to_owned());
    }
    if line.status == RuleStatus::Matched {
        notes.extend(did(trial, &line.rule.body));
    }
    notes
}

/// Whether the policy was asked at a stage; of a tunnel it is asked at all of them.
fn was_run(trial: &Trial<'_>, facts: &CaseFacts, stage: PolicyStage) -> bool {
    let given = facts.facts();
    match (facts.target(), stage) {
        (CaseTarget::Tunnel(..), _) | (CaseTarget::Url(_), PolicyStage::Request) => true,
        (CaseTarget::Url(_), PolicyStage::Destination) => {
            given.address != Fact::Unknown && trial.decision.stage >= Stage::Destination
        }
        (CaseTarget::Url(_), PolicyStage::Response | PolicyStage::Document) => {
            trial.decision.stage >= stage.stage()
        }
    }
}

fn not_run(trial: &Trial<'_>, stage: PolicyStage) -> String {
    let over = trial.decision.rejects() && trial.decision.stage < stage.stage();
    let why = if over {
        "was not reached"
    } else {
        "was not run: none of its facts are given"
    };
    format!("the {} stage {why}", stage.as_str())
}

/// A reason with its value shortened, so that the test behind it can be read.
fn within(ground: &Ground, room: usize) -> String {
    let whole = ground.to_string();
    let (Seen::Value(value), Some(over)) = (&ground.seen, whole.chars().count().checked_sub(room))
    else {
        return whole;
    };
    let length = value.chars().count();
    let left = length.saturating_sub(over).max(room / 3);
    let seen = Seen::Value(fitted(value, left.min(length)));
    Ground {
        seen,
        ..ground.clone()
    }
    .to_string()
}

/// What a rule that matched did, where it did anything.
fn did(trial: &Trial<'_>, body: &RuleBody) -> Option<String> {
    let all: Vec<String> = match body {
        RuleBody::Filter(filter) if filter.log => vec!["filters, and logs it".to_owned()],
        RuleBody::Filter(_) => vec!["filters".to_owned()],
        RuleBody::Group(group) => {
            let assigned = group
                .assign
                .iter()
                .map(|a| format!("{} {}", trial.policy.option_path(a.slot), show(&a.value)));
            assigned
                .chain(group.stop.then(|| "stop".to_owned()))
                .collect()
        }
    };
    (!all.is_empty()).then(|| printable(&format!("-> {}", all.join(", "))))
}

fn show(value: &Value) -> String {
    printable(&decision::shown(value))
}

fn tone_of(trial: &Trial<'_>) -> Tone {
    match trial.decision.verdict {
        Verdict::Admit => Tone::Good,
        Verdict::Reject(_) => Tone::Bad,
        Verdict::Undecided => Tone::Doubt,
    }
}

fn tone(status: RuleStatus) -> Tone {
    match status {
        RuleStatus::Matched => Tone::Good,
        RuleStatus::NoMatch | RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => {
            Tone::Faint
        }
        RuleStatus::Undecided => Tone::Doubt,
    }
}
