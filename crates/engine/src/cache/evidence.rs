//! Whether a cache's device has the current cache of its volume, and not an older one.
//!
//! **The intuition.** The device of a cache may be away while its volume is served without it, and come back. What it
//! holds is whole then, and old. So nothing on that device may be the only witness. What was given up, and which cache
//! a volume has, is noted on the volume's side ([`Notes`]), before the deed.
//!
//! **The rule.** A cache is used if its volume's note names it, and it has begun as often as the note says. One that
//! was given up is refused for ever. Where no note stands, only an empty cache is used; for another one an
//! administrator has to confirm it ([`adopt`]).
//!
//! | evidence | where | tells |
//! | --- | --- | --- |
//! | the note of a volume | in the notes directory, and in an attribute of a file | its cache, starts, map |
//! | the mark of a cache that was given up | in the notes directory, by the uuid | that it is never used again |
//! | what the slow device holds | in the note, if only a path names the device | that disks have changed names |
//! | the count of starts | in the cache's superblock | that a copy is older than the note |

use super::{CacheDevice, CacheError, CacheNote, CacheSettings, give_up, noted, refuse_encrypted};
use crate::backend::{Volume, VolumeConfig};
use crate::notes::{DamagedNote, Notes};
use crate::store_identity::{content_of, identity_of};
use plimsoll_cache::store::{Blocks, Identity, OpenError, Report, Superblock, move_to_store, open, probe};
use std::io;

/// A device for reading only: an open runs on it without a write, to see its outcome.
struct Untouched<'d>(&'d mut CacheDevice);

impl Blocks for Untouched<'_> {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(first, into)
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a cache and its volume are called where one is refused.
struct Names<'n> {
    settings: &'n CacheSettings,
    volume: &'n VolumeConfig,
}

impl Names<'_> {
    /// Refuses a cache that was given up, that is not the volume's, or that is older than noted. Answers whether a note
    /// names it.
    fn check_notes(&self, superblock: &Superblock, notes: &Notes) -> Result<bool, CacheError> {
        let Names { settings, volume } = *self;
        let (cache, path, name) = (settings.name.clone(), settings.path.clone(), volume.name.clone());
        let is_given_up = notes.is_given_up(&superblock.uuid).map_err(|source| CacheError::System {
            cache: cache.clone(),
            action: "find out whether it was given up, of",
            path: path.clone(),
            source,
        })?;
        if is_given_up {
            return Err(CacheError::GivenUp { cache, path, volume: name });
        }
        let note = noted(settings, volume).map_err(|mut error| {
            if let CacheError::NoteDamaged { damage, names_another, .. } = &mut error {
                *names_another = damage.remains.bytes("uuid").is_some_and(|uuid| uuid != superblock.uuid);
            }
            error
        })?;
        let Some(note) = note else { return Ok(false) };
        if !note.is_of(&superblock.uuid) {
            return Err(CacheError::Noted { cache, volume: name, note: Box::new(note) });
        }
        let Superblock { starts, generation, .. } = *superblock;
        if starts < note.starts || generation < note.generation {
            let (noted_starts, noted_generation) = (note.starts, note.generation);
            let volume = name;
            return Err(CacheError::Older { cache, path, volume, starts, generation, noted_starts, noted_generation });
        }
        Ok(true)
    }

    /// Refuses a volume if its slow device is known by path only and has other content than noted.
    fn check_content(&self) -> Result<(), CacheError> {
        let Names { settings, volume } = *self;
        let Some(was) = noted(settings, volume)?.and_then(|note| note.content) else { return Ok(()) };
        let (cache, path, volume) = (settings.name.clone(), settings.path.clone(), volume.name.clone());
        let is = content_of(self.volume).map_err(|source| CacheError::System {
            cache: cache.clone(),
            action: "identify the volume of",
            path: path.clone(),
            source,
        })?;
        match is {
            Some(is) if is == was => Ok(()),
            is => Err(CacheError::OtherContent {
                cache,
                volume,
                was,
                is: is.unwrap_or_else(|| "nothing known".to_owned()),
            }),
        }
    }

    /// Adds the content of the cache on the device to a refusal by a damaged note; other errors stay as they are.
    fn with_content(&self, mut error: CacheError, look: impl FnOnce() -> Result<Report, OpenError>) -> CacheError {
        if let CacheError::NoteDamaged { content, .. } = &mut error {
            *content = look()
                .ok()
                .map(|report| (report.units + report.given_up_units, report.dirty_units + report.given_up_dirty_units));
        }
        error
    }

    /// What an open would find, accepting all losses, without touching the device.
    fn look(&self, device: &mut CacheDevice, identity: Identity, superblock: &Superblock) -> Result<Report, OpenError> {
        let config = self.settings.config(superblock.layout.units);
        open(&mut Untouched(device), identity, &config, self.settings.policy, true).map(|opened| opened.report)
    }
}

/// Refuses a cache that was given up, that is not the volume's, or that is older than noted. Answers whether a note
/// names it.
pub(super) fn is_named(
    settings: &CacheSettings,
    volume: &VolumeConfig,
    superblock: &Superblock,
) -> Result<bool, CacheError> {
    match &settings.notes {
        Some(notes) => Names { settings, volume }.check_notes(superblock, notes),
        None => Ok(true),
    }
}

/// Refuses the cache of this superblock if it may be older than its volume. Nothing is written.
pub(super) fn check(
    device: &mut CacheDevice,
    settings: &CacheSettings,
    volume: &VolumeConfig,
    identity: Identity,
    superblock: &Superblock,
) -> Result<(), CacheError> {
    let Some(notes) = settings.notes.as_ref().filter(|_| !volume.backing.is_in_memory()) else { return Ok(()) };
    let names = Names { settings, volume };
    let is_named = names
        .check_notes(superblock, notes)
        .map_err(|error| names.with_content(error, || names.look(device, identity, superblock)))?;
    if is_named {
        return names.check_content();
    }
    match names.look(device, identity, superblock) {
        Ok(Report { units, given_up_units, given_up_dirty_units, dirty_units, lost_pages, .. })
            if units + given_up_units > 0 || lost_pages > 0 =>
        {
            Err(CacheError::Unnoted {
                cache: settings.name.clone(),
                path: settings.path.clone(),
                volume: volume.name.clone(),
                units: units + given_up_units,
                dirty_units: dirty_units + given_up_dirty_units,
            })
        }
        // What cannot be opened is refused where it is opened, with the reason.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Notes, on an administrator's word, that the cache on the device of `settings` belongs to `volume`. Notes so durably;
/// the cache is not changed. Answers what an open would find.
///
/// `is_moved` says that the store has the same bytes under another name. It was moved to another file system, or its
/// loop device came or went. It has not been written since without its cache. Then a note that came along must name
/// this cache, as of its last start ([`moved`]).
///
/// # Errors
/// There is no cache, it is of another store, or it was given up. Or a note says that the volume has another one, or a
/// newer version of it. Where no note is whole, the word stands for it, unless what is left of a damaged one names
/// another cache.
pub fn adopt(settings: &CacheSettings, volume: &Volume, is_moved: bool) -> Result<Report, CacheError> {
    let (config, bytes) = (volume.config(), volume.info().size_bytes);
    refuse_encrypted(config)?;
    let mut device = CacheDevice::open(settings, false)?;
    let wrong = |source| CacheError::Open { cache: settings.name.clone(), path: settings.path.clone(), source };
    let mut superblock = probe(&mut device).map_err(wrong)?;
    let identity = identity_of(config, bytes).map_err(device.system("identify the volume of"))?;
    let names = Names { settings, volume: config };
    let has_moved = is_moved && superblock.store != identity.store;
    if has_moved {
        superblock = moved(&mut device, &names, identity, &superblock)?;
    }
    let is_noted = match settings.notes.as_ref().map_or(Ok(true), |notes| names.check_notes(&superblock, notes)) {
        // The administrator's word stands for the note.
        Err(CacheError::NoteDamaged { names_another: false, .. }) => false,
        is_noted => is_noted?,
    };
    let report = names.look(&mut device, identity, &superblock).map_err(wrong)?;
    let needs_note = has_moved || !is_noted || names.check_content().is_err();
    if let Some(notes) = settings.notes.as_ref().filter(|_| needs_note) {
        let content = content_of(config).map_err(device.system("identify the volume of"))?;
        let note = CacheNote { content, ..CacheNote::new(&config.name, &settings.name, &settings.path, &superblock) };
        let noted = notes.put(config, &note).and_then(|()| notes.remove_damaged::<CacheNote>(config));
        noted.map_err(device.system("note the existence of"))?;
    }
    Ok(report)
}

/// Gives the cache of `superblock` to the store of `identity`, which is the cache's store under another name.
///
/// **The evidence.** A note of exactly these bytes came along, in an attribute of the file or by its path. It names
/// this cache by its uuid, and says that the cache has begun as often as its superblock counts. So the file is no copy
/// from before the last start: the cache would have begun more often. A copy that was taken since is not told from the
/// file itself: that it is not one is the administrator's word.
///
/// **The order.** The device first, which counts a start, and then the note. A crash in between leaves a cache of this
/// store without a note, and the same command then finishes the work. The store under its old name is refused from then
/// on: the cache is of another one.
fn moved(
    device: &mut CacheDevice,
    names: &Names<'_>,
    identity: Identity,
    superblock: &Superblock,
) -> Result<Superblock, CacheError> {
    let Names { settings, volume } = *names;
    let (cache, path, name) = (settings.name.clone(), settings.path.clone(), volume.name.clone());
    let Some(notes) = settings.notes.as_ref().filter(|_| !volume.backing.is_in_memory()) else {
        let source = OpenError::OtherStore;
        return Err(CacheError::Open { cache, path, source });
    };
    // It was not given up, and no note names another one.
    match names.check_notes(superblock, notes) {
        Err(CacheError::NoteDamaged { names_another: false, .. }) => {}
        checked => drop(checked?),
    }
    let found = notes.of_same_bytes::<CacheNote>(volume).map_err(device.system("read the notes of"))?;
    let of_cache: Vec<&CacheNote> = found.iter().filter(|note| note.is_of(&superblock.uuid)).collect();
    let is_evidence = |note: &&CacheNote| {
        note.starts == superblock.starts && note.generation <= superblock.generation && note.leaving.is_none()
    };
    let why = match of_cache.iter().copied().find(is_evidence) {
        Some(note) => note.why_not_of(&volume.name),
        None => Some(match of_cache.first() {
            None => "no note that is attached to the slow file names this cache".to_owned(),
            Some(note) => format!(
                "the note that is attached to the slow file is of start {} of the cache, which has started {} times: \
                 the slow file is an older copy",
                note.starts, superblock.starts
            ),
        }),
    };
    if let Some(why) = why {
        return Err(CacheError::NoEvidence { cache, path, volume: name, why });
    }
    // What cannot be opened, or is of a store of another size, is refused with the reason, untouched.
    let of_store = Identity { store: superblock.store, ..identity };
    let wrong = |source| CacheError::Open { cache: settings.name.clone(), path: settings.path.clone(), source };
    names.look(device, of_store, superblock).map_err(wrong)?;
    move_to_store(device, identity.store).map_err(wrong)
}

/// Removes what is left of the note of `volume`, which has no whole copy. A cache that can still be read there is given
/// up by a mark on it. Any other cache is refused from now on, as one that no note names.
///
/// # Errors
/// The system's, or a newer program wrote a copy.
pub fn forget_damaged_note(notes: &Notes, volume: &VolumeConfig) -> io::Result<()> {
    if let Err(error) = notes.get::<CacheNote>(volume)
        && let Some(uuid) = DamagedNote::behind(&error).and_then(|damage| damage.remains.bytes("uuid"))
    {
        notes.give_up(&uuid)?;
    }
    if let Some(note) = notes.remove::<CacheNote>(volume)? {
        notes.give_up(&note.uuid)?;
    }
    Ok(())
}

/// What became of a cache that is forgotten. In any case it is noted that it was given up, and it is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// It was given up on its device.
    OnDevice,
    /// What is at its path is not that cache: its device is elsewhere.
    Elsewhere,
    /// What is at its path cannot be opened, or read: it may be there.
    Unreadable,
    /// It is the cache of the file that this one was copied or moved from. It stays as it is.
    OfOriginal,
    /// It is another file's now, which it followed ([`adopt`] of a moved one). It stays as it is.
    OfMoved,
}

/// Forgets that `volume` had a cache: the volume is served without the cache's dirty data. Answers which cache it was,
/// and whether it was given up on its device, too. A note says first that it is given up.
///
/// # Errors
/// The system's, another process has the cache's device, or it is noted of a volume of another name.
pub fn forget(notes: &Notes, volume: &VolumeConfig) -> io::Result<Option<(CacheNote, Forgotten)>> {
    let Some(note) = notes.get::<CacheNote>(volume)? else {
        // The cache is the original's, and stays.
        let note = Notes::remove_of_its_original::<CacheNote>(volume)?;
        note.as_ref().map_or(Ok(()), |note| notes.serve_without(volume, &note.uuid))?;
        return Ok(note.map(|note| (note, Forgotten::OfOriginal)));
    };
    if let Some(why) = note.why_not_of(&volume.name) {
        return Err(io::Error::other(why));
    }
    let device = match CacheDevice::open_existing(&note.cache, &note.path) {
        Err(error @ (CacheError::Locked { .. } | CacheError::InUse { .. })) => return Err(io::Error::other(error)),
        opened => opened.ok(),
    };
    let (mut device, store) = (device, identity_of(volume, 0)?.store);
    let found = device.as_mut().map(|device| probe(device));
    // The note is from before the move, which counts a start.
    let is_of_moved = |superblock: &Superblock| {
        note.is_of(&superblock.uuid) && superblock.store != store && superblock.starts > note.starts
    };
    if found.as_ref().is_some_and(|found| found.as_ref().is_ok_and(is_of_moved)) {
        notes.remove::<CacheNote>(volume)?;
        return Ok(Some((note, Forgotten::OfMoved)));
    }
    notes.give_up(&note.uuid)?;
    let forgotten = match device.zip(found) {
        None => Forgotten::Unreadable,
        Some((mut device, found)) => match found {
            Ok(superblock) if note.is_of(&superblock.uuid) => {
                give_up(&mut device, &superblock)?;
                Forgotten::OnDevice
            }
            Ok(_) | Err(OpenError::NoCache | OpenError::NoSuperblock) => Forgotten::Elsewhere,
            Err(error) => {
                let (cache, path) = (&note.cache, note.path.display());
                tracing::error!(cache, %path, %error, "cannot find out whether the cache is still there");
                Forgotten::Unreadable
            }
        },
    };
    notes.remove::<CacheNote>(volume)?;
    Ok(Some((note, forgotten)))
}
