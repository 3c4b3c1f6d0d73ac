//! Page files of a database under `forebay run --flash`: what is read from and written to them goes
//! through a flash cache ([`forebay_flash`]).
//!
//! The cache lives in the database's process. One process of a run has it (the cache's lane is
//! locked): the first one that opens a page file. docs/flash-tier.md has the protocols by number.
//! In order of a page's way:
//!
//! * `file_kinds`: which files are page files, or a redo log, and `page_layout`: which of them have
//!   pages that a cache can take;
//! * `session`: the cache of this process, opened with the first page file; its thread writes pages
//!   home;
//! * `calls`: what becomes of each file function of the C library; `table`: which descriptor is
//!   which file; `file`: a page file in use;
//! * `descriptor`: the path of what is open, and the same opened once more; `page`: a page in
//!   memory;
//! * `foreign_programs`: programs of a run that are no server;
//! * `home`: where pages go at last, and `find`: where those files are, whatever they are called
//!   now;
//! * `doublewrite`: copies of pages that go home around flash, so that a power cut tears none of
//!   them;
//! * `guard`: keeps a server that was started without Forebay from coming up while the cache has
//!   newer pages;
//! * `settings`: what can be changed while it is in use; `request`: another size for it meanwhile;
//!   `control_files`: the files that say both;
//! * `status` and `lost_pages`: what is said of it, for people; `boot_clock`: when;
//! * `setup`: making the cache, looking at it, emptying and ending it, for the command.
//!
//! Home descriptors are opened once and stay open as long as the process lives: closing *any*
//! descriptor of a file drops the process's POSIX locks on it, and InnoDB has one on its system
//! tablespace.

mod boot_clock;
mod cache_thread;
mod calls;
mod complain;
mod control_files;
mod descriptor;
mod doublewrite;
mod file;
mod file_kinds;
mod find;
mod foreign_programs;
mod guard;
mod home;
mod identity;
mod lost_pages;
mod magic;
mod page;
mod page_layout;
mod recorded_names;
mod request;
mod resize;
mod session;
mod settings;
mod setup;
mod status;
mod table;

pub use boot_clock::BootTime;
pub use calls::{
    LeavingName, allocate, closing, duplicated, exiting, exporting, forked, leave, opened, read,
    renamed, renaming, sync, sync_all, truncate, truncate_path, truncated, truncating, unlinking,
    write,
};
pub use control_files::status_of;
pub use descriptor::path_of;
pub use file::{RealRead, RealWrite};
pub use file_kinds::{is_page_file, is_redo_log};
pub use forebay_flash::{AdmissionPolicy, FlushProgress, WritePolicy};
pub use guard::{GUARD_FILE, GuardInspection, standing};
pub use lost_pages::by_file;
pub use request::{ResizeResult, resize_running};
pub use resize::{resize, resize_found};
pub use session::{is_configured, start};
pub use settings::{Settings, settings_of};
pub use setup::{
    CacheLocation, CacheOccupancy, FlushOutcome, SetupError, create, flush, give_up, look, pool_of,
    remove, retry_in_use,
};
pub use status::{CacheStatus, RecentWindow, ResizeProgress};
pub use table::is_cached;

/// Names the flash file to the processes of a run.
pub const ENV_FLASH: &str = "FOREBAY_FLASH";
/// Where the process that has the cache says how it is.
pub const ENV_FLASH_STATUS: &str = "FOREBAY_FLASH_STATUS";
/// Names the run itself, by a UUID: what is said of the cache says in which run.
pub const ENV_FLASH_RUN: &str = "FOREBAY_FLASH_RUN";
/// The program that was run, by its whole path: it may have the cache, whatever it is called.
pub const ENV_FLASH_PROGRAM: &str = "FOREBAY_FLASH_PROGRAM";

/// Bytes of a page: InnoDB's default, which the cache is made for.
pub const PAGE_BYTES: usize = 16 << 10;
