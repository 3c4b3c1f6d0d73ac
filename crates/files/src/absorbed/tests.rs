use super::*;

fn boot() -> Uuid {
    Uuid::from_u128(7)
}

#[test]
fn what_is_published_is_found_until_it_is_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", boot()).unwrap();
    let view = TableView::open(&table.path).unwrap();
    assert!(view.is_of(boot()) && view.is_alive() && !view.any());
    assert_eq!(view.socket(), b"socket");
    table.reserve(256).unwrap();
    assert!(table.publish(0, 77, (8, 9), 5) && table.publish(1, 78, (8, 10), 6));
    assert!(view.has((8, 9)) && !view.has((9, 8)));
    assert_eq!(view.holder_of((8, 9), 5).map(|noted| noted.id), Some(77));
    assert_eq!(view.holder_of((8, 9), 6), None);
    table.withdraw(0, (8, 9));
    assert!(!view.has((8, 9)) && view.any());
    assert_eq!(view.number_of((8, 10)), Some(1));
    let copy = TableView::copy_of(table.file.as_fd()).unwrap();
    assert!(copy.has((8, 10)));
    let path = table.path.clone();
    drop(table);
    assert!(!view.is_alive() && !path.exists());
}

#[test]
fn a_table_takes_no_file_that_has_no_memory_and_each_that_has() {
    let dir = tempfile::tempdir().unwrap();
    let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", boot()).unwrap();
    assert!(!table.publish(0, 77, (8, 9), 0));
    for count in [256, 256, 100, 5000, usize::MAX] {
        table.reserve(count).unwrap();
        assert!(table.publish(count.min(ENTRIES) - 1, 77, (8, 9), 0));
        table.withdraw(count.min(ENTRIES) - 1, (8, 9));
    }
    assert!(!table.publish(ENTRIES, 77, (8, 9), 0));
    assert!(!TableView::open(&table.path).unwrap().any());
}

#[test]
fn a_table_takes_memory_only_for_the_files_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", boot()).unwrap();
    let there = || sys::stat_of(&table.file).unwrap().st_blocks.unsigned_abs() * 512;
    let at_first = there();
    assert!(at_first < 200 << 10, "{at_first}");
    table.reserve(2000).unwrap();
    for number in 0..2000 {
        assert!(table.publish(number, 77, (8, number as u64), 0));
    }
    assert!((at_first + 1..400 << 10).contains(&there()));
    // What is withdrawn makes room, and the table does not grow.
    let grown = there();
    for number in (0..5000).map(|turn| turn % 2000) {
        table.withdraw(number, (8, number as u64));
        assert!(table.publish(number, 77, (8, number as u64), 0));
    }
    assert_eq!(there(), grown);
}

#[test]
fn a_file_that_is_no_table_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no-table");
    std::fs::write(&path, b"short").unwrap();
    assert_eq!(TableView::open(&path).err(), Some(Errno::INVAL));
    std::fs::write(&path, vec![7; size_of::<TablePage>()]).unwrap();
    assert_eq!(TableView::open(&path).err(), Some(Errno::INVAL));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(TableView::open(&link).err(), Some(Errno::LOOP));
}

#[test]
fn a_table_of_another_boot_stays_while_a_process_of_it_lives() {
    let dir = tempfile::tempdir().unwrap();
    let another = Uuid::from_u128(8);
    let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", boot()).unwrap();
    clean_up(dir.path(), another);
    assert!(table.path.exists());
    let copy = |name: &str| {
        let path = dir.path().join(format!("{TABLE_PREFIX}{name}"));
        std::fs::copy(&table.path, &path).unwrap();
        path
    };
    let none = copy("none");
    table.reserve(256).unwrap();
    assert!(table.publish(0, std::process::id(), (8, 9), 5));
    let member = copy("member");
    drop(table);
    clean_up(dir.path(), another);
    assert!(!none.exists() && member.exists());
}

#[test]
fn stranger_with_a_dead_clients_number_keeps_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let start = processes::start(own);
    assert_ne!(start, 0);
    for (noted, is_own) in [(start, true), (0, true), (start ^ 1, false)] {
        let table = AbsorbedTable::new_in(dir.path(), b"/run", b"socket", boot()).unwrap();
        table.reserve(256).unwrap();
        let process = NotedProcess {
            id: own,
            start: noted,
        };
        table.page.publish(0, process, (8, 9), 5);
        let view = TableView::copy_of(table.file.as_fd()).unwrap();
        let left = dir.path().join(format!("{TABLE_PREFIX}left"));
        std::fs::copy(&table.path, &left).unwrap();
        drop(table);
        assert_eq!(!view.living().is_empty(), is_own, "start {noted}");
        // The copy still names the supervisor's thread, which has ended.
        clean_up(dir.path(), Uuid::from_u128(8));
        assert_eq!(left.exists(), is_own, "start {noted}");
        let _ = std::fs::remove_file(left);
    }
}
