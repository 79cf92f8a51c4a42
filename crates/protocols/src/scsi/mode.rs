//! Mode pages: what an initiator may know of, and set in, how the unit behaves.
//!
//! | page | what it says |
//! | --- | --- |
//! | 08h caching | writes are answered before they are durable, flushes make them so |
//! | 0ah control | commands may be reordered; which sense format; a write protection that an initiator can set |
//! | 0ah/05h I/O advice hints grouping | each of the 32 groups is a class of its own, and nothing is promised by it |

use super::sense::{Answer, Sense};

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const GROUPING: u8 = 0x05;
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;
/// Groups that five bits can name, less the one that means none.
const GROUPS: u8 = 31;

/// What an initiator has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mode {
    /// Sense data have the format of descriptors (D_SENSE).
    pub(super) has_descriptor_sense: bool,
    /// No initiator may write (SWP).
    pub(super) is_write_protected: bool,
}

/// Which values of a page are asked for (SPC-5, table 442).
mod control {
    pub(super) const CHANGEABLE: u8 = 1;
    pub(super) const DEFAULT: u8 = 2;
    pub(super) const SAVED: u8 = 3;
}

fn caching(which: u8) -> Vec<u8> {
    let mut page = vec![0; 20];
    (page[0], page[1]) = (CACHING, 18);
    if which != control::CHANGEABLE {
        // WCE.
        page[2] = 0x04;
    }
    page
}

fn control_page(mode: &Mode, which: u8) -> Vec<u8> {
    const DESCRIPTOR_SENSE: u8 = 0x04;
    const SOFTWARE_WRITE_PROTECT: u8 = 0x08;
    const REORDERS: u8 = 0x10;
    let mut page = vec![0; 12];
    (page[0], page[1]) = (CONTROL, 10);
    let (of_sense, of_writes, of_order) = match which {
        control::CHANGEABLE => (true, true, false),
        control::DEFAULT => (false, false, true),
        _ => (mode.has_descriptor_sense, mode.is_write_protected, true),
    };
    page[2] = if of_sense { DESCRIPTOR_SENSE } else { 0 };
    page[3] = if of_order { REORDERS } else { 0 };
    page[4] = if of_writes { SOFTWARE_WRITE_PROTECT } else { 0 };
    page
}

/// I/O advice hints grouping (SBC-4, 6.5.7): a descriptor for each group, 16 bytes, after a header of 16.
fn grouping(which: u8) -> Vec<u8> {
    /// The markup in the descriptor says nothing (IO ADVICE HINTS MODE 01b): a scheme gives the worth of a class.
    const NO_HINT: u8 = 0x40;
    let length = 12 + 16 * u16::from(GROUPS + 1);
    let mut page = vec![0; 16];
    (page[0], page[1]) = (0x40 | CONTROL, GROUPING);
    page[2..4].copy_from_slice(&length.to_be_bytes());
    for _ in 0..=GROUPS {
        let mut descriptor = [0; 16];
        descriptor[0] = if which == control::CHANGEABLE { 0 } else { NO_HINT };
        page.extend(descriptor);
    }
    page
}

/// The pages that `page` and `subpage` ask for.
fn pages(mode: &Mode, which: u8, page: u8, subpage: u8) -> Option<Vec<u8>> {
    match (page, subpage) {
        (CACHING, 0) => Some(caching(which)),
        (CONTROL, 0) => Some(control_page(mode, which)),
        (CONTROL, GROUPING) => Some(grouping(which)),
        (CONTROL, ALL_SUBPAGES) => Some([control_page(mode, which), grouping(which)].concat()),
        (CACHING, ALL_SUBPAGES) => Some(caching(which)),
        (ALL, 0) => Some([caching(which), control_page(mode, which)].concat()),
        (ALL, ALL_SUBPAGES) => Some([caching(which), control_page(mode, which), grouping(which)].concat()),
        _ => None,
    }
}

/// What MODE SENSE asks for.
pub(super) struct Asked {
    pub(super) is_long: bool,
    pub(super) control: u8,
    pub(super) page: u8,
    pub(super) subpage: u8,
    pub(super) allocation: usize,
}

impl Mode {
    /// Answers MODE SENSE, without block descriptors. `is_protected` says that writes are refused for whatever reason.
    pub(super) fn sense(&self, asked: &Asked, is_protected: bool) -> Answer {
        if asked.control == control::SAVED {
            return Sense::SAVING_NOT_SUPPORTED.into();
        }
        let Some(pages) = pages(self, asked.control, asked.page, asked.subpage) else {
            return Sense::INVALID_FIELD.into();
        };
        // WP; DPOFUA.
        let device = u8::from(is_protected) << 7 | 0x10;
        let mut data = if asked.is_long { vec![0, 0, 0, device, 0, 0, 0, 0] } else { vec![0, 0, device, 0] };
        data.extend(pages);
        if asked.is_long {
            let length = data.len() as u16 - 2;
            data[..2].copy_from_slice(&length.to_be_bytes());
        } else {
            // Its length byte says at most 255 bytes; the rest is asked for with MODE SENSE(10).
            data.truncate(256);
            data[0] = (data.len() - 1) as u8;
        }
        Answer::of_data(data, asked.allocation)
    }

    /// Takes over what MODE SELECT sends; says whether anything has changed.
    ///
    /// # Errors
    /// The sense data to answer with; nothing was changed.
    pub(super) fn select(&mut self, is_long: bool, list: &[u8]) -> Result<bool, Sense> {
        if list.is_empty() {
            return Ok(false);
        }
        let header = if is_long { 8 } else { 4 };
        let descriptors = match (is_long, list.len() >= header) {
            (_, false) => return Err(Sense::PARAMETER_LIST_LENGTH),
            (true, true) => usize::from(u16::from_be_bytes([list[6], list[7]])),
            (false, true) => usize::from(list[3]),
        };
        let mut rest = list.get(header + descriptors..).ok_or(Sense::PARAMETER_LIST_LENGTH)?;
        let mut changed = *self;
        while !rest.is_empty() {
            let page = changed.select_page(rest)?;
            rest = &rest[page..];
        }
        let has_changed = changed != *self;
        *self = changed;
        Ok(has_changed)
    }

    /// Takes over the first page of `list`; answers with its length.
    fn select_page(&mut self, list: &[u8]) -> Result<usize, Sense> {
        let (code, is_long) = (list[0] & 0x3f, list[0] & 0x40 != 0);
        let subpage = if is_long { *list.get(1).ok_or(Sense::PARAMETER_LIST_LENGTH)? } else { 0 };
        if matches!(code, ALL) || subpage == ALL_SUBPAGES {
            return Err(Sense::INVALID_PARAMETER);
        }
        let current = pages(self, 0, code, subpage).ok_or(Sense::INVALID_PARAMETER)?;
        let changeable = pages(self, control::CHANGEABLE, code, subpage).ok_or(Sense::INVALID_PARAMETER)?;
        let header = if is_long { 4 } else { 2 };
        let sent = list.get(..current.len()).ok_or(Sense::PARAMETER_LIST_LENGTH)?;
        // Beyond the header, what cannot be changed must be as it is.
        let is_allowed = (header..current.len()).all(|at| (sent[at] ^ current[at]) & !changeable[at] == 0);
        if sent[1..header] != current[1..header] || !is_allowed {
            return Err(Sense::INVALID_PARAMETER);
        }
        if (code, subpage) == (CONTROL, 0) {
            self.has_descriptor_sense = sent[2] & 0x04 != 0;
            self.is_write_protected = sent[4] & 0x08 != 0;
        }
        Ok(current.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::sense::Status;
    use proptest::prelude::*;

    fn asked(page: u8, subpage: u8, allocation: usize) -> Asked {
        Asked { is_long: true, control: 0, page, subpage, allocation }
    }

    #[test]
    fn every_group_has_a_descriptor() {
        let answer = Mode::default().sense(&asked(CONTROL, GROUPING, 4096), false);
        let page = &answer.data[8..];
        assert_eq!(page[..4], [0x4a, 5, 2, 12]);
        assert_eq!(page.len(), 4 + 0x20c);
        assert!(page[16..].chunks(16).all(|descriptor| descriptor[0] == 0x40));
        assert_eq!(Mode::default().sense(&asked(0x1c, 0, 255), false).status, Status::CheckCondition);
    }

    #[test]
    fn only_what_is_changeable_can_be_set() {
        let mut mode = Mode::default();
        let mut page = control_page(&mode, 0);
        page[2] |= 0x04;
        page[4] |= 0x08;
        let list = |page: &[u8]| [&[0; 4][..], page].concat();
        assert_eq!(mode.select(false, &list(&page)), Ok(true));
        assert!(mode.has_descriptor_sense && mode.is_write_protected);
        assert_eq!(mode.select(false, &list(&page)), Ok(false));
        page[3] = 0;
        assert_eq!(mode.select(false, &list(&page)), Err(Sense::INVALID_PARAMETER));
        assert_eq!(mode.select(false, &list(&page)[..9]), Err(Sense::PARAMETER_LIST_LENGTH));
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic(list in prop::collection::vec(any::<u8>(), 0..64), is_long: bool) {
            let _ = Mode::default().select(is_long, &list);
        }
    }
}
