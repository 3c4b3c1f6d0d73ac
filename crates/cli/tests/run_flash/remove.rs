//! A cache is ended once the files have everything, and then nothing is left of it: another one may
//! take its place.

use crate::{
    common::{Sandbox, disk::Loop},
    world::{World, fill, has_flushed, sound, sum},
};
use std::{fs, os::unix::fs::FileExt, path::Path};

/// Files of the cache beside the data directory.
fn left(world: &World) -> Vec<String> {
    let entries = fs::read_dir(&world.launch.dir).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().display().to_string());
    names.filter(|name| name.starts_with("flash")).collect()
}

/// Promise (flash-run): Forebay removes a cache only once it was flushed and no server has it.
#[test]
fn a_cache_is_removed_once_flushed_and_makes_way_for_a_new_one() {
    let Some(world) = World::new() else { return };
    let remove = || world.forebay("flash remove --flash flash");
    let server = world.start();
    fill(&server);
    let before = sum(&server);
    remove().fails(1, &["in use by another process"]);
    server.stop().unwrap();
    let words = ["newer than in the files", "forebay flash flush --flash"];
    remove().fails(1, &words);
    assert_eq!(left(&world).len(), 3, "{:?}", left(&world));

    world.flush().ok();
    let policy = "flash set --flash flash --policy through";
    world.forebay(policy).ok();
    let said = remove().ok().text();
    assert!(said.contains("no flash cache any more"), "{said}");
    assert!(left(&world).is_empty(), "{:?}", left(&world));
    let server = world.plain().unwrap();
    assert_eq!(sum(&server), before);
    sound(&server, "stock.s");
    server.stop().unwrap();
    let server = world.start();
    // What was set for the one that is gone is not so for this one.
    assert_eq!(world.status()["settings"]["policy"], "back");
    has_flushed(&world, server, &before);
}

#[test]
fn a_device_whose_cache_was_removed_is_blank_and_takes_another() {
    let sandbox = Sandbox::on_disk();
    let image = sandbox.file("image");
    fs::write(&image, vec![0; 16 << 20]).unwrap();
    let Some(device) = Loop::of(&image, 4096) else {
        return;
    };
    let flash = sandbox.file("flash");
    std::os::unix::fs::symlink(&device.path, &flash).unwrap();
    for _ in 0..2 {
        forebay_innodb::create(&flash, 10 << 20).unwrap();
        sandbox.run("flash resize --flash flash 14MiB").ok();
        // As pages in the first slots, which lie behind the metadata that the cache was made with.
        let file = fs::OpenOptions::new().write(true).open(&device.path);
        let file = file.unwrap();
        file.write_all_at(&[7; 4096], (1 << 20) - 4096).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let report = sandbox.json("flash remove --flash flash --json");
        let removed = report["removed"].as_array().unwrap();
        assert_eq!(removed.len(), 2, "{report}");
        assert!(flash.is_symlink() && !sandbox.file("flash.lane").exists());
    }
}

/// A file system, say, of which nothing lies in the first 8 KiB.
#[test]
fn a_removal_that_was_cut_leaves_what_its_device_has_got_since() {
    let sandbox = Sandbox::on_disk();
    let image = sandbox.file("image");
    fs::write(&image, vec![0; 16 << 20]).unwrap();
    let Some(device) = Loop::of(&image, 4096) else {
        return;
    };
    for (name, to) in [
        ("flash", device.path.as_ref()),
        ("flash.lane", "gone".as_ref()),
    ] {
        let to: &Path = to;
        std::os::unix::fs::symlink(to, sandbox.file(name)).unwrap();
    }
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&device.path);
    let file = file.unwrap();
    file.write_all_at(&[7; 4096], 64 << 10).unwrap();
    sandbox.run("flash remove --flash flash").ok();
    let mut found = [0; 4096];
    file.read_exact_at(&mut found, 64 << 10).unwrap();
    assert_eq!(found, [7; 4096]);
    assert!(!sandbox.file("flash.lane").is_symlink());
}
