//! The filter as an OCI runtime takes it: `linux.seccomp` of a container's `config.json` (OCI runtime specification
//! 1.0.2, config-linux.md, "Seccomp").

use super::table::{Condition, GatedCall, OPEN_CHANGES, REFUSED};
use super::{Filter, STANDARD_DESCRIPTOR_MAX};
use serde_json::{Value, json};
use std::path::Path;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &str = "SCMP_ARCH_X86_64";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: &str = "SCMP_ARCH_AARCH64";
/// runc refuses to notify it: its own process writes between installing the filter and handing the listener over.
const NOT_NOTIFIED: &str = "write";

impl Filter {
    /// What to put at `linux.seccomp` of a container's `config.json`. The runtime hands the listener to the socket at
    /// `listener_path`, with `metadata`, which names the account.
    ///
    /// It differs from what [`Launch`](crate::Launch) installs in two ways: `write` itself is never in it, since runc
    /// refuses that (`pwrite64`, `writev` and the others are), and calls of another architecture are what the runtime
    /// makes of them. A container that has a profile already needs the two merged.
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
        let rule = |conditions: Value| json!({ "names": [call.name], "action": "SCMP_ACT_NOTIFY", "args": conditions });
        match (call.condition, self.descriptor_above_standard(call)) {
            // A comparison under a mask has one outcome; so a rule for each bit.
            (Condition::Flags { argument, mask }, _) => {
                let bits = OPEN_CHANGES.into_iter().chain([libc::MS_SYNC as u32]).filter(|bit| mask & bit != 0);
                bits.map(|bit| {
                    rule(json!([{ "index": argument, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ" }]))
                })
                .collect()
            }
            (Condition::Always, Some(argument)) => {
                vec![rule(json!([{ "index": argument, "value": STANDARD_DESCRIPTOR_MAX, "op": "SCMP_CMP_GT" }]))]
            }
            (Condition::Always, None) => vec![json!({ "names": [call.name], "action": "SCMP_ACT_NOTIFY" })],
        }
    }
}
