//! The name by which robots.txt addresses a crawler (RFC 9309 section 2.2.1).
//!
//! Most crawlers call themselves `Mozilla/5.0 (compatible; GoodBot/2.1; +http://good.example/)`. The
//! product after `compatible;` is the name that site owners know. A file that has groups for both
//! products is read strictly: a URL that either forbids is forbidden.

use crate::model::words::words;

use super::product_token::{is_product_token, product_token};

/// The names of browsers, their engines and platforms, which crawlers imitate after `compatible;`.
const BROWSERS: [&str; 16] = [
    "AppleWebKit",
    "Chrome",
    "Edge",
    "Firefox",
    "Gecko",
    "KHTML",
    "Konqueror",
    "Linux",
    "Macintosh",
    "Mozilla",
    "MSIE",
    "Opera",
    "Safari",
    "Trident",
    "U",
    "Windows",
];

/// The product token of a crawler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RobotsAgent<'a> {
    token: &'a str,
    first_product: Option<&'a str>,
    source: RobotsTokenSource,
}

words! {
    /// The source of a product token, in the order of precedence.
    pub enum RobotsTokenSource {
        /// The policy's option `robots.agent`, or the program that embeds the engine.
        Policy = "policy",
        /// The configuration of the crawler.
        Crawler = "crawler",
        /// The product after `compatible;` in the `User-Agent`.
        Compatible = "compatible",
        /// The first product of the `User-Agent`.
        First = "first",
        /// The proxy's own name, for lack of any other.
        Default = "default",
    }
}

impl<'a> RobotsAgent<'a> {
    /// Creates an agent with one token.
    pub fn new(token: &'a str, source: RobotsTokenSource) -> Self {
        Self {
            token,
            first_product: None,
            source,
        }
    }

    /// Returns the agent with the token of the first product of its `User-Agent`, if that is another
    /// one.
    pub fn with_first_product(self, first_product: Option<&'a str>) -> Self {
        Self {
            first_product,
            ..self
        }
    }

    /// Returns the agent of a `User-Agent`: the product after `compatible;`, else the first product;
    /// `None` without either.
    pub fn from_user_agent(user_agent: &'a str) -> Option<Self> {
        let first = Some(product_token(user_agent)).filter(|token| !token.is_empty());
        match (compatible_product(user_agent), first) {
            (Some(token), _) => Some(Self {
                token,
                first_product: first.filter(|first| !first.eq_ignore_ascii_case(token)),
                source: RobotsTokenSource::Compatible,
            }),
            (None, Some(first)) => Some(Self::new(first, RobotsTokenSource::First)),
            (None, None) => None,
        }
    }

    /// The product token.
    pub fn token(self) -> &'a str {
        self.token
    }

    /// The first product of the `User-Agent`, if the token is another one. If a robots.txt has a
    /// group for it, the stricter answer counts.
    pub fn first_product(self) -> Option<&'a str> {
        self.first_product
    }

    /// The source of the token.
    pub fn source(self) -> RobotsTokenSource {
        self.source
    }
}

impl<'a> From<&'a str> for RobotsAgent<'a> {
    fn from(token: &'a str) -> Self {
        Self::new(token, RobotsTokenSource::Policy)
    }
}

/// Returns the first product after `compatible;` that is no browser. After a browser only products
/// with a version count: the others describe its platform (`MSIE 6.0; Windows NT 5.1; SV1`).
fn compatible_product(user_agent: &str) -> Option<&str> {
    const MARK: &str = "compatible;";
    let at = user_agent.find(MARK)?;
    let comment = user_agent.get(at + MARK.len()..)?;
    let mut after_browser = false;
    for part in comment.split(')').next()?.split(';') {
        let part = part.trim();
        let end = part.find(['/', ' ', ',']).unwrap_or(part.len());
        let (name, rest) = part.split_at_checked(end)?;
        let has_version = rest.starts_with('/');
        if BROWSERS
            .iter()
            .any(|browser| name.eq_ignore_ascii_case(browser))
        {
            after_browser = true;
        } else if is_crawler_name(name, has_version) && (has_version || !after_browser) {
            return Some(name);
        }
    }
    None
}

/// Returns `true` for a product token of letters, `-` and `_`. Digits, which RFC 9309 does not
/// allow, count only before a version (`MJ12bot/v1.4.8`).
fn is_crawler_name(name: &str, has_version: bool) -> bool {
    is_product_token(name) && (has_version || !name.bytes().any(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_after_compatible() {
        for (user_agent, token, first) in [
            (
                "Mozilla/5.0 (compatible; GoodBot/2.1; +http://good.example/)",
                "GoodBot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 (compatible;GoodBot/2.1)",
                "GoodBot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 (compatible; Good_Bot-x)",
                "Good_Bot-x",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 (compatible; GoodBot +http://good.example/)",
                "GoodBot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
                "GPTBot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://b) Chrome/103.0 Safari/537.36",
                "bingbot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)",
                "MJ12bot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
                "Mozilla",
                None,
            ),
            (
                "Mozilla/4.0 (compatible; MSIE 7.0; Media Center PC 5.0; OddBot/1.0)",
                "OddBot",
                Some("Mozilla"),
            ),
            (
                "Mozilla/5.0 (compatible; Konqueror/4.1; Linux) KHTML/4.1.2 (like Gecko)",
                "Mozilla",
                None,
            ),
            (
                "Mozilla/5.0 (compatible; http://good.example/)",
                "Mozilla",
                None,
            ),
            ("Mozilla/5.0 (compatible; archive.org_bot)", "Mozilla", None),
            ("Mozilla/5.0 (compatible; ) GoodBot/1", "Mozilla", None),
            ("Mozilla/5.0 (compatible;", "Mozilla", None),
            ("GoodBot/1 (compatible; goodbot/2)", "goodbot", None),
            ("(compatible; GoodBot/1)", "GoodBot", None),
            ("Scrapy/2.11 (+https://scrapy.org)", "Scrapy", None),
        ] {
            let agent = RobotsAgent::from_user_agent(user_agent).unwrap();
            assert_eq!(
                (agent.token(), agent.first_product()),
                (token, first),
                "{user_agent}"
            );
        }
        for nameless in ["", "(compatible; )", "\u{30c4}/1"] {
            assert_eq!(RobotsAgent::from_user_agent(nameless), None, "{nameless}");
        }
    }

    #[test]
    fn the_sources_are_in_order() {
        for (index, source) in RobotsTokenSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, index);
        }
    }
}
