//! Before the hooks start: what the environment says of devices and of the pool's memory.
#![expect(unsafe_code, reason = "runs before main")]

use crate::{device, guard};
use forebay_device::memory::{self, ENV_MEMORY, Profile};
use forebay_files::client;

/// Before the constructor of the hooks, which is in `.init_array` without a priority; those up to
/// 100 are the C library's and the compiler's.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    guard::handler::find_hidden();
    device::install();
    let slowed_to = std::env::var(ENV_MEMORY).ok();
    if let Some(profile) = slowed_to.and_then(|name| Profile::named(&name)) {
        client::on_pool(move |pool| memory::slowed(pool, profile));
    }
}
