//! A cache that another process only looks at.

use super::error::SetupError;
use std::{thread, time::Duration};

/// Number of further tries, and the time between them.
const AGAIN: u32 = 20;
const EVERY: Duration = Duration::from_millis(50);

/// Calls `open` on a cache, and again for a second as long as another process has that: it may only
/// be [looking](super::look) at it, as `forebay doctor` does, or the end of a run.
///
/// # Errors
/// Those of `open`, of the last time.
pub fn retry_in_use<T>(mut open: impl FnMut() -> Result<T, SetupError>) -> Result<T, SetupError> {
    let mut opened = open();
    for _ in 0..AGAIN {
        if !matches!(&opened, Err(error) if error.is_in_use()) {
            break;
        }
        thread::sleep(EVERY);
        opened = open();
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        home::Homes,
        setup::{CacheLocation, fixtures::made_cache, look},
    };
    use forebay_flash::CacheOptions;
    use std::sync::Arc;

    #[test]
    fn a_cache_in_use_for_a_moment_is_opened_and_for_longer_is_not() {
        let (_dir, flash) = made_cache(8 << 20);
        let place = CacheLocation::of(&flash).unwrap();
        let open = || place.open(&Arc::new(Homes::new()), &CacheOptions::default());
        let mut other = Some(open().unwrap());
        let mut tried = 0;
        let looked = retry_in_use(|| {
            tried += 1;
            let looked = look(&flash);
            other = None;
            looked
        });
        assert!(looked.unwrap().slots > 0);
        assert_eq!(tried, 2);
        let _other = open().unwrap();
        assert!(retry_in_use(|| look(&flash)).unwrap_err().is_in_use());
    }
}
