//! `crawlgate find`: searches a URL that gets a verdict.

use serde_json::{Value as Json, json};

use crate::diagnostics::nearest::nearest;
use crate::policy::exact::{
    VerdictAnswer, VerdictQuery, WantedVerdict, find_verdict, is_url_beginning,
};
use crate::urls::target::canonical_host;

use super::Exit;
use super::args::{FindArgs, FoundVerdict, OutputFormat};
use super::console::{self, report_invalid};
use super::inputs;

pub(super) fn run(args: &FindArgs) -> Result<Exit, Exit> {
    let policy = inputs::load_policy(args.policy.as_deref())?;
    let mut rule = None;
    if let Some(id) = &args.rule {
        rule = policy.rule_index(id);
        if rule.is_none() {
            let known = policy.rules().iter().map(|rule| rule.id.as_str());
            let suggestion = nearest(id, known)
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(report_invalid(&format!(
                "--rule {id}: the policy has no rule with this id{suggestion}"
            )));
        }
    }
    if let Some(under) = args.under.as_ref().filter(|under| !is_url_beginning(under)) {
        return Err(report_invalid(&format!("no URL begins with `{under}`")));
    }
    let host = args
        .host
        .as_deref()
        .map(|host| {
            canonical_host(host).map_err(|error| report_invalid(&format!("--host {host}: {error}")))
        })
        .transpose()?;
    let answer = find_verdict(
        &policy,
        &VerdictQuery {
            verdict: match args.verdict {
                FoundVerdict::Allow => WantedVerdict::Allow,
                FoundVerdict::Reject => WantedVerdict::Reject,
            },
            rule,
            under: args.under.as_deref(),
            host: host.as_deref(),
            crawler: args.crawler.as_deref(),
        },
    );
    let exit = match answer {
        VerdictAnswer::Found(_) => Exit::Success,
        VerdictAnswer::Never | VerdictAnswer::Undecided(_) => Exit::Negative,
    };
    let text = match args.format {
        OutputFormat::Text => format!("{}\n", to_text(&answer)),
        OutputFormat::Json => format!("{:#}\n", to_json(&answer)),
    };
    Ok(console::print(&text, exit))
}

fn to_text(answer: &VerdictAnswer) -> String {
    match answer {
        VerdictAnswer::Found(example) => format!("{}{}", example.url, example.describe_details()),
        VerdictAnswer::Never => "proved: no URL gets this verdict".to_owned(),
        VerdictAnswer::Undecided(reason) => format!("not decided: {reason}"),
    }
}

fn to_json(answer: &VerdictAnswer) -> Json {
    match answer {
        VerdictAnswer::Found(example) => {
            json!({ "answer": "found", "url": example.url, "facts": example.details })
        }
        VerdictAnswer::Never => json!({ "answer": "proved" }),
        VerdictAnswer::Undecided(reason) => json!({ "answer": "undecided", "reason": reason }),
    }
}
