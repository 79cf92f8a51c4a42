//! A machine to test on.

#![allow(dead_code, reason = "each test uses some of it")]

use plimsoll_core::*;
use plimsoll_sim::fs::raw::Raw;
use plimsoll_sim::{MachineConfig, Simulation};
use std::rc::Rc;

pub const DISK: &str = "hdd.wd-aakx";

/// A machine over `raw` files, and `sessions` accounts to run processes in (the kernel's tasks have one of their own).
pub fn machine(config: MachineConfig, scheduler: &str, device: &str, sessions: usize) -> (Simulation, Vec<AccountId>) {
    let device = plimsoll_devices::build(device, config.seed).unwrap();
    let profile = device.profile().clone();
    machine_with(config, plimsoll_schedulers::build(scheduler, &profile).unwrap(), device, sessions)
}

pub fn machine_with(
    mut config: MachineConfig,
    scheduler: Box<dyn Scheduler>,
    device: Box<dyn plimsoll_devices::DeviceModel>,
    sessions: usize,
) -> (Simulation, Vec<AccountId>) {
    let profile = device.profile().clone();
    let mut tree = AccountTree::new(profile.clone());
    let mut open = |name: &str| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
    config.accounts.flusher = open("flusher");
    config.accounts.journal = open("journal");
    let sessions = (0..sessions).map(|number| open(&format!("session {number}"))).collect();
    let file_system = Rc::new(Raw::new(profile.capacity_bytes));
    (Simulation::new(config, scheduler, device, file_system, &tree), sessions)
}

pub fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}
