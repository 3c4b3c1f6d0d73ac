//! P4, figure 10: SETs under `forebay run` with a pool as slow as other memories.

use super::{Lab, Measured, policies};
use crate::{
    BenchError,
    place::Place,
    redis::{Config, modes::FOREBAY},
    rounds::in_turn,
};

/// P4's memories.
const MEMORIES: [&str; 4] = ["dram", "pcm", "xpoint-mm", "xpoint-sm"];

pub(super) fn run(lab: &Lab<'_>) -> Result<Measured, BenchError> {
    const SIZES: [u64; 3] = [32, 512, 8192];
    lab.server()?;
    let mut measured = Measured::default();
    // One round of each memory after the other, so that they take turns.
    for round in 0..lab.rounds() {
        for memory in in_turn(MEMORIES, round) {
            let mut config = Config {
                sizes: SIZES.to_vec(),
                ..policies::config(lab, &[FOREBAY], Place::Here)
            };
            config.setup.rounds = 1;
            config.setup.pools.slowed = Some(memory);
            let mut one = Measured::default();
            policies::add(lab, &config, Place::Here, "", &mut one)?;
            measured.devices.append(&mut one.devices);
            for row in one.rows.iter().filter(|row| row.panel == "sets") {
                if let Some(rate) = row.value {
                    measured.round("sets", Place::Here.name(), memory, &row.x, rate);
                }
            }
        }
    }
    measured.note(
        "the pool's accesses wait as long as P4's wrapper does beyond DRAM (50/50 ns read/write): pcm 0/450, xpoint-mm 50/50, xpoint-sm 150/150 \
         ns, once for each stretch of memory that is written, not once for each cache line",
    );
    Ok(measured)
}
