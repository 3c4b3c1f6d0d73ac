//! Members and an owner as threads; a thread that is stopped at a step is played step by step.

use super::*;
use crate::media::mapped::Mapped;
use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize},
        mpsc,
    },
    thread,
};

const PATIENCE: Duration = Duration::from_millis(5);
const NOBODY: fn() -> bool = || false;

fn new_box() -> Mapped<PostBox> {
    Mapped::new("posts").unwrap().0
}

/// The next post, however long it takes.
fn next(posts: &PostBox) -> TakenPost {
    loop {
        if let Some(post) = posts.take(PATIENCE).pop() {
            return post;
        }
    }
}

fn failed(errno: i32) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[test]
fn a_member_is_told_what_became_of_its_range() {
    let posts = new_box();
    for errno in [0, libc::ENOSPC] {
        thread::scope(|scope| {
            let asking = scope.spawn(|| posts.ask(&(4096..12288), NOBODY));
            let post = next(&posts);
            assert_eq!((post.offset, post.bytes), (4096, 8192));
            assert!(!asking.is_finished());
            posts.answer(post, &failed(errno));
            let told = asking.join().unwrap();
            let found = told.err().map_or(0, |e| e.raw_os_error().unwrap());
            assert_eq!(found, errno);
        });
    }
    // Each use frees its post: there is always one.
    assert!(posts.posts.iter().all(|post| post.claim().is_some()));
}

#[test]
fn an_error_without_a_number_is_one_all_the_same() {
    let posts = new_box();
    thread::scope(|scope| {
        let asking = scope.spawn(|| posts.ask(&(0..4096), NOBODY));
        posts.answer(next(&posts), &Err(io::Error::other("a leg")));
        let told = asking.join().unwrap().unwrap_err();
        assert_eq!(told.raw_os_error(), Some(libc::EIO));
    });
}

#[test]
fn a_member_that_was_stopped_does_nothing_to_the_next_use() {
    let posts = new_box();
    // It claimed the first post, and stands still before it notes its range.
    let (stopped, claimed) = posts.posts[0].claim().unwrap();
    assert!(stopped.free(claimed), "the owner took it away");
    thread::scope(|scope| {
        let asking = scope.spawn(|| posts.ask(&(8192..12288), NOBODY));
        let is_posted = || stopped.ticket.load(SeqCst) % PHASES == POSTED;
        while !is_posted() {
            thread::yield_now();
        }
        // It goes on: its range is in the other one's post, and its step does nothing.
        stopped.offset.store(40960, SeqCst);
        assert!(!stopped.step(claimed, POSTED));
        let wrong = next(&posts);
        assert_eq!((wrong.offset, wrong.bytes), (40960, 4096));
        posts.answer(wrong, &Ok(()));
        // Of that the other one is not told that it was its own.
        let again = next(&posts);
        assert_eq!((again.offset, again.bytes), (8192, 4096));
        assert!(!asking.is_finished());
        posts.answer(again, &failed(libc::EROFS));
        let told = asking.join().unwrap().unwrap_err();
        assert_eq!(told.raw_os_error(), Some(libc::EROFS));
    });
}

#[test]
fn an_answer_that_comes_late_tells_nobody_of_the_next_use() {
    let posts = new_box();
    let (post, claimed) = posts.posts[0].claim().unwrap();
    assert!(post.step(claimed, POSTED));
    let taken = next(&posts);
    posts.answer(taken, &Ok(()));
    // The member is dead, and its post was freed and is used again.
    let done = claimed - CLAIMED + DONE;
    assert!(post.free(done) && !post.free(done));
    let (post, claimed) = posts.posts[0].claim().unwrap();
    assert!(post.step(claimed, POSTED));
    let before = post.ticket.load(SeqCst);
    posts.answer(taken, &Ok(()));
    assert_eq!(post.ticket.load(SeqCst), before);
}

#[test]
fn posts_of_the_dead_are_freed_and_no_others() {
    let posts = new_box();
    let at = |number: usize, phase: u64| {
        let (post, claimed) = posts.posts[number].claim().unwrap();
        assert!(phase == CLAIMED || post.step(claimed, phase));
    };
    for (number, phase) in [CLAIMED, POSTED, TAKEN, DONE].into_iter().enumerate() {
        at(number, phase);
    }
    let phases = || -> Vec<u64> {
        let used = posts.posts.iter().take(4);
        used.map(|post| post.ticket.load(SeqCst) % PHASES).collect()
    };
    let mut ages = PostAges::new();
    let long = Duration::from_millis(50);
    posts.free_older(&mut ages, long);
    posts.free_older(&mut ages, long);
    assert_eq!(phases(), [CLAIMED, POSTED, TAKEN, DONE]);
    thread::sleep(long * 2);
    posts.free_older(&mut ages, long);
    // What the owner was asked for it does.
    assert_eq!(phases(), [FREE, POSTED, TAKEN, FREE]);
}

#[test]
fn who_asks_an_owner_that_is_gone_does_not_wait() {
    let posts = new_box();
    let is_gone = AtomicBool::new(false);
    let is_orphan = || is_gone.load(SeqCst);
    thread::scope(|scope| {
        // One is posted and one is taken; more than there are posts wait for a free one.
        let asking: Vec<_> = (0..POSTS + 9)
            .map(|_| scope.spawn(|| posts.ask(&(0..4096), is_orphan)))
            .collect();
        next(&posts);
        is_gone.store(true, SeqCst);
        for member in asking {
            let told = member.join().unwrap().unwrap_err();
            assert_eq!(told.raw_os_error(), Some(libc::ENOTCONN));
        }
    });
}

/// Promise (pool): Each process that commits to a pool on legs is told of its own bytes, also when
/// others of the pool die at any step.
#[test]
fn every_member_gets_its_own_answer_among_the_dying() {
    const MEMBERS: u64 = 12;
    const ROUNDS: u64 = 300;
    let posts = new_box();
    let written = Mutex::new(HashMap::<u64, usize>::new());
    let (done, left) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| own(&posts, &written, &done));
        let members: Vec<_> = (0..MEMBERS)
            .map(|member| {
                let (posts, left) = (&posts, &left);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let page = member * ROUNDS + round;
                        if round % 37 == member {
                            // It dies after some step; the owner frees what it left.
                            let claimed = posts.posts.iter().find_map(Post::claim);
                            let (post, ticket) = claimed.unwrap();
                            if member % 2 == 0 {
                                post.offset.store(page * 4096, Relaxed);
                                post.step(ticket, POSTED);
                            }
                            left.fetch_add(1, SeqCst);
                            continue;
                        }
                        let told = posts.ask(&(page * 4096..page * 4096 + 4096), NOBODY);
                        let found = told.err().map_or(0, |e| e.raw_os_error().unwrap());
                        assert_eq!(found, errno_of(page), "page {page}");
                    }
                })
            })
            .collect();
        for member in members {
            member.join().unwrap();
        }
        done.store(true, SeqCst);
    });
    let written = written.lock().unwrap();
    let asked = (MEMBERS * ROUNDS) as usize - left.load(SeqCst);
    assert!(written.len() >= asked, "{} of {asked}", written.len());
    assert!(left.load(SeqCst) > 50);
}

/// The owner's answer on a page.
fn errno_of(page: u64) -> i32 {
    [0, 0, libc::EIO, libc::ENOSPC][(page % 4) as usize]
}

/// Answers in another order than it was asked, as legs do.
fn own(posts: &PostBox, written: &Mutex<HashMap<u64, usize>>, done: &AtomicBool) {
    let mut ages = PostAges::new();
    let (told, answers) = mpsc::channel::<Vec<TakenPost>>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for taken in answers {
                for post in taken.into_iter().rev() {
                    let page = post.offset / 4096;
                    *written.lock().unwrap().entry(page).or_default() += 1;
                    posts.answer(post, &failed(errno_of(page)));
                }
            }
        });
        while !done.load(SeqCst) {
            told.send(posts.take(PATIENCE)).unwrap();
            posts.free_older(&mut ages, Duration::from_millis(500));
        }
        drop(told);
    });
}
