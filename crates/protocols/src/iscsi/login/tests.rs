//! CHAP in both directions: what a target says when it has to prove itself, and what it keeps to itself.

use super::super::chap::{CHALLENGE_BYTES, Credentials};
use super::super::pdu::Frame;
use super::*;
use md5::{Digest, Md5};

const INITIATOR_SECRET: &str = "correct horse battery";
const TARGET_SECRET: &str = "staple of the target";
/// Our own challenge; in base 64 as `base64` writes it.
const CHALLENGE: [u8; CHALLENGE_BYTES] = *b"0123456789abcdef";
const CHALLENGE_IN_BASE_64: &str = "0bMDEyMzQ1Njc4OWFiY2RlZg==";
const IDENTIFIER: u8 = 9;
/// Bytes of an initiator's challenge at the most (RFC 7143, 12.1.3).
const CHALLENGE_BYTES_MAX: usize = 1024;

/// What a login answers, or why not.
type Answered = Result<Vec<(String, String)>, LoginError>;

fn md5(identifier: u8, secret: &str, challenge: &[u8]) -> String {
    let response = Md5::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize();
    text::hexadecimal(&response)
}

/// A login to a target that asks for CHAP, and proves its own secret if it has one.
struct Dialogue {
    login: Login,
    chap: Chap,
}

impl Dialogue {
    fn new(target_secret: Option<&str>) -> Dialogue {
        let of = |user: &str, secret: &str| Credentials { user: user.into(), secret: secret.into() };
        let chap =
            Chap { initiator: of("alice", INITIATOR_SECRET), target: target_secret.map(|secret| of("store", secret)) };
        Dialogue { login: Login::new(Challenge { identifier: IDENTIFIER, bytes: CHALLENGE }), chap }
    }

    /// Says something in the first stage, and that the next one may come.
    fn say(&mut self, pairs: &[(&str, &str)]) -> Answered {
        let mut header = Header::new(opcode::LOGIN | 0x40, 0);
        header.0[1] = 0x80 | SECURITY << 2 | OPERATIONAL;
        let mut data = Vec::new();
        pairs.iter().for_each(|(key, value)| text::push(&mut data, key, value));
        let lookup = |_: &str| Some(Some(self.chap.clone()));
        let (answer, step) = self.login.advance(&header, &data, &lookup).unwrap();
        let frame = Frame::decode(&answer, DATA_BYTES_MAX, Digests::default()).unwrap().unwrap();
        let said = text::decode(frame.data).unwrap();
        match step {
            LoginStep::GoesOn => Ok(said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
            LoginStep::Refused(error) => {
                assert_eq!((said, [frame.header.0[36], frame.header.0[37]]), (vec![], error.status()));
                Err(error)
            }
            LoginStep::LoggedIn(_) => panic!("this is the first stage"),
        }
    }

    /// As far as our challenge.
    fn challenged(target_secret: Option<&str>) -> Dialogue {
        let mut dialogue = Dialogue::new(target_secret);
        let names = [("InitiatorName", "initiator"), ("TargetName", "target"), ("AuthMethod", "CHAP")];
        assert_eq!(value(&dialogue.say(&names), "AuthMethod").as_deref(), Some("CHAP"));
        let answered = dialogue.say(&[("CHAP_A", "5")]);
        assert_eq!(value(&answered, "CHAP_I"), Some(IDENTIFIER.to_string()));
        assert_eq!(value(&answered, "CHAP_C"), Some(text::hexadecimal(&CHALLENGE)));
        dialogue
    }

    /// Answers our challenge rightly, and asks us to prove ourselves.
    fn ask(target_secret: Option<&str>, identifier: &str, challenge: &str) -> Answered {
        let right = md5(IDENTIFIER, INITIATOR_SECRET, &CHALLENGE);
        let pairs = [("CHAP_N", "alice"), ("CHAP_R", &right), ("CHAP_I", identifier), ("CHAP_C", challenge)];
        Dialogue::challenged(target_secret).say(&pairs)
    }
}

fn value(answered: &Answered, key: &str) -> Option<String> {
    let answered = answered.as_ref().expect("it is not refused");
    answered.iter().find(|pair| pair.0 == key).map(|pair| pair.1.clone())
}

/// Planted break that was seen red: the answer is made with the initiator's secret.
/// Promise: iscsi-own-secret.
#[test]
fn a_target_proves_its_own_secret_to_an_initiator_that_it_has_let_in() {
    let answered = Dialogue::ask(Some(TARGET_SECRET), "201", "0x00ff10");
    assert_eq!(value(&answered, "CHAP_N").as_deref(), Some("store"));
    let response = value(&answered, "CHAP_R").unwrap();
    assert_eq!(response, md5(201, TARGET_SECRET, &[0, 0xff, 0x10]));
    // What an initiator sees that expects another secret.
    let other = Dialogue::ask(Some("another target's secret"), "201", "0x00ff10");
    assert_ne!(value(&other, "CHAP_R"), Some(response));
    // An initiator that does not ask is told nothing.
    let right = md5(IDENTIFIER, INITIATOR_SECRET, &CHALLENGE);
    let answered = Dialogue::challenged(Some(TARGET_SECRET)).say(&[("CHAP_N", "alice"), ("CHAP_R", &right)]);
    assert_eq!((value(&answered, "CHAP_N"), value(&answered, "CHAP_R")), (None, None));
}

/// Or an initiator would have its proof from the target itself. Planted break that was seen red: the two are compared
/// as they are written.
/// Promise: iscsi-own-secret.
#[test]
fn our_own_challenge_sent_back_is_refused_however_it_is_written() {
    let hexadecimal = text::hexadecimal(&CHALLENGE);
    let upper = format!("0X{}", hexadecimal[2..].to_uppercase());
    for reflected in [&hexadecimal, &upper, CHALLENGE_IN_BASE_64] {
        for identifier in [IDENTIFIER.to_string(), "1".to_owned()] {
            let answered = Dialogue::ask(Some(TARGET_SECRET), &identifier, reflected);
            assert_eq!(answered, Err(LoginError::Authentication), "{identifier} {reflected}");
        }
    }
    // Of one that only begins so there is a proof, and it is another one.
    assert!(Dialogue::ask(Some(TARGET_SECRET), "1", &format!("{hexadecimal}00")).is_ok());
}

/// Planted break that was seen red: a proof is not looked at when a question comes with it.
/// Promise: iscsi-own-secret.
#[test]
fn an_unproved_initiator_hears_nothing_of_the_targets_secret() {
    let right = md5(IDENTIFIER, INITIATOR_SECRET, &CHALLENGE);
    let wrong = md5(IDENTIFIER, TARGET_SECRET, &CHALLENGE);
    let question = [("CHAP_I", "1"), ("CHAP_C", "0x0011223344556677")];
    for (name, response) in [("alice", &wrong), ("store", &right), ("bob", &right)] {
        let pairs = [&[("CHAP_N", name), ("CHAP_R", response)][..], &question].concat();
        assert_eq!(Dialogue::challenged(Some(TARGET_SECRET)).say(&pairs), Err(LoginError::Authentication), "{name}");
    }
    // An initiator that does not prove itself is neither answered nor let go on.
    let mut silent = Dialogue::challenged(Some(TARGET_SECRET));
    assert_eq!(silent.say(&question), Ok(vec![]));
    assert_eq!(silent.login.stage, SECURITY);
}

/// Promise: iscsi-own-secret.
#[test]
fn a_target_without_a_secret_is_not_taken_for_one_that_has_proved_it() {
    assert_eq!(Dialogue::ask(None, "1", "0x0011"), Err(LoginError::Authentication));
}

/// Planted break that was seen red: longer challenges are answered, too.
/// Promise: iscsi-own-secret.
#[test]
fn identifiers_and_challenges_are_answered_up_to_their_bounds() {
    let answers = |identifier: &str, challenge: &str| {
        let answered = Dialogue::ask(Some(TARGET_SECRET), identifier, challenge);
        assert!(matches!(answered, Ok(_) | Err(LoginError::Authentication)), "{answered:?}");
        answered.is_ok().then(|| value(&answered, "CHAP_R").expect("a login that is let in is answered"))
    };
    for (identifier, number) in [("0", 0), ("255", 255), ("0xff", 255), ("0x0", 0)] {
        assert_eq!(answers(identifier, "0x00"), Some(md5(number, TARGET_SECRET, &[0])), "{identifier}");
    }
    for identifier in ["256", "0x100", "-1", "", "0x", "4294967296", "one"] {
        assert_eq!(answers(identifier, "0x00"), None, "{identifier:?}");
    }
    let zeroes = |bytes: usize| format!("0x{}", "00".repeat(bytes));
    for bytes in [1, CHALLENGE_BYTES, CHALLENGE_BYTES_MAX] {
        assert_eq!(answers("1", &zeroes(bytes)), Some(md5(1, TARGET_SECRET, &vec![0; bytes])), "{bytes} bytes");
    }
    // 1366 digits are 1024 bytes in base 64.
    let longest = format!("0b{}==", "A".repeat(1366));
    assert_eq!(answers("1", &longest), Some(md5(1, TARGET_SECRET, &[0; CHALLENGE_BYTES_MAX])));
    let too_long = [zeroes(CHALLENGE_BYTES_MAX + 1), format!("0b{}=", "A".repeat(1367))];
    for challenge in too_long.iter().map(String::as_str).chain(["", "0x", "0b", "00", "0xgg"]) {
        assert_eq!(answers("1", challenge), None, "{challenge:?}");
    }
}

/// Planted break that was seen red: any text up to 223 bytes is a name.
/// Promise: iscsi-names.
#[test]
fn a_name_that_is_none_is_refused() {
    let long = "n".repeat(224);
    for name in ["a\u{1b}[2J", "iqn.2026-01.org.example:a b", "a\nb", "", &long] {
        let names = [("InitiatorName", name), ("TargetName", "target"), ("AuthMethod", "CHAP")];
        assert_eq!(Dialogue::new(None).say(&names), Err(LoginError::Name), "{name:?}");
        let names = [("InitiatorName", "initiator"), ("TargetName", name), ("AuthMethod", "CHAP")];
        assert_eq!(Dialogue::new(None).say(&names), Err(LoginError::Name), "{name:?}");
    }
    let names = [("TargetName", "target"), ("AuthMethod", "CHAP")];
    assert_eq!(Dialogue::new(None).say(&names), Err(LoginError::MissingParameter));
}
