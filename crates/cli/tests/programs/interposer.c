/* A library before the C library's functions, as allocators and libraries that fake a user or a clock are, that makes each call by its number. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#undef fcntl
#define C const char *
#define CALL(type, name, parameters, ...) type name parameters { return (type)syscall(__VA_ARGS__); }
#define BOTH(type, name, parameters, ...) CALL(type, name, parameters, __VA_ARGS__) CALL(type, name##64, parameters, __VA_ARGS__)

BOTH(void *, mmap, (void *a, size_t n, int p, int f, int fd, off_t o), SYS_mmap, a, n, p, f, fd, o)
CALL(int, munmap, (void *a, size_t n), SYS_munmap, a, n)
CALL(int, mprotect, (void *a, size_t n, int p), SYS_mprotect, a, n, p)
CALL(int, msync, (void *a, size_t n, int f), SYS_msync, a, n, f)
void *mremap(void *a, size_t n, size_t m, int f, ...) {
    va_list list; va_start(list, f); void *b = va_arg(list, void *); va_end(list);
    return (void *)syscall(SYS_mremap, a, n, m, f, b);
}

CALL(ssize_t, read, (int fd, void *b, size_t n), SYS_read, fd, b, n)
CALL(ssize_t, readv, (int fd, const struct iovec *v, int n), SYS_readv, fd, v, n)
BOTH(ssize_t, pread, (int fd, void *b, size_t n, off_t o), SYS_pread64, fd, b, n, o)
CALL(ssize_t, preadv2, (int fd, const struct iovec *v, int n, off_t o, int f), SYS_preadv2, fd, v, n, o, 0, f)
CALL(ssize_t, write, (int fd, const void *b, size_t n), SYS_write, fd, b, n)
CALL(ssize_t, writev, (int fd, const struct iovec *v, int n), SYS_writev, fd, v, n)
BOTH(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), SYS_pwrite64, fd, b, n, o)
BOTH(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t o), SYS_pwritev, fd, v, n, o, 0)
CALL(ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t o, int f), SYS_pwritev2, fd, v, n, o, 0, f)
BOTH(off_t, lseek, (int fd, off_t o, int w), SYS_lseek, fd, o, w)
CALL(int, fsync, (int fd), SYS_fsync, fd)
CALL(int, fdatasync, (int fd), SYS_fdatasync, fd)
CALL(int, syncfs, (int fd), SYS_syncfs, fd)
void sync(void) { syscall(SYS_sync); }
BOTH(int, ftruncate, (int fd, off_t n), SYS_ftruncate, fd, n)
BOTH(int, truncate, (C p, off_t n), SYS_truncate, p, n)
BOTH(int, fallocate, (int fd, int m, off_t o, off_t n), SYS_fallocate, fd, m, o, n)
CALL(ssize_t, copy_file_range, (int a, off64_t *x, int b, off64_t *y, size_t n, unsigned f), SYS_copy_file_range, a, x, b, y, n, f)
CALL(ssize_t, sendmsg, (int s, const struct msghdr *m, int f), SYS_sendmsg, s, m, f)

#define OPEN(name, ...) int name { int mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, int); va_end(list); } return syscall(__VA_ARGS__, flags, mode); }
OPEN(open(C path, int flags, ...), SYS_openat, AT_FDCWD, path)
OPEN(open64(C path, int flags, ...), SYS_openat, AT_FDCWD, path)
OPEN(openat(int dir, C path, int flags, ...), SYS_openat, dir, path)
OPEN(openat64(int dir, C path, int flags, ...), SYS_openat, dir, path)
BOTH(int, creat, (C p, mode_t m), SYS_openat, AT_FDCWD, p, O_CREAT | O_WRONLY | O_TRUNC, m)
CALL(int, close, (int fd), SYS_close, fd)
CALL(int, close_range, (unsigned a, unsigned b, int f), SYS_close_range, a, b, f)
CALL(int, dup, (int fd), SYS_dup, fd)
#ifdef SYS_dup2
CALL(int, dup2, (int a, int b), SYS_dup2, a, b)
CALL(int, rename, (C a, C b), SYS_rename, a, b)
CALL(int, unlink, (C p), SYS_unlink, p)
CALL(int, link, (C a, C b), SYS_link, a, b)
#endif
CALL(int, dup3, (int a, int b, int f), SYS_dup3, a, b, f)
#define FCNTL(name) int name(int fd, int command, ...) { va_list list; va_start(list, command); long argument = va_arg(list, long); va_end(list); return syscall(SYS_fcntl, fd, command, argument); }
FCNTL(fcntl)
FCNTL(fcntl64)
CALL(int, renameat, (int x, C a, int y, C b), SYS_renameat2, x, a, y, b, 0)
CALL(int, renameat2, (int x, C a, int y, C b, unsigned f), SYS_renameat2, x, a, y, b, f)
CALL(int, unlinkat, (int d, C p, int f), SYS_unlinkat, d, p, f)
CALL(int, linkat, (int x, C a, int y, C b, int f), SYS_linkat, x, a, y, b, f)
CALL(int, utimensat, (int d, C p, const struct timespec *t, int f), SYS_utimensat, d, p, t, f)
CALL(int, futimens, (int fd, const struct timespec *t), SYS_utimensat, fd, NULL, t, 0)
