//! What can be wrong with a target.

use std::fmt;

/// A mistake in a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// It is no absolute URL.
    NotAbsolute,
    /// The scheme is neither `http` nor `https`.
    Scheme(Box<str>),
    /// It carries a user name or password.
    Userinfo,
    /// It carries a fragment.
    Fragment,
    /// It has a space.
    Space,
    /// It has a control character.
    Control,
    /// It has a backslash, which some readers take for a slash.
    Backslash,
    /// The port is missing, or not 1 to 65535.
    Port,
    /// There is no host.
    EmptyHost,
    /// The host is none; what is wrong with it.
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
        // Escaped: it is shown on terminals and in answers, and may hold what turns text round.
        Self::Host(format!("{error}: {}", authority.escape_debug()).into())
    }

    /// A stable word for the kind of mistake.
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

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("not an absolute URL: write http://host/path"),
            Self::Scheme(scheme) => write!(f, "the scheme {scheme} is neither http nor https"),
            Self::Userinfo => f.write_str("a URL with a user name or password"),
            Self::Fragment => f.write_str("a URL with a fragment"),
            Self::Space => f.write_str("a space in the URL: write %20"),
            Self::Control => f.write_str("a control character in the URL"),
            Self::Backslash => f.write_str("a backslash in the URL: write / or %5C"),
            Self::Port => f.write_str("the port is not a number from 1 to 65535"),
            Self::EmptyHost => f.write_str("a URL without a host"),
            Self::Host(what) => write!(f, "not a valid host ({what})"),
        }
    }
}

impl std::error::Error for TargetError {}
