//! P4, figure 10: SETs under `forebay run` with a pool as slow as other memories.

use super::{Lab, Measured, Row, policies};
use crate::{
    BenchError,
    place::Place,
    redis::{Config, Mode},
    rounds::in_turn,
};
use forebay_pool::media::Profile;

/// P4's memories.
pub(super) const MEMORIES: [&str; 4] = ["dram", "pcm", "xpoint-mm", "xpoint-sm"];

pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const SIZES: [u64; 3] = [32, 512, 8192];
    let mut measured = Measured::default();
    if let Some(rows) = policies::not_installed(&["sets"], &MEMORIES, "32 B") {
        measured.rows = rows;
        return Ok(measured);
    }
    // One round of each memory after the other, so that they take turns.
    let mut rounds: Vec<Measured> = Vec::new();
    for round in 0..lab.rounds() {
        for memory in in_turn(MEMORIES, round) {
            let config = Config {
                modes: vec![Mode::Forebay],
                sizes: SIZES.to_vec(),
                rounds: 1,
                slowed: Profile::named(memory),
                ..policies::config(lab)
            };
            let mut one = Measured::default();
            policies::add(lab, &config, Place::Here, &format!("{memory} "), &mut one)?;
            measured.devices.append(&mut one.devices);
            rounds.push(one);
        }
    }
    for memory in MEMORIES {
        for size in SIZES.map(crate::units::bytes_name) {
            let series = format!("{memory} {}", Mode::Forebay);
            let figures: Vec<f64> = rounds
                .iter()
                .flat_map(|round| &round.rows)
                .filter(|row| row.panel == "sets" && row.series == series && row.x == size)
                .filter_map(|row| row.value)
                .collect();
            measured
                .rows
                .push(Row::of("sets", Place::Here.name(), memory, &size, &figures));
        }
    }
    measured.note(&[],
        "the pool's accesses wait as long as P4's wrapper does beyond DRAM (50/50 ns read/write): pcm 0/450, xpoint-mm 50/50, xpoint-sm 150/150 \
         ns, once for each stretch of memory that is written, not once for each cache line",
    );
    Ok(measured)
}
