//! The trap `session_id`: with a session id, each visit gives every page a new URL.

use crate::urls::target::UrlTarget;

/// Parameters for session ids, compared regardless of case.
const SESSION_PARAMS: [&str; 6] = [
    "phpsessid",
    "jsessionid",
    "oscsid",
    "bv_sessionid",
    "cftoken",
    "zenid",
];
/// Parameters for session ids if the value looks like one.
const POSSIBLE_SESSION_PARAMS: [&str; 4] = ["sid", "sessionid", "session_id", "sessid"];
/// The prefix of ASP's parameters, followed by letters.
const ASP_PREFIX: &str = "aspsessionid";
/// The minimum length of a session id: shorter values may be numbers of articles or shops.
const MIN_ID_LENGTH: usize = 16;

/// Returns `true` if a URL contains a session id.
pub(super) fn has_session_id(target: &UrlTarget) -> bool {
    let in_path = target.path().to_ascii_lowercase().contains(";jsessionid=");
    in_path || target.query().split('&').any(is_session_param)
}

fn is_session_param(param: &str) -> bool {
    let Some((name, value)) = param.split_once('=') else {
        return false;
    };
    let name = name.to_ascii_lowercase();
    let is_known = SESSION_PARAMS.contains(&&*name) || name.starts_with(ASP_PREFIX);
    (is_known && !value.is_empty())
        || (POSSIBLE_SESSION_PARAMS.contains(&&*name) && looks_random(value))
}

fn looks_random(value: &str) -> bool {
    value.len() >= MIN_ID_LENGTH && value.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_parameters_are_distinguished_from_similar_names() {
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
            assert_eq!(
                has_session_id(&UrlTarget::parse(url).unwrap()),
                session,
                "{url}"
            );
        }
    }
}
