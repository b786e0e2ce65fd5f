//! Responses of origins over TLS.

/// A 200 with a length.
pub(crate) fn text_response(body: &str) -> String {
    text_response_with("", body)
}

/// A 200 with a length and more header fields, each line with its CRLF.
pub(crate) fn text_response_with(fields: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n{fields}Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
