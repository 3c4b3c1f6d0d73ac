use super::*;
use crate::shared::{PART, SharedPage};
use forebay_pool::{ClaimOptions, PoolOptions};
use uuid::Uuid;

#[test]
fn a_file_may_be_gone_until_the_lane_has_that_it_kept_its_name() {
    let home = tempfile::tempdir().unwrap();
    let options = PoolOptions::new()
        .size(4 << 20)
        .segment_size(64 << 10)
        .emulated(true);
    let pool = options.create(home.path().join("pool")).unwrap();
    let claim = ClaimOptions::new().segments(3);
    let lane = pool.claim_shared(Uuid::new_v4(), &claim).unwrap();
    let (page, _) = SharedPage::new("forebay-test", PART).unwrap();
    page.set_used(0, 2);
    let log = LaneLog {
        lane: lane.member(),
        page: &page,
        boot: [0; 16],
        is_orphan: || false,
    };
    let file = &page.files[0];
    assert!(file.names.set_path(b"/a.log"));
    file.first_sync.end(true);
    log.gone(0, NameLoss::Maybe).unwrap();
    // Another file cannot be synced, and no segment is prepared but the one that is.
    page.fail(1, Errno::IO);
    while log.truncate(0, 0).is_ok() {}
    assert_eq!(log.keeps_name(0), Err(Errno::IO));
    assert_eq!(file.gone(), NameLoss::Maybe);
    page.repaired(1);
    assert!(lane.prepare());
    assert_eq!(log.keeps_name(0), Ok(()));
    assert_eq!(file.gone(), NameLoss::No);
}
