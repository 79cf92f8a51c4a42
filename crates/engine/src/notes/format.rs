//! Format of a note, and what of it counts when it is damaged.
//!
//! A note is JSON with a version. There are three cases: a whole note, a note of a newer program (which is whole and
//! must not be skipped), and a damaged note. Of a damaged note a few numbers may still be readable ([`Remains`]):
//! another copy stands for it only if they agree.

use plimsoll_linux::files::WrongKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use thiserror::Error;

/// Something that is noted of a volume.
pub trait Note: Serialize + DeserializeOwned + PartialEq {
    /// What it is about, such as `cache`: the first word of its file's name.
    const ABOUT: &'static str;
    /// Version of its format.
    const VERSION: u32;

    /// Whether it lies beside a store that is a regular file, too.
    const LIES_ON_STORE: bool = false;

    /// The version that it was written with: from 1 to [`VERSION`](Self::VERSION) all can be read.
    fn version(&self) -> u32;

    /// Whether this copy says all that a damaged copy said, as far as `remains` tell.
    fn stands_for(&self, _remains: &Remains) -> bool {
        true
    }
}

/// What can still be read of a damaged note: whole numbers behind their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    text: String,
}

impl Remains {
    fn of(bytes: &[u8]) -> Remains {
        Remains { text: String::from_utf8_lossy(bytes).into_owned() }
    }

    /// What follows `"name":`. A quoted name inside a string has backslashes before its quotes, so no string is taken
    /// for a name.
    fn behind(&self, name: &str) -> Option<&str> {
        self.text.split_once(&format!("\"{name}\":")).map(|(_, rest)| rest)
    }

    /// The number of that name, if what ends it can be read, too.
    pub fn number(&self, name: &str) -> Option<u64> {
        let rest = self.behind(name)?;
        rest[..rest.find([',', '}'])?].parse().ok()
    }

    /// The sixteen bytes of that name, if all can be read.
    pub fn bytes(&self, name: &str) -> Option<[u8; 16]> {
        let rest = self.behind(name)?;
        serde_json::from_str(&rest[..=rest.find(']')?]).ok()
    }
}

/// A note is there and cannot be read.
#[derive(Clone, Debug, Error)]
#[error("{place} is no note of a {about}: {why}")]
pub struct DamagedNote {
    /// Its file, or the attribute of a file.
    pub place: String,
    /// What it should be about.
    pub about: &'static str,
    /// What is wrong with it.
    pub why: String,
    /// What can be read of it.
    pub remains: Remains,
}

impl DamagedNote {
    /// The damaged note that `error` tells of, if it tells of one.
    pub fn behind(error: &io::Error) -> Option<&DamagedNote> {
        error.get_ref()?.downcast_ref()
    }
}

/// A note beside its store, and of which store it is.
#[derive(Serialize)]
pub(super) struct OnStore<N> {
    /// What the store is known by, in hexadecimal digits.
    pub(super) store: String,
    pub(super) note: N,
}

/// The note in `bytes`, which are at `place`.
pub(super) fn decode<N: Note>(place: &str, bytes: &[u8]) -> io::Result<N> {
    let value = serde_json::from_slice(bytes).map_err(|error| damaged::<N>(place, bytes, error.to_string()))?;
    decode_value(place, bytes, value)
}

/// The same of one beside its store.
pub(super) fn decode_on_store<N: Note>(place: &str, bytes: &[u8]) -> io::Result<OnStore<N>> {
    let whole: Value = serde_json::from_slice(bytes).map_err(|error| damaged::<N>(place, bytes, error.to_string()))?;
    let note = decode_value(place, bytes, whole.get("note").cloned().unwrap_or_default())?;
    let store = whole.get("store").and_then(Value::as_str).map(str::to_owned);
    let store = store.ok_or_else(|| damaged::<N>(place, bytes, "it does not say of which store it is".to_owned()))?;
    Ok(OnStore { store, note })
}

fn decode_value<N: Note>(place: &str, bytes: &[u8], value: Value) -> io::Result<N> {
    // A newer program may have written more than this one knows: that is no damage.
    if let Some(version) = value.get("version").and_then(Value::as_u64).filter(|&version| version > N::VERSION.into()) {
        let (about, last) = (N::ABOUT, N::VERSION);
        let what = format!("{place} is no note of a {about}: its version is {version}, expected 1 to {last}");
        return Err(io::Error::other(what));
    }
    let note: N = serde_json::from_value(value).map_err(|error| damaged::<N>(place, bytes, error.to_string()))?;
    match note.version() {
        0 => Err(damaged::<N>(place, bytes, format!("its version is 0, expected 1 to {}", N::VERSION))),
        _ => Ok(note),
    }
}

fn damaged<N: Note>(place: &str, bytes: &[u8], why: String) -> io::Error {
    let (place, remains) = (place.to_owned(), Remains::of(bytes));
    io::Error::other(DamagedNote { place, about: N::ABOUT, why, remains })
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Says that what is at `place` cannot be read off its device, or is no file; other errors stay as they are.
pub(super) fn unreadable<N: Note>(place: &str, error: io::Error) -> io::Error {
    let is_damage = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    match is_damage || WrongKind::behind(&error).is_some() {
        true => damaged::<N>(place, &[], error.to_string()),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: a number without its end is taken.
    #[test]
    fn of_a_damaged_note_whole_numbers_are_read_and_no_parts_of_them() {
        let text =
            r#"{"path":"/\"starts\":9,","uuid":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"starts":12,"generation":34"#;
        let of = |length: usize| Remains::of(&text.as_bytes()[..length]);
        let all = of(text.len());
        assert_eq!((all.number("starts"), all.number("generation")), (Some(12), None));
        assert_eq!(all.bytes("uuid"), Some(std::array::from_fn(|at| at as u8 + 1)));
        let within_uuid = of(text.find("16]").unwrap());
        assert_eq!((within_uuid.bytes("uuid"), within_uuid.number("starts")), (None, None));
        assert_eq!(Remains::of(b"\xff\xfe").bytes("uuid"), None);
    }
}
