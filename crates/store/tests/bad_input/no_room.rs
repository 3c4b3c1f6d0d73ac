//! No rights and no room: the reason is told, and writes go on once there is room.

use crate::{check, closed, common::Bench, key, quiet, value};
use forebay_store::{Durability, StoreError};
use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs `test` with `chattr +i` on the path; not at all where that is not possible.
fn immutable(path: &Path, test: impl FnOnce()) {
    let chattr = |flag: &str| {
        Command::new("chattr")
            .arg("-R")
            .arg(flag)
            .arg(path)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if chattr("+i") {
        test();
        assert!(chattr("-i"));
    } else {
        eprintln!("skipped: chattr +i is not possible here");
    }
}

/// Promise: as `a_directory_that_is_no_store_stays_exactly_as_it_is`.
#[test]
fn an_unwritable_directory_is_refused_with_the_reason() {
    let bench = closed();
    immutable(&bench.path(), || {
        let error = quiet(Durability::Fsync)
            .open(bench.path(), None)
            .err()
            .unwrap();
        let StoreError::Io { source, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(source.kind(), ErrorKind::PermissionDenied);
        assert!(
            error.to_string().contains("make the directory writable"),
            "{error}"
        );
    });
    check(&bench.open(&quiet(Durability::Fsync)));
    // Where no store can be made, none is begun.
    let file = bench.dir.path().join("a file");
    fs::write(&file, "").unwrap();
    let error = quiet(Durability::Fsync)
        .open(file.join("store"), None)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    assert!(error.to_string().contains("a file stands where"), "{error}");
}

/// A file system of its own with so much room, if this process may mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Promise (store): A full disk refuses writes with the reason, and they go on once there is room.
#[test]
fn a_full_disk_refuses_writes_with_the_reason_until_it_has_room() {
    let bench = Bench::new();
    let Some(disk) = SmallDisk::mount(&bench.dir.path().join("disk"), 6 << 20) else {
        eprintln!(
            "skipped: no file system can be mounted here (tests/faults/ fills a disk otherwise)"
        );
        return;
    };
    for variant in [Durability::DOUBLE, Durability::Fsync] {
        let path = disk.0.join(variant.to_string());
        let ballast = disk.0.join("ballast");
        fs::write(&ballast, vec![1; 3 << 20]).unwrap();
        let store = quiet(variant).open(&path, &bench.pool).unwrap();
        let mut written = 0;
        let error = loop {
            match store.put(&key(written), &value(written)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        match &error {
            StoreError::Stalled { .. } => assert!(variant == Durability::DOUBLE, "{error}"),
            StoreError::Io { source, .. } => assert_eq!(source.kind(), ErrorKind::StorageFull),
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().contains("make room"), "{error}");
        let large = store.put(b"large", &[9; 4 << 20]).unwrap_err();
        assert!(large.to_string().contains("make room"), "{large}");
        for i in 0..written {
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
        }
        fs::remove_file(&ballast).unwrap();
        let begun = std::time::Instant::now();
        while store.put(b"goes on", b"value").is_err() {
            assert!(begun.elapsed().as_secs() < 30);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        store.close().unwrap();
        let store = quiet(Durability::Fsync).open(&path, None).unwrap();
        for i in 0..written {
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), value(i));
        }
        assert_eq!(store.get(b"goes on").unwrap().unwrap(), b"value");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        drop(store);
        fs::remove_dir_all(&path).unwrap();
    }
}
