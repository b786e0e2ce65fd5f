//! robots.txt by RFC 9309: reading a file once for all crawlers, and saying which line decides a URL.
//!
//! Pure: bytes and facts in, an answer out. Nothing here fetches, caches or reads a clock; what the outcome of a fetch
//! means is a table in [`standing`]. Parsing and matching are linear in the input, without regular expressions.
//!
//! Choices where the standard leaves one, or where the wild differs:
//! - Read as Google reads: a missing colon between two words, the usual misspellings of `Disallow` and `User-agent`,
//!   keys by their beginning, any of CR, LF and CRLF, a byte order mark or the beginning of one, 16,663 bytes a line;
//!   `Allow: /dir/index.html` allows `/dir/` too. A pattern that starts with neither `/` nor `*` matches nothing.
//! - Product tokens may have digits (`MJ12bot`); what follows a token on its line (`Foo/1.0`, `Foo Bar`) is ignored.
//! - Escapes as section 2.2.2 says: `%62` is `b`, `%7e` is `~`, and a byte that a URL may not have is its escape.
//!   Reserved characters count as written, save that `:`, `/`, `@`, `[` and `]` behind the `?` of a rule are the
//!   same as their escapes.
//! - `Crawl-delay`, `Request-rate` and `Sitemap` are kept; they never end a list of user agents. What is read beside
//!   them is in [`extension`]. All others are counted as unknown, and not kept.

mod escape;
pub mod extension;
pub mod fetch_outcome;
pub mod file;
pub mod freshness;
mod line;
mod pattern;
pub mod product_token;
mod request_rate;
pub mod robots_tag;
pub mod rules;
pub mod state;
pub mod usage;

pub use escape::normal_form;
pub use file::{MAX_FILE_BYTES, RobotsFile};
pub use rules::{DecidingLine, RobotsAccess, RobotsDecision};
