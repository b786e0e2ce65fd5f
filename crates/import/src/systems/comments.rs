//! Comments of XML as descriptions of rules.

use roxmltree::Node;

/// Returns the comment right before an element, in one line.
pub(crate) fn comment_before(element: Node<'_, '_>) -> Option<String> {
    let mut before = element.prev_siblings().skip(1);
    let comment = before.find(|node| {
        node.is_element()
            || node.is_comment()
            || node.text().is_some_and(|it| !it.trim().is_empty())
    });
    let text = comment.filter(Node::is_comment)?.text()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(300).collect();
    (!text.is_empty()).then_some(text)
}
