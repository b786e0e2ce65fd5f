//! RFC 9309: of the lines that fit, the one with the longest pattern decides; Allow wins a tie.

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::systems::robots::RobotsField;

/// The lines of the group that applies.
pub struct RobotsEvaluator {
    /// `http://host`, or `host` if the scheme does not matter.
    origin: String,
    rules: Vec<(bool, Vec<u8>)>,
}

impl RobotsEvaluator {
    /// Prepares the Allow and Disallow lines among `lines`.
    pub fn new(origin: &str, has_scheme: bool, lines: &[RobotsField]) -> Self {
        let origin = match origin.split_once("://") {
            Some((_, authority)) if !has_scheme => authority,
            Some(_) | None => origin,
        };
        let rules = lines.iter().filter_map(|line| {
            let allows = match line.field.as_str() {
                "allow" => true,
                "disallow" => false,
                _ => return None,
            };
            let is_pattern = line.value.starts_with(['/', '*']);
            is_pattern.then(|| (allows, comparable(line.value.as_bytes())))
        });
        Self {
            origin: origin.to_owned(),
            rules: rules.collect(),
        }
    }

    fn path<'u>(&self, url: &'u str) -> Option<&'u str> {
        let start = if self.origin.contains("://") {
            0
        } else {
            url.find("://")? + 3
        };
        let rest = url.get(start..)?.strip_prefix(self.origin.as_str())?;
        rest.starts_with('/').then_some(rest)
    }
}

impl SourceEvaluator for RobotsEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let Some(path) = self.path(request.url) else {
            return SourceVerdict::Allow;
        };
        if path == "/robots.txt" || path.starts_with("/robots.txt?") {
            return SourceVerdict::Allow;
        }
        let path = comparable(path.as_bytes());
        let fitting = self
            .rules
            .iter()
            .filter(|(_, pattern)| fits(pattern, &path));
        match fitting.max_by_key(|(allows, pattern)| (pattern.len(), *allows)) {
            Some((false, _)) => SourceVerdict::Refuse,
            Some((true, _)) | None => SourceVerdict::Allow,
        }
    }
}

/// Decodes escapes of unreserved characters and writes the others in capitals.
fn comparable(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [] => return out,
            [b'%', a, b, tail @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                let digit = |c: &u8| char::from(*c).to_digit(16).unwrap_or(0);
                let byte = u8::try_from(digit(a) * 16 + digit(b)).unwrap_or(0);
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        out.push(byte)
                    }
                    _ => out.extend([b'%', a.to_ascii_uppercase(), b.to_ascii_uppercase()]),
                }
                rest = tail;
            }
            [byte, tail @ ..] => {
                if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'%') {
                    out.push(*byte);
                } else {
                    out.extend(format!("%{byte:02X}").bytes());
                }
                rest = tail;
            }
        }
    }
}

/// Compares a pattern with the beginning of a path. The last star that was seen is tried again with more.
fn fits(pattern: &[u8], path: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    loop {
        match (pattern.get(at), path.get(from)) {
            (None, _) => return true,
            (Some(b'$'), None) if at + 1 == pattern.len() => return true,
            (Some(b'*'), _) => {
                star = Some((at + 1, from));
                at += 1;
                continue;
            }
            (Some(a), Some(b)) if a == b && !(*a == b'$' && at + 1 == pattern.len()) => {
                at += 1;
                from += 1;
                continue;
            }
            (Some(_), _) => {}
        }
        match star {
            Some((after, begin)) if begin < path.len() => {
                (at, from) = (after, begin + 1);
                star = Some((after, begin + 1));
            }
            Some(_) | None => return false,
        }
    }
}
