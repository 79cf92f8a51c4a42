//! In place of `kernel` where BPF was left out when this was built.

use crate::error::TagsError;
use crate::source::Source;
use crate::{Coverage, Options};
use std::path::Path;

pub(crate) fn load(_: &Path, _: &Options) -> Result<(Box<dyn Source>, Coverage), TagsError> {
    check_machine().map(|()| unreachable!("it never can"))
}

pub(crate) fn check_machine() -> Result<(), TagsError> {
    Err(TagsError::NotRun("built without BPF: clang or libelf's headers were missing".to_owned()))
}
