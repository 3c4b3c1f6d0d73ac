//! Options to make or open a pool: [`PoolOptions`], whose last call is one of `create` and `open`.

use std::path::Path;

/// Options to make or open a pool.
///
/// The sizes are those of a pool that is made; one that is opened has its own. Making is
/// [`create`](Self::create), opening [`open`](Self::open); [`create_on`](Self::create_on) and
/// [`open_on`](Self::open_on) do so on any medium.
///
/// ```
/// use forebay_pool::PoolOptions;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let options = PoolOptions::new().size(16 << 20).segment_size(1 << 20).emulated(true);
/// let pool = options.create(&path)?;
/// assert_eq!(pool.geometry().segments, 15); // the tables take the rest
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(super) bytes: u64,
    pub(super) segment_bytes: u64,
    pub(super) lanes: u32,
    pub(super) emulated: bool,
    pub(super) disk: bool,
    pub(super) force: bool,
    pub(super) legs: Vec<String>,
    pub(super) copies: Option<usize>,
    pub(super) insecure: bool,
    pub(super) lost_legs: Vec<String>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PoolOptions {
    /// A pool of 64 MiB on persistent memory, with segments of 8 MiB and 16 lanes.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let pool = PoolOptions::new().emulated(true).create(dir.path().join("pool"))?;
    /// assert_eq!(pool.geometry().segment_bytes, 8 << 20);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: 64 << 20,
            segment_bytes: 8 << 20,
            lanes: 16,
            emulated: false,
            disk: false,
            force: false,
            legs: Vec::new(),
            copies: None,
            insecure: false,
            lost_legs: Vec::new(),
        }
    }

    /// Bytes of the pool. A devdax device is taken whole; there this is the bytes used. Default: 64
    /// MiB.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let pool = PoolOptions::new().size(32 << 20).emulated(true).create(dir.path().join("pool"))?;
    /// assert_eq!(std::fs::metadata(dir.path().join("pool"))?.len(), 32 << 20);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn size(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Bytes of a segment: a multiple of 4 KiB, 4 KiB to 64 MiB. The largest record is half of it.
    /// Default: 8 MiB.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let pool = PoolOptions::new().segment_size(1 << 20).emulated(true).create(dir.path().join("pool"))?;
    /// assert_eq!(pool.geometry().segment_bytes, 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn segment_size(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Lanes, that is owners at the same time. Default: 16.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let pool = PoolOptions::new().lanes(4).emulated(true).create(dir.path().join("pool"))?;
    /// assert_eq!(pool.geometry().lanes, 4);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn lanes(mut self, lanes: u32) -> Self {
        self.lanes = lanes;
        self
    }

    /// Make the pool in an ordinary file, where it survives a process crash only; or open one as
    /// such that was made on persistent memory and lies elsewhere now. A pool that was made
    /// emulated is opened without this. Default: no.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("pool");
    /// drop(PoolOptions::new().emulated(true).create(&path)?);
    /// assert!(PoolOptions::new().open(&path)?.is_emulated());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn emulated(mut self, emulated: bool) -> Self {
        self.emulated = emulated;
        self
    }

    /// Make the pool on an ordinary disk, in a file: committed records
    /// ([`Lane::commit`](crate::Lane::commit)) survive a power cut. On a block device a pool is
    /// always one, and one that was made so is opened without this. Default: no.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("pool");
    /// drop(PoolOptions::new().on_disk(true).create(&path)?);
    /// assert!(PoolOptions::new().open(&path)?.needs_commit());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn on_disk(mut self, disk: bool) -> Self {
        self.disk = disk;
        self
    }

    /// Make the pool in other machines' memory: on these NBD exports (`nbd://HOST:PORT/EXPORT`, or
    /// with TLS, which is the cargo feature `tls`, `nbds://HOST:PORT/EXPORT?tls-certificates=DIR`),
    /// all of which have the committed records; beside them, on a disk of this machine (the whole
    /// path of a file to be made, or of a block device). The pool's file says which they are.
    /// Default: none.
    ///
    /// ```
    /// use forebay_pool::{PoolError, PoolOptions};
    /// fn make() -> Result<(), PoolError> {
    ///     // Two machines of this network, which run nbdkit behind tunnels.
    ///     let legs = ["nbd://127.0.0.1:10810/forebay", "nbd://127.0.0.1:10811/forebay"];
    ///     let pool = PoolOptions::new().legs(legs.map(str::to_owned).to_vec()).create("pool")?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn legs(mut self, legs: Vec<String>) -> Self {
        self.legs = legs;
        self
    }

    /// The legs that are files or disks of this machine.
    #[doc(hidden)]
    pub fn disk_legs(&self) -> impl Iterator<Item = &Path> {
        let disks = self.legs.iter().filter(|leg| leg.starts_with('/'));
        disks.map(|leg| Path::new(leg.as_str()))
    }

    /// With fewer live legs than this, a sync under `forebay run` is a real one, too. Default: all
    /// legs.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// let legs = ["nbd://127.0.0.1:10810/forebay", "nbd://127.0.0.1:10811/forebay"];
    /// let options = PoolOptions::new().legs(legs.map(str::to_owned).to_vec()).copies(Some(1));
    /// ```
    #[must_use]
    pub const fn copies(mut self, copies: Option<usize>) -> Self {
        self.copies = copies;
        self
    }

    /// Legs may be reached by a network without TLS. Default: those without are on this machine
    /// only, where an encrypted tunnel may begin.
    ///
    /// ```
    /// use forebay_pool::PoolOptions;
    /// // In a network that nobody else is in.
    /// let legs = vec!["nbd://10.0.0.2:10809/forebay".to_owned()];
    /// let options = PoolOptions::new().legs(legs).insecure(true);
    /// ```
    #[must_use]
    pub const fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Open the pool although these legs do not answer, which may have newer records: records that
    /// only they had are lost. Default: none.
    ///
    /// ```
    /// use forebay_pool::{Pool, PoolError, PoolOptions};
    /// fn without_a_machine_that_is_gone() -> Result<Pool, PoolError> {
    ///     let lost = vec!["nbd://127.0.0.1:10811/forebay".to_owned()];
    ///     PoolOptions::new().lost_legs(lost).open("pool")
    /// }
    /// ```
    #[must_use]
    pub fn lost_legs(mut self, legs: Vec<String>) -> Self {
        self.lost_legs = legs;
        self
    }

    /// Make the pool although the device holds something, which is given up: a file system, a
    /// partition table, a pool. A device in use is refused all the same, and so is a file that
    /// exists. Default: no.
    ///
    /// ```
    /// use forebay_pool::{Pool, PoolError, PoolOptions};
    /// fn take_over_a_disk() -> Result<Pool, PoolError> {
    ///     PoolOptions::new().force(true).create("/dev/disk/by-id/nvme-example")
    /// }
    /// ```
    #[must_use]
    pub const fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }
}
