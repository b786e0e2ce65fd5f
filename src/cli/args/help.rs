//! What `crawlgate help COMMAND` says below the options: an example, what the command does, and its exit codes.

pub(super) const SHADOW_HELP: &str = "\
Example:
  crawlgate shadow
  crawlgate shadow --admin 127.0.0.1:3129 --format json

For each rule with `mode: shadow`, and for the policy of `policy.shadow`: how many requests it
would refuse that were admitted, how many it would admit that were refused, why, and the latest of
them. Counted since the policies of now are in force; nothing of it has changed an answer.

The proxy is asked at `admin.listen`, with the token of `admin.token_file`. Requests that
robots.txt, an address's range or the host's turn refused are not counted, and what those would
say under other options is not asked.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 the proxy cannot be asked.";

pub(super) const STOP_HELP: &str = "\
Example:
  crawlgate stop www.example.com --reason 'they have called: ticket 7' --for 1h
  crawlgate stop '*.example.com' --reason 'legal' ; crawlgate stop crawler:news-bot --reason 'loops'
  crawlgate stop --list
  crawlgate stop --lift 3

From that moment no request that it covers is sent: it waits as long as it may (`max_hold`), then
gets the reason `stopped` and is told to come again. What is under way is finished; blind tunnels
are closed. A rule stops every request to which it applies, whatever it says of them.

The proxy is asked at `admin.listen`, with the token of `admin.token_file`. Stops are kept over a
restart, in stops.json under `store.path`.

Exit codes: 0 done, 1 there is no such stop to lift, 2 wrong usage or configuration, 3 the proxy
cannot be asked, or refuses.";

pub(super) const LEDGER_LIST_HELP: &str = "\
Example:
  crawlgate ledger list --host '*.example.com' --status REJECTED_FILTER
  crawlgate ledger list --crawler news-bot --code 760 --limit all --format csv

A line is: when it was last asked for, crawler, what became of it, the origin's status, OmniFind's
code, URL. The other forms have every field (docs/ledger.md). In CSV a text that a spreadsheet would
take for a formula has an apostrophe in front.

URLs come in the order of their keys, which is none that means anything. Those of a running proxy
are asked for at `admin.listen`, with the token of `admin.token_file`; if none runs, the files under
`store.path` are read.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 no ledger is kept, or it cannot be read.";

pub(super) const LEDGER_STATS_HELP: &str = "\
Example:
  crawlgate ledger stats
  crawlgate ledger stats --format json | jq '.by_status.ACCEPTED'

How many URLs there are, by what became of them, and the sweep that runs or ran last.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 no ledger is kept, or it cannot be read.";

pub(super) const LEDGER_EXPORT_HELP: &str = "\
Example:
  crawlgate ledger export -o urls.ndjson
  crawlgate ledger export --format csv --status ACCEPTED > accepted.csv

Everything that fits, whatever its number, in bounded memory. On a terminal standard error says how
far it is. What is noted while it runs may be in it or not; nothing is in it twice.

Exit codes: 0 written, 2 wrong usage or configuration, 3 no ledger is kept, or it cannot be read, or
the output cannot be written.";

pub(super) const LEDGER_SWEEP_HELP: &str = "\
Example:
  crawlgate ledger sweep --dry-run
  crawlgate ledger sweep

Each URL is judged by the policy in force: what it excludes gets 760 and a removal order, what is in
another crawler's space gets 761 and stays in the index, what it allows loses an earlier code. A
reload that shrinks a space does this by itself. --dry-run writes nothing: it shows counts, and the
URLs that no space has any more, with what decides (1,000 of them at most).

The command follows the sweep to its end. Broken off, the sweep goes on in the proxy.

Exit codes: 0 done, 2 wrong usage or configuration, 3 no ledger is kept, a sweep is under way
already, or the proxy cannot be asked.";

pub(super) const PASSWORD_HELP: &str = "\
Example:
  crawlgate password                     asks for it without showing it
  printf '%s' \"$PASSWORD\" | crawlgate password

Prints an Argon2id hash for `password_hash` under `crawlers: [{name, auth: {user,
password_hash}}]`. Put it in quotes, as it is. Of standard input the first line is read. Hashes
that `htpasswd -B` makes ($2y$...) can stand there too.";

pub(super) const SCHEMA_HELP: &str = "\
Example:
  crawlgate schema policy > policy.schema.json

A policy whose first line is

  # yaml-language-server: $schema=policy.schema.json

is completed, explained and checked by editors that use the YAML language server (VS Code, Neovim,
Helix, Emacs and others). The path is relative to the policy. What a schema cannot say is for
`crawlgate check`.

Exit codes: 0 printed, 2 wrong usage.";

pub(super) const COMPLETIONS_HELP: &str = "\
Example:
  eval \"$(crawlgate completions bash)\"
  crawlgate completions zsh > ~/.zfunc/_crawlgate
  crawlgate completions fish > ~/.config/fish/completions/crawlgate.fish
  crawlgate completions powershell | Out-String | Invoke-Expression

Exit codes: 0 printed, 2 wrong usage.";

pub(super) const CA_HELP: &str = "\
Example:
  crawlgate ca init
  crawlgate ca show
  crawlgate ca export -o crawlgate-ca.pem

The files are those of `tls.ca` in the configuration. The key never leaves its file, which nobody
but its owner may read; no file is overwritten. `run` makes an authority too, if it looks into TLS
(`tls.intercept`) and there is none.

To change it: list a new one behind the old one under `tls.ca`, let clients trust both (the export
and tls.bundle hold all), then put the new one first: the first signs.

Exit codes: 0 done, 2 wrong usage, files that are there already or have mistakes, 3 no authority,
or it cannot be used.";

pub(super) const ENV_HELP: &str = "\
Example:
  eval \"$(crawlgate env)\"
  crawlgate env --shell fish | source
  crawlgate env --shell powershell | Out-String | Invoke-Expression

The proxy for http and https, and if it looks into TLS (`tls.intercept`) whom to trust: the file
of `tls.bundle` for clients whose variable replaces the system's roots, the certificate alone for
Node, which adds it. Clients that read no such variable (wget, aria2, Java, Chromium) are told in
their own way; see README.

Exit codes: 0 printed, 2 wrong usage, configuration or crawler, 3 cannot print.";

pub(super) const CHECK_HELP: &str = "\
Example:
  crawlgate check config/crawlgate.yaml config/policy.yaml

A file with `policy: 1` is checked as a policy, a directory as the policy that its files make, any
other file as a configuration together with the policy that it names.

Errors are what the proxy refuses to run under. Warnings are what probably does something else
than its author wants, among it rules that can never decide; of those only what is proved is told.

With --format json each problem has file, line, column, end (the column behind the last character,
in the same line), severity, rule, message, found, help and near; what there is not is null.

Exit codes: 0 no errors, 1 warnings under --strict, 2 errors.";

pub(super) const EXPLAIN_HELP: &str = "\
Example:
  crawlgate explain http://intra.example.com/cgi-bin/x --policy config/policy.yaml
  crawlgate explain http://a.example/film --content-type video/mp4

A stage runs if it has facts: --address for the destination stage; --status, --content-type,
--size, --header or --usage for the response stage; --title, --body-prefix, --meta-robots or
--canonical for the document stage.

Each rule is shown with what became of it and the values that decided; options with the rule that
set them last; then the decision, and the answer as the proxy would send it. The text has the
width of $COLUMNS or of the terminal.

Exit codes: 0 explained, 1 rejected or undecided with --exit-code, 2 wrong usage, URL,
configuration or policy.";

pub(super) const DECIDE_HELP: &str = "\
Example:
  printf '%s\\n' http://a.example/ '{\"url\": \"http://a.example/f\", \"content_type\": \"video/mp4\"}' |
    crawlgate decide --policy config/policy.yaml

A line is a URL or a JSON object with facts: url, crawler, method, depth, referer, dest, tunnel,
address, known, year, status, content_type, size, headers, usage, title, body_prefix,
meta_robots, canonical. Without year it is 2026, so that the same lines give the same decisions.

Exit codes: 0 every line was judged, 1 a line could not be read, 2 wrong usage or policy.";

pub(super) const DECISIONS_HELP: &str = "\
Example:
  crawlgate decisions --follow --filter verdict=reject --filter 'host=*.example.com'
  crawlgate decisions --all --since 24h --summary rule
  zcat old.gz | crawlgate decisions --log - --filter 'status>=500' --format json

A line is: time, crawler, verdict, status, reason, rule, URL (or host, where the log keeps no
more), how long it was held, error. `shadow` is a request that was let through and that a rule in
shadow would refuse.

A filter names any field of the log: K=V and K!=V (`*` stands for anything, nothing for no value),
K~REGEX and K!~REGEX, K>N K>=N K<N K<=N. `status` is sent_status, `held` is held_ms.

--follow begins with the last 10 lines, or with --since or --all at the beginning. A summary counts
what the log holds: `logs.allows` may leave out allowed requests. It tells 100,000 names apart;
more of them are `__other__`.

Exit codes: 0 shown, 1 a line could not be read, 2 wrong usage or configuration, or no log, 3 the
log cannot be read to its end.";

pub(super) const TEST_HELP: &str = "\
Example:
  crawlgate test config/policy.yaml --coverage
  crawlgate test policies/ --threshold 100 --format junit > report.xml

Cases stand in the policy, or in files of their own that name it:

  policy: ../policy.yaml
  cases:
    - { url: \"http://a.example/cgi-bin/x\", expect: reject, rule: no-cgi }

Those files are run if they, or a directory above them, are named. A directory whose files make
one policy is that policy. Each rule has two branches: a group applied or not, a filter hit or
passed, a rule of `match: first` was taken or not; rules that take no part are not counted.

Exit codes: 0 every case passed, 1 a case failed or the threshold was not reached, 2 wrong usage,
policy or cases.";

pub(super) const DIFF_HELP: &str = "\
Example:
  crawlgate diff old.yaml new.yaml
  crawlgate diff old.yaml new.yaml --urls crawled.txt
  cut -f1 crawl.log | crawlgate diff old.yaml new.yaml --urls

A line of the URLs is what a line of `decide` is: a URL, or a JSON object with facts. A decision
has changed if its verdict, its reason, its rule or the answer has, or an option of a URL that
both policies allow. Without --urls it is the cases of both policies that are judged, and rules,
options and lists that were added, removed or changed are shown too.

Exit codes: 0 nothing changes, 1 something does, 2 wrong usage or policy, or a line that could not
be read.";

pub(super) const ROBOTS_HELP: &str = "\
Example:
  crawlgate robots check --file robots.txt --agent news-bot http://a.example/x /y
  curl -s http://a.example/robots.txt | crawlgate robots check --file - --agent news-bot /x

  crawlgate robots fetch http://a.example/x --agent news-bot

Each line of `check` is one URL: allow or disallow, the line that decided with its group, the
group's Crawl-delay and Request-rate, and what Content-Usage and Content-Signal lines say of uses.
Before them (not in JSON), and in the answer of `fetch`, stand the file's sitemaps and its
Visit-time, Clean-param and Host lines, which are reported only.

Exit codes: 0 every URL was answered, 1 one is no URL, or the host's file cannot be had, 2 wrong
usage, or a file that cannot be read.";

pub(super) const TARGET_HELP: &str = "\
Example:
  crawlgate target 'HTTP://Example.COM:80/a/../b' http://0x7f.1/

Nothing is asked of anybody: no policy, no name server.

Exit codes: 0 every input is a URL, 1 one is not, 2 wrong usage.";

pub(super) const RUN_HELP: &str = "\
Example:
  crawlgate run --policy config/policy.yaml
  http_proxy=http://127.0.0.1:3128 curl -i http://example.com/

Without arguments it listens on loopback only.

SIGHUP reads the policy again, as a change of its files does; one with a mistake leaves the old
one in force. SIGTERM drains: no new connections, what waits is sent away, what is under way is
finished. A second one cuts it off.

$CRAWLGATE_LOG says how much is told on standard error: off, error, warn, info (the default),
debug, trace.

Exit codes: 0 stopped, 2 invalid configuration or policy, 3 cannot start (an address is taken)";

pub(super) const DEMO_HELP: &str = "\
Example:
  crawlgate demo

Each line is one URL: the status, the reason and rule of a refusal, the URL.

Exit codes: 0 every reason that the site provokes was seen, 1 one was not, 3 cannot start";
