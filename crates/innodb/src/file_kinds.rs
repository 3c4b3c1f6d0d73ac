//! File kinds by their names: page files (InnoDB's tablespaces), redo logs, and Forebay's own files
//! beside them.

/// The system tablespace, which carries the guard.
pub(crate) const SYSTEM: &[u8] = b"ibdata1";

/// The guard file's name, in the directory of the system tablespace.
pub const GUARD_FILE: &str = "forebay.guard";
/// The file's name, in the directory of the system tablespace.
pub(crate) const COPIES_FILE: &str = "forebay.pages";

/// True if the file of this path is one of InnoDB's tablespaces: of a table, the system's, or of
/// undo logs. Temporary ones are made anew by each start, so nothing of them has to be kept.
#[must_use]
pub fn is_page_file(path: &[u8]) -> bool {
    let name = last(path);
    let numbered = |prefix: &[u8]| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
    };
    name.strip_suffix(b".ibd")
        .is_some_and(|table| !table.is_empty())
        || numbered(b"ibdata")
        || numbered(b"undo")
}

/// True if it is a table's, or a part of one's: in the directory of its database, beside which
/// others are.
pub(crate) fn is_table(path: &[u8]) -> bool {
    last(path).ends_with(b".ibd")
}

/// Page files, and the guard's files of them.
pub(crate) fn is_of_database(path: &[u8]) -> bool {
    let beside = [GUARD_FILE, COPIES_FILE].map(str::as_bytes);
    is_page_file(path) || beside.contains(&last(path))
}

pub(crate) fn is_system(path: &[u8]) -> bool {
    last(path) == SYSTEM
}

/// True if the file of this path is InnoDB's redo log, or the one that is to replace it when its
/// size is changed.
pub(crate) fn is_redo_log(path: &[u8]) -> bool {
    matches!(last(path), b"ib_logfile0" | b"ib_logfile101")
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablespaces_are_page_files_and_temporary_files_and_logs_not() {
        for name in [
            "./test/t.ibd",
            "/var/lib/mysql/ibdata1",
            "ibdata12",
            "./undo001",
            "./test/#sql-alter-1-2.ibd",
            "t#P#p0.ibd",
        ] {
            assert!(is_page_file(name.as_bytes()), "{name}");
        }
        for name in [
            "./ibtmp1",
            "ib_logfile0",
            "ibdata",
            "undo.log",
            ".ibd",
            "./test/t.frm",
            "ib_buffer_pool",
            "t.ibd.bak",
        ] {
            assert!(!is_page_file(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_redo_log_is_known_by_its_name_in_any_directory() {
        assert!(is_redo_log(b"./ib_logfile0"));
        assert!(is_redo_log(b"ib_logfile101"));
        assert!(!is_redo_log(b"./ib_logfile0/t.ibd"));
        assert!(!is_redo_log(b"ib_logfile1"));
    }

    #[test]
    fn the_system_tablespace_is_the_one_of_that_name() {
        assert!(is_system(b"./ibdata1"));
        assert!(!is_system(b"ibdata2"));
        assert!(!is_system(b"dir/ibdata1.ibd"));
    }
}
