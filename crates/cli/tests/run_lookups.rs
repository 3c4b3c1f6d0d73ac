//! Functions of the C library that a program looks up by itself, and libraries that find the C
//! library before Forebay's: what they wrote, cut off and synced is recovered.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use common::{
    Ran, Sandbox,
    databases::small_pool,
    recovered::{BEGIN, Disk, RUN, nothing_is_lost, run_and_recovered, same},
};
use std::{fs, process::Command};

/// The version of the C library's oldest functions.
const VERSION: &str = if cfg!(target_arch = "x86_64") {
    "GLIBC_2.2.5"
} else {
    "GLIBC_2.17"
};

/// `direct`: the C library by a handle of its own. A file that has records of what is changed then.
const DIRECT: &str = r#"
L = ctypes.c_long
direct = ctypes.CDLL("libc.so.6")
fd = opened("a.log")
logged(fd, b"a", 5)
"#;

/// Builds `programs/plugin.c` as `name`.
fn plugin(sandbox: &Sandbox, name: &str, options: &[&str]) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/plugin.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", name])
        .arg(format!("-DVERSION=\"{VERSION}\""))
        .args(options)
        .arg(source)
        .current_dir(sandbox.path())
        .status();
    assert!(built.unwrap().success());
}

/// Runs a script in a sandbox that has a plug-in; `a.log` as it was and is.
#[track_caller]
fn nothing_is_lost_with_a_plugin(script: &str) -> Vec<u8> {
    let sandbox = Sandbox::new();
    plugin(&sandbox, "plugin.so", &[]);
    let program = [
        "python3",
        "-c",
        &format!("{BEGIN}{DIRECT}{script}\ncut()\n"),
    ];
    same(run_and_recovered(
        Disk::All,
        &sandbox,
        sandbox.command(RUN),
        &program,
    ))
}

/// Promise (files): Changes by functions that a program looked up in the C library (`ctypes`, JNA,
/// P/Invoke) are absorbed as any other.
#[test]
fn changes_by_functions_that_dlsym_finds_are_recovered() {
    for change in [
        "direct.pwrite(fd, b'b' * 100, L(100), L(50)) == 100",
        "direct.ftruncate(fd, L(150)) == 0",
        "direct.fallocate(fd, 3, L(100), L(100)) == 0",
        "direct.rename(b'a.log', b'b.log') == 0 and direct.rename(b'b.log', b'a.log') == 0",
    ] {
        nothing_is_lost(
            Disk::All,
            &format!(
                "{DIRECT}\nassert {change}\nassert direct.fsync(fd) == 0\nlogged(fd, b'c', 2)\ncut()\n"
            ),
        );
    }
}

/// Promise: as `changes_by_functions_that_dlsym_finds_are_recovered`.
#[test]
fn writes_by_functions_that_dlsym_finds_are_absorbed() {
    nothing_is_lost(
        Disk::Synced,
        &format!(
            r#"{DIRECT}
filtered("fsync", REFUSED)
assert direct.pwrite(fd, b"b" * 100, L(100), L(50)) == 100
assert direct.fsync(fd) == 0
cut()
"#
        ),
    );
}

/// Promise: as `changes_by_functions_that_dlsym_finds_are_recovered`.
#[test]
fn lookups_by_version_or_a_looked_up_dlsym_give_the_hooks() {
    nothing_is_lost(
        Disk::Synced,
        &format!(
            r#"{DIRECT}
handle = ctypes.c_void_p(direct._handle)
def function(lookup, *arguments):
    lookup.restype = ctypes.c_void_p
    return lookup(*arguments)
hooks = {{function(libc.dlsym, None, b"pwrite"), function(libc.dlsym, None, b"pwrite64")}}
assert function(direct.dlsym, handle, b"pwrite") in hooks
assert function(libc.dlvsym, handle, b"pwrite", b"{VERSION}") in hooks
assert function(direct.dlvsym, handle, b"pwrite64", b"{VERSION}") in hooks
assert function(direct.dlsym, handle, b"no such function") is None
assert function(direct.dlvsym, handle, b"pwrite", b"NONE_1") is None
again = function(direct.dlsym, handle, b"dlsym")
assert again == function(libc.dlsym, None, b"dlsym")
cut()
"#
        ),
    );
}

#[test]
fn another_librarys_function_of_a_c_librarys_name_stays_its_own() {
    nothing_is_lost_with_a_plugin(
        r#"
plugin = ctypes.CDLL("./plugin.so")
assert plugin.fdatasync(7) == 1007
assert plugin.put(fd, 98, L(100), L(50))
"#,
    );
}

/// Promise (files): Changes by a library that finds the C library first (`RTLD_DEEPBIND`), or has
/// its own (`dlmopen`), are not undone.
#[test]
fn changes_of_a_plugin_that_finds_the_c_library_first_are_kept() {
    for change in ["put(fd, 98, L(100), L(50))", "cut_off(fd, L(150))"] {
        nothing_is_lost_with_a_plugin(&format!(
            r#"
plugin = ctypes.CDLL("./plugin.so", mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
assert plugin.{change}
logged(fd, b"c", 2)
"#
        ));
    }
}

/// Promise: as `changes_of_a_plugin_that_finds_the_c_library_first_are_kept`.
#[test]
fn changes_of_a_plugin_in_its_own_namespace_are_not_undone() {
    nothing_is_lost_with_a_plugin(
        r#"
libc.dlmopen.restype = libc.dlsym.restype = ctypes.c_void_p
plugin = libc.dlmopen(L(-1), b"./plugin.so", 2)
assert plugin
put = libc.dlsym(ctypes.c_void_p(plugin), b"put")
put = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, L, L)(put)
assert put(fd, 98, 100, 50)
logged(fd, b"c", 2)
"#,
    );
}

#[test]
fn a_library_preloaded_behind_finds_the_original_not_the_hook() {
    let sandbox = Sandbox::new();
    // Two: Forebay's function calls the first one's, and that the second one's.
    plugin(&sandbox, "interposer.so", &["-DINTERPOSES", "-DFIRST"]);
    plugin(&sandbox, "second.so", &["-DINTERPOSES"]);
    let script = format!(
        r#"{BEGIN}{DIRECT}
behind = ctypes.CDLL("./interposer.so")
before = behind.seen_writes()
assert direct.pwrite(fd, b"b" * 100, L(100), L(50)) == 100
assert os.pwrite(fd, b"c" * 100, 200) == 100
assert direct.fsync(fd) == 0
other = os.open("other.txt", os.O_RDWR | os.O_CREAT)
assert libc.pwrite(other, b"x", L(1), L(0)) == 1
os.fsync(other)
os.fdatasync(other)
assert behind.seen_writes() > before
assert ctypes.CDLL("./second.so").seen_writes() > 0
cut()
"#
    );
    let mut run = sandbox.command(RUN);
    let both = ["interposer.so", "second.so"].map(|name| sandbox.file(name));
    run.env("LD_PRELOAD", std::env::join_paths(both).unwrap());
    let program = ["python3", "-c", &script];
    same(run_and_recovered(Disk::All, &sandbox, run, &program));
}

#[test]
fn a_program_with_address_sanitizer_is_absorbed_and_checked() {
    let sandbox = Sandbox::new();
    let source = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int count, char **words) { int log = open(\"a.log\", O_RDWR | O_CREAT, 0600); \
        char *volatile five = malloc(5); if (write(log, \"hello\", 5) != 5 || fsync(log)) return 3; \
        if (count > 1) five[5] = 1; free(five); return 0; }\n";
    fs::write(sandbox.file("t.c"), source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-fsanitize=address", "-o", "t", "t.c"]);
    let built = compiler.current_dir(sandbox.path()).output().unwrap();
    if !built.status.success() {
        println!("skipped: no AddressSanitizer here");
        return;
    }
    let pool = small_pool();
    let run = |arguments: &[&str]| {
        let mut run = sandbox.command("run --explain --absorb *.log --pool");
        run.arg(pool.path()).args(["--", "./t"]).args(arguments);
        run.env("ASAN_OPTIONS", "detect_leaks=0:exitcode=9");
        run.env("FOREBAY_RUN_DIR", sandbox.file("run"));
        Ran::of(run.output().unwrap())
    };
    let ran = run(&[]).ok();
    assert!(
        ran.stderr.contains("is built with AddressSanitizer"),
        "{}",
        ran.stderr
    );
    assert!(ran.told("a.log ").ends_with("absorbed"), "{}", ran.stderr);
    run(&["overflow"]).fails(9, &["heap-buffer-overflow"]);
}

/// What a library has and imports decides whether loading it past the hooks ends absorbing; one
/// that cannot be loaded ends nothing.
///
/// Promise (files): A library that is loaded with `RTLD_DEEPBIND`, as Valkey loads modules, ends no
/// absorbing if it finds all but Forebay's functions alike without that flag.
#[test]
fn only_a_library_that_the_hooks_cannot_see_ends_absorbing() {
    let sandbox = Sandbox::new();
    sandbox.pool();
    let compile = |name: &str, source: &str, words: &[&str]| {
        std::fs::write(sandbox.file("source.c"), source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o", name]).args(words);
        compiler.args(["source.c", "-L."]);
        let built = compiler.current_dir(sandbox.path()).status();
        assert!(built.unwrap().success(), "{name}");
    };
    let writes = "#include <unistd.h>\nint put(int fd) { return write(fd, \"z\", 1); }";
    let adds = "int add(int a) { return a + 1; }";
    compile("writes.so", writes, &[]);
    compile("adds.so", adds, &[]);
    let needs = ["-Wl,--no-as-needed", "-l:writes.so"];
    compile("broken.so", adds, &needs);
    // As many a module: variables of the C library's.
    let reads = "#include <stdio.h>\n#include <unistd.h>\nextern char **environ;\n\
        int put(int fd) { return environ && stderr && write(fd, \"z\", 1) == 1 && fdatasync(fd) == 0; }";
    compile("reads.so", reads, &[]);
    // Names that the program has too: with the flag it calls its own.
    let own = format!("const char *Py_GetVersion(void) {{ return \"own\"; }}\n{writes}");
    compile("own.so", &own, &[]);
    let c_plus_plus = "extern \"C\" int put(int);\n#include <cmath>\n#include <fstream>\n#include <stdexcept>\n#include <unistd.h>\n\
        int put(int fd) { std::ofstream none(\"none\"); try { throw std::runtime_error(\"z\"); } \
        catch (std::exception &it) { none << it.what() << std::fmod(fd, 3.0); return write(fd, it.what(), 1); } }";
    compile(
        "many_writes.so",
        c_plus_plus,
        &["-xc++", "-Wl,--no-as-needed", "-lstdc++", "-lm"],
    );
    let own_sync = format!("int fsync(int fd) {{ return fd; }}\n{writes}");
    compile("own_sync.so", &own_sync, &[]);
    compile(
        "needs.so",
        adds,
        &[&needs[..], &["-Wl,-rpath,$ORIGIN"]].concat(),
    );
    let script = r#"
import ctypes, os, subprocess, sys
fd = os.open("a.log", os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"x" * 100); os.fdatasync(fd)
libc = ctypes.CDLL(None)
libc.dlopen.restype = libc.dlmopen.restype = ctypes.c_void_p
what, loads = os.fsencode(sys.argv[2]), sys.argv[3] == "loads"
if sys.argv[1] == "deep":
    loaded = libc.dlopen(what, os.RTLD_NOW | os.RTLD_DEEPBIND)
elif sys.argv[1] == "lazily":
    loaded = libc.dlopen(what, os.RTLD_LAZY | os.RTLD_DEEPBIND)
else:
    loaded = libc.dlmopen(ctypes.c_long(-1), what, os.RTLD_NOW)
assert bool(loaded) == loads
if sys.argv[4] == "puts":
    put = libc.dlsym
    put.restype = ctypes.c_void_p
    put = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(put(ctypes.c_void_p(loaded), b"put"))
    assert put(fd) == 1
    assert os.pread(os.open("a.log", os.O_RDONLY), 1, 100) == b"z"
os.write(fd, b"y" * 100); os.fdatasync(fd)
status = subprocess.run([os.environ["FOREBAY"], "status"], capture_output=True, text=True)
print(status.returncode, status.stdout)
"#;
    for (way, name, loads, ends) in [
        ("deep", "./adds.so", "loads", false),
        ("deep", "./writes.so", "loads", false),
        ("deep", "./reads.so", "loads", false),
        ("deep", "./many_writes.so", "loads", false),
        ("deep", "./needs.so", "loads", false),
        ("deep", "./own.so", "loads", true),
        ("deep", "./own_sync.so", "loads", true),
        ("deep", "./broken.so", "fails", false),
        ("deep", "./source.c", "fails", false),
        ("deep", "nosuch.so", "fails", false),
        ("deep", "libc.so.6", "loads", false),
        ("lazily", "./writes.so", "loads", true),
        ("apart", "./adds.so", "loads", false),
        ("apart", "./writes.so", "loads", true),
        ("apart", "./nosuch.so", "fails", false),
    ] {
        let _ = std::fs::remove_file(sandbox.file("a.log"));
        let mut command = sandbox.command("run --pool p --absorb *.log -- python3 -c");
        let puts = match ["writes", "reads"].iter().any(|kind| name.contains(kind)) {
            true if way == "deep" => "puts",
            _ => "",
        };
        command.args([script, way, name, loads, puts]);
        command
            .env("FOREBAY", common::FOREBAY)
            .env("FOREBAY_RUN_DIR", sandbox.file("run"));
        let ran = Ran::of(command.output().unwrap()).ok();
        let said = ran.text();
        let is_told = said.starts_with("1 ") && said.contains("is not absorbed any more");
        assert_eq!(is_told, ends, "{way} {name}: {said}{}", ran.stderr);
        assert_eq!(said.contains("then plain"), ends, "{way} {name}: {said}");
    }
}
