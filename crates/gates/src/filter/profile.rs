//! The filter in the format of an OCI runtime: `linux.seccomp` of a container's `config.json` (OCI runtime
//! specification 1.0.2, config-linux.md, "Seccomp").

use super::table::{Condition, GatedCall, OPEN_CHANGES, REFUSED};
use super::{Filter, STANDARD_DESCRIPTOR_MAX};
use serde_json::{Value, json};
use std::path::Path;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";
/// The call that runc refuses to notify: its own process writes between installing the filter and handing the listener
/// over.
pub(super) const NOT_NOTIFIED: &str = "write";

impl Filter {
    /// What to put at `linux.seccomp` of a container's `config.json`. The runtime hands the listener to the socket at
    /// `listener_path`, with `metadata`, which names the account.
    ///
    /// It differs from the filter of [`Launch`](crate::Launch) in two ways. `write` itself is never in it, since runc
    /// refuses that (`pwrite64`, `writev` and the others are). Calls of another architecture are up to the runtime. A
    /// container that has a profile already gets [the two merged](Self::merged_profile).
    pub fn oci_profile(self, listener_path: &Path, metadata: &str) -> Value {
        let mut rules: Vec<Value> =
            self.calls().filter(|call| call.name != NOT_NOTIFIED).flat_map(|call| self.rules_of(call)).collect();
        let names: Vec<_> = REFUSED.iter().map(|(_, name)| name).collect();
        rules.push(json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS }));
        json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": [ARCHITECTURE],
            "listenerPath": listener_path,
            "listenerMetadata": metadata,
            "syscalls": rules,
        })
    }

    fn rules_of(self, call: &GatedCall) -> Vec<Value> {
        match self.comparisons_of(call) {
            Some((alternatives, _)) => {
                let rule = |compared| json!({ "names": [call.name], "action": "SCMP_ACT_NOTIFY", "args": [compared] });
                alternatives.into_iter().map(rule).collect()
            }
            None => vec![json!({ "names": [call.name], "action": "SCMP_ACT_NOTIFY" })],
        }
    }

    /// Comparisons that decide whether a call is notified: it is if one of the first holds, and not if the last does.
    /// `None`: it always is.
    pub(super) fn comparisons_of(self, call: &GatedCall) -> Option<(Vec<Value>, Value)> {
        match (call.condition, self.descriptor_above_standard(call)) {
            // A comparison under a mask has one outcome; so one for each bit.
            (Condition::Flags { argument, mask }, _) => {
                let masked = |mask: u32, outcome: u32| json!({ "index": argument, "value": mask, "valueTwo": outcome, "op": "SCMP_CMP_MASKED_EQ" });
                let bits = OPEN_CHANGES.into_iter().chain([libc::MS_SYNC as u32]).filter(|bit| mask & bit != 0);
                Some((bits.map(|bit| masked(bit, bit)).collect(), masked(mask, 0)))
            }
            (Condition::Always, Some(argument)) => {
                let compared =
                    |operator| json!({ "index": argument, "value": STANDARD_DESCRIPTOR_MAX, "op": operator });
                Some((vec![compared("SCMP_CMP_GT")], compared("SCMP_CMP_LE")))
            }
            (Condition::Always, None) => None,
        }
    }
}
