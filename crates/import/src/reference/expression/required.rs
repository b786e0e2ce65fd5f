//! Texts without which an expression cannot fit.

use fancy_regex::Expr;

/// Returns the longest text that occurs in each text that an expression fits. The expression must not be one that ignores
/// case.
pub(super) fn required_text(pattern: &str) -> Option<String> {
    let tree = Expr::parse_tree(pattern).ok()?;
    let mut search = TextSearch::default();
    search.visit(&tree.expr);
    search.end_run();
    let is_usable = !search.may_end_early && !search.longest.is_empty();
    is_usable.then_some(search.longest)
}

/// The texts of an expression that follow each other, in each of its matches.
#[derive(Default)]
struct TextSearch {
    run: String,
    longest: String,
    /// Part of the expression accepts a text without what follows it.
    may_end_early: bool,
}

impl TextSearch {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "no text is known of any other node, nor of one that the library adds"
    )]
    fn visit(&mut self, node: &Expr) {
        match node {
            Expr::Literal { val, casei: false } => self.run.push_str(val),
            Expr::Concat(parts) => parts.iter().for_each(|part| self.visit(part)),
            Expr::Group(inner) => self.visit(inner),
            Expr::AtomicGroup(inner) => self.visit(inner),
            Expr::Repeat { child, lo: 1.., .. } => {
                self.end_run();
                self.visit(child);
                self.end_run();
            }
            // They take nothing of the text.
            Expr::Empty | Expr::Assertion(_) => {}
            Expr::LookAround(inner, _) => self.may_end_early |= has_control_verb(inner),
            Expr::BacktrackingControlVerb(_) => self.may_end_early = true,
            other => {
                self.may_end_early |= has_control_verb(other);
                self.end_run();
            }
        }
    }

    fn end_run(&mut self) {
        if self.run.len() > self.longest.len() {
            self.longest = std::mem::take(&mut self.run);
        }
        self.run.clear();
    }
}

fn has_control_verb(node: &Expr) -> bool {
    matches!(node, Expr::BacktrackingControlVerb(_)) || node.children_iter().any(has_control_verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_text_of_each_match_is_found() {
        for (pattern, expected) in [
            ("abc", Some("abc")),
            ("/page12[a-z]*/", Some("/page12")),
            (r"\A(?:http://(www\.)?a\.example/)", Some("a.example/")),
            (r"x*\.(gif|jpg)(?=\n?\z)", Some(".")),
            ("ab(cd)ef", Some("abcdef")),
            ("ab(?:cd)+ef", Some("ab")),
            ("(?:cd){0,3}ef", Some("ef")),
            ("a(?!bcd)ef", Some("aef")),
            ("(?i)abc", None),
            ("(?i:abcd)ef", Some("ef")),
            ("abc|d", None),
            ("(abc|d)", None),
            ("[a-z]+", None),
            ("", None),
        ] {
            assert_eq!(required_text(pattern).as_deref(), expected, "{pattern}");
        }
    }
}
