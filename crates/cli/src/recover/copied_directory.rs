//! A data directory that was copied while its guard lay in it, in words.

use forebay_files::guard::DirectoryGuard;

/// The next step with it: `guard` came with the copy.
pub fn advice(guard: &DirectoryGuard) -> String {
    let pool = match &guard.pool {
        Some(pool) => format!("the pool {}", pool.display()),
        None => "a pool".to_owned(),
    };
    format!(
        "{0}: a copy that was made while {pool} may have held acknowledged writes of the original, which the copy may lack. Copy the data directory after forebay recover; \
         or, if the copy has enough (a base backup with the log that belongs to it): forebay recover --for {0} --lift",
        guard.directory.display()
    )
}
