//! Programs of C and C++ that are linked with the library as it is installed: shared, static, and
//! with AddressSanitizer.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};
use tempfile::TempDir;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let mut said = String::from_utf8_lossy(&stdout).into_owned();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{said}{errors}");
    write!(said, "{errors}").unwrap();
    said
}

fn script(arguments: &[&str]) {
    let script = Path::new(PACKAGE).join("../../scripts/store_c.sh");
    run(Command::new(script).args(arguments));
}

/// The library as it is installed, with the one in LevelDB's place beside it. Once for all tests:
/// with what a debugger needs it is large.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store-c");
        // Cargo puts a library that it builds for a test beside that, in deps/.
        let program = env::current_exe().unwrap();
        let built = program.parent().unwrap();
        let to = prefix.to_str().unwrap();
        script(&["--install", to, "--from", built.to_str().unwrap()]);
        script(&["--leveldb", to]);
        prefix
    })
}

/// What pkg-config says of the installed library.
fn flags(prefix: &Path, options: &[&str]) -> Vec<String> {
    let said = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(options)
        .arg("forebay-store"));
    said.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a source of this package, linked in that way, and runs it on a new store.
fn compiled_and_run(source: &str, link: Link) -> String {
    let (prefix, scratch) = (installed(), scratch());
    let program = scratch.path().join("program");
    let mut flags = match link {
        Link::Static => flags(prefix, &["--static", "--cflags", "--libs"]),
        Link::Shared | Link::Asan => flags(prefix, &["--cflags", "--libs"]),
    };
    match link {
        Link::Shared => {}
        Link::Asan => flags.push("-fsanitize=address".to_owned()),
        Link::Static => {
            // The shared library is beside the archive, and would be taken.
            let named = flags.iter_mut().find(|flag| *flag == "-lforebay_store");
            *named.unwrap() = "-l:libforebay_store.a".to_owned();
        }
    }
    let compiler = match source.ends_with(".c") {
        true => ("cc", "-std=c99"),
        false => ("c++", "-std=c++17"),
    };
    let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread", "-g"];
    run(Command::new(compiler.0)
        .arg(compiler.1)
        .args(strict)
        .arg("-o")
        .arg(&program)
        .arg(Path::new(PACKAGE).join(source))
        .args(flags));
    // On a disk: the pool of the examples is one there.
    run(Command::new(&program)
        .arg(scratch.path().join("store"))
        .env("LD_LIBRARY_PATH", prefix.join("lib")))
}

/// A directory on a disk: the pool of the examples is one there.
fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug)]
enum Link {
    Shared,
    Static,
    /// Shared, with AddressSanitizer.
    Asan,
}

const FRUIT: &str = "not opened
cherry: none
cherry: 9
pear=4 
cherry=9 pear=4 
refused: a key of 0 bytes; 1 to 65529 are possible
";

/// Promise (store): Programs of C and C++ that use the installed library find what they wrote, read
/// no freed memory and leak none of it.
#[test]
fn c_and_cpp_programs_do_as_they_say_also_with_asan() {
    for link in [Link::Shared, Link::Static, Link::Asan] {
        let said = compiled_and_run("examples/fruit.c", link);
        assert_eq!(said, FRUIT, "{link:?}");
    }
    for link in [Link::Shared, Link::Asan] {
        let said = compiled_and_run("examples/threads.cpp", link);
        let refused = said.contains("refused: store ") && said.contains("open in this process");
        assert!(refused, "{said}");
        let found = "100 keys, from key 199 to key 100\nkey 199: 24\n";
        assert!(said.ends_with(found), "{said}");
    }
}

/// Promise (store): A program of C reads a store that another process has open, and after a refresh
/// finds all that was put.
#[test]
fn a_c_program_reads_beside_the_process_that_writes() {
    for link in [Link::Shared, Link::Asan] {
        let said = compiled_and_run("tests/readers.c", link);
        assert_eq!(said, "read as it was written\n", "{link:?}");
    }
}

/// All functions of the header are in the library, and no others of that prefix.
#[test]
fn the_header_declares_what_the_library_exports() {
    let prefix = installed();
    let library = prefix.join("lib/libforebay_store.so");
    let exported = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    let mut exported: Vec<_> = exported
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| name.starts_with("forebay_"))
        .map(str::to_owned)
        .collect();
    let header = prefix.join("include/forebay/store.h");
    let header = fs::read_to_string(header).unwrap();
    let mut declared: Vec<_> = header
        .match_indices("forebay_")
        .filter_map(|(at, _)| {
            header[at..]
                .split_once('(')
                .map(|(name, _)| name.to_owned())
        })
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    declared.sort();
    declared.dedup();
    exported.sort();
    // The header's head names a function with its brackets: that is one of them.
    assert_eq!(declared, exported);
    assert!(exported.len() > 40, "{exported:?}");
}

/// Compiles a source that is written for LevelDB, and runs it with the library in LevelDB's place.
fn run_for_leveldb(source: &Path, set: impl FnOnce(&mut Command, &Path)) -> String {
    let (library, scratch) = (installed().join("lib"), scratch());
    let program = scratch.path().join("program");
    run(Command::new("cc")
        .args(["-g", "-fsanitize=address", "-o"])
        .args([&program, source])
        .arg("-L")
        .arg(&library)
        .arg("-lforebay_leveldb"));
    let mut command = Command::new(&program);
    command.env("FOREBAY_POOL_KIND", "emulated");
    command.env("LD_LIBRARY_PATH", &library);
    set(&mut command, scratch.path());
    run(&mut command)
}

/// Promise (store): A comparator that orders keys in another way than by their bytes is refused by
/// the first key that shows it, before that key is written.
#[test]
fn a_comparator_of_another_order_is_refused() {
    let source = Path::new(PACKAGE).join("tests/comparators.c");
    let said = run_for_leveldb(&source, |command, scratch| {
        command.arg(scratch);
    });
    assert!(said.ends_with("as it should\n"), "{said}");
}

/// Promise (store): LevelDB's own test of its C interface, unmodified, passes with the library that
/// stands in LevelDB's place.
#[test]
fn leveldbs_own_test_of_its_c_interface_passes() {
    let program = env::current_exe().unwrap();
    let source = program.ancestors().nth(3).unwrap();
    let source = source.join("peers/leveldb/c_test.c");
    assert!(
        source.exists(),
        "{}: scripts/setup.sh test",
        source.display()
    );
    let said = run_for_leveldb(&source, |command, scratch| {
        command.env("TEST_TMPDIR", scratch.join("test"));
        // It frees less than it is given.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
    });
    assert!(said.ends_with("PASS\n"), "{said}");
    assert_eq!(said.matches("=== Test").count(), 16, "{said}");
}
