//! `forebay pool create`.

use super::{pool_creation, status::PoolReport};
use crate::{failure::Failure, output, size, users::SystemUser};
use clap::Args;
use forebay_pool::{PoolGeometry, PoolOptions};
use std::path::PathBuf;

/// Make a pool on persistent memory, or on an ordinary disk
#[derive(Args)]
#[command(
    long_about = "Makes a pool: a file on a file system mounted with -o dax on persistent memory, or a devdax \
                  device. Nothing that exists is overwritten: of a device that holds something it names the contents, and --force gives them up.\n\n\
                  With --disk, or on a block device, it lies on an ordinary disk: a sync of a program under forebay run, or a put of a store, is then one write there, \
                  instead of the syncs of its own files. That pays where this disk syncs faster than the one with the data, and hardly \
                  where it is the same.\n\n\
                  It belongs to the user who makes it; with --owner, which is for root, to the user whose database is to use it. \
                  If making it is interrupted, nothing is left of it.\n\n\
                  With --leg, it lies in the memory of other machines, each an export of an NBD server (nbdkit --threads 1 memory 1G): PATH is a small file that names \
                  them. A sync is then a round trip there, and survives the loss of this machine. Keep the file with the data: a recovery \
                  on another machine is given it. With nbds:// the way there is encrypted: DIR has ca-cert.pem, and for a server that asks who this is \
                  client-cert.pem and client-key.pem, which the pool's owner can read. With a key that both sides have it is \
                  nbds://USER@HOST:PORT/EXPORT?tls-psk-file=FILE.\n\n\
                  With --emulated, an ordinary file will do. Such a pool survives a crash of the process, and is \
                  lost when the machine goes down: good for trying things out, and nothing else.",
    after_long_help = "Examples:\n  \
        forebay pool create /fast/forebay.pool --disk --size 128MiB\n  \
        forebay pool create /fast/redis.pool --disk --owner redis\n  \
        forebay pool create /dev/nvme0n1p3 --size 128MiB\n  \
        forebay pool create /mnt/pmem/forebay.pool --size 64MiB\n  \
        forebay pool create /dev/dax0.0 --size 1GiB --segment-size 16MiB\n  \
        forebay pool create /data/redis.pool --leg nbd://127.0.0.1:10809/forebay --leg nbd://127.0.0.1:10810/forebay --size 256MiB\n  \
        forebay pool create /data/redis.pool --leg 'nbds://b/forebay?tls-certificates=/etc/forebay/client' --size 256MiB\n  \
        forebay pool create /data/redis.pool --leg 'nbds://redis@b/forebay?tls-psk-file=/etc/forebay/keys.psk' --leg /mnt/ssd/redis.leg\n  \
        forebay pool create /dev/shm/try.pool --emulated"
)]
pub struct Create {
    /// A file to be made, a devdax device, or a block device
    path: PathBuf,
    /// Bytes of the pool
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse_positive)]
    size: u64,
    /// Bytes of a segment: 4 KiB to 64 MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size::parse_positive)]
    segment_size: u64,
    /// Owners (stores) at the same time
    #[arg(long, value_name = "N", default_value_t = 16)]
    lanes: u32,
    /// Make it in ordinary memory: it survives a process crash only
    #[arg(long, conflicts_with = "disk")]
    emulated: bool,
    /// Make it on an ordinary disk: synced writes survive a power cut
    #[arg(long)]
    disk: bool,
    /// Make it in another machine's memory, nbds://HOST:PORT/EXPORT?tls-certificates=DIR, or
    /// without TLS nbd://HOST:PORT/EXPORT; once for each leg. One beside these may be the whole
    /// path of a file on a disk of this machine
    #[arg(long, value_name = "URL", conflicts_with_all = ["disk", "emulated"])]
    leg: Vec<String>,
    /// With fewer live legs than this every sync is a real one, too [default: all legs]
    #[arg(long, value_name = "N", requires = "leg")]
    copies: Option<usize>,
    /// Reach nbd:// legs through a network, without TLS: anybody in it can read and change the data
    #[arg(long, requires = "leg")]
    insecure: bool,
    /// Give it to this user, whose database is to use it (root only)
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Give up the device's contents: file systems, partition tables, pools. Refused of a device in
    /// use, and of a file
    #[arg(long)]
    force: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// Segments that a pool must have room for: those of a lane, as `forebay run` and a store take one
/// unless told otherwise.
const SEGMENTS_MIN: u64 = 2;

impl Create {
    pub fn run(self) -> Result<(), Failure> {
        self.check_room()?;
        let options = PoolOptions::new()
            .size(self.size)
            .segment_size(self.segment_size)
            .lanes(self.lanes)
            .emulated(self.emulated)
            .on_disk(self.disk)
            .force(self.force)
            .legs(self.leg.clone())
            .copies(self.copies)
            .insecure(self.insecure);
        let owner = self.owner.as_deref().map(SystemUser::named).transpose()?;
        pool_creation::make(&options, &self.path, self.size, owner.as_ref())?;
        let pool = PoolOptions::new().open(&self.path)?;
        output::report(self.json, &PoolReport::of(&pool), |report| {
            format!("created {}\n{}", self.path.display(), report.human())
        })
    }

    /// Refuses a pool that nothing could be run on. Sizes that make no pool at all are refused
    /// where it is made.
    fn check_room(&self) -> Result<(), Failure> {
        let Ok(geometry) = PoolGeometry::fit(self.size, self.segment_size, self.lanes) else {
            return Ok(());
        };
        if geometry.segments >= SEGMENTS_MIN {
            return Ok(());
        }
        let needed = PoolGeometry::bytes_for(SEGMENTS_MIN, self.segment_size, self.lanes);
        let works = if self.segment_size >= MIB {
            format!("{}MiB", needed.div_ceil(MIB))
        } else {
            format!("{}KiB", needed.div_ceil(KIB))
        };
        Err(Failure::Failed(format!(
            "a pool of {} has room for one segment of {} beside its tables; forebay run and a store take two segments and more. \
             Make it larger (--size {works}), or its segments smaller (--segment-size)",
            size::show(self.size),
            size::show(self.segment_size),
        )))
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
