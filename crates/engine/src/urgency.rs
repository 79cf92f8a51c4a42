//! An engine's thread goes before the tenants that it serves.
//!
//! A held tenant must not be able to hold up the engine that holds it. Five hundred threads that write as fast as they
//! can leave a thread of the same rank its five-hundredth part of the processors. Until its turn comes every gate stays
//! as it is. Nor would a real device compete for processors with its own users. So an engine that has tenants above or
//! a model below runs in the kernel's real-time class, at its lowest priority. It runs before all normal threads, and
//! after whatever an administrator ranks higher. It sleeps whenever it has nothing to do, and the kernel keeps a share
//! for the others (`sched_rt_runtime_us`).
//!
//! Without the right to that (CAP_SYS_NICE) it asks for the least niceness, and without that it stays what it is. The
//! lateness of an emulated device is measured anyway.

/// The lowest of the real-time class, sched(7).
const PRIORITY: libc::c_int = 1;
/// The least niceness.
const NICENESS: i32 = -20;

/// Ranks the calling thread, and none that it starts, before normal threads. One that is in the real-time class already
/// stays where it is.
pub fn before_normal_threads() {
    // SAFETY: both take numbers, and the second one the address of a structure that outlives the call.
    let is_ranked = unsafe {
        let class = libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK;
        let parameter = libc::sched_param { sched_priority: PRIORITY };
        let ours = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
        [libc::SCHED_RR, libc::SCHED_FIFO].contains(&class) || libc::sched_setscheduler(0, ours, &parameter) == 0
    };
    if !is_ranked && rustix::process::setpriority_process(None, NICENESS).is_err() {
        tracing::debug!(
            "the engine's thread runs with normal priority: neither real-time scheduling nor a lower \
                         niceness is permitted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The class of a thread, and whether it is handed on.
    fn class_of_this() -> (libc::c_int, bool) {
        // SAFETY: takes a number.
        let class = unsafe { libc::sched_getscheduler(0) };
        (class & !libc::SCHED_RESET_ON_FORK, class & libc::SCHED_RESET_ON_FORK != 0)
    }

    #[test]
    fn the_thread_is_ranked_and_those_that_it_starts_are_not() {
        let (ranked, started) = std::thread::spawn(|| {
            before_normal_threads();
            (class_of_this(), std::thread::spawn(class_of_this).join().unwrap())
        })
        .join()
        .unwrap();
        if ranked.0 == libc::SCHED_OTHER {
            return println!("not run: real-time threads are not permitted");
        }
        assert_eq!((ranked, started), ((libc::SCHED_RR, true), (libc::SCHED_OTHER, false)));
    }
}
