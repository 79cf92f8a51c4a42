//! One page over all scenarios that were run: figures inline, tables, and how to run each again. It needs nothing else.

use crate::claim::readable;
use crate::experiment::{Report, ReportRow};
use crate::picture;
use crate::scenario::Scenario;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1260px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:left}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.yes{color:#006b3c}.no{color:#b00020;font-weight:bold}\
svg{max-width:100%;height:auto}code{background:#f3f3f3;padding:.1em .3em}section{margin:3em 0}.dim{color:#666}";

/// The page.
pub fn page(reports: &[(Scenario, Report)]) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Plimsoll: scenarios</title>\
         <style>{STYLE}</style></head>\n<body>\n<h1>Plimsoll: scenarios</h1>\n<p>{}</p>\n<ul>\n",
        escaped(&summary(reports))
    );
    for (scenario, report) in reports {
        let (name, title) = (escaped(&scenario.name), escaped(&scenario.title));
        let _ = writeln!(page, "<li><a href=\"#{name}\">{name}</a>: {title} {}</li>", verdict(report));
    }
    page.push_str("</ul>\n");
    reports.iter().for_each(|(scenario, report)| section(&mut page, scenario, report));
    page.push_str("</body>\n</html>\n");
    page
}

fn summary(reports: &[(Scenario, Report)]) -> String {
    let claims = reports.iter().flat_map(|(_, report)| &report.rows).filter_map(|row| row.holds);
    let (mut hold, mut all) = (0, 0);
    claims.for_each(|holds| (hold, all) = (hold + usize::from(holds), all + 1));
    let not_run = reports.iter().filter(|(_, report)| report.not_run.is_some()).count();
    format!("{} scenarios, {not_run} of them not run; {hold} of {all} claims hold.", reports.len())
}

fn verdict(report: &Report) -> String {
    match (&report.not_run, report.failed().count()) {
        (Some(reason), _) => format!("<span class=\"dim\">not run: {}</span>", escaped(reason)),
        (None, 0) => "<span class=\"yes\">all claims hold</span>".to_owned(),
        (None, failed) => format!("<span class=\"no\">{failed} claims do not hold</span>"),
    }
}

fn section(page: &mut String, scenario: &Scenario, report: &Report) {
    let name = escaped(&scenario.name);
    let _ = write!(
        page,
        "<section id=\"{name}\">\n<h2>{name}: {}</h2>\n<p class=\"dim\">{}, {}; host {}, {} seeds{}</p>\n",
        escaped(&scenario.title),
        escaped(&scenario.paper),
        escaped(&scenario.source),
        report.host,
        report.seeds,
        if report.settings.is_empty() {
            String::new()
        } else {
            format!("; with {}", escaped(&report.settings.join(", ")))
        },
    );
    for paragraph in scenario.description.split("\n\n") {
        let _ = writeln!(page, "<p>{}</p>", escaped(paragraph));
    }
    if let Some(reason) = &report.not_run {
        let _ = writeln!(page, "<p>Not run: {}</p>", escaped(reason));
    }
    if let Some(svg) = picture::svg(&report.drawing) {
        let _ = writeln!(page, "{svg}");
    }
    if !report.rows.is_empty() {
        page.push_str(
            "<table>\n<tr><th></th><th class=\"n\">measured</th><th>unit</th><th class=\"n\">paper</th>\
             <th>claim</th><th>holds</th><th>source</th></tr>\n",
        );
        report.rows.iter().for_each(|row| table_row(page, row));
        page.push_str("</table>\n");
    }
    let settings: String = report.settings.iter().map(|setting| format!(" --set '{setting}'")).collect();
    let again =
        format!("plimsoll scenario run {} --host {} --seeds {}{settings}", scenario.name, report.host, report.seeds);
    let _ = writeln!(page, "<p>Again: <code>{}</code></p>\n</section>", escaped(&again));
}

fn table_row(page: &mut String, row: &ReportRow) {
    let holds = match row.holds {
        Some(true) => "<td class=\"yes\">yes</td>",
        Some(false) => "<td class=\"no\">NO</td>",
        None => "<td></td>",
    };
    let not_run = row.not_run.as_ref().map(|reason| format!("not run: {reason}"));
    let measured = row.problem.clone().or(not_run).unwrap_or_else(|| row.measured_text());
    let _ = writeln!(
        page,
        "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td>{holds}<td>{}</td></tr>",
        escaped(&row.title),
        escaped(&measured),
        escaped(&row.unit),
        row.paper.map_or_else(String::new, readable),
        escaped(row.claim.as_deref().unwrap_or_default()),
        escaped(&row.source),
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
