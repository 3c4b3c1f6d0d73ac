//! The fuzzer's entry point, for arbitrary bytes; also called by an ordinary test, with seeds and
//! random bytes.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use forebay_files::{
    boot, identity,
    record::{
        KIND_FILE, KIND_GONE, KIND_KEPT, KIND_ORDERED, KIND_REFUSED, KIND_TOUCHED, KIND_TRUNCATE,
        KIND_WRITE, PayloadHead, encode_file,
    },
    replay::{self, LaneOutcome, RecoverOptions},
};
use forebay_pool::{ClaimOptions, Lane, Pool, PoolOptions};
use std::{
    fs::{self, File},
    io::IoSlice,
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// Files that lanes may name, and one beside their directory that none may.
struct World {
    home: PathBuf,
    pool: Pool,
    inside: [(PathBuf, Vec<u8>); 2],
    outside: PathBuf,
}

const OUTSIDE: &[u8] = b"nothing of the lane's";
const INSIDE: &[u8] = b"as it was before";

impl World {
    fn new() -> Self {
        let home = std::env::temp_dir().join(format!("forebay-fuzzed-{}", Uuid::new_v4()));
        fs::create_dir_all(home.join("inside")).unwrap();
        let options = PoolOptions::new()
            .size(512 << 10)
            .segment_size(64 << 10)
            .lanes(4)
            .emulated(true);
        let pool = options.create(home.join("pool")).unwrap();
        let outside = home.join("outside");
        fs::write(&outside, OUTSIDE).unwrap();
        let inside = ["inside/a", "inside/b"].map(|name| {
            let path = home.join(name);
            let file = File::create(&path).unwrap();
            let identity = identity::of(file.as_fd()).unwrap();
            (path, identity)
        });
        Self {
            home,
            pool,
            inside,
            outside,
        }
    }

    fn names(&self) -> Vec<PathBuf> {
        let list = |path: &Path| {
            fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path())
        };
        let mut names: Vec<_> = list(&self.home)
            .chain(list(&self.home.join("inside")))
            .collect();
        names.sort();
        names
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Bytes one after the other; zeros behind the end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let bytes = usize::from(self.byte() % 9);
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn bytes(&mut self) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(usize::from(self.byte()).min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

thread_local! {
    static WORLD: World = World::new();
}

/// Reads `data` as records of a lane, and recovers that: nothing panics, and nothing is written but
/// to files that the lane names.
pub fn replay(data: &[u8]) {
    WORLD.with(|world| replay_in(world, &mut Input(data)));
}

fn replay_in(world: &World, input: &mut Input<'_>) {
    for (path, _) in &world.inside {
        fs::write(path, INSIDE).unwrap();
    }
    let names = world.names();
    let how = input.byte();
    let leads = ["files:  ", "failed: ", "denied: ", "replay: ", "refail: "];
    let label = match how >> 5 {
        at @ 0..5 => format!(
            "{}{:010}+{:013} fuzzed",
            leads[usize::from(at)],
            input.number(),
            input.number()
        ),
        _ => format!("files:  {}", String::from_utf8_lossy(input.bytes())),
    };
    let claim = ClaimOptions::new().label(label);
    let (lane, _) = world.pool.claim(Uuid::new_v4(), &claim).unwrap();
    while !input.0.is_empty() {
        if !append(world, &lane, input) {
            break;
        }
    }
    drop(lane);
    let options = RecoverOptions {
        force: how & 1 == 1,
        discard: how & 2 == 2,
    };
    // Whatever it says of it.
    let _ = replay::recover(&world.pool, &options);
    assert_eq!(fs::read(&world.outside).unwrap(), OUTSIDE);
    assert_eq!(world.names(), names);
    // Given up; a lane that is not understood is so too.
    let discard = RecoverOptions {
        force: false,
        discard: true,
    };
    match replay::recover(&world.pool, &discard) {
        Ok(lanes) => assert!(
            lanes
                .iter()
                .all(|lane| lane.outcome != LaneOutcome::Refused)
        ),
        Err(_) => {
            for lane in world.pool.lanes() {
                give_up(&world.pool, lane.owner);
            }
        }
    }
    assert_eq!(fs::read(&world.outside).unwrap(), OUTSIDE);
    assert!(world.pool.lanes().is_empty());
}

fn give_up(pool: &Pool, owner: Uuid) {
    let (lane, recovered) = pool.claim(owner, &ClaimOptions::new()).unwrap();
    drop(recovered);
    lane.seal();
    while let Some(sealed) = lane.take_sealed(std::time::Duration::ZERO) {
        sealed.release();
    }
    assert!(lane.remove());
}

/// Appends the next record; false if the lane is full.
fn append(world: &World, lane: &Lane, input: &mut Input<'_>) -> bool {
    let kind = input.byte();
    let head = PayloadHead {
        file: u32::from(kind >> 6),
        at: input.number(),
        time: input.number(),
        held: kind & 15 == 7,
    };
    let (path, identity) = &world.inside[usize::from(kind >> 5 & 1)];
    let boot = match kind & 16 {
        0 => *boot::id().unwrap().as_bytes(),
        _ => [7; 16],
    };
    let (kind, payload) = match kind & 15 {
        0..3 => (KIND_FILE, encode_file(head, boot, identity, path)),
        // The right file by another name; another file by its name; whatever there is.
        3 => (KIND_FILE, encode_file(head, boot, identity, &world.outside)),
        4 => {
            let mut other = identity.clone();
            let at = usize::from(input.byte()) % other.len();
            other[at] ^= input.byte() | 1;
            (KIND_FILE, encode_file(head, boot, &other, &world.outside))
        }
        5 => {
            use std::os::unix::ffi::OsStrExt;
            let path = Path::new(std::ffi::OsStr::from_bytes(input.bytes()));
            (KIND_FILE, encode_file(head, boot, input.bytes(), path))
        }
        6 | 7 => (KIND_WRITE, [&head.encode()[..], input.bytes()].concat()),
        8 => (KIND_ORDERED, head.encode().to_vec()),
        9 => (KIND_REFUSED, head.encode().to_vec()),
        10 => (KIND_TRUNCATE, head.encode().to_vec()),
        11 => (KIND_GONE, head.encode().to_vec()),
        12 => (KIND_TOUCHED, head.encode().to_vec()),
        13 => (KIND_KEPT, head.encode().to_vec()),
        14 => (KIND_FILE, input.bytes().to_vec()),
        // Kind 0 is the pool's own.
        _ => (u16::from(input.byte().max(1)), input.bytes().to_vec()),
    };
    matches!(
        lane.segment()
            .map(|segment| lane.append_in(segment, kind, &[IoSlice::new(&payload)])),
        Some(Ok(Some(_)))
    )
}
