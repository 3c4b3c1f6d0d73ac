//! Shared by the tests: the library's path, and its exports.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

#[path = "../../src/table.rs"]
mod table;

macro_rules! names {
    (
        dynamic { $($own:ident)+ }
        $($module:ident { $(
            $kind:ident $handler:ident $arguments:tt
            $(as $($alias:ident)+)? $(, $number:ident $(on $architecture:literal)?)?;
        )+ })+
    ) => {
        /// Every function that the library's table has.
        pub const SYMBOLS: &[&str] = &[
            $(stringify!($own),)+
            $($(stringify!($handler), $($(stringify!($alias),)+)?)+)+
        ];
    };
}

table::calls! { names }

/// The library: cargo puts it beside the programs of this package's tests.
pub fn library() -> PathBuf {
    beside_the_tests("libforebay.so")
}

/// The library of this name, of the package that is tested.
pub fn beside_the_tests(name: &str) -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name(name);
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// What a library exports, sorted.
pub fn exported(library: &Path) -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(library)
        .output()
        .expect("nm, of the binutils that the linker comes with");
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<String> = names.lines().map(str::to_owned).collect();
    exported.sort_unstable();
    exported
}
