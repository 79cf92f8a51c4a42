//! Reservations: which initiators may use the unit, and which may not for as long as another one has it.
//!
//! The old kind, RESERVE(6), belongs to a session and ends with it. The persistent kind belongs to an initiator port,
//! which registers a key first. It lasts until it is released, or until this process ends: nothing is kept on disk
//! (SPC-4, 5.13).

use super::sense::{Answer, Sense, Status};

/// Initiator ports that may register. More are told so.
const REGISTRATIONS_MAX: usize = 256;
/// Bytes of PERSISTENT RESERVE OUT's parameters (SPC-4, 6.16.3).
pub(super) const PERSISTENT_PARAMETER_BYTES: u32 = 24;
/// Additional sense codes of what happens to ports that lose something.
const PREEMPTED: u16 = 0x2a03;
const RELEASED: u16 = 0x2a04;
const REGISTRATION_PREEMPTED: u16 = 0x2a05;

/// The identity of an initiator port: what lasts when a session ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortName {
    /// The iSCSI name of the initiator.
    pub initiator: String,
    /// The initiator's part of the session's identifier.
    pub isid: [u8; 6],
    /// The number of the target port that it is logged in to: 1 for the volume's own target.
    pub target_port: u16,
}

impl PortName {
    /// As SCSI writes it (SPC-4, 7.6.4.6).
    fn transport_id(&self) -> Vec<u8> {
        let isid: String = self.isid.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut name = format!("{},i,0x{isid}", self.initiator).into_bytes();
        name.resize((name.len() + 1).next_multiple_of(4), 0);
        let [high, low] = (name.len() as u16).to_be_bytes();
        [&[0x45, 0, high, low][..], &name].concat()
    }
}

/// What a command does, as far as reservations ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Allowed whichever port has reserved the unit.
    Always,
    /// Allowed under a persistent reservation, but not while another session has the unit with RESERVE(6).
    Asks,
    /// Looks at the medium.
    Reads,
    /// Changes the medium, or how the unit behaves.
    Writes,
}

/// Kinds of persistent reservations (SPC-4, table 60).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    fn new(number: u8) -> Option<Kind> {
        use Kind::*;
        let kinds = [
            WriteExclusive,
            ExclusiveAccess,
            WriteExclusiveRegistrants,
            ExclusiveAccessRegistrants,
            WriteExclusiveAll,
            ExclusiveAccessAll,
        ];
        kinds.into_iter().find(|&kind| kind as u8 == number)
    }

    /// Every registrant holds it.
    fn is_of_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// Registrants may do what the holder may.
    fn admits_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    fn admits_reads(self) -> bool {
        matches!(self, Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll)
    }
}

#[derive(Clone, Debug)]
struct Reservation {
    /// The port that made it.
    holder: PortName,
    kind: Kind,
}

/// Persistent reservations of one unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Persistent {
    generation: u32,
    /// Ports and their keys.
    registered: Vec<(PortName, u64)>,
    reservation: Option<Reservation>,
}

/// What PERSISTENT RESERVE OUT says.
struct Order {
    action: u8,
    kind: Option<Kind>,
    key: u64,
    action_key: u64,
}

/// Which ports have to be told what: unit attentions with these codes.
pub(super) type Notices = Vec<(PortName, u16)>;

const CONFLICT: Answer = Answer::of_status(Status::ReservationConflict);

impl Persistent {
    fn key_of(&self, port: &PortName) -> Option<u64> {
        self.registered.iter().find(|(registered, _)| registered == port).map(|&(_, key)| key)
    }

    fn holds(&self, port: &PortName) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| match reservation.kind.is_of_all() {
            // Also the port that made it, and no longer than it is registered.
            true => self.key_of(port).is_some(),
            false => reservation.holder == *port,
        })
    }

    pub(super) fn has_registrations(&self) -> bool {
        !self.registered.is_empty()
    }

    /// Whether `port` is kept from doing something of that kind.
    pub(super) fn keeps_out(&self, port: &PortName, access: Access) -> bool {
        let Some(reservation) = &self.reservation else { return false };
        if self.holds(port) || (reservation.kind.admits_registrants() && self.key_of(port).is_some()) {
            return false;
        }
        match access {
            Access::Always | Access::Asks => false,
            Access::Reads => !reservation.kind.admits_reads(),
            Access::Writes => true,
        }
    }

    /// PERSISTENT RESERVE IN.
    pub(super) fn report(&self, action: u8, allocation: usize) -> Answer {
        let body = match action {
            0 => self.registered.iter().flat_map(|(_, key)| key.to_be_bytes()).collect(),
            1 => self.report_reservation(),
            // All six kinds; nothing survives a restart, ports cannot be registered for others.
            2 => return Answer::of_data(vec![0, 8, 0, 0x80, 0xea, 0x01, 0, 0], allocation),
            3 => self.report_all(),
            _ => return Sense::INVALID_FIELD.into(),
        };
        let mut data = self.generation.to_be_bytes().to_vec();
        data.extend((body.len() as u32).to_be_bytes());
        data.extend(body);
        Answer::of_data(data, allocation)
    }

    fn report_reservation(&self) -> Vec<u8> {
        let Some(Reservation { holder, kind }) = &self.reservation else { return Vec::new() };
        let key = if kind.is_of_all() { 0 } else { self.key_of(holder).unwrap_or(0) };
        let mut body = key.to_be_bytes().to_vec();
        body.extend([0, 0, 0, 0, 0, *kind as u8, 0, 0]);
        body
    }

    fn report_all(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (port, key) in &self.registered {
            let held = self.reservation.as_ref().filter(|_| self.holds(port));
            let transport_id = port.transport_id();
            body.extend(key.to_be_bytes());
            body.extend([0, 0, 0, 0, u8::from(held.is_some()), held.map_or(0, |held| held.kind as u8)]);
            body.extend([0; 4]);
            body.extend(port.target_port.to_be_bytes());
            body.extend((transport_id.len() as u32).to_be_bytes());
            body.extend(transport_id);
        }
        body
    }

    /// PERSISTENT RESERVE OUT by `port`: the unit attentions of other ports, and whether ports that lost their
    /// registration lose their commands, too.
    ///
    /// # Errors
    /// What to answer; nothing was changed.
    pub(super) fn order(
        &mut self,
        port: &PortName,
        (action, scope, kind): (u8, u8, u8),
        parameters: &[u8],
    ) -> Result<Notices, Answer> {
        if parameters.len() != PERSISTENT_PARAMETER_BYTES as usize {
            return Err(Sense::PARAMETER_LIST_LENGTH.into());
        }
        if action > 6 {
            return Err(Sense::INVALID_FIELD.into());
        }
        let number = |at: usize| u64::from_be_bytes(parameters[at..at + 8].try_into().expect("eight bytes"));
        let order = Order { action, kind: Kind::new(kind), key: number(0), action_key: number(8) };
        let (is_for_others, persists) = (parameters[20] & 0x0c != 0, parameters[20] & 0x01 != 0);
        let registers = matches!(action, 0 | 6);
        if is_for_others || (registers && persists) {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        if registers {
            return self.register(port, &order);
        }
        if self.key_of(port) != Some(order.key) {
            return Err(CONFLICT);
        }
        if action != 3 && (scope != 0 || order.kind.is_none()) {
            return Err(Sense::INVALID_FIELD.into());
        }
        match (action, order.kind) {
            (1, Some(kind)) => self.reserve(port, kind),
            (2, Some(kind)) => self.release(port, kind),
            (4 | 5, Some(kind)) => self.preempt(port, kind, order.action_key),
            _ => Ok(self.clear(port)),
        }
    }

    fn register(&mut self, port: &PortName, order: &Order) -> Result<Notices, Answer> {
        let ignores_key = order.action == 6;
        let place = self.registered.iter().position(|(registered, _)| registered == port);
        let expected = place.map_or(0, |place| self.registered[place].1);
        if !ignores_key && order.key != expected {
            return Err(CONFLICT);
        }
        let notices = match (place, order.action_key) {
            (None, 0) => Vec::new(),
            (Some(_), 0) => self.unregister(port),
            (Some(place), key) => {
                self.registered[place].1 = key;
                Vec::new()
            }
            (None, _) if self.registered.len() == REGISTRATIONS_MAX => {
                return Err(Sense::NO_REGISTRATION_LEFT.into());
            }
            (None, key) => {
                self.registered.push((port.clone(), key));
                Vec::new()
            }
        };
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// A port leaves; what only it held ends.
    fn unregister(&mut self, port: &PortName) -> Notices {
        self.registered.retain(|(registered, _)| registered != port);
        let Some(reservation) = &self.reservation else { return Vec::new() };
        let kind = reservation.kind;
        let ends = match kind.is_of_all() {
            true => self.registered.is_empty(),
            false => reservation.holder == *port,
        };
        if !ends {
            return Vec::new();
        }
        self.reservation = None;
        if kind.admits_registrants() { self.tell_others(port, RELEASED) } else { Vec::new() }
    }

    fn tell_others(&self, port: &PortName, code: u16) -> Notices {
        let others = self.registered.iter().filter(|(registered, _)| registered != port);
        others.map(|(registered, _)| (registered.clone(), code)).collect()
    }

    fn reserve(&mut self, port: &PortName, kind: Kind) -> Result<Notices, Answer> {
        match &self.reservation {
            Some(reservation) if !self.holds(port) || reservation.kind != kind => return Err(CONFLICT),
            Some(_) => {}
            None => self.reservation = Some(Reservation { holder: port.clone(), kind }),
        }
        Ok(Vec::new())
    }

    fn release(&mut self, port: &PortName, kind: Kind) -> Result<Notices, Answer> {
        let Some(reservation) = self.reservation.as_ref().filter(|_| self.holds(port)) else { return Ok(Vec::new()) };
        if reservation.kind != kind {
            return Err(Sense::INVALID_RELEASE.into());
        }
        self.reservation = None;
        Ok(if kind.admits_registrants() { self.tell_others(port, RELEASED) } else { Vec::new() })
    }

    fn clear(&mut self, port: &PortName) -> Notices {
        let notices = self.tell_others(port, PREEMPTED);
        (self.reservation, self.generation) = (None, self.generation.wrapping_add(1));
        self.registered.clear();
        notices
    }

    /// Takes the place of the ports that registered with `key` (SPC-4, 5.13.11.4).
    fn preempt(&mut self, port: &PortName, kind: Kind, key: u64) -> Result<Notices, Answer> {
        let is_of_all = self.reservation.as_ref().is_some_and(|reservation| reservation.kind.is_of_all());
        let holder_key = self.reservation.as_ref().filter(|_| !is_of_all);
        let holder_key = holder_key.and_then(|reservation| self.key_of(&reservation.holder));
        let takes_over = (is_of_all && key == 0) || (holder_key == Some(key));
        if !takes_over && key == 0 && self.reservation.is_some() {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        let is_meant = |registered: &(PortName, u64)| registered.1 == key || (is_of_all && key == 0);
        if !takes_over && !self.registered.iter().any(is_meant) {
            return Err(CONFLICT);
        }
        let loses = |registered: &(PortName, u64)| is_meant(registered) && registered.0 != *port;
        let losers = self.registered.iter().filter(|&registered| loses(registered));
        let mut notices: Notices = losers.map(|(port, _)| (port.clone(), REGISTRATION_PREEMPTED)).collect();
        self.registered.retain(|registered| !loses(registered));
        if takes_over {
            let before = self.reservation.replace(Reservation { holder: port.clone(), kind });
            if before.is_some_and(|before| before.kind != kind) {
                notices.extend(self.tell_others(port, RELEASED));
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: u8 = 0;
    const RESERVE: u8 = 1;
    const PREEMPT: u8 = 4;

    fn port(number: u8) -> PortName {
        PortName {
            initiator: "iqn.2026-01.org.example:initiator".into(),
            isid: [0, 0, 0, 0, 0, number],
            target_port: 1,
        }
    }

    /// An order of `port`, which is registered with the key `key` or is about to be.
    fn order(persistent: &mut Persistent, port: &PortName, action: u8, kind: Kind, (key, action_key): (u64, u64)) {
        let mut parameters = [0; PERSISTENT_PARAMETER_BYTES as usize];
        parameters[..8].copy_from_slice(&key.to_be_bytes());
        parameters[8..16].copy_from_slice(&action_key.to_be_bytes());
        assert!(persistent.order(port, (action, 0, kind as u8), &parameters).is_ok());
    }

    /// What all registrants hold, no other port does: not even the port that made it, once it has left or was put out.
    #[test]
    fn an_initiator_registered_no_more_is_kept_out_by_its_reservation_for_all_registrants() {
        for kind in [Kind::WriteExclusiveAll, Kind::ExclusiveAccessAll] {
            for is_put_out in [true, false] {
                let (mut persistent, one, other) = (Persistent::default(), port(1), port(2));
                order(&mut persistent, &one, REGISTER, kind, (0, 11));
                order(&mut persistent, &other, REGISTER, kind, (0, 22));
                order(&mut persistent, &one, RESERVE, kind, (11, 0));
                assert!(!persistent.keeps_out(&one, Access::Writes) && !persistent.keeps_out(&other, Access::Writes));
                match is_put_out {
                    true => order(&mut persistent, &other, PREEMPT, kind, (22, 11)),
                    false => order(&mut persistent, &one, REGISTER, kind, (11, 0)),
                }
                assert!(persistent.keeps_out(&one, Access::Writes), "{kind:?}, put out: {is_put_out}");
                assert!(!persistent.keeps_out(&other, Access::Writes));
            }
        }
    }
}
