//! `crawlgate robots`: what a robots.txt says, without a policy. `check` reads a file and asks nobody; `fetch` asks the
//! host.

mod extensions;
mod fetch;

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};

use crate::clock::Clock;
use crate::model::units::format_duration;
use crate::robots::extension::UsageRule;
use crate::robots::product_token::product_token;
use crate::robots::{MAX_FILE_BYTES, RobotsAccess, RobotsDecision, RobotsFile};
use crate::urls::target::UrlTarget;

use super::args::{OutputFormat, RobotsArgs, RobotsCheckArgs, RobotsCommand};
use super::sanitize::sanitize_text;
use super::{Exit, console};

pub(super) fn run(args: &RobotsArgs) -> Exit {
    match &args.command {
        RobotsCommand::Check(args) => check(args),
        RobotsCommand::Fetch(args) => fetch::run(args),
    }
}

fn check(args: &RobotsCheckArgs) -> Exit {
    let agent = product_token(&args.agent);
    if agent.is_empty() {
        return console::report_invalid(
            &"--agent has to begin with a product token: letters, digits, - and _",
        );
    }
    if args.file == Path::new("-") && args.urls.is_empty() {
        return console::report_invalid(&"standard input is the file: write the URLs as arguments");
    }
    let parsed = match read_file(&args.file) {
        Ok(body) => RobotsFile::parse(&body),
        Err(error) => return console::report_invalid(&format!("{}: {error}", args.file.display())),
    };
    let mut asked = RobotsUrlChecker {
        parsed: &parsed,
        agent,
        format: args.format,
        out: &mut io::stdout().lock(),
    };
    match asked.check_all(&args.urls, &mut io::stdin().lock()) {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Negative,
        Err(error) => console::report_io_error(&error),
    }
}

/// One byte more than is used, so that a longer file is seen to be longer.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let (limit, mut body) = (MAX_FILE_BYTES as u64 + 1, vec![]);
    match path == Path::new("-") {
        true => io::stdin().lock().take(limit).read_to_end(&mut body)?,
        false => File::open(path)?.take(limit).read_to_end(&mut body)?,
    };
    Ok(body)
}

/// URLs asked of one file for one crawler.
struct RobotsUrlChecker<'a> {
    parsed: &'a RobotsFile,
    agent: &'a str,
    format: OutputFormat,
    out: &'a mut dyn Write,
}

impl RobotsUrlChecker<'_> {
    /// Writes one line for each URL, and says how many of them are none.
    fn check_all(&mut self, urls: &[String], stdin: &mut dyn BufRead) -> io::Result<usize> {
        let mut mistakes = 0;
        self.write_file_notes()?;
        for url in urls {
            mistakes += self.check_url(url)?;
        }
        if urls.is_empty() {
            let mut line = Vec::new();
            while stdin.read_until(b'\n', &mut line)? > 0 {
                mistakes +=
                    self.check_url(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']))?;
                line.clear();
            }
        }
        self.out.flush()?;
        Ok(mistakes)
    }

    /// What the file says beside its rules, for people; in JSON `fetch` tells it, since here each line is an answer.
    fn write_file_notes(&mut self) -> io::Result<()> {
        let noted = match self.format {
            OutputFormat::Text => extensions::labeled_lines(self.parsed, self.agent),
            OutputFormat::Json => vec![],
        };
        noted
            .iter()
            .try_for_each(|(word, value)| writeln!(self.out, "{word:<9} {value}"))
    }

    fn check_url(&mut self, input: &str) -> io::Result<usize> {
        let path = match path_and_query(input) {
            Ok(path) => path,
            Err(mistake) => {
                self.write_mistake(input, &mistake)?;
                return Ok(1);
            }
        };
        let answer = RobotsCheckAnswer::new(self.parsed, self.agent, &path);
        match self.format {
            OutputFormat::Text => writeln!(self.out, "{}", answer.to_text(input))?,
            OutputFormat::Json => writeln!(self.out, "{}", Json::Object(answer.to_json(input)))?,
        }
        Ok(0)
    }

    fn write_mistake(&mut self, input: &str, mistake: &str) -> io::Result<()> {
        match self.format {
            // Quoted, so that a space or a control character is seen and does nothing.
            OutputFormat::Text => writeln!(self.out, "{:<9} {mistake}: {input:?}", "error"),
            OutputFormat::Json => {
                writeln!(self.out, "{}", json!({ "input": input, "error": mistake }))
            }
        }
    }
}

/// The path and query of a URL as the proxy would send it; a path alone is taken for one on some host.
fn path_and_query(input: &str) -> Result<String, String> {
    let url = match input.starts_with('/') && !input.starts_with("//") {
        true => format!("http://host.invalid{input}"),
        false => input.to_owned(),
    };
    let target = UrlTarget::parse(&url).map_err(|mistake| mistake.to_string())?;
    Ok(target.path_and_query().to_owned())
}

/// What the file says of one URL.
struct RobotsCheckAnswer<'a> {
    ruling: RobotsDecision<'a>,
    delay: Option<Duration>,
    /// The time between requests that Request-rate asks for now.
    rate: Option<Duration>,
    usage: Vec<UsageRule<'a>>,
}

impl<'a> RobotsCheckAnswer<'a> {
    fn new(parsed: &'a RobotsFile, agent: &str, path_and_query: &str) -> Self {
        let now = || {
            Clock::system()
                .wall_time()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
        };
        Self {
            ruling: parsed.decide(agent, path_and_query),
            delay: parsed.crawl_delay(agent),
            rate: parsed.request_interval(agent, now),
            usage: parsed.usage_rules(agent, path_and_query),
        }
    }

    fn to_text(&self, input: &str) -> String {
        let cause = match (&self.ruling.deciding_line, &self.ruling.group) {
            (Some(cause), _) => format!("line {}: {}", cause.line, sanitize_text(&cause.text)),
            (None, Some(_)) => "no rule matches".to_owned(),
            (None, None) => "no group".to_owned(),
        };
        let group = self
            .ruling
            .group
            .as_deref()
            .map(|g| format!("  (group {})", sanitize_text(g)));
        let delay = self
            .delay
            .map(|d| format!("  crawl-delay {}", format_duration(d)));
        let rate = self
            .rate
            .map(|interval| format!("  request-rate 1/{}", format_duration(interval)));
        let (group, delay, rate) = (
            group.unwrap_or_default(),
            delay.unwrap_or_default(),
            rate.unwrap_or_default(),
        );
        let usage = extensions::usage_to_text(&self.usage);
        format!(
            "{:<9} {}  {cause}{group}{delay}{rate}{usage}",
            access_word(self.ruling.access),
            sanitize_text(input)
        )
    }

    fn to_json(&self, input: &str) -> Map<String, Json> {
        let cause = self.ruling.deciding_line.as_ref();
        let entries = [
            ("url", json!(input)),
            ("allow", json!(self.ruling.access == RobotsAccess::Allow)),
            ("line", json!(cause.map(|cause| cause.line))),
            ("rule", json!(cause.map(|cause| &cause.text))),
            ("group", json!(self.ruling.group)),
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
