//! The power-cut lab: boots a real kernel with an NVDIMM, has a client outside write to a real database in it, cuts the power, boots again,
//! and looks for everything that was acknowledged. docs/durability.md says what it proves.
//!
//! `machine` is the machine and its cut, `initramfs` what it boots, `client` who remembers, `report` what is printed.

mod client;
mod initramfs;
mod machine;
mod report;

use clap::Parser;
use client::Acknowledged;
use initramfs::Initramfs;
use machine::{Images, Kernel, Machine};
use report::{Cycle, Report};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Anything that keeps the lab from working, in words.
pub type Failure = Box<dyn std::error::Error>;

/// Cuts the power of a machine in the middle of a database's writes, again and again
#[derive(Parser)]
#[command(
    max_term_width = 100,
    after_long_help = "A workload that must not lose anything, and loses something, makes the exit status 1; so does a control \
                       (redis-everysec, redis-no, redis-eatmydata) that shows no loss in any of its cycles: a lab that cannot see loss \
                       proves nothing."
)]
struct Options {
    /// Cycles of each workload: boot, write, cut, boot, compare
    #[arg(long, value_name = "N", default_value_t = 20)]
    cycles: u64,
    /// Workloads
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "redis-forebay,valkey-forebay"
    )]
    workload: Vec<String>,
    /// Also the controls: redis-always, redis-everysec, redis-no, redis-eatmydata
    #[arg(long)]
    controls: bool,
    /// Put the pool on the NVDIMM as a device (devdax) instead of a file on a DAX file system
    #[arg(long)]
    devdax: bool,
    /// What the random numbers begin with [default: the clock]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Directory of forebay and libforebay.so [default: this program's]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Write the report to this file too, as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

const CONTROLS: [&str; 4] = [
    "redis-always",
    "redis-everysec",
    "redis-no",
    "redis-eatmydata",
];

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, Failure> {
    let seed = options.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()))
    });
    eprintln!("seed {seed}");
    let home = tempfile::Builder::new()
        .prefix("forebay-powercut-")
        .tempdir()?;
    let lab = Lab::new(home.path(), options)?;
    let mut workloads = options.workload.clone();
    if options.controls {
        workloads.extend(CONTROLS.map(str::to_owned));
    }
    let mut report = Report::new(seed, options.devdax);
    for number in 0..options.cycles {
        for workload in &workloads {
            let cycle = lab.cycle(workload, seed.wrapping_add(number * 7919))?;
            eprintln!("{}", cycle.line());
            report.cycles.push(cycle);
        }
    }
    let text = report.markdown();
    if let Some(path) = &options.report {
        fs::write(path, &text)?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{text}");
    }
    Ok(report.good())
}

/// What all cycles begin with.
struct Lab<'a> {
    home: &'a Path,
    kernel: Kernel,
    /// The disk, formatted, and the NVDIMM with an empty pool.
    template: Images,
    pool: &'static str,
}

/// Kernel modules that the guest needs: disk, network, NVDIMM, file system.
const MODULES: [&str; 11] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "libnvdimm",
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
];

impl<'a> Lab<'a> {
    fn new(home: &'a Path, options: &Options) -> Result<Self, Failure> {
        let programs = match &options.programs {
            Some(programs) => programs.clone(),
            None => std::env::current_exe()?
                .parent()
                .unwrap_or(Path::new("."))
                .to_owned(),
        };
        let release = installed_kernel()?;
        let kernel = Kernel {
            image: PathBuf::from(format!("/boot/vmlinuz-{release}")),
            initramfs: home.join("initramfs"),
        };
        let mut guest = Initramfs::default();
        guest.add_modules(&release, &MODULES)?;
        guest.add("/init", include_str!("init.sh"));
        guest.add("/lab/action", include_str!("action.sh"));
        guest.add_program(Path::new("/bin/busybox"), "/bin/busybox")?;
        guest.add_program(Path::new("/usr/bin/ndctl"), "/lab/ndctl")?;
        guest.add_program(Path::new("/sbin/mke2fs"), "/lab/ext4")?;
        guest.add_program(&programs.join("forebay"), "/lab/forebay")?;
        guest.add_program(&programs.join("libforebay.so"), "/lab/libforebay.so")?;
        let redis = forebay_bench::redis::server::Kind::Redis.program()?;
        guest.add_program(&redis, "/lab/redis-server")?;
        if let Ok(valkey) = forebay_bench::redis::server::Kind::Valkey.program() {
            guest.add_program(&valkey, "/lab/valkey-server")?;
        }
        if let Some(library) = forebay_bench::processes::find_eatmydata() {
            guest.add_program(&library, "/lab/libeatmydata.so")?;
        }
        fs::write(&kernel.initramfs, guest.archive())?;
        let template = home.join("template");
        fs::create_dir(&template)?;
        let lab = Self {
            home,
            template: Images::create(&template)?,
            kernel,
            pool: if options.devdax { "devdax" } else { "fsdax" },
        };
        let parameters = format!("lab.action=format lab.pool={}", lab.pool);
        let mut machine = Machine::boot(
            &lab.kernel,
            &lab.template,
            &parameters,
            home.join("format.console"),
        )?;
        machine.wait(Duration::from_secs(120), |machine| {
            machine.console().contains("LAB done").then_some(())
        })?;
        machine.wait_end(Duration::from_secs(30))?;
        Ok(lab)
    }

    fn boot(&self, images: &Images, workload: &str) -> Result<Machine, Failure> {
        let parameters = format!("lab.action={workload} lab.pool={}", self.pool);
        Machine::boot(&self.kernel, images, &parameters, self.home.join("console"))
    }

    /// One cycle: two power cuts in a row, and what is there after each.
    fn cycle(&self, workload: &str, seed: u64) -> Result<Cycle, Failure> {
        let directory = self.home.join("cycle");
        let images = self.template.copy_to(&directory)?;
        let mut cycle = Cycle::new(workload, seed);
        let mut known = Acknowledged::default();
        let mut machine = self.boot(&images, workload)?;
        let mut connection = client::connect(&mut machine)?;
        for cut in 0..2u64 {
            // Between 0.3 and 3.3 s of writing.
            let time =
                Duration::from_millis(300 + (seed.wrapping_mul(31) ^ cut.wrapping_mul(977)) % 3000);
            known.write(&mut connection, seed, time)?;
            known.leave_in_flight(&mut connection, seed);
            cycle.cut_after.push(machine.age());
            machine.cut()?;
            machine = self.boot(&images, workload)?;
            connection = client::connect(&mut machine)?;
            let verdict = known.compare(&mut connection, seed)?;
            let lost = verdict.lost + verdict.wrong;
            cycle.add(&verdict, known.count);
            if lost > 0 {
                // What it holds is not what we know: nothing more is to be learned.
                break;
            }
        }
        machine.cut()?;
        fs::remove_dir_all(&directory)?;
        Ok(cycle)
    }
}

/// The release of a kernel that is installed here, with its modules.
fn installed_kernel() -> Result<String, Failure> {
    let mut found: Vec<String> = fs::read_dir("/boot")?
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .into_string()
                .ok()?
                .strip_prefix("vmlinuz-")
                .map(str::to_owned)
        })
        .filter(|release| {
            Path::new("/lib/modules")
                .join(release)
                .join("modules.dep")
                .exists()
        })
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| "no kernel is installed in /boot: scripts/setup.sh powercut".into())
}
