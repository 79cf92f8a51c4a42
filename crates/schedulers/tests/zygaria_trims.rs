//! Trims of an account with a limit in bytes per second.

use plimsoll_core::*;
use plimsoll_schedulers::zygaria::Zygaria;

const LIMIT_BYTES_PER_SECOND: f64 = 10e6;

fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "d".into(),
        capacity_bytes: 1 << 50,
        worst_case_runs_per_second: 1e6,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    }
}

fn completion(request: &BlockRequest) -> Completion {
    let (id, session, runs) = (request.id, request.session, request.runs());
    Completion { id, session, runs, service: Span::ZERO, succeeded: true }
}

/// An account trims 128 MiB and then writes a block. Outcome: the write goes two milliseconds later, as a trim counts
/// as a page; a write of 128 MiB in its place makes it wait for 13 s. A thousand trims of a block pay for a thousand
/// pages.
///
/// Planted breaks: a trim counts with all of its bytes; a trim counts with none.
#[test]
fn a_trim_counts_as_a_page_against_a_limit_in_bytes() {
    let waits = |operation: Operation, length: u32, times: u64| {
        let mut tree = AccountTree::new(profile());
        let allocation =
            Allocation { limit: Some(Rate::BytesPerSecond(LIMIT_BYTES_PER_SECOND)), ..Allocation::default() };
        let account = tree.open(AccountId::ROOT, "a", AccountKind::Session, allocation).unwrap();
        let mut zygaria = Zygaria::new(&profile());
        tree.iter().for_each(|account| zygaria.account_opened(Time::ZERO, account));
        let mut now = Time::ZERO;
        let mut send = |now: &mut Time, id: u64, operation: Operation, length: u32| {
            let offset = id << 32;
            zygaria.request_added(*now, BlockRequest::new(RequestId(id), account, operation, offset, length, *now));
            loop {
                match zygaria.next(*now) {
                    Dispatch::Now(request) => return zygaria.request_completed(*now, &completion(&request)),
                    Dispatch::NotBefore(at) => *now = at,
                    Dispatch::Nothing => panic!("nothing is under way"),
                }
            }
        };
        (0..times).for_each(|id| send(&mut now, id, operation, length));
        send(&mut now, times, Operation::Write, 4096);
        now.since(Time::ZERO)
    };
    assert!(waits(Operation::Trim, 128 << 20, 1) < Span::from_millis(2));
    assert!(waits(Operation::Write, 128 << 20, 1) > Span::from_secs(13));
    let of_pages = waits(Operation::Trim, 4096, 1000).as_secs_f64();
    assert!((0.35..0.42).contains(&of_pages), "{of_pages}");
}
