//! Plimsoll's machine in virtual time. Today its lowest room: a device, the scheduler above it, and tenants that send it
//! block requests ([`block`]). Page cache, file systems and processes come on top.
//!
//! Everything follows from the events and one seed, so a run is the same on every machine.

pub mod block;
pub mod workload;
