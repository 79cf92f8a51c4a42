//! In which queue a request waits: the paper's Table 4 and SORD (section 4.1).

use crate::{Arrival, Kind, Queue};
use std::fmt;
use std::str::FromStr;

/// A way to dispatch requests to queues. Maintenance is always in its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dispatching {
    /// New requests are expected to be short, restarted ones not: new ones high, restarted ones low.
    Baseline,
    /// Restarted requests high, new ones low.
    RestartedToHigh,
    /// All high.
    AllToHigh,
    /// All low.
    AllToLow,
    /// New writes high, all else low.
    WritesToHigh,
    /// Writes and restarted requests high, new reads low.
    WritesAndRestartedToHigh,
    /// As the baseline, but suspended requests come back high; preempted ones are long, and low.
    ResumedToHigh,
    /// SORD: writes and suspended requests high, reads and preempted ones low.
    SizeOriented,
}

impl Dispatching {
    /// All, in the order of the paper.
    pub const ALL: [Dispatching; 8] = [
        Dispatching::Baseline,
        Dispatching::RestartedToHigh,
        Dispatching::AllToHigh,
        Dispatching::AllToLow,
        Dispatching::WritesToHigh,
        Dispatching::WritesAndRestartedToHigh,
        Dispatching::ResumedToHigh,
        Dispatching::SizeOriented,
    ];

    /// What it is called in scenarios: the paper's name in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Dispatching::Baseline => "baseline",
            Dispatching::RestartedToHigh => "rs-to-hq",
            Dispatching::AllToHigh => "all-to-hq",
            Dispatching::AllToLow => "all-to-lq",
            Dispatching::WritesToHigh => "w-to-hq",
            Dispatching::WritesAndRestartedToHigh => "w-rs-to-hq",
            Dispatching::ResumedToHigh => "np-to-hq",
            Dispatching::SizeOriented => "sord",
        }
    }

    /// Where a request waits. O(1).
    pub fn queue(self, kind: Kind, arrival: Arrival) -> Queue {
        if kind == Kind::Maintenance {
            return Queue::Maintenance;
        }
        let (is_write, is_restart) = (kind == Kind::Write, arrival.is_restart());
        let is_high = match self {
            Dispatching::Baseline => !is_restart,
            Dispatching::RestartedToHigh => is_restart,
            Dispatching::AllToHigh => true,
            Dispatching::AllToLow => false,
            // Table 3: "write requests" are those of clients; restarted requests are a type of their own.
            Dispatching::WritesToHigh => is_write && !is_restart,
            Dispatching::WritesAndRestartedToHigh => is_write || is_restart,
            Dispatching::ResumedToHigh => arrival != Arrival::Preempted,
            Dispatching::SizeOriented => match arrival {
                Arrival::New => is_write,
                Arrival::Resumed => true,
                Arrival::Preempted => false,
            },
        };
        if is_high { Queue::High } else { Queue::Low }
    }
}

impl fmt::Display for Dispatching {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Dispatching {
    type Err = String;

    /// # Errors
    /// What was got, and all that is allowed.
    fn from_str(name: &str) -> Result<Dispatching, String> {
        let found = Dispatching::ALL.into_iter().find(|dispatching| dispatching.name() == name);
        let allowed = || Dispatching::ALL.map(Dispatching::name).join(", ");
        found.ok_or_else(|| format!("got dispatching {name:?}, allowed {}", allowed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 4, row by row: new read, new write, resumed read, resumed write, preempted read, preempted write; H is
    /// high.
    /// Promise: executor-queues.
    #[test]
    fn requests_go_where_the_papers_table_says() {
        let table = [
            (Dispatching::Baseline, "HH LL LL"),
            (Dispatching::RestartedToHigh, "LL HH HH"),
            (Dispatching::AllToHigh, "HH HH HH"),
            (Dispatching::AllToLow, "LL LL LL"),
            (Dispatching::WritesToHigh, "LH LL LL"),
            (Dispatching::WritesAndRestartedToHigh, "LH HH HH"),
            (Dispatching::ResumedToHigh, "HH HH LL"),
            (Dispatching::SizeOriented, "LH HH LL"),
        ];
        for (dispatching, expected) in table {
            let of = |arrival| [Kind::Read, Kind::Write].map(|kind| dispatching.queue(kind, arrival));
            let rows = [Arrival::New, Arrival::Resumed, Arrival::Preempted].map(of);
            let letter = |queue: &Queue| if *queue == Queue::High { 'H' } else { 'L' };
            let rows = rows.map(|row| row.iter().map(letter).collect::<String>()).join(" ");
            assert_eq!(rows, expected, "{dispatching}");
            assert_eq!(dispatching.queue(Kind::Maintenance, Arrival::Preempted), Queue::Maintenance);
            assert_eq!(dispatching.name().parse(), Ok(dispatching));
        }
        assert!("fifo".parse::<Dispatching>().unwrap_err().ends_with("np-to-hq, sord"));
    }
}
