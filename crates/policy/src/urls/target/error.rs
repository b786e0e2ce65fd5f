//! Errors in targets.

/// The error of a target that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text is not an absolute URL.
    #[error("not an absolute URL: write http://host/path")]
    NotAbsolute,
    /// The scheme is neither `http` nor `https`.
    #[error("the scheme {0} is neither http nor https")]
    Scheme(Box<str>),
    /// The URL contains a user name or password.
    #[error("a URL with a user name or password")]
    Userinfo,
    /// The URL contains a fragment.
    #[error("a URL with a fragment")]
    Fragment,
    /// The URL contains a space.
    #[error("a space in the URL: write %20")]
    Space,
    /// The URL contains a control character.
    #[error("a control character in the URL")]
    Control,
    /// The URL contains a backslash, which some parsers treat as a slash.
    #[error("a backslash in the URL: write / or %5C")]
    Backslash,
    /// The port is missing, or not 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The host is missing.
    #[error("a URL without a host")]
    EmptyHost,
    /// The host is invalid, with the reason.
    #[error("not a valid host ({0})")]
    Host(Box<str>),
}

impl TargetError {
    pub(super) fn from_url_error(error: url::ParseError, input: &str) -> Self {
        if error == url::ParseError::InvalidPort {
            return Self::Port;
        }
        if error == url::ParseError::EmptyHost {
            return Self::EmptyHost;
        }
        let rest = input.split_once("://").map_or(input, |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        // Escaped, since it is shown on terminals and in responses and may contain bidirectional
        // controls.
        Self::Host(format!("{error}: {}", authority.escape_debug()).into())
    }

    /// A stable word for the kind of error.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::NotAbsolute => "not_absolute",
            Self::Scheme(_) => "scheme",
            Self::Userinfo => "userinfo",
            Self::Fragment => "fragment",
            Self::Space => "space",
            Self::Control => "control",
            Self::Backslash => "backslash",
            Self::Port => "port",
            Self::EmptyHost => "empty_host",
            Self::Host(_) => "host",
        }
    }
}
