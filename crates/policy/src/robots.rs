//! robots.txt by RFC 9309: parses a file once for all crawlers, and returns the line that decides a
//! URL.
//!
//! Pure: nothing here fetches, caches or reads a clock. [`state`] defines the consequences of a
//! fetch. Parsing and matching are linear in the input and do not use regular expressions.
//!
//! Choices where the standard leaves one, or where real files differ:
//! - Lenient like Google's parser: a missing colon between two words, common misspellings of
//!   `Disallow` and `User-agent`, keys by their prefix, any of CR, LF and CRLF, a byte order mark
//!   or its beginning, UTF-16 with such a mark, 16,663 bytes a line; `Allow: /dir/index.html` allows `/dir/` too. A pattern
//!   that starts with neither `/` nor `*` matches nothing.
//! - Product tokens may contain digits (`MJ12bot`). Text after a token on its line (`Foo/1.0`,
//!   `Foo Bar`) is ignored.
//! - Escapes follow section 2.2.2: `%62` is `b`, `%7e` is `~`, and a byte that is not allowed in
//!   URLs equals its escape. Reserved characters are compared as written, except that `:`, `/`,
//!   `@`, `[` and `]` after the `?` of a rule equal their escapes.
//! - `Crawl-delay`, `Request-rate` and `Sitemap` are stored; they never end a list of user agents for
//!   rules. A Crawl-delay and a Request-rate address the agents right above them. Other extensions
//!   are in [`extension`]. Unknown keys are counted and dropped.

pub mod agent;
mod delays;
mod directive_agents;
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
