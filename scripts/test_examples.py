"""The tests of `examples`: `python3 -m unittest scripts.test_examples`, a part of `make test`."""

import unittest

from . import examples

LIB = """
pub use db::{
    Batch, Store,
    Value,
};
pub use error::StoreError;
pub use json::to_json;
use hidden::Inner;
"""

SOURCE = """
impl Store {
    /// Has one.
    ///
    /// ```
    /// store.put();
    /// ```
    #[must_use]
    pub const fn put(&self) {
        let x = 1;
    }

    /// Has none.
    #[must_use]
    pub fn get(&self) {}

    /// For tests.
    #[doc(hidden)]
    pub fn peek(&self) {}

    /// Is not public.
    pub(crate) fn core(&self) {}
}

impl<'a> Batch<'a> {
    pub fn clear(&mut self) {}
}

impl Iterator for Store {
    pub fn next(&mut self) {}
}

impl Inner {
    pub fn inside(&self) {}
}
"""


class Examples(unittest.TestCase):
    def test_the_types_are_those_that_are_published(self):
        self.assertEqual(examples.published(LIB), {"Batch", "Store", "Value", "StoreError"})

    def test_a_public_method_without_an_example_is_told(self):
        found = examples.lacking(SOURCE, {"Store", "Batch"})
        self.assertEqual([method for _, method in found], ["Store::get", "Batch::clear"])
        self.assertEqual(SOURCE.splitlines()[found[0][0] - 1], "    pub fn get(&self) {}")


if __name__ == "__main__":
    unittest.main()
