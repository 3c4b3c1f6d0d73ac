//! The rights of a recovery: those of the pool's owner and no more, through no symbolic link, and
//! to a file that takes no writes as far as it needs none.

use crate::{
    OTHER_BOOT,
    common::{Lab, Running, content, holds},
    modified, set_modified, succeed, why, written,
};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

/// Promise (rights): A recovery acts with the rights of the owner of the pool's file, never more:
/// any user recovers its own pools, and root's.
/// Promise (rights): Root learns by a recorded file handle where the file is, and goes there with
/// the owner's rights.
#[test]
fn a_recovery_by_root_writes_only_what_the_pools_owner_may() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let lab = Lab::new();
    written(&lab).kill_both();
    lab.power_cut();
    let path = lab.data("a.log");
    let nobody = 65_534;
    for file in [
        lab.home.path().to_owned(),
        lab.home.path().join("data"),
        lab.pool(),
    ] {
        std::os::unix::fs::chown(file, Some(nobody), Some(nobody)).unwrap();
    }
    // Root's own: whose pool it is may not write to it.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("cannot be opened"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(
        why(&reports).contains("cannot be written to"),
        "{reports:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"");
    // Nor if it may write to it, but not get there.
    std::os::unix::fs::chown(&path, Some(nobody), Some(nobody)).unwrap();
    std::os::unix::fs::chown(lab.home.path(), Some(0), Some(0)).unwrap();
    fs::set_permissions(lab.home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("missing"), "{reports:?}");
    assert_eq!(fs::read(&path).unwrap(), b"");
    fs::set_permissions(lab.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
    assert_eq!(lab.lanes(), 0);
}

/// What an ordinary user's run left, after a power cut. None where the tests are not root's.
fn left_by_a_user(writes: impl FnOnce(&Lab) -> Running) -> Option<Lab> {
    let lab = Lab::of_an_ordinary_user();
    if lab.user.is_none() {
        println!("skipped: not root");
        return None;
    }
    writes(&lab).kill_both();
    lab.power_cut();
    Some(lab)
}

/// Moves the log too far to be found by looking.
fn move_far(lab: &Lab) -> PathBuf {
    let far = lab.home.path().join("some/where/else");
    fs::create_dir_all(&far).unwrap();
    let path = far.join("b.log");
    fs::rename(lab.data("a.log"), &path).unwrap();
    path
}

/// Promise: as `a_recovery_by_root_writes_only_what_the_pools_owner_may`.
#[test]
fn root_tells_the_owners_process_where_a_handle_leads() {
    let Some(mut lab) = left_by_a_user(written) else {
        return;
    };
    let path = move_far(&lab);
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("missing"), "{reports:?}");
    lab.user = None;
    lab.recover_to("replayed", Some(OTHER_BOOT), &[]);
    holds(&path, &[(1, 3000)]);
}

/// What comes before the damage is brought home, also to a file that only its handle finds.
///
/// Promise: as `a_recovery_by_root_writes_only_what_the_pools_owner_may`.
#[test]
fn root_learns_where_handles_of_a_damaged_lane_lead() {
    let writes = |lab: &Lab| {
        let mut run = written(lab);
        for seed in [2, 3] {
            run.call(format!("write a {seed} 3000")).unwrap();
            run.call("sync a").unwrap();
        }
        run
    };
    let Some(mut lab) = left_by_a_user(writes) else {
        return;
    };
    let path = move_far(&lab);
    let mut pool = fs::read(lab.pool()).unwrap();
    let second = content(2, 3000);
    let end = &second[second.len() - 64..];
    let at = pool.windows(end.len()).position(|bytes| bytes == end);
    pool[at.unwrap()] ^= 1;
    fs::write(lab.pool(), pool).unwrap();
    lab.user = None;
    let reports = lab.recover_to("replayed", Some(OTHER_BOOT), &["--discard"]);
    assert!(fs::read(&path).unwrap() == content(1, 3000), "{reports:?}");
}

/// Promise (rights): A recovery by root whose child is killed says so, and goes on when it is
/// repeated.
#[test]
fn recovery_whose_child_is_killed_says_so_and_is_repeated() {
    let Some(mut lab) = left_by_a_user(written) else {
        return;
    };
    lab.user = None;
    let mut command = lab.recover_command(&[]);
    command
        .env("FOREBAY_FAILPOINT", "replay:step=2:die")
        .env("FOREBAY_TEST_BOOT_ID", OTHER_BOOT)
        .env("FOREBAY_TEST_POOL_SURVIVED", "1");
    let said = succeed(&mut command).unwrap_err();
    for part in ["user 65534", "before it was done", "repeat this"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
    assert!(fs::read(lab.data("a.log")).unwrap() == content(1, 3000));
}

/// Promise (rights): A recovery refuses a pool that other users may write to (for root: its group,
/// too), and names the remedy, `chmod go-w`.
#[test]
fn a_pool_that_anybody_may_write_to_is_not_recovered() {
    let lab = Lab::new();
    written(&lab).kill_both();
    lab.power_cut();
    fs::set_permissions(lab.pool(), fs::Permissions::from_mode(0o666)).unwrap();
    let why = lab.recover_really(OTHER_BOOT, &["--force"]).unwrap_err();
    assert!(why.contains("chmod go-w"), "{why}");
    assert_eq!(fs::read(lab.data("a.log")).unwrap(), b"");
}

/// Promise (rights): A recovery opens at a recorded path only the file that it holds: a regular
/// file with the recorded identity, and no link.
#[test]
fn a_symbolic_link_at_a_files_name_is_not_followed() {
    let lab = Lab::of_an_ordinary_user();
    written(&lab).kill_both();
    lab.power_cut();
    let (path, elsewhere) = (lab.data("a.log"), lab.home.path().join("a.log"));
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    assert!(why(&reports).contains("missing"), "{reports:?}");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"");
}

/// Promise (recovery): A file that may only be appended to gets the bytes that it lacks.
#[test]
fn a_file_that_may_only_be_appended_to_gets_what_it_lacks() {
    let lab = Lab::new();
    written(&lab).kill_both();
    let path = lab.data("a.log");
    lab.power_cut();
    let then = modified(&path);
    fs::write(&path, &content(1, 3000)[..1000]).unwrap();
    set_modified(&path, then);
    if let Err(e) = succeed(Command::new("chattr").arg("+a").arg(&path)) {
        println!("skipped: no append-only files here: {e}");
        return;
    }
    let cut = lab.cut(Some(OTHER_BOOT), 2);
    let reports = lab.recover(Some(OTHER_BOOT), &[]);
    succeed(Command::new("chattr").arg("-a").arg(&path)).unwrap();
    assert!(cut);
    assert_ne!(reports[0]["outcome"], "refused", "{reports:?}");
    holds(&path, &[(1, 3000)]);
    assert_eq!(lab.lanes(), 0);
}

/// Promise (recovery): A file that cannot be written to gets no lane refused where a sync is
/// enough.
#[test]
fn an_unwritable_file_needs_only_a_sync_in_the_same_boot() {
    for mode in [0o444, 0o000] {
        let lab = Lab::of_an_ordinary_user();
        written(&lab).kill_both();
        fs::set_permissions(lab.data("a.log"), fs::Permissions::from_mode(mode)).unwrap();
        let reports = lab.recover(None, &[]);
        assert_eq!(reports[0]["outcome"], "synced", "{mode:o}: {reports:?}");
        assert_eq!(lab.lanes(), 0);
    }
    // Unlinked, it needs nothing.
    let lab = Lab::of_an_ordinary_user();
    let mut run = written(&lab);
    fs::set_permissions(lab.data("a.log"), fs::Permissions::from_mode(0o555)).unwrap();
    run.call(format!("unlink {}", lab.data("a.log").display()))
        .unwrap();
    run.kill_both();
    assert_eq!(lab.recover(None, &[])[0]["outcome"], "synced");
    assert_eq!(lab.lanes(), 0);
}
