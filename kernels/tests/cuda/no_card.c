// CUDA's driver and its compiler for a machine without a card, as one library.
//
// Memory is the host's, and every operation on it is done at once. A program that is to be compiled is
// written to the folder CUDA_PROGRAMS; none is compiled, and a launch runs nothing. What a program computes
// is therefore whatever its memory held. The device says that it is an H100. After as many launches as
// CUDA_LAUNCHES says, every further one fails as on a card that lost its context.
//
// With CUDA_READS=plausible, what is read is what lets training go on: zeros for losses and norms, squares for
// the check of a device, and memory as it lies for more than 64 KiB. The time that is left is the host's.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Status;
typedef unsigned long long Pointer;

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 101, LAUNCH_FAILED = 719 };

// The numbers of attributes are those of CUdevice_attribute.
enum {
    THREADS_PER_BLOCK = 1,
    BLOCK_X = 2,
    BLOCK_Y = 3,
    BLOCK_Z = 4,
    GRID_X = 5,
    GRID_Y = 6,
    GRID_Z = 7,
    WARP_SIZE = 10,
    MULTIPROCESSORS = 16,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    SHARED_MEMORY_OF_BLOCK = 97
};

static const int SHARED_MEMORY = 227 * 1024;
static const size_t MEMORY = (size_t)80 << 30;

Status cuInit(unsigned flags) { return SUCCESS; }

Status cuDriverGetVersion(int *version) {
    *version = 12090;
    return SUCCESS;
}

Status cuDeviceGetCount(int *count) {
    *count = 1;
    return SUCCESS;
}

Status cuDeviceGet(int *device, int index) {
    *device = index;
    return index == 0 ? SUCCESS : NO_DEVICE;
}

Status cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "no card");
    return SUCCESS;
}

Status cuDeviceGetUuid_v2(char *uuid, int device) {
    memset(uuid, 0, 16);
    return SUCCESS;
}

Status cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = MEMORY;
    return SUCCESS;
}

Status cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *free_bytes = *total = MEMORY;
    return SUCCESS;
}

Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case THREADS_PER_BLOCK:
    case BLOCK_X:
    case BLOCK_Y:
        *value = 1024;
        break;
    case BLOCK_Z:
        *value = 64;
        break;
    case GRID_X:
        *value = 2147483647;
        break;
    case GRID_Y:
    case GRID_Z:
        *value = 65535;
        break;
    case WARP_SIZE:
        *value = 32;
        break;
    case MULTIPROCESSORS:
        *value = 132;
        break;
    case CAPABILITY_MAJOR:
        *value = 9;
        break;
    case CAPABILITY_MINOR:
        *value = 0;
        break;
    case SHARED_MEMORY_OF_BLOCK:
        *value = SHARED_MEMORY;
        break;
    default:
        *value = 1;
    }
    return SUCCESS;
}

// Contexts, streams, events, modules and functions: one of each, which nothing looks into.

static Status handle(void **to) {
    *to = to;
    return SUCCESS;
}

Status cuDevicePrimaryCtxRetain(void **context, int device) { return handle(context); }
Status cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
Status cuCtxSetCurrent(void *context) { return SUCCESS; }
Status cuCtxGetCurrent(void **context) { return handle(context); }
Status cuCtxSynchronize(void) { return SUCCESS; }
Status cuStreamCreate(void **stream, unsigned flags) { return handle(stream); }
Status cuStreamSynchronize(void *stream) { return SUCCESS; }
Status cuStreamDestroy_v2(void *stream) { return SUCCESS; }
Status cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return SUCCESS; }
Status cuEventCreate(void **event, unsigned flags) { return handle(event); }
Status cuEventRecord(void *event, void *stream) { return SUCCESS; }
Status cuEventSynchronize(void *event) { return SUCCESS; }
Status cuEventDestroy_v2(void *event) { return SUCCESS; }
Status cuModuleLoadData(void **module, const void *program) { return handle(module); }
Status cuModuleUnload(void *module) { return SUCCESS; }

Status cuModuleGetFunction(void **function, void *module, const char *name) {
    return handle(function);
}

Status cuFuncSetAttribute(void *function, int attribute, int value) {
    return value <= SHARED_MEMORY ? SUCCESS : INVALID_VALUE;
}

Status cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = 0;
    return SUCCESS;
}

// Memory.

static Status allocate(Pointer *pointer, size_t bytes) {
    void *found;
    if (posix_memalign(&found, 512, bytes ? bytes : 512)) {
        return OUT_OF_MEMORY;
    }
    memset(found, 0, bytes);
    *pointer = (Pointer)found;
    return SUCCESS;
}

static Status release(Pointer pointer) {
    free((void *)pointer);
    return SUCCESS;
}

static Status copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return SUCCESS;
}

Status cuMemAlloc_v2(Pointer *pointer, size_t bytes) { return allocate(pointer, bytes); }
Status cuMemFree_v2(Pointer pointer) { return release(pointer); }
Status cuMemFreeAsync(Pointer pointer, void *stream) { return release(pointer); }
Status cuMemFreeHost(void *pointer) { return release((Pointer)pointer); }

Status cuMemAllocAsync(Pointer *pointer, size_t bytes, void *stream) {
    return allocate(pointer, bytes);
}

Status cuMemAllocHost_v2(void **pointer, size_t bytes) {
    return allocate((Pointer *)pointer, bytes);
}

Status cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *stream) {
    return copy((void *)to, from, bytes);
}

static int is_plausible(void) {
    const char *reads = getenv("CUDA_READS");
    return reads != NULL && strcmp(reads, "plausible") == 0;
}

Status cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *stream) {
    if (is_plausible() && bytes == 64 * sizeof(float)) {
        for (int number = 1; number <= 64; number++) {
            ((float *)to)[number - 1] = number * number;
        }
        return SUCCESS;
    }
    if (is_plausible() && bytes <= 64 * 1024) {
        memset(to, 0, bytes);
        return SUCCESS;
    }
    return copy(to, (const void *)from, bytes);
}

Status cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) {
    return copy((void *)to, (const void *)from, bytes);
}

// CUDA_MEMCPY2D.
enum { HOST = 1 };

typedef struct {
    size_t x, y;
    int kind;
    void *host;
    Pointer device;
    void *array;
    size_t pitch;
} Side;

typedef struct {
    Side from, to;
    size_t width, height;
} Copy2d;

Status cuMemcpy2DAsync_v2(const Copy2d *what, void *stream) {
    const char *from = what->from.kind == HOST ? what->from.host : (void *)what->from.device;
    char *to = what->to.kind == HOST ? what->to.host : (void *)what->to.device;
    for (size_t row = 0; row < what->height; row++) {
        memcpy(to + row * what->to.pitch, from + row * what->from.pitch, what->width);
    }
    return SUCCESS;
}

static int fails(void) {
    static long launches;
    const char *most = getenv("CUDA_LAUNCHES");
    return most != NULL && launches++ >= atol(most);
}

// What a card refuses, this refuses.
Status cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x,
                      unsigned y, unsigned z, unsigned shared, void *stream, void **arguments,
                      void **extra) {
    if (fails()) {
        return LAUNCH_FAILED;
    }
    int blocks = grid_x > 0 && grid_y > 0 && grid_z > 0 && grid_y <= 65535 && grid_z <= 65535;
    int threads = x > 0 && y > 0 && z > 0 && z <= 64 && (unsigned long long)x * y * z <= 1024;
    return blocks && threads && shared <= (unsigned)SHARED_MEMORY ? SUCCESS : INVALID_VALUE;
}

Status cuGetErrorName(Status status, const char **name) {
    *name = "error";
    return SUCCESS;
}

Status cuGetErrorString(Status status, const char **text) {
    *text = "refused without a card";
    return SUCCESS;
}

// The compiler.

static int programs;

Status nvrtcVersion(int *major, int *minor) {
    *major = 12;
    *minor = 9;
    return SUCCESS;
}

Status nvrtcCreateProgram(void **program, const char *source, const char *name, int headers,
                          const char *const *texts, const char *const *names) {
    char path[4096];
    const char *folder = getenv("CUDA_PROGRAMS");
    if (folder == NULL) {
        return INVALID_VALUE;
    }
    snprintf(path, sizeof path, "%s/%05d.cu", folder, programs++);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return INVALID_VALUE;
    }
    int written = fputs(source, file) >= 0;
    return fclose(file) == 0 && written ? handle(program) : INVALID_VALUE;
}

Status nvrtcCompileProgram(void *program, int count, const char *const *options) {
    return SUCCESS;
}

Status nvrtcDestroyProgram(void **program) { return SUCCESS; }

static Status no_text(char *text) {
    *text = 0;
    return SUCCESS;
}

static Status no_length(size_t *length) {
    *length = 1;
    return SUCCESS;
}

Status nvrtcGetProgramLogSize(void *program, size_t *length) { return no_length(length); }
Status nvrtcGetProgramLog(void *program, char *text) { return no_text(text); }
Status nvrtcGetPTXSize(void *program, size_t *length) { return no_length(length); }
Status nvrtcGetPTX(void *program, char *text) { return no_text(text); }
const char *nvrtcGetErrorString(Status status) { return "no folder in CUDA_PROGRAMS"; }
