//! `forebay-lab device`.

use crate::{failed, measuring::RunForm, progress::Progress};
use clap::Args;
use forebay_bench::{emulated, scratch::memory_dir};
use forebay_cli::{failure::Failure, output};
use forebay_device::Profile;
use std::path::PathBuf;

/// Measure emulated devices (forebay-lab run --device) beside their profiles
#[derive(Args)]
#[command(
    long_about = "Measures what a program sees of each emulated device: reads and writes of 4 KiB and 1 MiB past the cache, sequential and \
                  random, by a process under forebay-lab run --device, beside what the device's profile says. Figures are medians of the calls.\n\n\
                  The devices are in directories in memory, which are removed again: emulation only adds to what I/O really takes.",
    after_long_help = "Examples:\n  \
        forebay-lab device\n  \
        forebay-lab device --profile gen-z-uc --profile nvme --json\n  \
        forebay-lab device --profile ./mine.toml --quick"
)]
pub struct Device {
    /// Only this profile: hdd-7200, hdd-15k-raid0x8, sata-ssd, nvme, nvram, gen-z-uc, gen-z-wt,
    /// gen-z-wc, or a TOML file; may be given several times
    #[arg(long, value_name = "PROFILE")]
    profile: Vec<String>,
    /// Make the directories here instead of in memory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    form: RunForm,
}

impl Device {
    pub fn run(self) -> Result<(), Failure> {
        let (forebay, mut profiles) = (crate::forebay()?, self.profile);
        if profiles.is_empty() {
            profiles = Profile::NAMES.map(str::to_owned).to_vec();
        }
        let dir = self.dir.unwrap_or_else(memory_dir);
        let progress = Progress::new();
        let note = |name: &str| progress.note(name);
        let measured =
            emulated::run(&forebay, &profiles, &dir, self.form.quick, &note).map_err(failed)?;
        drop(progress);
        output::report(self.form.json, &measured, emulated::table)
    }
}
