//! `plimsoll up` end to end, with the built command.

mod agent;
mod cache;
mod cache_notes;
mod cache_unserved;
mod cache_words;
mod classes;
mod compressed;
mod crowds;
mod devices;
mod encrypted;
mod failed_engine;
mod front_ends;
mod health;
mod iscsi;
mod layouts;
#[path = "../../../gates/tests/support/lease.rs"]
mod lease;
mod levels;
mod load;
mod manners;
mod metrics;
mod mount;
mod nbd;
mod nbd_client;
mod postgresql;
mod read_ahead;
mod record;
mod sessions;
mod steer;
mod support;
mod tenants;
mod versions;
mod watch;
mod why;
