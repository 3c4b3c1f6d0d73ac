//! The page in HTML: one file, nothing loaded from elsewhere, no scripts; light or dark as the
//! reader's system is, and fit for paper.

use crate::{
    Results, chart,
    compare::Verdict,
    section::{Compared, Figures, Section},
    words,
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The whole page.
#[must_use]
pub fn html(results: &Results) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Forebay: the papers' figures, and ours" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main {
                    (top(results))
                    (summary(results))
                    @for section in results.sections() { (experiment(&section)) }
                }
            }
        }
    };
    page.into_string()
}

fn top(results: &Results) -> Markup {
    html! {
        h1 { "The papers' figures, and ours" }
        p {
            "Each table and figure of the papers that Forebay is built after, measured again. What is compared are ratios: absolute figures belong to \
             the machine. A figure is the median of the rounds; the smallest and the largest stand in parentheses, and as error bars."
        }
        @for line in results.provenance() { p.soft { (words::sentence(&line)) "." } }
        @if let Some(warning) = results.warning() { p.warning { (warning) } }
        p.soft { "Measured in " (words::number(results.seconds() / 60.0)) " minutes." }
    }
}

fn summary(results: &Results) -> Markup {
    html! {
        h2 #summary { "Summary" }
        p.soft {
            "Ours is " span.better { "green" } " where it is beyond the paper's figure by more than a quarter (or its range) on the side that is \
             wanted, and " span.worse { "red" } " where it is short of it. Peers: ours over theirs, in the same run."
        }
        div.wide {
            table {
                thead { tr { th { "Goal" } th.figure { "Paper" } th.figure { "Ours" } th { "Ours over peers" } } }
                tbody {
                    @for section in results.sections() {
                        @for compared in section.compared().iter().filter(|compared| compared.headline) {
                            tr {
                                td {
                                    a href={ "#" (section.experiment.id) } { (section.experiment.paper) " " (section.experiment.title) }
                                    br;
                                    (words::sentence(&compared.what))
                                }
                                td.figure { (compared.paper) }
                                (ours(compared))
                                td { (compared.peers) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn ours(compared: &Compared) -> Markup {
    let class = match compared.verdict {
        Some(Verdict::Better) => "figure better",
        Some(Verdict::Worse) => "figure worse",
        Some(Verdict::Same) | None => "figure",
    };
    html! { td class=(class) { (compared.ours) } }
}

fn experiment(section: &Section<'_>) -> Markup {
    let experiment = section.experiment;
    html! {
        section {
            header {
                h2 id=(experiment.id) { (experiment.paper) ", " (experiment.title) }
                p.soft { (section.paper()) }
                dl {
                    dt { "Ours" } dd { (experiment.method) }
                    dt { "Paper's machine" } dd { (experiment.setup) }
                    @if let Some(outcome) = section.outcome {
                        dt { "Command" } dd { code { (outcome.command) } }
                        dt { "Machine" } dd { (outcome.machine) }
                        @if let Some(device) = section.device() { dt { "Device" } dd { (device) } }
                        dt { "Took" } dd { (words::number(outcome.seconds)) " s, at " (outcome.size) }
                    }
                }
            }
            div.wide {
                table {
                    thead { tr { th { "What" } th.figure { "Paper" } th.figure { "Ours" } th { "Difference" } } }
                    tbody {
                        @for compared in section.compared() {
                            tr {
                                td { (words::sentence(&compared.what)) }
                                td.figure { (compared.paper) }
                                (ours(&compared))
                                td { (compared.sentence) }
                            }
                        }
                    }
                }
            }
            @for figures in section.figures() { (panel(&figures)) }
            (notes(section))
        }
    }
}

/// Columns at most whose cells have the span beside the figure; with more it stands below.
const BESIDE_MAX: usize = 4;

fn panel(figures: &Figures<'_>) -> Markup {
    html! {
        div.panel {
            figure {
                figcaption { (figures.title()) }
                (chart::svg(figures))
            }
            @let (head, rows) = figures.table();
            div.wide {
                table {
                    thead { tr {
                        @for (column, cell) in head.iter().enumerate() { th.figure[column > 0] { @if column == 0 { (words::sentence(cell)) } @else { (cell) } } }
                    } }
                    tbody {
                        @for (name, cells) in &rows {
                            tr {
                                td { (name) }
                                @for cell in cells {
                                    td.figure {
                                        (cell.value)
                                        @if let Some(span) = &cell.span {
                                            @if cells.len() > BESIDE_MAX { br; } @else { " " }
                                            small { (span) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn notes(section: &Section<'_>) -> Markup {
    let missing = section.missing();
    let notes = section.outcome.map_or(&[][..], |outcome| &outcome.notes);
    html! {
        @if !missing.is_empty() || !notes.is_empty() {
            ul.notes {
                @for line in &missing { li { "Missing: " (line) "." } }
                @for note in notes { li { (words::sentence(note)) "." } }
            }
        }
    }
}
