/* A libcuda.so.1 of a driver that is too old for the CUDA plug-in (test_cuda_driver): it has a version, and
 * nothing else works. */
#include <stddef.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 801, VERSION = 12040 };

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetProcAddress(const char *name, void **out, int version, unsigned long flags);

int cuInit(unsigned flags) { return (void)flags, SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = VERSION, SUCCESS; }

static int unsupported(void) { return NOT_SUPPORTED; }
int cuGetProcAddress(const char *name, void **out, int version, unsigned long flags) {
    int (*f)(void) = unsupported;
    int (*init)(unsigned) = cuInit;
    int (*get_version)(int *) = cuDriverGetVersion;
    (void)version, (void)flags;
    memcpy(out, &f, sizeof *out);
    if (strcmp(name, "cuInit") == 0) memcpy(out, &init, sizeof *out);
    if (strcmp(name, "cuDriverGetVersion") == 0) memcpy(out, &get_version, sizeof *out);
    return SUCCESS;
}
