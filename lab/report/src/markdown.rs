//! The page in Markdown: a page of the documentation site.

use crate::{Results, section::Section, words};
use std::fmt::Write;

/// The whole page.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let mut page = "# The papers' figures, and ours\n\n\
        Made by `forebay-lab report` from the results of `forebay-lab paper`; not edited by hand. What is compared are ratios: absolute figures\n\
        belong to the machine. A figure is the median of the rounds; the smallest and the largest stand in parentheses. How each is measured:\n\
        docs/benchmarks.md.\n\n"
        .to_owned();
    for line in results.provenance() {
        let _ = writeln!(page, "* {}.", words::sentence(&line));
    }
    let _ = writeln!(
        page,
        "* Measured in {} minutes.\n",
        words::number(results.seconds() / 60.0)
    );
    if let Some(warning) = results.warning() {
        let _ = writeln!(page, "**{warning}**\n");
    }
    page.push_str(&summary(results));
    for section in results.sections() {
        page.push_str(&experiment(&section));
    }
    page
}

fn summary(results: &Results) -> String {
    let mut text = "## Summary\n\n".to_owned();
    let mut rows = Vec::new();
    for section in results.sections() {
        for compared in section
            .compared()
            .into_iter()
            .filter(|compared| compared.headline)
        {
            rows.push(vec![
                format!(
                    "{} {}: {}",
                    section.experiment.paper, section.experiment.title, compared.what
                ),
                compared.paper,
                compared.ours,
                compared.peers,
            ]);
        }
    }
    text.push_str(&table(
        &["goal", "paper", "ours", "ours over peers"],
        "lrrl",
        &rows,
    ));
    text
}

fn experiment(section: &Section<'_>) -> String {
    let experiment = section.experiment;
    let mut text = format!(
        "## {}, {}\n\n{}\n\n",
        experiment.paper, experiment.title, experiment.method
    );
    let _ = writeln!(text, "* Paper: {}. {}.", section.paper(), experiment.setup);
    if let Some(outcome) = section.outcome {
        let _ = writeln!(
            text,
            "* Ours: `{}`, on {}.",
            outcome.command, outcome.machine
        );
        if let Some(device) = section.device() {
            let _ = writeln!(text, "* Device: {device}.");
        }
    }
    text.push('\n');
    let rows: Vec<_> = section
        .compared()
        .into_iter()
        .map(|compared| {
            vec![
                words::sentence(&compared.what),
                compared.paper,
                compared.ours,
                compared.sentence,
            ]
        })
        .collect();
    text.push_str(&table(
        &["what", "paper", "ours", "difference"],
        "lrrl",
        &rows,
    ));
    for figures in section.figures() {
        let _ = writeln!(text, "{}:\n", figures.title());
        let (head, rows) = figures.table();
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|(name, cells)| {
                let cells = cells.iter().map(ToString::to_string);
                std::iter::once(name.to_owned()).chain(cells).collect()
            })
            .collect();
        let sides = format!("l{}", "r".repeat(head.len() - 1));
        text.push_str(&table(&head, &sides, &rows));
    }
    let missing = section.missing();
    let missing = missing.iter().map(|line| format!("Missing: {line}"));
    let notes = section.outcome.map_or(&[][..], |outcome| &outcome.notes);
    let lines: Vec<String> = missing
        .chain(notes.iter().map(|note| words::sentence(note)))
        .collect();
    for line in &lines {
        let _ = writeln!(text, "* {line}.");
    }
    if !lines.is_empty() {
        text.push('\n');
    }
    text
}

/// A table; `sides` has `l` or `r` for each column.
fn table(head: &[&str], sides: &str, rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(|cell| escaped(cell)).collect());
    let rule = sides
        .chars()
        .map(|side| if side == 'r' { "---:" } else { "---" }.to_owned());
    text.push_str(&line(rule.collect()));
    for row in rows {
        text.push_str(&line(row.iter().map(|cell| escaped(cell)).collect()));
    }
    text.push('\n');
    text
}

/// A cell: no bar ends it early, no line break the row.
fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_cannot_break_its_row() {
        let text = table(
            &["a", "b"],
            "lr",
            &[vec!["x|y".to_owned(), "1\n2".to_owned()]],
        );
        assert_eq!(text, "| a | b |\n| --- | ---: |\n| x\\|y | 1 2 |\n\n");
    }
}
