//! Scrapy: the policy against the algorithm of its link extractors, written plainly, and its traps.

use crawlgate_import::{Import, ImportInput, MissingPart, PartOutcome, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use serde_json::Map;

use super::support::{REQUESTS, compare_verdicts, compiled, import_texts, regex_fits};

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

/// Imports a file with spiders, beside others.
fn import_spiders(texts: &[(&str, &str)]) -> Import {
    let mut files = MemoryFileSystem::new();
    for (name, text) in texts {
        files = files.with_file(name, text.as_bytes());
    }
    let input = ImportInput::new(&files, texts.iter().map(|(name, _)| *name));
    let imported = import(System::Scrapy, &input).unwrap();
    assert_eq!(imported.divergences, [], "{texts:?}");
    imported
}

/// Returns `true` if the policy of an import allows a URL for a crawler.
fn allows(imported: &Import, crawler: &str, url: &str) -> bool {
    let mut facts = CaseFacts::for_url(url).unwrap();
    facts.set("crawler", &crawler.into()).unwrap();
    let (_, decision) = compiled(imported).decide(&facts.facts());
    !decision.rejects()
}

/// Returns the ways in which the policy fails without what is not converted.
fn failures(imported: &Import) -> Vec<MissingPart> {
    let parts = imported.report.list(ReportList::NotConverted);
    let failures = parts.filter_map(|part| match part.outcome() {
        Some(PartOutcome::NotConverted { failure, .. }) => Some(*failure),
        _ => None,
    });
    failures.collect()
}

#[test]
fn attributes_are_inherited_in_the_order_of_python() {
    let base = "from scrapy.spiders import CrawlSpider, Rule
from scrapy.linkextractors import LinkExtractor
DOMAIN = 'a.test'
class Base(CrawlSpider):
    allowed_domains = [DOMAIN]
    custom_settings = {'URLLENGTH_LIMIT': 30}
    rules = [Rule(LinkExtractor(allow='/base/'), callback='item')]
class Left(Base):
    rules = [Rule(LinkExtractor(allow='/left/'))]
class Right(Base):
    rules = [Rule(LinkExtractor(allow='/right/'))]
    allowed_domains = ['right.test']
";
    let spiders = "from .base import *
from shop.spiders import base
class One(Left, Right):
    name = 'one'
class Two(base.Base):
    name = 'two'
    allowed_domains = [DOMAIN, 'b.test']
class Three(Two):
    name = 'three'
    custom_settings = None
";
    let imported = import_spiders(&[("spiders/shop.py", spiders), ("spiders/base.py", base)]);
    assert!(
        imported.report.is_complete(),
        "{}",
        imported.report.to_text()
    );
    let policy = &imported.files["policy.yaml"];
    for (crawler, url, expected) in [
        ("one", "http://right.test/left/", true),
        ("one", "http://right.test/right/", false),
        ("one", "http://a.test/left/", false),
        ("two", "http://a.test/base/", true),
        ("two", "http://b.test/base/", true),
        ("two", "http://b.test/left/", false),
        ("two", "http://b.test/base/0123456789012345", false),
        ("three", "http://b.test/base/0123456789012345", true),
        ("three", "http://c.test/base/", false),
    ] {
        assert_eq!(
            allows(&imported, crawler, url),
            expected,
            "{crawler} {url}\n{policy}"
        );
    }
    let text = imported.report.to_json().to_string();
    assert!(
        text.contains("inherited from Base, spiders/base.py:"),
        "{text}"
    );
}

/// Without the file of a base class, what it restricts is missing.
#[test]
fn an_unknown_base_class_is_not_converted() {
    use MissingPart::LetsThrough;
    for (text, is_known) in [
        (
            "from .base import ShopSpider\nclass A(ShopSpider):\n    name = 'a'\n",
            false,
        ),
        (
            "import shop.base\nclass A(shop.base.ShopSpider):\n    name = 'a'\n",
            false,
        ),
        (
            "from .mixins import M\nimport scrapy\nclass A(M, scrapy.Spider):\n    name = 'a'\n",
            false,
        ),
        (
            "import scrapy\nclass A(make(), scrapy.Spider):\n    name = 'a'\n",
            false,
        ),
        (
            "from scrapy_redis.spiders import RedisSpider\nclass A(RedisSpider):\n    name = 'a'\n",
            false,
        ),
        (
            "import scrapy\nclass B: pass\nclass C(B): pass\nclass A(B, C, scrapy.Spider):\n    name = 'a'\n",
            false,
        ),
        (
            "import scrapy, abc\nclass A(scrapy.Spider, abc.ABC, metaclass=M):\n    name = 'a'\n",
            true,
        ),
        (
            "import scrapy\nclass M(object): x = 1\nclass A(M, scrapy.Spider): name = 'a'; custom_settings = None\n",
            true,
        ),
        (
            "from scrapy import spiders\nclass A(spiders.CrawlSpider):\n    name = 'a'\n",
            true,
        ),
    ] {
        let imported = import_spiders(&[("a.py", text)]);
        let expected: &[MissingPart] = if is_known { &[] } else { &[LetsThrough] };
        assert_eq!(
            failures(&imported),
            expected,
            "{text}\n{}",
            imported.report.to_text()
        );
    }
}

/// Attributes that code sets are noticed, wherever it is.
#[test]
fn attributes_that_code_sets_are_not_converted() {
    use MissingPart::{KeepsOut, LetsThrough, OtherSetting};
    let spider = "import scrapy\nclass A(CrawlSpider):\n    name = 'a'\n";
    for (code, failure) in [
        (
            "    def __init__(self):\n        self.allowed_domains = load()\n",
            LetsThrough,
        ),
        (
            "    def __init__(self):\n        self.allowed_domains.append('a')\n",
            KeepsOut,
        ),
        (
            "    def __init__(self):\n        self.start_urls = [x]\n",
            KeepsOut,
        ),
        (
            "    def __init__(self):\n        self.rules = [x]\n",
            KeepsOut,
        ),
        (
            "    def __init__(self):\n        self.rules: list = [x]\n",
            KeepsOut,
        ),
        (
            "    def __init__(self):\n        self.rules += [x]\n",
            KeepsOut,
        ),
        (
            "    rules = []\n    def __init__(self):\n        self.rules = x\n",
            LetsThrough,
        ),
        (
            "    def __init__(self):\n        setattr(self, 'allowed_domains', x)\n",
            LetsThrough,
        ),
        (
            "    @property\n    def allowed_domains(self):\n        return x\n",
            LetsThrough,
        ),
        (
            "    @property\n    def rules(self):\n        return x\n",
            KeepsOut,
        ),
        (
            "    @classmethod\n    def update_settings(cls, s):\n        s.set('A', 1)\n",
            LetsThrough,
        ),
        (
            "    @classmethod\n    def from_crawler(cls, c):\n        cls.custom_settings['A'] = 1\n",
            LetsThrough,
        ),
        (
            "    def sitemap_filter(self, entries):\n        yield 1\n",
            LetsThrough,
        ),
        (
            "    def _requests_to_follow(self, r):\n        yield 1\n",
            LetsThrough,
        ),
        ("    a = allowed_domains = ['x']\n", LetsThrough),
        ("    allowed_domains, b = ['x'], 1\n", LetsThrough),
        ("    with x as allowed_domains: pass\n", LetsThrough),
        ("    max_concurrent_requests = get()\n", OtherSetting),
        ("A.rules = [x]\n", LetsThrough),
        ("A.allowed_domains.append('x')\n", LetsThrough),
        ("A.custom_settings = {}\n", LetsThrough),
        ("setattr(A, 'rules', [])\n", LetsThrough),
        (
            "def f(spider):\n    spider.allowed_domains = []\n",
            LetsThrough,
        ),
        (
            "class Pipeline:\n    def open_spider(self, spider):\n        spider.allowed_domains = []\n",
            LetsThrough,
        ),
        ("from .names import *\n", LetsThrough),
        (
            "try:\n    from .names import *\nexcept ImportError:\n    pass\n",
            LetsThrough,
        ),
    ] {
        let imported = import_spiders(&[("a.py", &format!("{spider}{code}"))]);
        assert_eq!(
            failures(&imported),
            [failure],
            "{code}\n{}",
            imported.report.to_text()
        );
    }
    for code in [
        "    def f(self):\n        rules = self.rules\n        return rules == self.allowed_domains\n",
        "    def f(self):\n        self.custom_settings = {}\n",
        "    def f(self):\n        self.rules[0].follow\n        f(self.rules, 1)\n",
        "    name = 'b'\n",
        "class A(CrawlSpider): name = 'b'\n",
        "from scrapy.spiders import *\n",
        "print(a == b)\n",
    ] {
        let text = format!("import scrapy\nclass X(CrawlSpider):\n    name = 'a'\n{code}");
        let imported = import_spiders(&[("a.py", &text)]);
        assert_eq!(
            failures(&imported),
            [],
            "{code}\n{}",
            imported.report.to_text()
        );
    }
}

/// Settings of several files have an effect in the order in which they import each other, not in that of the command.
#[test]
fn settings_have_an_effect_in_the_order_of_imports() {
    let base = "BOT_NAME = 'a'\nDEPTH_LIMIT = 3\nROBOTSTXT_OBEY = True\n";
    for (production, expected) in [
        (
            "from .base import *\nDEPTH_LIMIT = 5\n",
            Some("max_depth: 5"),
        ),
        (
            "DEPTH_LIMIT = 5\nfrom .base import *\n",
            Some("max_depth: 3"),
        ),
        (
            "try:\n    from .base import *\nexcept ImportError:\n    pass\nDEPTH_LIMIT = 5\n",
            Some("max_depth: 5"),
        ),
        (
            "DEPTH_LIMIT = 5\nfrom .base import DEPTH_LIMIT\n",
            Some("max_depth: 3"),
        ),
        ("DEPTH_LIMIT = 1\nDEPTH_LIMIT = 5\n", None),
        ("from .other import *\nDEPTH_LIMIT = 5\n", None),
        ("from .base import *\nif x:\n    DEPTH_LIMIT = 5\n", None),
        ("from .base import *\nglobals()['DEPTH_LIMIT'] = 5\n", None),
    ] {
        for first in ["base.py", "production.py"] {
            let mut texts = [("base.py", base), ("production.py", production)];
            texts.sort_by_key(|(name, _)| *name != first);
            let imported = import_spiders(&texts);
            let policy = &imported.files["policy.yaml"];
            assert_eq!(
                imported.report.is_complete(),
                expected.is_some(),
                "{production}\n{}",
                imported.report.to_text()
            );
            if let Some(expected) = expected {
                assert!(policy.contains(expected), "{production}: {policy}");
            }
        }
    }
    let cycle = "from .production import *\nDEPTH_LIMIT = 3\n";
    let texts = [
        ("base.py", cycle),
        ("production.py", "from .base import *\nDEPTH_LIMIT = 5\n"),
    ];
    let imported = import_spiders(&texts);
    assert!(imported.files["policy.yaml"].contains("max_depth"));
    // A module of another package with the name of the file is not this file.
    let text = "from common.settings import *\nDEPTH_LIMIT = 5\n";
    let imported = import_spiders(&[("settings.py", text)]);
    assert!(!imported.report.is_complete());
    assert!(imported.files["policy.yaml"].contains("max_depth: 5"));
}

#[test]
fn the_pace_of_a_spider_is_that_of_its_attributes_and_slots() {
    let settings = "BOT_NAME = 'a'\nDOWNLOAD_DELAY = 1\nURLLENGTH_LIMIT = 20\nDOWNLOAD_SLOTS = {'a.test': {'concurrency': 2, 'delay': 3, 'randomize_delay': False}}\n";
    let spider = "import scrapy\nclass A(scrapy.Spider):\n    name = 'a'\n    download_delay = 7\n    max_concurrent_requests = 4\n    custom_settings = {'URLLENGTH_LIMIT': 25}\n";
    let imported = import_spiders(&[("settings.py", settings), ("a.py", spider)]);
    let policy = &imported.files["policy.yaml"];
    for expected in [
        "delay: 7s",
        "concurrency: 4",
        "id: DOWNLOAD_SLOTS.a.test",
        "when: { host: a.test }",
        "delay: 3s",
        "jitter: none",
        "'[26:]'",
    ] {
        assert!(policy.contains(expected), "{expected}: {policy}");
    }
    assert!(!policy.contains("[21:]"), "{policy}");
    for (line, failure) in [
        ("DOWNLOAD_SLOTS = get()", MissingPart::OtherSetting),
        (
            "DOWNLOAD_SLOTS = {'a.test': {'delay': get()}}",
            MissingPart::OtherSetting,
        ),
        (
            "CONCURRENT_REQUESTS_PER_IP = 1\nDOWNLOAD_SLOTS = {'a': {'delay': 1}}",
            MissingPart::OtherSetting,
        ),
        (
            "DOWNLOADER_MIDDLEWARES = {'shop.Drop': 500}",
            MissingPart::LetsThrough,
        ),
        (
            "DOWNLOADER_MIDDLEWARES = {Drop: 500}",
            MissingPart::LetsThrough,
        ),
        (
            "SPIDER_MIDDLEWARES = {'scrapy.spidermiddlewares.offsite.OffsiteMiddleware': None}",
            MissingPart::KeepsOut,
        ),
        (
            "DOWNLOADER_MIDDLEWARES = {'scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware': None}",
            MissingPart::KeepsOut,
        ),
    ] {
        let imported = import_spiders(&[("settings.py", &format!("BOT_NAME = 'a'\n{line}\n"))]);
        assert_eq!(failures(&imported), [failure], "{line}");
    }
}

/// `allowed_domains` are compared as they are written, those of link extractors without case and with the port.
#[test]
fn domains_are_compared_as_scrapy_compares_them() {
    let spider = "from scrapy.spiders import CrawlSpider
class A(CrawlSpider):
    name = 'a'
    allowed_domains = ['a.test', 'Capital.test', 'port.test:80', 'b\u{fc}.test', 'e.test']
    rules = [
        Rule(LinkExtractor(allow='/d/', deny_domains='E.Test', deny_extensions=['PDF', 'x-y', 'tar.gz'])),
        Rule(LinkExtractor(allow='/c/', allow_domains=['A.test', 'e.test:81'])),
        Rule(LinkExtractor(allow='/n/', allow_domains=['.a.test'])),
    ]
";
    let imported = import_spiders(&[("a.py", spider)]);
    assert!(
        imported.report.is_complete(),
        "{}",
        imported.report.to_text()
    );
    let policy = &imported.files["policy.yaml"];
    for (url, expected) in [
        ("http://capital.test/d/", false),
        ("http://port.test/d/", false),
        ("http://xn--b-xka.test/d/", false),
        ("http://a.test/d/", true),
        ("http://a.test:81/d/", true),
        ("http://a.test/d/x.pdf", true),
        ("http://a.test/d/x.X-Y", false),
        ("http://a.test/d/x.tar.gz", false),
        ("http://e.test/d/", false),
        ("http://e.test:81/d/", true),
        ("http://x.a.test/c/", true),
        ("http://a.test:81/c/", false),
        ("http://e.test/c/", false),
        ("http://e.test:81/c/", true),
        ("http://x.e.test:81/c/", true),
        ("http://x.a.test/n/", false),
    ] {
        assert_eq!(allows(&imported, "a", url), expected, "{url}\n{policy}");
    }
    // Rules have an effect in a CrawlSpider only.
    let text = spider.replace("CrawlSpider", "Spider");
    let imported = import_spiders(&[("a.py", &text)]);
    assert!(allows(&imported, "a", "http://a.test/other"));
}

/// Pages that code requests past the filters are announced, also without rules.
#[test]
fn requests_past_the_filters_are_announced() {
    let text = "import scrapy\nclass A(scrapy.Spider):\n    name = 'a'\n    allowed_domains = ['a.test']\n    def parse(self, r):\n        yield scrapy.Request('http://b.test/', dont_filter=True)\n";
    let imported = import_spiders(&[("a.py", text)]);
    assert!(imported.report.assumption_of("allowed_domains").is_some());
    let imported = import_spiders(&[("a.py", &text.replace("True", "False"))]);
    assert!(imported.report.assumption_of("allowed_domains").is_none());
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
