//! `unmodified` and `duplicate` by the content of bodies that have no validators.

use crawlgate::clock::Clock;
use crawlgate::config::load::{Environment, Overrides, load};
use crawlgate::config::policy as policy_of;
use crawlgate::ledger::transition::ErrorTolerance;
use crawlgate::server::Server;
use crawlgate::store::ledger::Ledger;
use tokio::runtime::{Builder, Runtime};

use super::{DocumentResponse, Heads, Page, Pages, ask, gzip, origin};
use crate::support::origin::ScriptedOrigin;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

/// A proxy in this process with a ledger, and an origin with pages.
struct Remembering {
    _folder: TempDir,
    _runtime: Runtime,
    server: Server,
    origin: ScriptedOrigin,
    pages: Pages,
}

impl Remembering {
    fn new(options: &str) -> Self {
        let pages = Pages::default();
        let heads = Heads::default();
        let origin = origin(&pages, &heads);
        let folder = TempDir::new();
        folder.write("policy.yaml", allow_all(options, "  []"));
        let file = folder.write("crawlgate.yaml", CONFIG.replace("log.json", "none"));
        let directory = file.parent().unwrap().to_owned();
        let around = Environment {
            directory: &directory,
            variables: &|_| None,
        };
        let overrides = Overrides {
            config: Some(file),
            ..Overrides::default()
        };
        let settings = load(&overrides, &around)
            .unwrap_or_else(|problems| panic!("{problems:?}"))
            .settings;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 3,
        });
        let compiled =
            policy_of::open_and_test(&settings.policy.origin).unwrap_or_else(|p| panic!("{p:?}"));
        let (clock, _) = Clock::manual();
        let started =
            async { Server::start_with(&settings, compiled.policy.into(), clock, Some(ledger)) };
        let server = runtime.block_on(started).unwrap();
        Self {
            _folder: folder,
            _runtime: runtime,
            server,
            origin,
            pages,
        }
    }

    fn has(&self, path: &str, page: Page) {
        self.pages.lock().unwrap().insert(path.to_owned(), page);
    }

    fn get(&self, path: &str) -> DocumentResponse {
        ask(self.server.proxy[0], &self.origin, "GET", path, "")
    }
}

/// Requests until the earlier response is recorded: the record is written after the last byte.
fn refused(site: &Remembering, path: &str, output: &str) {
    wait_until(output, || site.get(path).output() == output);
}

#[test]
fn a_body_that_is_the_same_is_refused_as_unmodified() {
    let site = Remembering::new("  unmodified: reject\n");
    site.has("/page", Page::html("a page"));
    let first = site.get("/page");
    assert_eq!(
        (first.output().as_str(), first.text().as_str()),
        ("passed 200", "a page")
    );
    refused(&site, "/page", "unmodified  451");
    // The same content in another coding, and chunked.
    fn packed() -> Page {
        Page::of("text/html", gzip(b"a page")).field("Content-Encoding: gzip")
    }
    site.has("/page", packed().cut(3));
    assert_eq!(site.get("/page").output(), "unmodified  451");
    site.has("/page", packed().cut(5).chunked());
    assert_eq!(site.get("/page").output(), "unmodified  451");
    site.has("/page", Page::html("another page"));
    assert_eq!(site.get("/page").text(), "another page");
    refused(&site, "/page", "unmodified  451");
}

#[test]
fn a_body_that_another_url_has_is_refused_as_a_duplicate() {
    let site = Remembering::new("  duplicate: reject\n  max_buffer: 4KiB\n");
    for path in ["/a", "/b"] {
        site.has(path, Page::of("image/png", "the same"));
    }
    assert_eq!(site.get("/a").output(), "passed 200");
    refused(&site, "/b", "duplicate  451");
    assert_eq!(site.get("/a").output(), "passed 200");
    // A body beyond the buffer limit is delivered.
    let long = "the same ".repeat(1000);
    for path in ["/c", "/d"] {
        site.has(path, Page::of("image/png", &long).cut(1000));
        assert_eq!(site.get(path).text(), long);
    }
}

#[test]
fn tagged_documents_are_not_buffered_and_are_remembered() {
    let site = Remembering::new("  unmodified: tag\n  index: false\n  enforce_index: meta\n");
    site.has("/page", Page::html("<p>a page"));
    for _ in 0..2 {
        assert!(site.get("/page").text().ends_with("<p>a page"));
    }
}
