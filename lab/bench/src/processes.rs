//! Processes of a measurement ([`forebay_measure::processes`]), and libeatmydata, which the laboratory loads before some of them.

pub use forebay_measure::processes::*;
use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// libeatmydata, which makes fsync do nothing.
#[must_use]
pub fn find_eatmydata() -> Option<PathBuf> {
    let triple = format!("{}-linux-gnu", env::consts::ARCH);
    [
        format!("/usr/lib/{triple}/libeatmydata.so"),
        "/usr/lib64/libeatmydata.so".to_owned(),
        "/usr/lib/libeatmydata.so".to_owned(),
    ]
    .into_iter()
    .map(PathBuf::from)
    .find(|library| library.is_file())
}

/// Has libeatmydata loaded before anything else: libforebay_lab.so would charge the emulated device's syncs.
pub(crate) fn eat_syncs(
    library: &Path,
    wrapper: &mut Vec<OsString>,
    environment: &mut Vec<(OsString, OsString)>,
) {
    if wrapper.is_empty() {
        environment.push(("LD_PRELOAD".into(), preload(library)));
    } else {
        let first = r#"LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@""#;
        wrapper.extend(["sh", "-c", first].map(OsString::from));
        wrapper.push(library.into());
    }
}

/// `library` before what is to be loaded before a program anyway.
#[must_use]
pub fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    value
}
