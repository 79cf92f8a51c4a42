//! Reads what one item of a module defines, imports and mentions.

use super::krate::{Import, Module, Segments};
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, Type, UseTree, Visibility};

/// Attributes without a path to an item.
const MUTE_ATTRIBUTES: &[&str] = &["doc", "derive", "cfg", "cfg_attr", "allow", "expect", "inline", "must_use", "repr"];

/// A name without the `r#` of a raw one.
pub fn plain(ident: &syn::Ident) -> String {
    ident.unraw().to_string()
}

/// Whether the item exists in tests only: `#[cfg(test)]`, `#[cfg(all(test, ...))]`, `#[test]`.
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let mut tokens = list.tokens.clone().into_iter();
            match (tokens.next(), tokens.next()) {
                (Some(TokenTree::Ident(word)), None) => word == "test",
                (Some(TokenTree::Ident(word)), Some(TokenTree::Group(group))) if word == "all" => {
                    let mut parts = group.stream().into_iter();
                    parts.any(|part| matches!(part, TokenTree::Ident(word) if word == "test"))
                }
                _ => false,
            }
        }
        _ => false,
    })
}

/// The path of `#[path = "..."]`.
pub fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Adds what `item`, which stands directly in `module`, says.
pub fn read(module: &mut Module, item: &Item) {
    define(module, item);
    Reader { module }.visit_item(item);
}

/// Adds the names that `item` gives its module.
fn define(module: &mut Module, item: &Item) {
    let (name, is_type) = match item {
        Item::Const(item) => (&item.ident, false),
        Item::Fn(item) => (&item.sig.ident, false),
        Item::Static(item) => (&item.ident, false),
        Item::Macro(item) => match &item.ident {
            Some(name) => (name, false),
            None => return,
        },
        Item::Enum(item) => (&item.ident, true),
        Item::Struct(item) => {
            module.structs.push((plain(&item.ident), item.fields.len()));
            (&item.ident, true)
        }
        Item::Trait(item) => (&item.ident, true),
        Item::TraitAlias(item) => (&item.ident, true),
        Item::Type(item) => (&item.ident, true),
        Item::Union(item) => (&item.ident, true),
        Item::ForeignMod(item) => {
            for item in &item.items {
                if let syn::ForeignItem::Fn(item) = item {
                    module.items.insert(plain(&item.sig.ident));
                }
            }
            return;
        }
        _ => return,
    };
    module.items.insert(plain(name));
    if is_type {
        module.types.push(plain(name));
    }
}

fn segments(path: &syn::Path) -> Segments {
    path.segments.iter().map(|segment| plain(&segment.ident)).collect()
}

struct Reader<'m> {
    module: &'m mut Module,
}

impl Reader<'_> {
    fn mention(&mut self, path: Segments) {
        if path.first().is_some_and(|first| first != "Self") {
            self.module.mentions.insert(path);
        }
    }

    fn import(&mut self, tree: &UseTree, before: &mut Segments, is_reexport: bool) {
        let (name, path) = match tree {
            UseTree::Path(path) => {
                before.push(plain(&path.ident));
                self.import(&path.tree, before, is_reexport);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, is_reexport);
                }
                return;
            }
            UseTree::Glob(_) => return self.module.globs.push(before.clone()),
            UseTree::Name(name) => (plain(&name.ident), plain(&name.ident)),
            UseTree::Rename(rename) => (plain(&rename.rename), plain(&rename.ident)),
        };
        let mut full = before.clone();
        let is_module_itself = path == "self" && !before.is_empty();
        if !is_module_itself {
            full.push(path);
        }
        let name = if name == "self" { before.last().cloned().unwrap_or(name) } else { name };
        self.module.imports.push(Import { name, path: full, is_reexport });
    }

    /// Mentions every path in unparsed tokens: of macros and attributes.
    fn scan(&mut self, tokens: TokenStream) {
        let (mut path, mut dots, mut colons) = (Segments::new(), 0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.mention(std::mem::take(&mut path));
                    }
                    // `a.b` reads a field; `..b` is a range or the rest of a struct.
                    if dots != 1 {
                        path.push(plain(&ident));
                    }
                    (dots, colons) = (0, 0);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => (dots, colons) = (0, colons + 1),
                TokenTree::Punct(punct) => {
                    self.mention(std::mem::take(&mut path));
                    (dots, colons) = (if punct.as_char() == '.' { dots + 1 } else { 0 }, 0);
                }
                TokenTree::Group(group) => {
                    self.mention(std::mem::take(&mut path));
                    (dots, colons) = (0, 0);
                    self.scan(group.stream());
                }
                TokenTree::Literal(literal) => {
                    self.mention(std::mem::take(&mut path));
                    (dots, colons) = (0, 0);
                    self.mention(path_in(&literal.to_string()));
                }
            }
        }
        self.mention(path);
    }
}

/// The path in a literal like `"crate::a::b"`, as serde's attributes have it.
fn path_in(literal: &str) -> Segments {
    let text = literal.trim_matches('"');
    let is_path = ["crate::", "super::", "self::"].iter().any(|start| text.starts_with(start));
    if is_path { text.split("::").map(str::to_owned).collect() } else { Segments::new() }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test_only(attributes(item)) && !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            _ => &[],
        };
        if !is_test_only(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let (None, Type::Path(of)) = (&item.trait_, &*item.self_ty) {
            self.module.impls.push(segments(&of.path));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if !is_test_only(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'a syn::Local) {
        if !is_test_only(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let is_reexport = !matches!(item.vis, Visibility::Inherited);
        if item.leading_colon.is_none() {
            self.import(&item.tree, &mut Segments::new(), is_reexport);
        }
    }

    /// `pub(in crate::a)` names a module and needs nothing of it.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            self.mention(segments(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'a syn::Macro) {
        self.mention(segments(&invocation.path));
        self.scan(invocation.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if MUTE_ATTRIBUTES.iter().any(|mute| attribute.path().is_ident(mute)) {
            return;
        }
        match &attribute.meta {
            Meta::List(list) => self.scan(list.tokens.clone()),
            meta => visit::visit_meta(self, meta),
        }
    }
}
