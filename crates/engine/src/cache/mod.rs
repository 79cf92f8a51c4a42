//! A volume's cache: its settings, making it on its device, and finding it there again.
//!
//! All of this is done on control threads, before an engine has the cache: [`FoundCache`] is what it is handed
//! ([`EngineHandle::attach_cache`](crate::EngineHandle::attach_cache)). What it then does with it stands in
//! `volume_cache`, what the cache itself does in `plimsoll_cache::store`.
//!
//! **A cache is made by an explicit command and never by a start.** A device without a cache, or with another store's,
//! may replace a lost one that had the only copy of data. Then the volume is not served, rather than what the slow
//! device has. A volume in memory is empty at each start, and its cache is made anew.

mod device;
mod error;
mod evidence;
mod note;
mod pools;
mod rescue;
mod served;
mod unserved;

pub(crate) use device::CacheDevice;
pub use error::CacheError;
pub use evidence::{Forgotten, adopt, forget, forget_damaged_note};
pub use note::{CacheNote, Leaving};
pub(crate) use pools::numbered;
pub use rescue::rescue;
pub use served::{cached_bytes_of, cached_bytes_on, noted_cache_on};
pub use unserved::{BelongsBy, UnservedCache, forget_unserved, unserved_cache};

use crate::backend::{Backing, Volume, VolumeConfig};
use crate::emulation::Emulation;
use crate::notes::{DamagedNote, Notes};
use crate::store_identity::{self, identity_of};
use plimsoll_cache::config::{WATERMARK_HIGH_PARTS, WATERMARK_LOW_PARTS};
use plimsoll_cache::store::layout::SUPERBLOCKS;
use plimsoll_cache::store::{
    BLOCK_BYTES, Blocks, CacheStore, Depth, Layout, OpenError, Opened, Report, Semantics, Superblock, WriteBack,
    format, open, probe,
};
use plimsoll_cache::{CacheConfig, PolicyEntry};
use plimsoll_core::class::Scheme;
use plimsoll_core::{ByteCount, Span};
use plimsoll_devices::DeviceModel;
use std::io;
use std::path::PathBuf;

/// The smallest cache, bytes.
pub const CACHE_BYTES_MIN: u64 = 128 << 10;
/// The largest one.
pub const CACHE_BYTES_MAX: u64 = plimsoll_cache::store::layout::BYTES_MAX;

/// The allowed sizes of a cache in words, if `bytes` is none of them, for configurations and commands.
pub fn sizes_instead_of(bytes: u64) -> Option<String> {
    let is_allowed = (CACHE_BYTES_MIN..=CACHE_BYTES_MAX).contains(&bytes);
    (!is_allowed).then(|| format!("{} to {}", ByteCount(CACHE_BYTES_MIN), ByteCount(CACHE_BYTES_MAX)))
}
/// Bounds on work under way: blocks of requests, and units that are cleaned.
pub(crate) const DEPTH: Depth = Depth { requests: 256, cleaning: 64 };

/// How much of a cache may be dirty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DirtyMax {
    /// A part of its units, above 0 to 1.
    Part(f64),
    /// Bytes, 4096 or more.
    Bytes(u64),
}

/// What a configuration calls the moment at which a write is acknowledged.
pub fn semantics_name(semantics: Semantics) -> &'static str {
    match semantics {
        Semantics::WriteCache => "write-cache",
        Semantics::Strict => "strict",
        Semantics::WriteThrough => "write-through",
    }
}

/// What a cache is made from.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// What people call it.
    pub name: String,
    /// The fast device, or a file on it.
    pub path: PathBuf,
    /// Bytes to use when the cache is made; `None` for all of the device. A file is made as long.
    pub size_bytes: Option<u64>,
    /// Which block leaves next, and which comes in.
    pub policy: &'static PolicyEntry,
    /// The classes.
    pub scheme: Scheme,
    /// Whether reads take blocks in.
    pub promotes_reads: bool,
    /// The part of the units below which the syncer wakes up, above 0 to 1.
    pub watermark_low: f64,
    /// The part at which it goes to sleep, from `watermark_low` to 1.
    pub watermark_high: f64,
    /// Pools and sessions, by their accounts' paths, and the largest part of the cache for their blocks, above 0 to 1.
    pub pools: Vec<(String, f64)>,
    /// When a write is acknowledged.
    pub semantics: Semantics,
    /// How much may be dirty at once; `None`: everything.
    pub dirty_max: Option<DirtyMax>,
    /// How long a block may be dirty, if the slow device answers writes within half of that; `None`: for ever.
    pub dirty_age: Option<Span>,
    /// After how long without a request everything is written back; `None`: never.
    pub idle_write_back: Option<Span>,
    /// What is damaged may be forgotten.
    pub accepts_losses: bool,
    /// The notes that say that a volume has a cache; `None`: there are none.
    pub notes: Option<Notes>,
    /// For hashes. `None`: an unknown one is drawn when the cache is found, and no client can choose blocks that meet
    /// in one bucket of the index. A test that wants two runs to be alike gives one.
    pub seed: Option<u64>,
}

impl CacheSettings {
    /// Usual settings.
    pub fn new(name: &str, path: PathBuf, policy: &'static PolicyEntry, scheme: Scheme) -> CacheSettings {
        CacheSettings {
            name: name.to_owned(),
            path,
            size_bytes: None,
            policy,
            scheme,
            promotes_reads: true,
            watermark_low: 1.0 / f64::from(WATERMARK_LOW_PARTS),
            watermark_high: 1.0 / f64::from(WATERMARK_HIGH_PARTS),
            pools: Vec::new(),
            semantics: Semantics::default(),
            dirty_max: None,
            dirty_age: None,
            idle_write_back: None,
            accepts_losses: false,
            notes: None,
            seed: None,
        }
    }

    /// The same in units of a cache that has so many.
    pub fn config(&self, units: u32) -> CacheConfig {
        let of = |part: f64| ((f64::from(units) * part) as u32).clamp(1, units);
        let (low, high) = (of(self.watermark_low), of(self.watermark_high));
        let part_of =
            |path: &str| self.pools.iter().find(|(bounded, _)| bounded == path).map_or(1.0, |(_, part)| *part);
        let pools = numbered(self.pools.iter().map(|(path, _)| &**path)).into_iter();
        CacheConfig {
            watermark_low: low.min(high),
            watermark_high: high,
            promotes_reads: self.promotes_reads,
            pools: pools.map(|(path, pool)| (pool, part_of(path))).collect(),
            is_on_device: true,
            seed: self.seed.unwrap_or_default(),
            ..CacheConfig::new(units, self.scheme.clone())
        }
    }

    /// When a cache of so many units writes back early.
    pub(crate) fn write_back(&self, units: u32) -> WriteBack {
        let of = |most| match most {
            DirtyMax::Part(part) => (f64::from(units) * part) as u32,
            DirtyMax::Bytes(bytes) => (bytes / BLOCK_BYTES as u64).min(units.into()) as u32,
        };
        WriteBack {
            dirty_units_max: self.dirty_max.map(|most| of(most).clamp(1, units)),
            age_max: self.dirty_age,
            idle_after: self.idle_write_back,
        }
    }

    /// Whether time alone makes it write something back.
    pub(crate) fn is_timed(&self) -> bool {
        self.dirty_max.is_some() || self.dirty_age.is_some() || self.idle_write_back.is_some()
    }

    /// Draws a seed, if none is given.
    fn draw_seed(&mut self) -> io::Result<()> {
        if self.seed.is_none() {
            self.seed = Some(u128::from_le_bytes(store_identity::random()?) as u64);
        }
        Ok(())
    }
}

/// A cache that was found on its device, for a volume.
pub struct FoundCache {
    pub(crate) settings: CacheSettings,
    pub(crate) machine: Box<CacheStore>,
    pub(crate) device: CacheDevice,
    /// How long the device takes, if it is emulated.
    pub(crate) emulation: Option<Emulation>,
    /// What was found.
    pub report: Report,
}

fn refuse_encrypted(volume: &VolumeConfig) -> Result<(), CacheError> {
    match volume.backing.is_encrypted() {
        true => Err(CacheError::Encrypted { volume: volume.name.clone() }),
        false => Ok(()),
    }
}

/// Makes an empty cache for `volume`. The content of its device is lost, with the dirty data of a cache there.
///
/// # Errors
/// The device cannot be opened or written, or is too small; or there is a cache, or was one, and `replaces` is false.
///
/// Answers the units that it has.
pub fn make(
    settings: &CacheSettings,
    volume: &VolumeConfig,
    volume_bytes: u64,
    replaces: bool,
) -> Result<u32, CacheError> {
    refuse_encrypted(volume)?;
    let (cache, path) = (settings.name.clone(), settings.path.clone());
    // Its device may be away, and what is at its path now another one.
    let note = match noted(settings, volume) {
        Err(CacheError::NoteDamaged { .. }) if replaces => None,
        note => note?,
    };
    if let Some(note) = note.filter(|note| !replaces && note.leaving.is_none()) {
        return Err(CacheError::Noted { cache, volume: volume.name.clone(), note: Box::new(note) });
    }
    let mut device = CacheDevice::open(settings, true)?;
    match probe_to_make(&mut device) {
        _ if replaces => {}
        Err(OpenError::NoCache) => device.refuse_content()?,
        Err(source @ OpenError::Device(_)) => return Err(CacheError::Open { cache, path, source }),
        _ => return Err(CacheError::Exists { cache, path }),
    }
    make_on(&mut device, settings, volume, volume_bytes)
}

/// The cache on a device that is going to get one. A file too short for superblocks has none and grows later.
fn probe_to_make(device: &mut CacheDevice) -> Result<Superblock, OpenError> {
    if device.blocks() < SUPERBLOCKS {
        return Err(OpenError::NoCache);
    }
    probe(device)
}

/// What is noted of the cache of `volume`.
fn noted(settings: &CacheSettings, volume: &VolumeConfig) -> Result<Option<CacheNote>, CacheError> {
    let Some(notes) = &settings.notes else { return Ok(None) };
    let (cache, path) = (settings.name.clone(), settings.path.clone());
    notes.get(volume).map_err(|source| match DamagedNote::behind(&source) {
        Some(damage) => {
            let (damage, volume) = (Box::new(damage.clone()), volume.name.clone());
            CacheError::NoteDamaged { cache, path, volume, damage, content: None, names_another: false }
        }
        None => CacheError::System { cache, action: "read the note of", path, source },
    })
}

/// Says whether a cache can be made of this size on its device.
///
/// # Errors
/// No cache can have this size, the device is too small, or its file system has no room for so long a file.
pub fn check_size(settings: &CacheSettings) -> Result<(), CacheError> {
    let CacheSettings { name, path, size_bytes, .. } = settings;
    if let Some((bytes, allowed)) = size_bytes.and_then(|bytes| Some((bytes, sizes_instead_of(bytes)?))) {
        return Err(CacheError::Size { cache: name.clone(), bytes, allowed });
    }
    let system = |source| CacheError::System { cache: name.clone(), action: "measure", path: path.clone(), source };
    let (has_bytes, can_grow) = CacheDevice::measure(path).map_err(system)?;
    let (wanted_bytes, cache, path) = (size_bytes.unwrap_or(has_bytes), name.clone(), path.clone());
    if wanted_bytes < CACHE_BYTES_MIN {
        return Err(CacheError::TooSmall { cache, path, bytes: wanted_bytes });
    }
    if wanted_bytes > has_bytes && !can_grow {
        return Err(CacheError::TooLarge { cache, path, has_bytes, wanted_bytes });
    }
    let room_bytes = CacheDevice::room(&path).unwrap_or(u64::MAX);
    if can_grow && wanted_bytes.saturating_sub(has_bytes) > room_bytes {
        return Err(CacheError::NoRoom { cache, path, room_bytes, wanted_bytes });
    }
    Ok(())
}

fn make_on(
    device: &mut CacheDevice,
    settings: &CacheSettings,
    volume: &VolumeConfig,
    volume_bytes: u64,
) -> Result<u32, CacheError> {
    check_size(settings)?;
    let CacheSettings { name, path, size_bytes, .. } = settings;
    size_bytes.map_or(Ok(()), |size_bytes| device.grow(size_bytes))?;
    let bytes = size_bytes.unwrap_or(u64::MAX).min(device.bytes());
    let too_small = || CacheError::TooSmall { cache: name.clone(), path: path.clone(), bytes };
    let layout = Layout::of_device(bytes / BLOCK_BYTES as u64).ok_or_else(too_small)?;
    let identity = identity_of(volume, volume_bytes).map_err(device.system("tell what is before"))?;
    let uuid = store_identity::random().map_err(device.system("draw a name for"))?;
    if let Some(notes) = settings.notes.as_ref().filter(|_| !volume.backing.is_in_memory()) {
        // The caches that this gives up, on this device or on one that is away.
        let there = probe(device).ok().map(|superblock| superblock.uuid);
        // A damaged note is replaced as well: that was asked for before.
        let had = match noted(settings, volume) {
            Err(CacheError::NoteDamaged { damage, .. }) => damage.remains.bytes("uuid"),
            note => note?.map(|note| note.uuid),
        };
        let given_up = there.iter().chain(&had).try_for_each(|uuid| notes.give_up(uuid));
        given_up.map_err(device.system("note that the old cache is given up on"))?;
    }
    format(device, identity, uuid, layout).map_err(|source| CacheError::Format { cache: name.clone(), source })?;
    if let Some(notes) = &settings.notes {
        notes.remove::<CacheNote>(volume).map_err(device.system("remove the note of"))?;
    }
    Ok(layout.units)
}

/// The same on a device without a cache, or with one of this volume. The volume was served without it, so its content
/// is old. Any other cache may have data that only it has.
fn make_anew(
    device: &mut CacheDevice,
    settings: &CacheSettings,
    volume: &VolumeConfig,
    volume_bytes: u64,
) -> Result<u32, CacheError> {
    let (cache, path) = (settings.name.clone(), settings.path.clone());
    noted(settings, volume)?;
    let store = identity_of(volume, volume_bytes).map_err(device.system("identify the volume of"))?.store;
    match probe_to_make(device) {
        Err(OpenError::NoCache) => device.refuse_content()?,
        Ok(superblock) if superblock.store == store => {}
        Err(source @ OpenError::Device(_)) => return Err(CacheError::Open { cache, path, source }),
        _ => return Err(CacheError::Exists { cache, path }),
    }
    make_on(device, settings, volume, volume_bytes)
}

impl FoundCache {
    /// The same on a device that takes the time of `model`. What it is on must be a file in memory: the engine's thread
    /// waits for it. Replies that are later than `lateness_bound` are counted as late
    /// ([`CacheStatus::emulation`](crate::CacheStatus::emulation)).
    pub fn emulated(self, model: Box<dyn DeviceModel + Send>, lateness_bound: Span) -> FoundCache {
        FoundCache { emulation: Some(Emulation::new(model, lateness_bound)), ..self }
    }

    /// Finds the cache of `volume`, and makes it if the volume is in memory. A daemon may have been killed while it
    /// gave the cache another size: then the cache is made with that size.
    ///
    /// # Errors
    /// There is none, it is of another store, or it is damaged; and as for [`make`].
    pub fn find(mut settings: CacheSettings, volume: &Volume) -> Result<FoundCache, CacheError> {
        let (config, volume_bytes) = (volume.config(), volume.info().size_bytes);
        refuse_encrypted(config)?;
        let is_in_memory = config.backing.is_in_memory();
        let mut device = CacheDevice::open(&settings, is_in_memory)?;
        let resize_bytes = unfinished_resize(&mut device, &settings, config)?;
        if let Some(size_bytes) = resize_bytes {
            tracing::warn!(
                cache = settings.name,
                volume = config.name,
                size_bytes,
                "an earlier daemon gave the cache up to change its size and did not make it again: everything is on \
                 the slow device, and the cache is made now"
            );
            settings.size_bytes = Some(size_bytes);
        }
        if is_in_memory || resize_bytes.is_some() {
            make_anew(&mut device, &settings, config, volume_bytes)?;
        }
        FoundCache::on(device, settings, config, volume_bytes)
    }

    /// Finds or makes the cache of a volume that an engine has. `makes` says whether to make a new one.
    ///
    /// # Errors
    /// As for [`find`](Self::find).
    pub fn find_or_make(
        settings: CacheSettings,
        volume: &VolumeConfig,
        volume_bytes: u64,
        makes: bool,
    ) -> Result<FoundCache, CacheError> {
        refuse_encrypted(volume)?;
        let mut device = CacheDevice::open(&settings, makes)?;
        if makes {
            make_anew(&mut device, &settings, volume, volume_bytes)?;
        }
        FoundCache::on(device, settings, volume, volume_bytes)
    }

    fn on(
        mut device: CacheDevice,
        mut settings: CacheSettings,
        volume: &VolumeConfig,
        volume_bytes: u64,
    ) -> Result<FoundCache, CacheError> {
        if volume.is_read_only {
            return Err(CacheError::ReadOnly { volume: volume.name.clone() });
        }
        settings.draw_seed().map_err(device.system("draw a seed for"))?;
        warn_of_path(volume).map_err(device.system("identify the volume of"))?;
        let wrong = |source| CacheError::Open { cache: settings.name.clone(), path: settings.path.clone(), source };
        let superblock = probe(&mut device).map_err(wrong)?;
        let config = settings.config(superblock.layout.units);
        let identity = identity_of(volume, volume_bytes).map_err(device.system("identify the volume of"))?;
        evidence::check(&mut device, &settings, volume, identity, &superblock)?;
        let accepts = settings.accepts_losses;
        let mut opened: Opened = open(&mut device, identity, &config, settings.policy, accepts).map_err(wrong)?;
        let report = opened.report;
        if report.has_losses() {
            // It is found once: should this start fail later, no other line would say so.
            let (cache, Report { lost_pages, lost_journal_blocks, .. }) = (&settings.name, report);
            let Report { given_up_units, given_up_dirty_units, .. } = report;
            tracing::error!(
                cache,
                volume = volume.name,
                lost_pages,
                lost_journal_blocks,
                given_up_units,
                given_up_dirty_units,
                "damaged parts of the cache are given up, because accept_losses is set"
            );
        }
        opened.count_start(&mut device).map_err(|source| wrong(source.into()))?;
        if let Some(notes) = &settings.notes {
            let content = store_identity::content_of(volume).map_err(device.system("tell what is before"))?;
            let note = CacheNote::new(&volume.name, &settings.name, &settings.path, opened.superblock());
            let note = CacheNote { content, ..note };
            let noted = notes.mend::<CacheNote>(volume).and_then(|()| notes.put(volume, &note));
            noted.map_err(device.system("note the existence of"))?;
        }
        let machine = Box::new(CacheStore::new(opened, settings.semantics, DEPTH));
        Ok(FoundCache { settings, machine, device, emulation: None, report })
    }
}

/// Size of the cache that a daemon was about to make when it ended, after it had given up the former one. `None` also
/// where that one is still there.
fn unfinished_resize(
    device: &mut CacheDevice,
    settings: &CacheSettings,
    volume: &VolumeConfig,
) -> Result<Option<u64>, CacheError> {
    let note = match noted(settings, volume) {
        // What the cache on the device has is told where it is opened.
        Err(CacheError::NoteDamaged { .. }) => return Ok(None),
        note => note?,
    };
    let Some(CacheNote { uuid, leaving: Some(Leaving::Resize { size_bytes }), .. }) = note else { return Ok(None) };
    let is_given_up = settings.notes.as_ref().map_or(Ok(false), |notes| notes.is_given_up(&uuid));
    let is_given_up = is_given_up.map_err(device.system("find out whether it was given up, of"))?;
    let is_there = probe_to_make(device).is_ok_and(|superblock| superblock.uuid == uuid);
    Ok((is_given_up || !is_there).then_some(size_bytes))
}

/// Says where nothing but its path tells a slow device from others.
fn warn_of_path(volume: &VolumeConfig) -> io::Result<()> {
    if let Backing::File { path, .. } = &volume.backing
        && store_identity::is_known_by_path_only(path)?
    {
        let (volume, path) = (&volume.name, path.display());
        tracing::warn!(volume, %path, "the slow device has no serial number and no UUID: the cache identifies it by \
                                       this path only");
    }
    Ok(())
}

/// Gives up the cache of this superblock, which no engine uses: later opens do not find it on its device. May be done
/// again if it failed half-way.
///
/// # Errors
/// The device's.
pub(crate) fn give_up(device: &mut dyn Blocks, superblock: &Superblock) -> io::Result<()> {
    let identity = plimsoll_cache::store::Identity { store: superblock.store, store_blocks: superblock.store_blocks };
    let uuid = store_identity::random()?;
    plimsoll_cache::store::give_up(device, identity, uuid, superblock.layout).map_err(io::Error::other)?;
    Ok(())
}

#[cfg(test)]
mod tests;
