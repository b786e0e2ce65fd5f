//! The texts that `crawlgate help COMMAND` shows below the options: examples, details and exit codes.

pub(super) const INIT_HELP: &str = "\
Example:
  crawlgate init
  crawlgate init /srv/crawl --crawler news-bot --from 10.1.0.0/16 --yes

Writes config/crawlgate.yaml, config/policy.yaml, the lists and the JSON Schemas that they name, and
the directory var/ below DIR. On a terminal, it asks for what the options do not give: the name of
the crawler, the networks that it connects from, and how HTTPS is evaluated. It overwrites nothing
without --force, and never a certificate authority, a log or a ledger.

Exit codes: 0 written, 2 wrong usage, or a file exists, 3 a file cannot be written.";

pub(super) const IMPORT_HELP: &str = "\
Systems, each with an example:
  browsertrix   crawlgate import browsertrix crawl-config.yaml
  brozzler      crawlgate import brozzler job.yaml
  exalead       crawlgate import exalead CrawlConfig.xml
  heritrix      crawlgate import heritrix crawler-beans.cxml --seeds seeds.txt
  lists         crawlgate import lists easylist.txt
  norconex      crawlgate import norconex crawler-config.xml --var host=www.example.com
  nutch         crawlgate import nutch conf/nutch-site.xml
  omnifind      crawlgate import omnifind weekly=crawl.rules --global global.rules
  robots        crawlgate import robots www.example.com=robots.txt --var agent=GoodBot
  scrapy        crawlgate import scrapy settings.py spiders/*.py
  squid         crawlgate import squid /etc/squid/squid.conf
  stormcrawler  crawlgate import stormcrawler src/main/resources/urlfilters.json
  velocity      crawlgate import velocity collection.xml
  webcopy       crawlgate import webcopy site.cwp
  wget          crawlgate import wget mirror.sh

Examples of options:
  crawlgate import squid.conf -o policy
  crawlgate import squid.conf -o policy --lenient --report report.txt
  crawlgate import squid.conf -o policy --force --check urls.txt
  crawlgate import site.cwp --dump

The report accounts for every part of the source: converted; converted with an assumption; not
converted, with the reason and the way in which it fails; not a policy's business; dead. The policy
has cases for each rule, with what the source's system does. Without the name of the system, it is
recognized by the content of the first file. configuration.yaml proposes the settings that are not
policy; nothing reads it. Nothing of a source is run, and no file outside of its directory is read,
except those that are named.

Exit codes: 0 everything is converted, or is not a policy's business; 1 something is not converted,
or the policy differs from the source: nothing is written without --lenient; 2 wrong usage, or the
source cannot be read; 3 a file cannot be written.";

pub(super) const STATUS_HELP: &str = "\
Example:
  crawlgate status
  crawlgate status --format json | jq .listeners

The running proxy is the one at --admin, else at `admin.listen` of the configuration (--config, else
$CRAWLGATE_CONFIG, else config/crawlgate.yaml), else at 127.0.0.1:3129.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 the proxy cannot be queried.";

pub(super) const HEALTH_HELP: &str = "\
Example:
  crawlgate health
  HEALTHCHECK CMD [\"crawlgate\", \"health\"]

Prints the checks of /readyz, one line each. The proxy is not ready while it shuts down. A warning,
such as a policy that could not be reloaded, does not make it unready. With --live, a proxy that
answers is healthy in any state. No token is needed.

Exit codes: 0 ready, 1 not ready, or no answer, 2 wrong usage or configuration.";

pub(super) const RELOAD_HELP: &str = "\
Example:
  crawlgate reload

Prints which rules, options and lists have changed; or the errors, as `check` does, in which case
the previous policy stays active. A change of the configuration takes effect after a restart.

Exit codes: 0 loaded, or unchanged, 2 wrong usage or configuration, or errors in the policy, 3 the
proxy cannot be queried, or the reload takes longer than 20 seconds.";

pub(super) const SHADOW_HELP: &str = "\
Example:
  crawlgate shadow
  crawlgate shadow --admin 127.0.0.1:3129 --format json

For each rule with `mode: shadow`, and for the policy of `policy.shadow`, the report shows how
many admitted requests it would refuse, how many refused requests it would admit, for which
reasons, and the most recent of these requests. Counting starts when the current policies are
loaded. Rules and policies in shadow mode never change a response.

The command queries the admin API at `admin.listen`, with the token of `admin.token_file`.
Requests that were refused because of robots.txt, an address range or the pace of the host are
not counted. Options that a shadow policy would set differently are not evaluated.

`shadow set` makes another policy the shadow policy without a restart, `shadow promote` makes it
the active one, and `shadow clear` removes it.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 the proxy cannot be queried.";

pub(super) const SHADOW_SET_HELP: &str = "\
Example:
  crawlgate shadow set next.yaml --reason 'ticket 7: no login pages'

The policy and its list files are checked here, sent to the proxy as text, and evaluated there on
all requests from then on, without any effect. It takes the place of `policy.shadow`, survives
reloads and restarts, and needs `store.path`. The revision that is shown is the one that it will
have when it is promoted: it depends on the name of the file at `policy.path`.

The command sends the token of `admin.token_file`, which the proxy requires, also on loopback.

Exit codes: 0 set, 1 the proxy refuses, 2 wrong usage or configuration, or errors in the policy, 3
the proxy cannot be queried.";

pub(super) const SHADOW_PROMOTE_HELP: &str = "\
Example:
  crawlgate shadow promote --revision 1a2b3c4d --reason 'ticket 7: a day in shadow'

The files of the shadow policy are written in place of those at `policy.path`, all or none, and
are loaded as by `crawlgate reload`. The proxy refuses that if these files have changed since they
were loaded, are not writable, or are not inside the policy's directory. `crawlgate policy
rollback` returns to the policy before.

The command sends the token of `admin.token_file`, which the proxy requires, also on loopback.

Exit codes: 0 active, 1 the proxy refuses, 2 wrong usage or configuration, or errors in the
policy, 3 the proxy cannot be queried.";

pub(super) const SHADOW_CLEAR_HELP: &str = "\
Example:
  crawlgate shadow clear

If the configuration has `policy.shadow`, that policy is the shadow policy again.

The command sends the token of `admin.token_file`, which the proxy requires, also on loopback.

Exit codes: 0 cleared, 1 the proxy refuses: none was set, 2 wrong usage or configuration, 3 the
proxy cannot be queried.";

pub(super) const POLICY_HISTORY_HELP: &str = "\
Example:
  crawlgate policy history

Each line has the time from which a policy was in force, its name and revision, how that came
about (start, reload, promote, rollback), who did it and why. The files of the last 20 policies
are kept below `store.path`; `not kept` marks those to which `rollback` cannot return.

Exit codes: 0 shown, 1 the proxy keeps no policies, 2 wrong usage or configuration, 3 the proxy
cannot be queried.";

pub(super) const POLICY_ROLLBACK_HELP: &str = "\
Example:
  crawlgate policy rollback --reason 'ticket 8: the shop is refused'
  crawlgate policy rollback 1a2b3c4d --reason 'ticket 8'

Without a revision, it is the policy that was in force before the active one. Policies that were
left by a rollback do not count: name the revision to return to one of them.

The files of the earlier policy are written in place of those at `policy.path`, all or none, and
are loaded as by `crawlgate reload`. The proxy refuses that if these files have changed since they
were loaded, or are not writable.

The command sends the token of `admin.token_file`, which the proxy requires, also on loopback.

Exit codes: 0 active, 1 the proxy refuses, 2 wrong usage or configuration, or errors in the
policy, 3 the proxy cannot be queried.";

pub(super) const STOP_HELP: &str = "\
Example:
  crawlgate stop www.example.com --reason 'they have called: ticket 7' --for 1h
  crawlgate stop '*.example.com' --reason 'legal' ; crawlgate stop crawler:news-bot --reason 'loops'
  crawlgate stop --list
  crawlgate stop --lift 3

The proxy sends no further requests that the stop covers. Such a request waits, at most for its
`max_hold`, and is then refused with the reason `stopped` and a Retry-After. Requests in
progress are finished; tunnels whose TLS is not intercepted are closed. A stopped rule stops
every request that it matches, even requests that another rule allows.

The command uses the admin API at `admin.listen`, with the token of `admin.token_file`. Stops
survive a restart of the proxy, in stops.json under `store.path`. In a fleet, a stop at one node is
in force at all nodes.

Exit codes: 0 done, 1 there is no stop with this id, 2 wrong usage or configuration, 3 the proxy
cannot be reached, or refuses the command.";

pub(super) const LEDGER_LIST_HELP: &str = "\
Example:
  crawlgate ledger list --host '*.example.com' --status REJECTED_FILTER
  crawlgate ledger list --crawler news-bot --code 760 --limit all --format csv
  crawlgate ledger list --known true --not-seen-since 30d --limit all
  crawlgate ledger list --lost

A line of text has these columns: time of the last request, crawler, Crawl-Status, status of the
origin, OmniFind code, kind of the last error (`temporary 2`: the second in a row), URL. The other
formats contain all fields (docs/ledger.md). In CSV, text that a spreadsheet would read as a formula
is prefixed with an apostrophe.

URLs are sorted by their keys, in no meaningful order. The command queries the admin API of a
running proxy at `admin.listen`, with the token of `admin.token_file`; if no proxy is running,
it reads the files under `store.path`.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 there is no ledger, or it cannot be read.";

pub(super) const LEDGER_STATS_HELP: &str = "\
Example:
  crawlgate ledger stats
  crawlgate ledger stats --format json | jq '.by_status.ACCEPTED'

Shows the number of URLs for each Crawl-Status, and the current or last sweep.

Exit codes: 0 shown, 2 wrong usage or configuration, 3 there is no ledger, or it cannot be read.";

pub(super) const LEDGER_EXPORT_HELP: &str = "\
Example:
  crawlgate ledger export -o urls.ndjson
  crawlgate ledger export --format csv --status ACCEPTED > accepted.csv

Writes all URLs that match the filters, in bounded memory, with progress on standard error if
that is a terminal. URLs that are recorded during the export may be missing; no URL is written
twice.

Exit codes: 0 written, 2 wrong usage or configuration, 3 there is no ledger, it cannot be read,
or the output cannot be written.";

pub(super) const LEDGER_FORGET_HELP: &str = "\
Example:
  crawlgate ledger forget http://a.example/page
  crawlgate ledger forget --host '*.old.example' --dry-run
  crawlgate ledger forget --prefix http://a.example/shop/ --crawler news-bot --yes

A URL without a record counts as new: its interval, its depth, its content and its errors are
forgotten, and no event is written. The next GET records it again.

The command asks before it deletes more than 10 records; without a terminal it deletes them only
with --yes. It uses the admin API of a running proxy at `admin.listen`; if no proxy is running, it
changes the files under `store.path`. What it reports as deleted is on the disk.

Exit codes: 0 done, 1 not confirmed, 2 wrong usage or configuration, 3 there is no ledger, or it
cannot be written.";

pub(super) const LEDGER_SWEEP_HELP: &str = "\
Example:
  crawlgate ledger sweep --dry-run
  crawlgate ledger sweep --dry-run --policy new.yaml
  crawlgate ledger sweep
  crawlgate ledger sweep --confirm

Evaluates each URL under the active policy. A URL that the policy excludes gets the code 760 and
leaves the index; a URL in the crawl space of another crawler gets 761 and stays; a URL that the
policy allows loses an earlier code. A reload starts a sweep automatically. --dry-run changes
nothing: it shows the counts, and up to 1,000 URLs that would be refused, each with the rule that
refuses it. With --policy it evaluates a policy that is not loaded.

Removals are ordered after the grace time, and are held if one cause removes too many URLs
(ledger.removal_guard). --confirm orders those that are held.

The command waits until the sweep is finished. If you interrupt the command, the proxy continues
the sweep.

Exit codes: 0 done, 2 wrong usage or configuration, 3 there is no ledger, another sweep is in
progress, or the proxy cannot be queried.";

pub(super) const PASSWORD_HELP: &str = "\
Example:
  crawlgate password                     prompts for the password without showing it
  printf '%s' \"$PASSWORD\" | crawlgate password

Prints an Argon2id hash for `password_hash` under `crawlers: [{name, auth: {user,
password_hash}}]`. Write the hash in quotes, unchanged. The password is the first line of
standard input. Hashes of `htpasswd -B` ($2y$...) are accepted there as well.";

pub(super) const SCHEMA_HELP: &str = "\
Example:
  crawlgate schema policy > policy.schema.json

Editors that use the YAML language server (VS Code, Neovim, Helix, Emacs and others) complete,
document and check a policy with this first line:

  # yaml-language-server: $schema=policy.schema.json

The path is relative to the policy. A schema cannot express every rule of the language;
`crawlgate check` verifies all of them.

Exit codes: 0 printed, 2 wrong usage.";

pub(super) const COMPLETIONS_HELP: &str = "\
Example:
  eval \"$(crawlgate completions bash)\"
  crawlgate completions zsh > ~/.zfunc/_crawlgate
  crawlgate completions fish > ~/.config/fish/completions/crawlgate.fish
  crawlgate completions powershell | Out-String | Invoke-Expression

Exit codes: 0 printed, 2 wrong usage.";

pub(super) const IDENTITY_HELP: &str = "\
Example:
  crawlgate identity key certs/news-bot.pem
  crawlgate identity show
  crawlgate identity directory -o http-message-signatures-directory

A crawler with an `identity` in the configuration has its requests signed with the first of its keys. Its operator
serves the directory of all its keys at
  https://HOST/.well-known/http-message-signatures-directory
with the printed response fields, and renews it before its signatures expire (--days).

To replace a key, add the new one to the end of `key` and publish the directory; a day later move it to the top, so
that it signs; remove the old one after the last request that it signed has expired, in five minutes, and publish the
directory again. Each change of the configuration takes effect at a restart.

Exit codes: 0 done, 2 wrong usage, no identity in the configuration, or a file that exists already, 3 a key cannot be
read, or others than its owner can read it.";

pub(super) const FLEET_HELP: &str = "\
Example:
  crawlgate fleet found
  crawlgate fleet cert proxy-1
  crawlgate fleet cert proxy-2 --directory /root/fleet
  crawlgate fleet status
  crawlgate fleet owner www.example.com
  crawlgate fleet forget proxy-2

All commands but `cert` use the database of `store.url`, with `fleet.name` and `fleet.lease` of the
configuration; no proxy needs to run. `found` creates the tables. After the database was restored
from a copy, run `found --restored` before the nodes can reach it: they join it anew, and hosts
wait for two and a half leases. `forget` waits for the length of a lease, and does nothing if the
node renews its lease: it is for nodes that do not come back, or whose state directory is lost.

The fleet has a certificate authority of its own, which is created with the first certificate and
signs nothing but certificates of nodes. A node needs its certificate, its key and fleet.pem
(`fleet.tls`); fleet.key stays where the certificates are issued. Existing files are never
overwritten. See docs/fleet.md.

Exit codes: 0 done, 1 there is no such node, or it is running, 2 wrong usage or configuration, or
files that exist already or are invalid, 3 the database or the files cannot be used.";

pub(super) const CA_HELP: &str = "\
Example:
  crawlgate ca init
  crawlgate ca show
  crawlgate ca export -o crawlgate-ca.pem

The files are those of `tls.ca` in the configuration. The key file is readable only by its
owner, and no command copies the key. `ca init` creates every authority whose files do not exist;
existing files are never overwritten. `run` does so as well, if it intercepts TLS (`tls.intercept`).

To replace an authority, add a new one to the end of `tls.ca`, run `ca init`, and make clients trust
both (`ca export` and the file of `tls.bundle` contain all authorities). Then move the new one to
the top: the first authority signs. Each change of `tls.ca` takes effect at a restart.

Exit codes: 0 done, 2 wrong usage, files that exist already or are invalid, 3 there is no
authority, or it cannot be used.";

pub(super) const ENV_HELP: &str = "\
Example:
  eval \"$(crawlgate env)\"
  crawlgate env --shell fish | source
  crawlgate env --shell powershell | Out-String | Invoke-Expression

The variables are those of the running proxy; if none answers, those of the configuration file. So
the command works in any directory if the proxy listens at the default address, or if --admin,
--config or $CRAWLGATE_CONFIG names it. Standard error says which proxy or file it was.

Sets the proxy for http and https. Hosts on this machine (localhost, 127.0.0.1, ::1) are exempt, by
no_proxy: to crawl a site on this machine through the proxy, unset no_proxy and NO_PROXY, and set
egress.allow_loopback in the configuration. If the proxy intercepts TLS (`tls.intercept`), also sets
the certificates to trust: the file of `tls.bundle` for clients whose variable replaces the roots of
the system, and the certificate of the authority for Node.js, which adds it to its roots. For
clients that read none of these variables (wget, aria2, Java, Chromium), see
docs/crawlers/README.md.

Exit codes: 0 printed, 2 wrong usage, configuration or crawler, 3 something that clients need is
unknown or does not exist, so that nothing is printed.";

pub(super) const CHECK_HELP: &str = "\
Example:
  crawlgate check config/crawlgate.yaml config/policy.yaml

A file with `policy: 1` is checked as a policy, a directory as the policy that its files form,
and any other file as a configuration, together with the policy that it names.

An error prevents the proxy from starting. A warning marks something that probably does not do
what its author intended, such as a rule that can never decide; it is reported only if this is
proved. With a configuration, there are warnings where its crawlers would lose pages: if fewer than
ten requests fit into a hold, and if `reject: later` makes a crawler give a page up.

--exact asks for every rule whether it can ever decide, and for the policy whether it allows any
URL. Each answer is proved, refuted by a URL that the evaluator has confirmed, or not decided, with
the reason. The last line has the number of each; a question that is not decided is an error with
--strict. It takes seconds for 1,000 rules. Assertions among the cases are checked without --exact,
too.

With --format json, each problem has file, line, column, end (the column after the last
character, in the same line), severity, rule, message, found, help and near; fields without a
value are null.

Exit codes: 0 no errors, 1 warnings with --strict, 2 errors, or neither a configuration nor a policy
is named or found.";

pub(super) const EXPLAIN_HELP: &str = "\
Example:
  crawlgate explain http://intra.example.com/cgi-bin/x --policy config/policy.yaml
  crawlgate explain http://a.example/film --content-type video/mp4
  crawlgate explain http://a.example/ --crawler news-bot --fetch
  crawlgate explain --decision 9f3c01ab-1f

The options decide which stages run: --address the destination stage; --status, --content-type,
--size, --header or --usage the response stage; --title, --body-prefix, --meta-robots or
--canonical the document stage.

The explanation shows each rule with its outcome and the values that decided, each option with
the rule that set it last, the decision, and the response that the proxy would send. Text is
formatted for the width in $COLUMNS, else that of the terminal.

Without --policy the running proxy explains the policy in force, and then what it would do with the
request now: budgets, ledger, addresses, robots.txt, stops and pace, by what is in its caches.
What was not asked is listed. --fetch resolves the name and fetches robots.txt. If no proxy
answers, the policy of the configuration is explained.

--decision shows what was decided, with causes other than the policy (robots.txt, pace, failures),
from the memory of the running proxy, which keeps about the latest 10,000 decisions, or from the
decision log. Then it explains the request under the policy in force.

Exit codes: 0 explained, 1 rejected or undecided with --exit-code, or no such decision, 2 wrong
usage, URL, configuration or policy, 3 the proxy does not answer.";

pub(super) const DECIDE_HELP: &str = "\
Example:
  printf '%s\\n' http://a.example/ '{\"url\": \"http://a.example/f\", \"content_type\": \"video/mp4\"}' |
    crawlgate decide --policy config/policy.yaml

A line is a URL or a JSON object with facts: url, crawler, method, depth, referer, dest, tunnel,
address, known, year, status, content_type, size, headers, usage, license, title, body_prefix,
meta_robots, canonical. The default of year is 2026, so that the same lines always have the same
decisions.

Exit codes: 0 every line was evaluated, 1 a line could not be read, 2 wrong usage or policy.";

pub(super) const DECISIONS_HELP: &str = "\
Example:
  crawlgate decisions --follow --filter verdict=reject --filter 'host=*.example.com'
  crawlgate decisions --host www.example.com --crawler news-bot -n 20
  crawlgate decisions --all --since 24h --summary rule
  crawlgate decisions --all --since 2026-11-21 --until 2026-11-22 --filter verdict=reject
  crawlgate decisions --lost --since 24h
  zcat old.gz | crawlgate decisions --log - --filter 'status>=500' --format json

A line has these columns: time, crawler, verdict, status, reason, rule, URL (or the host, if the
log does not contain the URL), time held, error. The verdict `shadow` is an allowed request that
a rule or policy in shadow mode would refuse.

A filter names any field of the log: K=V and K!=V (`*` matches any text; an empty V matches a
missing value), K~REGEX and K!~REGEX, K>N K>=N K<N K<=N. `status` means sent_status, `held`
means held_ms.

The log is the file of `logs.decisions`; if that is no file, or --admin names a proxy, the command
shows the latest decisions of the running proxy, at most 10,000, in which refusals have their URLs.

--follow starts with the last 10 lines; with --since or --all it starts at the beginning. A
summary counts the lines of the log; `logs.allows` may leave out allowed requests. A summary
distinguishes 100,000 names and counts all further names as `__other__`.

--lost lists URLs that were refused for now, that failed, or whose client left first, and that
were not answered later, by the log or by the ledger (of a running proxy, or under `store.path`;
not with --log). It reads the rotated files, too. A filter selects among the lost URLs. The end
of the list says how many lines the log lacks: those that `logs.allows` left out, and those that
were dropped.

Exit codes: 0 shown, 1 a line could not be read, 2 wrong usage or configuration, or no log, 3
the log cannot be read to its end.";

pub(super) const TEST_HELP: &str = "\
Example:
  crawlgate test config/policy.yaml --coverage
  crawlgate test policies/ --threshold 100 --format junit > report.xml
  crawlgate test policies/ --format github

Cases are part of the policy, or of separate files that name it:

  policy: ../policy.yaml
  cases:
    - { url: \"http://a.example/cgi-bin/x\", expect: reject, rule: no-cgi }
    - { assert: never, verdict: allow, under: \"http://intra.example/\" }

A case with `assert` is about all URLs of a set. It is proved, or refuted by a URL that the
evaluator has confirmed, or not decided; with --strict, one that is not decided fails the run.

Such a file is run if the command names it or a directory above it. A directory whose files form
one policy is that policy. Each rule has two branches: a group applied or not, a filter hit or
passed, a rule of `match: first` was taken or not. Rules that can have no effect are not
counted.

Exit codes: 0 every case passed, 1 a case failed, an assertion is not decided with --strict, or the
threshold was not reached, 2 wrong usage, policy or cases, or no policy is named or found.";

pub(super) const DIFF_HELP: &str = "\
Example:
  crawlgate diff old.yaml new.yaml
  crawlgate diff old.yaml new.yaml --urls crawled.txt
  cut -f1 crawl.log | crawlgate diff old.yaml new.yaml --urls
  crawlgate diff old.yaml new.yaml --ledger
  crawlgate diff old.yaml new.yaml --log --since 24h --format markdown

A line of --urls is a URL or a JSON object with facts, as for `decide`. A decision has changed
if its verdict, reason, rule or response differs, or an option of a URL that both policies
allow. --ledger compares the decisions for the URLs that were fetched at least once, of the
running proxy or of its files. --log compares the decisions for the requests of the decision log;
each counts as often as it was made. Without these, the command compares the decisions for the cases
of both policies, and also shows the rules, options and lists that were added, removed or changed.

It also analyses all URLs: `proved equivalent` means that no URL is decided differently; otherwise
it shows up to three URLs for each kind of change and each pair of deciding rules, all confirmed by
evaluation, and lists the changes of which something is not decided, with the reason. Tunnels, the
texts of `about` and rules in shadow mode are not compared.

With --fail-on new-access, the exit code is 1 if a URL is found that the new policy allows and the
old one refuses, or if that is not ruled out, and otherwise 0; --fail-on new-refusal is the reverse.
With --urls, --ledger or --log, only those URLs count.

Exit codes: 0 no changes, 1 changes, 2 wrong usage or policy, or a line that could not be read.";

pub(super) const FIND_HELP: &str = "\
Example:
  crawlgate find --policy config/policy.yaml --verdict allow --under http://intra.example.com/
  crawlgate find --verdict reject --rule no-cgi

The answer is a URL, with other facts that it needs, that the evaluator has confirmed; or the
statement that there is provably none; or `not decided`, with the reason. A URL is evaluated with
the facts that are shown, such as `with status 404`, and no others: a URL that is found with the
verdict allow may still be refused because of its response. Tunnels are not searched.

--under is the beginning of the URL's canonical form: http://a.example/x also begins
http://a.example/xy.

Exit codes: 0 a URL was found, 1 none or not decided, 2 wrong usage or policy.";

pub(super) const ROBOTS_HELP: &str = "\
Example:
  crawlgate robots check --file robots.txt --agent news-bot http://a.example/x /y
  curl -s http://a.example/robots.txt | crawlgate robots check --file - --agent news-bot /x

  crawlgate robots fetch http://a.example/x --agent news-bot

`check` prints one line for each URL: allow or disallow, the line that decided and its group,
the Crawl-delay and Request-rate of the group, and the preferences of Content-Usage and
Content-Signal lines. Above them (not in JSON), and in the output of `fetch`, are the sitemaps
of the file and its License, Visit-time, Clean-param and Host lines; the proxy does not apply the
last three.

Exit codes: 0 every URL was checked, 1 an input is not a URL, or the robots.txt is unavailable,
2 wrong usage, or a file that cannot be read.";

pub(super) const TARGET_HELP: &str = "\
Example:
  crawlgate target 'HTTP://Example.COM:80/a/../b' http://0x7f.1/

The command evaluates no policy and resolves no names.

Exit codes: 0 every input is a URL, 1 an input is not a URL, 2 wrong usage.";

pub(super) const RUN_HELP: &str = "\
Example:
  crawlgate run --policy config/policy.yaml
  http_proxy=http://127.0.0.1:3128 curl -i http://example.com/

Without arguments and configuration, the proxy listens on loopback only.

The policy is reloaded on SIGHUP and when its files change. If the new policy has an error, the
previous policy stays active. On SIGTERM, the proxy accepts no new connections, refuses requests
that wait, and finishes requests in progress; a second SIGTERM or SIGINT closes them, and ends the
process within a second.

$CRAWLGATE_LOG sets the log level on standard error: off, error, warn, info (the default),
debug, trace.

Exit codes: 0 stopped, 2 invalid configuration or policy, 3 cannot start (an address is in use), or
did not end in time after a signal";

pub(super) const DEMO_HELP: &str = "\
Example:
  crawlgate demo

Each line shows one URL: the status, the reason and rule of a refusal, and the URL.

Exit codes: 0 every expected reason occurred, 1 an expected reason did not occur, 3 cannot start";
