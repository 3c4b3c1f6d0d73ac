//! Power cuts: of files that are put back to what was synced, and of a server whose file system is
//! cut off under it, again and again.

use super::{
    databases::{boot_anew, goes_on, moment},
    disk::Disk,
    writers::Writer,
};
use forebay_bench::{
    BenchError,
    data::Random,
    processes::{find_eatmydata, preload},
    sql::Client,
};
use forebay_databases::server::{Launch, Program, Server};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

/// How a kind of server is treated.
pub trait Cut {
    /// A running one.
    type Server: Sync;

    /// Starts it, in the boot with this number.
    fn start(&mut self, boot: usize) -> Result<Self::Server, BenchError>;
    /// Makes the table that [`Writer`]s write to.
    fn make_table(server: &Self::Server);
    /// Has a writer write until the connection breaks.
    fn write(server: &Self::Server, writer: &mut Writer, all: &AtomicU64);
    /// Kills it, and what stands before it.
    fn kill(server: &Self::Server);
    /// What is wrong with it, if anything.
    fn faults(server: &Self::Server, writers: &mut [Writer]) -> Result<(), String>;
}

/// What is a database's own in that, whose server stands in a directory and takes [`Writer`]s.
pub trait Database: Program<Address = PathBuf> + Sync {
    /// What its clients speak.
    type Client: Client;

    /// Starts it.
    fn start(launch: &Launch<Self>) -> Result<Server<Self>, BenchError>;
    /// As [`Cut::make_table`].
    fn make_table(server: &Server<Self>);
    /// As [`Cut::kill`].
    fn kill(server: &Server<Self>);
    /// As [`Cut::faults`].
    fn faults(server: &Server<Self>, writers: &mut [Writer]) -> Result<(), String>;
}

impl<D: Database> Cut for Launch<D> {
    type Server = Server<D>;

    fn start(&mut self, boot: usize) -> Result<Server<D>, BenchError> {
        boot_anew(&mut self.environment, boot);
        D::start(self)
    }

    fn make_table(server: &Server<D>) {
        D::make_table(server);
    }

    fn write(server: &Server<D>, writer: &mut Writer, all: &AtomicU64) {
        writer.write::<D::Client>(server.socket(), &AtomicBool::new(false), all);
    }

    fn kill(server: &Server<D>) {
        D::kill(server);
    }

    fn faults(server: &Server<D>, writers: &mut [Writer]) -> Result<(), String> {
        D::faults(server, writers)
    }
}

/// Cuts the file system off under the writing server, kills it, and mounts what the device has; so
/// many times and once more. The pool lies elsewhere and plays the persistent memory.
///
/// # Errors
/// What was wrong then.
pub fn cut<C: Cut>(
    server: &mut C,
    disk: &mut Disk,
    rounds: usize,
    random: &mut Random,
) -> Result<(), String> {
    disk.sync();
    let mut writers = Writer::several(4, random);
    for number in 0..=rounds {
        let running = server.start(number).map_err(|e| e.to_string())?;
        if number == 0 {
            C::make_table(&running);
            disk.sync();
        } else {
            C::faults(&running, &mut writers)?;
        }
        let all = AtomicU64::new(0);
        let is_stuck = AtomicBool::new(false);
        let wait = moment(random, 700);
        thread::scope(|scope| {
            for writer in &mut writers {
                let (running, all) = (&running, &all);
                scope.spawn(move || C::write(running, writer, all));
            }
            is_stuck.store(!goes_on(&all), Relaxed);
            thread::sleep(wait);
            disk.cut();
            C::kill(&running);
        });
        assert!(
            !is_stuck.into_inner(),
            "no transactions before cut {number}"
        );
        println!("cut {number}: {} acknowledged", all.into_inner());
        drop(running);
        disk.mount_again();
    }
    let running = server.start(rounds + 1).map_err(|e| e.to_string())?;
    C::faults(&running, &mut writers)
}

/// By `cut_off` on each kind of file system, as far as there can be such a disk.
pub fn loses_nothing(cut_off: impl Fn(&str) -> Option<Result<(), String>>) {
    for kind in ["ext4", "xfs"] {
        if let Some(found) = cut_off(kind) {
            found.unwrap();
        }
    }
}

/// The control: the same cut loses something of a server that runs by itself, with syncs that do
/// nothing.
pub fn loses_what_is_not_synced<D: Database>(
    cut_off: impl FnOnce(&dyn Fn(&mut Launch<D>)) -> Option<Result<(), String>>,
) {
    let Some(library) = find_eatmydata() else {
        println!("skipped: libeatmydata is not installed");
        return;
    };
    let found = cut_off(&|launch| {
        launch.wrapper.clear();
        let preloaded = ("LD_PRELOAD".into(), preload(&library));
        launch.environment.push(preloaded);
    });
    assert!(
        !matches!(found, Some(Ok(()))),
        "nothing was lost: the cut is none"
    );
}

/// The files of a run that had `FOREBAY_TEST_SYNCED` are as they were synced last. Their inodes are
/// the same.
pub fn put_back(synced: &Path) {
    let mut left = vec![synced.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        } else if path
            .extension()
            .is_some_and(|kind| ["log", "wal", "blk"].iter().any(|log| kind == *log))
        {
            let to = Path::new("/").join(path.strip_prefix(synced).unwrap());
            // It was unlinked, or its directory was renamed.
            if !to.exists() {
                continue;
            }
            fs::write(&to, fs::read(&path).unwrap()).unwrap();
            let synced_at = fs::metadata(&path).unwrap().modified().unwrap();
            let file = File::options().write(true).open(to).unwrap();
            file.set_modified(synced_at).unwrap();
        }
    }
}
