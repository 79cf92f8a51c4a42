//! What both sides of a session agree on (RFC 7143, 13).

use super::pdu::Digests;
use super::text::number;
use crate::scsi::inquiry::TRANSFER_BYTES_MAX;

/// Most bytes of data in one PDU that are received.
pub const DATA_BYTES_MAX: u32 = 128 << 10;
/// Most bytes of data that an initiator may send without being asked.
const FIRST_BURST_BYTES_MAX: u32 = 128 << 10;
/// Range of the lengths that are agreed on (RFC 7143, 13.12 to 13.14).
const LENGTHS: std::ops::RangeInclusive<u32> = 512..=0xff_ffff;

/// What a session works by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Which parts of PDUs carry a digest.
    pub digests: Digests,
    /// Most bytes of data in one PDU that the initiator receives.
    pub initiator_data_bytes_max: u32,
    /// Most bytes of data in one sequence.
    pub burst_bytes_max: u32,
    /// Most bytes of data that come without being asked for.
    pub first_burst_bytes_max: u32,
    /// Data come only when they are asked for, save those in the command's own PDU.
    pub waits_for_ready: bool,
    /// Data may come in the command's own PDU.
    pub has_immediate_data: bool,
}

impl Default for Parameters {
    /// What holds if nobody says anything (RFC 7143, 13).
    fn default() -> Self {
        Parameters {
            digests: Digests::default(),
            initiator_data_bytes_max: 8192,
            burst_bytes_max: 256 << 10,
            first_burst_bytes_max: 64 << 10,
            waits_for_ready: true,
            has_immediate_data: true,
        }
    }
}

fn yes_or_no(is_yes: bool) -> String {
    if is_yes { "Yes" } else { "No" }.to_owned()
}

/// A list of digests, best first, and whether CRC32C was chosen.
fn digest(value: &str) -> Option<(String, bool)> {
    let chosen = value.split(',').find(|&digest| matches!(digest, "CRC32C" | "None"))?;
    Some((chosen.to_owned(), chosen == "CRC32C"))
}

impl Parameters {
    /// Takes what the initiator says of `key`; answers with what to say of it, if anything.
    pub fn agree(&mut self, key: &str, value: &str) -> Option<String> {
        let rejected = || Some("Reject".to_owned());
        let least = |limit: u32| number(value).filter(|length| LENGTHS.contains(length)).map(|own| own.min(limit));
        let is_yes = match value {
            "Yes" => Some(true),
            "No" => Some(false),
            _ => None,
        };
        match key {
            "HeaderDigest" | "DataDigest" => {
                let Some((chosen, is_crc)) = digest(value) else { return rejected() };
                match key {
                    "HeaderDigest" => self.digests.header = is_crc,
                    _ => self.digests.data = is_crc,
                }
                Some(chosen)
            }
            "MaxRecvDataSegmentLength" => match least(u32::MAX) {
                Some(bytes) => {
                    self.initiator_data_bytes_max = bytes;
                    None
                }
                None => rejected(),
            },
            "MaxBurstLength" => {
                let Some(bytes) = least(TRANSFER_BYTES_MAX) else { return rejected() };
                self.burst_bytes_max = bytes;
                Some(bytes.to_string())
            }
            "FirstBurstLength" => {
                let Some(bytes) = least(FIRST_BURST_BYTES_MAX) else { return rejected() };
                self.first_burst_bytes_max = bytes;
                Some(bytes.to_string())
            }
            "InitialR2T" => {
                let Some(is_yes) = is_yes else { return rejected() };
                self.waits_for_ready = is_yes;
                Some(yes_or_no(is_yes))
            }
            "ImmediateData" => {
                let Some(is_yes) = is_yes else { return rejected() };
                self.has_immediate_data = is_yes;
                Some(yes_or_no(is_yes))
            }
            "MaxConnections" | "MaxOutstandingR2T" | "iSCSIProtocolLevel" => Some("1".to_owned()),
            "ErrorRecoveryLevel" | "DefaultTime2Retain" => Some("0".to_owned()),
            "DefaultTime2Wait" => number(value)
                .filter(|&seconds| seconds <= 3600)
                .map_or_else(rejected, |seconds| Some(seconds.to_string())),
            "DataPDUInOrder" | "DataSequenceInOrder" => Some("Yes".to_owned()),
            "IFMarker" | "OFMarker" => Some("No".to_owned()),
            "IFMarkInt" | "OFMarkInt" => Some("Irrelevant".to_owned()),
            "TaskReporting" => Some("RFC3720".to_owned()),
            "InitiatorAlias" | "InitiatorName" | "TargetName" | "SessionType" => None,
            _ => Some("NotUnderstood".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_agreed_is_what_both_can() {
        let mut parameters = Parameters::default();
        let mut agree = |key, value| parameters.agree(key, value);
        assert_eq!(agree("HeaderDigest", "None,CRC32C").as_deref(), Some("None"));
        assert_eq!(agree("DataDigest", "CRC32C,None").as_deref(), Some("CRC32C"));
        assert_eq!(agree("DataDigest", "SHA").as_deref(), Some("Reject"));
        assert_eq!(agree("MaxBurstLength", "16777215").as_deref(), Some("1048576"));
        assert_eq!(agree("MaxBurstLength", "511").as_deref(), Some("Reject"));
        assert_eq!(agree("FirstBurstLength", "0x1000").as_deref(), Some("4096"));
        assert_eq!(agree("InitialR2T", "No").as_deref(), Some("No"));
        assert_eq!(agree("MaxRecvDataSegmentLength", "4096"), None);
        assert_eq!(agree("X-nobody.knows", "1").as_deref(), Some("NotUnderstood"));
        assert_eq!(parameters.digests, Digests { header: false, data: true });
        assert_eq!((parameters.initiator_data_bytes_max, parameters.first_burst_bytes_max), (4096, 4096));
        assert!(!parameters.waits_for_ready);
    }
}
