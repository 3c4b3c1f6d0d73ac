//! The report's tables as rows: those of a run, and those of an earlier report whose workloads this
//! run had not. So a file keeps the last run of each workload.

use super::place;
use crate::{cycle, machine::MachineKind};
use std::fmt::Write;

/// A part of the report. Their order is the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Unexpected,
    Runs,
    Forebay,
    Controls,
    Flash,
    Moments,
    Unmounted,
    Losses,
}

const ALL: [Section; 8] = [
    Section::Unexpected,
    Section::Runs,
    Section::Forebay,
    Section::Controls,
    Section::Flash,
    Section::Moments,
    Section::Unmounted,
    Section::Losses,
];

/// The head of the two tables of workloads.
const WORKLOADS_HEAD: &str = "| workload | run | cycles | devdax | disk | cuts | acknowledged | in flight | \
     sectors dropped | cycles with loss | keys lost | keys wrong | torn | unusable | expected |\n\
     |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|";
/// Its columns that are looked at again.
const RUN: usize = 1;
const CYCLES: usize = 2;
const CUTS: usize = 5;
const ACKNOWLEDGED: usize = 6;
const LOSSY: usize = 9;

impl Section {
    fn title(self) -> &'static str {
        match self {
            Self::Unexpected => "Unexpected",
            Self::Runs => "Runs",
            Self::Forebay => "Forebay",
            Self::Controls => "Controls",
            Self::Flash => "Flash",
            Self::Moments => "Moments",
            Self::Unmounted => "Not mounted",
            Self::Losses => "Cycles with loss",
        }
    }

    /// What stands above the rows.
    fn head(self) -> &'static str {
        match self {
            Self::Unexpected | Self::Losses => "",
            Self::Unmounted => {
                "Cycles after which the kernel did not mount the data's file system, so that no database was asked.\n"
            }
            Self::Runs => {
                "| run | command | accelerator | minutes |\n\
                 |---|---|---|---:|"
            }
            Self::Forebay | Self::Controls => WORKLOADS_HEAD,
            Self::Flash => {
                "As `forebay status` had it, within a second before the cuts.\n\n\
                 | workload | cycles that say it | slots, at most in use | pages that came in | went home | in batches | \
                 second chances | cycles with a home batch | with a second chance |\n\
                 |---|---:|---:|---:|---:|---:|---:|---:|---:|"
            }
            Self::Moments => {
                "Under Forebay. A moment that did not come in time was cut at a later one.\n\n\
                 | moment | workload | cycles | cut there | acknowledged | cycles with loss |\n\
                 |---|---|---:|---:|---:|---:|"
            }
        }
    }
}

/// A line of a part.
#[derive(Clone, Debug)]
pub struct ReportRow {
    pub section: Section,
    /// What it is about; of a run, its name.
    pub about: String,
    pub line: String,
}

impl ReportRow {
    /// A row of a table.
    pub fn of_table(section: Section, about: &str, cells: &[String]) -> Self {
        Self {
            section,
            about: about.to_owned(),
            line: format!("| {} |", cells.join(" | ")),
        }
    }

    /// An item of a list, which begins with what it is about.
    pub fn item(section: Section, about: &str, text: &str) -> Self {
        Self {
            section,
            about: about.to_owned(),
            line: format!("* {text}"),
        }
    }

    fn cell(&self, column: usize) -> &str {
        let inner = self.line.trim_start_matches("| ").trim_end_matches(" |");
        inner.split(" | ").nth(column).unwrap_or_default()
    }

    fn number(&self, column: usize) -> u64 {
        self.cell(column).parse().unwrap_or(0)
    }

    fn is_of_workload(&self) -> bool {
        matches!(self.section, Section::Forebay | Section::Controls)
    }

    /// Where it stands in its part.
    fn order(&self) -> (Section, String, usize, bool) {
        let first = match self.section {
            Section::Moments | Section::Runs => self.cell(0).to_owned(),
            _ => String::new(),
        };
        let (workload, _) = cycle::parts(&self.about);
        (self.section, first, place(workload), self.in_namespace())
    }

    /// True if it is about machines in namespaces.
    fn in_namespace(&self) -> bool {
        cycle::parts(&self.about).1 == MachineKind::Namespace
    }

    /// One of an earlier report's, if it is one.
    fn read(section: Section, line: &str) -> Option<Self> {
        let mut row = Self {
            section,
            about: String::new(),
            line: line.to_owned(),
        };
        row.about = match line.strip_prefix("* ") {
            Some(item) => item.split([' ', ':']).next()?.to_owned(),
            None if line.starts_with("| ") && !section.head().contains(line) => {
                let column = usize::from(section == Section::Moments);
                row.cell(column).to_owned()
            }
            None => return None,
        };
        Some(row)
    }
}

/// The rows of an earlier report that are not of `workloads`, and the runs that they are of.
fn kept(earlier: &str, workloads: &[String]) -> Vec<ReportRow> {
    let mut section = None;
    let mut rows = Vec::new();
    for line in earlier.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = ALL.into_iter().find(|section| section.title() == title);
        } else if let Some(row) = section.and_then(|section| ReportRow::read(section, line)) {
            rows.push(row);
        }
    }
    let is_known = |row: &ReportRow| {
        row.section == Section::Runs || place(cycle::parts(&row.about).0) < usize::MAX
    };
    rows.retain(|row| is_known(row) && !workloads.contains(&row.about));
    let of_workloads = rows.iter().filter(|row| row.is_of_workload());
    let runs: Vec<String> = of_workloads.map(|row| row.cell(RUN).to_owned()).collect();
    rows.retain(|row| row.section != Section::Runs || runs.contains(&row.about));
    rows
}

/// The report of these rows, and of what `earlier` has of other workloads than `workloads`, written
/// when the sources were at `commit`.
pub fn text(rows: Vec<ReportRow>, earlier: &str, workloads: &[String], commit: &str) -> String {
    let mut all = kept(earlier, workloads);
    let is_said = |row: &ReportRow| rows.iter().any(|other| other.line == row.line);
    all.retain(|row| row.section != Section::Runs || !is_said(row));
    all.extend(rows);
    all.sort_by_key(ReportRow::order);
    let sum = |column: usize, sections: &[Section]| -> u64 {
        let these = all.iter().filter(|row| sections.contains(&row.section));
        these.map(|row| row.number(column)).sum()
    };
    let (both, forebay) = ([Section::Forebay, Section::Controls], [Section::Forebay]);
    let in_namespaces = all
        .iter()
        .filter(|row| row.is_of_workload() && row.in_namespace());
    let in_namespaces: u64 = in_namespaces.map(|row| row.number(CUTS)).sum();
    let mut text = format!(
        "# Power cuts\n\n\
         Written by the lab, whose [README.md](README.md) says how it works. The last run of each workload. \
         The sources were at {commit}: a run of another commit is of older ones.\n\n\
         {} cycles with {} power cuts, {in_namespaces} of them of machines in namespaces (`/namespace`). Under Forebay: {} cycles with {} cuts, {} acknowledged transactions, {} cycles with loss.\n",
        sum(CYCLES, &both),
        sum(CUTS, &both),
        sum(CYCLES, &forebay),
        sum(CUTS, &forebay),
        sum(ACKNOWLEDGED, &forebay),
        sum(LOSSY, &forebay),
    );
    for section in ALL {
        let mut these = all.iter().filter(|row| row.section == section).peekable();
        if these.peek().is_none() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {}\n\n", section.title());
        if !section.head().is_empty() {
            let _ = writeln!(text, "{}", section.head());
        }
        for row in these {
            let _ = writeln!(text, "{}", row.line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{ReportRow, Section};

    fn of_workload(section: Section, name: &str, run: &str, cycles: u64) -> Vec<ReportRow> {
        let mut cells = vec![name.to_owned(), run.to_owned(), cycles.to_string()];
        cells.resize(15, "0".to_owned());
        vec![
            ReportRow::of_table(section, name, &cells),
            ReportRow::of_table(Section::Runs, run, &[run.into(), "make".into()]),
        ]
    }

    /// The report of these rows, which are of these workloads.
    fn text(rows: Vec<ReportRow>, earlier: &str, workloads: &[&str]) -> String {
        let workloads: Vec<String> = workloads.iter().map(|&name| name.to_owned()).collect();
        super::text(rows, earlier, &workloads, "d")
    }

    #[test]
    fn rows_of_the_two_kinds_of_machines_stand_side_by_side() {
        let emulated = of_workload(Section::Forebay, "etcd", "a-1", 3);
        let before = text(emulated, "", &["etcd"]);
        let mut fast = of_workload(Section::Forebay, "etcd/namespace", "b-2", 90);
        let lost = "etcd/namespace 00: it";
        fast.push(ReportRow::item(Section::Losses, "etcd/namespace", lost));
        let both = text(fast, &before, &["etcd/namespace"]);
        let at = |what: &str| both.find(what).unwrap();
        assert!(at("| etcd | a-1 | 3 |") < at("| etcd/namespace | b-2 | 90 |"));
        assert!(at(lost) > at("## Cycles with loss"));
        let again = of_workload(Section::Forebay, "etcd", "c-3", 4);
        let now = text(again, &both, &["etcd"]);
        assert!(now.contains("| etcd | c-3 | 4 |") && now.contains("| etcd/namespace | b-2 |"));
        assert!(now.contains(lost) && !now.contains("a-1"), "{now}");
    }

    #[test]
    fn a_run_replaces_the_rows_of_its_workloads_alone() {
        let mut first = of_workload(Section::Forebay, "redis", "a-1", 3);
        first.extend(of_workload(Section::Controls, "redis-no", "a-1", 1));
        first.push(ReportRow::item(Section::Losses, "redis-no", "redis-no: it"));
        let moment = ["pool full".to_owned(), "redis".to_owned(), "1".to_owned()];
        first.push(ReportRow::of_table(Section::Moments, "redis", &moment));
        // Both are of one run.
        first.remove(1);
        let before = text(first, "", &["redis", "redis-no"]);
        assert!(before.contains("\n4 cycles with 0 power cuts"), "{before}");

        let other = of_workload(Section::Forebay, "etcd", "b-2", 7);
        let both = text(other, &before, &["etcd"]);
        assert!(both.contains("\n11 cycles with"), "{both}");
        assert!(both.contains("| redis | a-1 | 3 |"), "{both}");
        assert!(both.contains("The sources were at d:"), "{both}");
        assert!(both.contains("* redis-no: it"), "{both}");
        assert!(both.contains("| pool full | redis | 1 |"), "{both}");
        assert_eq!(both.matches("| a-1 | make |").count(), 1, "{both}");

        let again = of_workload(Section::Forebay, "redis", "c-3", 2);
        let now = text(again, &both, &["redis"]);
        assert!(!now.contains("| redis | a-1"), "{now}");
        assert!(!now.contains("pool full"), "{now}");
        assert!(now.contains("| a-1 | make |"), "of a control: {now}");
        let control = of_workload(Section::Controls, "redis-no", "d-4", 2);
        let now = text(control, &now, &["redis-no"]);
        assert!(!now.contains("a-1"), "{now}");
        assert!(!now.contains("redis-no: it"), "{now}");
        assert_eq!(text(Vec::new(), &now, &[]), now, "read as it was written");
    }
}
