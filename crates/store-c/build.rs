//! Gives the shared library the name by which programs that are linked with it look for it.

fn main() {
    // Before 1.0 a minor version may change the interface.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay_store.so.0.1");
    println!("cargo::rerun-if-changed=build.rs");
}
