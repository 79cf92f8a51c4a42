//! Login: the initiator's name, the target that it wants, and what both sides can do. A state machine without I/O.
//!
//! ```text
//!   security (0): AuthMethod, CHAP  -->  operational (1): lengths, digests  -->  full feature (3)
//! ```
//!
//! The initiator leads: each of its requests says in which stage it is and whether it wants to go on (T). A target that
//! asks for CHAP lets no initiator out of the first stage without it; a discovery session sees names only and needs
//! none.

use super::chap::{self, Challenge, Chap};
use super::error::{IscsiError, LoginError};
use super::names;
use super::parameters::{DATA_BYTES_MAX, Parameters};
use super::pdu::{Digests, Header, encode, opcode};
use super::text;
use crate::scsi::PortName;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Requests of one login: CHAP in both directions takes four.
const REQUESTS_MAX: u32 = 32;
/// The number of the only portal group.
pub const PORTAL_GROUP: &str = "1";

/// What a login agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The name of the target; `None` for discovery.
    pub target: Option<String>,
    /// The initiator's port.
    pub port: PortName,
    /// The number of the connection, as the initiator chose it.
    pub connection: u16,
    /// The number of its next command.
    pub command_number: u32,
    /// The number of our next answer.
    pub status_number: u32,
    /// What the session works by.
    pub parameters: Parameters,
}

/// Where a login stands after an answer.
#[derive(Debug)]
pub enum LoginStep {
    /// The initiator says more.
    GoesOn,
    /// Full feature from now on.
    LoggedIn(Box<LoggedIn>),
    /// Refused; the answer says so, and the connection is closed.
    Refused(LoginError),
}

/// How far CHAP has come.
#[derive(Debug, PartialEq, Eq)]
enum Proof {
    None,
    /// CHAP was agreed on.
    Chosen,
    Challenged(Challenge),
    Given,
}

/// What is known of a target.
pub type Lookup<'list> = &'list dyn Fn(&str) -> Option<Option<Chap>>;

/// One login.
#[derive(Debug)]
pub struct Login {
    stage: u8,
    requests: u32,
    text: Vec<u8>,
    initiator: Option<String>,
    target: Option<String>,
    is_discovery: bool,
    isid: [u8; 6],
    connection: u16,
    chap: Option<Chap>,
    proof: Proof,
    has_declared: bool,
    status_number: Option<u32>,
    parameters: Parameters,
    challenge: Challenge,
}

impl Login {
    /// A login that has not begun; `challenge` is random.
    pub fn new(challenge: Challenge) -> Login {
        Login {
            stage: SECURITY,
            requests: 0,
            text: Vec::new(),
            initiator: None,
            target: None,
            is_discovery: false,
            isid: [0; 6],
            connection: 0,
            chap: None,
            proof: Proof::None,
            has_declared: false,
            status_number: None,
            parameters: Parameters::default(),
            challenge,
        }
    }

    /// Takes a request; answers with the PDU to send and with what comes next.
    ///
    /// # Errors
    /// It is no login request: nothing is to be sent.
    pub fn advance(
        &mut self,
        header: &Header,
        data: &[u8],
        lookup: Lookup<'_>,
    ) -> Result<(Vec<u8>, LoginStep), IscsiError> {
        if header.opcode() != opcode::LOGIN {
            return Err(IscsiError::Unexpected { got: header.opcode(), expected: "a login request" });
        }
        let status_number = self.status_number.get_or_insert(header.u32(28));
        let number = *status_number;
        *status_number = number.wrapping_add(1);
        let (result, reply) = self.answer(header, data, lookup);
        let mut answer = Header::new(opcode::LOGIN_RESPONSE, header.initiator_tag());
        answer.0[8..14].copy_from_slice(&header.0[8..14]);
        answer.set_u32(24, number);
        answer.set_u32(28, header.command_number());
        answer.set_u32(32, header.command_number());
        let step = match result {
            Err(error) => {
                answer.0[1] = 0;
                answer.0[36..38].copy_from_slice(&error.status());
                return Ok((encode(answer, &[], Digests::default()), LoginStep::Refused(error)));
            }
            Ok(next) => {
                let current = header.flags() >> 2 & 3;
                answer.0[1] = current << 2 | next.map_or(0, |next| 0x80 | next);
                if next == Some(FULL_FEATURE) {
                    // The session's own number here, which says nothing where each has one connection.
                    answer.0[14..16].copy_from_slice(&[0, 1]);
                    LoginStep::LoggedIn(Box::new(self.negotiated(header)))
                } else {
                    LoginStep::GoesOn
                }
            }
        };
        Ok((encode(answer, &reply, Digests::default()), step))
    }

    fn negotiated(&self, header: &Header) -> LoggedIn {
        let initiator = self.initiator.clone().unwrap_or_default();
        LoggedIn {
            target: self.target.clone().filter(|_| !self.is_discovery),
            port: PortName { initiator, isid: self.isid, target_port: 1 },
            connection: self.connection,
            command_number: header.command_number(),
            status_number: self.status_number.unwrap_or(0),
            parameters: self.parameters,
        }
    }

    /// The text to answer with, and the stage to go to if that is agreed.
    fn answer(
        &mut self,
        header: &Header,
        data: &[u8],
        lookup: Lookup<'_>,
    ) -> (Result<Option<u8>, LoginError>, Vec<u8>) {
        let mut reply = Vec::new();
        let result = self.take(header, data, lookup, &mut reply);
        (result, reply)
    }

    fn take(
        &mut self,
        header: &Header,
        data: &[u8],
        lookup: Lookup<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Option<u8>, LoginError> {
        let (transits, continues) = (header.flags() & 0x80 != 0, header.flags() & 0x40 != 0);
        let (current, next) = (header.flags() >> 2 & 3, header.flags() & 3);
        self.requests += 1;
        if self.requests == 1 {
            self.begin(header, current)?;
        }
        let is_in_order = current == self.stage && !(transits && (continues || next <= current || next == 2));
        if !is_in_order || self.requests > REQUESTS_MAX || self.text.len() + data.len() > text::TEXT_BYTES_MAX {
            return Err(LoginError::InitiatorError);
        }
        self.text.extend(data);
        if continues {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        let pairs = text::decode(&text).map_err(|_| LoginError::InitiatorError)?;
        let is_first = self.initiator.is_none();
        if is_first {
            self.introduce(&pairs, lookup)?;
        }
        match self.stage {
            SECURITY => self.prove(&pairs, reply)?,
            _ => self.operate(&pairs, reply),
        }
        if is_first && !self.is_discovery {
            text::push(reply, "TargetPortalGroupTag", PORTAL_GROUP);
        }
        let may_leave = self.stage != SECURITY || matches!(self.proof, Proof::None | Proof::Given);
        if !transits || !may_leave {
            return Ok(None);
        }
        if self.chap.is_some() && self.proof != Proof::Given {
            return Err(LoginError::Authentication);
        }
        self.stage = next;
        Ok(Some(next))
    }

    /// The first request: which session it is for.
    fn begin(&mut self, header: &Header, current: u8) -> Result<(), LoginError> {
        if header.0[3] > 0 {
            return Err(LoginError::Version);
        }
        if header.0[14..16] != [0, 0] {
            return Err(LoginError::NoSession);
        }
        if current > OPERATIONAL {
            return Err(LoginError::InitiatorError);
        }
        self.stage = current;
        self.isid.copy_from_slice(&header.0[8..14]);
        self.connection = u16::from_be_bytes([header.0[20], header.0[21]]);
        Ok(())
    }

    /// Names, which come first.
    fn introduce(&mut self, pairs: &[(&str, &str)], lookup: Lookup<'_>) -> Result<(), LoginError> {
        let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let initiator = value("InitiatorName").ok_or(LoginError::MissingParameter)?;
        if !names::is_acceptable(initiator) {
            return Err(LoginError::Name);
        }
        self.initiator = Some(initiator.to_owned());
        match value("SessionType") {
            None | Some("Normal") => {}
            Some("Discovery") => self.is_discovery = true,
            Some(_) => return Err(LoginError::SessionType),
        }
        if !self.is_discovery {
            let target = value("TargetName").ok_or(LoginError::MissingParameter)?;
            if !names::is_acceptable(target) {
                return Err(LoginError::Name);
            }
            self.chap = lookup(target).ok_or(LoginError::NotFound)?;
            self.target = Some(target.to_owned());
        }
        if self.chap.is_some() && self.stage == OPERATIONAL {
            return Err(LoginError::Authentication);
        }
        Ok(())
    }

    fn prove(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), LoginError> {
        let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        if let Some(methods) = value("AuthMethod") {
            let wanted = if self.chap.is_some() { "CHAP" } else { "None" };
            if !methods.split(',').any(|method| method == wanted) {
                return Err(LoginError::Authentication);
            }
            text::push(reply, "AuthMethod", wanted);
            self.proof = if self.chap.is_some() { Proof::Chosen } else { Proof::None };
        }
        if let Some(algorithms) = value("CHAP_A") {
            let is_offered = algorithms.split(',').any(|algorithm| algorithm == chap::ALGORITHM);
            if self.proof != Proof::Chosen || !is_offered {
                return Err(LoginError::Authentication);
            }
            text::push(reply, "CHAP_A", chap::ALGORITHM);
            text::push(reply, "CHAP_I", &self.challenge.identifier.to_string());
            text::push(reply, "CHAP_C", &text::hexadecimal(&self.challenge.bytes));
            self.proof = Proof::Challenged(self.challenge.clone());
        }
        if let (Some(name), Some(answer)) = (value("CHAP_N"), value("CHAP_R")) {
            let (Proof::Challenged(challenge), Some(chap)) = (&self.proof, &self.chap) else {
                return Err(LoginError::Authentication);
            };
            if !challenge.is_answered(&chap.initiator, name, answer) {
                return Err(LoginError::Authentication);
            }
            if let (Some(identifier), Some(theirs)) = (value("CHAP_I"), value("CHAP_C")) {
                let own = chap.target.as_ref().ok_or(LoginError::Authentication)?;
                let answer = challenge.answer(own, identifier, theirs).ok_or(LoginError::Authentication)?;
                text::push(reply, "CHAP_N", &own.user);
                text::push(reply, "CHAP_R", &answer);
            }
            self.proof = Proof::Given;
        }
        // Some initiators say here already what belongs to the next stage.
        let of_security = |key: &str| key == "AuthMethod" || key.starts_with("CHAP_");
        let others: Vec<_> = pairs.iter().filter(|pair| !of_security(pair.0)).copied().collect();
        self.agree(&others, reply);
        Ok(())
    }

    fn operate(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) {
        self.agree(pairs, reply);
        if !std::mem::replace(&mut self.has_declared, true) {
            text::push(reply, "MaxRecvDataSegmentLength", &DATA_BYTES_MAX.to_string());
        }
    }

    fn agree(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) {
        for (key, answer) in self.parameters.agree_all(pairs) {
            text::push(reply, key, &answer);
        }
    }
}

#[cfg(test)]
mod tests;
