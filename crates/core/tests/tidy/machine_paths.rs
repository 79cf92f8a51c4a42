//! No text of the repository names a path of one person's machine.

use super::tree::{Text, house};

fn complaints(texts: &[Text]) -> Vec<String> {
    let folders = ["home", "root", "work", "Users"].map(|folder| format!("/{folder}/"));
    let mut complaints = Vec::new();
    for text in texts {
        for (number, line) in text.text.lines().enumerate() {
            if folders.iter().any(|folder| line.contains(folder)) {
                complaints.push(format!("{}:{}: {line}", text.path, number + 1));
            }
        }
    }
    complaints
}

#[test]
fn no_tracked_text_names_a_path_of_one_machine() {
    let complaints = complaints(house());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_path_is_found() {
    let line = format!("see /{}/me/notes", "home");
    let texts = super::tree::planted(&[("a.md", &format!("fine /var/lib/plimsoll\n{line}"))]);
    assert_eq!(complaints(&texts), [format!("a.md:2: {line}")]);
}
