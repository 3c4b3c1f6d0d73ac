//! Both models of the fabric cost the same.

use super::*;
use crate::{Cost, Profile, memory};

#[test]
fn both_models_cost_what_the_paper_measured() {
    for policy in Policy::ALL {
        let (device, memory) = (
            Profile::of_fabric(policy),
            memory::Profile::of_fabric(policy),
        );
        let device_us = |cost: Cost, bytes: usize| {
            let (fixed, transfer) = cost.of(bytes as u64, false);
            (fixed + transfer) as f64 / 1e3
        };
        for (bytes, read_us, write_us) in [(4096, 35.0, 25.0), (1 << 20, 6500.0, 3500.0)] {
            for (found, paper) in [
                (device_us(device.read, bytes), read_us),
                (device_us(device.write, bytes), write_us),
                (memory.read_cost(bytes).as_secs_f64() * 1e6, read_us),
                (memory.write_cost(bytes).as_secs_f64() * 1e6, write_us),
            ] {
                assert!(
                    (found / paper - 1.0).abs() < 0.02,
                    "{policy}, {bytes} bytes: {found} for {paper}"
                );
            }
        }
    }
}
