//! Programs of Go, by the sections that its linker makes.

use super::{u16_at, u32_at, u64_at};
use std::{fs::File, os::unix::fs::FileExt};

/// Sections that only Go's programs have.
const SECTIONS: [&[u8]; 3] = [b".go.buildinfo", b".note.go.buildid", b".gopclntab"];
const HEADER_BYTES: usize = 64;
/// Bytes of the table of sections, and of their names, at most: of a program with more nothing is
/// found.
const BYTES_MAX: u64 = 1 << 20;

/// True if a program with this file header has one of Go's sections. One that is damaged, or
/// without a table of sections, has none.
pub(super) fn has_section(file: &File, header: &[u8; 64]) -> bool {
    find(file, header).unwrap_or(false)
}

fn find(file: &File, header: &[u8; 64]) -> Option<bool> {
    let table = u64_at(header, 40);
    let (size, count, names) = (u16_at(header, 58), u16_at(header, 60), u16_at(header, 62));
    if table == 0 || usize::from(size) < HEADER_BYTES {
        return None;
    }
    let sections = read(file, table, u64::from(size) * u64::from(count))?;
    let sections: Vec<&[u8]> = sections.chunks_exact(size.into()).collect();
    let texts = sections.get(usize::from(names))?;
    let texts = read(file, u64_at(texts, 24), u64_at(texts, 32))?;
    let is_go = |section: &&[u8]| {
        let at = usize::try_from(u32_at(section, 0)).ok()?;
        let name = texts.get(at..)?.split(|byte| *byte == 0).next()?;
        Some(SECTIONS.contains(&name))
    };
    Some(sections.iter().any(|section| is_go(section) == Some(true)))
}

fn read(file: &File, at: u64, bytes: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(bytes).ok().filter(|_| bytes <= BYTES_MAX)?;
    let mut contents = vec![0; bytes];
    file.read_exact_at(&mut contents, at).ok()?;
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_section_of_gos_is_found_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        for (section, is_go) in [(".go.buildinfo", true), (".go.building", false)] {
            let source = dir.path().join("main.c");
            let text = format!(
                "int there __attribute__((section(\"{section}\"))) = 1; int main(void) {{ return there; }}"
            );
            std::fs::write(&source, text).unwrap();
            let program = dir.path().join("program");
            let built = Command::new("cc")
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .status();
            assert!(built.unwrap().success());
            let file = File::open(&program).unwrap();
            let mut header = [0; 64];
            file.read_exact_at(&mut header, 0).unwrap();
            assert_eq!(has_section(&file, &header), is_go, "{section}");
            // One whose table lies outside of it.
            header[40..48].copy_from_slice(&u64::MAX.to_ne_bytes());
            assert!(!has_section(&file, &header));
        }
    }
}
