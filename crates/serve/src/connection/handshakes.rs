//! The handshakes that are under way, and which must go when there are too many.
//!
//! **Intuition.** A client that connects and says nothing keeps a place until its deadline. So no place is kept for
//! good: when all are taken, the newcomer gets one, and another handshake goes. **Rule.** The oldest handshake of the
//! peer with most of them goes: a user on this machine, or an address elsewhere. So a peer that holds many places loses
//! its own, never those of others. A client that takes the usual millisecond is never the oldest. **Complication.** A
//! handshake that was told to go needs a moment to end its thread. For that moment there are more than so many; never
//! more than twice as many. **A newcomer waits** for that moment, up to a second, and is not turned away. A handshake
//! that is over needs the moment too: a client that opens connections one after the other would meet its own.

use super::peer::Peer;
use plimsoll_linux::WakeEvent;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a newcomer waits for a place.
const PATIENCE: Duration = Duration::from_secs(1);

/// The peer that handshakes are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    User(u32),
    Address(IpAddr),
    Unknown,
}

impl Holder {
    fn of(peer: &Peer) -> Holder {
        match peer {
            Peer::Process { uid, .. } => Holder::User(*uid),
            Peer::Socket(address) => Holder::Address(address.ip()),
            Peer::Unknown => Holder::Unknown,
        }
    }
}

#[derive(Debug)]
struct Place {
    holder: Holder,
    stop: Arc<WakeEvent>,
    is_told_to_end: bool,
}

/// See the module's text. Control plane: a lock, and O(`max`) when all places are taken.
#[derive(Debug)]
pub(super) struct Handshakes {
    max: usize,
    /// Oldest first.
    places: Mutex<Vec<Place>>,
    /// A place is free again.
    freed: Condvar,
}

/// A place among the handshakes, for as long as it lives, also through a panic.
#[derive(Debug)]
pub(super) struct Held<'handshakes> {
    handshakes: &'handshakes Handshakes,
    stop: Arc<WakeEvent>,
}

impl Handshakes {
    /// `max` at once, at least one.
    pub(super) fn new(max: u32) -> Handshakes {
        Handshakes { max: max.max(1) as usize, places: Mutex::default(), freed: Condvar::new() }
    }

    /// A place for a new handshake; `None` if the handshakes that were told to end have not ended after a second. Errors: no
    /// descriptor is left.
    pub(super) fn begin(&self, peer: &Peer) -> io::Result<Option<Held<'_>>> {
        let mut places = self.lock();
        if places.len() >= self.max {
            let is_full = |places: &mut Vec<Place>| places.len() >= 2 * self.max;
            let waited = self.freed.wait_timeout_while(places, PATIENCE, is_full);
            let timeout;
            (places, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return Ok(None);
            }
        }
        if places.len() >= self.max {
            end_oldest(&mut places);
        }
        let stop = Arc::new(WakeEvent::new()?);
        places.push(Place { holder: Holder::of(peer), stop: stop.clone(), is_told_to_end: false });
        Ok(Some(Held { handshakes: self, stop }))
    }

    /// Tells all to end.
    pub(super) fn end_all(&self) {
        self.lock().iter_mut().for_each(Place::end);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn end(&mut self) {
        self.is_told_to_end = true;
        self.stop.wake();
    }
}

/// Tells the oldest of the peer that holds most places, if not all were told.
fn end_oldest(places: &mut [Place]) {
    let mut held = BTreeMap::new();
    for place in places.iter().filter(|place| !place.is_told_to_end) {
        *held.entry(place.holder).or_insert(0u32) += 1;
    }
    let most = held.values().copied().max();
    let oldest = places.iter_mut().find(|place| !place.is_told_to_end && held.get(&place.holder).copied() == most);
    if let Some(place) = oldest {
        place.end();
    }
}

impl Held<'_> {
    /// Readable once the handshake must end.
    pub(super) fn stop(&self) -> &WakeEvent {
        &self.stop
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.handshakes.lock().retain(|place| !Arc::ptr_eq(&place.stop, &self.stop));
        self.handshakes.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Peer {
        Peer::Process { pid: 1, uid }
    }

    fn is_told(held: &Held<'_>) -> bool {
        rustix::io::read(held.stop(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn the_peer_with_most_places_loses_its_oldest() {
        let handshakes = Handshakes::new(4);
        let begin = |uid| handshakes.begin(&user(uid)).unwrap();
        let other = begin(7).unwrap();
        let many: Vec<_> = (0..3).map(|_| begin(8).unwrap()).collect();
        let newcomer = begin(7).unwrap();
        assert_eq!(many.iter().map(is_told).collect::<Vec<_>>(), [true, false, false]);
        assert!(
            !is_told(&other) && !is_told(&newcomer),
            "it is the oldest of all, but its peer does not hold the \
                                                          most"
        );
        // Two and two: the oldest of all.
        let _ninth = begin(9).unwrap();
        assert!(is_told(&other) && many.iter().all(|one| !is_told(one)));
    }

    /// A handshake that is over has its place until its thread has ended, which may be later than the next connection.
    ///
    /// Planted break: a newcomer is turned away at once.
    #[test]
    fn a_newcomer_waits_for_a_place_that_is_about_to_be_free() {
        let handshakes = Handshakes::new(2);
        let begin = || handshakes.begin(&user(7)).unwrap();
        let mut held: Vec<_> = (0..4).map(|_| begin().unwrap()).collect();
        std::thread::scope(|scope| {
            let last = held.pop();
            scope.spawn(move || {
                std::thread::park_timeout(PATIENCE / 10);
                drop(last);
            });
            assert!(begin().is_some());
        });
    }

    #[test]
    fn a_handshake_that_was_told_to_end_keeps_its_place_until_it_ends() {
        let handshakes = Handshakes::new(2);
        let begin = || handshakes.begin(&user(7)).unwrap();
        let mut held: Vec<_> = (0..4).map(|_| begin().unwrap()).collect();
        assert!(begin().is_none(), "twice as many have a thread");
        drop(held.remove(0));
        assert!(begin().is_some());
        drop(held);
        let quiet = [begin().unwrap(), begin().unwrap()];
        assert!(quiet.iter().all(|one| !is_told(one)));
        handshakes.end_all();
        assert!(quiet.iter().all(is_told));
    }
}
