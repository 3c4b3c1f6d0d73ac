//! The system's OpenSSL, for [pre-shared keys](super::psk): rustls knows none that comes from
//! outside. It is opened when a leg with such a key is, and linked to nothing: the library of a
//! database's process would bring a second OpenSSL into it.
#![expect(unsafe_code, reason = "calls a C library")]

use libloading::Library;
use std::{
    ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void},
    ptr,
    sync::OnceLock,
};

/// The library's names, by its two stable ABIs, the newest first.
const NAMES: [&str; 2] = ["libssl.so.3", "libssl.so.1.1"];
/// `OPENSSL_INIT_NO_ATEXIT`: threads may have a connection while this process ends.
const NO_ATEXIT: u64 = 0x0008_0000;
/// `SSL_CTRL_SET_MIN_PROTO_VERSION`, and TLS 1.3.
const SET_MIN_PROTO_VERSION: c_int = 123;
const TLS1_3: c_long = 0x0304;
/// `SSL_VERIFY_PEER`: a server that takes no key would have to show a certificate, and there is no
/// authority to believe it.
const VERIFY_PEER: c_int = 1;
/// Those whose hash is SHA-256, as that of a pre-shared key is.
const CIPHERS: &[u8] = b"TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256\0";
/// `SSL_get_error`.
const WANT_READ: c_int = 2;
const ZERO_RETURN: c_int = 6;
/// The longest name and key that it takes.
pub(super) const NAME_MAX: usize = 128;
pub(super) const KEY_MAX: usize = 256;

/// Fills in the name and the key of a client; the length of the key, or 0.
type GiveKey =
    extern "C" fn(*mut c_void, *const c_char, *mut c_char, c_uint, *mut u8, c_uint) -> c_uint;

/// Its functions, as its headers have them; handles are pointers to nothing that is known here.
struct OpenSsl {
    tls_client_method: unsafe extern "C" fn() -> *const c_void,
    ctx_new: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    ctx_free: unsafe extern "C" fn(*mut c_void),
    ctx_ctrl: unsafe extern "C" fn(*mut c_void, c_int, c_long, *mut c_void) -> c_long,
    ctx_set_ciphersuites: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    ctx_set_psk_client_callback: unsafe extern "C" fn(*mut c_void, GiveKey),
    ctx_set_verify: unsafe extern "C" fn(*mut c_void, c_int, *const c_void),
    new: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    set_ex_data: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int,
    get_ex_data: unsafe extern "C" fn(*const c_void, c_int) -> *mut c_void,
    set_bio: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void),
    set_connect_state: unsafe extern "C" fn(*mut c_void),
    do_handshake: unsafe extern "C" fn(*mut c_void) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int,
    write: unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int,
    shutdown: unsafe extern "C" fn(*mut c_void) -> c_int,
    session_reused: unsafe extern "C" fn(*const c_void) -> c_int,
    get_error: unsafe extern "C" fn(*const c_void, c_int) -> c_int,
    bio_s_mem: unsafe extern "C" fn() -> *const c_void,
    bio_new: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    bio_free: unsafe extern "C" fn(*mut c_void) -> c_int,
    bio_read: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> c_int,
    bio_write: unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int,
    err_clear_error: unsafe extern "C" fn(),
    err_get_error: unsafe extern "C" fn() -> c_ulong,
    err_error_string_n: unsafe extern "C" fn(c_ulong, *mut c_char, usize),
    // Its functions are gone with it.
    _library: Library,
}

impl OpenSsl {
    /// The library of this process.
    ///
    /// # Errors
    /// It is not there, in words with the remedy.
    fn get() -> Result<&'static Self, String> {
        static OPENED: OnceLock<OpenSsl> = OnceLock::new();
        if let Some(opened) = OPENED.get() {
            return Ok(opened);
        }
        // A failure is not kept: it may be installed meanwhile.
        let opened = Self::open()?;
        Ok(OPENED.get_or_init(|| opened))
    }

    fn open() -> Result<Self, String> {
        // SAFETY: it initializes itself, as for every program that is linked to it.
        let [newest, older] = NAMES.map(|name| move || unsafe { Library::new(name) });
        match newest().or_else(|why| older().map_err(|_| why)) {
            Ok(library) => Self::of(library),
            Err(why) => Err(format!(
                "a pre-shared key takes OpenSSL, and it cannot be opened ({why}): install it (Debian: apt install libssl3), or use certificates"
            )),
        }
    }

    fn of(library: Library) -> Result<Self, String> {
        // SAFETY: each has the type that the headers of OpenSSL 1.1.1 and 3 give it.
        unsafe {
            let begin: unsafe extern "C" fn(u64, *const c_void) -> c_int =
                function(&library, "OPENSSL_init_crypto")?;
            begin(NO_ATEXIT, ptr::null());
            Ok(Self {
                tls_client_method: function(&library, "TLS_client_method")?,
                ctx_new: function(&library, "SSL_CTX_new")?,
                ctx_free: function(&library, "SSL_CTX_free")?,
                ctx_ctrl: function(&library, "SSL_CTX_ctrl")?,
                ctx_set_ciphersuites: function(&library, "SSL_CTX_set_ciphersuites")?,
                ctx_set_psk_client_callback: function(&library, "SSL_CTX_set_psk_client_callback")?,
                ctx_set_verify: function(&library, "SSL_CTX_set_verify")?,
                new: function(&library, "SSL_new")?,
                free: function(&library, "SSL_free")?,
                set_ex_data: function(&library, "SSL_set_ex_data")?,
                get_ex_data: function(&library, "SSL_get_ex_data")?,
                set_bio: function(&library, "SSL_set_bio")?,
                set_connect_state: function(&library, "SSL_set_connect_state")?,
                do_handshake: function(&library, "SSL_do_handshake")?,
                read: function(&library, "SSL_read")?,
                write: function(&library, "SSL_write")?,
                shutdown: function(&library, "SSL_shutdown")?,
                session_reused: function(&library, "SSL_session_reused")?,
                get_error: function(&library, "SSL_get_error")?,
                bio_s_mem: function(&library, "BIO_s_mem")?,
                bio_new: function(&library, "BIO_new")?,
                bio_free: function(&library, "BIO_free")?,
                bio_read: function(&library, "BIO_read")?,
                bio_write: function(&library, "BIO_write")?,
                err_clear_error: function(&library, "ERR_clear_error")?,
                err_get_error: function(&library, "ERR_get_error")?,
                err_error_string_n: function(&library, "ERR_error_string_n")?,
                _library: library,
            })
        }
    }

    /// The error of the last call, in its own words.
    fn last_error(&self) -> String {
        let mut text = [0_u8; 256];
        // SAFETY: it writes no more than it is given, with a zero at the end.
        unsafe {
            let error = (self.err_get_error)();
            (self.err_error_string_n)(error, text.as_mut_ptr().cast(), text.len());
        }
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        // error:CODE:library:function:reason
        let text = String::from_utf8_lossy(text);
        text.rsplit(':').next().unwrap_or_default().to_owned()
    }
}

/// A function of the library.
///
/// # Safety
/// It is of this type.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's.
    unsafe { library.get::<F>(name.as_bytes()) }
        .map(|found| *found)
        .map_err(|e| format!("this OpenSSL lacks {name}: {e}"))
}

/// A client's name and its key.
pub(super) struct PresharedKey {
    pub(super) name: String,
    pub(super) key: Vec<u8>,
}

extern "C" fn give_key(
    connection: *mut c_void,
    _hint: *const c_char,
    name: *mut c_char,
    name_max: c_uint,
    key: *mut u8,
    key_max: c_uint,
) -> c_uint {
    let Ok(library) = OpenSsl::get() else {
        return 0;
    };
    // SAFETY: `begin` put the key there, which lives as long as the connection.
    let known = unsafe {
        (library.get_ex_data)(connection, 0)
            .cast::<PresharedKey>()
            .as_ref()
    };
    let fits =
        |it: &&PresharedKey| it.name.len() < name_max as usize && it.key.len() <= key_max as usize;
    let Some(known) = known.filter(fits) else {
        return 0;
    };
    // SAFETY: both have room, the name with a zero behind it.
    unsafe {
        ptr::copy_nonoverlapping(known.name.as_ptr(), name.cast(), known.name.len());
        name.add(known.name.len()).write(0);
        ptr::copy_nonoverlapping(known.key.as_ptr(), key, known.key.len());
    }
    known.key.len() as c_uint
}

/// The outcome of a step.
pub(super) enum SslStep {
    /// So many bytes.
    Done(usize),
    /// More has to come from the other side first.
    NeedsMore,
    /// The other side has ended it.
    Ended,
}

/// A client's connection that reads and writes memory: the holder of the socket sends its output
/// and gives it input.
pub(super) struct SslConnection {
    library: &'static OpenSsl,
    ssl: *mut c_void,
    /// The connection's, freed with it.
    came: *mut c_void,
    to_send: *mut c_void,
    /// The connection has it too; freed behind that.
    key: *mut PresharedKey,
}

// SAFETY: OpenSSL's objects may be used by any thread, one at a time.
unsafe impl Send for SslConnection {}

impl SslConnection {
    /// One that has said nothing yet.
    ///
    /// # Errors
    /// There is no OpenSSL, or it says why it cannot.
    pub(super) fn begin(key: PresharedKey) -> Result<Self, String> {
        let library = OpenSsl::get()?;
        let failed = |library: &OpenSsl| format!("OpenSSL: {}", library.last_error());
        // SAFETY: as its documentation has it; whatever was made is freed where a step fails.
        unsafe {
            (library.err_clear_error)();
            let context = (library.ctx_new)((library.tls_client_method)());
            if context.is_null() {
                return Err(failed(library));
            }
            let nothing = ptr::null_mut();
            let is_set = (library.ctx_ctrl)(context, SET_MIN_PROTO_VERSION, TLS1_3, nothing) == 1
                && (library.ctx_set_ciphersuites)(context, CIPHERS.as_ptr().cast()) == 1;
            (library.ctx_set_psk_client_callback)(context, give_key);
            (library.ctx_set_verify)(context, VERIFY_PEER, ptr::null());
            let ssl = match is_set {
                true => (library.new)(context),
                false => nothing,
            };
            // The connection holds it.
            (library.ctx_free)(context);
            if ssl.is_null() {
                return Err(failed(library));
            }
            let memory = || (library.bio_new)((library.bio_s_mem)());
            let (came, to_send) = (memory(), memory());
            let key = Box::into_raw(Box::new(key));
            if came.is_null() || to_send.is_null() || (library.set_ex_data)(ssl, 0, key.cast()) != 1
            {
                for bio in [came, to_send] {
                    if !bio.is_null() {
                        (library.bio_free)(bio);
                    }
                }
                (library.free)(ssl);
                drop(Box::from_raw(key));
                return Err(failed(library));
            }
            (library.set_bio)(ssl, came, to_send);
            (library.set_connect_state)(ssl);
            Ok(Self {
                library,
                ssl,
                came,
                to_send,
                key,
            })
        }
    }

    /// Does as much as it can of the handshake.
    ///
    /// # Errors
    /// It failed, in OpenSSL's words.
    pub(super) fn shake_hands(&mut self) -> Result<SslStep, String> {
        // SAFETY: it is a connection.
        let step = self.step(|it| unsafe { (it.library.do_handshake)(it.ssl) })?;
        // SAFETY: as above. A key that was taken counts as an earlier session.
        let is_by_key = || unsafe { (self.library.session_reused)(self.ssl) } == 1;
        match step {
            SslStep::Done(_) if !is_by_key() => Err("it took no key".to_owned()),
            step => Ok(step),
        }
    }

    /// Decrypts received bytes.
    ///
    /// # Errors
    /// It was changed on the way, or the other side says what is wrong.
    pub(super) fn read(&mut self, to: &mut [u8]) -> Result<SslStep, String> {
        let length = length_of(to);
        // SAFETY: there is room for so many.
        self.step(|it| unsafe { (it.library.read)(it.ssl, to.as_mut_ptr().cast(), length) })
    }

    /// Encrypts it.
    ///
    /// # Errors
    /// It is over.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<SslStep, String> {
        let length = length_of(bytes);
        // SAFETY: there are so many.
        self.step(|it| unsafe { (it.library.write)(it.ssl, bytes.as_ptr().cast(), length) })
    }

    /// Says that nothing more comes.
    pub(super) fn end(&mut self) {
        // SAFETY: it is a connection.
        unsafe { (self.library.shutdown)(self.ssl) };
    }

    fn step(&mut self, act: impl FnOnce(&mut Self) -> c_int) -> Result<SslStep, String> {
        // SAFETY: this thread's queue of errors, by which `get_error` goes.
        unsafe { (self.library.err_clear_error)() };
        let result = act(self);
        if result > 0 {
            return Ok(SslStep::Done(result.cast_unsigned() as usize));
        }
        // SAFETY: it is a connection, of whose last call this is the result.
        match unsafe { (self.library.get_error)(self.ssl, result) } {
            WANT_READ => Ok(SslStep::NeedsMore),
            ZERO_RETURN => Ok(SslStep::Ended),
            _ => Err(self.library.last_error()),
        }
    }

    /// Takes bytes from the socket.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(1 << 20) {
            // SAFETY: memory grows; there are so many bytes.
            unsafe { (self.library.bio_write)(self.came, part.as_ptr().cast(), length_of(part)) };
        }
    }

    /// Gives away the bytes that are to be sent.
    pub(super) fn send_to(&mut self, records: &mut Vec<u8>) {
        let mut part = [0_u8; 16 << 10];
        loop {
            // SAFETY: there is room for so many.
            let taken = unsafe {
                (self.library.bio_read)(self.to_send, part.as_mut_ptr().cast(), length_of(&part))
            };
            match usize::try_from(taken) {
                Ok(bytes @ 1..) => records.extend_from_slice(&part[..bytes]),
                _ => return,
            }
        }
    }
}

fn length_of(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

impl Drop for SslConnection {
    fn drop(&mut self) {
        // SAFETY: nothing else has it. Its memory goes with it; the key was made by a box.
        unsafe {
            (self.library.free)(self.ssl);
            drop(Box::from_raw(self.key));
        }
    }
}
