//! Numbers and ranges: `404`, `5xx`, `"[30:]"`, `{min, max}`.

use crate::diagnostics::problem::Problem;
use crate::model::units;
use crate::policy::field::Field;
use crate::policy::source::tree::{Located, LocatedText, SourceRange};

/// Compiles a range; both ends are inclusive.
pub(super) fn compile_range(
    range: &Located<SourceRange>,
    field: &Field,
) -> Result<(u64, u64), Box<Problem>> {
    let (from, to) = match &range.value {
        SourceRange::Literal(text) => {
            parse_range(text, field).ok_or_else(|| not_a_range(range, text, field))?
        }
        SourceRange::Between(min, max) => (
            compile_bound(min.as_ref(), 0, field)?,
            compile_bound(max.as_ref(), u64::MAX, field)?,
        ),
    };
    if from > to {
        let problem = Problem::error(
            &range.place,
            "a range that ends before it begins matches nothing",
        );
        return Err(Box::new(problem.with_found(range_text(range))));
    }
    let (least, most) = field_limits(field);
    if from > most || to < least {
        let message = format!("out of range: {}", limit_text(field));
        return Err(Box::new(
            Problem::error(&range.place, message).with_found(range_text(range)),
        ));
    }
    Ok((from, to))
}

fn range_text(range: &Located<SourceRange>) -> String {
    match &range.value {
        SourceRange::Literal(text) => text.to_string(),
        SourceRange::Between(min, max) => format!(
            "[{}:{}]",
            bound_text(min.as_ref()),
            bound_text(max.as_ref())
        ),
    }
}

fn bound_text(bound: Option<&LocatedText>) -> &str {
    bound.map_or("", |text| &text.value)
}

fn compile_bound(
    text: Option<&LocatedText>,
    open: u64,
    field: &Field,
) -> Result<u64, Box<Problem>> {
    let Some(text) = text else { return Ok(open) };
    parse_number(&text.value, field).ok_or_else(|| {
        Box::new(
            Problem::error(&text.place, "expected a number")
                .with_found(&*text.value)
                .with_help(example(field)),
        )
    })
}

fn not_a_range(range: &Located<SourceRange>, text: &str, field: &Field) -> Box<Problem> {
    let problem = Problem::error(&range.place, "expected a number or a range").with_found(text);
    Box::new(problem.with_help(example(field)))
}

fn parse_range(text: &str, field: &Field) -> Option<(u64, u64)> {
    if let Some(number) = parse_number(text, field) {
        return Some((number, number));
    }
    if let (Field::Status, Some(class)) = (field, text.strip_suffix("xx")) {
        let class: u64 = class.parse().ok().filter(|class| (1..=9).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let (from, to) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(':')?;
    Some((
        parse_bound(from, 0, field)?,
        parse_bound(to, u64::MAX, field)?,
    ))
}

fn parse_bound(text: &str, open: u64, field: &Field) -> Option<u64> {
    if text.trim().is_empty() {
        Some(open)
    } else {
        parse_number(text.trim(), field)
    }
}

/// Parses a number; a size may have a unit.
fn parse_number(text: &str, field: &Field) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = digits.then(|| text.parse().ok()).flatten();
    plain.or_else(|| units::parse_size(text).filter(|_| *field == Field::Size))
}

fn field_limits(field: &Field) -> (u64, u64) {
    if *field == Field::Port {
        return (1, 65_535);
    }
    if *field == Field::Status {
        (100, 999)
    } else {
        (0, u64::MAX)
    }
}

fn limit_text(field: &Field) -> &'static str {
    if *field == Field::Port {
        "a port is 1 to 65535"
    } else {
        "a status is 100 to 999"
    }
}

fn example(field: &Field) -> &'static str {
    if *field == Field::Status {
        return "written like 404, 5xx, \"[400:499]\", { min: 400, max: 499 }";
    }
    if *field == Field::Size {
        return "written like 1000, 10MiB, \"[1MiB:]\", { min: 1MiB }";
    }
    if *field == Field::Port {
        return "written like 443, 8080, \"[8000:8999]\", { min: 8000, max: 8999 }";
    }
    "written like 3, \"[3:]\", \"[:5]\", \"[3:5]\", { min: 3, max: 5 }"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::problem::SourceLocation;

    fn compile(text: &str, field: &Field) -> Option<(u64, u64)> {
        let place = SourceLocation {
            file: "p".into(),
            line: 1,
            column: 1,
        };
        compile_range(
            &Located {
                place,
                value: SourceRange::Literal(text.into()),
            },
            field,
        )
        .ok()
    }

    #[test]
    fn ranges_in_every_spelling() {
        for (field, text, expected) in [
            (Field::Depth, "3", Some((3, 3))),
            (Field::Depth, "[30:]", Some((30, u64::MAX))),
            (Field::Depth, "[:5]", Some((0, 5))),
            (Field::Depth, "[3:5]", Some((3, 5))),
            (Field::Depth, "[5:3]", None),
            (Field::Depth, "5xx", None),
            (Field::Depth, "-1", None),
            (Field::Depth, "3:5", None),
            (Field::Status, "5xx", Some((500, 599))),
            (Field::Status, "404", Some((404, 404))),
            (Field::Status, "99", None),
            (Field::Port, "0", None),
            (Field::Port, "65536", None),
            (Field::Size, "1KiB", Some((1024, 1024))),
            (Field::Size, "[1MiB:]", Some((1 << 20, u64::MAX))),
        ] {
            assert_eq!(compile(text, &field), expected, "{text}");
        }
    }
}
