//! The filter as the kernel takes it: a classic BPF program over `struct seccomp_data` (seccomp(2)).

use super::table::{Condition, RESTRICTING, STOOD_ASIDE, STOOD_ASIDE_ARGUMENT};
use super::{Filter, STANDARD_DESCRIPTOR_MAX};
use libc::sock_filter;

/// Offsets in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
/// `AUDIT_ARCH_*` of linux/audit.h.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;
/// Numbers from here on are of the x32 calls of x86-64 (asm/unistd.h).
pub(super) const FOREIGN_NUMBER_MIN: u32 = 0x4000_0000;
/// What a filter says of a call that does not exist.
pub(super) const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[cfg(not(target_endian = "little"))]
compile_error!("an argument's low word is taken to stand first");

const fn statement(code: u32, value: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

const fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// The low word of an argument: descriptors and flags have no more.
const fn load_argument(argument: usize) -> sock_filter {
    load(ARGUMENTS_OFFSET + 8 * argument as u32)
}

const fn answer(action: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

/// Goes on if the comparison holds, and else skips `else_skip` instructions.
const fn only_if(comparison: u32, value: u32, else_skip: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt: 0, jf: else_skip, k: value }
}

/// Skips `skip` instructions if the comparison holds.
const fn unless(comparison: u32, value: u32, skip: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt: skip, jf: 0, k: value }
}

impl Filter {
    /// The program. Each call's part ends in an answer, so no jump is longer than that part.
    pub(crate) fn program(self) -> Vec<sock_filter> {
        let mut program = vec![
            load(ARCHITECTURE_OFFSET),
            unless(libc::BPF_JEQ, ARCHITECTURE, 1),
            answer(libc::SECCOMP_RET_KILL_PROCESS),
            load(NUMBER_OFFSET),
            only_if(libc::BPF_JGE, FOREIGN_NUMBER_MIN, 1),
            answer(NO_SUCH_CALL),
        ];
        let notify = answer(libc::SECCOMP_RET_USER_NOTIF);
        let allow = answer(libc::SECCOMP_RET_ALLOW);
        for call in self.calls() {
            let condition = match (call.condition, self.descriptor_above_standard(call)) {
                (Condition::Flags { argument, mask }, _) => {
                    Some((load_argument(argument), only_if(libc::BPF_JSET, mask, 1)))
                }
                (Condition::Always, Some(argument)) => {
                    Some((load_argument(argument), only_if(libc::BPF_JGT, STANDARD_DESCRIPTOR_MAX, 1)))
                }
                (Condition::Always, None) => None,
            };
            let part = match condition {
                Some((load, test)) => vec![load, test, notify, allow],
                None => vec![notify],
            };
            program.push(only_if(libc::BPF_JEQ, call.number as u32, part.len() as u8));
            program.extend(part);
        }
        for (number, first, last) in RESTRICTING {
            let part = [
                load_argument(0),
                only_if(libc::BPF_JGE, first, 4),
                unless(libc::BPF_JGT, last, 3),
                load_argument(STOOD_ASIDE_ARGUMENT),
                unless(libc::BPF_JEQ, STOOD_ASIDE, 1),
                notify,
                allow,
            ];
            program.push(only_if(libc::BPF_JEQ, number as u32, part.len() as u8));
            program.extend(part);
        }
        for &(number, _) in self.refused() {
            program.extend([only_if(libc::BPF_JEQ, number as u32, 1), answer(NO_SUCH_CALL)]);
        }
        program.push(allow);
        program
    }
}
