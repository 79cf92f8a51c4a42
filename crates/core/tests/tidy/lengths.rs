//! A file has at most 500 lines.

use super::tree::{Text, house};

const FILE_LINES_MAX: usize = 500;

fn long(texts: &[Text]) -> Vec<String> {
    let sources = texts.iter().filter(|text| text.ends_in(&[".rs", ".c", ".h", ".ts", ".java", ".sh"]));
    let lengths = sources.map(|text| (&text.path, text.text.lines().count()));
    lengths
        .filter(|&(_, lines)| lines > FILE_LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines, allowed are {FILE_LINES_MAX}"))
        .collect()
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long = long(house());
    assert!(long.is_empty(), "due for a split:\n{}", long.join("\n"));
}

#[test]
fn a_planted_long_file_is_found() {
    let texts = super::tree::planted(&[
        ("a.rs", &"x\n".repeat(FILE_LINES_MAX)),
        ("b.sh", &"x\n".repeat(FILE_LINES_MAX + 1)),
        ("c.md", &"x\n".repeat(FILE_LINES_MAX + 1)),
    ]);
    assert_eq!(long(&texts), ["b.sh: 501 lines, allowed are 500"]);
}
