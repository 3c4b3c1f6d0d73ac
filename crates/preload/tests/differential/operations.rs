//! Everything that a worker does, and in which order: in turn, at random, among other threads, in a
//! child.

use crate::{
    aio, data, descriptors, files, maps, metadata, numbers, process, streams,
    world::{World, size},
};
use libc::c_int;

/// Something that a worker does.
type Operation = fn(&mut World);

/// What leaves an absorbed file absorbed. Threads do it as well.
const KEEPING: &[Operation] = &[
    descriptors::open,
    data::write,
    data::pwrite,
    data::writev,
    data::pwritev,
    data::pwritev2,
    data::read,
    data::pread,
    data::advise,
    data::seek,
    data::synchronise,
    descriptors::close,
    descriptors::duplicate,
    descriptors::duplicate_over,
    descriptors::flags,
    files::truncate,
    files::rename,
    files::unlink,
    files::times,
    numbers::system_call,
];

/// What may make the file plain. Threads do it as well.
const RETIRING: &[Operation] = &[
    files::allocate,
    maps::map,
    maps::map_to_read,
    files::copy,
    descriptors::pass,
    streams::stream,
    streams::stream_of_its_own,
    streams::print,
];

/// What changes the whole process, or is not to be done at the same time.
const ALONE: &[Operation] = &[
    streams::directory,
    descriptors::close_range,
    descriptors::fork,
    files::open_direct,
    files::link,
    metadata::make,
    metadata::make_temporary,
    metadata::attribute,
    metadata::extended,
    aio::asynchronous,
    aio::submit,
    process::handle,
    process::become_the_same,
    process::look_for,
    process::daemon,
];

impl World {
    /// Everything in turn, so that every function is called under each of its names.
    pub fn run_in_turn(&mut self) {
        for _ in 0..8 {
            for operations in [KEEPING, RETIRING, ALONE] {
                for operation in operations {
                    self.make_sure_of_a_file();
                    operation(self);
                }
            }
        }
        self.is_complete = true;
    }

    /// Everything at random, with new files.
    pub fn run_alone(&mut self, steps: u64) {
        self.remove_all();
        for step in 0..steps {
            if step % 4 == 0 {
                self.make_sure_of_a_file();
            }
            let operation = match self.rng.below(12) {
                0 => self.rng.one_of(RETIRING),
                1 => self.rng.one_of(ALONE),
                _ => self.rng.one_of(KEEPING),
            };
            operation(self);
        }
    }

    /// What several threads can do at a time.
    pub fn run_among_others(&mut self, steps: u64) {
        for _ in 0..steps {
            self.make_sure_of_a_file();
            self.run_anything();
        }
    }

    /// A few steps in a forked child.
    pub fn run_in_child(&mut self) {
        self.is_child = true;
        for _ in 0..self.rng.below(8) {
            self.run_anything();
        }
    }

    fn run_anything(&mut self) {
        let operation = match self.rng.below(16) {
            0 => self.rng.one_of(RETIRING),
            _ => self.rng.one_of(KEEPING),
        };
        operation(self);
    }

    fn make_sure_of_a_file(&mut self) {
        let open = |fd: &&c_int| **fd >= 0 && size(**fd).is_some();
        if self.slots.iter().filter(open).count() < 2 {
            descriptors::open_to_write(self);
        }
    }
}
