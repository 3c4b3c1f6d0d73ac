//! The rows of an experiment's result: every one is a figure with its span or says why not, and
//! what must be there is.

use crate::common::Sandbox;
use serde_json::Value;
use std::fs;

pub fn results(sandbox: &Sandbox, dir: &str, id: &str) -> Value {
    let path = sandbox.file(dir).join(format!("{id}.json"));
    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// What experiments call the disk that they run on.
pub const HERE: &str = "this disk";

/// The figures of a panel on this disk, by series and x.
pub fn figures(result: &Value, panel: &str) -> Vec<(String, String, f64)> {
    figures_on(result, HERE, panel)
}

/// The figures of a panel at a place, by series and x. Every row of the result is a figure with its
/// span, or says why not.
pub fn figures_on(result: &Value, place: &str, panel: &str) -> Vec<(String, String, f64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = result["rows"].as_array().unwrap();
    for row in rows {
        match row["value"].as_f64() {
            Some(value) => {
                let (min, max) = (row["min"].as_f64().unwrap(), row["max"].as_f64().unwrap());
                assert!(
                    value.is_finite() && 0.0 <= min && min <= value && value <= max,
                    "{row}"
                );
            }
            None => assert!(row["missing"].as_str().unwrap().len() > 10, "{row}"),
        }
    }
    rows.iter()
        .filter(|row| row["panel"] == panel && row["place"] == place)
        .filter_map(|row| {
            Some((
                text(&row["series"]),
                text(&row["x"]),
                row["value"].as_f64()?,
            ))
        })
        .collect()
}

/// Every series at every x has a figure above zero on this disk.
#[track_caller]
pub fn assert_complete(result: &Value, panel: &str, series: &[&str], xs: &[&str]) {
    assert_on(result, HERE, panel, series, xs);
}

/// Every series at every x has a figure above zero at `place`.
#[track_caller]
pub fn assert_on(result: &Value, place: &str, panel: &str, series: &[&str], xs: &[&str]) {
    let figures = figures_on(result, place, panel);
    for (series, x) in series
        .iter()
        .flat_map(|series| xs.iter().map(move |x| (series, x)))
    {
        let figure = figures.iter().find(|(s, at, _)| s == series && at == x);
        assert!(
            figure.is_some_and(|(.., value)| *value > 0.0),
            "{panel}, {series} at {x} on {place}: {figures:?}"
        );
    }
}
