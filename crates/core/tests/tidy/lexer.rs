//! Splits Rust (and C, which has the same comments and strings) into code, comments and string literals.

/// What a piece of a source file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Anything else: keywords, names, numbers, character literals.
    Code,
    /// `///`, `//!`, `/** */`, `/*! */`.
    Doc,
    /// `//`, `/* */`.
    Comment,
    /// The content of a string literal, escapes untouched.
    Literal,
}

/// A piece of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// What it is.
    pub kind: Kind,
    /// The line that it starts in; the first is 1.
    pub line: usize,
    /// Its text; a comment keeps its `//`, a literal loses its quotes.
    pub text: &'a str,
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    code_from: usize,
    line: usize,
    pieces: Vec<Piece<'a>>,
}

/// The pieces of `source` in their order.
pub fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut lexer = Lexer { source, at: 0, code_from: 0, line: 1, pieces: Vec::new() };
    while lexer.at < source.len() {
        lexer.step();
    }
    lexer.end_code(source.len());
    lexer.pieces
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn step(&mut self) {
        let rest = self.rest();
        match rest.as_bytes()[0] {
            b'/' if rest.starts_with("//") => self.line_comment(),
            b'/' if rest.starts_with("/*") => self.block_comment(),
            b'"' => self.string(1, "\"", true),
            b'\'' => self.quote(),
            byte if is_word(byte) => self.word(),
            _ => self.at += 1,
        }
    }

    fn end_code(&mut self, end: usize) {
        self.push(Kind::Code, self.code_from, end);
    }

    /// Appends the text from `from` to `to`, if there is any, and counts its lines.
    fn push(&mut self, kind: Kind, from: usize, to: usize) {
        let text = &self.source[from..to];
        if !text.is_empty() {
            self.pieces.push(Piece { kind, line: self.line, text });
        }
        self.line += text.bytes().filter(|&byte| byte == b'\n').count();
        self.code_from = to;
    }

    fn line_comment(&mut self) {
        self.end_code(self.at);
        let rest = self.rest();
        let end = self.at + rest.find('\n').unwrap_or(rest.len());
        let is_doc = rest.starts_with("//!") || (rest.starts_with("///") && !rest.starts_with("////"));
        self.push(if is_doc { Kind::Doc } else { Kind::Comment }, self.at, end);
        self.at = end;
    }

    fn block_comment(&mut self) {
        self.end_code(self.at);
        let rest = self.rest();
        let (mut depth, mut length) = (0, 0);
        while length < rest.len() {
            if rest.as_bytes()[length..].starts_with(b"/*") {
                (depth, length) = (depth + 1, length + 2);
            } else if rest.as_bytes()[length..].starts_with(b"*/") {
                (depth, length) = (depth - 1, length + 2);
                if depth == 0 {
                    break;
                }
            } else {
                length += 1;
            }
        }
        let is_doc = rest.starts_with("/*!")
            || (rest.starts_with("/**") && !rest.starts_with("/***") && !rest.starts_with("/**/"));
        self.push(if is_doc { Kind::Doc } else { Kind::Comment }, self.at, self.at + length);
        self.at += length;
    }

    /// A string literal with content that starts `opening` bytes further on and ends before `closing`.
    fn string(&mut self, opening: usize, closing: &str, has_escapes: bool) {
        let start = self.at + opening;
        self.end_code(start);
        let content = &self.source.as_bytes()[start..];
        let mut length = 0;
        while length < content.len() && !content[length..].starts_with(closing.as_bytes()) {
            length += if has_escapes && content[length] == b'\\' { 2 } else { 1 };
        }
        let end = start + length.min(content.len());
        self.push(Kind::Literal, start, end);
        self.at = (end + closing.len()).min(self.source.len());
    }

    /// A character literal or the start of a lifetime.
    fn quote(&mut self) {
        let mut characters = self.rest().char_indices().skip(1);
        let Some((_, first)) = characters.next() else { return self.at += 1 };
        let length = match characters.next() {
            Some(_) if first == '\\' => {
                let after = characters.find(|&(_, character)| character == '\'');
                after.map_or(1, |(index, _)| index + 1)
            }
            Some((index, '\'')) => index + 1,
            _ => 1,
        };
        self.at += length;
    }

    /// A name, a keyword, a number or the prefix of a raw string.
    fn word(&mut self) {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
        let after = &rest[length..];
        let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
        if matches!(&rest[..length], "r" | "br" | "cr") && after[hashes..].starts_with('"') {
            let closing = format!("\"{}", "#".repeat(hashes));
            self.string(length + hashes + 1, &closing, false);
        } else {
            self.at += length;
        }
    }
}

#[cfg(test)]
fn kinds(source: &str, kind: Kind) -> Vec<(usize, &str)> {
    pieces(source).into_iter().filter(|piece| piece.kind == kind).map(|piece| (piece.line, piece.text)).collect()
}

#[test]
fn comments_and_strings_are_told_apart() {
    let source = "//! a\n/// b // c\n//// d\nlet x = \"// e \\\" f\"; // g\n/* h /* i */ j */ k\n/** l\nm */";
    assert_eq!(kinds(source, Kind::Doc), [(1, "//! a"), (2, "/// b // c"), (6, "/** l\nm */")]);
    assert_eq!(kinds(source, Kind::Comment), [(3, "//// d"), (4, "// g"), (5, "/* h /* i */ j */")]);
    assert_eq!(kinds(source, Kind::Literal), [(4, "// e \\\" f")]);
}

#[test]
fn characters_lifetimes_and_raw_strings_do_not_confuse() {
    let source =
        "fn f<'a>(x: &'a str) { '\"'; '\\''; '\\u{1f}'; r#\"a \" // b\"#; br\"\\\"; 'é'; r#type; b\"c\" } // d";
    assert_eq!(kinds(source, Kind::Literal), [(1, "a \" // b"), (1, "\\"), (1, "c")]);
    assert_eq!(kinds(source, Kind::Comment), [(1, "// d")]);
}

#[test]
fn no_character_gets_lost() {
    for source in ["", "/* open", "\"open", "'", "r#\"open\"", "x // y", "\"\\"] {
        pieces(source);
    }
    let source = "use a; // b\nfn c() {} /// d\n";
    assert_eq!(pieces(source).iter().map(|piece| piece.text).collect::<String>(), source);
}
