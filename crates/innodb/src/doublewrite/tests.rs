//! A page that a power cut tears on the way home around flash is made whole, and nothing else is
//! touched.

use super::*;
use crate::{
    descriptor::reopen,
    home::Homes,
    identity,
    setup::{CacheLocation, create},
};
use forebay_device::thin::ThinDisk;
use forebay_flash::{CacheOptions, CachedFile, Enqueued};
use std::{fs, fs::OpenOptions, sync::Arc};
use tempfile::TempDir;

const PAGES: usize = 8;

struct World {
    dir: TempDir,
    path: PathBuf,
    homes: Arc<Homes>,
    cache: Cache,
    file: Arc<CachedFile>,
}

fn page(byte: u8) -> PageBuffer {
    PageBuffer([byte; PAGE_BYTES])
}

impl World {
    /// A cache and a file of zeros; none where files have no time of birth.
    fn new() -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("t.ibd");
        fs::write(&path, vec![0; PAGES * PAGE_BYTES]).unwrap();
        Self::of(dir, path)
    }

    fn of(dir: TempDir, path: PathBuf) -> Option<Self> {
        let flash = dir.path().join("flash");
        create(&flash, 8 << 20).unwrap();
        let homes = Arc::new(Homes::new());
        let (cache, _) = CacheLocation::of(&flash)
            .unwrap()
            .open(&homes, &CacheOptions::default())
            .unwrap();
        let held = File::open(&path).unwrap();
        let known = identity::of(&held).unwrap()?;
        let file = cache.register(known.identity, "t.ibd").unwrap();
        homes.attach(file.id(), reopen(&held, true).unwrap());
        Some(Self {
            dir,
            path,
            homes,
            cache,
            file,
        })
    }

    /// Its files, none of which is open any more.
    fn closed(self) -> (TempDir, PathBuf) {
        (self.dir, self.path)
    }

    fn copies(&self) -> DoublewriteFile {
        DoublewriteFile::new(self.dir.path(), self.cache.owner())
    }

    fn home(&self, page: usize) -> Vec<u8> {
        let bytes = fs::read(&self.path).unwrap();
        bytes[page * PAGE_BYTES..][..PAGE_BYTES].to_vec()
    }

    /// As a power cut leaves it: half of the page is new.
    fn tear(&self, page: usize, byte: u8) {
        let file = OpenOptions::new().write(true).open(&self.path);
        let half = vec![byte; PAGE_BYTES / 2];
        file.unwrap()
            .write_all_at(&half, (page * PAGE_BYTES) as u64)
            .unwrap();
    }

    fn keep(&self, last: u64, pages: &[(usize, &PageBuffer)]) {
        self.keep_in(&self.copies(), last, pages);
    }

    fn keep_in(&self, copies: &DoublewriteFile, last: u64, pages: &[(usize, &PageBuffer)]) {
        let batch: Vec<_> = (pages.iter())
            .map(|(at, page)| HomePage {
                file: self.file.id(),
                offset: (at * PAGE_BYTES) as u64,
                bytes: &page.0,
            })
            .collect();
        copies.keep(last, &batch).unwrap();
    }

    fn restore(&self) -> u64 {
        self.copies().restore(&self.cache, &*self.homes).unwrap()
    }
}

/// Promise (flash-run): A start repairs each page that a power cut or a failed write tore on its
/// way around flash, once, and undoes nothing newer, whenever the power fails next.
#[test]
fn a_restart_makes_a_torn_page_whole_and_does_it_once() {
    let Some(world) = World::new() else { return };
    assert_eq!(world.restore(), 0, "there are no copies");
    world.keep(1000, &[(2, &page(7)), (5, &page(8))]);
    world.tear(2, 7);
    assert_eq!(world.restore(), 2);
    assert_eq!(
        (world.home(2), world.home(5)),
        (page(7).0.to_vec(), page(8).0.to_vec())
    );
    // Whatever comes then is not undone.
    world.tear(2, 1);
    assert_eq!(world.restore(), 0);
    assert_eq!(world.home(2)[0], 1);
}

#[test]
fn copies_of_an_unknown_version_are_refused_and_named() {
    let Some(world) = World::new() else { return };
    world.keep(1000, &[(2, &page(7))]);
    let path = world.dir.path().join(COPIES_FILE);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..8].copy_from_slice(b"FBPAGES7");
    fs::write(&path, bytes).unwrap();
    world.tear(2, 9);
    let error = world.copies().restore(&world.cache, &*world.homes);
    let error = error.unwrap_err().to_string();
    for words in [
        "FBPAGES7",
        "FBPAGES1",
        COPIES_FILE,
        "the version that wrote it",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(world.home(2)[0], 9);
}

impl World {
    /// The file of copies as a crash may leave it that cuts `change`: with its first so many
    /// sectors. After each the home is as `tear` leaves it, and pages are made whole.
    fn at_each_cut(&self, change: impl FnOnce(), tear: impl Fn(), check: impl Fn(usize)) {
        let path = self.dir.path().join(COPIES_FILE);
        let before = fs::read(&path).unwrap();
        change();
        let after = fs::read(&path).unwrap();
        let sector = |at: usize| at..(at + SECTOR).min(after.len());
        let changed = (0..after.len()).step_by(SECTOR);
        let changed: Vec<usize> = changed
            .filter(|&at| before.get(sector(at)) != Some(&after[sector(at)]))
            .collect();
        let all = changed.len();
        for written in [0, 1, 2, all / 2, all - 1, all] {
            let mut bytes = before.clone();
            bytes.resize(after.len(), 0);
            for &at in &changed[..written.min(all)] {
                bytes[sector(at)].copy_from_slice(&after[sector(at)]);
            }
            fs::write(&path, bytes).unwrap();
            tear();
            self.restore();
            check(written);
        }
    }
}

/// Promise: as `a_restart_makes_a_torn_page_whole_and_does_it_once`.
#[test]
fn earlier_copies_count_while_new_ones_are_written() {
    let Some(world) = World::new() else { return };
    let copies = world.copies();
    world.keep_in(&copies, 1000, &[(2, &page(7)), (5, &page(8))]);
    let again = [(2, &page(9)), (5, &page(8)), (6, &page(4))];
    let keep_again = || world.keep_in(&copies, 1000, &again);
    let tear = || {
        for (at, byte) in [(2, 7), (5, 8)] {
            world.put(at, &page(0).0);
            world.tear(at, byte);
        }
    };
    world.at_each_cut(keep_again, tear, |written| {
        let (one, other) = (world.home(2), world.home(5));
        assert!(one == page(7).0 || one == page(9).0, "{written}: torn");
        assert!(other == page(8).0, "{written}: torn");
    });
    assert_eq!((world.home(2)[0], world.home(6)[0]), (9, 4));
}

/// Promise: as `a_restart_makes_a_torn_page_whole_and_does_it_once`.
#[test]
fn copies_given_up_go_at_once_and_no_earlier_one_comes_back() {
    let Some(world) = World::new() else { return };
    let copies = world.copies();
    for byte in [7, 8] {
        world.keep_in(&copies, 1000, &[(2, &page(byte))]);
    }
    // The last ones are home.
    let is_home = || world.put(2, &page(8).0);
    let clear = || copies.clear().unwrap();
    world.at_each_cut(clear, is_home, |written| {
        assert_eq!(world.home(2), page(8).0.to_vec(), "{written}");
    });
    world.put(2, &page(1).0);
    assert_eq!((world.restore(), world.home(2)[0]), (0, 1));
}

#[test]
fn as_many_pages_as_the_cache_gives_at_a_time_are_kept() {
    let Some(world) = World::new() else { return };
    let pages: Vec<PageBuffer> = (0..PAGES_MAX).map(|n| page(n as u8)).collect();
    let numbered: Vec<_> = pages.iter().map(|page| (1, page)).collect();
    world.keep(1000, &numbered);
    let found = world.copies().left().unwrap();
    let last = |(_, _, page): &(_, _, PageBuffer)| page.0[0];
    assert_eq!(found.pages.len(), PAGES_MAX);
    assert_eq!(found.pages.last().map(last), Some(255));
}

#[test]
fn torn_foreign_and_recorded_copies_are_left_alone() {
    let Some(world) = World::new() else { return };
    world.keep(1000, &[(2, &page(7)), (5, &page(8))]);
    let path = world.dir.path().join(COPIES_FILE);
    let whole = fs::read(&path).unwrap();
    let changed = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    // A byte of the second page, of the table, of the cache's identity.
    for at in [HEADER + PAGE_BYTES + 100, ENTRIES + 3, 20] {
        changed(at);
        assert_eq!(world.restore(), 0, "{at}");
    }
    fs::write(&path, &whole[..HEADER + 10]).unwrap();
    assert_eq!(world.restore(), 0);
    fs::write(&path, &whole[..100]).unwrap();
    assert_eq!(world.restore(), 0);
    assert_eq!(world.home(2), page(0).0.to_vec());
    let copied = world.cache.enqueue(&world.file, 6, &page(3).0).unwrap();
    assert!(matches!(copied, Enqueued::Cached));
    world.cache.sync(&world.file).unwrap();
    // Position 0 is recorded: what was kept for it is home.
    world.keep(0, &[(2, &page(7))]);
    assert_eq!(world.restore(), 0);
}

#[test]
fn a_page_of_which_flash_has_a_newer_version_is_flash_s() {
    let Some(world) = World::new() else { return };
    let copied = world.cache.enqueue(&world.file, 2, &page(9).0).unwrap();
    assert!(matches!(copied, Enqueued::Cached));
    world.cache.sync(&world.file).unwrap();
    world.keep(1000, &[(2, &page(7)), (3, &page(8))]);
    assert_eq!(world.restore(), 1);
    assert_eq!((world.home(2)[0], world.home(3)[0]), (0, 8));
    // One that was kept for a file that is gone is no file's.
    world.keep(2000, &[(3, &page(4))]);
    world.cache.drop_file(&world.file).unwrap();
    assert_eq!(world.restore(), 0);
    assert_eq!(world.home(3)[0], 8);
}

#[test]
fn pages_around_flash_are_copied_first_and_copies_are_clearable() {
    let Some(world) = World::new() else { return };
    world.homes.keep_copies(world.copies());
    world.cache.set_policy(forebay_flash::WritePolicy::Around);
    let copied = world.cache.enqueue(&world.file, 4, &page(5).0).unwrap();
    assert!(matches!(copied, Enqueued::Cached));
    world.cache.sync(&world.file).unwrap();
    assert_eq!(world.home(4), page(5).0.to_vec());
    let bytes = fs::read(world.dir.path().join(COPIES_FILE)).unwrap();
    assert_eq!((&bytes[..8], bytes[HEADER]), (&MAGIC[..], 5));
    world.homes.unprotect().unwrap();
    assert!(world.copies().left().unwrap().pages.is_empty());
}

/// A page that was changed last when the log was so far.
fn page_at(lsn: u64, byte: u8) -> PageBuffer {
    let mut page = page(byte);
    page.0[16..24].copy_from_slice(&lsn.to_be_bytes());
    page
}

impl World {
    fn put(&self, at: usize, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.path);
        let offset = (at * PAGE_BYTES) as u64;
        file.unwrap().write_all_at(bytes, offset).unwrap();
    }

    /// The fate of the copies when the cache is lost.
    fn save(&self) -> RestoredPages {
        let held = File::open(&self.path).unwrap();
        let files = HashMap::from([(self.file.id().identity, OwnedFd::from(held))]);
        let nobody = Identity {
            device: 0,
            inode: 0,
            generation: 0,
        };
        let system = self.dir.path().join("ibdata1");
        fs::write(&system, vec![3; PAGES * PAGE_BYTES]).unwrap();
        let tablespace = OpenOptions::new().read(true).write(true).open(&system);
        let guard = ActiveGuard::lay(
            self.dir.path(),
            &tablespace.unwrap(),
            nobody,
            (self.cache.owner(), 0),
            Path::new("flash"),
        );
        let guard = guard.unwrap();
        let left = self.copies().left().unwrap();
        left.save(&files, (nobody, &guard)).unwrap()
    }
}

/// Promise (flash-run): A page that was torn on its way around a cache is made whole also when the
/// cache is lost and given up.
#[test]
fn copies_of_a_lost_cache_mend_torn_and_older_pages_alone() {
    let Some(world) = World::new() else { return };
    let copies = [2, 3, 4, 5].map(|at| (at, page_at(100, 7)));
    let kept: Vec<_> = copies.iter().map(|(at, page)| (*at, page)).collect();
    world.keep(1000, &kept);
    // Torn, with its first sector new or old; not written; and one that is newer since.
    world.put(2, &page_at(100, 7).0[..PAGE_BYTES / 2]);
    world.put(3, &page_at(90, 6).0);
    let mut torn = page_at(90, 6);
    torn.0[PAGE_BYTES / 2..].fill(7);
    world.put(4, &torn.0);
    world.put(5, &page_at(101, 8).0);
    let saved = RestoredPages {
        pages: 3,
        not_found: 0,
    };
    assert_eq!(world.save(), saved);
    for at in [2, 3, 4] {
        assert_eq!(world.home(at), page_at(100, 7).0.to_vec(), "page {at}");
    }
    assert_eq!(world.home(5), page_at(101, 8).0.to_vec());
}

/// Promise: as `server_goes_on_when_the_disk_is_full_and_pages_go_around`.
#[test]
fn the_file_has_all_its_blocks_before_a_copy_is_kept() {
    use std::os::unix::fs::MetadataExt;
    let Some(world) = World::new() else { return };
    let path = world.dir.path().join(COPIES_FILE);
    let is_whole = || {
        let now = fs::metadata(&path).unwrap();
        (now.len(), now.blocks() * 512 >= 2 * HALF as u64) == (2 * HALF as u64, true)
    };
    world.copies().make_room().unwrap();
    assert!(is_whole());
    // One that was copied has holes, and copies that count.
    world.keep(1000, &[(2, &page(7))]);
    let bytes = fs::read(&path).unwrap();
    let kept = HEADER + PAGE_BYTES;
    fs::write(&path, &bytes[..kept]).unwrap();
    let sparse = fs::OpenOptions::new().write(true).open(&path).unwrap();
    sparse.set_len(2 * HALF as u64).unwrap();
    world.copies().make_room().unwrap();
    assert!(is_whole());
    world.tear(2, 9);
    assert_eq!(world.restore(), 1);
    assert_eq!(world.home(2), page(7).0.to_vec());
}

#[test]
fn saved_pages_are_on_the_disk_after_a_failed_sync() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mounted = dir.path().join("disk");
    fs::create_dir(&mounted).unwrap();
    let make = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"];
    let disk = match ThinDisk::mount(dir.path(), &mounted, &make, None) {
        Ok(disk) => disk,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    // A tablespace grows as InnoDB's do: reserved, and not written.
    let path = mounted.join("t.ibd");
    let bytes = PAGES_MAX * PAGE_BYTES;
    let home = File::create_new(&path).unwrap();
    let whole = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&home, whole, 0, bytes as u64).unwrap();
    home.sync_all().unwrap();
    let world = World::of(dir, path).unwrap();
    let pages: Vec<PageBuffer> = (0..PAGES_MAX)
        .map(|at| page_at(100, at as u8 | 1))
        .collect();
    let kept: Vec<_> = pages.iter().enumerate().collect();
    world.keep(1000, &kept);
    disk.fill(2 << 20).unwrap();
    for (at, page) in kept {
        world.put(at, &page.0);
    }
    home.sync_data().unwrap_err();
    disk.make_room().unwrap();
    assert_eq!(world.save().pages, PAGES_MAX as u64);
    drop(home);
    let (dir, path) = world.closed();
    disk.mount_again().unwrap();
    let found = fs::read(&path).unwrap();
    let lost = pages.iter().zip(found.chunks(PAGE_BYTES));
    let lost = lost.filter(|(page, found)| page.0 != **found).count();
    assert_eq!(lost, 0);
    drop((disk, dir));
}
