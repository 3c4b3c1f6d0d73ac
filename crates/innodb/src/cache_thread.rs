//! The cache's thread: it writes pages home, answers commands, writes the status, and finds out the
//! losses of a flash device that fails.

mod command_service;
mod resize;

use crate::{
    complain::{complain, complain_of, say_what_ended},
    lost_pages::by_file,
    session::CacheSession,
    status::RecentWindow,
};
use command_service::ControlDesk;
use forebay_flash::{AdmissionPolicy, CacheStats, PageName, WritePolicy};
use std::{
    collections::VecDeque,
    ops::ControlFlow,
    thread,
    time::{Duration, Instant},
};

const IDLE: Duration = Duration::from_millis(5);
/// Interval of looks at the cache's news.
const LOOK: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);
const WINDOWS: [u64; 4] = [10, 60, 600, 3600];
/// Samples that a window is made of.
const SAMPLES: u64 = 10;
/// Files whose pages are named in the server's log; `forebay flash flush` names all.
const NAMED_MAX: usize = 50;

/// The notices of a flash device that fails.
#[derive(Default)]
struct FailingFlash {
    said: Option<String>,
    /// The last time that readable pages were brought home, and the number that could not be.
    rescued: Option<Instant>,
    lost: usize,
}

/// Starts the thread, once pages may come in.
///
/// # Errors
/// In words.
pub(crate) fn start(session: &'static CacheSession) -> Result<(), String> {
    thread::Builder::new()
        .name("forebay-flash".into())
        .spawn(|| run(session))
        .map(drop)
        .map_err(|e| format!("starting a thread: {e}"))
}

/// Leads the reason that keeps pages from leaving.
pub(crate) const STAY: &str = "pages stay in the flash cache: ";

/// See the module's head. As long as the process lives.
fn run(session: &CacheSession) {
    let mut desk = ControlDesk::open(session);
    let mut failing = FailingFlash::default();
    let mut lost = 0;
    let mut pays = [true; 2];
    let mut looked = Instant::now();
    loop {
        match session.cache.step() {
            Ok(step) if step.more => {}
            Ok(_) => thread::sleep(IDLE),
            Err(error) => {
                complain_of(STAY, &error);
                desk.rest(SECOND);
            }
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            say_what_ended();
            failing.watch(&mut desk);
            lost = name_lost(session, lost);
            pays = say_worth(session, pays);
        }
        desk.serve();
        resize::follow(&mut desk);
    }
}

/// Earlier samples: of each window at a tenth of its length.
struct StatusWindows {
    seconds: u64,
    samples: [VecDeque<CacheStats>; WINDOWS.len()],
    /// The end of the last second, and the windows' values then.
    looked: Instant,
    last: Vec<RecentWindow>,
}

impl StatusWindows {
    fn new(now: CacheStats) -> Self {
        Self {
            seconds: 0,
            samples: [(); WINDOWS.len()].map(|()| VecDeque::from([now])),
            looked: Instant::now(),
            last: Vec::new(),
        }
    }

    /// Says how the cache is, and what was in each window, as far as it was looked at by then.
    fn say(&mut self, session: &CacheSession) {
        if self.looked.elapsed() >= SECOND {
            self.looked = Instant::now();
            self.last = self.look(session.cache.stats());
        }
        session.write_status(self.last.clone());
    }

    /// The same, if a second is over.
    fn follow(&mut self, session: &CacheSession) {
        if self.looked.elapsed() >= SECOND {
            self.say(session);
        }
    }

    /// A second later: the windows that are full, or the first one as far as it is.
    fn look(&mut self, now: CacheStats) -> Vec<RecentWindow> {
        self.seconds += 1;
        let mut windows = Vec::new();
        for (length, samples) in WINDOWS.into_iter().zip(&mut self.samples) {
            if self.seconds.is_multiple_of(length / SAMPLES) {
                samples.push_back(now);
                if samples.len() as u64 > SAMPLES + 1 {
                    samples.pop_front();
                }
            }
            if length == WINDOWS[0] || self.seconds >= length {
                windows.push(RecentWindow::of(length, &now, &samples[0]));
            }
        }
        windows
    }
}

impl FailingFlash {
    /// Says when flash fails, and when it takes pages again. Meanwhile everything that can be read
    /// goes home: it is safe there.
    fn watch(&mut self, desk: &mut ControlDesk<'_>) {
        const AGAIN: Duration = Duration::from_secs(60);
        let session = desk.session;
        let Some(trouble) = session.cache.flash_trouble() else {
            if self.said.take().is_some() {
                complain("the flash cache takes pages again");
                *self = Self::default();
            }
            return;
        };
        let dirty = session.cache.stats().dirty_pages;
        if self.said.is_none() {
            complain(&format!(
                "{trouble}. Until it takes pages again they are written to their files at once, which is as safe, and slower; {dirty} pages in it that are newer than in the \
                 files are brought home now"
            ));
            self.said = Some(trouble);
        }
        let is_time = self.rescued.is_none_or(|then| then.elapsed() >= AGAIN);
        if dirty > 0 && is_time {
            self.rescue(desk);
            self.rescued = Some(Instant::now());
        }
    }

    fn rescue(&mut self, desk: &mut ControlDesk<'_>) {
        // It may take long, and what fails is to be seen meanwhile.
        let flushed = desk.session.cache.flush(|_| {
            desk.serve();
            ControlFlow::Continue(())
        });
        let flushed = match flushed {
            Ok(flushed) => flushed,
            Err(error) => {
                complain_of("bringing pages home from a failing flash cache: ", &error);
                return;
            }
        };
        if flushed.lost.len() == self.lost {
            return;
        }
        self.lost = flushed.lost.len();
        name(&flushed.lost);
    }
}

/// Says when flash stops to pay, for all pages or for those that are only read, and when it begins
/// again: what it pays for, in this order.
fn say_worth(session: &CacheSession, paid: [bool; 2]) -> [bool; 2] {
    let cache = &session.cache;
    let options = cache.options();
    if options.policy != WritePolicy::Adaptive {
        return [true; 2];
    }
    let pays = [cache.flash_pays(), cache.flash_pays_for_reads()];
    let takes_clean = options.contents == AdmissionPolicy::All;
    match (paid, pays) {
        ([true, _], [false, _]) => complain(
            "flash takes no less than the files: pages go straight to the files until it does, and those on flash leave it. forebay flash set --policy back keeps it in use",
        ),
        ([false, _], [true, _]) => complain("flash takes less than the files: it is in use again"),
        ([_, true], [_, false]) if takes_clean => complain(
            "flash is not much faster to read than the files: pages that are only read do not come in until it is",
        ),
        ([_, false], [_, true]) if takes_clean => complain(
            "flash is much faster to read than the files: pages that are only read come in again",
        ),
        _ => {}
    }
    pays
}

/// Names the pages that were lost as they left flash, if they are more than the `known` ones: how
/// many there are.
fn name_lost(session: &CacheSession, known: u64) -> u64 {
    let now = session.cache.stats().lost_pages;
    if now > known {
        name(&session.cache.lost_pages());
    }
    now
}

fn name(lost: &[PageName]) {
    complain(&format!(
        "{} pages cannot be read from flash, and only it had their newest version: the server gets errors for them, not the older pages of the files. They are",
        lost.len()
    ));
    let files = by_file(lost);
    files.iter().take(NAMED_MAX).for_each(|line| complain(line));
    if files.len() > NAMED_MAX {
        complain(&format!(
            "and of {} more files: forebay flash flush names them",
            files.len() - NAMED_MAX
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PAGE_BYTES, identity::KnownFile, setup, status::CacheStatus};
    use forebay_flash::Identity;
    use rustix::fd::AsFd;
    use std::fs::{self, File};

    #[test]
    fn the_status_is_written_while_failing_flash_is_brought_home() {
        let dir = tempfile::tempdir().unwrap();
        let [flash, status, table] = ["f", "f.status", "t.ibd"].map(|name| dir.path().join(name));
        setup::create(&flash, 8 << 20).unwrap();
        let session = CacheSession::said_in(&status, &flash);
        fs::write(&table, vec![0; PAGE_BYTES]).unwrap();
        let home = File::options().read(true).write(true).open(&table).unwrap();
        let known = KnownFile {
            key: (1, 2),
            identity: Identity {
                device: 0,
                inode: 2,
                generation: 3,
            },
            bytes: PAGE_BYTES as u64,
            links: 1,
        };
        let file = session.register(home.as_fd(), &known, &table).unwrap();
        let _ = session.cache.enqueue(&file, 0, &vec![7; PAGE_BYTES]);
        let mut desk = ControlDesk::open(&session);
        desk.windows.looked = Instant::now().checked_sub(SECOND).unwrap();
        FailingFlash::default().rescue(&mut desk);
        assert_eq!(fs::read(&table).unwrap()[0], 7);
        assert_eq!(CacheStatus::read(&status).unwrap().home_pages, 1);
    }

    #[test]
    fn each_window_has_what_happened_in_it_once_it_is_full() {
        let hits = |hits| CacheStats {
            hits,
            ..CacheStats::default()
        };
        let mut windows = StatusWindows::new(hits(0));
        let mut last = Vec::new();
        for second in 1..=4000 {
            // Ten reads a second, and a hundred in the last ten seconds.
            let late: u64 = if second > 3990 {
                (second - 3990) * 90
            } else {
                0
            };
            last = windows.look(hits(second * 10 + late));
            let full = WINDOWS.iter().filter(|length| second >= **length).count();
            assert_eq!(last.len(), full.max(1), "after {second}");
        }
        let of: Vec<_> = last
            .iter()
            .map(|window| (window.seconds, window.hits))
            .collect();
        assert_eq!(of, [(10, 1000), (60, 1540), (600, 7300), (3600, 37300)]);
    }
}
