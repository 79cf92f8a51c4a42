//! Answers and texts of daemons in many states, as files: programs read the one, people the other.

use super::states::{State, states};
use crate::commands::{cache, status};
use crate::control::protocol::Response;
use crate::metrics::accounts::POOL;
use crate::metrics::volumes::SERVED_VOLUME;

/// What a daemon in `state` answers, and what commands make of it.
fn answered(state: &State) -> String {
    let State { status, pools, caches, tenants, .. } = state;
    let line = |response: Response| serde_json::to_string(&response).unwrap();
    let answers = [
        line(Response::Status(status.clone())),
        line(Response::Pools(pools.clone())),
        line(Response::Volumes(status.volumes.clone())),
        line(Response::Caches(caches.clone())),
        line(Response::Tenants(tenants.clone())),
    ];
    let texts = [
        ("status", status::as_text(status)),
        ("volume list", SERVED_VOLUME.table(&status.volumes).to_string()),
        ("pool list", POOL.table(pools).to_string()),
        ("cache status", cache::as_text(caches)),
        ("volume list --json", serde_json::to_string_pretty(&status.volumes).unwrap()),
        ("pool list --json", serde_json::to_string_pretty(pools).unwrap()),
    ];
    let texts = texts.map(|(command, text)| format!("\n# plimsoll {command}\n{text}\n"));
    format!("{}\n{}", answers.join("\n"), texts.concat())
}

/// `TIDY=write` writes the files.
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
