//! Drives and flash cache below the server, each a device model with a queue of its own.

use super::chance::Chance;
use super::platform::{FLASH_CACHE, Platform};
use plimsoll_core::{Operation, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};

/// A drive's number; the flash cache, if there is one, is behind the last drive.
pub(super) type DriveNumber = u32;

struct Drive {
    model: Box<dyn DeviceModel + Send>,
    capacity_bytes: u64,
    /// Where the next consistency point writes.
    write_at: u64,
    /// When it is looked at next, if that is settled.
    called_at: Option<Time>,
}

/// All devices.
pub(super) struct BackEnd {
    drives: Vec<Drive>,
    flash_hits: f64,
    /// Drives without the cache.
    count: u32,
    /// The drive that the next write goes to.
    write_to: u32,
}

impl BackEnd {
    pub(super) fn new(platform: &Platform, seed: u64) -> BackEnd {
        let drive = |number: u32, model| {
            let model = plimsoll_devices::build(model, seed ^ u64::from(number) << 32).expect("a known model");
            let capacity_bytes = model.profile().capacity_bytes;
            Drive { model, capacity_bytes, write_at: capacity_bytes / 4, called_at: None }
        };
        let mut drives: Vec<Drive> = (0..platform.drives).map(|number| drive(number, platform.drive)).collect();
        if platform.flash_cache_bytes > 0 {
            drives.push(drive(platform.drives, FLASH_CACHE));
        }
        BackEnd { drives, flash_hits: platform.flash_hits(), count: platform.drives, write_to: 0 }
    }

    /// Reads from the cache, or from a random place of a drive. Answers which, and when to look at it if that is new.
    pub(super) fn read(
        &mut self,
        now: Time,
        token: u64,
        length: u32,
        chance: &mut Chance,
    ) -> (DriveNumber, Option<Time>) {
        let is_cached = chance.fraction() < self.flash_hits;
        let number = if is_cached { self.count } else { chance.below(u64::from(self.count)) as u32 };
        let capacity_bytes = self.drives[number as usize].capacity_bytes;
        let offset = chance.below((capacity_bytes - u64::from(length)) / 4096) * 4096;
        (
            number,
            self.submit(
                now,
                number,
                DeviceRequest { token, operation: Operation::Read, offset, length, is_forced: false },
            ),
        )
    }

    /// Writes to the next drive, behind what was written there last.
    pub(super) fn write(&mut self, now: Time, token: u64, length: u32) -> (DriveNumber, Option<Time>) {
        let number = self.write_to;
        self.write_to = (number + 1) % self.count;
        let drive = &mut self.drives[number as usize];
        if drive.write_at + u64::from(length) > drive.capacity_bytes {
            drive.write_at = 0;
        }
        let offset = drive.write_at;
        drive.write_at += u64::from(length);
        (
            number,
            self.submit(
                now,
                number,
                DeviceRequest { token, operation: Operation::Write, offset, length, is_forced: false },
            ),
        )
    }

    fn submit(&mut self, now: Time, number: DriveNumber, request: DeviceRequest) -> Option<Time> {
        let drive = &mut self.drives[number as usize];
        drive.model.submit(now, request);
        drive.call()
    }

    /// The token of what the drive has done by now; `None` if there is no more.
    pub(super) fn done(&mut self, number: DriveNumber, now: Time) -> Option<u64> {
        self.drives[number as usize].model.complete(now).map(|finished| finished.token)
    }

    /// When the drive, which was looked at now, is to be looked at again.
    pub(super) fn again(&mut self, number: DriveNumber) -> Option<Time> {
        let drive = &mut self.drives[number as usize];
        drive.called_at = None;
        drive.call()
    }

    /// Whether the call at `now` is the one that is settled.
    pub(super) fn is_due(&self, number: DriveNumber, now: Time) -> bool {
        self.drives[number as usize].called_at == Some(now)
    }
}

impl Drive {
    /// When it is to be looked at, if that is earlier than what was settled.
    fn call(&mut self) -> Option<Time> {
        let next = self.model.next_completion()?;
        if self.called_at.is_some_and(|at| at <= next) {
            return None;
        }
        self.called_at = Some(next);
        self.called_at
    }
}
