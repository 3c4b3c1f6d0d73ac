use super::*;
use forebay_pool::{ClaimOptions, PoolOptions};
use std::fs;

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

fn names(dir: &tempfile::TempDir) -> Vec<String> {
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
    assert_eq!(names(&dir).len(), 1);
    lift_beside(&[dir.path().join("pg_wal")].into(), pool.uuid(), run);
    assert_eq!(names(&dir), [""; 0]);
}

#[test]
fn a_guard_is_laid_anew_unless_its_run_has_its_lane_still() {
    let (dir, directory, pool) = place();
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    lay(&directory, &pool, first).unwrap();
    lay(&directory, &pool, second).unwrap();
    let run = || below(dir.path()).unwrap()[0].run;
    assert_eq!(run(), Some(second));
    let (lane, _) = pool.claim(second, &ClaimOptions::new()).unwrap();
    lay(&directory, &pool, first).unwrap();
    assert_eq!(run(), Some(second));
    assert!(below(dir.path()).unwrap()[0].is_needed(&pool));
    drop(lane);
}

#[test]
fn what_a_power_cut_left_of_laying_or_lifting_is_in_nobodys_way() {
    let (dir, directory, pool) = place();
    let half = dir
        .path()
        .join("pg_replslot")
        .join(name(pool.uuid()) + ".tmp");
    for has_state in [false, true] {
        fs::create_dir(&half).unwrap();
        if has_state {
            fs::write(half.join(STATE), "x").unwrap();
        }
        assert!(below(dir.path()).unwrap().is_empty());
        let run = Uuid::new_v4();
        lay(&directory, &pool, run).unwrap();
        assert_eq!(names(&dir), [name(pool.uuid())]);
        fs::create_dir(&half).unwrap();
        lift_of(&directory, pool.uuid(), run).unwrap();
        assert_eq!(names(&dir), [""; 0]);
    }
}

#[test]
fn a_guard_that_came_with_a_copy_is_known_and_damage_is_no_licence() {
    let (dir, directory, pool) = place();
    lay(&directory, &pool, Uuid::new_v4()).unwrap();
    let copy = dir.path().join("copy");
    let state = Path::new("pg_replslot").join(name(pool.uuid())).join(STATE);
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
