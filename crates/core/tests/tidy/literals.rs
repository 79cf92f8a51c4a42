//! Reads a registry out of the source that holds it: the literals of each entry of a static or constant array.

use syn::visit::{self, Visit};
use syn::{Expr, Lit};

/// One entry of a registry: its literals by field; those of a tuple, or of an entry that is one literal, by number.
///
/// Of a call, `call` is the function's name, and its arguments are there by number, as far as they are literals or
/// paths. A method behind it has its first argument under the method's name.
pub type Entry = Vec<(String, String)>;

/// The value of `field` in `entry`.
pub fn value<'e>(entry: &'e Entry, field: &str) -> &'e str {
    let found = entry.iter().find(|(name, _)| name == field);
    found.map_or_else(|| panic!("an entry has no {field}: {entry:?}"), |(_, value)| value)
}

/// The entries of the static or constant `name` in `source`: those of an array, or one if it is a struct.
pub fn entries(source: &str, name: &str) -> Vec<Entry> {
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut finder = Finder { name, entries: Vec::new() };
    finder.visit_file(&file);
    finder.entries
}

struct Finder<'n> {
    name: &'n str,
    entries: Vec<Entry>,
}

impl Finder<'_> {
    fn read(&mut self, name: &syn::Ident, value: &Expr) {
        if name != self.name {
            return;
        }
        let mut value = value;
        while let Expr::Reference(reference) = value {
            value = &reference.expr;
        }
        match value {
            Expr::Array(array) => self.entries.extend(array.elems.iter().map(row)),
            value => self.entries.push(entry(value)),
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.read(&item.ident, &item.expr);
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.read(&item.ident, &item.expr);
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.read(&item.ident, &item.expr);
    }
}

/// An entry, which may be a call with methods behind it.
fn row(value: &Expr) -> Entry {
    match value {
        Expr::MethodCall(method) => {
            let mut row = row(&method.receiver);
            row.extend(method.args.first().and_then(word).map(|word| (method.method.to_string(), word)));
            row
        }
        Expr::Call(call) => {
            let name = word(&call.func).map(|name| ("call".to_owned(), name));
            let arguments = call.args.iter().enumerate();
            name.into_iter()
                .chain(arguments.filter_map(|(index, argument)| Some((index.to_string(), word(argument)?))))
                .collect()
        }
        value => entry(value),
    }
}

/// A literal, or the last word of a path.
fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        value => literal(value),
    }
}

fn entry(value: &Expr) -> Entry {
    match value {
        Expr::Struct(of) => of
            .fields
            .iter()
            .flat_map(|field| {
                let name = match &field.member {
                    syn::Member::Named(name) => name.to_string(),
                    syn::Member::Unnamed(index) => index.index.to_string(),
                };
                let inner = entry(&field.expr).into_iter();
                inner.map(move |(part, value)| (if part == "0" { name.clone() } else { part }, value))
            })
            .collect(),
        Expr::Tuple(tuple) => {
            let literals = tuple.elems.iter().enumerate();
            literals.filter_map(|(index, part)| Some((index.to_string(), literal(part)?))).collect()
        }
        other => literal(other).map(|value| ("0".to_owned(), value)).into_iter().collect(),
    }
}

fn literal(value: &Expr) -> Option<String> {
    let Expr::Lit(value) = value else { return None };
    match &value.lit {
        Lit::Str(text) => Some(text.value()),
        Lit::Bool(flag) => Some(flag.value.to_string()),
        Lit::Int(number) => Some(number.base10_digits().to_owned()),
        _ => None,
    }
}

#[test]
fn entries_are_read_from_structs_tuples_and_plain_literals() {
    let source = r#"
        static A: &[Entry] = &[Entry { name: "x", laws: Laws { is_fair: true }, build: |_| Box::new(1) }];
        impl S { pub const B: [(&str, Rules); 2] = [("y", Rules::One), ("z", Rules::Two)]; }
        const C: &[&str] = &["v", "w"];
        const D: Info = Info { name: "u" };
        const F: &[Row] = &[gauge::<S>("t", Unit::Bytes, |x| x.y).with("s", 1), "r"];
    "#;
    let names =
        |name, field| entries(source, name).iter().map(|entry| value(entry, field).to_owned()).collect::<Vec<_>>();
    assert_eq!(names("A", "name"), ["x"]);
    assert_eq!(names("A", "is_fair"), ["true"]);
    assert_eq!(names("B", "0"), ["y", "z"]);
    assert_eq!(names("C", "0"), ["v", "w"]);
    assert_eq!(names("D", "name"), ["u"]);
    let calls: Vec<String> = entries(source, "F").iter().map(|entry| format!("{entry:?}")).collect();
    let expected = r#"[("call", "gauge"), ("0", "t"), ("1", "Bytes"), ("with", "s")]"#;
    assert_eq!(calls, [expected, r#"[("0", "r")]"#]);
    assert!(entries(source, "E").is_empty());
}
