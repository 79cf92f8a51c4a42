//! `plimsoll up` end to end, with the built command.

mod agent;
mod iscsi;
mod mount;
mod nbd;
mod record;
mod sessions;
mod steer;
mod support;
mod tenants;
mod why;
