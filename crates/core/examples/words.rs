//! Counts headless pronouns in comments, docs, help, messages and pages.
//!
//! `cargo run -q -p plimsoll-core --example words` prints a table by crate, the worst files and the worst lines;
//! `... --example words -- crates/cache docs/cache.md` does so for files with paths that start so.

#[path = "../tests/tidy/lexer.rs"]
mod lexer;
#[path = "../tests/tidy/pronouns.rs"]
mod pronouns;
#[path = "../tests/tidy/tree.rs"]
#[allow(dead_code, reason = "the rules of the house use more of it")]
mod tree;

use pronouns::{Count, Kind, Line, lines, part};
use std::collections::BTreeMap;
use std::env;

const KINDS: [(Kind, &str); 4] =
    [(Kind::Doc, "doc"), (Kind::Comment, "comments"), (Kind::Message, "messages"), (Kind::Page, "pages")];
/// Files and lines that are printed of the whole house, and of a part of it.
const SHOWN_OF_HOUSE: usize = 25;
const SHOWN_OF_PART: usize = 500;

fn main() {
    let starts: Vec<String> = env::args().skip(1).collect();
    let is_asked = |path: &str| starts.is_empty() || starts.iter().any(|start| path.starts_with(start));
    let texts = tree::house().iter().filter(|text| is_asked(&text.path));
    let found: Vec<(&str, Vec<Line>)> = texts.map(|text| (text.path.as_str(), lines(text))).collect();
    if found.iter().all(|(_, lines)| lines.is_empty()) {
        eprintln!("no file of the repository with prose starts with {}", starts.join(" or "));
        std::process::exit(2);
    }
    print_table(&found);
    let shown = if starts.is_empty() { SHOWN_OF_HOUSE } else { SHOWN_OF_PART };
    print_files(&found, shown);
    print_lines(&found, shown);
}

fn print_table(found: &[(&str, Vec<Line>)]) {
    let mut parts: BTreeMap<&str, BTreeMap<Kind, Count>> = BTreeMap::new();
    for (path, lines) in found {
        for line in lines {
            for name in [part(path), "~ all"] {
                parts.entry(name).or_default().entry(line.kind).or_default().add(line);
            }
        }
    }
    println!("headless pronouns in 1,000 words (words)\n");
    print!("{:<22}", "");
    KINDS.iter().for_each(|(_, name)| print!("{name:>18}"));
    println!("{:>18}", "all");
    for (part, kinds) in parts {
        print!("{:<22}", part.trim_start_matches("~ "));
        let mut all = Count::default();
        for (kind, _) in KINDS {
            let count = kinds.get(&kind).copied().unwrap_or_default();
            all = Count { words: all.words + count.words, pronouns: all.pronouns + count.pronouns };
            print_count(count);
        }
        print_count(all);
        println!();
    }
}

fn print_count(count: Count) {
    if count.words == 0 {
        print!("{:>18}", "-");
    } else {
        print!("{:>18}", format!("{:.2} ({})", count.per_thousand(), count.words));
    }
}

fn print_files(found: &[(&str, Vec<Line>)], shown: usize) {
    let mut files: Vec<(&str, Count)> = Vec::new();
    for (path, lines) in found {
        let mut count = Count::default();
        lines.iter().for_each(|line| count.add(line));
        files.push((path, count));
    }
    files.retain(|(_, count)| count.pronouns > 0);
    files.sort_by_key(|(path, count)| (std::cmp::Reverse(count.pronouns), *path));
    println!("\nfiles with the most: pronouns, in 1,000 words\n");
    for (path, count) in files.iter().take(shown) {
        println!("{:>6} {:>8.2}  {path}", count.pronouns, count.per_thousand());
    }
}

fn print_lines(found: &[(&str, Vec<Line>)], shown: usize) {
    let lines = found.iter().flat_map(|(path, lines)| lines.iter().map(move |line| (path, line)));
    let mut worst: Vec<_> = lines.filter(|(_, line)| line.pronouns > 0).collect();
    worst.sort_by_key(|(_, line)| std::cmp::Reverse(line.pronouns));
    println!("\nlines with the most\n");
    for (path, line) in worst.iter().take(shown) {
        println!("{path}:{}: {}", line.number, line.text);
    }
}
