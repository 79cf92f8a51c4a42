//! The modules of one crate as the compiler sees them without tests: what each defines, imports and mentions.

use super::facts;
use super::tree::{Text, find};
use std::collections::{BTreeMap, BTreeSet};

/// A path in the source: `crate::a::B` is `["crate", "a", "B"]`.
pub type Segments = Vec<String>;

/// A name that a `use` brings into a module.
pub struct Import {
    /// The name inside the module; `_` for a trait without one.
    pub name: String,
    /// The path behind it.
    pub path: Segments,
    /// Whether other modules may see it: `pub use`, `pub(crate) use`, `pub(super) use`.
    pub is_reexport: bool,
}

/// One module; several may stand in one file.
#[derive(Default)]
pub struct Module {
    /// The module around it; none for a crate's root.
    pub parent: Option<usize>,
    /// The index in [`Crate::files`].
    pub file: usize,
    /// Modules directly inside it.
    pub children: BTreeMap<String, usize>,
    /// Names of its own items.
    pub items: BTreeSet<String>,
    /// Its `use` lines, those inside functions too.
    pub imports: Vec<Import>,
    /// Its `use ...::*` lines.
    pub globs: Vec<Segments>,
    /// Every path outside `use` lines: in types, expressions, patterns, macros and attributes.
    pub mentions: BTreeSet<Segments>,
    /// The types of its inherent `impl`s.
    pub impls: Vec<Segments>,
    /// Its structs and how many fields each has.
    pub structs: Vec<(String, usize)>,
    /// The names of its structs, enums, unions, traits and type aliases.
    pub types: Vec<String>,
}

/// The sources below a crate's `src`.
pub struct Crate {
    /// The name of its folder below `crates`.
    pub name: String,
    /// Paths of its files below `src`.
    pub files: Vec<String>,
    /// Its modules.
    pub modules: Vec<Module>,
    /// Its root modules: of the library and of each program.
    pub roots: Vec<usize>,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A module.
    Module(usize),
    /// An item that stands in this module.
    Item(usize),
}

/// How many imports may stand behind each other before a path counts as unknown.
const HOPS_MAX: u32 = 24;

/// Every crate below `crates`.
pub fn crates(texts: &[Text]) -> Vec<Crate> {
    let names: BTreeSet<&str> = texts
        .iter()
        .filter_map(|text| text.path.strip_prefix("crates/")?.split_once("/src/"))
        .map(|(name, _)| name)
        .filter(|name| !name.contains('/'))
        .collect();
    names.into_iter().map(|name| Crate::read(name, texts)).collect()
}

impl Crate {
    /// Follows the `mod` lines of the library's and the programs' roots.
    fn read(name: &str, texts: &[Text]) -> Crate {
        let mut this = Crate { name: name.to_owned(), files: Vec::new(), modules: Vec::new(), roots: Vec::new() };
        let source = format!("crates/{name}/src/");
        for text in texts {
            let Some(path) = text.path.strip_prefix(&source) else { continue };
            let is_root = matches!(path, "lib.rs" | "main.rs")
                || path.strip_prefix("bin/").is_some_and(|path| path.ends_with(".rs") && !path.contains('/'));
            if is_root {
                let root = this.add(None, path);
                this.roots.push(root);
                this.read_file(root, texts);
            }
        }
        this
    }

    /// Appends an empty module in `file`.
    pub fn add(&mut self, parent: Option<usize>, file: &str) -> usize {
        let index = self.files.iter().position(|known| known == file).unwrap_or_else(|| {
            self.files.push(file.to_owned());
            self.files.len() - 1
        });
        self.modules.push(Module { parent, file: index, ..Module::default() });
        self.modules.len() - 1
    }

    /// Reads the file of `module` and the files that its `mod` lines name.
    fn read_file(&mut self, module: usize, texts: &[Text]) {
        let file = self.files[self.modules[module].file].clone();
        let path = format!("crates/{}/src/{file}", self.name);
        let text = find(texts, &path).unwrap_or_else(|| panic!("{path} is gone"));
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        if facts::is_test_only(&parsed.attrs) {
            return;
        }
        let (folder, name) = file.rsplit_once('/').map_or(("", &*file), |(folder, name)| (folder, name));
        let is_door = self.modules[module].parent.is_none() || name == "mod.rs";
        let below = if is_door { folder.to_owned() } else { join(folder, name.trim_end_matches(".rs")) };
        self.read_items(module, &parsed.items, folder, &below, texts);
    }

    /// Reads items of `module`: its file lies in `folder`, and its children's files lie in `below`.
    fn read_items(&mut self, module: usize, items: &[syn::Item], folder: &str, below: &str, texts: &[Text]) {
        for item in items {
            if facts::is_test_only(facts::attributes(item)) {
                continue;
            }
            let syn::Item::Mod(inner) = item else {
                facts::read(&mut self.modules[module], item);
                continue;
            };
            let name = facts::plain(&inner.ident);
            if let Some((_, items)) = &inner.content {
                let file = self.files[self.modules[module].file].clone();
                let child = self.add(Some(module), &file);
                let below = join(below, &name);
                self.modules[module].children.insert(name, child);
                self.read_items(child, items, &below, &below, texts);
                continue;
            }
            let candidates = match facts::path_attribute(&inner.attrs) {
                Some(path) => vec![join(folder, &path)],
                None => vec![join(below, &format!("{name}.rs")), join(below, &format!("{name}/mod.rs"))],
            };
            let is_there = |file: &&String| find(texts, &format!("crates/{}/src/{file}", self.name)).is_some();
            let Some(file) = candidates.iter().find(is_there) else { continue };
            let child = self.add(Some(module), file);
            self.modules[module].children.insert(name, child);
            self.read_file(child, texts);
        }
    }

    /// The root of the library or program that `module` belongs to.
    fn root_of(&self, mut module: usize) -> usize {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// What `path` leads to when it stands in module `from`; `None` if it leaves the crate.
    pub fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.follow(from, path, HOPS_MAX)
    }

    fn follow(&self, from: usize, path: &[String], hops: u32) -> Option<Target> {
        let hops = hops.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match &**first {
            "crate" => Target::Module(self.root_of(from)),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.look_up(from, name, rest.is_empty(), hops)?,
        };
        while let Some((segment, after)) = rest.split_first() {
            let Target::Module(module) = at else { break };
            at = if segment == "super" {
                Target::Module(self.modules[module].parent?)
            } else {
                match self.look_up(module, segment, after.is_empty(), hops) {
                    Some(target) => target,
                    None if self.modules[module].imports.iter().any(|import| import.name == *segment) => return None,
                    // A macro made what the source does not show: it stands in the module that is named.
                    None => Target::Item(module),
                }
            };
            rest = after;
        }
        Some(at)
    }

    /// What `name` means inside `module`; an item goes before a module of its name where the path ends.
    fn look_up(&self, module: usize, name: &str, is_last: bool, hops: u32) -> Option<Target> {
        let inside = &self.modules[module];
        if is_last && inside.items.contains(name) {
            return Some(Target::Item(module));
        }
        if let Some(&child) = inside.children.get(name) {
            return Some(Target::Module(child));
        }
        if inside.items.contains(name) {
            return Some(Target::Item(module));
        }
        if let Some(target) = inside
            .imports
            .iter()
            .filter(|import| import.name == name)
            .find_map(|import| self.follow(module, &import.path, hops))
        {
            return Some(target);
        }
        inside.globs.iter().find_map(|glob| match self.follow(module, glob, hops)? {
            Target::Module(other) if other != module => self.look_up(other, name, is_last, hops.checked_sub(1)?),
            _ => None,
        })
    }

    /// Whether `module` lies inside another module of `file`.
    fn is_below(&self, mut module: usize, file: usize) -> bool {
        while let Some(parent) = self.modules[module].parent {
            if self.modules[parent].file == file {
                return true;
            }
            module = parent;
        }
        false
    }

    /// Which file needs which other file, with one path of the source that shows it. The way down, from a module to
    /// what lies inside it, is left out.
    pub fn needs(&self) -> BTreeMap<(usize, usize), String> {
        let mut needs = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let imports = module.imports.iter().filter(|import| !import.is_reexport).map(|import| &import.path);
            for path in imports.chain(&module.globs).chain(&module.mentions) {
                let Some(Target::Item(other)) = self.resolve(index, path) else { continue };
                let file = self.modules[other].file;
                if file != module.file && !self.is_below(other, module.file) {
                    needs.entry((module.file, file)).or_insert_with(|| path.join("::"));
                }
            }
        }
        needs
    }
}

fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Every crate of the house, read once.
pub fn of_house() -> &'static [Crate] {
    static CRATES: std::sync::OnceLock<Vec<Crate>> = std::sync::OnceLock::new();
    CRATES.get_or_init(|| crates(super::tree::house()))
}
