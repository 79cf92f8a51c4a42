//! How long a request waits at the most, as `docs/executor.md` states it: one thread in virtual time, asked as the
//! service threads ask, with more to do than it can.
//!
//! Planted breaks, each red: `Selector` draws by lottery alone; `Queues` lets those with a deadline go first for ever.

use plimsoll_core::{Span, Time};
use plimsoll_executor::{Policy, QUEUES, Queue, Queues, Selector, Turn, URGENT_IN_A_ROW_MAX, Waiting};
use proptest::prelude::*;

/// What a run takes at the most: the step of a request between two checkpoints.
const STEP_MAX: Span = Span::from_micros(300);
/// Work for six seconds and more, longer than any bound here that a broken rule passes.
const ARRIVALS: usize = 30_000;
const POLICIES: [Policy; 4] = [Policy::BASELINE, Policy::SORD, Policy::QATS, Policy::COMBO];

/// A slice at the most: equation 1 where no other request waits, equation 2 likewise.
fn slice_max(policy: &Policy) -> Span {
    let alone = |queue: Queue| {
        let mut depths = [0; QUEUES];
        depths[queue.index()] = 1;
        policy.slice(queue, depths)
    };
    Queue::ALL.into_iter().map(alone).max().unwrap()
}

#[derive(Clone, Copy, Debug)]
struct Came {
    queue: Queue,
    /// Among those of its queue; of the high one among those that have no deadline either.
    before: u32,
}

/// A request that comes: its queue, whether it has a deadline, and how long after the one before, us.
type Arrival = (usize, bool, u64);

/// Requests that come one after the other, in their queues; those that have a deadline there have no bound.
struct Line<'a> {
    arrivals: std::iter::Peekable<std::slice::Iter<'a, Arrival>>,
    queues: Queues<Option<Came>>,
    in_order: [u32; QUEUES],
    due: Time,
}

impl Line<'_> {
    fn come_until(&mut self, now: Time) {
        while let Some(&(queue, is_urgent, gap_us)) = self.arrivals.peek() {
            let due = self.due + Span::from_micros(*gap_us);
            if due > now {
                break;
            }
            self.arrivals.next();
            self.due = due;
            let queue = Queue::ALL[*queue];
            let is_urgent = *is_urgent && queue == Queue::High;
            let before = self.in_order[queue.index()];
            let came = (!is_urgent).then_some(Came { queue, before });
            self.in_order[queue.index()] += u32::from(!is_urgent);
            let deadline = is_urgent.then_some(Time::ZERO);
            self.queues.put(queue, Waiting { request: came, deadline, since: due });
        }
    }

    fn take(&mut self, queue: Queue) -> Option<Waiting<Option<Came>>> {
        let waiting = self.queues.take(queue)?;
        self.in_order[queue.index()] -= u32::from(waiting.request.is_some());
        Some(waiting)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Far more come to the high queue, with deadlines, than the thread can do, and few to the others, while draws
    /// favour one queue as long as they may.
    #[test]
    fn no_request_waits_for_longer_than_is_stated(
        policy in 0..POLICIES.len(),
        others in prop::collection::vec(0..QUEUES, 1..40),
        chance in prop_oneof![Just(0_u32), Just(u32::MAX), any::<u32>()],
        steps_us in prop::collection::vec(200_u64..=300, 1..50),
    ) {
        let policy = POLICIES[policy];
        let mut selector = Selector::new(policy.weights);
        let mut steps = steps_us.iter().cycle();
        let mut arrivals = vec![(Queue::High.index(), true, 20); ARRIVALS];
        others.iter().enumerate().for_each(|(at, &queue)| arrivals[at * at] = (queue, false, 20));
        let mut line = Line {
            arrivals: arrivals.iter().peekable(),
            queues: Queues::default(),
            in_order: [0; QUEUES],
            due: Time::ZERO,
        };
        let mut now = Time::ZERO;
        while line.arrivals.peek().is_some() || line.queues.depths() != [0; QUEUES] {
            line.come_until(now);
            let depths = line.queues.depths();
            let Some(queue) = selector.draw(depths, chance) else {
                now += Span::from_micros(1);
                continue;
            };
            let turn = Turn::new(queue, depths, &policy, None);
            let ends = now + turn.slice;
            while let Some(waiting) = line.take(queue) {
                if let Some(Came { queue, before }) = waiting.request {
                    let among = if queue == Queue::High { URGENT_IN_A_ROW_MAX + 1 } else { 1 };
                    let turns = u64::from(before + 1) * u64::from(selector.turns_max(queue)) * u64::from(among);
                    let (waited, most) = (now.since(waiting.since), (slice_max(&policy) + STEP_MAX) * turns);
                    prop_assert!(waited <= most, "{queue:?} behind {before}: {waited}, at most {most}");
                }
                now += Span::from_micros(*steps.next().unwrap());
                line.come_until(now);
                if now >= ends || turn.gives_way(|| line.queues.depths()) {
                    break;
                }
            }
        }
    }
}
