//! Scrapy: the policy against the algorithm of its link extractors, written plainly, and its traps.

use crawlgate_import::{ImportInput, MissingPart, PartOutcome, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use serde_json::Map;

use super::support::{REQUESTS, compare_verdicts, import_texts, regex_fits};

const PROJECT: &str = r#"
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
import re

BASE = 'https?://' r'www\.'

class A(CrawlSpider):
    name = 'a'
    allowed_domains = ['example.com', 'shop.example.org']
    start_urls = ['http://example.com', 'http://start.test/?x#y']
    rules = (
        Rule(LinkExtractor(BASE + r'example\.com/c/\d+', deny=(r'[?&]sort=', re.compile('PRINT', re.I)))),
        Rule(LinkExtractor(allow=[r'/p/'], allow_domains=['shop.example.org'], deny_extensions=()), callback='item'),
        Rule(LinkExtractor(allow='/doc/', deny_domains=("old.example.com",), deny_extensions=['pdf', 'tar.gz']), 'doc', follow=True),
    )
"#;

/// `LinkExtractor._link_allowed` and the offsite middleware for the spider above.
fn scrapy_fetches(url: &str) -> bool {
    if ["http://example.com/", "http://start.test/?x"].contains(&url) {
        return true;
    }
    let rest = url.split_once("://").unwrap().1;
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let path = path.split('?').next().unwrap().to_lowercase();
    let below = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    if !below("example.com") && !below("shop.example.org") {
        return false;
    }
    let found = |expression: &str| regex_fits(expression, url);
    let ends = |extensions: &[&str]| extensions.iter().any(|end| path.ends_with(end));
    let first = found(r"https?://www\.example\.com/c/\d+")
        && !found(r"[?&]sort=")
        && !found("(?i)PRINT")
        && !ends(&[".pdf", ".zip", ".tar.gz", ".js"]);
    let second = found("/p/") && below("shop.example.org");
    let third = found("/doc/") && !below("old.example.com") && !ends(&[".pdf", ".tar.gz"]);
    first || second || third
}

#[test]
fn links_are_accepted_by_one_of_the_rules() {
    let imported = import_texts(System::Scrapy, &[("a.py", PROJECT)]);
    assert_eq!(imported.divergences, []);
    let mut random = fastrand::Rng::with_seed(1);
    let hosts = [
        "example.com",
        "www.example.com",
        "old.example.com",
        "a.old.example.com",
        "xexample.com",
        "shop.example.org",
        "b.shop.example.org",
        "example.org",
        "start.test",
    ];
    let middles = [
        "/",
        "/c/1",
        "/c/x",
        "/p/1",
        "/doc/1",
        "/doc/p/",
        "/c/1/doc/",
    ];
    let ends = [
        "", ".pdf", ".PDF", ".zip", ".tar.gz", ".html", ".js", ".jsp",
    ];
    let queries = ["", "", "?x", "?sort=a", "?a&sort=", "?print", "?a=.pdf"];
    let requests = (0..REQUESTS).map(|_| {
        let scheme = ["http", "https"][random.usize(..2)];
        let host = hosts[random.usize(..hosts.len())];
        let middle = middles[random.usize(..middles.len())];
        let end = ends[random.usize(..ends.len())];
        let query = queries[random.usize(..queries.len())];
        (format!("{scheme}://{host}{middle}{end}{query}"), Map::new())
    });
    let requests: Vec<_> = requests.collect();
    let announced = compare_verdicts(&imported, requests, |url, _| scrapy_fetches(url));
    assert_eq!(announced, 0);
}

#[test]
fn literals_of_python_are_read_as_python_reads_them() {
    for (literal, is_known) in [
        ("'a.test'", true),
        ("\"a\" '.test'", true),
        ("'a' + \".test\"", true),
        ("'''a.test'''", true),
        ("r'a.test'", true),
        ("u'a.test'", true),
        ("'\\x61.test'", true),
        ("'a\\\n.test'", true),
        ("('a'\n  '.test')", true),
        ("DOMAIN", true),
        ("'a.test' # 'b.test'", true),
        ("f'a.test'", false),
        ("'a.test'.lower()", false),
        ("'a.test' if x else 'b.test'", false),
        ("'a.%s' % 'test'", false),
        ("os.environ['D']", false),
        ("OTHER", false),
        ("TWICE", false),
        ("get('a.test')", false),
        ("*DOMAINS", false),
        ("x for x in y", false),
        ("'a.test'[1:]", false),
        ("-'a'", false),
    ] {
        let text = format!(
            "DOMAIN = 'a.test'\nTWICE = 'a.test'\nTWICE = 'b.test'\nclass A(Spider):\n    name = 'a'\n    allowed_domains = [{literal}\n    ]\n"
        );
        let imported = import_texts(System::Scrapy, &[("a.py", &text)]);
        assert_eq!(imported.divergences, [], "{literal}");
        let policy = &imported.files["policy.yaml"];
        assert_eq!(
            imported.report.is_complete(),
            is_known,
            "{literal}: {policy}"
        );
        assert_eq!(
            policy.contains("require: { domain: a.test }"),
            is_known,
            "{literal}: {policy}"
        );
    }
}

/// Each thing that is not converted says which way it fails.
#[test]
fn what_is_not_converted_says_which_way_it_fails() {
    use MissingPart::{KeepsOut, LetsThrough};
    for (attribute, failure) in [
        ("allowed_domains = load()", LetsThrough),
        ("start_urls = [x for x in y]", KeepsOut),
        ("rules = build()", KeepsOut),
        ("rules = [Rule(LinkExtractor(allow=load()))]", KeepsOut),
        (
            "rules = [Rule(LinkExtractor(allow=r'x+(?<!not)spam'))]",
            KeepsOut,
        ),
        (
            "rules = [Rule(LinkExtractor(allow_domains=load()))]",
            KeepsOut,
        ),
        ("rules = [Rule(Own(allow='a'))]", KeepsOut),
        ("rules = [Rule(LinkExtractor(deny=load()))]", LetsThrough),
        (
            "rules = [Rule(LinkExtractor(deny=r'x+(?<!not)spam'))]",
            LetsThrough,
        ),
        (
            "rules = [Rule(LinkExtractor(deny_domains=load()))]",
            LetsThrough,
        ),
        (
            "rules = [Rule(LinkExtractor(deny_extensions=load()))]",
            LetsThrough,
        ),
        (
            "rules = [Rule(LinkExtractor(restrict_xpaths='//a'))]",
            LetsThrough,
        ),
        (
            "rules = [Rule(LinkExtractor(restrict_text='a'))]",
            LetsThrough,
        ),
        (
            "rules = [Rule(LinkExtractor(), process_links='f')]",
            LetsThrough,
        ),
        (
            "rules = [Rule(LinkExtractor(process_value=f))]",
            LetsThrough,
        ),
        ("sitemap_rules = [('/a', 'b')]", LetsThrough),
        (
            "if True:\n        allowed_domains = ['a.test']",
            LetsThrough,
        ),
    ] {
        let text =
            format!("import scrapy\nclass A(CrawlSpider):\n    name = 'a'\n    {attribute}\n");
        let imported = import_texts(System::Scrapy, &[("a.py", &text)]);
        assert_eq!(imported.divergences, [], "{attribute}");
        let mut parts = imported.report.list(ReportList::NotConverted);
        let fails = parts.any(|part| {
            matches!(part.outcome(), Some(PartOutcome::NotConverted { failure: found, .. }) if *found == failure)
        });
        assert!(fails, "{attribute}: {}", imported.report.to_text());
    }
    for line in [
        "DEPTH_LIMIT = get()",
        "DOWNLOAD_DELAY = os.environ['D']",
        "if x:\n    DEPTH_LIMIT = 2",
    ] {
        let text = format!("BOT_NAME = 'a'\n{line}\n");
        let imported = import_texts(System::Scrapy, &[("settings.py", &text)]);
        assert!(!imported.report.is_complete(), "{line}");
    }
}

#[test]
fn a_request_in_code_is_warned_of_at_the_top() {
    let text = format!(
        "{PROJECT}\n    def item(self, response):\n        yield Request(response.url + 'x')\n"
    );
    let imported = import_texts(System::Scrapy, &[("a.py", &text)]);
    let policy = &imported.files["policy.yaml"];
    assert!(policy.starts_with("# Pages that a spider requests in its code"));
    let request = ("http://www.example.com/reviews/1x".to_owned(), Map::new());
    let announced = compare_verdicts(&imported, [request], |_, _| true);
    assert_eq!(announced, 1);
}

#[test]
fn robots_are_obeyed_only_if_the_settings_say_so() {
    for (text, obeys) in [
        ("BOT_NAME = 'a'\n", "obey: false"),
        ("BOT_NAME = 'a'\nROBOTSTXT_OBEY = True\n", "obey: true"),
    ] {
        let imported = import_texts(System::Scrapy, &[("settings.py", text)]);
        let policy = &imported.files["policy.yaml"];
        assert!(policy.contains(obeys), "{policy}");
    }
}

#[test]
fn secrets_are_not_written_and_odd_files_do_not_panic() {
    let text = "BOT_NAME = 'a'\nAWS_SECRET_ACCESS_KEY = 'hunter2'\nDB = {'p': 'hunter2'}\nx = 'hunter2' + 1\n";
    let imported = import_texts(System::Scrapy, &[("settings.py", text)]);
    let report = imported.report.to_json().to_string();
    for text in imported.files.values().chain([&imported.settings, &report]) {
        assert!(!text.contains("hunter2"), "{text}");
    }
    let deep = format!("class A(Spider):\n  name = {}\n", "[".repeat(100_000));
    let nested = format!(
        "allowed_domains = {}1{}\n",
        "(".repeat(150),
        ")".repeat(150)
    );
    for text in [
        deep.as_str(),
        nested.as_str(),
        "'''",
        "class",
        "class A(",
        "def",
        "x = (",
        "x ==",
        "\u{80}",
        "\\",
        "if\n  x\n y",
    ] {
        let files = MemoryFileSystem::new().with_file("a.py", text.as_bytes());
        let _ = import(System::Scrapy, &ImportInput::new(&files, ["a.py"]));
    }
}

/// Every statement, every argument of a rule and of a link extractor, and every setting is one part.
#[test]
fn each_statement_is_in_one_list() {
    let imported = import_texts(System::Scrapy, &[("a.py", PROJECT)]);
    let statements = 3 + 1 + 1 + 4;
    let rules = 3;
    let arguments = 2 + (3 + 1) + (3 + 2);
    assert_eq!(
        imported.report.parts().len(),
        statements + rules + arguments
    );
    let lists = ReportList::ALL.iter();
    let listed: usize = lists.map(|list| imported.report.list(*list).count()).sum();
    assert_eq!(listed, imported.report.parts().len());
}
