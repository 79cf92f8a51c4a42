//! `plimsoll up` end to end, with the built command.

mod agent;
mod cache;
mod compressed;
mod iscsi;
mod load;
mod mount;
mod nbd;
mod record;
mod sessions;
mod steer;
mod support;
mod tenants;
mod versions;
mod why;
