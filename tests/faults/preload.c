/* The n-th of some calls on files below a folder fails: what a full or broken disk does to a program.

   cc -shared -fPIC -O2 -o faults.so preload.c -ldl
   FAULT_FOLDER=/abs/path FAULT_CALL=write FAULT_ERROR=28 FAULT_AT=3 FAULT_LOG=/abs/log LD_PRELOAD=./faults.so COMMAND

   FAULT_CALL is one of open, read, write, sync, rename, map, close, truncate and thread; FAULT_ERROR is the number of the
   error. A call that is made to fail is noted in FAULT_LOG, with the name of its file. Threads are of no folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folder, *call, *record;
static int error;
static long at;
static atomic_long calls;

__attribute__((constructor)) static void begin(void) {
    folder = getenv("FAULT_FOLDER");
    call = getenv("FAULT_CALL");
    record = getenv("FAULT_LOG");
    error = atoi(getenv("FAULT_ERROR") ? getenv("FAULT_ERROR") : "0");
    at = atol(getenv("FAULT_AT") ? getenv("FAULT_AT") : "0");
}

static int is_below(const char *path) {
    size_t length = folder ? strlen(folder) : 0;
    return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* Whether this call on this file is the one that fails; `errno` then says why. */
static int fails(const char *name, const char *path) {
    if (!call || strcmp(call, name) || atomic_fetch_add(&calls, 1) + 1 != at)
        return 0;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s %ld %s\n", name, at, path);
    int to = syscall(SYS_openat, AT_FDCWD, record, O_WRONLY | O_CREAT | O_APPEND, 0600);
    syscall(SYS_write, to, line, length);
    syscall(SYS_close, to);
    errno = error;
    return 1;
}

static int path_fails(const char *name, int from, const char *path) {
    char whole[2 * PATH_MAX] = "", start[64];
    if (path[0] != '/') {
        snprintf(start, sizeof start, from == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", from);
        ssize_t length = readlink(start, whole, PATH_MAX - 1);
        whole[length > 0 ? length : 0] = '/';
        whole[length > 0 ? length + 1 : 0] = 0;
    }
    strncat(whole, path, PATH_MAX - 1);
    return is_below(whole) && fails(name, whole);
}

static int file_fails(const char *name, int file) {
    char link[64], path[PATH_MAX] = "";
    if (!call || strcmp(call, name))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return is_below(path) && fails(name, path);
}

#define OPEN(name)                                                                                  \
    int name(const char *path, int flags, ...) {                                                    \
        va_list rest;                                                                               \
        va_start(rest, flags);                                                                      \
        mode_t mode = va_arg(rest, int);                                                            \
        va_end(rest);                                                                               \
        static int (*next)(const char *, int, mode_t);                                              \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                  \
        return path_fails("open", AT_FDCWD, path) ? -1 : next(path, flags, mode);                   \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                \
    int name(int from, const char *path, int flags, ...) {                                          \
        va_list rest;                                                                               \
        va_start(rest, flags);                                                                      \
        mode_t mode = va_arg(rest, int);                                                            \
        va_end(rest);                                                                               \
        static int (*next)(int, const char *, int, mode_t);                                         \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                  \
        return path_fails("open", from, path) ? -1 : next(from, path, flags, mode);                 \
    }
OPENAT(openat)
OPENAT(openat64)

/* A call on an open file: its kind, what it returns, its name, its parameters, and what it is given. */
#define ON_FILE(kind, type, name, parameters, ...)                                                  \
    type name parameters {                                                                          \
        static type(*next) parameters;                                                              \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                  \
        return file_fails(kind, file) ? -1 : next(__VA_ARGS__);                                     \
    }
ON_FILE("read", ssize_t, read, (int file, void *to, size_t size), file, to, size)
ON_FILE("read", ssize_t, pread64, (int file, void *to, size_t size, off64_t from), file, to, size, from)
ON_FILE("read", ssize_t, readv, (int file, const struct iovec *to, int count), file, to, count)
ON_FILE("write", ssize_t, write, (int file, const void *from, size_t size), file, from, size)
ON_FILE("write", ssize_t, pwrite64, (int file, const void *from, size_t size, off64_t to), file, from, size, to)
ON_FILE("write", ssize_t, writev, (int file, const struct iovec *from, int count), file, from, count)
ON_FILE("sync", int, fsync, (int file), file)
ON_FILE("sync", int, fdatasync, (int file), file)
ON_FILE("truncate", int, ftruncate, (int file, off_t size), file, size)
ON_FILE("truncate", int, ftruncate64, (int file, off64_t size), file, size)
ON_FILE("close", int, close, (int file), file)

ssize_t copy_file_range(int from, off64_t *start, int file, off64_t *to, size_t size, unsigned flags) {
    static ssize_t (*next)(int, off64_t *, int, off64_t *, size_t, unsigned);
    if (!next) next = dlsym(RTLD_NEXT, "copy_file_range");
    return file_fails("write", file) ? -1 : next(from, start, file, to, size, flags);
}

int rename(const char *from, const char *to) {
    static int (*next)(const char *, const char *);
    if (!next) next = dlsym(RTLD_NEXT, "rename");
    return path_fails("rename", AT_FDCWD, to) ? -1 : next(from, to);
}

int renameat(int place, const char *from, int other, const char *to) {
    static int (*next)(int, const char *, int, const char *);
    if (!next) next = dlsym(RTLD_NEXT, "renameat");
    return path_fails("rename", other, to) ? -1 : next(place, from, other, to);
}

#define MAP(name)                                                                                   \
    void *name(void *place, size_t size, int how, int flags, int file, off_t from) {                \
        static void *(*next)(void *, size_t, int, int, int, off_t);                                 \
        if (!next) next = dlsym(RTLD_NEXT, #name);                                                  \
        int failed = file >= 0 && file_fails("map", file);                                          \
        return failed ? MAP_FAILED : next(place, size, how, flags, file, from);                     \
    }
MAP(mmap)
MAP(mmap64)

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with) {
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next) next = dlsym(RTLD_NEXT, "pthread_create");
    return fails("thread", "") ? errno : next(thread, how, run, with);
}
