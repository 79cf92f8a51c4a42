//! The laboratory. A scenario says what runs on which machine and what must hold. A host runs it several times with
//! different seeds. The report compares the results with the paper's.
//!
//! ```text
//!   scenarios/*.toml -> scenario (read, varied, checked) -> plan of runs: each variant, each seed
//!                                                             | host: sim (virtual time), live (real threads)
//!   report: table, JSON, SVG, HTML  <-  claims, intervals  <-  results <- expressions over them
//! ```
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`scenario`] | the file: reading, variants, `--set`, the scenarios in the binary |
//! | [`host`] | what runs a variant with a seed; the simulator as one |
//! | [`results`] | what a run measured |
//! | [`expression`] | the little language of rows and figures |
//! | [`statistics`] | mean, deviation, confidence intervals |
//! | [`tpch`] | a TPC-H data set, and queries on it, for a real PostgreSQL |
//! | [`claim`] | an inequality, its margin, and whether it holds |
//! | [`experiment`] | all runs of a scenario, in parallel, and what comes of them |
//! | [`picture`], [`html`] | the figure and the page |
//! | [`load`] | open arrivals at a rate, to a server or a disk |
//! | [`replay`] | a recorded trace through a scheduler and a device model |
//! | [`replay_cache`] | a recorded trace through every policy of the cache |
//!
//! `docs/scenarios.md` has every key and function.

pub mod claim;
pub mod experiment;
pub mod expression;
pub mod host;
pub mod html;
pub mod load;
pub mod picture;
pub mod replay;
pub mod replay_cache;
pub mod results;
pub mod scenario;
pub mod statistics;
pub mod tpch;
