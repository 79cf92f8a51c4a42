//! The description of a listener that is handed over.

use crate::passing::DESCRIPTORS_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the listener is called among the descriptors (OCI runtime specification, runtime.md: `seccompFd`).
pub(crate) const SECCOMP_DESCRIPTOR: &str = "seccompFd";
/// Bytes of a state; annotations of a large cluster take some thousands.
pub(crate) const STATE_BYTES_MAX: usize = 64 << 10;

/// Pieces in which a state may arrive: each time we look whether it is complete. A runtime sends one.
pub(crate) const PIECES_MAX: usize = 64;

/// The state of a container process, as far as a gate needs it. Other keys are ignored, and missing ones are empty. To
/// lose a listener because its description is of another version would break the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompState {
    /// Version of the specification.
    pub oci_version: String,
    /// Names of the descriptors, in the order in which they are sent.
    pub fds: Vec<String>,
    /// The process that installed the filter, in the runtime's process namespace.
    pub pid: u32,
    /// `listenerMetadata` of the profile: by our convention the account's name.
    pub metadata: String,
    /// The container.
    pub state: ContainerState,
}

/// The container that a process belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerState {
    /// Version of the specification.
    pub oci_version: String,
    /// The container's name.
    pub id: String,
    /// creating, created, running or stopped.
    pub status: String,
    /// Its first process; 0 before it is created.
    pub pid: u32,
    /// The folder of its configuration.
    pub bundle: String,
}

/// Why what was handed over was not taken.
#[derive(Debug, Error)]
pub enum OciError {
    /// Not JSON, or a field is of another type.
    #[error("not a container process state: {0}")]
    Form(#[from] serde_json::Error),
    /// More than a state can be.
    #[error("a state of more than {STATE_BYTES_MAX} bytes")]
    Size,
    /// More than a runtime sends.
    #[error("a state in more than {PIECES_MAX} pieces")]
    Pieces,
    /// More than a runtime sends.
    #[error("a state with {got} descriptors, allowed are {DESCRIPTORS_MAX}")]
    Crowd {
        /// How many came.
        got: usize,
    },
    /// The names and the descriptors do not go together.
    #[error("{got} descriptors were sent, and the state names {named}")]
    Descriptors {
        /// How many came.
        got: usize,
        /// How many are named.
        named: usize,
    },
    /// There is no listener among them, or several.
    #[error("{got} of the descriptors are called seccompFd, expected 1")]
    Listeners {
        /// How many are called so.
        got: usize,
    },
    /// Nothing came for too long.
    #[error("the state was not complete after {seconds} s")]
    Late {
        /// How long it may take.
        seconds: u64,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(std::io::Error),
}

impl OciError {
    /// Whether more text could mend it.
    pub(crate) fn is_incomplete(&self) -> bool {
        matches!(self, OciError::Form(error) if error.is_eof())
    }
}

impl SeccompState {
    /// Parses a state that came with so many descriptors, and says which of them is the listener.
    ///
    /// # Errors
    /// It is no state, or the descriptors are not those that it names.
    pub fn parse(text: &[u8], descriptors: usize) -> Result<(SeccompState, usize), OciError> {
        if text.len() > STATE_BYTES_MAX {
            return Err(OciError::Size);
        }
        let state: SeccompState = serde_json::from_slice(text)?;
        if state.fds.len() != descriptors {
            return Err(OciError::Descriptors { got: descriptors, named: state.fds.len() });
        }
        let mut places = state.fds.iter().enumerate().filter(|(_, name)| *name == SECCOMP_DESCRIPTOR);
        match (places.next(), places.count()) {
            (Some((place, _)), 0) => Ok((state, place)),
            (first, more) => Err(OciError::Listeners { got: usize::from(first.is_some()) + more }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const EXAMPLE: &str = r#"{
        "ociVersion": "1.0.2", "fds": ["seccompFd"], "pid": 4422,
        "metadata": "MKNOD=/dev/null,/dev/net/tun;BPF_MAP_TYPES=hash,array",
        "state": { "ociVersion": "1.0.2", "id": "oci-container1", "status": "creating", "pid": 4422,
                   "bundle": "/containers/redis", "annotations": { "myKey": "myValue" } } }"#;

    #[test]
    fn the_specifications_example_is_understood() {
        let (state, place) = SeccompState::parse(EXAMPLE.as_bytes(), 1).unwrap();
        assert_eq!((place, state.pid, &*state.state.id), (0, 4422, "oci-container1"));
        assert!(state.metadata.starts_with("MKNOD="));
        let again = serde_json::to_vec(&state).unwrap();
        assert_eq!(SeccompState::parse(&again, 1).unwrap().0, state);
    }

    #[test]
    fn descriptors_must_be_those_that_are_named() {
        let refusal =
            |text: &str, descriptors| SeccompState::parse(text.as_bytes(), descriptors).unwrap_err().to_string();
        assert_eq!(refusal(EXAMPLE, 0), "0 descriptors were sent, and the state names 1");
        assert_eq!(refusal(EXAMPLE, 2), "2 descriptors were sent, and the state names 1");
        let other = EXAMPLE.replace(r#"["seccompFd"]"#, r#"["pidFd"]"#);
        assert_eq!(refusal(&other, 1), "0 of the descriptors are called seccompFd, expected 1");
        let twice = EXAMPLE.replace(r#"["seccompFd"]"#, r#"["seccompFd", "seccompFd"]"#);
        assert_eq!(refusal(&twice, 2), "2 of the descriptors are called seccompFd, expected 1");
        let second = EXAMPLE.replace(r#"["seccompFd"]"#, r#"["pidFd", "seccompFd"]"#);
        assert_eq!(SeccompState::parse(second.as_bytes(), 2).unwrap().1, 1);
    }
}
