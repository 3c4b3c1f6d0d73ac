//! What runs a machine's instructions: this machine's processors, or QEMU's emulation of some.

/// What QEMU is to use. A guest says which it has (`LAB accelerator`, [`seen`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// KVM where it can be had, emulation elsewhere.
    #[default]
    Any,
    /// KVM, or nothing.
    Kvm,
    /// Emulation. Times mean little then, but they are the same wherever it runs.
    Tcg,
}

impl Accelerator {
    /// QEMU's options.
    #[must_use]
    pub fn options(self) -> &'static [&'static str] {
        const EMULATED: &str = "tcg,thread=multi";
        match self {
            Self::Any => &["-accel", "kvm", "-accel", EMULATED],
            Self::Kvm => &["-accel", "kvm"],
            Self::Tcg => &["-accel", EMULATED],
        }
    }
}

/// What the guest with this console has: `kvm` or `tcg`. None before it said so.
#[must_use]
pub fn seen(console: &str) -> Option<&'static str> {
    let said = console.split_once("LAB accelerator ")?.1;
    ["kvm", "tcg"].into_iter().find(|it| said.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_says_what_runs_it() {
        assert_eq!(seen("LAB accelerator kvm\r\nLAB up"), Some("kvm"));
        assert_eq!(seen("LAB accelerator "), None);
        assert_eq!(seen("LAB up"), None);
    }

    #[test]
    fn only_an_accelerator_that_may_be_missing_has_another_behind() {
        assert_eq!(Accelerator::Any.options().len(), 4);
        assert_eq!(Accelerator::Kvm.options(), ["-accel", "kvm"]);
    }
}
