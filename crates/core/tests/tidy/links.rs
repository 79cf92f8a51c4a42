//! A relative link of a page leads to a file that is there, and its anchor to a heading of that page.
//!
//! Anchors are those that GitHub gives to headings: in lower case, blanks as hyphens, without other punctuation; a
//! second heading of the same words gets `-1`. `<a id="NAME">` is an anchor, too. Code is not looked at.

use super::tree::{Text, find, house, root};
use std::collections::{BTreeMap, BTreeSet};

/// The lines of a page that are not in a fenced block, with their numbers from 1.
fn lines(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The anchor of a heading's text. A link in it counts with its words.
fn slug(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let (mut anchors, mut seen) = (BTreeSet::new(), BTreeMap::new());
    for (_, line) in lines(page) {
        let named = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        anchors.extend(named.map(str::to_owned));
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let text = heading.rsplit("</a>").next().unwrap_or(heading);
            let slug = slug(text);
            let count = seen.entry(slug.clone()).or_insert(0_usize);
            anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
            *count += 1;
        }
    }
    anchors
}

/// The targets of the links of a line, without those in backticks.
fn targets(line: &str) -> Vec<String> {
    let words = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
    words.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// `to` as seen from the folder of `page`, from the repository's root.
fn resolved(page: &str, to: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn complaints(texts: &[Text], is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for page in texts.iter().filter(|text| text.path.ends_with(".md")) {
        for (number, line) in lines(&page.text) {
            for target in targets(line).iter().filter(|target| !target.contains("://")) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() { page.path.clone() } else { resolved(&page.path, file) };
                let to = find(texts, &path);
                if to.is_none() && !is_there(&path) {
                    complaints.push(format!("{}:{number}: {target} leads to no file", page.path));
                } else if !anchor.is_empty() && to.is_some_and(|to| !anchors(to).contains(anchor)) {
                    complaints.push(format!("{}:{number}: {target} leads to no heading", page.path));
                }
            }
        }
    }
    complaints
}

#[test]
fn links_of_pages_lead_somewhere() {
    let complaints = complaints(house(), |path| root().join(path).exists());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn planted_links_that_lead_nowhere_are_found() {
    let page = "# One `two`: three\n## Twice\n## Twice\n<a id=\"old\"></a>\n```\n[x](gone.md)\n```\n`[x](gone.md)`\n";
    let links = "[a](b.md#one-two-three), [b](../a.md#twice-1), [c](#own)\n## Own\n[d](b.md#old) [e](https://x/#y)\n";
    let bad = "[a](gone.md) [b](b.md#thrice)\n[c](#nothing)\n";
    let texts = super::tree::planted(&[("a.md", page), ("d/a.md", bad), ("d/b.md", page), ("d/c.md", links)]);
    assert_eq!(
        complaints(&texts, |_| false),
        [
            "d/a.md:1: gone.md leads to no file",
            "d/a.md:1: b.md#thrice leads to no heading",
            "d/a.md:2: #nothing leads to no heading"
        ]
    );
}
