//! Python's tests of the package, run on the library as cargo built it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

/// Promise (store): A Python program finds in a store what a dict would have after the same
/// operations, also when it is reopened or killed at any moment.
/// Promise (store): Of two Python transactions that read what the other one changes, one is refused
/// and says which key; `store.transaction` runs its function again.
#[test]
fn python_tests_of_the_package_pass() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    // target/PROFILE/deps/PROGRAM: the library is in deps/, what scripts/setup.sh installed
    // beside PROFILE.
    let program = env::current_exe().unwrap();
    let library = program.ancestors().nth(1).unwrap().join("lib_forebay.so");
    let python = program
        .ancestors()
        .nth(3)
        .unwrap()
        .join("peers/venv/bin/python");
    assert!(
        python.exists(),
        "{}: scripts/setup.sh test",
        python.display()
    );
    // On a disk, for the pools there.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let installed = dir.path().join("forebay");
    fs::create_dir(&installed).unwrap();
    for file in ["__init__.py", "__init__.pyi", "migrate.py", "py.typed"] {
        fs::copy(
            package.join("python/forebay").join(file),
            installed.join(file),
        )
        .unwrap();
    }
    symlink(library, installed.join("_forebay.abi3.so")).unwrap();
    let ran = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp"])
        .arg(dir.path().join("stores"))
        .arg(package.join("tests"))
        .current_dir(&dir)
        .env("PYTHONPATH", dir.path())
        .env("MYPYPATH", dir.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Of the packages that other tests have installed there.
        .env("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{errors}");
    assert!(
        said.contains(" passed") && !said.contains("skipped"),
        "{said}"
    );
    println!("{said}");
}
