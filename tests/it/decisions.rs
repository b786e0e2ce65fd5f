//! `crawlgate decisions`: output, filters, summaries, rotation, and logs with harmful content.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::metrics::log::{
    DecisionLog, LogCloseResult, LogDestination, LogFileRotation, LogSettings,
};
use crawlgate::metrics::record::{Recorder, UrlRetention};
use crawlgate::model::reason::Reason;
use crawlgate::urls::target::UrlTarget;
use serde_json::{Value as Json, json};

use crate::support::client::{exchange, get};
use crate::support::command::{CommandOutput, crawlgate};
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;

const LONG: Duration = Duration::from_secs(20);

/// Returns a line as the proxy writes it; `change` replaces some of its fields.
fn line(second: u32, change: Json) -> String {
    let mut line = json!({
        "ts": format!("2026-01-01T00:00:{second:02}.500Z"), "decision": "9f3c01ab-1f", "crawler": "anonymous",
        "stage": "response", "method": "GET", "url": "http://www.example.com/a", "host": "www.example.com",
        "verdict": "allow", "reason": "default", "rule": null, "policy": "acme", "revision": "3f9c2a1b",
        "mode": "enforce", "held_ms": null, "origin_status": 200, "sent_status": 200, "content_type": "text/html",
        "bytes": 321, "dns_ms": 1.234, "connect_ms": 0.007, "tls_ms": null, "ttfb_ms": 95.0,
        "address": "192.0.2.7", "error": null,
    });
    change
        .as_object()
        .unwrap()
        .iter()
        .for_each(|(key, value)| line[key] = value.clone());
    line.to_string()
}

fn log() -> String {
    let refused =
        json!({ "verdict": "reject", "sent_status": 451, "reason": "rule", "rule": "no-pdf" });
    let mut lines = vec![
        line(0, json!({ "crawler": "news-bot" })),
        line(1, refused.clone()),
        line(
            2,
            json!({ "held_ms": 1250.0, "reason": "rule", "rule": "pages" }),
        ),
        line(
            3,
            json!({ "verdict": "shadow_reject", "reason": "rule", "rule": "tried", "held_ms": 35.2 }),
        ),
        line(
            4,
            json!({ "method": "CONNECT", "url": null, "sent_status": null, "error": "client_left" }),
        ),
    ];
    let mut hidden = refused;
    hidden["url"] = Json::Null;
    hidden["host"] = "other.example".into();
    hidden["rule"] = "a-rule-with-a-name-that-is-long".into();
    lines.push(line(5, hidden));
    lines.push(line(6, json!({ "rule": "pages" })));
    lines.join("\n") + "\n"
}

/// Runs the command with a log on standard input.
fn run(arguments: &[&str], input: impl AsRef<[u8]>) -> CommandOutput {
    crawlgate(
        TempDir::new().path(),
        &[&["decisions", "--log", "-"], arguments].concat(),
        input,
    )
}

#[test]
fn a_decision_is_one_aligned_line() {
    let output = run(&[], log());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let expected = "\
2026-01-01T00:00:00.500Z  news-bot   allow   200  default     -           GET http://www.example.com/a
2026-01-01T00:00:01.500Z  anonymous  reject  451  rule        no-pdf      GET http://www.example.com/a  9f3c01ab-1f
2026-01-01T00:00:02.500Z  anonymous  allow   200  rule        pages       GET http://www.example.com/a  held 1.25 s
2026-01-01T00:00:03.500Z  anonymous  shadow  200  rule        tried       GET http://www.example.com/a  held 35 ms  9f3c01ab-1f
2026-01-01T00:00:04.500Z  anonymous  allow   -    default     -           CONNECT www.example.com  client_left
2026-01-01T00:00:05.500Z  anonymous  reject  451  rule        a-rule-with-a-name-that-is-long  GET other.example  9f3c01ab-1f
2026-01-01T00:00:06.500Z  anonymous  allow   200  default     pages                     GET http://www.example.com/a
";
    assert_eq!(output.stdout, expected, "{}", output.stdout);
}

#[test]
fn as_json_it_is_the_line_of_the_log() {
    let output = run(&["--format", "json"], log());
    assert_eq!((output.code, output.stdout), (0, log()));
    // The last line may lack its line feed.
    let output = run(&["--format", "json"], log().trim_end());
    assert_eq!((output.code, output.stdout), (0, log()));
}

#[test]
fn decisions_that_do_not_match_are_left_out() {
    for (arguments, seconds) in [
        (&["--filter", "verdict=reject"][..], &[1, 5][..]),
        (
            &["--filter", "verdict=reject", "--filter", "host=*.com"],
            &[1],
        ),
        (
            &["--filter", "rule!=", "--filter", "verdict!=reject"],
            &[2, 3, 6],
        ),
        (&["--filter", "held>=35.2"], &[2, 3]),
        (
            &[
                "--filter",
                "url~/a$",
                "--filter",
                "status<400",
                "--filter",
                "crawler!=anonymous",
            ],
            &[0],
        ),
        (&["--filter", "error=client_left"], &[4]),
        (&["--filter", "rule=a-*-long"], &[5]),
        (&["--since", "2026-01-01T00:00:05Z"], &[5, 6]),
        (
            &[
                "--since",
                "2026-01-01T01:00:05.500+01:00",
                "--filter",
                "status=451",
            ],
            &[5],
        ),
        (&["--since", "1s"], &[]),
        (&["--until", "2026-01-01T00:00:01.500Z"], &[0]),
        (
            &[
                "--since",
                "2026-01-01T00:00:02Z",
                "--until",
                "2026-01-01T00:00:04Z",
            ],
            &[2, 3],
        ),
        (&["--until", "2026-01-01"], &[]),
        (&["--until", "1s", "--limit", "1"], &[6]),
        (&["--filter", "verdict=shadow"], &[3]),
        (&["--filter", "verdict!=shadow", "-n", "4"], &[2, 4, 5, 6]),
        (&["-n", "2"], &[5, 6]),
        (&["--limit", "1", "--filter", "reason=rule"], &[5]),
        (&["--limit", "all"], &[0, 1, 2, 3, 4, 5, 6]),
        (&["--crawler", "news-bot"], &[0]),
        (&["--crawler", "nobody"], &[]),
        (&["--host", "*.example.com", "-n", "1"], &[6]),
        (&["--url", "*/nothing"], &[]),
    ] {
        let output = run(arguments, log());
        assert_eq!(output.code, 0, "{arguments:?}");
        let is_found = !seconds.is_empty();
        assert_eq!(output.stderr.is_empty(), is_found, "{output:?}");
        let found: Vec<u32> = output
            .stdout
            .lines()
            .map(|line| line[17..19].parse().unwrap())
            .collect();
        assert_eq!(found, seconds, "{arguments:?}");
    }
}

#[test]
fn a_summary_counts_decisions() {
    let output = run(&["--summary", "rule"], log());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let expected = "\
rule                             decisions    allowed    refused  in shadow   share  last
-                                        2          2          0          0   28.6%  2026-01-01T00:00:04.500Z
pages                                    2          2          0          0   28.6%  2026-01-01T00:00:06.500Z
a-rule-with-a-name-that-is-long          1          0          1          0   14.3%  2026-01-01T00:00:05.500Z
no-pdf                                   1          0          1          0   14.3%  2026-01-01T00:00:01.500Z
tried                                    1          1          0          1   14.3%  2026-01-01T00:00:03.500Z
7 decisions, 2 refused, from 2026-01-01T00:00:00.500Z to 2026-01-01T00:00:06.500Z
";
    assert_eq!(output.stdout, expected, "{}", output.stdout);
    let output = run(
        &[
            "--summary",
            "host",
            "--limit",
            "1",
            "--filter",
            "verdict=reject",
        ],
        log(),
    );
    assert!(
        output
            .stdout
            .contains("1 more (--limit)\n2 decisions, 2 refused"),
        "{output:?}"
    );
    let output = run(&["--summary", "crawler", "--format", "json"], log());
    let found: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(found["rows"][1]["name"], "news-bot");
    assert_eq!(
        (&found["decisions"], &found["refused"], &found["left_out"]),
        (&json!(7), &json!(2), &json!(0))
    );
    let output = run(&["--summary", "reason", "--limit", "all"], "");
    assert!(output.code == 0, "{output:?}");
    assert!(output.stdout.ends_with("no decisions\n"), "{output:?}");
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_reported() {
    let mut input = log().into_bytes();
    let evil = json!({
        "url": "http://h/\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}31m", "crawler": "\u{202e}bot\u{0}", "rule": "a\r\nb",
        "ts": "2026\u{1b}[1m", "method": "\u{7f}", "reason": "\u{8}\u{8}", "host": "\u{1b}[31mh",
    });
    writeln!(&mut input, "{}", line(7, evil)).unwrap();
    input.extend_from_slice(
        b"\n\xff\xfe\0\0\n{\"ts\":\"t\",\"verdict\":\"al\x1b[2Jlow\"}\nno json\n[1,2]\n{}\n",
    );
    input.extend_from_slice(format!("{{\"ts\":\"{}\"}}\n", "x".repeat(2_000_000)).as_bytes());
    input.extend_from_slice("[".repeat(2_000_000).as_bytes());
    input.extend_from_slice(b"\n{\"ts\":\"torn");
    for form in [
        &["--format", "text"][..],
        &["--format", "json"],
        &["--summary", "rule"],
        &["--summary", "host"],
    ] {
        let output = run(form, &input);
        let summary = "8 of 16 lines cannot be read; the first is standard input:10: ";
        assert!(output.code == 1, "{form:?} {output:?}");
        assert!(output.stderr.contains(summary), "{form:?} {output:?}");
        let text = output.stdout + &output.stderr;
        assert!(
            !text
                .chars()
                .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{form:?} {text:?}"
        );
    }
    let output = run(&["--format", "json"], &input);
    let shown: Json = serde_json::from_str(output.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        shown["url"],
        "http://h/\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}31m"
    );
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn rotated_files_are_read_in_order() {
    let folder = TempDir::new();
    for (second, name) in [
        (1, "d.jsonl.11"),
        (3, "d.jsonl.2"),
        (4, "d.jsonl.1"),
        (5, "d.jsonl"),
        (9, "d.jsonl.bak"),
    ] {
        folder.write(name, line(second, json!({})) + "\n");
    }
    folder.write("d.jsonl.10.gz", gzip(&(line(2, json!({})) + "\n")));
    fn seconds(output: &CommandOutput) -> Vec<u32> {
        output
            .stdout
            .lines()
            .map(|l| l[17..19].parse().unwrap())
            .collect()
    }
    let output = crawlgate(folder.path(), "decisions --log d.jsonl --all", "");
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(seconds(&output), vec![1, 2, 3, 4, 5], "{output:?}");
    let output = crawlgate(folder.path(), "decisions --log d.jsonl", "");
    assert_eq!(seconds(&output), [5]);
    let output = crawlgate(folder.path(), "decisions --log d.jsonl.10.gz", "");
    assert_eq!(seconds(&output), [2]);
    // A compressed file is read from its beginning, since its last lines are not known.
    assert_eq!(
        Follower::start(folder.path(), &["d.jsonl.10.gz", "--follow"]).second(),
        "02"
    );
    // The last line of the current file may still be incomplete.
    folder.write("d.jsonl", line(5, json!({})) + "\n{\"ts\":\"20");
    let output = crawlgate(folder.path(), "decisions --log d.jsonl", "");
    assert_eq!((output.code, seconds(&output)), (0, vec![5]));
    folder.write("d.jsonl.10.gz", b"no archive");
    let output = crawlgate(folder.path(), "decisions --log d.jsonl --all", "");
    assert!(output.code == 3, "{output:?}");
    assert!(output.stderr.contains("d.jsonl.10.gz: "), "{output:?}");
}

#[test]
fn what_is_not_found_is_reported_on_standard_error() {
    for (arguments, log, note) in [
        (
            &["--url", "*/b"][..],
            log(),
            "none of the 7 decisions in the log matches",
        ),
        (
            &["--since", "2027-01-01", "-n", "3"],
            log(),
            "none of the 7 decisions",
        ),
        (
            &["--host", "x.example"],
            String::new(),
            "there are no decisions in the log",
        ),
    ] {
        let output = run(arguments, log);
        assert_eq!((output.code, &*output.stdout), (0, ""), "{output:?}");
        assert!(output.stderr.contains(note), "{output:?}");
    }
    assert_eq!(run(&["--url", "*/a"], log()).stderr, "");
    // Two lines have no URL; one of them is about another host.
    for (arguments, hidden) in [
        (
            &["--url", "*/b"][..],
            "2 of the decisions that match otherwise have no URL",
        ),
        (
            &["--url", "*/b", "--host", "other.example"],
            "1 of the decisions that match otherwise have no URL",
        ),
    ] {
        let output = run(arguments, log());
        assert!(output.stderr.contains(hidden), "{output:?}");
        assert!(output.stderr.contains("search by --host"), "{output:?}");
    }
    for arguments in [
        &["--host", "x.example"][..],
        &["--url", "*/b", "--host", "x.example"],
    ] {
        let output = run(arguments, log());
        assert!(!output.stderr.contains("no URL"), "{output:?}");
    }
    // A URL is compared in its canonical form.
    let written = run(&["--url", "HTTP://WWW.example.com:80/./a"], log());
    assert_eq!(
        (written.stdout.lines().count(), &*written.stderr),
        (5, ""),
        "{written:?}"
    );
    let rotated = TempDir::new();
    rotated.write("d.jsonl", line(5, json!({})) + "\n");
    rotated.write(
        "d.jsonl.1",
        line(1, json!({ "host": "old.example" })) + "\n",
    );
    for (all, has_hint) in [("", true), (" --all", false)] {
        let command = format!("decisions --log d.jsonl --host nowhere.example{all}");
        let output = crawlgate(rotated.path(), &*command, "");
        assert_eq!(
            output
                .stderr
                .contains("there are rotated files, which --all also reads"),
            has_hint,
            "{output:?}"
        );
    }
    let folder = TempDir::new();
    folder.write("d.jsonl", line(5, json!({})) + "\n");
    let since = |time: &str| {
        let time = format!("2026-01-01T00:00:{time}Z");
        let arguments = ["decisions", "--log", "d.jsonl", "--since", &time];
        crawlgate(folder.path(), &arguments, "").stderr
    };
    // No rotated file has older decisions.
    assert_eq!(since("04"), "");
    folder.write("d.jsonl.1", line(4, json!({})) + "\n");
    let hint = since("04");
    assert!(
        hint.contains("begins at 2026-01-01T00:00:05.500Z"),
        "{hint}"
    );
    assert!(hint.contains("--all"), "{hint}");
    assert!(!since("06").contains("--all"));
}

#[test]
fn errors_contain_the_remedy() {
    let folder = TempDir::new();
    folder.write(
        "policy.yaml",
        "policy: 1\nname: p\noptions: { disposition: allow }\n",
    );
    for (logs, arguments, code, part) in [
        (
            "",
            &[][..],
            2,
            "logs.decisions is auto, which cannot be read, and the proxy does not answer at 127.0.0.1:1",
        ),
        (
            "logs: { decisions: none }",
            &[],
            2,
            "logs.decisions is none",
        ),
        (
            "logs: { decisions: d.jsonl }",
            &[],
            2,
            "d.jsonl cannot be read: the proxy does not answer",
        ),
        (
            "logs: { decisions: d.log, format: squid }",
            &[],
            2,
            "logs.format is squid",
        ),
        ("", &["--log", "-", "--all"], 2, "--all"),
        (
            "",
            &["--log", "no-such-file"],
            2,
            "--log FILE names another",
        ),
        ("", &["--log", "."], 3, ".: it is a directory"),
        (
            "",
            &["--follow", "--summary", "rule"],
            2,
            "cannot be used with",
        ),
        ("", &["--limit", "5", "--follow"], 2, "cannot be used with"),
        ("", &["--until", "1h", "--lost"], 2, "cannot be used with"),
        (
            "",
            &["--summary", "rule", "--limit", "0"],
            2,
            "a number of at least 1",
        ),
        (
            "",
            &["--filter", "verdikt=allow"],
            2,
            "did you mean `verdict`?",
        ),
        ("", &["--since", "yesterday"], 2, "write a duration"),
    ] {
        folder.write(
            "c.yaml",
            format!("policy: {{ path: policy.yaml }}\nadmin: {{ listen: 127.0.0.1:1 }}\n{logs}\n"),
        );
        let config: &[&str] = if arguments.contains(&"--log") {
            &[]
        } else {
            &["--config", "c.yaml"]
        };
        let output = crawlgate(
            folder.path(),
            &[&["decisions"], config, arguments].concat(),
            "",
        );
        assert!(output.code == code, "{arguments:?} {output:?}");
        assert!(output.stderr.contains(part), "{arguments:?} {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?} {output:?}");
    }
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args([&["decisions", "--log"], arguments].concat())
        .current_dir(folder)
        .env_remove("CRAWLGATE_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The reader closes the pipe, as `| head -1` does.
#[test]
fn a_closed_pipe_ends_the_command_without_an_error() {
    let folder = TempDir::new();
    folder.write("d.jsonl", log().repeat(2_000));
    for form in ["text", "json"] {
        let mut child = start(folder.path(), &["d.jsonl", "--format", form]);
        let mut first = String::new();
        BufReader::with_capacity(512, child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        let status = child.wait().unwrap();
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{first}");
    }
}

/// A running `decisions --follow`, and the lines of its output.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut child = start(folder, arguments);
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(LONG).expect("another line")
    }

    fn second(&self) -> String {
        self.next()[17..19].to_owned()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn following_survives_moves_and_truncations() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    fn text(seconds: std::ops::Range<u32>) -> String {
        seconds.fold(String::new(), |mut text, second| {
            writeln!(&mut text, "{}", line(second, json!({}))).unwrap();
            text
        })
    }
    fn append(path: &std::path::Path, text: &str) {
        fs::File::options()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap()
    }
    fs::write(&path, text(0..15)).unwrap();
    let follower = Follower::start(
        folder.path(),
        &["d.jsonl", "--follow", "--filter", "verdict=allow"],
    );
    let shown: Vec<String> = (5..15).map(|_| follower.second()).collect();
    assert_eq!((shown[0].as_str(), shown[9].as_str()), ("05", "14"));
    append(&path, "no decision\n");
    // The line is written in two parts.
    let line = text(15..16);
    append(&path, &line[..50]);
    append(&path, &line[50..]);
    assert_eq!(follower.second(), "15");
    fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    fs::write(&path, text(16..17)).unwrap();
    assert_eq!(follower.second(), "16");
    append(&path, &text(17..18));
    assert_eq!(follower.second(), "17");
    // The file is truncated, so that it is shorter than the part that has been read.
    fs::write(&path, text(18..19)).unwrap();
    assert_eq!(follower.second(), "18");
    append(&path, &text(19..20));
    assert_eq!(follower.second(), "19");
    // The file may be rotated twice between two polls.
    fs::rename(&path, folder.path().join("d.jsonl.1")).unwrap();
    fs::write(folder.path().join("new"), text(20..21)).unwrap();
    fs::rename(
        folder.path().join("d.jsonl.1"),
        folder.path().join("d.jsonl.2"),
    )
    .unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("d.jsonl.1")).unwrap();
    fs::write(&path, text(21..22)).unwrap();
    assert_eq!(
        (follower.second(), follower.second()),
        ("20".to_owned(), "21".to_owned())
    );
}

/// If the command starts with the last lines, their numbers are unknown.
#[test]
fn following_reports_line_numbers_only_if_it_counted_from_the_beginning() {
    let folder = TempDir::new();
    let lines: String = (0..15)
        .map(|second| line(second, json!({})) + "\n")
        .collect();
    for (arguments, location) in [
        (&["d.jsonl", "--follow"][..], "d.jsonl: "),
        (&["d.jsonl", "--follow", "--all"], "d.jsonl:16: "),
    ] {
        folder.write("d.jsonl", format!("{lines}no decision\n"));
        let mut child = start(folder.path(), arguments);
        let mut warning = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut warning)
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(warning.contains(location), "{location} {warning}");
    }
}

/// The log rotates faster than it is polled: no line is missed, and none is shown twice.
#[test]
fn following_reads_every_line_of_a_rotating_log() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let (clock, _manual_clock) = Clock::manual();
    let metrics = Metrics::new(&[], &[]).unwrap();
    let rotate = Some(LogFileRotation {
        size: 20_000,
        keep: 1_000,
        max_age: None,
    });
    let settings = LogSettings {
        destination: LogDestination::Path(path),
        rotate,
        ..LogSettings::default()
    };
    let log = DecisionLog::open(settings, &metrics, &clock).unwrap();
    let recorder = Recorder::new(metrics, log.clone(), clock.clone());
    fn write(recorder: &Recorder, clock: &crawlgate::clock::Clock, n: usize) {
        let mut record = recorder.begin(clock.now(), &http::Method::GET);
        record.set_target(&UrlTarget::parse(&format!("http://h.example/{n}")).unwrap());
        record.set_rejected(Reason::Rule, None, UrlRetention::Full);
    }
    let follower = Follower::start(
        folder.path(),
        &["d.jsonl", "--follow", "--all", "--format", "json"],
    );
    for n in 0..3_000 {
        write(&recorder, &clock, n);
        if n % 50 == 0 {
            assert_eq!(log.flush(LONG), LogCloseResult::Done);
        }
    }
    assert_eq!(log.close(LONG), LogCloseResult::Done);
    for n in 0..3_000 {
        let line: Json = serde_json::from_str(&follower.next()).unwrap();
        assert_eq!(line["url"], format!("http://h.example/{n}"));
    }
    assert!(folder.path().join("d.jsonl.20").exists());
}

/// A proxy that cannot write its log reports it in its messages and in `/readyz`, with the number of lost lines at the end.
#[test]
fn lost_lines_are_reported() {
    let config =
        "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\nlogs: { decisions: /dev/full }\n";
    let mut gate = TestProxy::start(
        config,
        "policy: 1\nname: t\noptions: { disposition: disallow }\n",
    );
    for _ in 0..3 {
        get(gate.proxy, "http://h.invalid/");
    }
    fn until(gate: &TestProxy, words: &str) {
        let begun = std::time::Instant::now();
        while !gate.stderr().contains(words) && begun.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert!(gate.stderr().contains(words), "{words}: {}", gate.stderr());
    }
    until(
        &gate,
        "decision log: cannot be written, lines are lost: No space left on device",
    );
    let ready = gate.admin("GET /readyz").body;
    assert!(ready.contains("warn decision_log"), "{ready}");
    assert!(ready.contains("cannot be written"), "{ready}");
    gate.signal("TERM");
    until(&gate, "decision log: lines were lost");
    assert_eq!(gate.wait_for_exit(), Some(0));
    assert!(gate.stderr().contains("lines=3"), "{}", gate.stderr());
}

#[test]
fn a_proxy_writes_squids_lines() {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\nlogs: { decisions: log.json, format: squid }\n";
    let gate = TestProxy::start(
        config,
        "policy: 1\nname: t\noptions: { disposition: disallow, record: full }\n",
    );
    get(gate.proxy, "http://h.invalid/x?y");
    let begun = std::time::Instant::now();
    while !gate.decision_log().ends_with('\n') && begun.elapsed() < LONG {
        std::thread::yield_now();
    }
    let log = gate.decision_log();
    let fields: Vec<&str> = log.split_ascii_whitespace().collect();
    assert_eq!(fields[2..4], ["127.0.0.1", "TCP_DENIED/451"], "{log}");
    assert_eq!(
        fields[5..],
        ["GET", "http://h.invalid/x?y", "-", "HIER_NONE/-", "-"],
        "{log}"
    );
}

/// The command finds the log of a proxy by the configuration, and the log contains no secrets of requests.
#[test]
fn the_log_of_a_proxy_is_found_and_contains_no_query() {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\n\
                  logs: { decisions: decisions.jsonl, query: none }\n\
                  egress: { allow_loopback: true, ports: [1-65535] }\n";
    let policy = "policy: 1\nname: t\noptions: { disposition: allow, robots: { obey: false } }\n\
                  rules:\n  - { id: refused, forbid: { under: /refused }, log: true }\n\
                  \x20 - { id: tried, mode: shadow, forbid: { param.token: s3cret } }\n";
    let gate = TestProxy::start(config, policy);
    for path in [
        "refused?token=s3cret",
        "open?token=s3cret",
        "refused/s3cret?x",
    ] {
        let head = format!(
            "GET http://h.invalid/{path} HTTP/1.1\r\nHost: h.invalid\r\nReferer: http://h.invalid/?s3cret\r\n\
             Cookie: s3cret\r\nAuthorization: Bearer s3cret\r\nCrawl-Via: http://h.invalid/?s3cret\r\nConnection: close\r\n\r\n"
        );
        exchange(gate.proxy, &head);
    }
    // This request is allowed and answered by the proxy, but the shadow rule would refuse it.
    let head = "OPTIONS http://127.0.0.1:9/?token=s3cret HTTP/1.1\r\nHost: 127.0.0.1:9\r\nMax-Forwards: 0\r\n\
                Connection: close\r\n\r\n";
    exchange(gate.proxy, head);
    fn shown(gate: &TestProxy) -> CommandOutput {
        let config = gate.file("crawlgate.yaml");
        crawlgate(
            Path::new("."),
            &[
                "decisions",
                "--config",
                config.to_str().unwrap(),
                "--format",
                "json",
            ],
            "",
        )
    }
    let begun = std::time::Instant::now();
    while shown(&gate).stdout.lines().count() < 4 && begun.elapsed() < LONG {
        std::thread::yield_now();
    }
    let output = shown(&gate);
    assert!(output.code == 0 && output.stderr.is_empty(), "{output:?}");
    assert!(output.stdout.contains("/refused?redacted"), "{output:?}");
    assert!(
        output.stdout.contains("/refused/s3cret?redacted"),
        "{output:?}"
    );
    assert_eq!(
        output.stdout.matches("s3cret").count(),
        1,
        "only in the path: {output:?}"
    );
    assert!(!gate.stderr().contains("s3cret"), "{}", gate.stderr());
    // Every field of a line can be used in a filter, and is documented.
    let documented = fs::read_to_string("docs/decision-log.md").unwrap();
    let shadowed = output
        .stdout
        .lines()
        .find(|line| line.contains("\"shadow\":["))
        .expect("a request that the shadow rule would refuse");
    let line: Json = serde_json::from_str(shadowed).unwrap();
    let mut filters = vec![];
    for key in line.as_object().unwrap().keys() {
        assert!(
            documented.contains(&format!("`{key}`")),
            "{key} is not in docs/decision-log.md"
        );
        filters.extend(["--filter".to_owned(), format!("{key}!=\u{1}")]);
    }
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let output = run(&filters, shadowed);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.stdout.lines().count(), 1, "{output:?}");
}
