//! URLs and their beginnings, in canonical form and as conditions.

use crawlgate_policy::internal::urls::target::UrlTarget;

use crate::draft::{ConditionDraft, PolicyDraft, RuleDraft};

/// Returns the reason why a policy cannot have a condition.
pub(crate) fn check_condition(condition: &ConditionDraft) -> Result<(), String> {
    let mut draft = PolicyDraft {
        name: "check".to_owned(),
        ..PolicyDraft::default()
    };
    draft.options.set("disposition", "allow");
    draft
        .rules
        .push(RuleDraft::forbid("check", condition.clone()).into());
    crate::compile::check_draft(&draft)
}

/// Returns the reason why no URL has a host as it is written.
pub(crate) fn check_host(host: &str) -> Result<(), String> {
    let canonical = UrlTarget::parse(&format!("http://{host}/"))
        .map_err(|error| format!("`{host}` is not a host: {error}"))?;
    let is_canonical = canonical.as_str() == format!("http://{}/", host.to_ascii_lowercase());
    match is_canonical {
        true => Ok(()),
        false => Err(format!(
            "no URL has the host `{host}`, which is written otherwise there: {}",
            canonical.as_str()
        )),
    }
}

/// Writes scheme and host of a URL in lower case, and leaves out the default port.
pub(crate) fn canonical_beginning(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let scheme = scheme.to_ascii_lowercase();
    let authority = authority.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let authority = match authority.strip_suffix(port) {
        Some(host) if !rest.is_empty() => host,
        Some(_) | None => &authority,
    };
    format!("{scheme}://{authority}{rest}")
}

/// Creates a condition on the beginning of a URL. One that ends in the host also fits longer hosts, and says so.
pub(crate) fn url_prefix(text: &str, ignore_case: bool) -> ConditionDraft {
    if let Some((scheme, rest)) = text.split_once("://")
        && !rest.is_empty()
        && !rest.contains(['/', '?'])
    {
        let rest = ConditionDraft::test("authority_path_query", "prefix", [rest]);
        return ConditionDraft::all(vec![
            ConditionDraft::is("scheme", [scheme]),
            rest.ignoring_case(ignore_case),
        ]);
    }
    if ignore_case {
        return ConditionDraft::test("url", "prefix", [text]).ignoring_case(true);
    }
    ConditionDraft::is("url_prefix", [text])
}

/// Replaces the user and password of URLs.
pub(crate) fn without_user(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, tail) = rest.split_at(at + 3);
        result.push_str(before);
        let end = tail.find(|c: char| c.is_whitespace() || "/?#<>\"'".contains(c));
        let authority = tail.get(..end.unwrap_or(tail.len())).unwrap_or_default();
        let user = authority.rfind('@').filter(|_| authority.contains(':'));
        let skipped = match user {
            Some(user) => {
                result.push_str("***@");
                user + 1
            }
            None => 0,
        };
        rest = tail.get(skipped..).unwrap_or_default();
    }
    result.push_str(rest);
    result
}
