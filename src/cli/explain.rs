//! `crawlgate explain`: why one request is allowed or refused, rule by rule.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use crate::policy::decide::Verdict;
use crate::policy::explain::{OptionLine, RuleLine, RuleStatus};
use crate::policy::options::{SetBy, Value};

use super::Exit;
use super::args::{ExplainArgs, Format};
use super::given::Given;
use super::judged::Judged;
use super::open;
use super::out::{self, complain};
use super::paint::{Paint, Tone};

/// Runs the command.
pub(super) fn run(args: &ExplainArgs) -> Exit {
    let given = match Given::of_args(args) {
        Ok(given) => given,
        Err(mistake) => return complain(&format!("{}: {mistake}", args.url)),
    };
    let policy = match open::policy(args.policy.as_deref()) {
        Ok(policy) => policy,
        Err(exit) => return exit,
    };
    let judged = Judged::new(&policy, &given.facts(), args.profile);
    let url = given.target.url();
    let text = match args.format {
        Format::Text => in_words(&judged, url, Paint::for_stdout()),
        Format::Json => format!("{:#}\n", in_json(&judged, url)),
    };
    out::write(&text);
    if args.exit_code && judged.decision.verdict != Verdict::Admit { Exit::Negative } else { Exit::Success }
}

fn in_json(judged: &Judged<'_>, url: &str) -> Json {
    let rules: Vec<Json> = judged.policy.rule_lines(&judged.trail).map(|line| rule_json(&line)).collect();
    let options: Vec<Json> =
        judged.policy.option_lines(&judged.trail).map(|line| option_json(judged, &line)).collect();
    json!({ "url": url, "rules": rules, "options": options, "decision": judged.to_json(url) })
}

fn rule_json(line: &RuleLine<'_>) -> Json {
    json!({
        "rule": line.rule.id.as_str(),
        "about": line.rule.about,
        "depth": line.depth,
        "status": line.status.as_str(),
        "waits_for": line.waits_for().map(|stage| stage.as_str()),
    })
}

fn option_json(judged: &Judged<'_>, line: &OptionLine<'_>) -> Json {
    json!({ "option": line.path, "value": line.value.to_json(), "set_by": set_by(judged, line) })
}

/// The rule's id, or where else the value comes from.
fn set_by<'p>(judged: &Judged<'p>, line: &OptionLine<'p>) -> &'p str {
    match line.set_by {
        SetBy::BuiltIn => "built-in",
        SetBy::Document => "options",
        SetBy::Rule(rule) => judged.policy.rule_id(rule).unwrap_or(""),
    }
}

fn in_words(judged: &Judged<'_>, url: &str, paint: Paint) -> String {
    let mut text = format!("{}\n", paint.paint(Tone::Strong, url));
    add_rules(&mut text, judged, paint);
    add_options(&mut text, judged, paint);
    add_decision(&mut text, judged, paint);
    text
}

fn add_rules(text: &mut String, judged: &Judged<'_>, paint: Paint) {
    let lines: Vec<RuleLine<'_>> = judged.policy.rule_lines(&judged.trail).collect();
    let name = |line: &RuleLine<'_>| format!("{:1$}{2}", "", 2 * line.depth, line.rule.id);
    let width = lines.iter().map(|line| name(line).len()).max().unwrap_or(0);
    headline(text, "Rules", paint);
    if lines.is_empty() {
        text.push_str("  none\n");
    }
    for line in &lines {
        let waits = match line.waits_for() {
            Some(stage) => format!(" (facts of the {} stage are not given)", stage.as_str()),
            None => String::new(),
        };
        let status = paint.paint(tone(line.status), line.status.as_str());
        let waits = paint.paint(Tone::Faint, waits);
        put(text, format_args!("  {:width$}  {status}{waits}", name(line)));
    }
}

/// Every option; those that nobody set are faint.
fn add_options(text: &mut String, judged: &Judged<'_>, paint: Paint) {
    let lines: Vec<OptionLine<'_>> = judged.policy.option_lines(&judged.trail).collect();
    let path = lines.iter().map(|line| line.path.len()).max().unwrap_or(0);
    let value = lines.iter().map(|line| show(line.value).len()).max().unwrap_or(0).min(24);
    headline(text, "Options", paint);
    for line in &lines {
        let (shown, setter) = (show(line.value), set_by(judged, line));
        let row = format!("  {:path$}  {shown:value$}  {setter}", line.path);
        let row = if line.set_by == SetBy::BuiltIn { paint.paint(Tone::Faint, row) } else { row };
        put(text, format_args!("{row}"));
    }
}

fn add_decision(text: &mut String, judged: &Judged<'_>, paint: Paint) {
    let (decision, verdict) = (&judged.decision, judged.verdict());
    let colour = match decision.verdict {
        Verdict::Admit => Tone::Good,
        Verdict::Reject(_) => Tone::Bad,
        Verdict::Undecided => Tone::Doubt,
    };
    headline(text, "Decision", paint);
    put(text, format_args!("  verdict  {}", paint.paint(colour, verdict)));
    put(text, format_args!("  reason   {}", decision.reason().as_str()));
    if let Some(rule) = judged.rule() {
        put(text, format_args!("  rule     {rule}"));
    }
    if let Some(about) = judged.refusal.as_ref().and_then(|r| r.detail.as_deref()) {
        put(text, format_args!("  about    {about}"));
    }
    put(text, format_args!("  stage    {}", decision.stage.as_str()));
    if decision.rejects() {
        put(text, format_args!("  logged   {}", if decision.logged { "yes" } else { "no" }));
    }
    add_answer(text, judged);
    put(text, format_args!("  policy   {}", judged.policy_name()));
}

fn add_answer(text: &mut String, judged: &Judged<'_>) {
    let answer = match (&judged.refusal, judged.status()) {
        (None, _) => return,
        (Some(_), Some(status)) => format!("{status} {}", judged.crawl_status()),
        (Some(_), None) => "the connection is closed".to_owned(),
    };
    put(text, format_args!("  answer   {answer} (profile {})", judged.profile.as_str()));
}

fn headline(text: &mut String, words: &str, paint: Paint) {
    put(text, format_args!("\n{}", paint.paint(Tone::Strong, words)));
}

/// Adds a line. Writing to a string cannot fail.
fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(line);
    text.push('\n');
}

/// A value as a policy would write it.
fn show(value: &Value) -> String {
    match value.to_json() {
        Json::String(text) => text,
        Json::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

fn tone(status: RuleStatus) -> Tone {
    match status {
        RuleStatus::Matched => Tone::Good,
        RuleStatus::NoMatch => Tone::Faint,
        RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => Tone::Faint,
        RuleStatus::Undecided => Tone::Doubt,
    }
}
