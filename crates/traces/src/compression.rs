//! Decompression by content: a trace may be gzip, zstd or bzip2 whatever its name is.
//!
//! The first bytes decide. Files of several members or frames, one after the other, read as one. Zeros behind the last
//! are passed over, as `gzip` does: tapes and block devices pad files with them.

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// RFC 1952, section 2.3.1.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// RFC 8878, section 3.1.1; in the file in little-endian order.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// "BZh" and the size of a block in units of 100 kB, '1' to '9', precede the first block (the bzip2 manual, `-1` to
/// `-9`).
const BZIP2_MAGIC: &[u8] = b"BZh";
/// The longest of the above with what follows it, bytes.
const MAGIC_BYTES_MAX: u64 = 4;
/// The largest zstd window that is accepted, as a power of two: 128 MiB, the `zstd` command's own limit. Files that
/// were made without `--long` or `--ultra` need at most 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// The bytes behind `input`, decompressed if they are compressed. Fails only where `input` does.
pub(crate) fn decompressed(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::new();
    input.by_ref().take(MAGIC_BYTES_MAX).read_to_end(&mut magic)?;
    let is_bzip2 = magic.starts_with(BZIP2_MAGIC) && magic.get(3).is_some_and(|size| (b'1'..=b'9').contains(size));
    let (is_gzip, is_zstd) = (magic.starts_with(GZIP_MAGIC), magic.starts_with(ZSTD_MAGIC));
    let whole = io::Cursor::new(magic).chain(input);
    Ok(if is_gzip {
        Box::new(Members { part: Part::Between(buffered(whole)), open: |input| Ok(GzDecoder::new(input)) })
    } else if is_zstd {
        Box::new(Members { part: Part::Between(buffered(whole)), open: frame })
    } else if is_bzip2 {
        Box::new(Members { part: Part::Between(buffered(whole)), open: |input| Ok(BzDecoder::new(input)) })
    } else {
        Box::new(whole)
    })
}

fn frame<R: BufRead>(input: R) -> io::Result<zstd::Decoder<'static, R>> {
    let mut decoder = zstd::Decoder::with_buffer(input)?.single_frame();
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// What decompresses one member, and gives back what is behind it.
trait Member<R>: Read {
    fn into_input(self) -> R;
}

impl<R: BufRead> Member<R> for GzDecoder<R> {
    fn into_input(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member<R> for BzDecoder<R> {
    fn into_input(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> Member<R> for zstd::Decoder<'static, R> {
    fn into_input(self) -> R {
        self.finish()
    }
}

/// Members one after the other, and zeros behind the last.
struct Members<R, D> {
    part: Part<R, D>,
    open: fn(R) -> io::Result<D>,
}

/// Where in the file a reader stands.
enum Part<R, D> {
    Between(R),
    In(D),
    /// At the end, or behind what could not be decompressed.
    Behind,
}

impl<R: BufRead, D: Member<R>> Read for Members<R, D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            self.part = match std::mem::replace(&mut self.part, Part::Behind) {
                Part::Behind => return Ok(0),
                Part::Between(mut input) => match is_more(&mut input)? {
                    true => Part::In((self.open)(input)?),
                    false => Part::Behind,
                },
                Part::In(mut member) => match member.read(buffer).map_err(cut_off)? {
                    0 => Part::Between(member.into_input()),
                    count => {
                        self.part = Part::In(member);
                        return Ok(count);
                    }
                },
            };
        }
    }
}

/// Whether anything but zeros follows; passes over these.
fn is_more(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        match (bytes.len(), zeros) {
            (0, _) => return Ok(false),
            (length, zeros) => {
                input.consume(zeros);
                if zeros < length {
                    return Ok(true);
                }
            }
        }
    }
}

/// The decompressors' own words for a file that was cut off differ.
fn cut_off(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the compressed file ends early"),
        _ => error,
    }
}
/// Reads whole buffers, however little arrives at a time. A decompressor that meets broken input drops its output of
/// the same buffer. With buffers of other sizes a broken trace would break at other places.
struct Filling<R> {
    input: R,
    /// What ended the buffer before; it is reported instead of the next.
    failure: Option<io::Error>,
}

fn buffered<R: Read>(input: R) -> BufReader<Filling<R>> {
    BufReader::new(Filling { input, failure: None })
}

impl<R: Read> Read for Filling<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled == 0 => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        Ok(filled)
    }
}
