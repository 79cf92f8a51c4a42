//! What commands there are, and which of their bits are looked at: REPORT SUPPORTED OPERATION CODES (SPC-5, 6.32).

use super::sense::{Answer, Sense};

/// Bytes of a command's timeouts descriptor (SPC-5, 6.32.4); all zero: nothing is known about them.
const TIMEOUTS_BYTES: u8 = 12;

/// A command. Its usage bytes begin with its operation code, and contain a service action if it has one.
struct Supported {
    action: Option<u16>,
    usage: &'static [u8],
}

const fn plain(usage: &'static [u8]) -> Supported {
    Supported { action: None, usage }
}

const fn action(action: u16, usage: &'static [u8]) -> Supported {
    Supported { action: Some(action), usage }
}

const G: u8 = 0x1f;
const F: u8 = 0xff;

/// Every command of [`super::command::ScsiCommand`], by its CDB's usage map.
const COMMANDS: &[Supported] = &[
    plain(&[0x00, 0, 0, 0, 0, 0]),
    plain(&[0x03, 1, 0, 0, F, 0]),
    plain(&[0x08, 0x1f, F, F, F, 0]),
    plain(&[0x0a, 0x1f, F, F, F, 0]),
    plain(&[0x12, 1, F, F, F, 0]),
    plain(&[0x15, 0x11, 0, 0, F, 0]),
    plain(&[0x16, 0, 0, 0, 0, 0]),
    plain(&[0x17, 0, 0, 0, 0, 0]),
    plain(&[0x1a, 0x08, F, F, F, 0]),
    plain(&[0x1b, 1, 0, 0x0f, 0xf7, 0]),
    plain(&[0x1e, 0, 0, 0, 3, 0]),
    plain(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(&[0x28, 0x18, F, F, F, F, G, F, F, 0]),
    plain(&[0x2a, 0x18, F, F, F, F, G, F, F, 0]),
    plain(&[0x2e, 0x16, F, F, F, F, G, F, F, 0]),
    plain(&[0x2f, 0x16, F, F, F, F, G, F, F, 0]),
    plain(&[0x34, 0x02, F, F, F, F, G, F, F, 0]),
    plain(&[0x35, 0x02, F, F, F, F, G, F, F, 0]),
    plain(&[0x41, 0x08, F, F, F, F, G, F, F, 0]),
    plain(&[0x42, 0, 0, 0, 0, 0, G, F, F, 0]),
    plain(&[0x55, 0x11, 0, 0, 0, 0, 0, F, F, 0]),
    plain(&[0x5a, 0x18, F, F, 0, 0, 0, F, F, 0]),
    action(0, &[0x5e, 0x00, 0, 0, 0, 0, 0, F, F, 0]),
    action(1, &[0x5e, 0x01, 0, 0, 0, 0, 0, F, F, 0]),
    action(2, &[0x5e, 0x02, 0, 0, 0, 0, 0, F, F, 0]),
    action(3, &[0x5e, 0x03, 0, 0, 0, 0, 0, F, F, 0]),
    action(0, &[0x5f, 0x00, F, 0, 0, F, F, F, F, 0]),
    action(1, &[0x5f, 0x01, F, 0, 0, F, F, F, F, 0]),
    action(2, &[0x5f, 0x02, F, 0, 0, F, F, F, F, 0]),
    action(3, &[0x5f, 0x03, F, 0, 0, F, F, F, F, 0]),
    action(4, &[0x5f, 0x04, F, 0, 0, F, F, F, F, 0]),
    action(5, &[0x5f, 0x05, F, 0, 0, F, F, F, F, 0]),
    action(6, &[0x5f, 0x06, F, 0, 0, F, F, F, F, 0]),
    plain(&[0x88, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x89, 0x18, F, F, F, F, F, F, F, F, 0, 0, 0, F, G, 0]),
    plain(&[0x8a, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x8b, 0x18, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x8e, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x8f, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x90, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x91, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0x93, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    action(0x10, &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    action(0x12, &[0x9e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(&[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 0]),
    action(0x0c, &[0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, 0]),
    action(0x0d, &[0xa3, 0x0d, 0x80, 0, 0, 0, F, F, F, F, 0, 0]),
    plain(&[0xa8, 0x18, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0xaa, 0x18, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0xae, 0x16, F, F, F, F, F, F, F, F, G, 0]),
    plain(&[0xaf, 0x16, F, F, F, F, F, F, F, F, G, 0]),
];

/// Answers REPORT SUPPORTED OPERATION CODES.
pub(super) fn report(options: u8, opcode: u8, wanted: u16, has_timeouts: bool, allocation: usize) -> Answer {
    if options == 0 {
        return Answer::of_data(all(has_timeouts), allocation);
    }
    let of_opcode = || COMMANDS.iter().filter(move |command| command.usage[0] == opcode);
    let has_actions = of_opcode().any(|command| command.action.is_some());
    let found = of_opcode().find(|command| command.action.is_none_or(|action| action == wanted));
    let is_asked_rightly = match options {
        1 => !has_actions,
        2 => has_actions || of_opcode().next().is_none(),
        3 => true,
        _ => false,
    };
    if !is_asked_rightly {
        return Sense::INVALID_FIELD.into();
    }
    Answer::of_data(one(found, has_timeouts), allocation)
}

fn all(has_timeouts: bool) -> Vec<u8> {
    let mut list = vec![0; 4];
    for Supported { action, usage } in COMMANDS {
        let [high, low] = action.unwrap_or(0).to_be_bytes();
        let flags = u8::from(action.is_some()) | u8::from(has_timeouts) << 1;
        list.extend([usage[0], 0, high, low, 0, flags, 0, usage.len() as u8]);
        if has_timeouts {
            list.extend(timeouts());
        }
    }
    let length = list.len() as u32 - 4;
    list[..4].copy_from_slice(&length.to_be_bytes());
    list
}

fn one(found: Option<&Supported>, has_timeouts: bool) -> Vec<u8> {
    const NOT_SUPPORTED: u8 = 1;
    const AS_THE_STANDARD_SAYS: u8 = 3;
    let Some(command) = found else { return vec![0, NOT_SUPPORTED, 0, 0] };
    let mut answer = vec![0, AS_THE_STANDARD_SAYS | u8::from(has_timeouts) << 7, 0, command.usage.len() as u8];
    answer.extend(command.usage);
    if has_timeouts {
        answer.extend(timeouts());
    }
    answer
}

fn timeouts() -> [u8; TIMEOUTS_BYTES as usize] {
    let mut bytes = [0; TIMEOUTS_BYTES as usize];
    bytes[1] = TIMEOUTS_BYTES - 2;
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::command::{CDB_BYTES, ScsiCommand};
    use super::*;

    #[test]
    fn every_command_that_is_listed_is_decoded_and_no_other() {
        for opcode in 0..=u8::MAX {
            for action in 0..0x20 {
                let mut cdb = [0; CDB_BYTES];
                cdb[0] = opcode;
                let has_actions = COMMANDS.iter().any(|command| command.usage[0] == opcode && command.action.is_some());
                if has_actions {
                    cdb[1] = action;
                }
                let is_listed = COMMANDS.iter().any(|command| {
                    command.usage[0] == opcode && command.action.is_none_or(|own| own == u16::from(action))
                });
                // Those of reservations are told apart by the code that keeps the reservations.
                if !matches!(opcode, 0x5e | 0x5f) {
                    let is_decoded = ScsiCommand::decode(&cdb) != Err(Sense::INVALID_OPCODE);
                    assert_eq!(is_listed, is_decoded, "{opcode:#04x} {action:#04x}");
                }
            }
        }
    }
}
