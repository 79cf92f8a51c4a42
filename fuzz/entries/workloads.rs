//! What the fuzz target of workloads does with its bytes, and what must hold for any bytes.
//!
//! The fuzz target calls this function, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/workloads/tests/corpus.rs`).

use plimsoll_workloads::{FileIndex, Step, Workload};

/// Steps of a thread that are looked at.
const STEPS: usize = 100;

/// A text that is a workload is printed as it was, and its first and last thread can be run; otherwise the error names
/// a word of the text, in one line. Says which it was.
pub fn workload(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let workload = match text.parse::<Workload>() {
        Ok(workload) => workload,
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.column), "{error}");
            assert!(!error.allowed.is_empty() && !error.to_string().contains('\n'), "{error}");
            return false;
        }
    };
    assert_eq!(workload.to_string(), text);
    let plan = workload.plan(1);
    assert!(plan.thread_count() > 0);
    for thread in [0, plan.thread_count() - 1] {
        let mut running = plan.thread(thread);
        for _ in 0..STEPS {
            match running.next() {
                None => break,
                Some(Step::Take { at_least, until, .. }) => running.took(if until.is_some() { 0 } else { at_least }),
                Some(_) => {}
            }
        }
    }
    let files = plan.file_count();
    [0, files.saturating_sub(1)]
        .into_iter()
        .filter(|&file| file < files)
        .for_each(|file| drop(plan.file(FileIndex(file))));
    true
}
