//! The number of a visit in a URL: each visit makes every page anew.

use crate::vocab::target::UrlTarget;

/// Parameters that hold nothing else, without regard to capitals.
const NAMES: [&str; 6] = [
    "phpsessid",
    "jsessionid",
    "oscsid",
    "bv_sessionid",
    "cftoken",
    "zenid",
];
/// Parameters that hold such a number if the value looks like one.
const PERHAPS: [&str; 4] = ["sid", "sessionid", "session_id", "sessid"];
/// What ASP writes begins so; letters follow.
const ASP: &str = "aspsessionid";
/// The shortest value that looks like such a number: short ones count stories or shops.
const SHORTEST: usize = 16;

/// Whether a URL holds one.
pub(super) fn is_in(target: &UrlTarget) -> bool {
    let in_path = target.path().to_ascii_lowercase().contains(";jsessionid=");
    in_path || target.query().split('&').any(is_session)
}

fn is_session(param: &str) -> bool {
    let Some((name, value)) = param.split_once('=') else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let known = NAMES.contains(&&*name) || name.starts_with(ASP);
    (known && !value.is_empty()) || (PERHAPS.contains(&&*name) && looks_random(value))
}

fn looks_random(value: &str) -> bool {
    value.len() >= SHORTEST && value.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sessions_are_told_from_names_of_stories() {
        for (url, session) in [
            ("http://h/a;jsessionid=0A.worker1?x", true),
            ("http://h/?a=1&PHPSESSID=x", true),
            ("http://h/?PHPSESSID=", false),
            ("http://h/?ASPSESSIONIDQQ=AB", true),
            ("http://h/?sid=4711", false),
            ("http://h/?sid=0123456789abcdef", true),
            ("http://h/?sid=a-long-title-of-a-story", false),
            ("http://h/phpsessid=1", false),
        ] {
            assert_eq!(is_in(&UrlTarget::parse(url).unwrap()), session, "{url}");
        }
    }
}
