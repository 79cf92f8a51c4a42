//! What comes of a command that the unit was asked.

use super::job::Job;
use super::sense::Answer;

/// What becomes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is over.
    Answer(Answer),
    /// So many bytes of parameters have to come first; then [`LogicalUnit::parameters`](super::LogicalUnit::parameters)
    /// says more.
    Parameters(u32),
    /// The volume has to do something.
    Job(Job),
}

impl<T: Into<Answer>> From<T> for Outcome {
    fn from(answer: T) -> Outcome {
        Outcome::Answer(answer.into())
    }
}
