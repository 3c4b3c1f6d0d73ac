/* A plug-in that changes a file, and one of its functions has a name of the C library's. Preloaded with -DINTERPOSES it stands between the
   C library and who calls it, and finds what it hides in the two ways that such libraries do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* Writes a byte `bytes` times at `offset`, and syncs. */
int put(int fd, int byte, long bytes, long offset)
{
    char buffer[4096];
    for (long i = 0; i < bytes; i++)
        buffer[i] = byte;
    return pwrite(fd, buffer, bytes, offset) == bytes && fsync(fd) == 0;
}

int cut_off(int fd, long bytes)
{
    return ftruncate(fd, bytes) == 0 && fsync(fd) == 0;
}

#ifdef INTERPOSES
#ifdef FIRST
#define FSYNC_FROM RTLD_NEXT
#else
#define FSYNC_FROM dlopen("libc.so.6", RTLD_LAZY)
#endif

static int writes, syncs;

ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite");
    writes++;
    return real(fd, buffer, bytes, offset);
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(FSYNC_FROM, "fsync");
    syncs++;
    return real(fd);
}

/* By the alias that no one else has taken. */
int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "fdatasync", VERSION);
    syncs++;
    return real(fd);
}

int seen_writes(void) { return writes; }
#else
int fdatasync(int fd)
{
    return 1000 + fd;
}
#endif
