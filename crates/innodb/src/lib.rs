//! Page files of a database under `forebay run --flash`: their reads and writes go through a flash
//! cache ([`forebay_flash`]).
//!
//! The cache lives in the database's process. One process of a run has it (the cache's lane is
//! locked): the first one that opens a page file. docs/flash-tier.md has the protocols by number.
//! In order of a page's way:
//!
//! * `environment`: what a run tells its programs, and `server_options`: what a server must not be
//!   told;
//! * `file_kinds`: which files are page files, or a redo log, and `page_layout`: which of them have
//!   pages that a cache can take;
//! * `session`: the cache of this process, opened with the first page file; its thread writes pages
//!   home;
//! * `calls`: what becomes of each file function of the C library; `cache_route`: whether a file's
//!   pages go through the cache;
//! * `table`: which descriptor is which file; `file`: a page file in use; `closed_files`: what
//!   becomes of those that are not;
//! * `checkpoint`: which writes are InnoDB's checkpoints;
//! * `descriptor`: the path of what is open, and the same opened once more; `page`: a page in
//!   memory;
//! * `foreign_programs`: programs of a run that are no server;
//! * `home`: where pages go at last, and `find`: where those files are, whatever they are called
//!   now;
//! * `doublewrite`: copies of pages that go home around flash, so that a power cut tears none of
//!   them;
//! * `guard`: keeps a server that was started without Forebay from coming up while the cache has
//!   newer pages;
//! * `control`: commands to it while it is in use; `settings`: what they change; `resize_note`: a
//!   resize that they began; `control_files`: files beside it;
//! * `status` and `lost_pages`: what is said of it, for people; `boot_clock`: when;
//! * `setup`: making the cache, looking at it, emptying and ending it, for the command.
//!
//! Home descriptors are opened once and stay open as long as the process lives: closing *any*
//! descriptor of a file drops the process's POSIX locks on it, and InnoDB has one on its system
//! tablespace.

mod boot_clock;
mod cache_route;
mod cache_thread;
mod calls;
mod checkpoint;
mod closed_files;
mod complain;
mod control;
mod control_files;
mod descriptor;
mod doublewrite;
mod environment;
mod file;
mod file_kinds;
mod file_magic;
mod find;
mod flash_place;
mod foreign_programs;
mod guard;
mod home;
mod identity;
mod lost_pages;
mod page;
mod page_layout;
mod recorded_names;
mod resize_note;
mod server_options;
mod session;
mod settings;
mod setup;
mod status;
mod table;

pub use boot_clock::BootTime;
pub use calls::{
    allocate, closing, duplicated, exiting, exporting, forked, leave, opened, read, read_on,
    rename, sync, sync_all, truncate, truncate_path, truncating, unlink, write,
};
pub use checkpoint::{checkpoints_may_come, is_checkpoint, log_opened, refuses_mapping};
pub use control::{CancelledResize, cancel_resize, resize_running, set_running};
pub use control_files::status_of;
pub use environment::{
    ENV_FLASH, ENV_FLASH_PROGRAM, ENV_FLASH_RUN, ENV_FLASH_STATUS, is_configured, start,
};
pub use file::{RealRead, RealWrite};
pub use file_kinds::{GUARD_FILE, is_page_file};
pub use forebay_flash::{AdmissionPolicy, FlushProgress, WritePolicy};
pub use guard::{GuardInspection, standing};
pub use lost_pages::by_file;
pub use page::PAGE_BYTES;
pub use server_options::{check_arguments, names_doublewrite};
pub use settings::{Settings, settings_of};
pub use setup::{
    CacheLocation, CacheOccupancy, FlushOutcome, ResizeResult, SetupError, create, flush, give_up,
    look, pool_of, remove, resize, resize_found, retry_in_use,
};
pub use status::{CacheStatus, RecentWindow, ResizeProgress};
pub use table::is_cached;
