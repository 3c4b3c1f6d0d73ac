//! The most of a stack that each hook may take: a thread's may be small, and a signal handler's is.
//! Read from the library's own instructions: the frame of each function, and its calls.
//!
//! What is called by a pointer is not seen here; `crates/cli/tests/run_stacks.rs` measures calls.
//! What works on a stack of its own (`forebay_pool::with_room`) is called by one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    collections::{BTreeSet, HashMap},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

/// Bytes that a hook takes at most, with all that it calls; and those of one function.
const DEPTH_MAX: u64 = 8 << 10;
const FRAME_MAX: u64 = 2 << 10;

/// Parts of the names of functions at which the way ends: they end the process; have a stack of
/// their own, unless there is no memory for one; or are not called with the bytes of a log
/// (`Checksum::add`).
const ENDS: [&str; 10] = [
    "9with_room",
    "panic",
    "unwrap_failed",
    "expect_failed",
    "handle_alloc_error",
    "handle_error",
    "capacity_overflow",
    "slice_index_fail",
    "9backtrace",
    "add_long",
];

/// The standard library's sorting has up to 4 KiB for a few elements.
const LARGE: [&str; 2] = ["5slice4sort", "5alloc3fmt6format"];

#[derive(Default)]
struct Function {
    bytes: u64,
    calls: BTreeSet<String>,
}

/// Does something with each line that a tool says.
fn each_line(arguments: &[&str], library: &Path, mut work: impl FnMut(&str)) {
    let mut tool = Command::new("objdump")
        .args(arguments)
        .arg(library)
        .stdout(Stdio::piped())
        .spawn()
        .expect("objdump, of the binutils that the linker comes with");
    let said = BufReader::with_capacity(1 << 20, tool.stdout.take().unwrap());
    said.lines().for_each(|line| work(&line.unwrap()));
    assert!(tool.wait().unwrap().success());
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
}

/// What the library's pointers lead to: addresses, by where they lie; or names.
fn pointers(library: &Path) -> HashMap<u64, String> {
    let pointer = |line: &str| {
        let mut words = line.split_whitespace();
        let (at, _, to) = (hex(words.next()?)?, words.next()?, words.next()?);
        Some((at, to.split('@').next()?.to_owned()))
    };
    let mut pointers = HashMap::new();
    each_line(&["-R"], library, |line| pointers.extend(pointer(line)));
    pointers
}

/// All functions, by name, and their names by address.
fn functions(library: &Path) -> (HashMap<String, Function>, HashMap<u64, String>) {
    let (mut functions, mut names) = (HashMap::<String, Function>::new(), HashMap::new());
    let mut name = String::new();
    each_line(&["-d", "--no-show-raw-insn"], library, |line| {
        let head = line
            .strip_suffix(">:")
            .and_then(|line| line.split_once(" <"));
        if let Some((at, named)) = head {
            name = named.to_owned();
            names.insert(hex(at).unwrap(), name.clone());
        } else if let Some((_, instruction)) = line.split_once('\t') {
            functions.entry(name.clone()).or_default().add(instruction);
        }
    });
    (functions, names)
}

impl Function {
    fn add(&mut self, instruction: &str) {
        let (what, of) = instruction.split_once(' ').unwrap_or((instruction, ""));
        let of = of.trim();
        match what {
            "push" => self.bytes += 8,
            "sub" if of.ends_with(",%rsp") => {
                let bytes = of.strip_prefix('$').and_then(|of| of.split(',').next());
                self.bytes += bytes.and_then(hex).unwrap_or(0);
            }
            // A large one is taken page by page, down to this.
            "lea" if of.ends_with("(%rsp),%r11") => {
                let bytes = of.strip_prefix('-').and_then(|of| of.split('(').next());
                self.bytes += bytes.and_then(hex).unwrap_or(0);
            }
            _ if what.starts_with('j') || what == "call" => self.calls.extend(called(of)),
            _ => {}
        }
    }
}

/// What a call or a jump goes to: a name, or a * and where the pointer to it lies.
fn called(of: &str) -> Option<String> {
    if of.starts_with('*') {
        // The address is said behind a #.
        let (_, at) = of.split_once("# ")?;
        return Some(format!("*{}", at.split(' ').next()?));
    }
    let (_, name) = of.split_once('<')?;
    let name = name.strip_suffix('>')?;
    (!name.contains('+')).then(|| name.to_owned())
}

struct Depths {
    functions: HashMap<String, Function>,
    hooks: BTreeSet<String>,
    known: HashMap<String, (u64, Vec<String>)>,
}

impl Depths {
    /// The deepest way from a function on, and its bytes.
    fn of(&mut self, name: &str, above: &mut Vec<String>) -> (u64, Vec<String>) {
        let is_hook = !above.is_empty() && self.hooks.contains(name);
        if is_hook
            || above.iter().any(|one| one == name)
            || ENDS.iter().any(|end| name.contains(end))
        {
            return (0, Vec::new());
        }
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let Some(function) = self.functions.get(name) else {
            return (0, Vec::new());
        };
        let (bytes, calls) = (function.bytes + 8, function.calls.clone());
        above.push(name.to_owned());
        let mut deepest = (0, Vec::new());
        for called in &calls {
            let below = self.of(called, above);
            if below.0 > deepest.0 {
                deepest = below;
            }
        }
        above.pop();
        let mut way = vec![format!("{bytes} {name}")];
        way.append(&mut deepest.1);
        let found = (bytes + deepest.0, way);
        self.known.insert(name.to_owned(), found.clone());
        found
    }
}

/// Promise (programs): Calls on files take at most 8 KiB of a thread's stack, and a handler with
/// one of 8 KiB opens and writes logs.
#[test]
fn no_hook_takes_more_than_8_kib_of_a_stack() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: it reads instructions of x86-64");
        return;
    }
    let library = support::library();
    let pointers = pointers(&library);
    let (mut functions, names) = functions(&library);
    assert!(functions.len() > 1000, "{} functions", functions.len());
    // Calls by pointers that are known are calls by name, and so are those by way of the linker's
    // table.
    for function in functions.values_mut() {
        let named = |called: &String| match called.strip_prefix('*') {
            Some(at) => {
                let to = pointers.get(&hex(at)?)?;
                match to.strip_prefix("*ABS*+") {
                    Some(at) => names.get(&hex(at)?).cloned(),
                    None => Some(to.clone()),
                }
            }
            None => Some(called.trim_end_matches("@plt").to_owned()),
        };
        function.calls = function.calls.iter().filter_map(named).collect();
    }
    let hooks: BTreeSet<String> = support::SYMBOLS
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let mut depths = Depths {
        functions,
        hooks: hooks.clone(),
        known: HashMap::new(),
    };
    let found: Vec<_> = hooks
        .iter()
        .map(|hook| depths.of(hook, &mut Vec::new()))
        .collect();
    let deepest = found.iter().max_by_key(|(bytes, _)| *bytes).unwrap();
    println!("{} bytes at most:\n{}", deepest.0, deepest.1.join("\n"));
    assert!(deepest.0 > 1000, "nothing was followed");
    assert!(
        deepest.0 <= DEPTH_MAX,
        "a hook takes {} bytes:\n{}",
        deepest.0,
        deepest.1.join("\n")
    );
    for (name, (_, way)) in &depths.known {
        let bytes: u64 = way[0].split(' ').next().unwrap().parse().unwrap();
        assert!(
            bytes <= FRAME_MAX || LARGE.iter().any(|large| name.contains(large)),
            "{name} takes {bytes} bytes"
        );
    }
}
