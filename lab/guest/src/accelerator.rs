//! The accelerator that runs a machine's instructions: this machine's processors, or QEMU's
//! emulation of some.

/// What QEMU is to use. A guest says which it has (`LAB accelerator`, [`seen`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accelerator {
    /// Emulation, which works everywhere. That /dev/kvm can be opened says little: below another
    /// hypervisor a guest may stand still there.
    #[default]
    Tcg,
    /// KVM.
    Kvm,
}

impl Accelerator {
    /// As a guest says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        }
    }

    /// QEMU's options.
    #[must_use]
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Tcg => &["-accel", "tcg,thread=multi"],
            Self::Kvm => &["-accel", "kvm"],
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
}
