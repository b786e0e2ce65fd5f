//! `h2` of the configuration file: HTTP/2 with clients.

use crate::config::settings::Settings;

use super::key::{ConfigKey, CountValue, SwitchValue};

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "clients",
        "Offer HTTP/2 to clients that connect with TLS; false: HTTP/1.1 only.",
        &SwitchValue::new(|s: &mut Settings| &mut s.accept.http2.clients),
    ),
    ConfigKey::new(
        "prior_knowledge",
        "Accept HTTP/2 without TLS, from clients that know that the proxy speaks it.",
        &SwitchValue::new(|s: &mut Settings| &mut s.accept.http2.prior_knowledge),
    ),
    ConfigKey::new(
        "streams",
        "The maximum number of requests at a time on one connection; others are refused with REFUSED_STREAM.",
        &CountValue(1..=10_000, |s: &mut Settings| &mut s.accept.http2.streams),
    ),
    ConfigKey::new(
        "resets",
        "The requests that one connection may cancel per second, after a burst of twice h2.streams; over it the connection is closed.",
        &CountValue(1..=1_000_000, |s: &mut Settings| &mut s.accept.http2.resets),
    ),
];
