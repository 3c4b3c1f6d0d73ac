//! The ids of a thread's user or group, and a call's effect on them: as the kernel has it, so that
//! a call which it refuses, or which changes nothing, is known before.

/// Real, effective, saved, and of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldIds {
    real: u32,
    effective: u32,
    saved: u32,
    files: u32,
}

/// An argument that leaves an id as it is.
const SAME: u32 = u32::MAX;

impl HeldIds {
    /// In the order of /proc.
    pub(crate) fn new([real, effective, saved, files]: [u32; 4]) -> Self {
        Self {
            real,
            effective,
            saved,
            files,
        }
    }

    /// Those that it has after a call with these arguments. With a right (`CAP_SETUID`,
    /// `CAP_SETGID`) it may have any; otherwise those that it has already.
    pub(super) fn after(self, call: i64, arguments: [u64; 3], has_right: bool) -> Self {
        let [first, second, third] = arguments.map(|argument| argument as u32);
        let three = [self.real, self.effective, self.saved];
        let allows = |wanted: u32, of: &[u32]| has_right || wanted == SAME || of.contains(&wanted);
        let or = |wanted: u32, id: u32| if wanted == SAME { id } else { wanted };
        match call {
            libc::SYS_setuid | libc::SYS_setgid if first == SAME => self,
            libc::SYS_setuid | libc::SYS_setgid if has_right => Self::new([first; 4]),
            libc::SYS_setuid | libc::SYS_setgid if [self.real, self.saved].contains(&first) => {
                Self {
                    effective: first,
                    files: first,
                    ..self
                }
            }
            libc::SYS_setfsuid | libc::SYS_setfsgid
                if first != SAME && (allows(first, &three) || first == self.files) =>
            {
                Self {
                    files: first,
                    ..self
                }
            }
            libc::SYS_setreuid | libc::SYS_setregid
                if allows(first, &three[..2]) && allows(second, &three) =>
            {
                let (real, effective) = (or(first, self.real), or(second, self.effective));
                let is_saved = first != SAME || second != SAME && second != self.real;
                let saved = if is_saved { effective } else { self.saved };
                Self::new([real, effective, saved, effective])
            }
            libc::SYS_setresuid | libc::SYS_setresgid
                if [first, second, third].iter().all(|id| allows(*id, &three)) =>
            {
                let effective = or(second, self.effective);
                Self::new([
                    or(first, self.real),
                    effective,
                    or(third, self.saved),
                    effective,
                ])
            }
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME_ARGUMENT: u64 = u64::MAX;

    #[test]
    fn a_call_that_the_kernel_refuses_changes_no_id() {
        let user = HeldIds::new([1000; 4]);
        for (call, arguments) in [
            (libc::SYS_setuid, [0, 0, 0]),
            (libc::SYS_setgid, [SAME_ARGUMENT, 0, 0]),
            (libc::SYS_setreuid, [SAME_ARGUMENT, 0, 0]),
            (libc::SYS_setresuid, [1000, 1000, 0]),
            (libc::SYS_setfsuid, [0, 0, 0]),
            (libc::SYS_setuid, [1000, 0, 0]),
            (libc::SYS_setresgid, [SAME_ARGUMENT, 1000, SAME_ARGUMENT]),
        ] {
            assert_eq!(user.after(call, arguments, false), user, "{arguments:?}");
        }
        let any = user.after(libc::SYS_setuid, [SAME_ARGUMENT, 0, 0], true);
        assert_eq!(any, user);
    }

    #[test]
    fn ids_that_a_process_may_have_are_taken() {
        let root = HeldIds::new([0; 4]);
        let dropped = HeldIds::new([1000; 4]);
        assert_eq!(root.after(libc::SYS_setuid, [1000, 0, 0], true), dropped);
        let temporarily = root.after(libc::SYS_setreuid, [SAME_ARGUMENT, 1000, 0], true);
        assert_eq!(temporarily, HeldIds::new([0, 1000, 1000, 1000]));
        let seteuid = [SAME_ARGUMENT, 1000, SAME_ARGUMENT];
        let temporarily = root.after(libc::SYS_setresuid, seteuid, true);
        assert_eq!(temporarily, HeldIds::new([0, 1000, 0, 1000]));
        // And back, by what it has still.
        let back = temporarily.after(libc::SYS_setuid, [0, 0, 0], false);
        assert_eq!(back, root);
        let back = temporarily.after(
            libc::SYS_setresuid,
            [SAME_ARGUMENT, 0, SAME_ARGUMENT],
            false,
        );
        assert_eq!(back, root);
        let files = temporarily.after(libc::SYS_setfsuid, [0, 0, 0], false);
        assert_eq!(files, HeldIds::new([0, 1000, 0, 0]));
    }
}
