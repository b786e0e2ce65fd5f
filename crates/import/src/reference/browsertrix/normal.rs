//! The form in which Browsertrix compares URLs: that of the library `normalize-url`.
//!
//! Not followed: the library also takes the last slash of `http://host/?utm_source=x`, which has no path and no
//! parameter left, and so takes the page out of the scope of its own host.

/// Returns a URL with sorted parameters, without `utm_…`, without doubled slashes and needless escapes.
pub(super) fn to_normal_form(url: &str) -> String {
    let (base, query) = match url.split_once('?') {
        Some((base, query)) => (base, Some(query)),
        None => (url, None),
    };
    let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
    let start = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(start).unwrap_or((rest, ""));
    let path = normal_path(path);
    let query = query.map(normal_query).unwrap_or_default();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{authority}{path}{mark}{query}")
}

fn normal_path(path: &str) -> String {
    let merged = merge_slashes(path);
    let decoded = decode(&merged, ";/?:@&=+$,#").unwrap_or(merged);
    encode(&decoded.replace('\\', "%5C"), "\"#<>?`{}^ ")
}

/// Replaces several slashes by one, except those after a scheme: `http://`.
fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for c in path.chars() {
        if c == '/' && merged.ends_with('/') && !ends_with_scheme(&merged) {
            continue;
        }
        merged.push(c);
    }
    merged
}

fn ends_with_scheme(text: &str) -> bool {
    let Some(before) = text.strip_suffix(":/") else {
        return false;
    };
    let is_part = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(*c);
    let name: Vec<char> = before.chars().rev().take_while(is_part).collect();
    name.len() >= 2 && name.iter().any(char::is_ascii_lowercase)
}

fn normal_query(query: &str) -> String {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let mut parameters: Vec<(String, String)> = parameters
        .map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (decode_parameter(name), decode_parameter(value))
        })
        .filter(|(name, _)| !is_utm(name))
        .collect();
    parameters.sort_by(|left, right| left.0.encode_utf16().cmp(right.0.encode_utf16()));
    let written = parameters
        .iter()
        .map(|(name, value)| format!("{}={}", form_encoded(name), form_encoded(value)));
    let written = written.collect::<Vec<_>>().join("&");
    let decoded = decode(&written, "").unwrap_or(written);
    encode(&decoded, "\"#<>' ")
}

fn is_utm(name: &str) -> bool {
    let name = name.to_lowercase();
    let rest = name.strip_prefix("utm_").unwrap_or_default();
    rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

fn decode_parameter(text: &str) -> String {
    let text = text.replace('+', " ");
    String::from_utf8_lossy(&decoded_bytes(&text, "")).into_owned()
}

fn form_encoded(text: &str) -> String {
    let mut written = String::new();
    for byte in text.bytes() {
        match byte {
            b' ' => written.push('+'),
            b'*' | b'-' | b'.' | b'_' => written.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => written.push(char::from(byte)),
            byte => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

/// Decodes escapes, except those of some characters. `None` if the result is not UTF-8, or an escape is not one.
fn decode(text: &str, kept: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_escape = |at: usize| {
        let digits = bytes.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let mut percents = text.match_indices('%');
    if !percents.all(|(at, _)| is_escape(at)) {
        return None;
    }
    String::from_utf8(decoded_bytes(text, kept)).ok()
}

fn decoded_bytes(text: &str, kept: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value.filter(|value| !kept.contains(char::from(*value)) || !value.is_ascii()) {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

/// Escapes some characters, and all that are not printable ASCII.
fn encode(text: &str, escaped: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_graphic() && !escaped.contains(c) {
            written.push(c);
            continue;
        }
        let mut buffer = [0; 4];
        for byte in c.encode_utf8(&mut buffer).bytes() {
            written.push_str(&format!("%{byte:02X}"));
        }
    }
    written
}
