//! How the laboratory's measurements go on, on standard error: bars on a terminal, lines otherwise.

use forebay_bench::{
    live::Live,
    report::figure,
    wisckey::{Figures, Limit, Watch},
};
use forebay_cli::progress::style;
use indicatif::ProgressBar;
use std::{
    io::{IsTerminal, stderr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const TICK: Duration = Duration::from_millis(100);

/// Shows how a benchmark goes on.
pub struct Progress {
    terminal: bool,
    running: Mutex<Option<Running>>,
}

/// A bar that follows a count.
struct Running {
    what: String,
    bar: ProgressBar,
    done: Arc<AtomicBool>,
    follower: Option<JoinHandle<()>>,
}

impl Progress {
    /// Progress on standard error.
    pub fn new() -> Self {
        Self {
            terminal: stderr().is_terminal(),
            running: Mutex::new(None),
        }
    }

    /// Says something that stays.
    pub fn say(&self, line: &str) {
        drop(self.replace(None));
        eprintln!("{line}");
    }

    fn replace(&self, next: Option<Running>) -> Option<Running> {
        std::mem::replace(
            &mut *self.running.lock().unwrap_or_else(PoisonError::into_inner),
            next,
        )
    }
}

impl Running {
    fn spinner(what: &str) -> Self {
        let bar = ProgressBar::new_spinner()
            .with_style(style("{spinner} {msg}"))
            .with_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Self {
            what: what.to_owned(),
            bar,
            done: Arc::default(),
            follower: None,
        }
    }

    /// A bar that fills with operations or time, whichever is nearer its end.
    fn following(what: &str, limit: Limit, live: &Arc<Live>) -> Self {
        const STEPS: u64 = 1000;
        let bar = ProgressBar::new(STEPS)
            .with_style(style("{msg:24} [{bar:30}] {prefix}"))
            .with_message(what.to_owned());
        let done = Arc::new(AtomicBool::new(false));
        let follower = {
            let (bar, done, live) = (bar.clone(), Arc::clone(&done), Arc::clone(live));
            thread::spawn(move || {
                let start = Instant::now();
                while !done.load(Relaxed) {
                    let (ops, seconds) = (live.ops() as f64, start.elapsed().as_secs_f64());
                    let by_ops = limit.ops.map_or(0.0, |limit| ops / limit as f64);
                    let by_time = limit.seconds.map_or(0.0, |limit| seconds / limit);
                    bar.set_position((by_ops.max(by_time).min(1.0) * STEPS as f64) as u64);
                    if ops > 0.0 {
                        bar.set_prefix(format!("{} ops/s", figure(Some(ops / seconds))));
                    }
                    thread::sleep(TICK);
                }
            })
        };
        Self {
            what: what.to_owned(),
            bar,
            done,
            follower: Some(follower),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        if let Some(follower) = self.follower.take() {
            // It does nothing that could panic; and if it did, a bar is missing.
            drop(follower.join());
        }
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn note(&self, what: &str) {
        drop(self.replace(None));
        if self.terminal {
            self.replace(Some(Running::spinner(what)));
        } else {
            eprintln!("{what}");
        }
    }

    fn begin(&self, what: &str, limit: Limit, live: &Arc<Live>) {
        drop(self.replace(None));
        if self.terminal {
            self.replace(Some(Running::following(what, limit, live)));
        } else {
            eprint!("{what}: ");
        }
    }

    fn end(&self, figures: &Figures) {
        let result = format!(
            "{} ops in {} s, {} ops/s, {} MB/s",
            figures.ops,
            figure(Some(figures.seconds)),
            figure(Some(figures.ops_per_s)),
            figure(Some(figures.mb_per_s))
        );
        let what = self.replace(None).map(|running| running.what.clone());
        match what {
            Some(what) => eprintln!("{what:24} {result}"),
            None => eprintln!("{result}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.replace(None));
    }
}
