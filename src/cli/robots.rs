//! `crawlgate robots`: evaluates a robots.txt, without a policy.
//!
//! `check` reads a file and uses no network; `fetch` requests the robots.txt of a host.

mod extensions;
mod fetch;

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};

use crate::clock::Clock;
use crate::model::units::format_duration;
use crate::robots::agent::RobotsAgent;
use crate::robots::extension::UsageRule;
use crate::robots::{MAX_FILE_BYTES, RobotsAccess, RobotsDecision, RobotsFile};
use crate::urls::target::{LaxReading, UrlTarget};

use super::args::{OutputFormat, RobotsArgs, RobotsCheckArgs, RobotsCommand};
use super::text::sanitize_text;
use super::{Exit, console, inputs};

pub(super) fn run(args: &RobotsArgs) -> Result<Exit, Exit> {
    match &args.command {
        RobotsCommand::Check(args) => check(args),
        RobotsCommand::Fetch(args) => fetch::run(args),
    }
}

fn check(args: &RobotsCheckArgs) -> Result<Exit, Exit> {
    let agent = parse_agent(&args.agent)?;
    if args.file == Path::new("-") && args.urls.is_empty() {
        return Err(console::report_invalid(
            &"standard input is the robots.txt (--file -): write the URLs as arguments",
        ));
    }
    let body = read_file(&args.file)
        .map_err(|error| console::report_invalid(&format!("{}: {error}", args.file.display())))?;
    let mut checker = RobotsUrlChecker {
        parsed: &RobotsFile::parse(&body),
        agent,
        format: args.format,
        out: &mut io::stdout().lock(),
    };
    match checker.check_all(&args.urls, &mut io::stdin().lock()) {
        Ok(0) => Ok(Exit::Success),
        Ok(_) => Ok(Exit::Negative),
        Err(error) => Err(console::report_io_error(&error)),
    }
}

/// Parses `--agent`: a product token, a whole `User-Agent`, or `*` for the group of all other crawlers.
fn parse_agent(agent: &str) -> Result<RobotsAgent<'_>, Exit> {
    if agent == "*" {
        return Ok(agent.into());
    }
    RobotsAgent::from_user_agent(agent).ok_or_else(|| {
        console::report_invalid(
            &"--agent must be *, or start with a product token: letters, digits, - and _",
        )
    })
}

/// Describes the tokens of a `User-Agent` that has two; `None` if it has one.
fn describe_agent(agent: RobotsAgent<'_>) -> Option<String> {
    let first = agent.first_product()?;
    let token = agent.token();
    Some(format!("{token} (and {first}: the stricter answer counts)"))
}

/// Reads a file, up to one byte more than the parser uses, so that the parser detects a file that is too long.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let limit = MAX_FILE_BYTES as u64 + 1;
    let mut body = vec![];
    if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut body)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut body)?;
    }
    Ok(body)
}

/// A checker of URLs against one file for one user agent.
struct RobotsUrlChecker<'a> {
    parsed: &'a RobotsFile,
    agent: RobotsAgent<'a>,
    format: OutputFormat,
    out: &'a mut dyn Write,
}

impl RobotsUrlChecker<'_> {
    /// Writes one line for each URL, and returns the number of inputs that are not URLs.
    fn check_all(&mut self, urls: &[String], stdin: &mut dyn BufRead) -> io::Result<usize> {
        let mut invalid = 0;
        self.write_extensions()?;
        inputs::for_each_url(urls, stdin, |input| {
            invalid += self.check_url(&String::from_utf8_lossy(input))?;
            Ok(())
        })?;
        self.out.flush()?;
        Ok(invalid)
    }

    /// Writes the other lines of the file as text. JSON leaves them to `fetch`, since here each line is for a URL.
    fn write_extensions(&mut self) -> io::Result<()> {
        if self.format == OutputFormat::Text {
            if let Some(agent) = describe_agent(self.agent) {
                writeln!(self.out, "{:<9} {agent}", "agent")?;
            }
            for (label, value) in extensions::labeled_lines(self.parsed, self.agent) {
                writeln!(self.out, "{label:<9} {value}")?;
            }
        }
        Ok(())
    }

    fn check_url(&mut self, input: &str) -> io::Result<usize> {
        let target = match parse_target(input) {
            Ok(target) => target,
            Err(error) => {
                self.write_error(input, &error)?;
                return Ok(1);
            }
        };
        let answer = RobotsCheckAnswer::new(self.parsed, self.agent, target.path_and_query());
        match self.format {
            OutputFormat::Text => {
                writeln!(self.out, "{}", answer.to_text(input))?;
                if answer.decision.access == RobotsAccess::Allow {
                    self.write_refused_reading(&target)?;
                }
            }
            OutputFormat::Json => writeln!(self.out, "{}", Json::Object(answer.to_json(input)))?,
        }
        Ok(0)
    }

    /// Writes a line if the proxy would refuse the URL nevertheless, because of how lax servers read it.
    fn write_refused_reading(&mut self, target: &UrlTarget) -> io::Result<()> {
        let reading = LaxReading::Decoded;
        let Some(url) = target.reading(reading) else {
            return Ok(());
        };
        let path = url.path_and_query();
        let refusal = self.parsed.refusal_of_reading(self.agent, path);
        let Some(rule) = refusal.and_then(|decision| decision.deciding_line) else {
            return Ok(());
        };
        writeln!(
            self.out,
            "{:<9} by the proxy: {} read it as {}, line {}: {}",
            "refused",
            reading.servers(),
            sanitize_text(path),
            rule.line,
            sanitize_text(&rule.text)
        )
    }

    fn write_error(&mut self, input: &str, error: &str) -> io::Result<()> {
        match self.format {
            // Debug formatting makes spaces visible and control characters harmless.
            OutputFormat::Text => writeln!(self.out, "{:<9} {error}: {input:?}", "error"),
            OutputFormat::Json => {
                writeln!(self.out, "{}", json!({ "input": input, "error": error }))
            }
        }
    }
}

/// Parses a URL as the proxy does. The input may be a path without a host.
fn parse_target(input: &str) -> Result<UrlTarget, String> {
    let url = if input.starts_with('/') {
        requested_url(&format!("http://host.invalid{input}"))
    } else {
        requested_url(input)
    };
    UrlTarget::parse(&url).map_err(|error| error.to_string())
}

/// Returns a URL without user info and fragment, which are not part of what a crawler requests.
fn requested_url(url: &str) -> String {
    let url = url.split('#').next().unwrap_or(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

/// The directives of a file that apply to one URL.
struct RobotsCheckAnswer<'a> {
    agent: RobotsAgent<'a>,
    decision: RobotsDecision<'a>,
    delay: Option<Duration>,
    /// The interval between requests that Request-rate demands at this time of day.
    rate: Option<Duration>,
    usage: Vec<UsageRule<'a>>,
}

impl<'a> RobotsCheckAnswer<'a> {
    fn new(parsed: &'a RobotsFile, agent: RobotsAgent<'a>, path_and_query: &str) -> Self {
        Self {
            agent,
            decision: parsed.decide(agent, path_and_query),
            delay: parsed.crawl_delay(agent),
            rate: parsed.request_interval(agent, || {
                Clock::system()
                    .wall_time()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
            }),
            usage: parsed.usage_rules(agent, path_and_query),
        }
    }

    fn to_text(&self, input: &str) -> String {
        let rule = match (&self.decision.deciding_line, &self.decision.group) {
            (Some(rule), _) => format!("line {}: {}", rule.line, sanitize_text(&rule.text)),
            (None, Some(_)) => "no rule matches".to_owned(),
            (None, None) => "no group".to_owned(),
        };
        let mut text = format!(
            "{:<9} {}  {rule}",
            access_word(self.decision.access),
            sanitize_text(input)
        );
        if let Some(group) = &self.decision.group {
            text.push_str(&format!("  (group {})", sanitize_text(group)));
        }
        if let Some(delay) = self.delay {
            text.push_str(&format!("  crawl-delay {}", format_duration(delay)));
        }
        if let Some(interval) = self.rate {
            text.push_str(&format!("  request-rate 1/{}", format_duration(interval)));
        }
        text.push_str(&extensions::usage_to_text(&self.usage));
        text
    }

    fn to_json(&self, input: &str) -> Map<String, Json> {
        let rule = self.decision.deciding_line.as_ref();
        let entries = [
            ("url", json!(input)),
            ("agent", json!(self.agent.token())),
            ("allow", json!(self.decision.access == RobotsAccess::Allow)),
            ("line", json!(rule.map(|rule| rule.line))),
            ("rule", json!(rule.map(|rule| &rule.text))),
            ("group", json!(self.decision.group)),
            ("crawl_delay", json!(self.delay.map(format_duration))),
            (
                "request_rate",
                json!(
                    self.rate
                        .map(|interval| format!("1/{}", format_duration(interval)))
                ),
            ),
            ("usage", extensions::usage_to_json(&self.usage)),
        ];
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

fn access_word(access: RobotsAccess) -> &'static str {
    match access {
        RobotsAccess::Allow => "allow",
        RobotsAccess::Disallow => "disallow",
    }
}
