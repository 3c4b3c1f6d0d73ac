//! Memories slower than DRAM, under a pool: [`Timed`] is any medium, as slow as a [`Profile`] says.
//! docs/devices-memory.md.

mod line_cache;
mod profile;
mod timed;

/// Environment of the program: the name of the memory that its pool is to be as slow as. May be
/// absent.
pub const ENV_MEMORY: &str = "FOREBAY_MEDIA_PROFILE";

pub use profile::{CachePolicy, Profile};
pub use timed::Timed;

use forebay_pool::Pool;
use std::sync::Arc;

/// The same pool, as slow as `profile` says that such a memory is.
#[must_use]
pub fn slowed(pool: Pool, profile: Profile) -> Pool {
    pool.on_layer(|media| Arc::new(Timed::new(media, profile)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_pool::{PoolOptions, media::SimMedia};

    #[test]
    fn a_slow_pool_says_so() {
        let pool = PoolOptions::new()
            .size(1 << 20)
            .segment_size(64 << 10)
            .lanes(1);
        let pool = pool
            .create_on("sim", Arc::new(SimMedia::new(1 << 20)))
            .unwrap();
        assert!(!pool.describe().contains("pcm"));
        let pool = slowed(pool, Profile::named("pcm").unwrap());
        assert!(pool.describe().contains("pcm"), "{}", pool.describe());
    }
}
