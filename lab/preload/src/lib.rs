//! libforebay_lab.so: libforebay.so with emulated devices under it ([`forebay_device`]).
//!
//! The hooks are those of `forebay-preload`, which is linked into this library as it is: what it
//! exports is exported here too. This crate is its [layer](forebay::layer): [`device`] finds what
//! lies on one of the [`devices`], [`table`] knows which descriptor does, [`charge`] makes their
//! calls wait and [`guard`] readers of mappings. `forebay-lab run` puts this library before a
//! program, and says in its environment which directories have a device.
//!
//! Without devices no layer is installed, and the library does what the other does, apart from a
//! pool that is to be as slow as another memory.

mod charge;
mod device;
mod devices;
mod guard;
mod start;
mod table;
