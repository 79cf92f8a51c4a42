//! The rules of the house that no compiler checks (`CONTRIBUTING.md`), one module a rule. Each rule has tests of its
//! own: a break that they plant is found, and good input passes.
//!
//! | rules | modules |
//! | --- | --- |
//! | files and crates | `lengths`, `crate_floors`, `folder_floors`, `circles`, `unsafe_code` |
//! | types | `impls`, `fields`, `type_names` |
//! | front ends | `front_ends` |
//! | texts | `comments`, `words` with `pronouns`, `terms`, `machine_paths` |
//! | pages | `registries`, `promises`, `generated`, `figures`, `metrics`, `code_paths`, `links` |
//!
//! The rules share `tree`, which reads files; `lexer`, `krate`, `facts` and `literals`, which read Rust; and
//! `exceptions`, which has the breaks that are still allowed.

mod circles;
mod code_paths;
mod comments;
mod crate_floors;
mod exceptions;
mod facts;
mod fields;
mod figures;
mod folder_floors;
mod front_ends;
mod generated;
mod impls;
mod krate;
mod lengths;
mod lexer;
mod links;
mod literals;
mod machine_paths;
mod metrics;
mod promises;
mod pronouns;
mod registries;
mod sentences;
mod terms;
mod tree;
mod type_names;
mod unsafe_code;
mod words;
