//! What a logical unit says of itself: INQUIRY, its pages of vital product data (VPD), and its capacity.

use super::geometry::Geometry;
use super::sense::{Answer, Sense};

/// The maker of the unit, padded with spaces to 8 bytes (SPC-5, 6.6.2).
const VENDOR: &[u8; 8] = b"PLIMSOLL";
/// What it is, padded to 16 bytes.
const PRODUCT: &[u8; 16] = b"VOLUME          ";
/// Which edition, 4 bytes.
const REVISION: &[u8; 4] = b"0001";
/// The standards that it follows (SPC-5, table 152): SAM-5, SPC-4, SBC-3, iSCSI.
const VERSIONS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];
/// Bytes of standard inquiry data, with the version descriptors.
const STANDARD_BYTES: usize = 74;
/// Most bytes of a read or a write: the size of the buffer that each of a connection's commands has.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Most blocks of a WRITE SAME: as many as its short form can say.
pub const WRITE_SAME_BLOCKS_MAX: u32 = 65535;
/// Most bytes of all descriptors of one UNMAP.
pub const UNMAP_BYTES_MAX: u64 = 512 << 20;
/// Most descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Bytes that are best given back together, and read or written together: a page.
const GRANULE_BYTES: u32 = 4096;
/// The pages that there are.
const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];

/// By what names a unit is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The iSCSI name of its target.
    pub target: String,
    /// Its serial number, at most 36 bytes of ASCII.
    pub serial: String,
    /// What tells it from every other unit: an NAA identifier, locally assigned (SPC-5, 7.8.6.6.3).
    pub naa: u64,
}

impl Identity {
    /// The identity of the volume called `volume` behind the target called `target`: the same after every start.
    pub fn new(target: &str, volume: &str) -> Identity {
        let naa = 0x3 << 60 | fingerprint(target.as_bytes()) >> 4;
        Identity { target: target.to_owned(), serial: format!("{:016x}", fingerprint(volume.as_bytes()) ^ naa), naa }
    }
}

/// Most blocks of COMPARE AND WRITE: its field has one byte, and it is sent them twice.
pub(super) fn compare_blocks_max(geometry: &Geometry) -> u32 {
    (TRANSFER_BYTES_MAX / 2 / geometry.block_bytes).clamp(1, 255)
}

/// FNV-1a, 64 bits.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Standard inquiry data (SPC-5, 6.6.2). `is_there` is false for a number that no unit has.
pub(super) fn standard(is_there: bool, allocation: usize) -> Answer {
    let mut data = vec![0; STANDARD_BYTES];
    data[0] = if is_there { 0x00 } else { 0x7f };
    // SPC-4; hierarchical numbers, this format.
    (data[2], data[3]) = (0x06, 0x12);
    data[4] = STANDARD_BYTES as u8 - 5;
    // Commands are queued.
    data[7] = 0x02;
    data[8..16].copy_from_slice(VENDOR);
    data[16..32].copy_from_slice(PRODUCT);
    data[32..36].copy_from_slice(REVISION);
    for (place, version) in data[58..66].chunks_exact_mut(2).zip(VERSIONS) {
        place.copy_from_slice(&version.to_be_bytes());
    }
    Answer::of_data(data, allocation)
}

/// A page of vital product data.
pub(super) fn page(page: u8, identity: &Identity, geometry: &Geometry, allocation: usize) -> Answer {
    let body = match page {
        0x00 => PAGES.to_vec(),
        0x80 => identity.serial.as_bytes().to_vec(),
        0x83 => identification(identity),
        0x86 => extended(),
        0xb0 => block_limits(geometry),
        0xb1 => characteristics(geometry),
        0xb2 => provisioning(geometry),
        _ => return Sense::INVALID_FIELD.into(),
    };
    let [high, low] = (body.len() as u16).to_be_bytes();
    let mut data = vec![0, page, high, low];
    data.extend(body);
    Answer::of_data(data, allocation)
}

/// Device identification: of the unit by number and by vendor and serial, of the port, and of the target by name.
fn identification(identity: &Identity) -> Vec<u8> {
    const BINARY: u8 = 0x01;
    const ASCII: u8 = 0x02;
    const ISCSI_UTF8: u8 = 0x53;
    let mut list = Vec::new();
    let mut add = |code: u8, association_and_kind: u8, value: &[u8]| {
        list.extend([code, association_and_kind, 0, value.len() as u8]);
        list.extend(value);
    };
    add(BINARY, 0x03, &identity.naa.to_be_bytes());
    add(ASCII, 0x01, &[VENDOR, identity.serial.as_bytes()].concat());
    // The port and its group have the number 1; protocol identifiers are valid.
    add(0x51, 0x94, &[0, 0, 0, 1]);
    add(0x51, 0x95, &[0, 0, 0, 1]);
    add(ISCSI_UTF8, 0x98, &iscsi_name(&format!("{},t,0x0001", identity.target)));
    add(ISCSI_UTF8, 0xa8, &iscsi_name(&identity.target));
    list
}

/// A name with a zero byte at its end, padded to a multiple of four bytes (SPC-5, 7.8.6.11).
fn iscsi_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// Extended inquiry data: simple tasks only, no protection, groups are understood, the cache is volatile.
fn extended() -> Vec<u8> {
    let mut body = vec![0; 60];
    // GROUP_SUP, SIMPSUP; V_SUP.
    (body[1], body[2]) = (0x11, 0x01);
    body
}

fn block_limits(geometry: &Geometry) -> Vec<u8> {
    let blocks = |bytes: u32| (bytes / geometry.block_bytes).max(1);
    let mut body = vec![0; 60];
    // Zero-length WRITE SAME is refused; so many blocks COMPARE AND WRITE takes.
    (body[0], body[1]) = (0x01, compare_blocks_max(geometry) as u8);
    body[2..4].copy_from_slice(&(blocks(GRANULE_BYTES) as u16).to_be_bytes());
    body[4..8].copy_from_slice(&blocks(TRANSFER_BYTES_MAX).to_be_bytes());
    body[8..12].copy_from_slice(&blocks(TRANSFER_BYTES_MAX).to_be_bytes());
    body[12..16].copy_from_slice(&blocks(TRANSFER_BYTES_MAX).to_be_bytes());
    if !geometry.is_read_only {
        body[16..20].copy_from_slice(&blocks(UNMAP_BYTES_MAX as u32).to_be_bytes());
        body[20..24].copy_from_slice(&UNMAP_DESCRIPTORS_MAX.to_be_bytes());
        body[24..28].copy_from_slice(&blocks(GRANULE_BYTES).to_be_bytes());
        body[28..32].copy_from_slice(&(1u32 << 31).to_be_bytes());
    }
    body[32..40].copy_from_slice(&u64::from(WRITE_SAME_BLOCKS_MAX).to_be_bytes());
    body
}

fn characteristics(geometry: &Geometry) -> Vec<u8> {
    const NOT_ROTATING: u16 = 1;
    const RPM: u16 = 7200;
    let mut body = vec![0; 60];
    let rate = if geometry.is_rotational { RPM } else { NOT_ROTATING };
    body[..2].copy_from_slice(&rate.to_be_bytes());
    body
}

/// Logical block provisioning: what is unmapped reads as zeroes, whether by UNMAP or by WRITE SAME.
fn provisioning(geometry: &Geometry) -> Vec<u8> {
    match geometry.is_read_only {
        true => vec![0, 0, 0, 0],
        false => vec![0, 0xe4, 0x02, 0],
    }
}

/// READ CAPACITY(10): a last block that 32 bits cannot hold is all ones.
pub(super) fn capacity10(geometry: &Geometry) -> Answer {
    let last = u32::try_from(geometry.blocks - 1).unwrap_or(u32::MAX);
    Answer::of_data([last.to_be_bytes(), geometry.block_bytes.to_be_bytes()].concat(), 8)
}

/// READ CAPACITY(16).
pub(super) fn capacity16(geometry: &Geometry, allocation: usize) -> Answer {
    let mut data = vec![0; 32];
    data[..8].copy_from_slice(&(geometry.blocks - 1).to_be_bytes());
    data[8..12].copy_from_slice(&geometry.block_bytes.to_be_bytes());
    data[13] = (GRANULE_BYTES / geometry.block_bytes).max(1).ilog2() as u8;
    if !geometry.is_read_only {
        // LBPME, LBPRZ.
        data[14] = 0xc0;
    }
    Answer::of_data(data, allocation)
}

/// REPORT LUNS: unit 0 is all there is (SPC-5, 6.33).
pub(super) fn units(select: u8, allocation: usize) -> Answer {
    let count = match select {
        0 | 2 => 1,
        1 => 0,
        _ => return Sense::INVALID_FIELD.into(),
    };
    let mut data = vec![0; 8 + 8 * count];
    data[3] = 8 * count as u8;
    Answer::of_data(data, allocation)
}
