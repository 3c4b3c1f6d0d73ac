#!/usr/bin/env python3
"""Measures how long programs take to build that have one dependency each: the store, fjall, redb.

    scripts/build_times.py [--rounds 3]

Each program puts and gets, in a temporary directory of its own, with what `Cargo.lock` here has,
and is built from nothing by `cargo build --release`, in turn with the others. All crates are downloaded
before the clock starts. The median of the rounds counts.
"""

import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

STORE = """
use forebay_store::{Durability, StoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = StoreOptions::new().durability(Durability::Fsync).open("data", None)?;
    store.put("key", "value")?;
    println!("{:?}", store.get("key")?);
    Ok(store.close()?)
}
"""
FJALL = """
use fjall::{Database, KeyspaceCreateOptions, PersistMode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Database::builder("data").open()?;
    let pairs = database.keyspace("pairs", KeyspaceCreateOptions::default)?;
    pairs.insert("key", "value")?;
    println!("{:?}", pairs.get("key")?);
    Ok(database.persist(PersistMode::SyncAll)?)
}
"""
REDB = """
use redb::{Database, ReadableDatabase, TableDefinition};

const PAIRS: TableDefinition<&str, &str> = TableDefinition::new("pairs");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Database::create("data")?;
    let write = database.begin_write()?;
    write.open_table(PAIRS)?.insert("key", "value")?;
    write.commit()?;
    let pairs = database.begin_read()?.open_table(PAIRS)?;
    println!("{:?}", pairs.get("key")?.map(|value| value.value().to_owned()));
    Ok(())
}
"""


def versions(lock):
    """The versions of each package in a Cargo.lock."""
    found = {}
    for name, version in re.findall(r'^name = "(.+)"\nversion = "(.+)"$', lock, re.MULTILINE):
        found.setdefault(name, []).append(version)
    return found


def manifest(name, dependency):
    return (
        f'[package]\nname = "builds-{name}"\nversion = "0.0.0"\nedition = "2024"\npublish = false\n\n'
        f"[dependencies]\n{dependency}\n\n[workspace]\n"
    )


def dependencies(locked):
    """What each program depends on, and its source. Peers are those that the lock file has."""
    store = f'forebay-store = {{ path = "{ROOT / "crates/store"}" }}'
    peer = lambda name: f'{name} = "={locked[name][-1]}"'
    return {"forebay-store": (store, STORE), "fjall": (peer("fjall"), FJALL), "redb": (peer("redb"), REDB)}


def compiled(messages):
    """How many crates cargo has compiled, the program itself apart."""
    return len(re.findall(r"^ *Compiling ", messages, re.MULTILINE)) - 1


def write(directory, name, dependency, source):
    (directory / "src").mkdir(parents=True)
    (directory / "Cargo.toml").write_text(manifest(name, dependency))
    (directory / "src/main.rs").write_text(source)
    shutil.copy(ROOT / "Cargo.lock", directory)
    # Fits the lock file to the program.
    subprocess.run(["cargo", "fetch", "--quiet"], cwd=directory, check=True)


def build(directory):
    """Seconds, and crates."""
    shutil.rmtree(directory / "target", ignore_errors=True)
    command = ["cargo", "build", "--release", "--locked", "--target-dir", "target"]
    began = time.monotonic()
    built = subprocess.run(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    if built.returncode:
        sys.exit(f"{directory.name} cannot be built:\n{built.stderr}")
    return seconds, compiled(built.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    programs = dependencies(versions((ROOT / "Cargo.lock").read_text()))
    taken = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as work:
        for name, (dependency, source) in programs.items():
            write(pathlib.Path(work) / name, name, dependency, source)
        for _ in range(options.rounds):
            for name in programs:
                taken[name].append(build(pathlib.Path(work) / name))
    print("| a program with | seconds | crates |\n|---|---|---|")
    for name, rounds in taken.items():
        seconds = statistics.median(seconds for seconds, _ in rounds)
        print(f"| {name} | {seconds:.1f} | {rounds[0][1]} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
