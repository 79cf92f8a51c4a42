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
    /// What holds if neither side says anything (RFC 7143, 13).
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
    /// Takes the pairs of one text; gives the answers, each a key and a value. The length of a burst comes first,
    /// wherever it stands, because that of the first burst depends on it (RFC 7143, 13.14).
    pub fn agree_all<'text>(&mut self, pairs: &[(&'text str, &'text str)]) -> Vec<(&'text str, String)> {
        let is_of_burst = |pair: &&(&str, &str)| pair.0 == "MaxBurstLength";
        let in_order = pairs.iter().filter(is_of_burst).chain(pairs.iter().filter(|pair| !is_of_burst(pair)));
        in_order.filter_map(|&(key, value)| Some((key, self.agree(key, value)?))).collect()
    }

    /// Takes what the initiator says of `key`; answers with what to say of it, if anything.
    fn agree(&mut self, key: &str, value: &str) -> Option<String> {
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
                // Also one that was agreed on before, and the one that holds if neither side says anything.
                self.first_burst_bytes_max = self.first_burst_bytes_max.min(bytes);
                Some(bytes.to_string())
            }
            "FirstBurstLength" => {
                let limit = FIRST_BURST_BYTES_MAX.min(self.burst_bytes_max);
                let Some(bytes) = least(limit) else { return rejected() };
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
    use proptest::prelude::*;

    fn pair() -> impl Strategy<Value = (&'static str, String)> {
        const LENGTH_KEYS: [&str; 3] = ["FirstBurstLength", "MaxBurstLength", "MaxRecvDataSegmentLength"];
        let length = prop_oneof![512..0x0100_0000_u32, Just(512), Just(0xff_ffff), Just(64 << 10), 0..u32::MAX];
        prop_oneof![
            6 => (prop::sample::select(&LENGTH_KEYS[..]), length.prop_map(|length| length.to_string())),
            1 => (Just("InitialR2T"), prop::sample::select(vec!["Yes".to_owned(), "No".to_owned(), "no".to_owned()])),
            1 => (Just("X-org.example.key"), "[a-z]{0,8}"),
        ]
    }

    proptest! {
        /// Whatever comes in whatever order. Planted breaks that were seen red: the first burst is answered without a
        /// look at the burst; the pairs are taken in the order of the text.
        /// Promise: iscsi-first-burst.
        #[test]
        fn a_first_burst_is_never_longer_than_a_burst(
            texts in prop::collection::vec(prop::collection::vec(pair(), 1..6), 1..5),
        ) {
            let mut parameters = Parameters::default();
            for text in &texts {
                let pairs: Vec<_> = text.iter().map(|(key, value)| (*key, value.as_str())).collect();
                let answers = parameters.agree_all(&pairs);
                for (key, answer) in &answers {
                    let Some(answered) = number(answer) else { continue };
                    let offers = pairs.iter().filter(|pair| pair.0 == *key).filter_map(|pair| number(pair.1));
                    prop_assert!(LENGTHS.contains(&answered) && offers.max().is_some_and(|most| answered <= most));
                    let bound = match *key {
                        "FirstBurstLength" => parameters.burst_bytes_max.min(FIRST_BURST_BYTES_MAX),
                        _ => TRANSFER_BYTES_MAX,
                    };
                    // An initiator that says a key twice in one text hears of both.
                    let is_last = pairs.iter().filter(|pair| pair.0 == "MaxBurstLength").count() <= 1;
                    prop_assert!(!is_last || answered <= bound, "{key}={answered} of {pairs:?}");
                }
                prop_assert!(parameters.first_burst_bytes_max <= parameters.burst_bytes_max);
                let answered = |key: &str| answers.iter().filter(|answer| answer.0 == key).count();
                let said = |key: &str| pairs.iter().filter(|pair| pair.0 == key).count();
                for key in ["FirstBurstLength", "MaxBurstLength", "InitialR2T", "X-org.example.key"] {
                    prop_assert_eq!(answered(key), said(key), "each is answered");
                }
            }
        }
    }

    /// Promise: iscsi-first-burst.
    #[test]
    fn the_first_burst_is_answered_by_the_burst_wherever_it_stands() {
        for pairs in [
            [("MaxBurstLength", "4096"), ("FirstBurstLength", "131072")],
            [("FirstBurstLength", "131072"), ("MaxBurstLength", "4096")],
        ] {
            let mut parameters = Parameters::default();
            let answers = parameters.agree_all(&pairs);
            assert_eq!(answers, [("MaxBurstLength", "4096".to_owned()), ("FirstBurstLength", "4096".to_owned())]);
            assert_eq!((parameters.burst_bytes_max, parameters.first_burst_bytes_max), (4096, 4096));
        }
        let mut parameters = Parameters::default();
        parameters.agree_all(&[("MaxBurstLength", "512")]);
        assert_eq!(parameters.first_burst_bytes_max, 512, "what holds if neither side says anything");
    }

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
