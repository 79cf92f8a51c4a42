//! `plimsoll up` end to end, with the built command.

mod mount;
mod nbd;
mod record;
mod support;
mod tenants;
