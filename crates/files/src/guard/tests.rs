use super::*;
use forebay_pool::{ClaimOptions, PoolOptions};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

/// A data directory, and a pool.
fn place() -> (tempfile::TempDir, File, Pool) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pg_replslot")).unwrap();
    let directory = open_directory(rustix::fs::CWD, dir.path().join("pg_replslot")).unwrap();
    let options = PoolOptions::new()
        .size(4 << 20)
        .segment_size(256 << 10)
        .emulated(true);
    let pool = options.create(dir.path().join("pool")).unwrap();
    (dir, directory, pool)
}

fn all_names(dir: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path().join("pg_replslot")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_guard_says_its_pool_and_is_taken_away_by_its_own_run_only() {
    let (dir, directory, pool) = place();
    let run = Uuid::new_v4();
    lay(&directory, &pool, run).unwrap();
    let found = below(dir.path()).unwrap();
    assert_eq!(found.len(), 1);
    let shown = pool.path().canonicalize().unwrap();
    assert_eq!(found[0].pool.as_deref(), Some(&*shown));
    assert!(found[0].is_its_own && !found[0].is_needed(&pool));
    lift_of(&directory, pool.uuid(), Uuid::new_v4()).unwrap();
    lift_beside(&[dir.path().join("pg_wal")].into(), Uuid::new_v4(), run);
    assert_eq!(all_names(&dir).len(), 1);
    lift_beside(&[dir.path().join("pg_wal")].into(), pool.uuid(), run);
    assert_eq!(all_names(&dir), [""; 0]);
}

/// Promise (guards): Two runs of one pool on one data directory have a guard each, which goes with
/// its own run.
#[test]
fn a_guard_goes_with_its_run_or_if_laneless_at_the_next_guard() {
    let (dir, directory, pool) = place();
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let runs = || -> Vec<_> {
        let found = below(dir.path()).unwrap();
        found.iter().map(|guard| guard.run.unwrap()).collect()
    };
    lay(&directory, &pool, first).unwrap();
    lay(&directory, &pool, second).unwrap();
    assert_eq!(runs(), [second]);
    let lanes = [first, second].map(|run| pool.claim(run, &ClaimOptions::new()).unwrap());
    for (ends, stays) in [(second, first), (first, second)] {
        for run in [ends, stays, ends] {
            lay(&directory, &pool, run).unwrap();
        }
        assert_eq!(runs().len(), 2);
        lift_of(&directory, pool.uuid(), ends).unwrap();
        assert_eq!(runs(), [stays]);
        assert!(below(dir.path()).unwrap()[0].is_needed(&pool));
    }
    drop(lanes);
}

/// Promise (rights): Root, which lifts guards in another user's data directory, follows no link in
/// the place of one and changes nothing that it leads to.
#[test]
fn a_link_with_the_name_of_a_guard_is_not_followed() {
    let (dir, directory, pool) = place();
    let (run, elsewhere) = (Uuid::new_v4(), dir.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, Permissions::from_mode(0o755)).unwrap();
    lay(&directory, &pool, run).unwrap();
    let found = below(dir.path()).unwrap().remove(0);
    // As its owner may do between the look and what follows from it.
    let at = found.directory.join(&found.name);
    fs::rename(&at, dir.path().join("aside")).unwrap();
    symlink(&elsewhere, &at).unwrap();
    assert!(below(dir.path()).unwrap().is_empty());
    assert!(lift(&found).is_err() && read(&directory, OsStr::new(&found.name)).is_err());
    let mode = fs::metadata(&elsewhere).unwrap().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert!(fs::symlink_metadata(&at).unwrap().is_symlink());
}

#[test]
fn what_a_power_cut_left_of_laying_or_lifting_is_in_nobodys_way() {
    let (dir, directory, pool) = place();
    for has_state in [false, true] {
        let run = Uuid::new_v4();
        let own = of_run(pool.uuid(), run);
        let half = dir.path().join("pg_replslot").join(own.clone() + ".tmp");
        fs::create_dir(&half).unwrap();
        if has_state {
            fs::write(half.join(STATE), "x").unwrap();
        }
        assert!(below(dir.path()).unwrap().is_empty());
        lay(&directory, &pool, run).unwrap();
        assert_eq!(all_names(&dir), [own]);
        fs::create_dir(&half).unwrap();
        lift_of(&directory, pool.uuid(), run).unwrap();
        assert_eq!(all_names(&dir), [""; 0]);
    }
}

#[test]
fn a_copied_guard_is_known_and_a_damaged_one_is_still_needed() {
    let (dir, directory, pool) = place();
    let run = Uuid::new_v4();
    lay(&directory, &pool, run).unwrap();
    let copy = dir.path().join("copy");
    let guard = Path::new("pg_replslot").join(of_run(pool.uuid(), run));
    let state = guard.join(STATE);
    fs::create_dir_all(copy.join(&state).parent().unwrap()).unwrap();
    fs::copy(dir.path().join(&state), copy.join(&state)).unwrap();
    let found = below(&copy).unwrap();
    assert!(found.len() == 1 && !found[0].is_its_own, "{found:?}");
    fs::write(copy.join(&state), "nonsense").unwrap();
    let found = below(&copy).unwrap();
    assert!(found[0].pool.is_none() && found[0].is_needed(&pool));
    lift(&found[0]).unwrap();
    assert!(below(&copy).unwrap().is_empty());
}
