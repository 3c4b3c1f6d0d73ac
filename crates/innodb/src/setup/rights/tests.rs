//! Root's commands write only files that the cache's user may write, whatever that user has made
//! up.
#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

use super::*;
use crate::{
    descriptor::hold_plain,
    file_kinds::COPIES_FILE,
    home::Homes,
    page::PAGE_BYTES,
    setup::{CacheFiles, CacheLocation, create, give_up, look, remove, resize},
};
use forebay_flash::CacheOptions;
use forebay_pool::rights::alone;
use rustix::fs::{FileType, Mode};
use std::{
    fs::{self, Permissions},
    io,
    ops::ControlFlow,
    os::unix::fs::{PermissionsExt, symlink},
    sync::Arc,
};
use world::{PAGES, SMALL, World};

const NOBODY: u32 = 65_534;

/// The files of a server's user.
const SERVERS: [&str; 5] = ["f", "f.lane", "data", "data/ibdata1", "data/forebay.guard"];

/// Promise (rights): Root opens a flash cache and writes its pages home in a process that is the
/// owner of its two files (on a device: of its metadata).
#[test]
fn root_flushes_and_resizes_only_what_the_caches_owner_may() {
    alone(|| {
        let Some(world) = World::new() else { return };
        world.fill(&["roots"]);
        world.give(&SERVERS, NOBODY);
        for said in [world.flush(), world.shrink()] {
            let said = said.unwrap_err();
            assert!(said.contains("roots") && said.contains("rights"), "{said}");
            assert_eq!(world.first_page("roots"), 0);
        }
        // A file of the server's own, wherever it is.
        world.give(&["roots"], NOBODY);
        world.shrink().unwrap();
        world.flush().unwrap();
        assert_eq!(world.first_page("roots"), 7);
        assert!(!world.at("data/forebay.guard").exists());
    });
}

/// Promise (rights): A command on a cache of root's, or on a lost one, has the rights of the user
/// who laid the guard.
#[test]
fn roots_cache_is_flushed_to_any_users_data_directory() {
    alone(|| {
        let Some(world) = World::new() else { return };
        fs::write(world.at("data/t.ibd"), vec![0; PAGES * PAGE_BYTES]).unwrap();
        world.fill(&["data/t.ibd"]);
        world.give(&["data", "data/ibdata1", "data/t.ibd"], NOBODY);
        world.shrink().unwrap();
        world.flush().unwrap();
        assert_eq!(world.first_page("data/t.ibd"), 7);
    });
}

/// Promise (rights): A command follows no link in the place of `forebay.guard` or `forebay.pages`.
#[test]
fn root_writes_nothing_by_a_link_in_place_of_the_copies() {
    alone(|| {
        for user in [0, NOBODY] {
            let Some(world) = World::new() else { return };
            world.fill(&[]);
            world.give(&SERVERS, user);
            let roots = vec![9; PAGES * PAGE_BYTES];
            fs::write(world.at("roots"), &roots).unwrap();
            let copies = world.at("data").join(COPIES_FILE);
            symlink(world.at("roots"), &copies).unwrap();
            assert!(world.shrink().unwrap_err().contains("link"));
            fs::remove_file(&copies).unwrap();
            fs::hard_link(world.at("roots"), &copies).unwrap();
            // With another user's rights it is opened, as far as these go.
            let why = if user == 0 { "hard link" } else { "denied" };
            for said in [world.shrink(), world.flush()] {
                let said = said.unwrap_err();
                assert!(said.contains(why), "{user}: {said}");
            }
            assert!(fs::read(world.at("roots")).unwrap() == roots);
        }
    });
}

/// As `cp -al` leaves it.
///
/// Promise (rights): A command writes with root's own rights to no file that has another name as
/// well.
#[test]
fn files_with_other_names_are_flushed_as_their_owner() {
    alone(|| {
        let Some(world) = World::new() else { return };
        world.fill(&["roots"]);
        world.keep(&[]);
        let copies = format!("data/{COPIES_FILE}");
        world.give(&SERVERS, NOBODY);
        world.give(&["roots", &copies], NOBODY);
        fs::create_dir(world.at("copy")).unwrap();
        for name in ["ibdata1", "forebay.guard", COPIES_FILE] {
            let [from, to] = ["data", "copy"].map(|dir| world.at(dir).join(name));
            fs::hard_link(from, to).unwrap();
        }
        world.shrink().unwrap();
        world.flush().unwrap();
        assert_eq!(world.first_page("roots"), 7);
        assert!(!world.at("data/forebay.guard").exists());
    });
}

/// Promise (rights): A data directory that the cache's owner may not enter is refused as that, and
/// not taken for gone.
#[test]
fn a_directory_closed_to_the_caches_owner_is_not_gone() {
    alone(|| {
        let Some(world) = World::new() else { return };
        world.fill(&[]);
        world.give(&["f", "f.lane"], NOBODY);
        let mode =
            |mode| fs::set_permissions(world.at("data"), Permissions::from_mode(mode)).unwrap();
        mode(0o700);
        for said in [world.flush(), world.shrink()] {
            let said = said.unwrap_err();
            for part in ["data/ibdata1", "denied", "user 65534", "chmod"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert!(!said.contains("deleted"), "{said}");
        }
        mode(0o755);
        world.give(&SERVERS, NOBODY);
        world.flush().unwrap();
    });
}

/// Promise (rights): A command refuses other users' copies of pages beside a guard of root's.
#[test]
fn another_users_copies_beside_roots_guard_are_not_written() {
    alone(|| {
        let Some(world) = World::new() else { return };
        world.fill(&["roots"]);
        world.keep(&["roots"]);
        let copies = format!("data/{COPIES_FILE}");
        world.give(&["data", &copies], NOBODY);
        let said = world.flush().unwrap_err();
        assert!(said.contains("one user"), "{said}");
        assert_eq!(world.first_page("roots"), 0);
        // And with a guard of that user's nothing is that root alone may do.
        world.give(&SERVERS[2..], NOBODY);
        let said = world.flush().unwrap_err();
        assert!(said.contains("rights"), "{said}");
        assert_eq!(world.first_page("roots"), 0);
    });
}

/// Promise: as `roots_cache_is_flushed_to_any_users_data_directory`.
#[test]
fn giving_up_a_cache_root_writes_what_the_guards_user_may() {
    alone(|| {
        let Some(world) = World::new() else { return };
        world.fill(&[]);
        world.keep(&["roots"]);
        let copies = format!("data/{COPIES_FILE}");
        world.give(&SERVERS, NOBODY);
        world.give(&[&copies], NOBODY);
        for name in ["f", "f.lane"] {
            fs::remove_file(world.at(name)).unwrap();
        }
        symlink(world.at("roots"), world.at("data/x.ibd")).unwrap();
        let give_up = || give_up(&[world.at("data")]).map_err(|e| e.to_string());
        let said = give_up().unwrap_err();
        assert!(said.to_lowercase().contains("denied"), "{said}");
        assert_eq!(world.first_page("roots"), 0);
        // A guard of root's says nothing of copies that are not.
        world.give(&["data/forebay.guard", "data/ibdata1"], 0);
        let said = give_up().unwrap_err();
        assert!(said.contains("one user"), "{said}");
        assert_eq!(world.first_page("roots"), 0);
        world.give(&["data/forebay.guard", "data/ibdata1", "roots"], NOBODY);
        assert_eq!(give_up().unwrap().pages, 1);
        assert_eq!(world.first_page("roots"), 7);
    });
}

/// Promise (rights): A command opens no cache that other users may write to (for root: its group,
/// too), or whose files are of two users.
#[test]
fn root_opens_no_cache_of_two_users_or_that_others_write() {
    alone(|| {
        let Some(world) = World::new() else { return };
        for name in ["f", "f.lane"] {
            for mode in [0o620, 0o602] {
                fs::set_permissions(world.at(name), Permissions::from_mode(mode)).unwrap();
                let said = look(&world.at("f")).unwrap_err().to_string();
                assert!(said.contains("chmod go-w"), "{name}, {mode:o}: {said}");
            }
            fs::set_permissions(world.at(name), Permissions::from_mode(0o600)).unwrap();
        }
        world.give(&["f"], NOBODY);
        world.give(&["f.lane"], NOBODY - 1);
        let said = look(&world.at("f")).unwrap_err().to_string();
        assert!(said.contains("two users"), "{said}");
        world.give(&["f.lane"], NOBODY);
        look(&world.at("f")).unwrap();
    });
}

#[test]
fn a_cache_its_user_cannot_open_is_refused_with_its_owner() {
    alone(|| {
        let Some(world) = World::new() else { return };
        let denied = |work: fn(&Path) -> Result<(), SetupError>, name: &str| {
            let path = world.at(name);
            let said = act_as(NOBODY, &path, || work(&path));
            let said = said.unwrap_err().to_string();
            for part in ["denied", "install -d -o USER", name] {
                assert!(said.contains(part), "{part}: {said}");
            }
        };
        let open: fn(&Path) -> Result<(), SetupError> = |flash| {
            let place = CacheLocation::of(flash)?;
            place.open(&Arc::new(Homes::new()), &CacheOptions::default())?;
            Ok(())
        };
        denied(|flash| create(flash, SMALL).map(drop), "new");
        denied(open, "f");
        // The metadata is root's still.
        world.give(&["f"], NOBODY);
        denied(open, "f");
        world.give(&["f", "f.lane"], NOBODY);
        fs::set_permissions(world.dir.path(), Permissions::from_mode(0o700)).unwrap();
        denied(open, "f");
    });
}

/// Promise (rights): A command opens the very files of a cache that it looked at, since it holds
/// them before.
#[test]
fn what_is_opened_is_what_was_looked_at_whatever_its_name() {
    alone(|| {
        let Some(world) = World::new() else { return };
        let place = CacheLocation::of(&world.at("f")).unwrap();
        let held = CacheFiles::of(&place).unwrap();
        for (name, aside) in [("f", "g"), ("f.lane", "g.lane")] {
            fs::rename(world.at(name), world.at(aside)).unwrap();
            symlink(world.at("roots"), world.at(name)).unwrap();
        }
        let cache = held.open(&Arc::new(Homes::new())).unwrap();
        assert_eq!(held.owner, 0);
        assert!(cache.stats().slots > 0);
        assert_eq!(world.first_page("roots"), 0);
    });
}

#[test]
fn a_flash_file_that_became_a_link_is_not_followed() {
    alone(|| {
        let Some(world) = World::new() else { return };
        let place = CacheLocation::of(&world.at("f")).unwrap();
        fs::rename(world.at("f"), world.at("g")).unwrap();
        symlink(world.at("g"), world.at("f")).unwrap();
        let said = CacheFiles::of(&place).err().unwrap().to_string();
        assert!(said.contains("become a link"), "{said}");
    });
}

/// Promise: as `root_writes_nothing_by_a_link_in_place_of_the_copies`.
#[test]
fn what_is_no_plain_file_is_not_opened_in_a_data_directory() {
    alone(|| {
        let Some(world) = World::new() else { return };
        symlink(world.at("roots"), world.at("link")).unwrap();
        fs::hard_link(world.at("roots"), world.at("name")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, world.at("fifo"), FileType::Fifo, mode, 0).unwrap();
        for name in ["link", "name", "fifo", "data"] {
            let refused = hold_plain(&world.at(name)).unwrap_err().kind();
            assert_eq!(refused, io::ErrorKind::InvalidInput, "{name}");
        }
        // Another name does harm only where root's own rights count.
        let name = world.at("name");
        let of_a_user = act_as(NOBODY, &name, || Ok(hold_plain(&name).is_ok()));
        assert!(of_a_user.unwrap());
        let none = hold_plain(&world.at("none")).unwrap_err().kind();
        assert_eq!(none, io::ErrorKind::NotFound);
        hold_plain(&world.at("f")).unwrap();
    });
}

/// A queue of bytes that has no writer would be waited for for ever.
///
/// Promise (rights): A queue of bytes in a data directory makes no command wait.
#[test]
fn what_is_a_queue_of_bytes_makes_no_command_wait() {
    alone(|| {
        let Some(world) = World::new() else { return };
        let queue = |name: &str| {
            let mode = Mode::RUSR | Mode::WUSR;
            fs::remove_file(world.at(name)).unwrap();
            rustix::fs::mknodat(rustix::fs::CWD, world.at(name), FileType::Fifo, mode, 0).unwrap();
        };
        world.fill(&[]);
        queue("data/forebay.guard");
        queue("f");
        let (data, flash) = (world.at("data"), world.at("f"));
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let standing = crate::guard::standing(&data).is_err();
            let resized = resize(&flash, SMALL, &[], |_| ControlFlow::Continue(())).is_err();
            done.send([standing, resized, remove(&flash).is_err()])
                .unwrap();
        });
        let patience = std::time::Duration::from_secs(60);
        assert_eq!(ended.recv_timeout(patience).unwrap(), [true; 3]);
    });
}
