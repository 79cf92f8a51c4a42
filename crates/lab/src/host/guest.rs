//! Guests: machines with files of the host as disks.

use super::parts::{file_system, scheduler, seed_of};
use super::recorder::Recorder;
use super::{Accounts, process};
use crate::scenario::{AccountSetup, GuestSetup, ProcessSetup, Setup};
use plimsoll_core::Allocation;
use plimsoll_devices::DeviceModel;
use plimsoll_sim::guest::VirtualDisk;
use plimsoll_sim::{Machine, MachineConfig, Simulation};

/// A guest that runs.
pub(super) struct Guest<'a> {
    setup: &'a GuestSetup,
    machine: Machine,
    accounts: Accounts,
    seed: u64,
}

/// Makes the images on the host, starts the guests and prepares their files.
pub(super) fn boot<'a>(
    simulation: &mut Simulation,
    setup: &'a Setup,
    accounts: &Accounts,
    seed: u64,
) -> Vec<Guest<'a>> {
    if !setup.guests.is_empty() {
        make_images(simulation, setup, accounts);
    }
    let mut guests = Vec::new();
    for (number, guest) in setup.guests.iter().enumerate() {
        let started = start_one(simulation, setup, guest, accounts, seed_of(seed, number + 1));
        let (account, seed) = (started.accounts.flusher, started.seed);
        process::prepare(simulation, &started.machine, inside(setup, guest), account, seed);
        guests.push(started);
    }
    guests
}

/// The processes of this guest.
fn inside<'a>(setup: &'a Setup, guest: &'a GuestSetup) -> impl Iterator<Item = &'a ProcessSetup> {
    setup.processes.iter().filter(|process| process.guest.as_ref() == Some(&guest.name))
}

fn image(guest: &GuestSetup) -> String {
    format!("/{}.img", guest.name)
}

/// Images have all their blocks, so that allocation is not measured.
fn make_images(simulation: &mut Simulation, setup: &Setup, accounts: &Accounts) {
    let images: Vec<(String, u64)> = setup.guests.iter().map(|guest| (image(guest), guest.disk_bytes)).collect();
    simulation.machine().spawn("images", accounts.flusher, |process| async move {
        for (path, bytes) in &images {
            process.create(path).await.expect("names of guests are different").fill(*bytes).await;
        }
        // As for other files: what is left dirty would be written half a minute into the experiment.
        process.sync().await;
        process.sync().await;
    });
    simulation.run_to_completion();
}

fn start_one<'a>(
    simulation: &mut Simulation,
    setup: &'a Setup,
    guest: &'a GuestSetup,
    host_accounts: &Accounts,
    seed: u64,
) -> Guest<'a> {
    let account = host_accounts.ids[&guest.account];
    let disk = VirtualDisk::new(simulation.machine(), &image(guest), account, guest.cache).expect("it was just made");
    // The guest's kernel tells its processes apart; none is promised anything there.
    let sessions = inside(setup, guest).map(|process| AccountSetup {
        name: process.account.clone(),
        parent: None,
        is_pool: false,
        allocation: Allocation::default(),
    });
    let sessions: Vec<AccountSetup> = sessions.collect();
    let accounts = Accounts::open_on(disk.profile(), &sessions).expect("sessions without promises fit anywhere");
    let mut config = MachineConfig { seed, ..guest.config.clone() };
    config.accounts.flusher = accounts.flusher;
    config.accounts.journal = accounts.journal;
    let scheduler = scheduler(guest.scheduler, disk.profile());
    let files = file_system(guest.file_system, guest.disk_bytes, None);
    let machine = simulation.add_machine(config, scheduler, Box::new(disk), files, &accounts.tree);
    Guest { setup: guest, machine, accounts, seed }
}

impl Guest<'_> {
    /// Starts its processes.
    pub(super) fn start(&self, setup: &Setup, recorder: &Recorder) {
        process::start(&self.machine, inside(setup, self.setup), &self.accounts, self.seed, recorder);
    }
}
