//! Lists: the policies against plain matchers, the sizes of real lists, and what is not converted.

use crawlgate_import::{
    AssumptionEffect, Import, ImportInput, MissingPart, PartOutcome, ReportList, System, import,
};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value as Json, json};

use super::support::{REQUESTS, compare_verdicts, compiled, import_texts, processor_time};

fn import_list(text: &str, variables: &[(&str, &str)], seeds: Option<&str>) -> Import {
    let files = MemoryFileSystem::new().with_file("list.txt", text.as_bytes());
    let mut input = ImportInput::new(&files, ["list.txt"]);
    let variables = variables
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    input.variables.extend(variables);
    input.seeds = seeds.map(str::to_owned);
    import(System::Lists, &input).unwrap()
}

/// Makes URLs of hosts and pieces of paths.
fn urls(
    random: &mut fastrand::Rng,
    hosts: &[&str],
    pieces: &[&str],
    count: usize,
) -> Vec<(String, Map<String, Json>)> {
    let urls = (0..count).map(|_| {
        let scheme = ["http", "https"][random.usize(..2)];
        let below = ["", "", "www.", "a.b."][random.usize(..4)];
        let host = hosts[random.usize(..hosts.len())];
        let path: String = (0..random.usize(0..4))
            .map(|_| pieces[random.usize(..pieces.len())])
            .collect();
        let mut facts = Map::new();
        if random.bool() {
            facts.insert("dest".to_owned(), json!("embed"));
        }
        let path = path.replace("//", "/");
        (
            format!("{scheme}://{below}{host}/{}", path.trim_start_matches('/')),
            facts,
        )
    });
    urls.collect()
}

const FILTERS: &str = "\
[Adblock Plus 2.0]
-ad-banner.
/adserver/*/show.
||ads.example^
||static.example/pixel?id=
|http://start.example/a
/banner.gif|
&ad_id=^
/promo[0-9]{3}\\.js/
/AdFrame.$match-case
||cdn.example^$script,image
||tracker.example^$third-party
@@||ads.example/allowed/
@@||cdn.example/player.js$script
||always.example^$important
@@||always.example^
||port.example:8080^
*/wild*card^
";

/// Compiles a filter as the explanation of Adblock Plus says.
fn filter_regex(pattern: &str, match_case: bool) -> Regex {
    let text = match pattern
        .strip_prefix('/')
        .and_then(|text| text.strip_suffix('/'))
    {
        Some(expression) => expression.to_owned(),
        None => {
            let escaped = regex::escape(pattern);
            let text = escaped
                .replace("\\*", ".*")
                .replace("\\^", "(?:[^\\w\\-.%]|$)");
            let text = match text.strip_prefix("\\|\\|") {
                Some(rest) => format!("^[a-z]+://(?:[^/]+\\.)?{rest}"),
                None => text,
            };
            let text = match text.strip_prefix("\\|") {
                Some(rest) => format!("^{rest}"),
                None => text,
            };
            match text.strip_suffix("\\|") {
                Some(rest) => format!("{rest}$"),
                None => text,
            }
        }
    };
    RegexBuilder::new(&text)
        .case_insensitive(!match_case)
        .build()
        .unwrap()
}

#[test]
fn filters_block_unless_an_exception_fits() {
    let imported = import_texts(System::Lists, &[("filters.txt", FILTERS)]);
    assert_eq!(imported.divergences, []);
    let filters: Vec<(bool, bool, bool, Regex)> = FILTERS
        .lines()
        .skip(1)
        .map(|line| {
            let (text, is_exception) = match line.strip_prefix("@@") {
                Some(text) => (text, true),
                None => (line, false),
            };
            let (pattern, options) = match text.split_once('$') {
                Some((pattern, options)) => (pattern, options),
                None => (text, ""),
            };
            let is_typed = options.contains("script") || options.contains("third");
            let regex = filter_regex(pattern, options.contains("match-case"));
            (is_exception, options.contains("important"), is_typed, regex)
        })
        .collect();
    let hosts = [
        "ads.example",
        "cdn.example",
        "static.example",
        "start.example",
        "always.example",
        "tracker.example",
        "page.example",
        "xads.example",
        "port.example:8080",
        "port.example:80801",
    ];
    let pieces = [
        "/a",
        "/allowed/",
        "/pixel?id=1",
        "/player.js",
        "x-ad-banner.gif",
        "/adserver/",
        "/1/show.",
        "/banner.gif",
        "?q&ad_id=",
        "&ad_id=5",
        "/promo123.js",
        "/adframe.",
        "/AdFrame.",
        "/b",
        "/wild",
        "9card",
        "card/",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let urls = urls(&mut random, &hosts, &pieces, REQUESTS);
    let announced = compare_verdicts(&imported, urls, |url, facts| {
        let is_embed = facts.get("dest").is_some();
        let fits = |exception: bool, important: bool| {
            filters
                .iter()
                .any(|(is_exception, is_important, is_typed, regex)| {
                    *is_exception == exception
                        && (!important || *is_important)
                        && (!is_typed || is_embed)
                        && regex.is_match(url)
                })
        };
        !(fits(false, true) || fits(false, false) && !fits(true, false))
    });
    assert_eq!(announced, 0);
}

#[test]
fn domains_hosts_and_surts_are_compared_as_their_programs_do() {
    let domains = "one.example\n*.two.example\n.three.example\n";
    let hosts = "0.0.0.0 one.example\n127.0.0.1 localhost two.example\n192.0.2.1 three.example\n";
    let surts =
        "+http://(example,one,\n+http://(example,two,www,)/dir/\nhttp://three.example/sub/page\n";
    let names = [
        "one.example",
        "two.example",
        "three.example",
        "xone.example",
        "four.example",
    ];
    let pieces = ["/dir/", "/sub/", "/x", "?y=1", "/DIR/"];
    let mut random = fastrand::Rng::with_seed(2);
    let urls = urls(&mut random, &names, &pieces, REQUESTS);
    let host = |url: &str| url.split('/').nth(2).unwrap().to_owned();

    let imported = import_list(domains, &[("format", "domains")], None);
    let listed = ["one.example", "two.example", "three.example"];
    let announced = compare_verdicts(&imported, urls.clone(), |url, _| {
        let host = host(url);
        !listed
            .iter()
            .any(|name| host == *name || host.ends_with(&format!(".{name}")))
    });
    assert_eq!(announced, 0);

    let imported = import_list(hosts, &[], None);
    let announced = compare_verdicts(&imported, urls.clone(), |url, _| {
        !["one.example", "two.example"].contains(&host(url).as_str())
    });
    assert_eq!(announced, 0);

    let imported = import_list(surts, &[("action", "allow")], None);
    let announced = compare_verdicts(&imported, urls, |url, _| {
        let url = url.to_lowercase();
        let rest = url.split_once("://").unwrap().1;
        let host = host(&url);
        host == "one.example"
            || host.ends_with(".one.example")
            || rest.starts_with("www.two.example/dir/")
            || rest.starts_with("three.example/sub/")
    });
    assert_eq!(announced, 0);
}

#[test]
fn expressions_are_searched() {
    let spam = "\\bpills\\.example\\b\ncasino[0-9]*\\.example\n";
    let imported = import_list(spam, &[], None);
    let blacklist = RegexBuilder::new(
        "https?://+[a-z0-9_\\-.]*(?:\\bpills\\.example\\b|casino[0-9]*\\.example)",
    )
    .case_insensitive(true)
    .build()
    .unwrap();
    let names = [
        "pills.example",
        "xpills.example",
        "casino77.example",
        "pills.example2",
        "other.example",
    ];
    let mut random = fastrand::Rng::with_seed(4);
    let pieces = ["/a", "?u=http://pills.example/", "/casino1.example"];
    let all = urls(&mut random, &names, &pieces, REQUESTS);
    let announced = compare_verdicts(&imported, all.clone(), |url, _| !blacklist.is_match(url));
    assert_eq!(announced, 0);

    let ignores =
        "^https?://{primary_netloc}/.+[?&]reply=\\d+\n/x/x/\n^http://{any_start_netloc}/z\n";
    let imported = import_list(
        ignores,
        &[],
        Some("http://pills.example/\nhttps://other.example/a\n"),
    );
    let patterns = [
        "^https?://pills\\.example/.+[?&]reply=\\d+",
        "/x/x/",
        "^http://(?:pills\\.example|other\\.example)/z",
    ];
    let patterns = patterns.map(|text| Regex::new(text).unwrap());
    let pieces = ["/z", "/x/x/", "a?reply=12", "&reply=x", "/b"];
    let all = urls(&mut random, &names, &pieces, REQUESTS);
    let announced = compare_verdicts(&imported, all, |url, _| {
        !patterns.iter().any(|regex| regex.is_match(url))
    });
    assert_eq!(announced, 0);
}

#[test]
fn what_is_not_converted_says_which_way_it_fails() {
    use MissingPart::{KeepsOut, LetsThrough};
    for (line, failure) in [
        ("/ad.$domain=a.example", LetsThrough),
        ("@@/ad.$domain=a.example", KeepsOut),
        ("@@||a.example^$document", KeepsOut),
        ("||a.example^$~third-party", LetsThrough),
        ("||a.example^$redirect=noop.js", LetsThrough),
        ("||a.example^$removeparam=x", LetsThrough),
        ("||a.example^$unheard-of", LetsThrough),
        ("*$third-party", LetsThrough),
        ("/(?<=x)a(b)\\1/", LetsThrough),
    ] {
        let imported = import_list(&format!("||b.example^\n{line}\n"), &[], None);
        let found: Vec<_> = imported.report.list(ReportList::NotConverted).collect();
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].text, line);
        let Some(PartOutcome::NotConverted { failure: found, .. }) = found[0].outcome() else {
            panic!("{line}");
        };
        assert_eq!(*found, failure, "{line}");
    }
    let imported = import_list("^https?://{primary_netloc}/a\n^http://b/\n", &[], None);
    assert!(!imported.report.is_complete());
}

/// Makes a list with the shape of EasyList: most lines are domains, then texts, cosmetic filters and exceptions.
fn large_list(lines: usize) -> String {
    let mut random = fastrand::Rng::with_seed(11);
    let mut word = move || -> String {
        (0..random.usize(5..12))
            .map(|_| random.lowercase())
            .collect()
    };
    let mut text = String::from("[Adblock Plus 2.0]\n! Title: generated\n");
    for line in 0..lines {
        let line = match line % 100 {
            0..=47 => format!("||{}.{}^", word(), ["com", "net", "xyz"][line % 3]),
            48..=53 => format!("||{}.com^$third-party", word()),
            54..=57 => format!("||{}.com/{}/", word(), word()),
            58..=61 => format!("/{}/{}.", word(), word()),
            62..=63 => format!("-{}-ad.", word()),
            64 => format!("/{}/*/{}_", word(), word()),
            65 => format!("@@||{}.com/{}.js$script", word(), word()),
            66 => format!("@@||{}.com^", word()),
            67..=68 => format!("/{}.$domain={}.com", word(), word()),
            69 => format!("&{}=^", word()),
            _ => format!("{}.com##.{}", word(), word()),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[test]
fn a_large_list_is_a_few_lists_and_rules() {
    let lines = if cfg!(debug_assertions) {
        4_000
    } else {
        80_000
    };
    let text = large_list(lines);
    let begin = processor_time();
    let imported = import_list(&text, &[], None);
    let middle = processor_time();
    let policy = compiled(&imported);
    let end = processor_time();
    let import_time = middle.saturating_sub(begin);
    let load_time = end.saturating_sub(middle);
    println!("{lines} lines: imported in {import_time:?}, loaded in {load_time:?}");
    let rules = policy.rules().len();
    assert!(rules <= 8, "{rules} rules");
    assert_eq!(imported.divergences, []);
    let counted: u32 = imported.report.parts().iter().map(|part| part.lines).sum();
    assert_eq!(usize::try_from(counted).unwrap(), lines);
    let unrelated: u32 = imported
        .report
        .list(ReportList::Unrelated)
        .map(|part| part.lines)
        .sum();
    assert_eq!(usize::try_from(unrelated).unwrap(), lines * 30 / 100);
    assert!(imported.files["policy.yaml"].lines().count() < 100);
    if !cfg!(debug_assertions) {
        assert!(import_time.as_secs() < 5);
        assert!(load_time.as_secs() < 3);
    }
}

#[test]
fn hostile_lists_end() {
    for text in [
        "||".repeat(100_000),
        format!("||a.example^\n/{}/\n", "(".repeat(100_000)),
        format!("||a.example^\n{}\n", "*^".repeat(2_000)),
        "\u{feff}@@\n$\n||\n|\n||^\n@@||^$\n/\n//\n".to_owned(),
        format!("a.example##{}\n", "x".repeat(1 << 20)),
    ] {
        import_list(&text, &[("format", "adblock")], None);
    }
    for format in ["domains", "hosts", "surts", "spam-blacklist", "ignore-set"] {
        import_list(
            "\u{1}\u{2}\n(((\n+\n-\n::\n{primary_netloc}\n\\\n[\n",
            &[("format", format)],
            None,
        );
    }
}

fn import_filters(texts: &[(&str, &str)]) -> Import {
    let mut files = MemoryFileSystem::new();
    for (name, text) in texts {
        files = files.with_file(name, text.as_bytes());
    }
    let mut input = ImportInput::new(&files, texts.first().map(|(name, _)| *name));
    input
        .variables
        .push(("format".to_owned(), "adblock".to_owned()));
    import(System::Lists, &input).unwrap()
}

fn outcome_of(imported: &Import, text: &str) -> PartOutcome {
    let mut parts = imported.report.parts().iter();
    let part = parts.find(|part| part.text == text);
    let part = part.unwrap_or_else(|| panic!("{text} is in no list"));
    part.outcome().unwrap().clone()
}

/// Directives look like comments, but change which filters there are.
#[test]
fn directives_of_adblock_lists_are_parts() {
    let list = "||a.example^\n!#include more.txt\n!#include sub/missing.txt\n!#if env_firefox\n||b.example^\n@@||e.example^\n!#else\n||c.example^\n!#endif\n!#safari_cb_affinity(all)\n||d.example^\n";
    let imported = import_filters(&[
        ("list.txt", list),
        ("more.txt", "||more.example^\n!#include list.txt\n"),
    ]);
    let outcome = outcome_of(&imported, "!#include sub/missing.txt");
    assert!(
        matches!(
            outcome,
            PartOutcome::NotConverted {
                failure: MissingPart::LetsThrough,
                ..
            }
        ),
        "{outcome:?}"
    );
    for text in [
        "!#include more.txt",
        "!#if env_firefox",
        "!#else",
        "!#endif",
        "!#safari_cb_affinity(all)",
    ] {
        outcome_of(&imported, text);
    }
    for (text, effect) in [
        ("||b.example^", AssumptionEffect::RefusesMore),
        ("||c.example^", AssumptionEffect::RefusesMore),
        ("@@||e.example^", AssumptionEffect::RefusesLess),
    ] {
        let outcome = outcome_of(&imported, text);
        assert!(
            matches!(outcome, PartOutcome::Assumed { effect: found, .. } if found == effect),
            "{outcome:?}"
        );
    }
    let outcome = outcome_of(&imported, "||d.example^");
    assert!(matches!(outcome, PartOutcome::Converted(_)), "{outcome:?}");
    let policy = compiled(&imported);
    for (host, refuses) in [
        ("more.example", true),
        ("b.example", true),
        ("x.example", false),
    ] {
        let facts = CaseFacts::for_url(&format!("http://{host}/")).unwrap();
        assert_eq!(policy.decide(&facts.facts()).1.rejects(), refuses, "{host}");
    }
}

/// `$document` is about pages that are opened, not about what they embed.
#[test]
fn filters_of_documents_do_not_refuse_embeds() {
    let imported = import_list(
        "||doc.example^$document\n||all.example^\n||both.example^$document,script\n",
        &[("format", "adblock")],
        None,
    );
    assert_eq!(imported.divergences, []);
    let hosts = [
        "doc.example",
        "all.example",
        "both.example",
        "other.example",
    ];
    let mut random = fastrand::Rng::with_seed(13);
    let urls = urls(&mut random, &hosts, &["/a"], REQUESTS);
    compare_verdicts(&imported, urls, |url, facts| {
        let is_embed = facts.get("dest").is_some();
        let is_doc = url.contains("doc.example") && !is_embed;
        !(is_doc || url.contains("all.example") || url.contains("both.example"))
    });
    let policy = compiled(&imported);
    let mut facts = CaseFacts::for_url("http://doc.example/").unwrap();
    assert!(policy.decide(&facts.facts()).1.rejects());
    facts.set("dest", &json!("embed")).unwrap();
    assert!(!policy.decide(&facts.facts()).1.rejects());
}

/// Expressions that are plain texts become texts.
#[test]
fn literal_expressions_are_items() {
    const LIST: &str = "/banner/\n/^http:\\/\\/start\\.example/\n/\\.swf$/\n/^https:\\/\\/exact\\.example\\/a$/\n/Case/$match-case\n";
    let imported = import_list(LIST, &[("format", "adblock")], None);
    assert!(
        imported.report.is_complete(),
        "{}",
        imported.report.to_text()
    );
    assert_eq!(imported.divergences, []);
    let regexes: Vec<Regex> = LIST
        .lines()
        .map(|line| match line.strip_suffix("$match-case") {
            Some(text) => filter_regex(text, true),
            None => filter_regex(line, false),
        })
        .collect();
    let hosts = [
        "start.example",
        "exact.example",
        "other.example",
        "banner.example",
    ];
    let pieces = [
        "/a",
        "/banner",
        "/BANNER.SWF",
        "x.swf",
        "Case",
        "case",
        "?q",
    ];
    let mut random = fastrand::Rng::with_seed(17);
    let urls = urls(&mut random, &hosts, &pieces, REQUESTS);
    let announced = compare_verdicts(&imported, urls, |url, _| {
        !regexes.iter().any(|regex| regex.is_match(url))
    });
    assert_eq!(announced, 0);
}

/// A line with `-` takes away prefixes among seeds only.
#[test]
fn a_line_with_a_minus_is_explained() {
    let imported = import_list(
        "+http://(org,good,\n-http://(org,b,bad,\n",
        &[("format", "surts")],
        None,
    );
    let outcome = outcome_of(&imported, "-http://(org,b,bad,");
    let PartOutcome::Dead { why } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(why.contains("among seeds"), "{why}");
}
