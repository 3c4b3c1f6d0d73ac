use super::*;

#[test]
fn every_image_has_fenced_stores_and_unfenced_ones_that_arrived() {
    let sim = SimMedia::new(256);
    sim.store(0, vec![1; 64]);
    sim.fence();
    sim.store(64, vec![2; 64]);
    let images = sim.crash_images();
    assert_eq!(images.points(), 4);
    assert_eq!(images.at(0, || true)[0], 0);
    assert_eq!(images.at(1, || false)[0], 0);
    assert_eq!(images.at(1, || true)[0], 1);
    assert_eq!(images.at(3, || false)[..128], [[1; 64], [0; 64]].concat());
    assert_eq!(images.at(3, || true)[..128], [[1; 64], [2; 64]].concat());
    let mut words = 0;
    let torn = images.at(3, || {
        words += 1;
        words == 2
    });
    assert_eq!(torn[64..88], [[0; 8], [2; 8], [0; 8]].concat());
}

#[test]
fn a_store_in_flight_never_arrives_over_a_later_fenced_one() {
    let sim = SimMedia::new(256);
    thread::scope(|scope| {
        scope.spawn(|| sim.store(0, vec![1; 128]));
    });
    sim.store(0, vec![2; 64]);
    sim.fence();
    let image = sim.crash_images().at(3, || true);
    assert_eq!(image[..128], [[2; 64], [1; 64]].concat());
    let image = sim.crash_images().at(3, || false);
    assert_eq!(image[..128], [[2; 64], [0; 64]].concat());
}

#[test]
fn a_fence_of_one_thread_does_not_cover_anothers_stores() {
    let sim = SimMedia::new(256);
    thread::scope(|scope| {
        scope.spawn(|| sim.store(0, vec![1; 64]));
    });
    sim.fence();
    assert_eq!(sim.crash_images().at(2, || false)[0], 0);
    assert_eq!(sim.image()[0], 1);
}
