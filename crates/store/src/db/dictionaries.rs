//! Dictionaries of small values: made, written and taken into use in the background.
//! docs/store-format.md, "Dictionaries".
//!
//! 1. Puts leave some of the small values in a sample, if one is wanted (`compression::sampler`).
//! 2. Once it is full: train with most of it, and see by the rest whether that pays
//!    (`compression::training`).
//! 3. Write the dictionary to a file of its own, durably.
//! 4. Name it in the manifest, durably.
//! 5. Take it into use: values that are compressed with it come behind 4.
//!
//! A crash before 4 leaves a file that nothing names and nothing needs. The next opening removes
//! it, or the one after the next dictionary.
//!
//! The compaction thread does this: it has time. It never waits for a put, and no put for it.

use super::StoreCore;
use crate::{
    compression::{Compressor, TrainedDictionary},
    error::StoreError,
    keyspace::{KeyspaceId, LiveKeyspace},
};
use std::sync::Arc;

impl StoreCore {
    /// Takes the dictionaries into use that earlier sessions have made, and wants samples where
    /// there is none.
    pub(super) fn begin_dictionaries(&self) {
        self.begin_dictionary(KeyspaceId::DEFAULT, &self.compressor);
        for live in self.keyspaces().all() {
            self.begin_dictionary(live.id(), &live.compressor);
        }
    }

    /// The same for one keyspace.
    pub(super) fn begin_dictionary(&self, keyspace: KeyspaceId, compressor: &Compressor) {
        let Some(level) = compressor.dictionary_level() else {
            return;
        };
        let newest = self.dictionaries.newest_of(keyspace);
        let there = newest.and_then(|newest| {
            let packing = self.dictionaries.packing(newest.number, level);
            // Values are compressed without it then, until there is another one.
            let told = packing.inspect_err(|error| {
                self.dictionaries.set_trouble(Some(error.to_string()));
            });
            told.ok()
        });
        compressor.begin(self.options.training_pace, there);
    }

    /// Steps 2 to 5, for each keyspace of which there is a sample.
    pub(super) fn train_dictionaries(&self) {
        if self.compressor.has_sample() {
            self.train_dictionary(None);
        }
        for live in self.keyspaces().with_samples() {
            if self.stopping() {
                return;
            }
            self.train_dictionary(Some(&live));
        }
    }

    /// The same for one; of the default keyspace's there is no `live`.
    fn train_dictionary(&self, live: Option<&Arc<LiveKeyspace>>) {
        let id = live.map_or(KeyspaceId::DEFAULT, |live| live.id());
        let compressor = live.map_or(&self.compressor, |live| &live.compressor);
        let last = self.log.state().keyspaces.dictionaries.last;
        let number = self.dictionaries.next_number(last);
        let Some(number) = number.filter(|_| self.dictionaries.has_room_for(id)) else {
            return compressor.train_later();
        };
        // On a full disk there are more urgent things.
        if self.log.reserve().is_short() {
            return compressor.train_later();
        }
        let Some(trained) = compressor.train(number) else {
            return;
        };
        match self.take_into_use(live, &trained) {
            Ok(true) => {
                compressor.adopt(trained.prepared, trained.permille);
                self.dictionaries.set_trouble(None);
            }
            Ok(false) => {}
            Err(error) => {
                compressor.train_later();
                // A full disk is told by what has to be written there.
                if !error.is_full_disk() {
                    self.dictionaries.set_trouble(Some(error.to_string()));
                }
            }
        }
    }

    /// Steps 3 and 4; false if the keyspace was dropped meanwhile.
    fn take_into_use(
        &self,
        live: Option<&Arc<LiveKeyspace>>,
        trained: &TrainedDictionary,
    ) -> Result<bool, StoreError> {
        let id = live.map_or(KeyspaceId::DEFAULT, |live| live.id());
        let (number, permille) = (trained.number, trained.permille);
        let written = self
            .dictionaries
            .write(number, id, permille, &trained.bytes)?;
        forebay_pool::failpoint!("store:dictionary-written");
        // A drop comes before, and is seen, or behind, and sees the dictionary.
        let _changing = self.keyspaces().changing();
        if live.is_some_and(|live| live.check().is_err()) {
            self.dictionaries.discard(number);
            return Ok(false);
        }
        // If this fails, the manifest may name it all the same: the file stays.
        self.log
            .note_at_leisure(|state| state.keyspaces.dictionaries.add(written))?;
        forebay_pool::failpoint!("store:dictionary-named");
        self.dictionaries.add(written);
        Ok(true)
    }
}
