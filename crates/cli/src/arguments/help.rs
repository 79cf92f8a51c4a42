//! The text below a command's help, in lines of a terminal.
//!
//! **Rule.** A line continues in the next one if its author broke it because it was long. Both are one paragraph, which
//! is wrapped anew at [`COLUMNS`]. **Complication.** A short line ends where its author wanted it to, and a table stays
//! as it is.

use clap::Command;

/// Columns of a terminal of unknown width.
const COLUMNS: usize = 100;
/// A line that is longer was broken because it was long.
const FULL: usize = 85;

/// The same command, and all below it, with that text in lines that are not wrapped again.
pub(super) fn in_lines(mut command: Command) -> Command {
    if let Some(after) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(lines(&after));
    }
    command.mut_subcommands(in_lines)
}

fn lines(text: &str) -> String {
    let (mut out, mut lines) = (Vec::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        let indent = indent(line);
        if is_table(line) {
            out.push(line.to_owned());
            continue;
        }
        let (mut words, mut last) = (line.split_whitespace().collect::<Vec<_>>(), line);
        while let Some(next) = lines.next_if(|next| goes_on(last, next)) {
            words.extend(next.split_whitespace());
            last = next;
        }
        out.extend(broken(&words, indent));
    }
    out.join("\n")
}

/// Columns before the first word.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether the words of a line stand in columns.
fn is_table(line: &str) -> bool {
    line.trim_start().contains("  ")
}

fn goes_on(line: &str, next: &str) -> bool {
    let is_example = next.trim_start().starts_with(['$', '#']);
    line.chars().count() > FULL
        && !next.trim().is_empty()
        && indent(line) == indent(next)
        && !is_table(next)
        && !is_example
}

/// Words in lines of [`COLUMNS`]. The last line of several has two words or more.
fn broken(words: &[&str], indent: usize) -> Vec<String> {
    let mut lines: Vec<Vec<&str>> = vec![Vec::new()];
    let width = |line: &[&str]| indent + line.iter().map(|word| word.chars().count() + 1).sum::<usize>();
    for word in words {
        let line = lines.last_mut().expect("there is one");
        match line.is_empty() || width(line) + word.chars().count() <= COLUMNS {
            true => line.push(word),
            false => lines.push(vec![word]),
        }
    }
    if let [.., before, last] = &mut lines[..]
        && last.len() == 1
        && before.len() > 2
    {
        last.extend(before.pop());
        last.reverse();
    }
    lines.iter().map(|line| format!("{}{}", " ".repeat(indent), line.join(" ")).trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break, seen red: the last word stands alone.
    #[test]
    fn paragraphs_are_broken_anew_and_short_lines_and_tables_stay() {
        let long = ["word"; 25].join(" ");
        let text = format!("Example:\n  $ plimsoll x\n  a  b  {long}\n\nShort.\n{long}\nend.\nNext.");
        let told = lines(&text);
        let expected = format!(
            "Example:\n  $ plimsoll x\n  a  b  {long}\n\nShort.\n{}\n{} end.\nNext.",
            ["word"; 20].join(" "),
            ["word"; 5].join(" ")
        );
        assert_eq!(told, expected);
        assert_eq!(lines(&["word"; 21].join(" ")), format!("{}\nword word", ["word"; 19].join(" ")));
    }

    /// Outcome: no line of the text below any command is broken by a terminal of 100 columns, and no word of a
    /// paragraph stands alone.
    #[test]
    fn no_command_has_a_line_that_a_terminal_breaks() {
        let mut wrong = Vec::new();
        look(&super::super::command(), "plimsoll", &mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn look(command: &Command, path: &str, wrong: &mut Vec<String>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = after.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let before = at.checked_sub(1).map_or("", |before| lines[before]);
            let is_alone =
                indent(line) == 0 && indent(before) == 0 && before.chars().count() > FULL && !line.is_empty();
            if line.chars().count() > COLUMNS || is_alone && !line.contains(' ') {
                wrong.push(format!("{path}: {line}"));
            }
        }
        command.get_subcommands().for_each(|below| look(below, &format!("{path} {}", below.get_name()), wrong));
    }
}
