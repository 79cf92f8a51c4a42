//! CHAP: an initiator proves that it knows a secret without saying it (RFC 1994; RFC 7143, 12.1.3).
//!
//! MD5 is what the protocol asks every target to have, and all that is offered. It keeps a secret from an eavesdropper
//! only if the secret is long and random; it encrypts nothing.

use super::text::{binary, hexadecimal};
use md5::{Digest, Md5};

/// The number of MD5 in the protocol.
pub const ALGORITHM: &str = "5";
/// Bytes of a response.
const RESPONSE_BYTES: usize = 16;
/// Bytes of this target's challenge, and of an initiator's at most.
pub const CHALLENGE_BYTES: usize = 16;
const CHALLENGE_BYTES_MAX: usize = 1024;
/// Bytes of a secret: 96 bits at the least (RFC 7143, 9.2.1).
pub const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=255;

/// A name and the secret that proves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// What only its owner knows.
    pub secret: String,
}

impl std::fmt::Debug for Credentials {
    /// Without the secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Credentials({})", self.user)
    }
}

/// What a target asks of initiators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// What initiators prove themselves by.
    pub initiator: Credentials,
    /// What the target proves itself by, to initiators that ask.
    pub target: Option<Credentials>,
}

/// A challenge that an initiator has to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Its number.
    pub identifier: u8,
    /// Its random bytes.
    pub bytes: [u8; CHALLENGE_BYTES],
}

/// The answer to a challenge.
fn response(identifier: u8, secret: &str, challenge: &[u8]) -> [u8; RESPONSE_BYTES] {
    Md5::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize().into()
}

impl Challenge {
    /// Whether `name` and `answer`, as the initiator wrote them, are those of `credentials`.
    pub fn is_answered(&self, credentials: &Credentials, name: &str, answer: &str) -> bool {
        let Some(answer) = binary(answer, RESPONSE_BYTES).filter(|answer| answer.len() == RESPONSE_BYTES) else {
            return false;
        };
        let expected = response(self.identifier, &credentials.secret, &self.bytes);
        // Every byte is looked at, so that the time says nothing about where they differ.
        let difference = expected.iter().zip(&answer).fold(0, |difference, (one, other)| difference | (one ^ other));
        difference == 0 && name == credentials.user
    }

    /// The answer to an initiator's challenge of 1 to 1024 bytes; none if it is this target's own, sent back.
    pub fn answer(&self, credentials: &Credentials, identifier: &str, challenge: &str) -> Option<String> {
        let identifier = super::text::number(identifier).and_then(|number| u8::try_from(number).ok())?;
        let challenge = binary(challenge, CHALLENGE_BYTES_MAX)?;
        if challenge.is_empty() || challenge == self.bytes {
            return None;
        }
        Some(hexadecimal(&response(identifier, &credentials.secret, &challenge)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_answers_a_challenge() {
        let credentials = Credentials { user: "alice".into(), secret: "correct horse battery".into() };
        let challenge = Challenge { identifier: 7, bytes: *b"0123456789abcdef" };
        let right = hexadecimal(&response(7, &credentials.secret, &challenge.bytes));
        // As `printf '\x07correct horse battery0123456789abcdef' | md5sum` says.
        assert_eq!(right, "0x3de8e3db8e9c95c48ba669726489560d");
        assert!(challenge.is_answered(&credentials, "alice", &right));
        assert!(!challenge.is_answered(&credentials, "bob", &right));
        assert!(!challenge.is_answered(&credentials, "alice", &right.replace('7', "8")));
        assert!(!challenge.is_answered(&credentials, "alice", "0x"));
        let reflected = hexadecimal(&challenge.bytes);
        assert_eq!(challenge.answer(&credentials, "1", &reflected), None);
        assert!(challenge.answer(&credentials, "1", "0bAAAA").is_some());
        assert!(!format!("{credentials:?}").contains("horse"));
    }
}
