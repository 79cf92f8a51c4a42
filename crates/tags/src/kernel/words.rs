//! Messages of libbpf and the kernel's verifier go into the error instead of to the terminal.

use libbpf_rs::PrintLevel;
use std::sync::{Mutex, PoisonError};

/// How much of it is kept: the end, where the verifier says what it refused.
const BYTES_MAX: usize = 4000;

/// libbpf has one global callback for messages, so one thread at a time loads.
static LOADING: Mutex<()> = Mutex::new(());
static WORDS: Mutex<String> = Mutex::new(String::new());

fn hear(_: PrintLevel, words: String) {
    WORDS.lock().unwrap_or_else(PoisonError::into_inner).push_str(&words);
}

/// Does `step`; if it fails, its error comes with what was said on the way.
pub(super) fn told<T, E>(step: impl FnOnce() -> Result<T, E>) -> Result<T, (E, String)> {
    let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    WORDS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
    let outcome = step();
    libbpf_rs::set_print(before);
    outcome.map_err(|error| {
        let words = std::mem::take(&mut *WORDS.lock().unwrap_or_else(PoisonError::into_inner));
        let end = words.char_indices().rev().nth(BYTES_MAX).map_or(0, |(at, _)| at);
        (error, words[end..].trim().to_owned())
    })
}
