//! The `plimsoll` command; all of it is in the library.

fn main() -> std::process::ExitCode {
    plimsoll_cli::commands::run()
}
