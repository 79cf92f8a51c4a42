//! The `plimsoll` command; all of it is in the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    plimsoll_cli::commands::run()
}
