//! `forebay-lab paper`.

use crate::{failed, measuring::default_dir, progress::Progress};
use clap::Args;
use forebay_bench::{
    paper::{self, Experiment, Plan, Size, catalogue},
    report::{Column, Table},
};
use forebay_cli::{failure::Failure, output};
use std::path::PathBuf;

/// Measure the papers' tables and figures again, each as an experiment of its own
#[derive(Args)]
#[command(
    long_about = "Runs experiments, each of which is a table or figure of one of the papers that Forebay is built after, and writes what each gives \
                  to a JSON file of its own; forebay-lab report makes a page of them. Without names it runs all. The papers' sizes take more than \
                  an hour; --quick takes minutes, --toy seconds each.\n\n\
                  Progress and an estimate of the time left are on standard error. A run may be interrupted: what is finished is in the files, and \
                  --resume goes on with the rest. A server or peer that is not installed becomes a row that says so.",
    after_long_help = "Examples:\n  \
        forebay-lab paper --list\n  \
        forebay-lab paper --quick --out results\n  \
        forebay-lab paper p1-fig5 p4-fig6 --out results --resume\n  \
        forebay-lab report results --html report.html"
)]
pub struct Paper {
    /// Experiments, as in p1-fig5 [default: all]
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// List the experiments and end
    #[arg(long)]
    list: bool,
    /// Where the results go, one JSON file for each experiment
    #[arg(long, value_name = "DIR", default_value = "paper-results")]
    out: PathBuf,
    /// Less of everything: minutes, a first impression
    #[arg(long, conflicts_with = "toy")]
    quick: bool,
    /// Toy size: shows that it runs, not how fast
    #[arg(long)]
    toy: bool,
    /// Leave out what the results have already, of the same size
    #[arg(long)]
    resume: bool,
    /// Where stores and databases are made, in directories that are removed again [default: the one
    /// for temporary files, if that is on a disk]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Use this pool instead of emulated ones
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// With --list, as JSON; else print the files written as JSON
    #[arg(long)]
    json: bool,
}

impl Paper {
    pub fn run(self) -> Result<(), Failure> {
        if self.list {
            return list(self.json);
        }
        let plan = Plan {
            experiments: self.experiments,
            size: match (self.toy, self.quick) {
                (true, _) => Size::Toy,
                (_, true) => Size::Quick,
                _ => Size::Paper,
            },
            out: self.out,
            resume: self.resume,
            dir: self.dir.unwrap_or_else(default_dir),
            pool: self.pool.into(),
            forebay: crate::forebay()?,
        };
        let progress = Progress::new();
        let written = paper::run(&plan, &|what| progress.note(what), &|line| {
            progress.say(line)
        })
        .map_err(failed)?;
        drop(progress);
        output::report(self.json, &written, |written| {
            written
                .iter()
                .map(|path| format!("{}\n", path.display()))
                .collect()
        })
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let rows: Vec<_> = catalogue::ALL
        .iter()
        .map(|experiment| {
            let [toy, quick, full] = experiment.seconds;
            serde_json::json!({
                "id": experiment.id,
                "paper": experiment.paper,
                "title": experiment.title,
                "method": experiment.method,
                "seconds": {"toy": toy, "quick": quick, "paper": full},
            })
        })
        .collect();
    output::report(json, &rows, |_| {
        fn minutes(seconds: u32) -> String {
            match seconds {
                ..100 => format!("{seconds} s"),
                _ => format!("{} min", seconds.div_ceil(60)),
            }
        }
        let columns: [Column<&Experiment>; 4] = [
            ("experiment", |it| it.id.clone()),
            ("what the paper shows", |it| {
                format!("{} {}", it.paper, it.title)
            }),
            ("--quick", |it| minutes(it.seconds[1])),
            ("full", |it| minutes(it.seconds[2])),
        ];
        Table::of(&columns, catalogue::ALL.iter()).render()
    })
}
