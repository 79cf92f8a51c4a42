//! What the pages of the inside say of the code is there: each path and, behind a path, each function.
//!
//! Looked at is code in backticks that begins with `crates/`, in `ARCHITECTURE.md` and `docs/internals/*.md`:
//!
//! ```text
//! `crates/a/src`                  a folder with files
//! `crates/a/src/b.rs`             a file
//! `crates/a/src/b.rs: name`       a file that defines `fn name`
//! `crates/a/bpf/b.h: name`        a file in C: a line that is not indented has `name(` or, in a macro, `name,`
//! ```

use super::lexer::{Kind, pieces};
use super::tree::{Text, find, house};

const FOLDER: &str = "docs/internals/";
const PAGE: &str = "ARCHITECTURE.md";
const CODE: &str = "crates/";

/// Pieces of code on a page that name a path of the code, with the number of their line. Fences are left out.
fn named(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_in_fence = false;
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_in_fence = !is_in_fence;
        } else if !is_in_fence {
            let code = line.split('`').skip(1).step_by(2).filter(|code| code.starts_with(CODE));
            found.extend(code.map(|code| (index + 1, code)));
        }
    }
    found
}

fn is_there(texts: &[Text], path: &str) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    find(texts, path).is_some() || texts.iter().any(|text| text.path.starts_with(&folder))
}

/// Whether `name` stands at `at` as a whole word.
fn is_word(text: &str, at: usize, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
}

fn has_word(text: &str, name: &str, is_followed: impl Fn(&str) -> bool) -> bool {
    text.match_indices(name).any(|(at, _)| is_word(text, at, name) && is_followed(&text[at + name.len()..]))
}

/// Whether a source file defines the function.
fn defines(path: &str, source: &str, name: &str) -> bool {
    if path.ends_with(".rs") {
        let function = format!("fn {name}");
        return pieces(source).iter().any(|piece| {
            piece.kind == Kind::Code && has_word(piece.text, &function, |rest| rest.starts_with(['(', '<']))
        });
    }
    let is_outside = |line: &&str| !line.starts_with([' ', '\t', '/', '*', '}']);
    source.lines().filter(is_outside).any(|line| has_word(line, name, |rest| rest.starts_with(['(', ','])))
}

fn complaints(texts: &[Text]) -> Vec<String> {
    let pages = texts
        .iter()
        .filter(|text| text.path == PAGE || text.path.strip_prefix(FOLDER).is_some_and(|page| page.ends_with(".md")));
    let mut complaints = Vec::new();
    for page in pages {
        for (line, code) in named(&page.text) {
            let (path, name) = code.split_once(": ").map_or((code, None), |(path, name)| (path, Some(name)));
            let place = format!("{}:{line}", page.path);
            if !is_there(texts, path) {
                complaints.push(format!("{place}: there is no {path}"));
            } else if let Some(name) = name
                && !find(texts, path).is_some_and(|source| defines(path, source, name))
            {
                complaints.push(format!("{place}: {path} defines no function {name}"));
            }
        }
    }
    complaints
}

#[test]
fn what_the_pages_of_the_inside_name_is_there() {
    let request = find(house(), "docs/internals/request.md").unwrap_or("");
    assert!(named(request).len() > 100, "the steps of the two requests were not found");
    let complaints = complaints(house());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Planted breaks that were seen red: a file that is gone, a function that is gone, a function that another file has.
#[test]
fn planted_paths_and_functions_that_are_not_there_are_found() {
    let complaints_of = |page: &str, text: &str| {
        complaints(&super::tree::planted(&[
            (page, text),
            (
                "crates/a/src/b.rs",
                "// fn said()\nfn written() { f(\"fn quoted()\") }\nfn made<T>() {}\nfn longer_name() {}\n",
            ),
            ("crates/a/bpf/c.h", "int BPF_PROG(seen, int a)\n{\n\tcalled(a);\n}\nGATED(int, wrapped, (int a))\n"),
        ]))
    };
    let good = "`crates/a/src`, `crates/a/src/b.rs: written`, `crates/a/src/b.rs: made`\n\
        `crates/a/bpf/c.h: seen`, `crates/a/bpf/c.h: wrapped`, `src/gone.rs`\n```\n`crates/gone`\n```\n";
    assert_eq!(complaints_of("docs/internals/a.md", good), Vec::<String>::new());
    assert_eq!(complaints_of("docs/other.md", "`crates/gone`"), Vec::<String>::new());
    let gone = complaints_of("ARCHITECTURE.md", "x\n`crates/gone`, `crates/a/src/gone.rs: written`");
    assert_eq!(
        gone,
        ["ARCHITECTURE.md:2: there is no crates/gone", "ARCHITECTURE.md:2: there is no crates/a/src/gone.rs"]
    );
    for (path, name) in [
        ("crates/a/src/b.rs", "said"),
        ("crates/a/src/b.rs", "quoted"),
        ("crates/a/src/b.rs", "longer"),
        ("crates/a/src/b.rs", "seen"),
        ("crates/a/src", "written"),
        ("crates/a/bpf/c.h", "called"),
        ("crates/a/bpf/c.h", "wrap"),
    ] {
        let complaints = complaints_of("docs/internals/a.md", &format!("`{path}: {name}`"));
        assert_eq!(complaints, [format!("docs/internals/a.md:1: {path} defines no function {name}")]);
    }
}
