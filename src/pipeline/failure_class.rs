//! The classification of responses as errors, which are either permanent or temporary.
//!
//! It is the value of `Crawl-Error`, and the ledger's transitions depend on it. The row of a reason has the kind of error
//! of a fetch without a response.

use http::header::RETRY_AFTER;
use http::response::Parts;

use crate::model::failure_kind::FailureKind;
use crate::model::profile::Conditional;

use super::stage::redirect::RedirectTarget;

/// Classifies an origin's response. `conditional` is whether a 304 was requested, `redirect` the target of the
/// response.
///
/// 503 with `Retry-After`, and 429, are temporary. Other 4xx and 5xx are permanent, and so are a 304 that was not asked
/// for and a redirect to an invalid URL. Statuses about the conditions of the request (406, 412, 416, 417) say
/// nothing about the document.
pub(crate) fn classify_response(
    head: &Parts,
    conditional: Conditional,
    redirect: &RedirectTarget,
) -> Option<FailureKind> {
    match head.status.as_u16() {
        429 => Some(FailureKind::Temporary),
        503 if head.headers.contains_key(RETRY_AFTER) => Some(FailureKind::Temporary),
        304 if conditional == Conditional::No => Some(FailureKind::Permanent),
        406 | 412 | 416 | 417 => None,
        400.. => Some(FailureKind::Permanent),
        _ if *redirect == RedirectTarget::Invalid => Some(FailureKind::Permanent),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    #[test]
    fn responses_are_classified_as_in_cloudview() {
        use FailureKind::{Permanent, Temporary};
        let error = |status: u16, conditional, redirect_target| {
            let (head, ()) = Response::builder()
                .status(status)
                .body(())
                .unwrap()
                .into_parts();
            classify_response(&head, conditional, &redirect_target)
        };
        for (status, conditional, failure) in [
            (200, Conditional::No, None),
            (429, Conditional::No, Some(Temporary)),
            (503, Conditional::No, Some(Permanent)),
            (404, Conditional::Yes, Some(Permanent)),
            (500, Conditional::No, Some(Permanent)),
            (416, Conditional::No, None),
            (412, Conditional::Yes, None),
            (304, Conditional::Yes, None),
            (304, Conditional::No, Some(Permanent)),
        ] {
            assert_eq!(
                error(status, conditional, RedirectTarget::None),
                failure,
                "{status}"
            );
        }
        assert_eq!(error(302, Conditional::No, RedirectTarget::None), None);
        assert_eq!(
            error(302, Conditional::No, RedirectTarget::Invalid),
            Some(Permanent)
        );
        let later = Response::builder()
            .status(503)
            .header("retry-after", "1")
            .body(())
            .unwrap();
        assert_eq!(
            classify_response(
                &later.into_parts().0,
                Conditional::No,
                &RedirectTarget::None
            ),
            Some(Temporary)
        );
    }
}
