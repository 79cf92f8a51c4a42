//! The way of a request through the engine.

pub(crate) mod asker;
