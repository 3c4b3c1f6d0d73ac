//! Figures by their names, as programs print them: a line of names and a line of figures, separated by commas.

use std::collections::HashMap;

/// The figures of the first line after one that has the name `known`, if it has as many cells. Cells may be in quotes; what is no number is left out.
#[must_use]
pub fn figures(text: &str, known: &str) -> Option<HashMap<String, f64>> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split(',').map(|cell| cell.trim().trim_matches('"'));
        cells.map(str::to_owned).collect()
    };
    let mut lines = text.lines().map(cells);
    let names = lines.find(|cells| cells.iter().any(|cell| cell == known))?;
    let row = lines.find(|cells| cells.len() == names.len())?;
    let figures = names.into_iter().zip(row);
    Some(
        figures
            .filter_map(|(name, cell)| Some((name, cell.parse().ok()?)))
            .collect(),
    )
}
