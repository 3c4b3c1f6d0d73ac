//! `forebay-lab tenants`.

use crate::contest::{Common, note};
use clap::Args;
use forebay_bench::tenants::{self, Config, MODES, USES};
use forebay_cli::{failure::Failure, size};

/// Measure SQLite databases by the thousand: synced, with libeatmydata, and under forebay
#[derive(Args)]
#[command(
    long_about = "Has a program with a SQLite database for each of many tenants insert rows (synchronous=FULL), each a transaction of a tenant \
                  that is drawn at random: with the database opened and closed for each request, or with all kept open. In each mode: durable \
                  when it is done (plain); with libeatmydata, which makes fsync do nothing; and under forebay run. Modes take turns, round \
                  after round, each on fresh databases; figures are medians of the rounds.",
    mut_arg("modes", |modes| modes.default_value("plain,eatmydata,forebay").help("Modes: plain, eatmydata, forebay, notify (forebay with an agent instead of the library)")),
    after_long_help = "Examples:\n  \
        forebay-lab tenants\n  \
        forebay-lab tenants --tenants 1,100 --uses opened --journals wal,truncate\n  \
        forebay-lab tenants --absorb '*-wal,*-journal,*.db' --rounds 5 --json"
)]
pub struct Tenants {
    /// Numbers of databases [default: 1,10,100,1000,10000]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    tenants: Vec<u64>,
    /// What becomes of a database: opened (and closed) for each request, or kept open
    #[arg(long, value_name = "USE,…", value_delimiter = ',', default_value = "opened,kept", value_parser = USES)]
    uses: Vec<String>,
    /// How SQLite keeps a transaction whole: its journal_mode
    #[arg(
        long,
        value_name = "MODE,…",
        value_delimiter = ',',
        default_value = "wal",
        value_parser = ["wal", "delete", "truncate", "persist"]
    )]
    journals: Vec<String>,
    /// Files that are absorbed, by patterns
    #[arg(
        long,
        value_name = "PATTERN,…",
        value_delimiter = ',',
        default_value = "*-wal,*-journal"
    )]
    absorb: Vec<String>,
    /// Bytes of a row
    #[arg(long, value_name = "SIZE", value_parser = size::parse_positive, default_value = "512")]
    value_size: u64,
    /// Seconds of a round [default: 5]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Tenants {
    pub fn run(self) -> Result<(), Failure> {
        let usual: &[u64] = match self.common.options.form.quick {
            true => &[1, 20],
            false => &[1, 10, 100, 1000, 10_000],
        };
        let config = Config {
            setup: self.common.setup(&MODES)?,
            tenants: match self.tenants.is_empty() {
                true => usual.to_vec(),
                false => self.tenants,
            },
            uses: self.uses,
            journals: self.journals,
            absorb: self.absorb,
            value_bytes: self.value_size,
            seconds: self.common.seconds(self.seconds, 5),
        };
        self.common.print(tenants::run(&config, &note))
    }
}
