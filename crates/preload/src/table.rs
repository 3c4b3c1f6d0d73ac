//! The calls that the library hooks, a line each. From it come:
//!
//! * the exported functions, and what `syscall` with a number is translated to
//!   ([`hooks`](crate::hooks));
//! * what `dlsym` answers ([`dynamic`](crate::dynamic));
//! * the places for what is hidden ([`hidden`](crate::real::hidden));
//! * the list that the tests compare with the built library.
//!
//! ```text
//! module {
//!     kind handler(arguments) as other names, SYS_number on "architecture";
//! }
//! ```
//!
//! The handler is the module's, and has the C function's name; on 64-bit Linux the functions of the
//! other names are the same. A number stands here if the system call takes what the function takes;
//! [`system_call`](crate::system_call) translates the others. The kinds:
//!
//! * `hook`: by [`handlers!`](crate::handler::handlers);
//! * `late`: the same, but what it hides is looked for when it is called first, and not when the
//!   library starts;
//! * `jump`: variadic, so it goes on by a jump ([`variadic`](crate::variadic));
//! * `itself`: exported by its module, since it asks this table.
//!
//! What is hidden is looked for in the order of the lines. The dynamic linker's functions come
//! first, apart: `dlsym` does not find them ([`linker`](crate::linker)).
//!
//! This file imports nothing, and the tests include it: a test program must not be linked with what
//! the lines stand for, or it would hook itself.

/// Calls the macro `then` with the table, behind `before`.
macro_rules! calls {
    ($($then:ident)::+ $([$before:ident])?) => {
        $($then)::+! {
            $($before)?
            dynamic { dlsym dlvsym dlopen dlmopen }

            fd_changes {
                hook ftruncate(a b) as ftruncate64, SYS_ftruncate;
                hook fallocate(a b c d) as fallocate64, SYS_fallocate;
                hook posix_fallocate(a b c) as posix_fallocate64;
                hook copy_file_range(a b c d e f), SYS_copy_file_range;
                hook sendfile(a b c d) as sendfile64, SYS_sendfile;
                hook splice(a b c d e f), SYS_splice;
                hook posix_fadvise(a b c d) as posix_fadvise64;
                hook ioctl(a b c), SYS_ioctl;
            }
            clone {
                jump clone();
            }
            descriptor {
                hook close(a) as __close, SYS_close;
                hook close_range(a b c), SYS_close_range;
                hook unshare(a), SYS_unshare;
                hook closefrom(a);
                hook dup(a);
                hook dup2(a b) as __dup2, SYS_dup2 on "x86_64";
                hook dup3(a b c), SYS_dup3;
                hook fcntl(a b c) as fcntl64 __fcntl, SYS_fcntl;
            }
            dprintf {
                jump dprintf();
                jump __dprintf_chk();
            }
            execute {
                hook execve(a b c);
                hook execv(a b);
                hook execvp(a b);
                hook execvpe(a b c);
                hook fexecve(a b c);
                hook execveat(a b c d e);
                hook posix_spawn(a b c d e f);
                hook posix_spawnp(a b c d e f);
                hook pidfd_spawn(a b c d e f);
                hook pidfd_spawnp(a b c d e f);
                hook posix_spawn_file_actions_adddup2(a b c);
                hook system(a);
                jump execl();
                jump execlp();
                jump execle();
            }
            identity {
                hook setuid(a);
                hook seteuid(a);
                hook setreuid(a b);
                hook setresuid(a b c);
            }
            map {
                hook mmap(a b c d e f) as mmap64, SYS_mmap;
                hook munmap(a b), SYS_munmap;
                hook mprotect(a b c), SYS_mprotect;
                hook mremap(a b c d e), SYS_mremap;
            }
            message {
                hook sendmsg(a b c), SYS_sendmsg;
                hook sendmmsg(a b c d), SYS_sendmmsg;
                hook send(a b c d);
                hook sendto(a b c d e f), SYS_sendto;
            }
            metadata {
                hook mkdir(a b), SYS_mkdir on "x86_64";
                hook mkdirat(a b c), SYS_mkdirat;
                hook mkdtemp(a);
                hook rmdir(a), SYS_rmdir on "x86_64";
                hook symlink(a b), SYS_symlink on "x86_64";
                hook symlinkat(a b c), SYS_symlinkat;
                hook mknod(a b c), SYS_mknod on "x86_64";
                hook mknodat(a b c d), SYS_mknodat;
                hook mkfifo(a b);
                hook mkfifoat(a b c);
                hook mkstemp(a) as mkstemp64;
                hook mkostemp(a b) as mkostemp64;
                hook mkstemps(a b) as mkstemps64;
                hook mkostemps(a b c) as mkostemps64;
                hook bind(a b c), SYS_bind;
                hook chmod(a b), SYS_chmod on "x86_64";
                hook lchmod(a b);
                hook fchmod(a b), SYS_fchmod;
                hook fchmodat(a b c d);
                hook chown(a b c), SYS_chown on "x86_64";
                hook lchown(a b c), SYS_lchown on "x86_64";
                hook fchown(a b c), SYS_fchown;
                hook fchownat(a b c d e), SYS_fchownat;
                hook setxattr(a b c d e), SYS_setxattr;
                hook lsetxattr(a b c d e), SYS_lsetxattr;
                hook fsetxattr(a b c d e), SYS_fsetxattr;
                hook removexattr(a b), SYS_removexattr;
                hook lremovexattr(a b), SYS_lremovexattr;
                hook fremovexattr(a b), SYS_fremovexattr;
            }
            path_calls {
                hook rename(a b), SYS_rename on "x86_64";
                hook renameat(a b c d), SYS_renameat;
                hook renameat2(a b c d e), SYS_renameat2;
                hook unlink(a), SYS_unlink on "x86_64";
                hook unlinkat(a b c), SYS_unlinkat;
                hook remove(a);
                hook link(a b), SYS_link on "x86_64";
                hook linkat(a b c d e), SYS_linkat;
                hook truncate(a b) as truncate64, SYS_truncate;
            }
            open {
                hook open(a b c) as open64 __open __open64, SYS_open on "x86_64";
                hook openat(a b c d) as openat64, SYS_openat;
                hook openat2(a b c d), SYS_openat2;
                hook __open_2(a b) as __open64_2;
                hook __openat_2(a b c) as __openat64_2;
                hook creat(a b) as creat64, SYS_creat on "x86_64";
            }
            position {
                hook read(a b c) as __read, SYS_read;
                hook __read_chk(a b c d);
                hook readv(a b c), SYS_readv;
                hook preadv2(a b c d e) as preadv64v2;
                hook pread(a b c d) as pread64 __pread64, SYS_pread64;
                hook __pread_chk(a b c d e) as __pread64_chk;
                hook preadv(a b c d) as preadv64, SYS_preadv;
                hook lseek(a b c) as lseek64 __lseek, SYS_lseek;
            }
            process {
                hook _Fork();
                hook daemon(a b);
            }
            received_fds {
                hook open_by_handle_at(a b c), SYS_open_by_handle_at;
                hook pidfd_getfd(a b c), SYS_pidfd_getfd;
            }
            stdio {
                hook fdopen(a b) as _IO_fdopen;
                hook fopen(a b) as fopen64 _IO_fopen;
                hook freopen(a b c) as freopen64;
                hook fclose(a) as _IO_fclose;
                hook popen(a b) as _IO_popen;
                hook pclose(a);
                hook tmpfile() as tmpfile64;
                hook vdprintf(a b c);
                hook backtrace_symbols_fd(a b c);
                hook __vdprintf_chk(a b c d);
            }
            sync {
                hook fsync(a), SYS_fsync;
                hook fdatasync(a), SYS_fdatasync;
                hook sync_file_range(a b c d), SYS_sync_file_range;
                hook sync();
                hook syncfs(a), SYS_syncfs;
                hook msync(a b c), SYS_msync;
            }
            system_call {
                itself syscall();
            }
            thread_numbers {
                hook kill(a b), SYS_kill;
            }
            times {
                hook futimens(a b);
                hook futimes(a b);
                hook utimensat(a b c d);
                hook futimesat(a b c), SYS_futimesat on "x86_64";
                hook utimes(a b), SYS_utimes on "x86_64";
                hook lutimes(a b);
                hook utime(a b), SYS_utime on "x86_64";
            }
            write {
                hook write(a b c) as __write, SYS_write;
                hook pwrite(a b c d) as pwrite64 __pwrite64, SYS_pwrite64;
                hook writev(a b c), SYS_writev;
                hook pwritev(a b c d) as pwritev64, SYS_pwritev;
                hook pwritev2(a b c d e) as pwritev64v2;
            }
            asynchronous {
                late aio_write(a) as aio_write64;
                late aio_fsync(a b) as aio_fsync64;
                late lio_listio(a b c d) as lio_listio64;
                late aio_error(a) as aio_error64;
                late aio_return(a) as aio_return64;
                late io_submit(a b c);
                late io_setup(a b);
                late io_uring_setup(a b);
                late io_uring_queue_init(a b c);
                late io_uring_queue_init_params(a b c);
                late io_uring_queue_init_mem(a b c d e);
            }
            directory {
                late readdir(a) as readdir64;
            }
        }
    };
}

/// Calls the macro `then` with a line for each name: the kind, the module, the handler and its
/// arguments, and the name. Not with those of `dynamic`.
#[allow(
    unused_macros,
    reason = "the tests, which include this file, want whole lines"
)]
macro_rules! names {
    ($then:ident) => {
        $crate::table::calls! { $crate::table::each_name [$then] }
    };
}

#[allow(unused_macros, reason = "as `names`")]
macro_rules! each_name {
    (
        $then:ident
        dynamic $others:tt
        $($module:ident { $(
            $kind:ident $handler:ident $arguments:tt
            $(as $($alias:ident)+)? $(, $number:ident $(on $architecture:literal)?)?;
        )+ })+
    ) => {
        $then! {$($(
            $kind $module $handler $arguments $handler;
            $($(
                $kind $module $handler $arguments $alias;
            )+)?
        )+)+}
    };
}

pub(crate) use calls;
#[allow(unused_imports, reason = "as `names`")]
pub(crate) use {each_name, names};
