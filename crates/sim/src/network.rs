//! Network cards and a switch between them, and streams that go through it.
//!
//! Each card sends at its rate and receives at its rate, one piece after the other in order of arrival. The switch
//! between them is never full. A piece of `n` bytes alone takes `latency + n / rate`: its first bit arrives after the
//! latency, while the rest is still being sent.
//!
//! A [`Stream`] is TCP as far as it matters to storage: sent bytes arrive once, in order. A receiver that does not
//! receive holds up the sender, because few pieces fit into the buffers between them. Left out: loss, slow start,
//! acknowledgements' own bandwidth, headers.

use crate::executor::Executor;
use crate::executor::wait::{Semaphore, WaitQueue};
use plimsoll_core::{Span, Time};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// What all cards are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Bytes a second that a card sends, and that it receives at the same time; above zero.
    pub bytes_per_second: u64,
    /// From one card to another.
    pub latency: Span,
}

/// Cards, each known by its number, and the switch.
pub struct Network {
    executor: Rc<Executor>,
    config: NetworkConfig,
    cards: Vec<Card>,
}

/// When each direction of a card is free again.
#[derive(Default)]
struct Card {
    sends: Cell<Time>,
    receives: Cell<Time>,
}

impl Network {
    /// With cards numbered from 0 to `cards` - 1.
    pub fn new(executor: Rc<Executor>, cards: usize, config: NetworkConfig) -> Network {
        Network { executor, config, cards: (0..cards).map(|_| Card::default()).collect() }
    }

    /// Tasks and time.
    pub fn executor(&self) -> &Rc<Executor> {
        &self.executor
    }

    /// From one card to another.
    pub fn latency(&self) -> Span {
        self.config.latency
    }

    /// Waits until `bytes` have come from one card to another. What begins earlier arrives earlier.
    async fn carry(&self, from: usize, to: usize, bytes: u64) {
        let takes = u128::from(bytes) * u128::from(Span::from_secs(1).as_nanos());
        let takes = Span::from_nanos((takes / u128::from(self.config.bytes_per_second)) as u64);
        let sent_from = occupy(&self.cards[from].sends, self.executor.now(), takes);
        self.executor.sleep_until(sent_from + self.config.latency).await;
        let received_from = occupy(&self.cards[to].receives, self.executor.now(), takes);
        self.executor.sleep_until(received_from + takes).await;
    }
}

/// Occupies one direction of a card from when it is free; answers from when.
fn occupy(free_at: &Cell<Time>, now: Time, takes: Span) -> Time {
    let from = free_at.get().max(now);
    free_at.set(from + takes);
    from
}

/// An ordered stream of pieces from one card to another.
pub struct Stream {
    network: Rc<Network>,
    from: usize,
    to: usize,
    /// Room in the buffers between sender and receiver.
    window: Semaphore,
    sent: Cell<u64>,
    arrived: Cell<u64>,
    received: Cell<u64>,
    /// Bytes of the pieces that have arrived and were not received.
    waiting: RefCell<VecDeque<u64>>,
    is_there: WaitQueue,
}

impl Stream {
    /// A stream with buffers for `window` pieces, at least one.
    pub fn new(network: Rc<Network>, from: usize, to: usize, window: u64) -> Rc<Stream> {
        Rc::new(Stream {
            network,
            from,
            to,
            window: Semaphore::new(window),
            sent: Cell::new(0),
            arrived: Cell::new(0),
            received: Cell::new(0),
            waiting: RefCell::default(),
            is_there: WaitQueue::default(),
        })
    }

    /// Sends a piece as soon as there is room for it in the buffers; does not wait until it arrives.
    pub async fn send(self: &Rc<Self>, bytes: u64) {
        let executor = &self.network.executor;
        self.window.acquire(executor).await;
        let number = self.sent.replace(self.sent.get() + 1);
        let stream = self.clone();
        executor.spawn(async move {
            stream.network.carry(stream.from, stream.to, bytes).await;
            assert_eq!(
                stream.arrived.replace(number + 1),
                number,
                "pieces arrive in the order in which they were sent"
            );
            stream.waiting.borrow_mut().push_back(bytes);
            stream.is_there.wake_one(&stream.network.executor);
        });
    }

    /// Takes the next piece when it is there; answers its bytes.
    pub async fn receive(&self) -> u64 {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            if let Some(bytes) = next {
                self.received.set(self.received.get() + 1);
                self.window.release(&self.network.executor);
                return bytes;
            }
            self.is_there.wait(&self.network.executor).await;
        }
    }

    /// Pieces sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Pieces received so far.
    pub fn received(&self) -> u64 {
        self.received.get()
    }

    /// # Panics
    /// If a piece was lost or doubled between sender and receiver.
    pub fn assert_conserved(&self) {
        let waiting = self.waiting.borrow().len() as u64;
        assert!(self.arrived.get() <= self.sent.get(), "what arrives was sent");
        assert_eq!(self.arrived.get(), self.received.get() + waiting, "pieces arrived = received + waiting");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: NetworkConfig = NetworkConfig { bytes_per_second: 1_000_000, latency: Span::from_micros(100) };

    fn run(executor: &Executor) {
        loop {
            executor.run_ready();
            match executor.next_timer() {
                Some(at) => executor.advance(at),
                None => break,
            }
        }
    }

    /// When each piece of the streams (sender, receiver, pieces of 1000 bytes) is there, microseconds.
    fn arrivals_us(streams: &[(usize, usize, usize)]) -> Vec<Vec<u64>> {
        let network = Rc::new(Network::new(Rc::default(), 4, CONFIG));
        let seen: Vec<Rc<RefCell<Vec<u64>>>> = streams.iter().map(|_| Rc::default()).collect();
        for (&(from, to, pieces), seen) in streams.iter().zip(&seen) {
            let (stream, seen) = (Stream::new(network.clone(), from, to, u64::MAX), seen.clone());
            let receiver = stream.clone();
            network.executor.spawn(async move {
                for _ in 0..pieces {
                    stream.send(1000).await;
                }
            });
            network.executor.spawn(async move {
                for _ in 0..pieces {
                    assert_eq!(receiver.receive().await, 1000);
                    let now = receiver.network.executor.now();
                    seen.borrow_mut().push(now.as_nanos() / 1000);
                }
                receiver.assert_conserved();
            });
        }
        run(&network.executor);
        seen.iter().map(|seen| seen.take()).collect()
    }

    #[test]
    fn a_piece_takes_its_latency_and_its_bytes_and_more_follow_at_the_rate() {
        assert_eq!(arrivals_us(&[(0, 1, 3)]), [[1100, 2100, 3100]]);
    }

    #[test]
    fn a_card_sends_and_receives_one_after_the_other_and_both_at_once() {
        assert_eq!(arrivals_us(&[(0, 1, 1), (0, 2, 1)]), [[1100], [2100]], "one card sends");
        assert_eq!(arrivals_us(&[(0, 2, 1), (1, 2, 1)]), [[1100], [2100]], "one card receives");
        assert_eq!(arrivals_us(&[(0, 1, 2), (1, 0, 2)]), [[1100, 2100], [1100, 2100]], "both directions");
    }

    #[test]
    fn a_client_that_does_not_receive_holds_up_its_sender() {
        let network = Rc::new(Network::new(Rc::default(), 2, CONFIG));
        let (stream, sent) = (Stream::new(network.clone(), 0, 1, 4), Rc::new(Cell::new(0)));
        let (sender, count) = (stream.clone(), sent.clone());
        network.executor.spawn(async move {
            loop {
                sender.send(1000).await;
                count.set(count.get() + 1);
            }
        });
        run(&network.executor);
        assert_eq!(sent.get(), 4, "as many as the buffers hold");
        let receiver = stream.clone();
        network.executor.spawn(async move {
            for _ in 0..3 {
                receiver.receive().await;
            }
        });
        run(&network.executor);
        assert_eq!((sent.get(), stream.received()), (7, 3));
        stream.assert_conserved();
        network.executor.clear();
    }
}
