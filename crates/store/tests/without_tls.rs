//! A program that depends on the store alone has no TLS, and says so of a pool that needs it.
#![allow(clippy::unwrap_used, reason = "tests")]

use forebay_pool::PoolOptions;
use std::fs;

const LEG: &str = "nbds://localhost/forebay?tls-certificates=/etc/forebay/legs";

#[test]
fn a_leg_with_tls_is_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let legs = ["nbd://localhost/forebay", LEG].map(str::to_owned).to_vec();
    let made = PoolOptions::new().legs(legs).create(&path);
    let found = dir.path().join("found");
    fs::write(&found, format!("forebay-legs 1\nleg {LEG}\n")).unwrap();
    for refused in [made, PoolOptions::new().open(&found)] {
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(LEG), "{refused}");
        assert!(refused.contains("feature \"tls\""), "{refused}");
    }
}
