//! The failures of parent proxies, and whose fault each is.

use std::time::Duration;

use crate::model::rule_id::Slug;
use crate::model::upstream_fault::UpstreamFault;
use crate::proxy::dial::DialError;

/// The failure of a connection through a parent, or of its credentials.
#[derive(Clone, Debug)]
pub struct ParentError {
    /// The name of the parent.
    pub parent: Option<Slug>,
    pub fault: &'static UpstreamFault,
    pub scope: ParentFaultScope,
    /// The time after which another attempt may succeed, if it is known.
    pub retry_after: Option<Duration>,
}

/// The server that a failure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentFaultScope {
    /// The parent or the way to it.
    Parent,
    /// The origin, which the parent cannot reach.
    Origin,
}

impl ParentError {
    pub(super) fn new(parent: Option<&Slug>, fault: ParentFault) -> Self {
        Self {
            parent: parent.cloned(),
            fault: fault.description(),
            scope: match fault {
                ParentFault::Unreachable(_) => ParentFaultScope::Origin,
                ParentFault::Name
                | ParentFault::Dial(_)
                | ParentFault::Tls
                | ParentFault::Broken
                | ParentFault::Timeout
                | ParentFault::Credentials
                | ParentFault::Denied => ParentFaultScope::Parent,
            },
            retry_after: None,
        }
    }

    /// Returns the error if every proxy is down.
    pub(super) fn all_down(parent: Option<&Slug>, retry_after: Duration) -> Self {
        Self {
            parent: parent.cloned(),
            fault: &ALL_DOWN,
            scope: ParentFaultScope::Parent,
            retry_after: Some(retry_after),
        }
    }
}

/// The reason why a proxy opens no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParentFault {
    /// The name of the proxy has no address.
    Name,
    /// The connection to the proxy failed.
    Dial(DialError),
    /// The TLS handshake with the proxy failed.
    Tls,
    /// The proxy closed the connection, or violated its protocol.
    Broken,
    /// The proxy did not answer in time; it may have waited for the origin.
    Timeout,
    /// The proxy rejects the credentials, or requires some.
    Credentials,
    /// The proxy refuses the destination.
    Denied,
    /// The proxy cannot connect to the origin.
    Unreachable(OriginFault),
}

/// The reason why a proxy cannot connect to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginFault {
    Refused,
    Unroutable,
    Timeout,
    /// A cause that the proxy does not tell, such as a name that does not exist.
    Other,
}

impl ParentFault {
    /// Returns `true` if another proxy of the parent may succeed.
    pub(super) fn is_about_proxy(self) -> bool {
        match self {
            Self::Name | Self::Dial(_) | Self::Tls | Self::Broken => true,
            Self::Timeout | Self::Credentials | Self::Denied | Self::Unreachable(_) => false,
        }
    }

    /// Returns `true` if the proxy cannot be used until a check succeeds.
    pub(super) fn is_down(self) -> bool {
        match self {
            // The last is a lack of ports or descriptors of this machine.
            Self::Dial(DialError::Other) | Self::Broken => false,
            Self::Name
            | Self::Dial(DialError::Refused | DialError::Timeout | DialError::Unreachable)
            | Self::Tls => true,
            Self::Timeout | Self::Credentials | Self::Denied | Self::Unreachable(_) => false,
        }
    }

    pub(super) fn description(self) -> &'static UpstreamFault {
        match self {
            Self::Name => &NAME,
            Self::Dial(DialError::Refused) => &REFUSED,
            Self::Dial(DialError::Timeout) => &DIAL_TIMEOUT,
            Self::Dial(DialError::Unreachable) => &NO_ROUTE,
            Self::Dial(DialError::Other) => &LOCAL,
            Self::Tls => &TLS,
            Self::Broken => &BROKEN,
            Self::Timeout => &TIMEOUT,
            Self::Credentials => &CREDENTIALS,
            Self::Denied => &DENIED,
            Self::Unreachable(OriginFault::Refused) => &ORIGIN_REFUSED,
            Self::Unreachable(OriginFault::Unroutable) => &ORIGIN_UNROUTABLE,
            Self::Unreachable(OriginFault::Timeout) => &ORIGIN_TIMEOUT,
            Self::Unreachable(OriginFault::Other) => &ORIGIN_OTHER,
        }
    }
}

const ALL_DOWN: UpstreamFault = fault(
    "destination_unavailable",
    "every proxy of the parent is down",
);
const NAME: UpstreamFault = fault("dns_error", "the name of the parent has no address");
const REFUSED: UpstreamFault = fault("connection_refused", "the parent refused the connection");
const DIAL_TIMEOUT: UpstreamFault =
    fault("connection_timeout", "no connection to the parent in time");
const NO_ROUTE: UpstreamFault = fault("destination_ip_unroutable", "no route to the parent");
const LOCAL: UpstreamFault = fault(
    "proxy_internal_error",
    "no connection to the parent can be opened",
);
const TLS: UpstreamFault = fault(
    "tls_protocol_error",
    "the TLS handshake with the parent failed",
);
const BROKEN: UpstreamFault = fault(
    "connection_terminated",
    "the parent closed the connection or did not answer as a proxy",
);
const TIMEOUT: UpstreamFault = fault(
    "connection_timeout",
    "the parent opened no connection in time",
);
const CREDENTIALS: UpstreamFault = fault(
    "proxy_configuration_error",
    "the parent rejects the credentials of this proxy",
);
const DENIED: UpstreamFault = fault("connection_refused", "the parent refuses the destination");
const ORIGIN_REFUSED: UpstreamFault = fault(
    "connection_refused",
    "the host refused the connection of the parent",
);
const ORIGIN_UNROUTABLE: UpstreamFault = fault(
    "destination_ip_unroutable",
    "the parent has no route to the host",
);
const ORIGIN_TIMEOUT: UpstreamFault = fault(
    "connection_timeout",
    "the parent got no connection to the host in time",
);
const ORIGIN_OTHER: UpstreamFault = fault(
    "destination_unavailable",
    "the parent cannot connect to the host",
);

const fn fault(error_type: &'static str, description: &'static str) -> UpstreamFault {
    UpstreamFault {
        error_type,
        description,
    }
}
