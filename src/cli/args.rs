//! What can be written after `crawlgate`, and the help that teaches it. No command's work is done here.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::vocab::profile::Profile;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "crawlgate",
    version,
    about = "An HTTP forward proxy that enforces crawl policy",
    long_about = "An HTTP forward proxy that enforces crawl policy.\n\n\
                  Point a crawler's http_proxy at it; every URL that the crawler asks for is judged by one policy, \
                  and every refusal says which rule refused it.",
    after_help = "Exit codes: 0 success, 1 a negative answer, 2 wrong usage or invalid input, 3 cannot run.\n\
                  `crawlgate help COMMAND` shows an example of each command.",
    arg_required_else_help = true,
    max_term_width = 110
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// A tour without a network: a small site, the proxy, a crawl, and what was refused
    #[command(after_help = DEMO_HELP)]
    Demo,
    /// Check policies and configurations, all mistakes in one run
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Show why a URL is allowed or refused, rule by rule
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Box<ExplainArgs>),
    /// Judge every line of standard input
    #[command(after_help = DECIDE_HELP)]
    Decide(DecideArgs),
    /// Run the cases of policies, and show what they do not reach
    #[command(after_help = TEST_HELP)]
    Test(TestArgs),
    /// Compare two policies: whose decision changes, by rule and by host
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Ask a robots.txt about URLs
    #[command(after_help = ROBOTS_HELP)]
    Robots(RobotsArgs),
    /// Show the canonical form of URLs, and the range of an address
    #[command(after_help = TARGET_HELP)]
    Target(TargetArgs),
    /// Make, show and export the certificate authority that clients trust
    #[command(after_help = CA_HELP)]
    Ca(CaArgs),
    /// Print the variables that send a shell's clients through the proxy
    #[command(after_help = ENV_HELP)]
    Env(EnvArgs),
    /// Show what rules and policies in shadow would change in a running proxy
    #[command(after_help = SHADOW_HELP)]
    Shadow(ShadowArgs),
    /// Print the JSON Schema of policies or configurations, for editors
    #[command(after_help = SCHEMA_HELP)]
    Schema(SchemaArgs),
    /// Print what a shell needs to complete commands
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Make the hash of a password, for `crawlers` in the configuration
    #[command(after_help = PASSWORD_HELP)]
    Password,
}

const SHADOW_HELP: &str = "\
Example:
  crawlgate shadow
  crawlgate shadow --admin 127.0.0.1:3129 --format json

For each rule with `mode: shadow`, and for the policy of `policy.shadow`: how many requests it would refuse that were
admitted, how many it would admit that were refused, why, and the latest of them. Counted since the policies of now are
in force; nothing of it has changed an answer.

The proxy is asked at `admin.listen`, with the token of `admin.token_file`. Requests that robots.txt, an address's range
or the host's turn refused are not counted, and what those would say under other options is not asked.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 the proxy cannot be asked.";

const PASSWORD_HELP: &str = "\
Example:
  crawlgate password                     asks for it without showing it
  printf '%s' \"$PASSWORD\" | crawlgate password

Prints an Argon2id hash for `password_hash` under `crawlers: [{name, auth: {user, password_hash}}]`. Put it in quotes, as
it is. Of standard input the first line is read. Hashes that `htpasswd -B` makes ($2y$...) can stand there too.";

const SCHEMA_HELP: &str = "\
Example:
  crawlgate schema policy > policy.schema.json

A policy whose first line is

  # yaml-language-server: $schema=policy.schema.json

is completed, explained and checked by editors that use the YAML language server (VS Code, Neovim, Helix, Emacs and
others). The path is relative to the policy. What a schema cannot say is for `crawlgate check`.

Exit codes: 0 printed, 2 wrong usage.";

const COMPLETIONS_HELP: &str = "\
Example:
  eval \"$(crawlgate completions bash)\"
  crawlgate completions zsh > ~/.zfunc/_crawlgate
  crawlgate completions fish > ~/.config/fish/completions/crawlgate.fish
  crawlgate completions powershell | Out-String | Invoke-Expression

Exit codes: 0 printed, 2 wrong usage.";

const CA_HELP: &str = "\
Example:
  crawlgate ca init
  crawlgate ca show
  crawlgate ca export -o crawlgate-ca.pem

The files are those of `tls.ca` in the configuration. The key never leaves its file, which nobody but its owner may read;
no file is overwritten. `run` makes an authority too, if it looks into TLS (`tls.intercept`) and there is none.

To change it: list a new one behind the old one under `tls.ca`, let clients trust both (the export and tls.bundle hold
all), then put the new one first: the first signs.

Exit codes: 0 done, 2 wrong usage, files that are there already or have mistakes, 3 no authority, or it cannot be used.";

const ENV_HELP: &str = "\
Example:
  eval \"$(crawlgate env)\"
  crawlgate env --shell fish | source
  crawlgate env --shell powershell | Out-String | Invoke-Expression

The proxy for http and https, and if it looks into TLS (`tls.intercept`) whom to trust: the file of `tls.bundle` for
clients whose variable replaces the system's roots, the certificate alone for Node, which adds it. Clients that read no
such variable (wget, aria2, Java, Chromium) are told in their own way; see README.

Exit codes: 0 printed, 2 wrong usage, configuration or crawler, 3 cannot print.";

const CHECK_HELP: &str = "\
Example:
  crawlgate check config/crawlgate.yaml config/policy.yaml

A file with `policy: 1` is checked as a policy, a directory as the policy that its files make, any other file as a
configuration together with the policy that it names.

Errors are what the proxy refuses to run under. Warnings are what probably does something else than its author wants,
among it rules that can never decide; of those only what is proved is told.

With --format json each problem has file, line, column, end (the column behind the last character, in the same line),
severity, rule, message, found, help and near; what there is not is null.

Exit codes: 0 no errors, 1 warnings under --strict, 2 errors.";

const EXPLAIN_HELP: &str = "\
Example:
  crawlgate explain http://intra.example.com/cgi-bin/x --policy config/policy.yaml
  crawlgate explain http://a.example/film --content-type video/mp4

A stage runs if it has facts: --address for the destination stage; --status, --content-type, --size, --header or --usage
for the response stage; --title, --body-prefix, --meta-robots or --canonical for the document stage.

Each rule is shown with what became of it and the values that decided; options with the rule that set them last; then the
decision, and the answer as the proxy would send it. The text has the width of $COLUMNS or of the terminal.

Exit codes: 0 explained, 1 rejected or undecided with --exit-code, 2 wrong usage, URL, configuration or policy.";

const DECIDE_HELP: &str = "\
Example:
  printf '%s\\n' http://a.example/ '{\"url\": \"http://a.example/f\", \"content_type\": \"video/mp4\"}' |
    crawlgate decide --policy config/policy.yaml

A line is a URL or a JSON object with facts: url, crawler, method, depth, referer, dest, tunnel, address, known, status,
content_type, size, headers, usage, title, body_prefix, meta_robots, canonical.

Exit codes: 0 every line was judged, 1 a line could not be read, 2 wrong usage or policy.";

const TEST_HELP: &str = "\
Example:
  crawlgate test config/policy.yaml --coverage
  crawlgate test policies/ --threshold 100 --format junit > report.xml

Cases stand in the policy, or in files of their own that name it:

  policy: ../policy.yaml
  cases:
    - { url: \"http://a.example/cgi-bin/x\", expect: reject, rule: no-cgi }

Those files are run if they, or a directory above them, are named. A directory whose files make one policy is that
policy. Each rule has two branches: a group applied or not, a filter hit or passed, a rule of `match: first` was taken or
not; rules that take no part are not counted.

Exit codes: 0 every case passed, 1 a case failed or the threshold was not reached, 2 wrong usage, policy or cases.";

const DIFF_HELP: &str = "\
Example:
  crawlgate diff old.yaml new.yaml
  crawlgate diff old.yaml new.yaml --urls crawled.txt
  cut -f1 crawl.log | crawlgate diff old.yaml new.yaml --urls

A line of the URLs is what a line of `decide` is: a URL, or a JSON object with facts. A decision has changed if its
verdict, its reason, its rule or the answer has, or an option of a URL that both policies allow. Without --urls it is the
cases of both policies that are judged, and rules, options and lists that were added, removed or changed are shown too.

Exit codes: 0 nothing changes, 1 something does, 2 wrong usage or policy, or a line that could not be read.";

const ROBOTS_HELP: &str = "\
Example:
  crawlgate robots check --file robots.txt --agent news-bot http://a.example/x /y
  curl -s http://a.example/robots.txt | crawlgate robots check --file - --agent news-bot /x

  crawlgate robots fetch http://a.example/x --agent news-bot

Each line of `check` is one URL: allow or disallow, the line that decided with its group, and the group's Crawl-delay.

Exit codes: 0 every URL was answered, 1 one is no URL, or the host's file cannot be had, 2 wrong usage, or a file that
cannot be read.";

const TARGET_HELP: &str = "\
Example:
  crawlgate target 'HTTP://Example.COM:80/a/../b' http://0x7f.1/

Nothing is asked of anybody: no policy, no name server.

Exit codes: 0 every input is a URL, 1 one is not, 2 wrong usage.";

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The form of a line of `decide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// One JSON object a line.
    Json,
    /// URL, verdict, stage, reason, rule and status, separated by tabs.
    Tsv,
}

/// Arguments of `run`.
#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// The configuration; else $CRAWLGATE_CONFIG, else config/crawlgate.yaml, else all defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The policy, in place of the configuration's: a file, or a directory of *.yaml files
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// Where crawlers connect, in place of the configuration's
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where metrics, health and the admin API are, in place of the configuration's
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Policies and configurations; without one, the configuration that `run` would use, and its policy
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exit 1 if there are warnings
    #[arg(long)]
    pub strict: bool,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The URL, as a crawler would ask for it
    #[arg(value_name = "URL")]
    pub url: String,
    /// The policy; without one, the policy that `run` would use
    #[arg(long, value_name = "PATH")]
    pub policy: Option<PathBuf>,
    /// The profile that answers; without one, that of the crawler, else generic
    #[arg(long, value_parser = profile)]
    pub profile: Option<Profile>,
    /// The crawler's name; without --policy, what the configuration says of it holds
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
    /// The method
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// The response's Content-Type
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// The response's status
    #[arg(long, value_name = "N")]
    pub status: Option<u16>,
    /// The response's size in bytes
    #[arg(long, value_name = "BYTES")]
    pub size: Option<u64>,
    /// A header of the response; may be repeated
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// The title of the document
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// The first bytes of the document
    #[arg(long, value_name = "TEXT")]
    pub body_prefix: Option<String>,
    /// The directives of the document's <meta name="robots">
    #[arg(long, value_name = "TEXT")]
    pub meta_robots: Option<String>,
    /// The target of the document's <link rel="canonical">
    #[arg(long, value_name = "URL")]
    pub canonical: Option<String>,
    /// What the site says of a use: allow, deny or unset; may be repeated
    #[arg(long, value_name = "NAME=WORD", value_parser = usage)]
    pub usage: Vec<(String, String)>,
    /// The address that would be dialled
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Links from a start page
    #[arg(long, value_name = "N")]
    pub depth: Option<u64>,
    /// The Referer
    #[arg(long, value_name = "URL")]
    pub referer: Option<String>,
    /// What the answer is wanted for: navigation or embed
    #[arg(long, value_name = "WORD")]
    pub dest: Option<String>,
    /// The URL is in the ledger: it was fetched before
    #[arg(long)]
    pub known: bool,
    /// Judge a tunnel to the URL's host and port, which hides the rest
    #[arg(long)]
    pub tunnel: bool,
    /// Exit 1 unless the URL is allowed
    #[arg(long)]
    pub exit_code: bool,
    /// Show the options that nobody set, too
    #[arg(long)]
    pub all: bool,
    /// The form of the explanation
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `decide`.
#[derive(Args, Debug)]
pub struct DecideArgs {
    /// The policy: a file, or a directory of *.yaml files
    #[arg(long, value_name = "PATH")]
    pub policy: PathBuf,
    /// The form of a line
    #[arg(long, value_enum, default_value = "json")]
    pub format: LineFormat,
}

/// The form of the report of `test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// XML for continuous integration.
    Junit,
}

/// Arguments of `test`.
#[derive(Args, Debug)]
pub struct TestArgs {
    /// Policies, case files, and directories of them; without one, the policy that `run` would use
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Show how much of each policy its cases reach, and what none of them does
    #[arg(long)]
    pub coverage: bool,
    /// Exit 1 if the cases reach less of the branches
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub threshold: Option<f64>,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: TestFormat,
}

/// Arguments of `schema`.
#[derive(Args, Debug)]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_enum, value_name = "WHAT")]
    pub of: SchemaOf,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: CompletionShell,
}

/// The shells that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
}

/// What has a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// Policies, parts of them, and case files.
    Policy,
    /// Configurations.
    Config,
}

/// Arguments of `diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The policy as it was: a file, or a directory of *.yaml files
    #[arg(value_name = "OLD")]
    pub old: PathBuf,
    /// The policy as it is to be
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Judge these URLs, one a line; without FILE those of standard input
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub urls: Option<PathBuf>,
    /// The profile that answers
    #[arg(long, value_parser = profile, default_value = "generic")]
    pub profile: Profile,
    /// How many examples are shown of each change
    #[arg(long, value_name = "N", default_value = "3")]
    pub examples: usize,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `robots`.
#[derive(Args, Debug)]
pub struct RobotsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RobotsCommand,
}

/// The commands under `robots`.
#[derive(Debug, Subcommand)]
pub enum RobotsCommand {
    /// Judge URLs by a robots.txt in a file
    Check(RobotsCheckArgs),
    /// Fetch a host's robots.txt as the proxy would, and say what it means
    Fetch(RobotsFetchArgs),
}

/// Arguments of `robots check`.
#[derive(Args, Debug)]
pub struct RobotsCheckArgs {
    /// The robots.txt; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// The crawler: a product token, or a User-Agent that begins with one
    #[arg(long, value_name = "AGENT")]
    pub agent: String,
    /// URLs, or paths that begin with `/`; without one, they are read from standard input, one a line
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// The form of a line
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `robots fetch`.
#[derive(Args, Debug)]
pub struct RobotsFetchArgs {
    /// A URL of the host; one with a path is judged too
    #[arg(value_name = "URL")]
    pub url: String,
    /// The crawler: a product token, or a User-Agent that begins with one
    #[arg(long, value_name = "AGENT", default_value = "crawlgate")]
    pub agent: String,
    /// The configuration, for `egress`, `timeouts` and `limits`; else the one that `run` would use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The form of the answer
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `ca`.
#[derive(Args, Debug)]
pub struct CaArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CaCommand,
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// The commands under `ca`.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Make the first authority of the configuration
    Init,
    /// Show who they are, how long they are valid and where they are
    Show,
    /// Write the certificates, for clients that shall trust them
    Export(CaExportArgs),
}

/// Arguments of `ca export`.
#[derive(Args, Debug)]
pub struct CaExportArgs {
    /// PEM holds all authorities, DER the one that signs
    #[arg(long, value_enum, default_value = "pem")]
    pub format: CaFormat,
    /// Where to; else standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The form of an exported certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CaFormat {
    /// Text, one certificate after another.
    Pem,
    /// The bytes of one.
    Der,
}

/// Arguments of `env`.
#[derive(Args, Debug)]
pub struct EnvArgs {
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Whose language to print; else that of $SHELL, else sh
    #[arg(long, value_enum)]
    pub shell: Option<Shell>,
    /// The crawler whose own listener to name
    #[arg(long, value_name = "NAME")]
    pub crawler: Option<String>,
}

/// A shell's language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// POSIX: sh, bash, zsh, dash.
    Sh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
}

/// Arguments of `shadow`.
#[derive(Args, Debug)]
pub struct ShadowArgs {
    /// The configuration; else the one that `run` would use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the admin API is, in place of the configuration's
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// The form of the report
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `target`.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// The URLs; without one, they are read from standard input, one a line
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// The form of a line
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

fn profile(word: &str) -> Result<Profile, String> {
    let known = || Profile::ALL.map(Profile::as_str).join(", ");
    Profile::from_word(word).ok_or_else(|| format!("known profiles: {}", known()))
}

fn usage(text: &str) -> Result<(String, String), String> {
    let (name, word) = text.split_once('=').ok_or("write NAME=WORD, such as train-ai=deny")?;
    Ok((name.trim().to_owned(), word.trim().to_owned()))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "write a number from 0 to 100".to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME:VALUE")?;
    if name.trim().is_empty() {
        return Err("the name is empty".into());
    }
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

const RUN_HELP: &str = "\
Example:
  crawlgate run --policy config/policy.yaml
  http_proxy=http://127.0.0.1:3128 curl -i http://example.com/

Without arguments it listens on loopback only.

SIGHUP reads the policy again, as a change of its files does; one with a mistake leaves the old one in force.
SIGTERM drains: no new connections, what waits is sent away, what is under way is finished. A second one cuts it off.

$CRAWLGATE_LOG says how much is told on standard error: off, error, warn, info (the default), debug, trace.

Exit codes: 0 stopped, 2 invalid configuration or policy, 3 cannot start (an address is taken)";

const DEMO_HELP: &str = "\
Example:
  crawlgate demo

Each line is one URL: the status, the reason and rule of a refusal, the URL.

Exit codes: 0 every reason that the site provokes was seen, 1 one was not, 3 cannot start";
