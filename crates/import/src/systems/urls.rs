//! URLs and their beginnings, in canonical form and as conditions.

use crate::draft::Condition;

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
pub(crate) fn url_prefix(text: &str, ignore_case: bool) -> Condition {
    if let Some((scheme, rest)) = text.split_once("://")
        && !rest.is_empty()
        && !rest.contains(['/', '?'])
    {
        let rest = Condition::test("authority_path_query", "prefix", [rest]);
        return Condition::all(vec![
            Condition::is("scheme", [scheme]),
            rest.ignoring_case(ignore_case),
        ]);
    }
    if ignore_case {
        return Condition::test("url", "prefix", [text]).ignoring_case(true);
    }
    Condition::is("url_prefix", [text])
}
