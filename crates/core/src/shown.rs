//! Text from another party, made safe for a line of output: names of files, mount points, processes, volumes, sessions.
//!
//! **Rule.** A character that a terminal obeys, or that changes how the characters beside it are read, stands there
//! escaped. **Complication.** A message of several lines keeps the line ends between its lines ([`shown_lines`]); a
//! name must not begin a line ([`shown`]).

use std::borrow::Cow;

/// Whether a terminal does something else with `character` than to print it in its place. Such are control characters,
/// marks and overrides of direction (Unicode Standard Annex 9), characters without width, and separators of lines.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// `text` in one line, without anything that a terminal obeys.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, is_active)
}

/// The same for a text of several lines with such names in it.
pub fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| character != '\n' && is_active(character))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let escape = |character: char| match character {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        other => other.escape_unicode().to_string(),
    };
    let escape = |character: char| if is_escaped(character) { escape(character) } else { character.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: only control characters are escaped.
    /// Promise: daemon-names-escaped.
    #[test]
    fn what_a_terminal_obeys_is_escaped_and_the_rest_is_not() {
        assert_eq!(shown("/srv/d\u{e4}ten \u{6587}"), "/srv/d\u{e4}ten \u{6587}");
        assert_eq!(shown("a\x1b[2J\nroot\t\u{9b}"), "a\\u{1b}[2J\\nroot\\t\\u{9b}");
        for character in ['\u{202e}', '\u{2066}', '\u{200f}', '\u{61c}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{7f}'] {
            let text = format!("ab{character}cd");
            assert_eq!(shown(&text), format!("ab{}cd", character.escape_unicode()));
            assert_eq!(shown_lines(&text), shown(&text));
        }
        assert_eq!(shown_lines("one\ntwo\r"), "one\ntwo\\r");
    }
}
