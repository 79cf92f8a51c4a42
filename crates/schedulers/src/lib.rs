//! Plimsoll's schedulers, one file each, and the registry that names them.

pub mod noop;
mod registry;

pub use registry::{Entry, Laws, build, registry};
