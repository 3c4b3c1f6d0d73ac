//! quick
#![allow(clippy::all)]
use forebay_pool::*;
use forebay_store::*;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: u64 = a[1].parse().unwrap();
    let vs: usize = a[2].parse().unwrap();
    let variant: Variant = a[3].parse().unwrap();
    let seg: u64 = a.get(4).map_or(8, |s| s.parse().unwrap());
    let dir = std::path::Path::new("/work/tmpstore");
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    let pp = std::path::Path::new("/dev/shm/quick.pool");
    let _ = std::fs::remove_file(pp);
    let pool = Pool::create(
        pp,
        CreateOptions {
            bytes: 256 << 20,
            segment_bytes: seg << 20,
            emulated: true,
            ..Default::default()
        },
    )
    .unwrap();
    let o = Options {
        variant,
        gc: false,
        segment_bytes: seg << 20,
        ..Default::default()
    };
    let s = Store::open(&dir.join("s"), Some(&pool), &o).unwrap();
    let buf: Vec<u8> = (0..(vs + 4096)).map(|i| (i * 7919 % 251) as u8).collect();
    let mut x = 88172645463325252u64;
    let mut lat: Vec<u32> = Vec::with_capacity(n as usize);
    let t = Instant::now();
    let mut last = t;
    for i in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let off = (i % 4096) as usize;
        s.put(&x.to_be_bytes(), &buf[off..off + vs]).unwrap();
        let now = Instant::now();
        lat.push((now - last).as_nanos().min(u32::MAX as u128) as u32);
        last = now;
    }
    let el0 = t.elapsed();
    s.flush().unwrap();
    let el = t.elapsed();
    lat.sort_unstable();
    let p = |q: f64| lat[((lat.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let st = s.stats();
    println!(
        "{variant} seg{seg} {n}x{vs}: {:.0} kops/s {:.0} MB/s (puts only {:.0} kops/s) p50 {:.2} p99 {:.2} p99.9 {:.1} p99.99 {:.1} max {:.0}us waits idx {} runs {} frozen-mem {}MB",
        n as f64 / el.as_secs_f64() / 1e3,
        n as f64 * (vs as f64 + 8.0) / el.as_secs_f64() / 1e6,
        n as f64 / el0.as_secs_f64() / 1e3,
        p(0.5),
        p(0.99),
        p(0.999),
        p(0.9999),
        p(1.0),
        st.index_waits,
        st.index.runs,
        st.memtable_bytes >> 20
    );
    let t = Instant::now();
    drop(s);
    println!("drop {:?}", t.elapsed());
    let t = Instant::now();
    let s = Store::open(&dir.join("s"), Some(&pool), &o).unwrap();
    println!(
        "reopen {:?} indexed {} tail {}",
        t.elapsed(),
        s.stats().log_indexed >> 20,
        s.stats().log_tail >> 20
    );
    // reads
    let mut x = 88172645463325252u64;
    let mut b = Vec::new();
    let m = n.min(300000);
    for pass in 0..2 {
        let mut xx = x;
        let t = Instant::now();
        for _ in 0..m {
            xx ^= xx << 13;
            xx ^= xx >> 7;
            xx ^= xx << 17;
            s.get_into(&xx.to_be_bytes(), &mut b).unwrap().unwrap();
        }
        println!(
            "get pass {pass}: {:.2} us",
            t.elapsed().as_secs_f64() * 1e6 / m as f64
        );
    }
    x ^= 1;
    let _ = x;
    for _ in 0..2 {
        let t = Instant::now();
        let mut c = 0;
        for i in 0..300u64 {
            let k = (i.wrapping_mul(0x9E3779B97F4A7C15)).to_be_bytes().to_vec();
            c += s
                .scan(ScanRange::new(
                    std::ops::Bound::Included(k),
                    std::ops::Bound::Unbounded,
                ))
                .unwrap()
                .take(100)
                .count();
        }
        println!(
            "scan100: {:.1} us ({c})",
            t.elapsed().as_secs_f64() * 1e6 / 300.0
        );
    }
}
