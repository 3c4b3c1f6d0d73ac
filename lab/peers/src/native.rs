#![allow(unsafe_code)] // It calls functions of C.
//! Stores in C, through a small library around each that has the functions of
//! lab/bench/programs/ycsb.h. `forebay-lab` builds it, with the store's own header.

use crate::Opening;
use forebay_bench::ycsb::driver::{DrivenStore, ScanCount, StoreFailure};
use libloading::Library;
use std::{
    ffi::{CString, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr::NonNull,
};

type Load = unsafe extern "C" fn(*mut c_void, usize, *const u8, usize, *const u8, usize);
type Put = unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize);
type Get = unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut u8, usize) -> i64;
type Scan =
    unsafe extern "C" fn(*mut c_void, *const u8, usize, u64, *mut u8, usize, *mut u64) -> u64;
type OnStore = unsafe extern "C" fn(*mut c_void);

/// An open store.
pub struct NativeStore {
    store: NonNull<c_void>,
    load: Load,
    put: Put,
    get: Get,
    scan: Scan,
    sync: OnStore,
    close: OnStore,
    /// Bytes of a value, for which there is room.
    value_bytes: usize,
    /// Where the functions are.
    _library: Library,
}

// SAFETY: ycsb.h says that any thread may call any of the functions.
unsafe impl Send for NativeStore {}
// SAFETY: as above.
unsafe impl Sync for NativeStore {}

impl NativeStore {
    /// Opens a new store in `dir` by a library; with its values `apart` from its keys, if it can.
    pub fn open(
        library: &Path,
        dir: &Path,
        opening: Opening,
        apart: bool,
    ) -> Result<Self, StoreFailure> {
        type Open = unsafe extern "C" fn(*const c_char, c_int, c_int, u64) -> *mut c_void;
        let dir = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: the library was built of ycsb.h and a file that has its functions with the types
        // above; a store's own library has initialisers that need nothing of us.
        unsafe {
            let library = Library::new(library)?;
            let open = *library.get::<Open>(b"ycsb_open\0")?;
            let store = open(
                dir.as_ptr(),
                c_int::from(opening.sync),
                c_int::from(apart),
                opening.cache_bytes,
            );
            Ok(Self {
                store: NonNull::new(store).ok_or("the store was not opened")?,
                load: *library.get(b"ycsb_load\0")?,
                put: *library.get(b"ycsb_put\0")?,
                get: *library.get(b"ycsb_get\0")?,
                scan: *library.get(b"ycsb_scan\0")?,
                sync: *library.get(b"ycsb_sync\0")?,
                close: *library.get(b"ycsb_close\0")?,
                value_bytes: opening.value_bytes,
                _library: library,
            })
        }
    }

    /// Room for a value.
    fn room<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b mut [u8] {
        buffer.resize(self.value_bytes, 0);
        buffer
    }
}

impl Drop for NativeStore {
    fn drop(&mut self) {
        // SAFETY: it is open, and nobody has it after this.
        unsafe { (self.close)(self.store.as_ptr()) }
    }
}

impl DrivenStore for NativeStore {
    fn load(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreFailure> {
        let Some((key, value)) = pairs.first() else {
            return Ok(());
        };
        let (key_bytes, value_bytes) = (key.len(), value.len());
        let alike = |(key, value): &(Vec<u8>, Vec<u8>)| {
            key.len() == key_bytes && value.len() == value_bytes
        };
        if !pairs.iter().all(alike) {
            return Err("pairs of different lengths cannot be loaded".into());
        }
        let keys = pairs.iter().flat_map(|(key, _)| key).copied();
        let values = pairs.iter().flat_map(|(_, value)| value).copied();
        let (keys, values): (Vec<u8>, Vec<u8>) = (keys.collect(), values.collect());
        // SAFETY: the store is open, and both have so many bytes for each pair.
        unsafe {
            (self.load)(
                self.store.as_ptr(),
                pairs.len(),
                keys.as_ptr(),
                key_bytes,
                values.as_ptr(),
                value_bytes,
            );
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreFailure> {
        // SAFETY: the store is open, and both have so many bytes.
        unsafe {
            (self.put)(
                self.store.as_ptr(),
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            );
        }
        Ok(())
    }

    fn get<'b>(
        &self,
        key: &[u8],
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<&'b [u8]>, StoreFailure> {
        let room = self.room(buffer);
        // SAFETY: the store is open, the key has so many bytes, and there is so much room.
        let bytes = unsafe {
            (self.get)(
                self.store.as_ptr(),
                key.as_ptr(),
                key.len(),
                room.as_mut_ptr(),
                room.len(),
            )
        };
        let Ok(bytes) = usize::try_from(bytes) else {
            return Ok(None);
        };
        let value = room.get(..bytes);
        value
            .map(Some)
            .ok_or_else(|| format!("a value has {bytes} bytes").into())
    }

    fn scan(
        &self,
        from: &[u8],
        records: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<ScanCount, StoreFailure> {
        let mut bytes = 0;
        let room = self.room(buffer);
        // SAFETY: the store is open, the key has so many bytes, and there is so much room.
        let records = unsafe {
            (self.scan)(
                self.store.as_ptr(),
                from.as_ptr(),
                from.len(),
                records,
                room.as_mut_ptr(),
                room.len(),
                &raw mut bytes,
            )
        };
        Ok(ScanCount { records, bytes })
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        // SAFETY: the store is open.
        unsafe { (self.sync)(self.store.as_ptr()) }
        Ok(())
    }
}
