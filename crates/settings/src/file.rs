//! The text of a file, of bounded length.

use crate::problem::{ConfigurationError, Problem};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Reads `file`, which must be UTF-8 and not longer than `bytes_max`; `allowed_length` says that in words.
///
/// # Errors
/// What is wrong with it, with the line where that can be known.
pub fn read_text(file: &Path, bytes_max: u64, allowed_length: &str) -> Result<String, ConfigurationError> {
    let unreadable = |line, got: String, allowed: &str| ConfigurationError {
        file: file.to_owned(),
        problems: vec![Problem { line, key: "file".into(), got, allowed: allowed.to_owned() }],
    };
    let bytes = match read_bounded(file, bytes_max) {
        Ok(bytes) if bytes.len() as u64 > bytes_max => {
            return Err(unreadable(1, "a longer file".into(), allowed_length));
        }
        Ok(bytes) => bytes,
        Err(error) => return Err(unreadable(1, error.to_string(), "a file that can be read")),
    };
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        unreadable(line, "bytes that are not UTF-8".into(), "UTF-8")
    })
}

fn read_bounded(file: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    // To open a FIFO takes until something writes to it. A pipe of this process, such as /dev/stdin, is a link.
    if std::fs::symlink_metadata(file)?.file_type().is_fifo() {
        return Err(std::io::Error::other("a FIFO"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let path = std::env::temp_dir().join(format!("plimsoll-fifo-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let read = read_text(&path, 1 << 20, "at most 1 MiB");
        std::fs::remove_file(&path).unwrap();
        let problem = &read.unwrap_err().problems[0];
        assert_eq!((problem.got.as_str(), problem.allowed.as_str()), ("a FIFO", "a file that can be read"));
    }
}
