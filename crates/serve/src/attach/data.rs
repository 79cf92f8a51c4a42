//! Whether a volume has data anywhere. A volume is formatted only where it has none.
//!
//! Where a volume's bytes are a file's, the holes of that file are passed over: they read as zeroes, encrypted or not.
//! All else is read, by way of the volume itself, up to the first byte that is not zero.

use plimsoll_core::{Span, Time};
use plimsoll_linux::files::open_storage;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes of a read.
const READ_BYTES: u64 = 1 << 20;
/// How often the log has a line of how far a long look is.
const PROGRESS_INTERVAL: Span = Span::from_secs(10);

/// Where a volume may have data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataPlaces {
    /// Anywhere: all of it is read.
    #[default]
    Anywhere,
    /// The parts of this regular file with data; all of it, if the file system cannot say, or for a block device.
    InFile(PathBuf),
    /// Nowhere: it is memory that is new.
    Nowhere,
}

impl DataPlaces {
    /// The first byte of `disk`, which is that volume and has so many bytes, that is not zero.
    ///
    /// # Errors
    /// A read fails, or the program was told to end.
    pub(super) fn first_byte(
        &self,
        volume: &str,
        disk: &File,
        size_bytes: u64,
        is_told_to_end: fn() -> bool,
    ) -> io::Result<Option<u64>> {
        let file = match self {
            DataPlaces::Nowhere => return Ok(None),
            DataPlaces::Anywhere => None,
            DataPlaces::InFile(path) => {
                Some(open_storage(path, false)?).filter(|file| file.metadata().is_ok_and(|it| it.is_file()))
            }
        };
        let (mut at, mut told) = (0, now());
        let mut bytes = vec![0; READ_BYTES.min(size_bytes) as usize];
        while let Some(data) = next_data(file.as_ref(), at, size_bytes)? {
            at = data.start;
            while at < data.end {
                let part = &mut bytes[..(data.end - at).min(READ_BYTES) as usize];
                disk.read_exact_at(part, at)?;
                if let Some(first) = part.iter().position(|byte| *byte != 0) {
                    return Ok(Some(at + first as u64));
                }
                at += part.len() as u64;
                if is_told_to_end() {
                    return Err(io::Error::other(
                        "the daemon was told to end while it looked for data; nothing was formatted",
                    ));
                }
                if now().since(told) >= PROGRESS_INTERVAL {
                    told = now();
                    let percent = at as u128 * 100 / u128::from(size_bytes);
                    tracing::info!("volume {volume}: looking for data before it is formatted: {percent} % hold none");
                }
            }
        }
        Ok(None)
    }
}

/// The kernel's monotonic clock, for lines of progress only.
fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::ZERO + Span::from_secs(now.tv_sec as u64) + Span::from_nanos(now.tv_nsec as u64)
}

/// The next range from `at` on that may have data, before `end`.
fn next_data(file: Option<&File>, at: u64, end: u64) -> io::Result<Option<Range<u64>>> {
    if at >= end {
        return Ok(None);
    }
    let Some(file) = file else { return Ok(Some(at..end)) };
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // No more data.
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(at..end)),
        Err(errno) => return Err(errno.into()),
    };
    let stop = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok((start < end).then(|| start..stop.min(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_BYTES: u64 = 64 << 20;

    fn looked(data: &[(u64, &[u8])]) -> [Option<u64>; 2] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE_BYTES).unwrap();
        for (at, bytes) in data {
            file.as_file().write_all_at(bytes, *at).unwrap();
        }
        [DataPlaces::Anywhere, DataPlaces::InFile(file.path().to_owned())]
            .map(|places| places.first_byte("v", file.as_file(), SIZE_BYTES, || false).unwrap())
    }

    /// Planted break that was seen red: the look ends behind the first range of data.
    #[test]
    fn the_first_byte_that_is_not_zero_is_found_wherever_it_is() {
        assert_eq!(looked(&[]), [None; 2]);
        assert_eq!(looked(&[(5 << 20, &[0; 9000])]), [None; 2], "zeroes that were written are zeroes");
        for at in [0, 4095, (32 << 20) + 1, SIZE_BYTES - 1] {
            assert_eq!(looked(&[(at, &[1])]), [Some(at); 2]);
            let zeroes = vec![0; 4096];
            assert_eq!(looked(&[(at, &[1]), (8 << 20, &zeroes), (SIZE_BYTES - 1, &[2])]), [Some(at); 2]);
        }
    }

    /// Planted break that was seen red: the look does not ask whether the program was told to end.
    #[test]
    fn a_look_ends_when_the_program_is_told_to() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE_BYTES).unwrap();
        let error = DataPlaces::Anywhere.first_byte("v", &file, SIZE_BYTES, || true).unwrap_err();
        assert!(error.to_string().ends_with("nothing was formatted"), "{error}");
    }

    #[test]
    fn memory_that_is_new_is_not_read() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(DataPlaces::Nowhere.first_byte("v", &file, SIZE_BYTES, || false).unwrap(), None);
    }
}
