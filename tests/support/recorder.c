/* Records what processes do to the files in a directory: preloaded into them, it works for Python, the JVM, SQLite
   and delta-rs, because all of them call the C library.

   HEADWATER_RECORD_ROOT is the directory, HEADWATER_RECORD_TO the file that records are appended to, one write each, so
   the records of many processes are in the order in which things happened. A record is written after its call has
   succeeded. Not recorded: memory-mapped writes, stdio's fopen, and files that were opened before exec. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum op { CREATE = 1, MKDIR, WRITE, TRUNCATE, SYNC, LINK, RENAME, UNLINK };

struct record {
    uint32_t op, path, other, data; /* lengths of what follows */
    uint64_t node, offset;
};

#define FILES (1 << 16)
static uint64_t nodes[FILES]; /* file descriptor -> inode, for files in the root */
static char root[PATH_MAX], to[PATH_MAX];
static size_t root_length;
static int log_fd = -1;

#define REAL(result, name, ...)                                     \
    static result (*real)(__VA_ARGS__);                             \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t append(const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return real(log_fd, parts, count);
}

static void open_log(void) {
    REAL(int, "open", const char *, int, ...);
    int fd = real(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 700); /* where nobody expects a descriptor */
    if (fd >= 0) syscall(SYS_close, fd);
}

__attribute__((constructor)) static void begin(void) {
    const char *r = getenv("HEADWATER_RECORD_ROOT"), *t = getenv("HEADWATER_RECORD_TO");
    if (!r || !t) return;
    snprintf(root, sizeof root, "%s", r);
    snprintf(to, sizeof to, "%s", t);
    root_length = strlen(root);
}

static void record(enum op op, uint64_t node, uint64_t offset, const char *path, const char *other, const void *data,
                   size_t size) {
    int saved = errno;
    struct record head = {op, path ? strlen(path) : 0, other ? strlen(other) : 0, size, node, offset};
    struct iovec parts[4] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)other, head.other}, {(void *)data, size}};
    if (log_fd < 0) open_log();
    if (append(parts, 4) < 0) { /* somebody closed it */
        open_log();
        if (append(parts, 4) < 0) abort();
    }
    errno = saved;
}

/* The path relative to the root ("" for itself) in `out`, or 0 if it is elsewhere. */
static int below(int at, const char *path, char *out) {
    char full[2 * PATH_MAX];
    if (!root_length || !path) return 0;
    int saved = errno;
    if (path[0] == '/') {
        snprintf(full, sizeof full, "%s", path);
    } else {
        char folder[PATH_MAX], link[64];
        ssize_t n;
        if (at == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        n = readlink(link, folder, sizeof folder - 1);
        errno = saved;
        if (n < 0) return 0;
        folder[n] = 0;
        snprintf(full, sizeof full, "%s/%s", folder, path);
    }
    if (strncmp(full, root, root_length) || (full[root_length] && full[root_length] != '/')) return 0;
    char *to_char = out;
    for (const char *c = full + root_length; *c; c++) /* single slashes, none at either end */
        if (*c != '/' || (to_char > out && to_char[-1] != '/')) *to_char++ = *c;
    while (to_char > out && to_char[-1] == '/') to_char--;
    *to_char = 0;
    return 1;
}

static uint64_t node_at(int at, const char *path) {
    struct stat s;
    return fstatat(at, path, &s, AT_SYMLINK_NOFOLLOW) ? 0 : s.st_ino;
}

static uint64_t node_of(int fd) { return fd >= 0 && fd < FILES ? nodes[fd] : 0; }

static int opened(int fd, const char *name, int flags, int existed) {
    struct stat s;
    if (fd < 0 || fd >= FILES || fstat(fd, &s)) return fd;
    nodes[fd] = s.st_ino;
    if ((flags & O_CREAT) && !existed) record(CREATE, s.st_ino, 0, name, 0, 0, 0);
    else if (flags & O_TRUNC) record(TRUNCATE, s.st_ino, 0, 0, 0, 0, 0);
    return fd;
}

#define OPEN(real_call, at, path, flags)                                                     \
    char name[2 * PATH_MAX];                                                                 \
    int inside = below(at, path, name);                                                      \
    int existed = inside && ((flags) & O_CREAT) ? node_at(at, path) != 0 : 1;                \
    int fd = real_call;                                                                      \
    if (fd >= 0 && fd < FILES) nodes[fd] = 0;                                                \
    return inside ? opened(fd, name, flags, existed) : fd

#define MODE                                     \
    mode_t mode = 0;                             \
    if (flags & (O_CREAT | __O_TMPFILE)) {       \
        va_list list;                            \
        va_start(list, flags);                   \
        mode = va_arg(list, mode_t);             \
        va_end(list);                            \
    }

int open(const char *path, int flags, ...) {
    MODE REAL(int, "open", const char *, int, ...);
    OPEN(real(path, flags, mode), AT_FDCWD, path, flags);
}
int open64(const char *path, int flags, ...) {
    MODE REAL(int, "open64", const char *, int, ...);
    OPEN(real(path, flags, mode), AT_FDCWD, path, flags);
}
int openat(int at, const char *path, int flags, ...) {
    MODE REAL(int, "openat", int, const char *, int, ...);
    OPEN(real(at, path, flags, mode), at, path, flags);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE REAL(int, "openat64", int, const char *, int, ...);
    OPEN(real(at, path, flags, mode), at, path, flags);
}
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int at, const char *path, int flags) { return openat(at, path, flags); }
int __openat64_2(int at, const char *path, int flags) { return openat64(at, path, flags); }
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    REAL(int, "close", int);
    if (fd >= 0 && fd < FILES) nodes[fd] = 0;
    return real(fd);
}
int dup(int fd) {
    REAL(int, "dup", int);
    int made = real(fd);
    if (made >= 0 && made < FILES) nodes[made] = node_of(fd);
    return made;
}
int dup2(int fd, int other) {
    REAL(int, "dup2", int, int);
    int made = real(fd, other);
    if (made >= 0 && made < FILES) nodes[made] = node_of(fd);
    return made;
}
int dup3(int fd, int other, int flags) {
    REAL(int, "dup3", int, int, int);
    int made = real(fd, other, flags);
    if (made >= 0 && made < FILES) nodes[made] = node_of(fd);
    return made;
}

static void wrote(int fd, const void *data, ssize_t size, off64_t offset) {
    if (size > 0 && node_of(fd)) record(WRITE, nodes[fd], offset, 0, 0, data, size);
}
static off64_t before(int fd, ssize_t size) { return node_of(fd) ? lseek64(fd, 0, SEEK_CUR) - size : 0; }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    ssize_t done = real(fd, data, size);
    if (done > 0) wrote(fd, data, done, before(fd, done));
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    ssize_t done = real(fd, data, size, offset);
    wrote(fd, data, done, offset);
    return done;
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    ssize_t done = real(fd, data, size, offset);
    wrote(fd, data, done, offset);
    return done;
}
static void wrote_parts(int fd, const struct iovec *parts, int count, ssize_t done, off64_t offset) {
    for (int i = 0; i < count && done > 0; i++) {
        ssize_t size = (ssize_t)parts[i].iov_len < done ? (ssize_t)parts[i].iov_len : done;
        wrote(fd, parts[i].iov_base, size, offset);
        offset += size;
        done -= size;
    }
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    ssize_t done = real(fd, parts, count);
    if (done > 0) wrote_parts(fd, parts, count, done, before(fd, done));
    return done;
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    ssize_t done = real(fd, parts, count, offset);
    wrote_parts(fd, parts, count, done, offset);
    return done;
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    REAL(ssize_t, "pwritev64", int, const struct iovec *, int, off64_t);
    ssize_t done = real(fd, parts, count, offset);
    wrote_parts(fd, parts, count, done, offset);
    return done;
}

/* What the kernel copied into a file, read back from the file. */
static void copied(int fd, ssize_t size, off64_t offset) {
    REAL(int, "open", const char *, int, ...);
    char path[64];
    if (size <= 0 || !node_of(fd)) return;
    char *data = malloc(size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = real(path, O_RDONLY | O_CLOEXEC);
    if (again < 0 || pread64(again, data, size, offset) != size) abort();
    wrote(fd, data, size, offset);
    close(again);
    free(data);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    ssize_t done = real(out, in, offset, size);
    if (done > 0) copied(out, done, before(out, done));
    return done;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    ssize_t done = real(out, in, offset, size);
    if (done > 0) copied(out, done, before(out, done));
    return done;
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *at, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    ssize_t done = real(in, from, out, at, size, flags);
    if (done > 0) copied(out, done, at ? *at - done : before(out, done));
    return done;
}

static int resized(int fd, int result) {
    struct stat s;
    if (!result && node_of(fd) && !fstat(fd, &s)) record(TRUNCATE, nodes[fd], s.st_size, 0, 0, 0, 0);
    return result;
}
int ftruncate(int fd, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    return resized(fd, real(fd, size));
}
int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    return resized(fd, real(fd, size));
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
    REAL(int, "fallocate", int, int, off_t, off_t);
    return resized(fd, real(fd, mode, offset, size));
}
int posix_fallocate(int fd, off_t offset, off_t size) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    return resized(fd, real(fd, offset, size));
}

static int synced(int fd, int result) {
    if (!result && node_of(fd)) record(SYNC, nodes[fd], 0, 0, 0, 0, 0);
    return result;
}
int fsync(int fd) {
    REAL(int, "fsync", int);
    return synced(fd, real(fd));
}
int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return synced(fd, real(fd));
}

static int renamed(int from_at, const char *from, int at, const char *path, int result) {
    char old[2 * PATH_MAX], new[2 * PATH_MAX];
    if (!result && below(from_at, from, old) && below(at, path, new)) record(RENAME, node_at(at, path), 0, old, new, 0, 0);
    return result;
}
int rename(const char *from, const char *path) {
    REAL(int, "rename", const char *, const char *);
    return renamed(AT_FDCWD, from, AT_FDCWD, path, real(from, path));
}
int renameat(int from_at, const char *from, int at, const char *path) {
    REAL(int, "renameat", int, const char *, int, const char *);
    return renamed(from_at, from, at, path, real(from_at, from, at, path));
}
int renameat2(int from_at, const char *from, int at, const char *path, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return renamed(from_at, from, at, path, real(from_at, from, at, path, flags));
}
static int linked(int at, const char *path, int result) {
    char name[2 * PATH_MAX];
    if (!result && below(at, path, name)) record(LINK, node_at(at, path), 0, name, 0, 0, 0);
    return result;
}
int link(const char *from, const char *path) {
    REAL(int, "link", const char *, const char *);
    return linked(AT_FDCWD, path, real(from, path));
}
int linkat(int from_at, const char *from, int at, const char *path, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return linked(at, path, real(from_at, from, at, path, flags));
}
static int unlinked(int at, const char *path, int result) {
    char name[2 * PATH_MAX];
    if (!result && below(at, path, name)) record(UNLINK, 0, 0, name, 0, 0, 0);
    return result;
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return unlinked(AT_FDCWD, path, real(path));
}
int unlinkat(int at, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    return unlinked(at, path, real(at, path, flags));
}
int remove(const char *path) {
    REAL(int, "remove", const char *);
    return unlinked(AT_FDCWD, path, real(path));
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    return unlinked(AT_FDCWD, path, real(path));
}
static int made(int at, const char *path, int result) {
    char name[2 * PATH_MAX];
    if (!result && below(at, path, name)) record(MKDIR, node_at(at, path), 0, name, 0, 0, 0);
    return result;
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    return made(AT_FDCWD, path, real(path, mode));
}
int mkdirat(int at, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    return made(at, path, real(at, path, mode));
}
