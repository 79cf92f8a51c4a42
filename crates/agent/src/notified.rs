//! Calls from listeners, by both of their numbers: the scheduler's, and the listener's.

use plimsoll_core::CallId;
use plimsoll_gates::ListenerId;
use std::collections::BTreeMap;

/// A call at its listener.
pub(crate) type Place = (ListenerId, CallId);

/// See the [module's text](self). All of it is O(log calls) a call.
#[derive(Default)]
pub(crate) struct Notified {
    places: BTreeMap<CallId, Place>,
    ids: BTreeMap<Place, CallId>,
}

impl Notified {
    /// The scheduler knows by `id` the call at `place`.
    pub(crate) fn insert(&mut self, id: CallId, place: Place) {
        self.places.insert(id, place);
        self.ids.insert(place, id);
    }

    /// Removes a call that continues. Answers its place.
    pub(crate) fn take(&mut self, id: CallId) -> Option<Place> {
        let place = self.places.remove(&id)?;
        self.ids.remove(&place);
        Some(place)
    }

    /// What the scheduler calls one that waits no more.
    pub(crate) fn take_at(&mut self, place: Place) -> Option<CallId> {
        let id = self.ids.remove(&place)?;
        self.places.remove(&id);
        Some(id)
    }

    /// The calls at a listener that has ended.
    pub(crate) fn take_all_at(&mut self, listener: ListenerId) -> Vec<CallId> {
        let of_listener = (listener, CallId(0))..=(listener, CallId(u64::MAX));
        let places: Vec<Place> = self.ids.range(of_listener).map(|(&place, _)| place).collect();
        places.into_iter().filter_map(|place| self.take_at(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_by_either_number_and_once() {
        let mut notified = Notified::default();
        // Two listeners number their calls alike.
        for (id, place) in [(1, (1, 7)), (2, (1, 8)), (3, (2, 7)), (4, (2, 8)), (5, (3, 7))] {
            notified.insert(CallId(id), (ListenerId(place.0), CallId(place.1)));
        }
        assert_eq!(notified.take(CallId(1)), Some((ListenerId(1), CallId(7))));
        assert_eq!((notified.take(CallId(1)), notified.take_at((ListenerId(1), CallId(7)))), (None, None));
        assert_eq!(notified.take_at((ListenerId(2), CallId(7))), Some(CallId(3)));
        assert_eq!(notified.take(CallId(3)), None);
        assert_eq!(notified.take_all_at(ListenerId(2)), [CallId(4)]);
        assert_eq!(notified.take_all_at(ListenerId(2)), []);
        assert_eq!((notified.take(CallId(2)).is_some(), notified.take(CallId(5)).is_some()), (true, true));
        assert!(notified.ids.is_empty() && notified.places.is_empty());
    }
}
