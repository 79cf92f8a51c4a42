//! Each field is shown by a command, or its row says why none does.

use super::rows;
use super::states::{Answers, states};
use crate::metrics::reading::Reading;
use crate::metrics::text;
use std::collections::BTreeMap;

/// What the commands say of `answers`.
fn texts(Answers { status, pools, volumes, caches, tenants }: &Answers) -> [String; 5] {
    [text::status(status), text::pools(pools), text::volumes(volumes), text::caches(caches), text::tenants(tenants)]
}

/// Gives what stands at `path` another value, in all subjects.
fn alter(reading: &mut Reading, path: &[&str]) {
    match (reading, path) {
        (Reading::List(items), [_, ..]) => items.iter_mut().for_each(|item| alter(item, path)),
        (Reading::Object(fields), [name, below @ ..]) => {
            fields.iter_mut().filter(|(field, _)| field == name).for_each(|(_, reading)| alter(reading, below));
        }
        (Reading::Object(fields), []) => fields.iter_mut().for_each(|(_, reading)| alter(reading, &[])),
        (Reading::List(items), []) => items.clear(),
        (Reading::Flag(flag), _) => *flag = !*flag,
        (Reading::Count(count), _) => *count = *count * 2 + 10_000_000_000,
        (Reading::Real(number), _) => *number = *number / 2.0 + 0.3,
        (Reading::Text(text), _) => text.push('x'),
        (absent, _) => *absent = Reading::Count(7_000_000_000),
    }
}

/// Planted breaks: a row without a column, a sentence and a reason; a reason of a row that has a column. Both red.
#[test]
fn every_field_is_shown_or_its_row_says_why_not() {
    let states: Vec<Answers> = states().iter().map(|state| state.answers()).collect();
    let before: Vec<_> = states.iter().map(texts).collect();
    let mut shown = BTreeMap::new();
    for (place, metric) in rows().into_iter().filter(|(_, metric)| metric.inside.is_none()) {
        let mut altered = states.clone();
        let (answer, path) = place.split_once('.').unwrap();
        let path: Vec<&str> = path.split('.').collect();
        for Answers { status, pools, volumes, caches, tenants } in &mut altered {
            let answers =
                [("status", status), ("pools", pools), ("volumes", volumes), ("caches", caches), ("tenants", tenants)];
            answers.into_iter().filter(|(name, _)| *name == answer).for_each(|(_, answer)| alter(answer, &path));
        }
        let is_shown = altered.iter().map(texts).collect::<Vec<_>>() != before;
        let (_, _, of_row) = shown.entry(std::ptr::from_ref(metric)).or_insert((place, metric, false));
        *of_row |= is_shown;
    }
    let wrong = shown.into_values().filter(|(_, metric, is_shown)| *is_shown == metric.only_json.is_some());
    assert_eq!(wrong.map(|(place, ..)| place).collect::<Vec<_>>(), Vec::<String>::new());
}
