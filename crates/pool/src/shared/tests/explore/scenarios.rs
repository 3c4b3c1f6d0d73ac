//! Explored scenarios. The numbers of preemptions are such that all of it takes some seconds.

use super::{On, Owner, Scenario, table::Bounds};

/// Members with records that share a segment; no deaths.
fn peaceful() -> Scenario {
    Scenario {
        name: "two members, two appends each",
        on: On::Memory,
        members: &[&[40, 200], &[200, 40]],
        before: &[],
        bounds: Bounds {
            preemptions: 2,
            deaths: 0,
        },
        segments: 3,
        owner: Owner::default(),
    }
}

/// The same with two segments, which are full to their last line, and an owner that drains them.
fn drained() -> Scenario {
    Scenario {
        before: &[1900, 1980, 1900, 1980],
        segments: 2,
        owner: Owner {
            drains: true,
            ..Owner::default()
        },
        ..peaceful()
    }
}

/// Promise (shared): A member that waits is woken by the member that it waits for, and needs no
/// time limit to go on while no member dies.
#[test]
fn two_members_append_twice_each_in_every_order() {
    peaceful().explore();
}

/// Promise: as `two_members_append_twice_each_in_every_order`.
#[test]
fn three_members_append_once_each_in_every_order() {
    Scenario {
        name: "three members, an append each",
        members: &[&[200], &[200], &[200]],
        ..peaceful()
    }
    .explore();
}

/// Promise: as `two_members_append_twice_each_in_every_order`.
#[test]
fn members_leave_a_full_segment_in_every_order() {
    Scenario {
        name: "two members and a rotation",
        members: &[&[1200], &[1200]],
        before: &[1900],
        ..peaceful()
    }
    .explore();
}

/// Promise: as `two_members_append_twice_each_in_every_order`.
#[test]
fn an_owner_drains_and_releases_beside_members_in_every_order() {
    Scenario {
        name: "two members, and segments that are drained and used again",
        members: &[&[1900, 1900], &[1900, 1900]],
        bounds: Bounds {
            preemptions: 1,
            deaths: 0,
        },
        ..drained()
    }
    .explore();
}

/// Promise (shared): A shared lane has at most two unpublished segments, also while its owner
/// seals.
#[test]
fn the_owner_seals_twice_while_members_append_in_every_order() {
    Scenario {
        name: "two members, and an owner that seals twice",
        members: &[&[200], &[200]],
        segments: 4,
        owner: Owner {
            seals: 2,
            ..Owner::default()
        },
        ..peaceful()
    }
    .explore();
}

/// Promise (shared): A member that dies at any step, in any state of any other, costs no
/// acknowledged record and stops no other member once it is buried.
#[test]
fn a_members_death_beside_a_drain_and_a_waiter_costs_nothing() {
    Scenario {
        name: "one of two members dies beside an owner that drains",
        members: &[&[1900], &[1900]],
        bounds: Bounds {
            preemptions: 0,
            deaths: 1,
        },
        ..drained()
    }
    .explore();
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn a_members_death_beside_owner_and_member_costs_nothing() {
    Scenario {
        name: "one of two members dies",
        members: &[&[200], &[200]],
        bounds: Bounds {
            preemptions: 2,
            deaths: 1,
        },
        ..peaceful()
    }
    .explore();
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn a_members_death_beside_a_member_and_a_newcomer_costs_nothing() {
    Scenario {
        name: "one of three members dies",
        members: &[&[200], &[200], &[200]],
        bounds: Bounds {
            preemptions: 1,
            deaths: 1,
        },
        ..peaceful()
    }
    .explore();
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn a_members_death_leaving_a_full_segment_costs_nothing() {
    Scenario {
        name: "one of two members dies in a rotation",
        members: &[&[1200], &[1200]],
        before: &[1900],
        bounds: Bounds {
            preemptions: 1,
            deaths: 1,
        },
        ..peaceful()
    }
    .explore();
}

/// Promise: as `a_members_death_beside_a_drain_and_a_waiter_costs_nothing`.
#[test]
fn the_owner_seals_and_drains_while_a_member_dies_at_each_step() {
    Scenario {
        name: "the owner seals while one of two members dies",
        members: &[&[200], &[40]],
        before: &[40],
        bounds: Bounds {
            preemptions: 1,
            deaths: 1,
        },
        owner: Owner {
            seals: 2,
            drains: true,
            ..Owner::default()
        },
        ..peaceful()
    }
    .explore();
}

/// Promise: as `two_members_append_twice_each_in_every_order`.
#[test]
fn on_a_disk_members_commit_where_a_page_ends_in_every_order() {
    Scenario {
        name: "two members that commit, and a page that is full",
        on: On::Disk,
        // With the segment's header they fill its first page.
        members: &[&[40], &[3850]],
        owner: Owner {
            commits: true,
            ..Owner::default()
        },
        ..peaceful()
    }
    .explore();
}

/// Promise (shared): A member that dies at any step of a commit to a disk costs no acknowledged
/// record and stops no other member.
#[test]
fn a_members_death_in_a_commit_to_a_disk_costs_nothing() {
    Scenario {
        name: "one of two members that commit dies",
        on: On::Disk,
        members: &[&[200], &[200]],
        bounds: Bounds {
            preemptions: 1,
            deaths: 1,
        },
        owner: Owner {
            commits: true,
            ..Owner::default()
        },
        ..peaceful()
    }
    .explore();
}
