//! The requests at a device, and a note on each of which the end matters.
//!
//! A completion names the session of its request, not the request. O(1) when a request goes to the device, O(noted)
//! when it comes back: as many as the device holds at the most.

use plimsoll_core::RequestId;

/// See the module's text.
pub struct AtDevice<T> {
    requests: usize,
    noted: Vec<(RequestId, T)>,
}

impl<T> Default for AtDevice<T> {
    fn default() -> Self {
        AtDevice { requests: 0, noted: Vec::new() }
    }
}

impl<T> AtDevice<T> {
    /// How many the device holds.
    pub fn len(&self) -> usize {
        self.requests
    }

    /// Whether the device holds none.
    pub fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// How many of them have a note.
    pub fn noted(&self) -> usize {
        self.noted.len()
    }

    /// A request goes to the device.
    pub fn dispatched(&mut self, id: RequestId, note: Option<T>) {
        self.requests += 1;
        self.noted.extend(note.map(|note| (id, note)));
    }

    /// The device is done with a request; answers with its note.
    pub fn completed(&mut self, id: RequestId) -> Option<T> {
        self.requests -= 1;
        let place = self.noted.iter().position(|&(noted, _)| noted == id)?;
        Some(self.noted.swap_remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_with_their_requests() {
        let mut at_device = AtDevice::default();
        for id in 0..5 {
            at_device.dispatched(RequestId(id), (id % 2 == 0).then_some(id * 10));
        }
        assert_eq!((at_device.len(), at_device.noted(), at_device.is_empty()), (5, 3, false));
        let notes = [2, 1, 4, 0, 3].map(|id| at_device.completed(RequestId(id)));
        assert_eq!(notes, [Some(20), None, Some(40), Some(0), None]);
        assert_eq!((at_device.len(), at_device.noted(), at_device.is_empty()), (0, 0, true));
    }
}
