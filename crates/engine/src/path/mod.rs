//! The way of a request through the engine: stages with their own state, and a conductor.
//!
//! ```text
//!   front end --submit--> claims --+--> orphans --> reading ahead --+--> table: cut --> gate --> device --> answer
//!                                  +--> cache: a miss, a copy ------+
//! ```
//!
//! **Rule.** A stage knows its own state, the [ground](ground) that all share, and the [table](table) of requests under
//! way. It does its part and says what is to be done [next](next). It calls no other stage, with one exception. The
//! [conductor] asks the stages in turn, and is the one place that knows the way of a request.
//!
//! **Exception.** `Caches::abandon` gets the orphans and calls `Orphans::began_in_cache`. The cache must store the
//! orphan's number with the request at once, and a step gives no answer.
//!
//! | stage | what it owns |
//! | --- | --- |
//! | [`claims`] | blocks of which front ends change a part, and the changes that wait for them |
//! | [`orphans`] | abandoned writes, and the requests that wait for them |
//! | [`caches`] | the caches before volumes |
//! | [`ahead`] | what is read ahead for each session |
//! | [`gate`] | the scheduler; [`early_reads`], which go past it |
//! | [`levels`] | the levels above the block layer, and what is seen of an observed disk |
//! | [`device`] | the device model, service threads |
//! | [`memory`] | front ends that wait for memory |

pub(crate) mod ahead;
pub(crate) mod asker;
pub(crate) mod caches;
pub(crate) mod claims;
pub(crate) mod conductor;
pub(crate) mod device;
pub mod early_reads;
pub(crate) mod gate;
pub(crate) mod ground;
pub(crate) mod levels;
pub(crate) mod memory;
pub(crate) mod next;
pub(crate) mod orphans;
pub(crate) mod request;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod table;
