//! `crawlgate shadow`: shows what rules and policies in shadow mode would change in a running proxy, and changes its
//! shadow policy.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};
use url::form_urlencoded;

use crate::config::policy::{self, OpenAndCaptureError};

use super::Exit;
use super::admin_client::{AdminClientRequest, get_array, get_or_null, get_str, get_u64};
use super::args::{
    OutputFormat, ShadowArgs, ShadowClearArgs, ShadowCommand, ShadowPromoteArgs, ShadowSetArgs,
};
use super::console::{self, print_problems, report_cannot_run, report_invalid};
use super::inputs::report_errors;
use super::reload::policy_name;
use super::rollout;
use super::running_proxy::RunningProxy;
use crate::console::{ConsoleColors, Tone};

const SHADOW_POLICY_PATH: &str = "/api/v1/shadow/policy";
/// The maximum number of examples for each change.
const MAX_EXAMPLES: usize = 5;

pub(super) fn run(args: &ShadowArgs) -> Result<Exit, Exit> {
    match &args.command {
        None => show(args),
        Some(ShadowCommand::Set(args)) => set(args),
        Some(ShadowCommand::Promote(args)) => promote(args),
        Some(ShadowCommand::Clear(args)) => clear(args),
    }
}

/// Checks a policy, and sends it with its lists.
fn set(args: &ShadowSetArgs) -> Result<Exit, Exit> {
    let opened = policy::open_and_capture(&args.path);
    let (compiled, files) = opened.map_err(|error| match error {
        OpenAndCaptureError::Problems(problems) => report_errors(&problems),
        OpenAndCaptureError::Files(error) => report_invalid(&format!(
            "{}: {error}. Copy it to the proxy's machine, and name it in policy.shadow",
            args.path.display()
        )),
    })?;
    print_problems(&compiled.problems);
    let body = json!({
        "policy": files.entry(),
        "files": files.iter().map(|(path, bytes)| (path.to_owned(), file_content(bytes))).collect::<Map<_, _>>(),
        "reason": args.reason,
    });
    let request = AdminClientRequest {
        method: "PUT",
        ..AdminClientRequest::post(SHADOW_POLICY_PATH, Some(body.to_string()))
    };
    rollout::change(&args.proxy, args.format, request, |document| {
        let before = get_or_null(document, "before").as_str();
        let before = before.map_or(String::new(), |revision| {
            format!(", in place of revision {revision}")
        });
        format!(
            "policy {} is the shadow policy{before}\nits effects: crawlgate shadow\nto make it active: crawlgate shadow promote \
             --revision {} --reason TEXT\n",
            policy_name(document),
            get_str(document, "revision")
        )
    })
}

/// Returns the content of a file for a request: a text, or Base64 of a compressed list.
fn file_content(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

fn promote(args: &ShadowPromoteArgs) -> Result<Exit, Exit> {
    let body = json!({ "reason": args.reason, "revision": args.revision });
    let request = AdminClientRequest::post("/api/v1/shadow/promote", Some(body.to_string()));
    rollout::change(&args.proxy, args.format, request, rollout::activation_text)
}

fn clear(args: &ShadowClearArgs) -> Result<Exit, Exit> {
    let path = match &args.reason {
        Some(reason) => {
            let mut query = form_urlencoded::Serializer::new(String::new());
            format!(
                "{SHADOW_POLICY_PATH}?{}",
                query.append_pair("reason", reason).finish()
            )
        }
        None => SHADOW_POLICY_PATH.to_owned(),
    };
    let request = AdminClientRequest {
        method: "DELETE",
        ..AdminClientRequest::get(&path)
    };
    rollout::change(&args.proxy, args.format, request, |document| {
        format!(
            "policy {} is no longer the shadow policy\n",
            policy_name(document)
        )
    })
}

fn show(args: &ShadowArgs) -> Result<Exit, Exit> {
    let proxy = RunningProxy::find(&args.proxy)?;
    let document = proxy
        .get("/api/v1/shadow")
        .map_err(|error| report_cannot_run(&error))?;
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => report_text(&document, ConsoleColors::for_stdout()),
    };
    Ok(console::print(&text, Exit::Success))
}

fn report_text(document: &Json, colors: ConsoleColors) -> String {
    let rules = get_array(document, "rules");
    let shadow = Some(get_or_null(document, "shadow_policy")).filter(|shadow| !shadow.is_null());
    let active = format!("policy {}", policy_name(document));
    if rules.is_empty() && shadow.is_none() {
        return format!(
            "{active}: no rule has `mode: shadow`, and there is no shadow policy (crawlgate shadow set PATH)\n"
        );
    }
    let mut text = format!("{}\n", colors.paint(Tone::Strong, active));
    let mut rows = vec![ShadowTableRow::header()];
    for rule in rules {
        let name = get_str(rule, "rule").to_owned();
        rows.push(ShadowTableRow::from_entry(name, rule));
    }
    if let Some(shadow) = shadow {
        let name = format!("policy {}", policy_name(shadow));
        rows.push(ShadowTableRow::from_entry(name, shadow));
    }
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| rows.iter().map(|row| row.width(column)).max().unwrap_or(0))
        .collect();
    for row in &rows {
        text.push_str(&row.render(&widths));
    }
    if let Some(set) = shadow
        .map(|shadow| get_or_null(shadow, "set"))
        .filter(|set| !set.is_null())
    {
        let _ = writeln!(
            text,
            "the shadow policy was set {}{}",
            get_str(set, "at"),
            rollout::author_text(set)
        );
    }
    for rule in rules {
        write_examples(&mut text, get_str(rule, "rule"), rule, colors);
    }
    if let Some(shadow) = shadow {
        write_examples(&mut text, get_str(shadow, "policy"), shadow, colors);
    }
    text
}

const COLUMNS: usize = 5;

struct ShadowTableRow([String; COLUMNS]);

impl ShadowTableRow {
    fn header() -> Self {
        Self(
            [
                "in shadow",
                "evaluated",
                "would refuse",
                "would admit",
                "reasons",
            ]
            .map(str::to_owned),
        )
    }

    fn from_entry(name: String, entry: &Json) -> Self {
        let refuse = get_or_null(entry, "would_refuse");
        let admit = get_or_null(entry, "would_admit");
        let mut reasons = Vec::new();
        for (verb, tally) in [("refuse", refuse), ("admit", admit)] {
            let counts = [
                count_texts(get_or_null(tally, "reasons")),
                count_texts(get_or_null(tally, "rules")),
            ]
            .concat();
            if !counts.is_empty() {
                reasons.push(format!("{verb}: {}", counts.join(", ")));
            }
        }
        Self([
            name,
            get_u64(entry, "judged").to_string(),
            get_u64(refuse, "total").to_string(),
            get_u64(admit, "total").to_string(),
            reasons.join("; "),
        ])
    }

    fn width(&self, column: usize) -> usize {
        self.0.get(column).map_or(0, |cell| cell.chars().count())
    }

    /// Formats the row with names aligned to the left and numbers to the right, without padding at its end.
    fn render(&self, widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, (cell, width)) in self.0.iter().zip(widths).enumerate() {
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                1..4 => write!(line, "  {cell:>width$}"),
                _ => write!(line, "  {cell}"),
            };
        }
        format!("{}\n", line.trim_end())
    }
}

/// Formats each name of a map with its count, such as `rule (3)`.
fn count_texts(map: &Json) -> Vec<String> {
    map.as_object()
        .into_iter()
        .flatten()
        .map(|(name, count)| format!("{name} ({})", count.as_u64().unwrap_or_default()))
        .collect()
}

fn write_examples(text: &mut String, name: &str, entry: &Json, colors: ConsoleColors) {
    for (verb, key, tone) in [
        ("would refuse", "would_refuse", Tone::Bad),
        ("would admit", "would_admit", Tone::Good),
    ] {
        let examples = get_array(get_or_null(entry, key), "examples");
        if examples.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n{name} {}, most recently:",
            colors.paint(tone, verb)
        );
        for example in examples.iter().take(MAX_EXAMPLES) {
            let subject = get_or_null(example, "url")
                .as_str()
                .or(get_or_null(example, "host").as_str())
                .unwrap_or("(not recorded)");
            let rule = get_or_null(example, "rule")
                .as_str()
                .map_or(String::new(), |rule| format!("  rule={rule}"));
            let _ = writeln!(
                text,
                "  {}  {subject}{}",
                get_str(example, "at"),
                colors.paint(Tone::Faint, rule)
            );
        }
    }
}
