//! "Did you mean": the known word that is closest to a mistyped one.

/// Typing errors that are forgiven: a letter too many, too few, or another one, so often.
const DISTANCE_MAX: usize = 2;
/// Longer words are not compared.
const LENGTH_MAX: usize = 64;

/// The candidate that is at most two typing errors away from `word`, the closest first.
pub fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > LENGTH_MAX {
        return None;
    }
    let rated = candidates.into_iter().filter(|candidate| candidate.len() <= LENGTH_MAX);
    rated
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= DISTANCE_MAX && distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}

/// ` (did you mean "x"?)`, or nothing.
pub fn hint<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    closest(word, candidates).map_or(String::new(), |candidate| format!(" (did you mean {candidate:?}?)"))
}

/// Levenshtein's distance. O(a x b) time, O(b) memory.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_forgiven_and_other_words_are_not() {
        let keys = ["reserve", "limit", "weight"];
        assert_eq!(closest("reserv", keys), Some("reserve"));
        assert_eq!(closest("wieght", keys), Some("weight"));
        assert_eq!(closest("priority", keys), None);
        assert_eq!(closest("", ["a"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
