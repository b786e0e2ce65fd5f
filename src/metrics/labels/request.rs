//! The labels of requests: method, status and source, and which combinations are exported from the start.

use http::Method;

use super::{OTHER, ResponseSource};

/// The methods that are counted by name (RFC 9110 section 9.3, RFC 5789).
pub(crate) const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", OTHER,
];

/// Returns the position of a method in [`METHODS`].
pub(crate) fn method_slot(method: &Method) -> usize {
    METHODS
        .iter()
        .position(|name| *name == method.as_str())
        .unwrap_or(METHODS.len() - 1)
}

/// The registered final statuses (IANA, "HTTP Status Code Registry"), in order.
const CODES: [&str; 60] = [
    "200", "201", "202", "203", "204", "205", "206", "207", "208", "226", "300", "301", "302",
    "303", "304", "305", "307", "308", "400", "401", "402", "403", "404", "405", "406", "407",
    "408", "409", "410", "411", "412", "413", "414", "415", "416", "417", "418", "421", "422",
    "423", "424", "425", "426", "428", "429", "431", "451", "500", "501", "502", "503", "504",
    "505", "506", "507", "508", "510", "511", OTHER, "none",
];
const CODE_OTHER: usize = CODES.len() - 2;
const CODE_NONE: usize = CODES.len() - 1;

/// The statuses as numbers, for lookups.
const NUMBERS: [u16; 58] = [
    200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400,
    401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421,
    422, 423, 424, 425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510,
    511,
];

/// Returns the position of a sent status in [`CODES`].
pub(crate) fn code_slot(status: Option<u16>) -> usize {
    status.map_or(CODE_NONE, |status| {
        NUMBERS.binary_search(&status).unwrap_or(CODE_OTHER)
    })
}

/// Returns the slot of a request in a crawler's table of request counters.
pub(crate) fn request_slot(method: usize, code: usize, source: ResponseSource) -> usize {
    (method * CODES.len() + code) * ResponseSource::ALL.len() + source as usize
}

/// The number of slots.
pub(crate) const REQUEST_SLOTS: usize = METHODS.len() * CODES.len() * ResponseSource::ALL.len();

/// Returns the labels `method` and `code` of a slot.
pub(crate) fn request_labels(method: usize, code: usize) -> (&'static str, &'static str) {
    (
        METHODS.get(method).copied().unwrap_or(OTHER),
        CODES.get(code).copied().unwrap_or(OTHER),
    )
}

/// Returns the requests that are exported as 0 until they occur: a GET with each status that the proxy itself sends,
/// and with the common ones of origins. Origins may send any other, which are exported once they do.
pub(crate) fn expected_requests() -> impl Iterator<Item = (u16, ResponseSource)> {
    const OWN: [u16; 19] = [
        200, 304, 400, 403, 404, 405, 407, 408, 410, 413, 414, 429, 431, 451, 500, 501, 502, 503,
        504,
    ];
    const EVERYDAY: [u16; 8] = [200, 301, 302, 304, 403, 404, 500, 503];
    let own = OWN.map(|code| (code, ResponseSource::Proxy));
    own.into_iter()
        .chain(EVERYDAY.map(|code| (code, ResponseSource::Origin)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_place_of_the_table_is_taken_once() {
        let mut indexes = BTreeSet::new();
        for method in 0..METHODS.len() {
            for code in 0..CODES.len() {
                for source in ResponseSource::ALL {
                    assert!(indexes.insert(request_slot(method, code, source)));
                }
            }
        }
        assert_eq!(
            (indexes.len(), indexes.last()),
            (REQUEST_SLOTS, Some(&(REQUEST_SLOTS - 1)))
        );
    }

    #[test]
    fn codes_and_their_numbers_are_one_list() {
        for (index, number) in NUMBERS.into_iter().enumerate() {
            assert_eq!(CODES[index], number.to_string());
            assert_eq!(code_slot(Some(number)), index);
        }
        for (status, label) in [
            (None, "none"),
            (Some(760), OTHER),
            (Some(299), OTHER),
            (Some(0), OTHER),
        ] {
            assert_eq!(CODES[code_slot(status)], label, "{status:?}");
        }
    }

    #[test]
    fn unknown_methods_are_other() {
        assert_eq!(METHODS[method_slot(&Method::HEAD)], "HEAD");
        assert_eq!(
            METHODS[method_slot(&Method::from_bytes(b"BREW").unwrap())],
            OTHER
        );
    }
}
