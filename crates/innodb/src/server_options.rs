//! Refuses options of a server's command line that a flash cache cannot stand.

use std::ffi::OsString;

/// Refuses a server that is told not to sync its pages, or that calls its system tablespace
/// otherwise.
///
/// # Errors
/// In words, for who has given the arguments.
pub fn check_arguments(arguments: &[OsString]) -> Result<(), String> {
    /// By name, or by number.
    const NOT_SYNCED: [(&str, &str); 3] = [
        ("littlesync", "2"),
        ("nosync", "3"),
        ("o-direct-no-fsync", "5"),
    ];
    for (argument, value) in values_of("innodb-flush-method", "innodb-flush-m", arguments) {
        let is_meant = |(name, number): (&str, &str)| {
            value == number || value != "o-direct" && !value.is_empty() && name.starts_with(&value)
        };
        if NOT_SYNCED.into_iter().any(is_meant) {
            return Err(format!(
                "{argument}: the server does not sync its pages then, and unsynced pages are not durable in a flash cache. Use O_DIRECT"
            ));
        }
    }
    for (argument, value) in values_of("innodb-data-file-path", "innodb-data-f", arguments) {
        if !value.starts_with("ibdata1:") {
            return Err(format!(
                "{argument}: a flash cache knows the system tablespace by its name, ibdata1, which has to come first"
            ));
        }
        let is_known = |file: &str| {
            let number = file
                .split(':')
                .next()
                .and_then(|name| name.strip_prefix("ibdata"));
            number.is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
            })
        };
        if !value.split(';').all(is_known) {
            return Err(format!(
                "{argument}: a flash cache knows the files of the system tablespace by their names, ibdata and a number; nothing would protect the pages of the others from being torn"
            ));
        }
    }
    Ok(())
}

/// True if the server is told whether to have a doublewrite buffer.
#[must_use]
pub fn names_doublewrite(arguments: &[OsString]) -> bool {
    let mut plain = arguments
        .iter()
        .map(|argument| plain(&argument.to_string_lossy()));
    plain.any(|argument| argument.contains("innodb-doublewrite"))
}

/// An option, in the form in which its names are written here.
fn plain(text: &str) -> String {
    text.to_lowercase().replace('_', "-")
}

/// The values that arguments give a server's option, in lower case and with hyphens, behind the
/// argument that names it: `--NAME=VALUE`, or two arguments. A name may be shortened to `least`,
/// and loose.
fn values_of(name: &str, least: &str, arguments: &[OsString]) -> Vec<(String, String)> {
    let texts: Vec<_> = arguments
        .iter()
        .map(|argument| argument.to_string_lossy())
        .collect();
    let mut values = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let (given, value) = match text.split_once('=') {
            Some((given, value)) => (given, value),
            None => (&**text, texts.get(at + 1).map_or("", |next| next)),
        };
        let given = plain(given);
        let given = given.strip_prefix("--").unwrap_or_default();
        let given = given.strip_prefix("loose-").unwrap_or(given);
        if given.starts_with(least) && name.starts_with(given) {
            values.push((text.to_string(), plain(value)));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str) -> Result<(), String> {
        let arguments: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
        check_arguments(&arguments)
    }

    #[test]
    fn a_server_told_not_to_sync_is_refused_however_it_is_told() {
        for refused in [
            "--innodb-flush-method=O_DIRECT_NO_FSYNC",
            "--innodb_flush_method=nosync",
            "--innodb-flush-method nosync",
            "--innodb-flush-meth=LittleSync",
            "--loose-innodb-flush-method=nos",
            "--port 7 --innodb-flush-method=5",
            "--innodb-flush-method=3",
            "--innodb-data-file-path=system:12M:autoextend",
            "--innodb_data_file_path tables:1G",
            "--innodb-data-file-path=ibdata1:12M;second:12M:autoextend",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
        for allowed in [
            "--innodb-flush-method=O_DIRECT",
            "--innodb-flush-method o_direct",
            "--innodb-flush-method=fsync --innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-neighbors=2",
            "--innodb-data-file-path=ibdata1:12M:autoextend",
            "--innodb-data-file-path=ibdata1:12M;ibdata2:12M:autoextend:max:1G",
            "--innodb-data-home-dir=/srv",
            "nosync",
        ] {
            assert!(check(allowed).is_ok(), "{allowed}");
        }
    }
}
