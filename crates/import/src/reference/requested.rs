//! The parts of a requested URL.

/// A URL in canonical form, split into its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedUrl<'u> {
    pub url: &'u str,
    pub scheme: &'u str,
    /// With the port, if it is written.
    pub authority: &'u str,
    pub host: &'u str,
    /// `None` for the scheme's default.
    pub port: Option<&'u str>,
    /// With its leading slash.
    pub path: &'u str,
    /// Without `?`.
    pub query: &'u str,
}

impl<'u> RequestedUrl<'u> {
    pub(crate) fn new(url: &'u str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let colon = authority
            .rfind(':')
            .filter(|at| authority.rfind(']').is_none_or(|end| end < *at));
        let host = colon
            .and_then(|at| authority.get(..at))
            .unwrap_or(authority);
        Self {
            url,
            scheme,
            authority,
            host,
            port: colon.and_then(|at| authority.get(at + 1..)),
            path,
            query,
        }
    }
}
