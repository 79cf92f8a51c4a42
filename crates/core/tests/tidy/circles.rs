//! No import circle between the files of a crate.
//!
//! File A needs file B if the code of A, tests left out, names an item that stands in B: in a `use` line, in a type, an
//! expression, a pattern, a macro's tokens or an attribute.
//!
//! - A name leads to the file in which its item stands. Re-exports on the way do not count: a child that takes
//!   `super::Span` from a parent that re-exports it from `span.rs` needs `span.rs` and not the parent.
//! - A re-export (`pub use`, `pub(crate) use`, `pub(super) use`) alone needs nothing. If the re-exporting module also
//!   uses the name, it needs the file of the item as any other module does.
//! - The way down does not count: a module may declare, conduct and re-export what lies inside it, and its children may
//!   take its vocabulary (`super::Error`). The way up counts, so a circle over a parent and a module outside is found.
//! - `use super::*` needs the files of those names that the module then uses.
//! - Methods of a type count for the file that names the type, not for the file of the `impl`.

use super::exceptions::{Circle, MARGIN, listed};
use super::krate::{Crate, of_house};
use std::collections::{BTreeMap, BTreeSet};

/// A circle as a set of paths below the crate's `src`, with one round trip for the reader.
pub struct Found {
    /// The crate and the files.
    pub circle: Circle,
    /// Lines `file -> file: path`, the shortest way round from the first file.
    pub round_trip: Vec<String>,
}

/// The circles of one crate.
pub fn circles(of: &Crate) -> Vec<Found> {
    let needs = of.needs();
    let mut next: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for &(from, to) in needs.keys() {
        next.entry(from).or_default().insert(to);
    }
    let reach: BTreeMap<usize, BTreeSet<usize>> = next.keys().map(|&from| (from, reachable(&next, from))).collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut found = Vec::new();
    for (&file, reached) in &reach {
        if !reached.contains(&file) || seen.contains(&file) {
            continue;
        }
        let returns = |other: &&usize| reach.get(other).is_some_and(|reached| reached.contains(&file));
        let members: BTreeSet<usize> = reached.iter().filter(returns).copied().collect();
        seen.extend(&members);
        let way = shortest_round(&next, file);
        let round_trip = way.windows(2).map(|pair| {
            let (from, to) = (&of.files[pair[0]], &of.files[pair[1]]);
            format!("{from} -> {to}: {}", needs[&(pair[0], pair[1])])
        });
        let files = members.iter().map(|&file| of.files[file].clone()).collect();
        found.push(Found { circle: Circle { krate: of.name.clone(), files }, round_trip: round_trip.collect() });
    }
    found
}

fn reachable(next: &BTreeMap<usize, BTreeSet<usize>>, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(file) = waiting.pop() {
        waiting.extend(next.get(&file).into_iter().flatten().filter(|&&other| reached.insert(other)));
    }
    reached
}

/// The files of the shortest way from `start` back to it; a circle through it must exist.
fn shortest_round(next: &BTreeMap<usize, BTreeSet<usize>>, start: usize) -> Vec<usize> {
    let mut ways = std::collections::VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for &other in next.get(way.last().unwrap()).into_iter().flatten() {
            let mut longer = way.clone();
            longer.push(other);
            if other == start {
                return longer;
            }
            if seen.insert(other) {
                ways.push_back(longer);
            }
        }
    }
    unreachable!("the file is not in a circle")
}

/// What speaks against `found`, when the circles in `listed` are allowed and may differ from today's by `margin` files.
pub fn complaints(found: &[Found], listed: &[Circle], margin: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut still: Vec<BTreeSet<&String>> = vec![BTreeSet::new(); listed.len()];
    for today in found {
        let shared = |index: &usize| today.circle.files.intersection(&listed[*index].files).count();
        let of_crate = (0..listed.len()).filter(|&index| listed[index].krate == today.circle.krate);
        let best = of_crate.max_by_key(shared).filter(|index| shared(index) > 0);
        let new: Vec<_> = match best {
            Some(index) => today.circle.files.difference(&listed[index].files).collect(),
            None => today.circle.files.iter().collect(),
        };
        if best.is_none() || new.len() > margin {
            let way = today.round_trip.join("\n    ");
            complaints.push(format!(
                "{}: a circle of {} files, new in it: {new:?}\n    {way}",
                today.circle.krate,
                today.circle.files.len()
            ));
        }
        if let Some(index) = best {
            still[index].extend(today.circle.files.intersection(&listed[index].files));
        }
    }
    for (circle, still) in listed.iter().zip(still) {
        let gone: Vec<_> = circle.files.iter().filter(|file| !still.contains(file)).collect();
        if still.is_empty() || gone.len() > margin {
            complaints.push(format!("{}: no longer in a circle, shorten the list: {gone:?}", circle.krate));
        }
    }
    complaints
}

/// Every circle of the house.
pub fn today() -> Vec<Found> {
    of_house().iter().flat_map(circles).collect()
}

#[test]
fn files_of_a_crate_import_each_other_in_one_direction() {
    let complaints = complaints(&today(), &listed().circle, MARGIN);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::krate::crates;
    use crate::tree::planted;

    /// The circles of a crate `c` with these files below `src`.
    fn planted_circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files: Vec<_> = files.iter().map(|(path, text)| (format!("crates/c/src/{path}"), *text)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let crates = crates(&planted(&files));
        crates.iter().flat_map(circles).map(|found| found.circle.files.into_iter().collect()).collect()
    }

    const MODS: (&str, &str) = ("lib.rs", "mod a; mod b;");

    #[test]
    fn a_circle_is_found_however_the_path_is_written() {
        let ways = [
            "use crate::b::B;",
            "use super::b::{self, B};",
            "use super::b; fn f() { b::g(); }",
            "fn f(b: &crate::b::B) {}",
            "fn f() { use crate::b::B; }",
            "fn f() { println!(\"{}\", crate::b::g()); }",
            "fn f() { vec![crate::b::B { x: 1 }]; }",
            "use crate::*; fn f() { b::g(); }",
            "use super::b::*; fn f() { g(); }",
            "#[serde(with = \"crate::b::g\")] struct S;",
            "impl crate::b::T for A {}",
            "fn f() -> Vec<crate::b::B> { }",
            "use crate::B as Other;",
            "mod inner { use super::super::b::B; }",
        ];
        for way in ways {
            let files = [
                ("lib.rs", "mod a; mod b; pub use b::B;"),
                ("a.rs", &*format!("pub struct A; {way}")),
                ("b.rs", "use crate::a::A; pub struct B; pub fn g() {} pub trait T {}"),
            ];
            assert_eq!(planted_circles(&files), [["a.rs", "b.rs"]], "{way}");
        }
    }

    #[test]
    fn a_way_in_one_direction_tests_and_other_crates_are_no_circle() {
        let ways = [
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(test)] use crate::b::B;",
            "#[cfg(all(test, unix))] fn f() { crate::b::g(); }",
            "impl A { #[cfg(test)] fn f() { crate::b::g(); } }",
            "// use crate::b::B;",
            "use b::B;",
            "fn f(x: &X) { x.b.g(); println!(\"{}\", x.B); }",
            "pub(in crate::b) fn f() {}",
        ];
        for way in ways {
            let files = [MODS, ("a.rs", &*format!("pub struct A; {way}")), ("b.rs", "use crate::a::A; pub struct B;")];
            assert_eq!(planted_circles(&files), Vec::<Vec<String>>::new(), "{way}");
        }
    }

    #[test]
    fn a_re_export_is_a_door_and_no_need() {
        let needs = |door: &str| {
            let files = [
                ("lib.rs", "mod m; mod x;"),
                ("m.rs", door),
                ("x.rs", "use crate::m::Own; pub struct X;"),
                ("y.rs", "pub struct Y;"),
            ];
            planted_circles(&files)
        };
        assert!(needs("pub use crate::x::X; pub struct Own;").is_empty());
        assert_eq!(needs("pub use crate::x::X; pub struct Own(X);"), [["m.rs", "x.rs"]]);
        assert_eq!(needs("use crate::x::X; pub struct Own;"), [["m.rs", "x.rs"]]);
        let foreign = [
            ("lib.rs", "mod m; mod x;"),
            ("m.rs", "pub use serde::De; use crate::x::X;"),
            ("x.rs", "use crate::m::De; pub struct X;"),
        ];
        assert!(planted_circles(&foreign).is_empty(), "what stands in another crate");
        let made = [
            ("lib.rs", "mod m; mod x;"),
            ("m.rs", "include!(\"y\"); use crate::x::X;"),
            ("x.rs", "use crate::m::Y; pub struct X;"),
        ];
        assert_eq!(planted_circles(&made), [["m.rs", "x.rs"]], "what a macro makes");
        // Names that a door hands on lead to the files behind it.
        let files = [
            ("lib.rs", "mod m;"),
            ("m.rs", "mod x; mod y; pub use x::X; pub use self::y::*;"),
            ("m/x.rs", "use super::Y; pub struct X;"),
            ("m/y.rs", "use crate::m::X; pub struct Y;"),
        ];
        assert_eq!(planted_circles(&files), [["m/x.rs", "m/y.rs"]]);
    }

    #[test]
    fn the_way_down_is_no_need_and_the_way_up_is_one() {
        let child = ("m/child.rs", "use super::Own; use crate::o::O; pub struct Child;");
        let lib = ("lib.rs", "mod m; mod o;");
        let parent = ("m/mod.rs", "mod child; use child::Child; pub struct Own; fn f() -> child::Child {}");
        assert!(planted_circles(&[lib, parent, child, ("o.rs", "pub struct O;")]).is_empty());
        let over_parent = ("m/mod.rs", "mod child; pub struct Own; fn f(o: crate::o::P) {}");
        let circles =
            planted_circles(&[lib, over_parent, child, ("o.rs", "pub struct P; use crate::m::child::Child;")]);
        assert_eq!(circles, [["m/child.rs", "m/mod.rs", "o.rs"]]);
    }

    #[test]
    fn modules_are_found_behind_path_attributes_and_inside_others() {
        let files = [
            ("lib.rs", "#[path = \"else/where.rs\"] mod a; mod outer { pub mod b; }"),
            ("else/where.rs", "use crate::outer::b::B; pub struct A;"),
            ("outer/b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(planted_circles(&files), [["else/where.rs", "outer/b.rs"]]);
    }

    fn found(files: &[&str]) -> Found {
        Found { circle: circle(files), round_trip: vec!["way".to_owned()] }
    }

    fn circle(files: &[&str]) -> Circle {
        Circle { krate: "c".to_owned(), files: files.iter().map(|file| (*file).to_owned()).collect() }
    }

    #[test]
    fn a_list_of_circles_may_only_shrink() {
        let listed = [circle(&["a", "b", "c", "d"])];
        assert!(complaints(&[found(&["a", "b", "c", "d"])], &listed, 0).is_empty());
        assert!(complaints(&[found(&["a", "b"]), found(&["c", "d"])], &listed, 0).is_empty(), "two smaller ones");
        let new = complaints(&[found(&["a", "b", "c", "d"]), found(&["e", "f"])], &listed, 9);
        assert_eq!(new, ["c: a circle of 2 files, new in it: [\"e\", \"f\"]\n    way"]);
        let grown = [found(&["a", "b", "c", "d", "e"])];
        assert_eq!(complaints(&grown, &listed, 0).len(), 1);
        assert!(complaints(&grown, &listed, 1).is_empty());
        let shrunk = [found(&["a", "b", "c"])];
        assert_eq!(complaints(&shrunk, &listed, 0), ["c: no longer in a circle, shorten the list: [\"d\"]"]);
        assert!(complaints(&shrunk, &listed, 1).is_empty());
        assert_eq!(complaints(&[], &listed, 9).len(), 1, "a listed circle that is gone");
    }
}
