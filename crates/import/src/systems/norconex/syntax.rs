//! The words of the template language: directives, references to variables, and declarations of XML.

/// A directive with its argument.
pub(super) struct Directive<'t> {
    pub(super) name: &'t str,
    pub(super) argument: &'t str,
    /// Its length in bytes, with the parentheses.
    pub(super) length: usize,
}

const DIRECTIVES: [&str; 13] = [
    "set", "parse", "include", "if", "elseif", "else", "end", "foreach", "macro", "define",
    "evaluate", "stop", "break",
];

/// Reads the directive at the beginning of a text.
pub(super) fn read_directive(text: &str) -> Option<Directive<'_>> {
    let word = text.strip_prefix('#')?;
    let end = word.find(|c: char| !c.is_ascii_alphabetic());
    let name = word.get(..end.unwrap_or(word.len()))?;
    let name = DIRECTIVES.into_iter().find(|known| *known == name)?;
    let rest = word.get(name.len()..)?;
    let argument = rest.trim_start_matches([' ', '\t']);
    let spaces = rest.len() - argument.len();
    let Some(inner) = argument.strip_prefix('(') else {
        let is_alone = matches!(name, "else" | "end" | "stop" | "break")
            && !rest.starts_with(['-', '_', '.', ':']);
        return is_alone.then_some(Directive {
            name,
            argument: "",
            length: 1 + name.len(),
        });
    };
    let length = closing_parenthesis(inner)?;
    Some(Directive {
        name,
        argument: inner.get(..length)?,
        length: 1 + name.len() + spaces + 1 + length + 1,
    })
}

/// Returns the offset of the parenthesis that closes an open one. Those in quotes do not count.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return Some(at),
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// A reference to a variable.
pub(super) struct Reference<'t> {
    pub(super) name: &'t str,
    /// It is empty if the variable is not known.
    pub(super) is_quiet: bool,
    /// Its length in bytes.
    pub(super) length: usize,
}

/// Reads `$name`, `${name}`, `$!name` or `$!{name}` at the beginning of a text. Properties and methods
/// (`$name.size()`) are not evaluated.
pub(super) fn read_reference(text: &str) -> Option<Reference<'_>> {
    let rest = text.strip_prefix('$')?;
    let (rest, is_quiet) = match rest.strip_prefix('!') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let (rest, is_formal) = match rest.strip_prefix('{') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let name = rest.get(..end)?;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return None;
    }
    let after = rest.get(end..)?;
    let length = 1 + usize::from(is_quiet) + name.len();
    if is_formal {
        after.starts_with('}').then_some(Reference {
            name,
            is_quiet,
            length: length + 2,
        })
    } else {
        let has_property = after
            .strip_prefix('.')
            .is_some_and(|after| after.starts_with(|c: char| c.is_ascii_alphabetic()));
        (!has_property).then_some(Reference {
            name,
            is_quiet,
            length,
        })
    }
}

/// Returns the text between two quotes, without others inside.
pub(super) fn unquote(text: &str, quote: char) -> Option<&str> {
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains(quote)).then_some(inner)
}

/// Blanks XML declarations and document types without an internal subset, as Norconex does: included
/// files have their own.
pub(super) fn blank_declarations(text: &mut String) {
    for (open, close) in [("<?xml ", "?>"), ("<!DOCTYPE ", ">")] {
        let mut result = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(open) {
            let (before, tail) = rest.split_at(at);
            result.push_str(before);
            let length = tail.find(close).map_or(tail.len(), |end| end + close.len());
            let (declaration, after) = tail.split_at(length);
            let is_plain = !declaration.contains('[')
                && !declaration.contains("SYSTEM")
                && !declaration.contains("PUBLIC");
            if is_plain {
                let blanks = declaration.chars();
                result.extend(blanks.map(|c| if c == '\n' { '\n' } else { ' ' }));
            } else {
                result.push_str(declaration);
            }
            rest = after;
        }
        result.push_str(rest);
        *text = result;
    }
}
