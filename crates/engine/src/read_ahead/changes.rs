//! Writes, trims and write-zeroes of a volume that are under way.
//!
//! Until one is done, the device may have the bytes from before it or from after it. A session that read something
//! ahead may have the former while another session has read the latter already. So a read of what is being changed is
//! left to the device, which has one answer for all.

/// What is being changed. O(changes under way) each.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    under_way: Vec<(u64, u64)>,
}

impl Changes {
    /// A change of `length` bytes has been sent.
    pub(crate) fn begin(&mut self, offset: u64, length: u32) {
        self.under_way.push((offset, offset + u64::from(length)));
    }

    /// It is done; one that was not told of is ignored.
    pub(crate) fn end(&mut self, offset: u64, length: u32) {
        let change = (offset, offset + u64::from(length));
        if let Some(place) = self.under_way.iter().position(|&other| other == change) {
            self.under_way.swap_remove(place);
        }
    }

    /// Whether some of these bytes are being changed.
    pub(crate) fn touch(&self, offset: u64, length: u32) -> bool {
        let end = offset + u64::from(length);
        self.under_way.iter().any(|&(from, to)| from < end && offset < to)
    }
}
