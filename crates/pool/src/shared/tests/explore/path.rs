//! The choices of a schedule, and the next schedule, depth first.

use std::fmt::Write;

/// Choices in the order in which they are made: which one, of how many. What is no choice is not
/// here.
#[derive(Default)]
pub(super) struct Path {
    choices: Vec<(u32, u32)>,
    at: usize,
    /// The first choices are given, and stay.
    given: usize,
}

impl Path {
    /// Begins with the choices that `text` names: `4:1,17:2`, all others being 0.
    pub(super) fn given(text: &str) -> Self {
        let mut path = Self::default();
        for (at, choice) in text.split(',').filter_map(|word| word.split_once(':')) {
            let at: usize = at.parse().unwrap();
            path.choices.resize(at, (0, 0));
            path.choices.push((choice.parse().unwrap(), 0));
        }
        path.given = path.choices.len();
        path
    }

    /// The schedule begins.
    pub(super) fn restart(&mut self) {
        self.at = 0;
    }

    /// One of `options`.
    pub(super) fn choose(&mut self, options: usize) -> usize {
        let options = options as u32;
        if options < 2 {
            return 0;
        }
        if self.at == self.choices.len() {
            self.choices.push((0, options));
        }
        let (choice, of) = &mut self.choices[self.at];
        if self.at < self.given && *of == 0 {
            *of = options;
        }
        assert!(
            *of == options && *choice < options,
            "the same choices did not lead to the same state"
        );
        self.at += 1;
        *choice as usize
    }

    /// True if all from here on was not in the schedule before.
    pub(super) fn is_new(&self) -> bool {
        self.at >= self.choices.len()
    }

    /// The next schedule. False if there is none.
    pub(super) fn advance(&mut self) -> bool {
        while self.choices.len() > self.given
            && let Some((choice, of)) = self.choices.pop()
        {
            if choice + 1 < of {
                self.choices.push((choice + 1, of));
                return true;
            }
        }
        false
    }

    /// A number that depends on all choices.
    pub(super) fn seed(&self) -> u64 {
        let mix = |seed: u64, (choice, _): &(u32, u32)| {
            (seed ^ u64::from(*choice)).wrapping_mul(0x0000_0100_0000_01B3)
        };
        self.choices.iter().fold(0xCBF2_9CE4_8422_2325, mix)
    }

    /// As [`given`](Self::given) takes it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let of_note = self.choices.iter().enumerate().filter(|(_, (c, _))| *c > 0);
        for (at, (choice, _)) in of_note {
            let _ = write!(text, "{at}:{choice},");
        }
        text
    }
}

#[test]
fn every_leaf_of_a_tree_is_visited_once_and_again_by_its_name() {
    let walk = |path: &mut Path| {
        path.restart();
        let first = path.choose(3);
        let second = if first == 1 { path.choose(2) } else { 0 };
        (first, path.choose(1), second, path.choose(2))
    };
    let mut path = Path::default();
    let mut leaves = Vec::new();
    loop {
        leaves.push(walk(&mut path));
        let again = walk(&mut Path::given(&path.text()));
        assert_eq!(leaves.last(), Some(&again));
        if !path.advance() {
            break;
        }
    }
    assert_eq!(leaves.len(), 2 + 4 + 2);
    leaves.dedup();
    assert_eq!(leaves.len(), 8);
}
