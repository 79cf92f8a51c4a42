//! The sections that say what a scenario is about, what is measured and what is drawn.

use super::model::*;
use super::setup;
use super::words::SPAN;
use crate::claim::{self, ClaimOn, Relation};
use crate::expression::Expression;
use plimsoll_core::Span;
use plimsoll_settings::{Place, Problem, Section, reader::float};
use std::path::PathBuf;
use toml::de::DeValue;

const SEEDS_MAX: u64 = 1000;
const ROWS_MAX: usize = 1000;
const PANELS_MAX: usize = 12;
const SERIES_MAX: usize = 24;
/// Hosts that a scenario may name.
pub(super) const HOSTS: &[&str] = &["sim", "live"];

const EXPRESSION: &str = "an expression as docs/scenarios.md has them";

/// Reads one variant of a file: what all variants have in common, without variants, and what it runs.
pub(super) fn scenario(mut file: Section<'_>, problems: &mut Vec<Problem>) -> Option<(Scenario, Setup)> {
    let mut text = |key, allowed: &str, problems: &mut Vec<Problem>| {
        file.require(key, allowed, problems);
        file.text(key, allowed, problems).map(str::to_owned)
    };
    let title = text("title", "one line", problems);
    let paper = text("paper", "the paper's name, or \"none\"", problems);
    let source = text("source", "where in the paper, such as \"figure 1\"", problems);
    let description = text("description", "what is shown, in sentences", problems);
    file.require("takes", SPAN, problems);
    let takes = file.quantity("takes", SPAN, problems, |_: &Span| true);
    let seeds = file.integer("seeds", 1..=SEEDS_MAX, problems).unwrap_or(1);
    let on = claim_on(&mut file, problems).unwrap_or_default();
    let hosts = hosts(&mut file, problems);
    let setup = setup::read(&mut file, problems);
    let rows = file.named_sections("row", ROWS_MAX, problems);
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, section)| row(name, section, on, problems)).collect();
    let panels = file.named_sections("panel", PANELS_MAX, problems);
    let panels: Vec<_> = panels.into_iter().filter_map(|(name, section)| panel(name, section, problems)).collect();
    let _ = file.with("variant", "", &mut Vec::new(), Some);
    let place = file.finish(problems);
    for (key, allowed) in [("row", "at least one table [row.NAME]")] {
        if !place.has(key) {
            problems.push(place.problem(key, "nothing", allowed));
        }
    }
    who_runs(&place, &hosts, problems);
    let scenario = Scenario {
        name: String::new(),
        file: PathBuf::new(),
        title: title?,
        paper: paper?,
        source: source?,
        description: description?.trim().to_owned(),
        hosts,
        takes: takes?,
        seeds: seeds as u32,
        axes: Vec::new(),
        variants: Vec::new(),
        rows,
        panels,
    };
    Some((scenario, setup?))
}

/// Checks that there is exactly one kind of load, on what it can be on.
fn who_runs(place: &Place, hosts: &[&str], problems: &mut Vec<Problem>) {
    const LOADS: [(&str, &str); 5] = [
        ("process", "processes"),
        ("database", "a database"),
        ("tenant", "tenants"),
        ("writer", "writers"),
        ("filer", "a filer"),
    ];
    let loads: Vec<_> = LOADS.into_iter().filter(|(key, _)| place.has(key)).collect();
    match loads[..] {
        [] => {
            let allowed =
                "at least one table [process.NAME], [tenant.NAME] or [writer.NAME], or [database.NAME] or [filer]";
            problems.push(place.problem("process", "nothing", allowed));
        }
        [_] => {}
        [(_, first), (key, second), ..] => {
            problems.push(place.problem(key, format!("both {first} and {second}"), "one of them"));
        }
    }
    if place.has("cluster") && !place.has("writer") {
        problems.push(place.problem("writer", "nothing", "at least one table [writer.NAME], because of [cluster]"));
    }
    if place.has("writer") && !place.has("cluster") {
        problems.push(place.problem("cluster", "nothing", "a table [cluster], because of [writer.NAME]"));
    }
    if place.has("filer") && place.has("machine") {
        problems.push(place.problem("machine", "both a machine and a filer", "one of them: a filer has its platform"));
    }
    if place.has("guest") && !place.has("process") {
        problems.push(place.problem("guest", "a guest without processes", "[process.NAME] with guest = \"...\""));
    }
    if place.has("database") && hosts.contains(&"sim") {
        problems.push(place.problem("hosts", "\"sim\"", "\"live\" only, because of [database.NAME]"));
    }
    let several = ["guest", "cluster", "filer"].into_iter().find(|key| place.has(key));
    if let Some(several) = several.filter(|_| hosts.contains(&"live")) {
        problems.push(place.problem("hosts", "\"live\"", format!("\"sim\" only, because of [{several}]")));
    }
}

fn hosts(file: &mut Section<'_>, problems: &mut Vec<Problem>) -> Vec<&'static str> {
    const ALLOWED: &str = "a list of \"sim\" and \"live\"";
    let hosts = file.with("hosts", ALLOWED, problems, |value| {
        let names = value.as_array()?.iter().map(|item| {
            let name = item.get_ref().as_str()?;
            HOSTS.iter().find(|host| **host == name).copied()
        });
        names.collect::<Option<Vec<_>>>().filter(|hosts| !hosts.is_empty())
    });
    hosts.unwrap_or_else(|| vec!["sim"])
}

/// Which values must satisfy a claim, if it is said here.
fn claim_on(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<ClaimOn> {
    let names: Vec<&str> = ClaimOn::ALL.iter().map(|(name, _)| *name).collect();
    let chosen = section.choice("claim_on", &names, problems)?;
    ClaimOn::ALL.iter().find(|(name, _)| *name == chosen).map(|(_, on)| *on)
}

/// A row; `on` is what holds for its claim if it says nothing itself.
fn row(name: String, mut section: Section<'_>, on: ClaimOn, problems: &mut Vec<Problem>) -> Option<Row> {
    for (key, allowed) in [("title", "the quantity in words"), ("measure", EXPRESSION), ("unit", "a unit, or \"\"")] {
        section.require(key, allowed, problems);
    }
    let title = section.text("title", "the quantity in words", problems).map(str::to_owned);
    let measure = section.text("measure", EXPRESSION, problems).map(Expression::new);
    let unit = section.text("unit", "a unit, or \"\"", problems).map(str::to_owned);
    let paper = section.with("paper", "a number", problems, signed);
    let relation = section.read("claim", claim::ALLOWED, problems, |text| {
        let split = Relation::split(text).map(|(relation, bound)| (relation, Expression::new(bound)));
        split.ok_or_else(|| claim::ALLOWED.to_owned())
    });
    let margin = section.read("margin", "a part in per cent, such as \"5%\"", problems, |text| {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let margin = number.filter(|percent| (0.0..=1000.0).contains(percent)).map(|percent| percent / 100.0);
        margin.ok_or_else(|| "a part in per cent, such as \"5%\"".to_owned())
    });
    let source = section.text("source", "where the value comes from", problems).map(str::to_owned);
    let on = claim_on(&mut section, problems).unwrap_or(on);
    let place = section.finish(problems);
    let needs_source = place.has("paper") || place.has("claim");
    if needs_source && !place.has("source") {
        problems.push(place.problem("source", "nothing", "where the paper's value or the bound comes from"));
    }
    for (key, what) in [("margin", "a margin without a claim"), ("claim_on", "claim_on without a claim")] {
        if place.has(key) && !place.has("claim") {
            problems.push(place.problem(key, what, "a claim beside it, or none"));
        }
    }
    if matches!(relation, Some((Relation::Near, _))) && !place.has("margin") {
        problems.push(place.problem("margin", "nothing", "a margin, which \"near\" needs"));
    }
    let claim = relation.map(|(relation, bound)| RowClaim { relation, bound, margin: margin.unwrap_or(0.0), on });
    let source = source.unwrap_or_default();
    Some(Row { name, title: title?, measure: measure?, unit: unit?, paper, source, claim })
}

/// A number of either sign.
fn signed(value: &DeValue<'_>) -> Option<f64> {
    float(value).or_else(|| value.as_integer()?.as_str().parse().ok())
}

fn panel(name: String, mut section: Section<'_>, problems: &mut Vec<Problem>) -> Option<Panel> {
    const OVER: &str = "a list of texts: where on the horizontal axis";
    for (key, allowed) in
        [("kind", "\"lines\", \"bars\", \"curve\""), ("x", "a label with its unit"), ("y", "a label with its unit")]
    {
        section.require(key, allowed, problems);
    }
    let kinds: Vec<&str> = PanelKind::ALL.iter().map(|(name, _)| *name).collect();
    let kind = section.choice("kind", &kinds, problems);
    let kind = kind.and_then(|name| PanelKind::ALL.iter().find(|(n, _)| *n == name)).map(|(_, kind)| *kind);
    let title = section.text("title", "one line", problems).unwrap_or_default().to_owned();
    let mut scale = |key, log_key| Scale {
        label: section.text(key, "a label with its unit", problems).unwrap_or_default().to_owned(),
        is_log: section.boolean(log_key, problems).unwrap_or(false),
    };
    let (x, y) = (scale("x", "x_log"), scale("y", "y_log"));
    let over =
        section.texts("over", OVER, problems).map(|texts| texts.into_iter().map(|(_, text)| text.to_owned()).collect());
    let series = section.named_sections("series", SERIES_MAX, problems);
    let series: Vec<_> = series.into_iter().filter_map(|(name, section)| one_series(name, section, problems)).collect();
    let place = section.finish(problems);
    let (kind, over): (PanelKind, Vec<String>) = (kind?, over.unwrap_or_default());
    match kind {
        PanelKind::Curve if place.has("over") => {
            problems.push(place.problem("over", "places for a curve", "points in y"))
        }
        PanelKind::Lines | PanelKind::Bars if over.is_empty() => problems.push(place.problem("over", "nothing", OVER)),
        _ => {}
    }
    let is_placeable = |x: &String| kind != PanelKind::Lines || crate::picture::place(x).is_some();
    if let Some(wrong) = over.iter().find(|x| !is_placeable(x)) {
        problems.push(place.problem("over", plimsoll_settings::quoted(wrong), "numbers or sizes, which lines need"));
    }
    if !place.has("series") {
        problems.push(place.problem("series", "nothing", "at least one table [panel.NAME.series.NAME]"));
    }
    Some(Panel { name, title, kind, x, y, over, series })
}

fn one_series(name: String, mut section: Section<'_>, problems: &mut Vec<Problem>) -> Option<Series> {
    const POINTS: &str = "a list of points [x, y]; for bars x counts from 0";
    section.require("y", EXPRESSION, problems);
    let label = section.text("label", "a name", problems).map_or_else(|| name.clone(), str::to_owned);
    let y = section.text("y", EXPRESSION, problems).map(Expression::new);
    let paper = section.with("paper", POINTS, problems, |value| {
        let points =
            value.as_array()?.iter().map(|point| match point.get_ref().as_array()?.iter().collect::<Vec<_>>()[..] {
                [x, y] => Some((signed(x.get_ref())?, signed(y.get_ref())?)),
                _ => None,
            });
        points.collect::<Option<Vec<_>>>()
    });
    section.finish(problems);
    Some(Series { name, label, y: y?, paper: paper.unwrap_or_default() })
}
