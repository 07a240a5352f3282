/* Records what a program writes and syncs below one folder, in the order in which it does so.
 *
 * Loaded with LD_PRELOAD into every process of the program. CUTS_FOLDER is the folder (a canonical
 * path, which is cut off all paths in records), CUTS_LOG the file that records are appended to: a
 * header and `length` bytes of data, in one write each, so their order is that of the calls, across
 * processes. Writes and the begin of a
 * sync are recorded before the call, everything else after it, so what a killed process has done
 * without a record, or the reverse, is what a torn write may look like anyway.
 *
 * CUTS_DIE=N kills the process group just before the process's Nth sync of a file.
 * CUTS_DELAY=N makes each sync of a file take N microseconds longer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 65536, TRUNCATED = 1, DIRECTORY = 2 };

struct header {
    char magic[8]; /* shows where the next record begins if a killed process has not finished one */
    uint64_t inode;
    int64_t offset; /* -1: at the end; of an open: 4 * size + TRUNCATED or DIRECTORY; of ftruncate: the size */
    int32_t thread;
    uint32_t length;
    char kind, padding[7];
};

static struct {
    uint64_t inode; /* 0: the file is not below the folder */
    int64_t copied; /* of a stream, whose writes cannot be seen: how much was recorded; or -1 */
    int append, directory;
} files[FILES];

static const char *folder;
static int log_fd = -1, dies_at, delay;
static atomic_int syncs;

static void give_up(const char *reason) {
    dprintf(2, "shim: %s\n", reason);
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CUTS_LOG"), *die = getenv("CUTS_DIE"), *wait = getenv("CUTS_DELAY");
    if (!path || !getenv("CUTS_FOLDER")) return;
    folder = strdup(getenv("CUTS_FOLDER")); /* servers write their title over the environment */
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) give_up("the log cannot be opened");
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 800); /* where no program expects a free number */
    syscall(SYS_close, fd);
    if (log_fd < 0) give_up("no number for the log");
    dies_at = die ? atoi(die) : 0;
    delay = wait ? atoi(wait) : 0;
}

static void record(char kind, uint64_t inode, int64_t offset, const void *data, size_t length) {
    struct header header = {"\xffRECORD\xff", inode, offset, gettid(), length, kind, ""};
    struct iovec pieces[] = {{&header, sizeof header}, {(void *)data, length}};
    int before = errno;
    if (syscall(SYS_writev, log_fd, pieces, 2) != (long)(sizeof header + length))
        give_up("the log cannot be written to");
    errno = before;
}

static int recorded(int fd) { return fd >= 0 && fd < FILES && files[fd].inode; }

static int ends_with(const char *path, const char *end) {
    size_t length = strlen(path), tail = strlen(end);
    return length >= tail && !strcmp(path + length - tail, end);
}

static int below(const char *path) {
    size_t length = log_fd < 0 ? 0 : strlen(folder);
    /* The -shm file is mapped and does not outlive a cut; logs and settings are no data. */
    return length && !strncmp(path, folder, length) && (!path[length] || path[length] == '/') &&
           !ends_with(path, "-shm") && !ends_with(path, ".log") && !ends_with(path, ".conf");
}

static int opened(int fd, int flags, int stream) {
    char link[64], path[PATH_MAX];
    struct stat found;
    int before = errno;
    if (fd < 0 || log_fd < 0) return fd;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    if (fd < FILES) files[fd].inode = 0;
    if (below(path)) {
        if (fd >= FILES || fstat(fd, &found)) give_up("a file cannot be recorded");
        files[fd].directory = S_ISDIR(found.st_mode);
        files[fd].append = flags & O_APPEND;
        files[fd].copied = !stream ? -1 : flags & O_TRUNC ? 0 : found.st_size;
        files[fd].inode = found.st_ino;
        int64_t state = (flags & O_TRUNC ? TRUNCATED : 0) | (files[fd].directory ? DIRECTORY : 0);
        state += 4 * (int64_t)found.st_size;
        record('o', found.st_ino, state, path + strlen(folder), length - strlen(folder));
    }
    errno = before;
    return fd;
}

int openat(int at, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return opened(syscall(SYS_openat, at, path, flags, mode), flags, 0);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return openat(AT_FDCWD, path, flags, mode);
}

int creat(const char *path, mode_t mode) {
    return openat(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int __open_2(const char *path, int flags) { return openat(AT_FDCWD, path, flags); }
int __openat_2(int at, const char *path, int flags) { return openat(at, path, flags); }

/* Record what a stream has written since the last time: the C library writes without our calls. */
static void copy(int fd) {
    char link[64], data[65536];
    ssize_t count;
    if (!recorded(fd) || files[fd].copied < 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    while ((count = pread(reader, data, sizeof data, files[fd].copied)) > 0) {
        record('w', files[fd].inode, files[fd].copied, data, count);
        files[fd].copied += count;
    }
    if (count < 0) give_up("a stream cannot be read");
    syscall(SYS_close, reader);
}

FILE *fopen(const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
    FILE *stream = real(path, mode);
    if (stream) opened(fileno(stream), *mode == 'w' ? O_TRUNC : 0, 1);
    return stream;
}

int fclose(FILE *stream) {
    int (*real)(FILE *) = dlsym(RTLD_NEXT, "fclose");
    int fd = fileno(stream);
    if (recorded(fd)) {
        fflush(stream);
        copy(fd);
        files[fd].inode = 0;
    }
    return real(stream);
}

int close(int fd) {
    if (recorded(fd)) files[fd].inode = 0;
    return syscall(SYS_close, fd);
}

static ssize_t whole(int fd, ssize_t written, size_t count) {
    if (recorded(fd) && written != (ssize_t)count) give_up("a write was cut short");
    return written;
}

static int64_t position(int fd) { return files[fd].append ? -1 : lseek(fd, 0, SEEK_CUR); }

ssize_t write(int fd, const void *data, size_t count) {
    if (recorded(fd)) record('w', files[fd].inode, position(fd), data, count);
    return whole(fd, syscall(SYS_write, fd, data, count), count);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset) {
    if (recorded(fd)) record('w', files[fd].inode, offset, data, count);
    return whole(fd, syscall(SYS_pwrite64, fd, data, count, offset), count);
}

static size_t record_pieces(int fd, const struct iovec *pieces, int count, int64_t offset) {
    size_t total = 0;
    for (int i = 0; i < count; total += pieces[i++].iov_len)
        if (recorded(fd))
            record('w', files[fd].inode, offset < 0 ? -1 : offset + (int64_t)total,
                   pieces[i].iov_base, pieces[i].iov_len);
    return total;
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    if (!recorded(fd)) return syscall(SYS_writev, fd, pieces, count);
    size_t total = record_pieces(fd, pieces, count, position(fd));
    return whole(fd, syscall(SYS_writev, fd, pieces, count), total);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    size_t total = record_pieces(fd, pieces, count, offset);
    return whole(fd, syscall(SYS_pwritev, fd, pieces, count, offset, 0), total);
}

int ftruncate(int fd, off_t size) {
    int result = syscall(SYS_ftruncate, fd, size);
    if (recorded(fd) && !result) record('t', files[fd].inode, size, "", 0);
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
    if (recorded(fd)) give_up("fallocate is not recorded");
    return syscall(SYS_fallocate, fd, mode, offset, length);
}

static int sync_by(long call, int fd) {
    if (!recorded(fd)) return syscall(call, fd);
    uint64_t inode = files[fd].inode;
    copy(fd);
    if (!files[fd].directory) {
        if (atomic_fetch_add(&syncs, 1) + 1 == dies_at) {
            kill(0, SIGKILL);
            pause();
        }
    }
    record('s', inode, 0, "", 0);
    if (delay && !files[fd].directory) usleep(delay);
    int result = syscall(call, fd);
    if (!result) record('S', inode, 0, "", 0);
    return result;
}

int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }

static void absolute(char *to, const char *path) {
    char here[PATH_MAX] = "";
    if (*path != '/' && !getcwd(here, sizeof here)) give_up("no working directory");
    if (snprintf(to, PATH_MAX, "%s%s%s", here, *here ? "/" : "", path) >= PATH_MAX)
        give_up("a path is too long");
}

int rename(const char *from, const char *to) {
    char both[2 * PATH_MAX], target[PATH_MAX];
    absolute(both, from);
    absolute(target, to);
    int result = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    if (!result && below(both) != below(target)) give_up("a file was moved over the folder's edge");
    if (!result && below(both)) {
        size_t length = strlen(both) + 1, cut = strlen(folder);
        strcpy(both + length, target + cut);
        record('r', 0, 0, both + cut, length + strlen(target) - 2 * cut);
    }
    return result;
}

int unlink(const char *path) {
    char full[PATH_MAX];
    absolute(full, path);
    int result = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (!result && below(full)) {
        const char *name = full + strlen(folder);
        record('u', 0, 0, name, strlen(name));
    }
    return result;
}

#define SAME(name) __attribute__((alias(#name)))
int open64(const char *, int, ...) SAME(open);
int openat64(int, const char *, int, ...) SAME(openat);
int creat64(const char *, mode_t) SAME(creat);
int __open64_2(const char *, int) SAME(__open_2);
int __openat64_2(int, const char *, int) SAME(__openat_2);
FILE *fopen64(const char *, const char *) SAME(fopen);
ssize_t pwrite64(int, const void *, size_t, off_t) SAME(pwrite);
ssize_t pwritev64(int, const struct iovec *, int, off_t) SAME(pwritev);
int ftruncate64(int, off_t) SAME(ftruncate);
int fallocate64(int, int, off_t, off_t) SAME(fallocate);
