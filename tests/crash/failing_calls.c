/*
 * System calls that fail when a test says so: a library to be preloaded into a broker (LD_PRELOAD).
 *
 * The file named by FAILING_CALLS is mapped. failing_calls.py writes one fault at a time into it:
 *
 *     left        how many more calls fail; 0: none
 *     skip        how many matching calls go well before
 *     operations  a set of OPERATION bits
 *     error       errno of the failure; 0: a write is short, and good for a half of its bytes
 *     hits        how many calls have failed
 *     path        a part of the path of the file
 *
 * It works below Python and below SQLite, so both meet the failure as they would meet the system's. A sync that fails
 * leaves what was written where it is, as Linux does: who reads the file sees it, also after a kill.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum operation { WRITE = 1, SYNC = 2, RENAME = 4, TRUNCATE = 8 };

struct fault {
    _Atomic int64_t left, skip, operations, error, hits;
    char path[128];
};

static struct fault *fault;

__attribute__((constructor)) static void map_fault(void)
{
    const char *path = getenv("FAILING_CALLS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *fault, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fault = mapped == MAP_FAILED ? NULL : mapped;
}

static int meets_path(enum operation operation, const char *path)
{
    if (!(fault->operations & operation) || !strstr(path, fault->path))
        return 0;
    if (atomic_fetch_sub(&fault->skip, 1) > 0 || atomic_fetch_sub(&fault->left, 1) <= 0)
        return 0;
    atomic_fetch_add(&fault->hits, 1);
    return 1;
}

/* Whether this call is one that fails. */
static int meets(enum operation operation, int fd)
{
    char link[64], path[PATH_MAX];
    if (!fault || fault->left <= 0)
        return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return meets_path(operation, path);
}

static int fails(void)
{
    errno = (int)fault->error;
    return -1;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define ON_DESCRIPTOR(operation, name, parameters, ...) \
    int name parameters \
    { \
        REAL(name); \
        return meets(operation, fd) ? fails() : real(__VA_ARGS__); \
    }

ON_DESCRIPTOR(SYNC, fsync, (int fd), fd)
ON_DESCRIPTOR(SYNC, fdatasync, (int fd), fd)
ON_DESCRIPTOR(SYNC, syncfs, (int fd), fd)
ON_DESCRIPTOR(TRUNCATE, ftruncate, (int fd, off_t size), fd, size)
ON_DESCRIPTOR(TRUNCATE, ftruncate64, (int fd, off64_t size), fd, size)

#define WRITING(name, offset) \
    ssize_t name(int fd, const void *data, size_t size, offset at) \
    { \
        REAL(name); \
        if (!meets(WRITE, fd)) \
            return real(fd, data, size, at); \
        return fault->error ? fails() : real(fd, data, size / 2, at); \
    }

WRITING(pwrite, off_t)
WRITING(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    if (!meets(WRITE, fd))
        return real(fd, data, size);
    return fault->error ? fails() : real(fd, data, size / 2);
}

/* A short write ends in the middle of a buffer, and mostly in the middle of a record. */
static ssize_t write_half(int fd, const struct iovec *buffers, int count, off64_t at)
{
    size_t size = 0, done = 0;
    for (int i = 0; i < count; i++)
        size += buffers[i].iov_len;
    char *data = malloc(size ? size : 1);
    for (int i = 0; i < count; i++) {
        memcpy(data + done, buffers[i].iov_base, buffers[i].iov_len);
        done += buffers[i].iov_len;
    }
    ssize_t written = pwrite64(fd, data, size / 2, at);
    free(data);
    return written;
}

#define WRITING_MANY(name, offset) \
    ssize_t name(int fd, const struct iovec *buffers, int count, offset at) \
    { \
        REAL(name); \
        if (!meets(WRITE, fd)) \
            return real(fd, buffers, count, at); \
        return fault->error ? fails() : write_half(fd, buffers, count, at); \
    }

WRITING_MANY(pwritev, off_t)
WRITING_MANY(pwritev64, off64_t)

#define WRITING_MANY_WITH_FLAGS(name, offset) \
    ssize_t name(int fd, const struct iovec *buffers, int count, offset at, int flags) \
    { \
        REAL(name); \
        if (!meets(WRITE, fd)) \
            return real(fd, buffers, count, at, flags); \
        return fault->error ? fails() : write_half(fd, buffers, count, at); \
    }

WRITING_MANY_WITH_FLAGS(pwritev2, off_t)
WRITING_MANY_WITH_FLAGS(pwritev64v2, off64_t)

#define RENAMING(name, parameters, ...) \
    int name parameters \
    { \
        REAL(name); \
        if (fault && fault->left > 0 && (meets_path(RENAME, old))) \
            return fails(); \
        return real(__VA_ARGS__); \
    }

RENAMING(rename, (const char *old, const char *new), old, new)
RENAMING(renameat, (int from, const char *old, int to, const char *new), from, old, to, new)
