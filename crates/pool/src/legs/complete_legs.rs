//! The choice of the legs that a pool is read from, by a process that opens it. docs/legs.md,
//! "Recovery".
//!
//! 1. The newest generation that any leg has counts, with its set.
//! 2. The legs of that set that have this generation are complete: any one of them will do.
//! 3. Every leg of the set has to answer with a superblock. One that does not, or has lost its
//!    memory, may have left the others behind by a newer generation. Only the user can say that it
//!    is lost, and what it had alone.

use super::{mask::LegMask, superblock::LegRecord};

/// The answer of a leg that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LegAnswer {
    /// It cannot be asked.
    Silent,
    /// It has no superblock of this pool.
    Empty,
    Record(LegRecord),
}

/// The record that counts, and the legs to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChosenLegs {
    pub(crate) record: LegRecord,
    /// Legs that have everything that was acknowledged.
    pub(crate) complete: LegMask,
}

/// The reason that no leg is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LegRefusal {
    /// No leg that answers has the pool.
    NoPool { silent: LegMask },
    /// These are of the set, and have or had perhaps a newer generation.
    Missing { missing: LegMask, generation: u64 },
    /// Two machines took the pool over at once.
    TwoWriters { generation: u64 },
}

/// Decides by the legs' answers; `given_up` are those that the user says are lost.
pub(crate) fn choose(answers: &[LegAnswer], given_up: LegMask) -> Result<ChosenLegs, LegRefusal> {
    let asked = |is: &dyn Fn(&LegAnswer) -> bool| -> LegMask {
        let legs = answers.iter().enumerate().filter(|(_, it)| is(it));
        let legs: LegMask = legs.map(|(leg, _)| leg).collect();
        legs.without(given_up)
    };
    let silent = asked(&|it| *it == LegAnswer::Silent);
    let empty = asked(&|it| *it == LegAnswer::Empty);
    let records = answers
        .iter()
        .enumerate()
        .filter_map(|(leg, answer)| match answer {
            LegAnswer::Record(record) if !given_up.has(leg) => Some(record),
            _ => None,
        });
    let Some(&newest) = records.clone().max_by_key(|it| it.generation) else {
        return Err(LegRefusal::NoPool { silent });
    };
    let generation = newest.generation;
    let mut same = records.filter(|it| it.generation == generation);
    if same.any(|it| *it != newest) {
        return Err(LegRefusal::TwoWriters { generation });
    }
    let missing = newest.set.both(silent.union(empty));
    if !missing.is_empty() {
        return Err(LegRefusal::Missing {
            missing,
            generation,
        });
    }
    let complete = newest
        .set
        .both(asked(&|it| *it == LegAnswer::Record(newest)));
    if complete.is_empty() {
        // Only a leg that is in no set says so.
        return Err(LegRefusal::NoPool { silent });
    }
    Ok(ChosenLegs {
        record: newest,
        complete,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn two_writers_of_one_generation_are_refused() {
        let record = |writer: u128| LegRecord {
            identity: Uuid::from_u128(1),
            writer: Uuid::from_u128(writer),
            boot: Uuid::from_u128(3),
            generation: 7,
            pool_bytes: 1 << 20,
            legs: 2,
            copies: 2,
            set: LegMask::all(2),
            closed: false,
            announced: false,
        };
        let answers = [record(1), record(2)].map(LegAnswer::Record);
        let refused = choose(&answers, LegMask::NONE);
        assert_eq!(refused, Err(LegRefusal::TwoWriters { generation: 7 }));
        let chosen = choose(&answers, LegMask::of(1)).unwrap();
        assert_eq!(
            (chosen.record, chosen.complete),
            (record(1), LegMask::of(0))
        );
    }
}
