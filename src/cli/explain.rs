//! `crawlgate explain`: why one request is allowed or refused, rule by rule.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use crate::config::load::Overrides;
use crate::gate::trial::Trial;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::decide::Verdict;
use crate::policy::explain::{OptionLine, RuleLine, RuleStatus};
use crate::policy::options::{SetBy, Value};
use crate::vocab::crawler::Crawler;
use crate::vocab::profile::Profile;

use super::Exit;
use super::args::{ExplainArgs, Format};
use super::judged;
use super::open;
use super::out::{self, complain, warn};
use super::paint::{Paint, Tone};

/// Runs the command.
pub(super) fn run(args: &ExplainArgs) -> Exit {
    let facts = match CaseFacts::from_json(&facts(args)) {
        Ok(facts) => facts,
        Err(mistake) => return complain(&format!("{}: {mistake}", args.url)),
    };
    let (policy, crawler) = match open(args) {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    let profile = args.profile.or_else(|| crawler?.profile()).unwrap_or(Profile::Generic);
    let trial = Trial::new(&policy, &facts, profile);
    let text = match args.format {
        Format::Text => in_words(&trial, &facts, Paint::for_stdout()),
        Format::Json => format!("{:#}\n", in_json(&trial, &facts)),
    };
    let refused = trial.decision.verdict != Verdict::Admit;
    let exit = if args.exit_code && refused { Exit::Negative } else { Exit::Success };
    out::write(&text, exit)
}

/// The policy, and what the configuration says of the crawler, if it is the configuration that names the policy.
fn open(args: &ExplainArgs) -> Result<(Policy, Option<Crawler>), Exit> {
    let loaded = match &args.policy {
        Some(path) => return Ok((open::policy(Some(path))?, None)),
        None => open::settings(&Overrides::default())?,
    };
    let known = loaded.settings.crawlers.into_iter().map(|known| known.crawler);
    let name = args.crawler.as_deref().unwrap_or(Crawler::ANONYMOUS);
    let crawler = known.into_iter().find(|known| known.as_str() == name);
    if crawler.is_none() && name != Crawler::ANONYMOUS && loaded.file.is_some() {
        warn(&format!("the configuration knows no crawler {name}"));
    }
    Ok((open::compiled(&loaded.settings.policy.origin)?.policy, crawler))
}

/// The arguments as the facts of `decide`, so that both mean the same.
fn facts(args: &ExplainArgs) -> Map<String, Json> {
    let mut headers = Map::new();
    for (name, value) in &args.headers {
        let values = headers.entry(name).or_insert_with(|| json!([]));
        if let Some(values) = values.as_array_mut() {
            values.push(json!(value));
        }
    }
    let facts = [
        ("url", json!(args.url)),
        ("tunnel", json!(args.tunnel)),
        ("method", json!(args.method)),
        ("crawler", json!(args.crawler)),
        ("referer", json!(args.referer)),
        ("depth", json!(args.depth)),
        ("address", json!(args.address)),
        ("status", json!(args.status)),
        ("content_type", json!(args.content_type)),
        ("size", json!(args.size)),
        ("headers", if headers.is_empty() { Json::Null } else { headers.into() }),
    ];
    facts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

fn in_json(trial: &Trial<'_>, facts: &CaseFacts) -> Json {
    let rules: Vec<Json> = trial.policy.rule_lines(&trial.trail).map(|line| rule_json(&line)).collect();
    let options: Vec<Json> =
        trial.policy.option_lines(&trial.trail).map(|line| option_json(trial, &line)).collect();
    let decision = judged::to_json(trial, facts);
    json!({ "url": facts.url(), "rules": rules, "options": options, "decision": decision })
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

fn option_json(trial: &Trial<'_>, line: &OptionLine<'_>) -> Json {
    json!({ "option": line.path, "value": line.value.to_json(), "set_by": set_by(trial, line) })
}

/// The rule's id, or where else the value comes from.
fn set_by<'p>(trial: &Trial<'p>, line: &OptionLine<'p>) -> &'p str {
    match line.set_by {
        SetBy::BuiltIn => "built-in",
        SetBy::Document => "options",
        SetBy::Space(space) => trial.policy.space_options(space),
        SetBy::Rule(rule) => trial.policy.rule_id(rule).unwrap_or(""),
    }
}

fn in_words(trial: &Trial<'_>, facts: &CaseFacts, paint: Paint) -> String {
    let mut text = format!("{}\n", paint.paint(Tone::Strong, facts.url()));
    add_rules(&mut text, trial, paint);
    add_options(&mut text, trial, paint);
    add_decision(&mut text, trial, facts, paint);
    text
}

fn add_rules(text: &mut String, trial: &Trial<'_>, paint: Paint) {
    let lines: Vec<RuleLine<'_>> = trial.policy.rule_lines(&trial.trail).collect();
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

/// Every option: first those that somebody set, then, faint, those that have their built-in value.
fn add_options(text: &mut String, trial: &Trial<'_>, paint: Paint) {
    let mut lines: Vec<OptionLine<'_>> = trial.policy.option_lines(&trial.trail).collect();
    lines.sort_by_key(|line| line.set_by == SetBy::BuiltIn);
    let path = lines.iter().map(|line| line.path.len()).max().unwrap_or(0);
    let value = lines.iter().map(|line| show(line.value).len()).max().unwrap_or(0).min(24);
    headline(text, "Options", paint);
    for line in &lines {
        let (shown, setter) = (show(line.value), set_by(trial, line));
        let row = format!("  {:path$}  {shown:value$}  {setter}", line.path);
        let row = if line.set_by == SetBy::BuiltIn { paint.paint(Tone::Faint, row) } else { row };
        put(text, format_args!("{row}"));
    }
}

fn add_decision(text: &mut String, trial: &Trial<'_>, facts: &CaseFacts, paint: Paint) {
    let (decision, verdict) = (&trial.decision, judged::verdict(trial));
    let colour = match decision.verdict {
        Verdict::Admit => Tone::Good,
        Verdict::Reject(_) => Tone::Bad,
        Verdict::Undecided => Tone::Doubt,
    };
    headline(text, "Decision", paint);
    put(text, format_args!("  verdict  {}", paint.paint(colour, verdict)));
    put(text, format_args!("  reason   {}", decision.reason().as_str()));
    if let Some(rule) = trial.rule() {
        put(text, format_args!("  rule     {rule}"));
    }
    if let Some(about) = trial.refusal.as_ref().and_then(|r| r.detail.as_deref()) {
        // The author of a policy does not write to the operator's terminal.
        put(text, format_args!("  about    {}", about.replace(|c: char| c.is_control(), " ")));
    }
    put(text, format_args!("  stage    {}", decision.stage.as_str()));
    if decision.rejects() {
        put(text, format_args!("  logged   {}", if decision.logged { "yes" } else { "no" }));
    }
    add_answer(text, trial, facts);
    put(text, format_args!("  policy   {}", judged::policy_name(trial)));
}

fn add_answer(text: &mut String, trial: &Trial<'_>, facts: &CaseFacts) {
    let answer = match (&trial.refusal, trial.answer().status) {
        (None, _) => return,
        (Some(_), Some(status)) => format!("{status} {}", judged::crawl_status(trial, facts)),
        (Some(_), None) => "the connection is closed".to_owned(),
    };
    put(text, format_args!("  answer   {answer} (profile {})", trial.profile.as_str()));
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
        other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => other.to_string(),
    }
}

fn tone(status: RuleStatus) -> Tone {
    match status {
        RuleStatus::Matched => Tone::Good,
        RuleStatus::NoMatch | RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => Tone::Faint,
        RuleStatus::Undecided => Tone::Doubt,
    }
}
