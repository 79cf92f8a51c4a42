//! Answers and texts of daemons in many states, as files: programs read the one, people the other.

use super::states::{Answers, State, states};
use crate::control::protocol::Response;
use crate::metrics::text;

/// What a daemon in `state` answers, and what commands make of it when they have read it.
fn answered(state: &State) -> String {
    let Answers { status, pools, volumes, caches, tenants } = state.answers();
    let answers = [
        Response::Status(status),
        Response::Pools(pools),
        Response::Volumes(volumes),
        Response::Caches(caches),
        Response::Tenants(tenants),
    ];
    let lines = answers.map(|answer| serde_json::to_string(&answer).unwrap());
    let read = lines.each_ref().map(|line| serde_json::from_str(line).unwrap());
    let [
        Response::Status(status),
        Response::Pools(pools),
        Response::Volumes(volumes),
        Response::Caches(caches),
        Response::Tenants(tenants),
    ] = &read
    else {
        panic!("{read:?}")
    };
    let texts = [
        ("status", format!("{}{}", text::status(status), text::tenants(tenants))),
        ("volume list", text::volumes(volumes)),
        ("pool list", text::pools(pools)),
        ("cache status", text::caches(caches)),
        ("volume list --json", serde_json::to_string_pretty(volumes).unwrap()),
        ("pool list --json", serde_json::to_string_pretty(pools).unwrap()),
    ];
    let texts = texts.map(|(command, text)| format!("\n# plimsoll {command}\n{text}\n"));
    format!("{}\n{}", lines.join("\n"), texts.concat())
}

/// `TIDY=write` writes the files. Planted breaks: fields are read into a map that sorts them; a queue's longest wait
/// reads the sum of all. Both red.
#[test]
fn answers_and_texts_stay_as_they_are() {
    for state in states() {
        let path = format!("{}/src/metrics/tests/golden/{}.txt", env!("CARGO_MANIFEST_DIR"), state.name);
        let answered = answered(&state);
        if std::env::var_os("TIDY").is_some_and(|how| how == "write") {
            std::fs::write(&path, &answered).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(answered, expected, "{path}");
    }
}
