/* Devices by name: those of this library, and plug-ins.
 *
 * A plug-in is looked for in two folders that belong to the installation; no environment variable
 * and no working directory has a say in which code is loaded. It stays loaded until the process ends. Its
 * table of functions is copied, so that functions that it does not know are NULL. */
#include "../base/os.h"
#include "registry.h"

#include "../../include/linnet.h"
#include "../base/file.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifndef LN_NO_PLUGINS
#include <dlfcn.h>
#endif

/* The folder of installed libraries, and how the names of shared ones end. Defaults for builds that do not
 * use CMakeLists.txt. */
#ifndef LN_LIBDIR
#define LN_LIBDIR "/usr/local/lib"
#endif
#ifndef LN_PLUGIN_SUFFIX
#define LN_PLUGIN_SUFFIX ".so"
#endif
/* The package from PyPI that has the library of MLX for which the plug-in is built (cmake/mlx.cmake). */
#ifndef LN_MLX_WHEEL
#define LN_MLX_WHEEL "mlx"
#endif

static const ln_device_ops *const built_in[] = {&ln_device_cpu, &ln_device_ref, &ln_device_ref_double};

#ifdef LN_NO_PLUGINS
ln_status ln_device_load(const char *path, const ln_device_ops **out, ln_error *err) {
    *out = NULL;
    return ln_fail(err, LN_EDEVICE, "%s: this program is linked statically and loads no devices", path);
}
static ln_status find_plugin(const char *name, const ln_device_ops **out, ln_error *err) {
    *out = NULL;
    return ln_fail(err, LN_EDEVICE,
                   "device %s: this program is linked statically and loads no devices; use "
                   "ln_options.device = LN_DEVICE_CPU",
                   name);
}
static bool has_plugin(const char *name) { return (void)name, false; }
#else

/* The functions that every device has. */
static const struct {
    const char *name;
    size_t at;
} required[] = {
#define REQUIRED(f) \
    { #f, offsetof(ln_device_ops, f) }
    REQUIRED(open),        REQUIRED(close),         REQUIRED(describe), REQUIRED(queue_open),
    REQUIRED(queue_close), REQUIRED(alloc),         REQUIRED(free),     REQUIRED(weight_size),
    REQUIRED(upload),      REQUIRED(copy),          REQUIRED(kv_bytes), REQUIRED(page),
    REQUIRED(lower),       REQUIRED(scratch_bytes), REQUIRED(prepare),  REQUIRED(release),
    REQUIRED(submit),      REQUIRED(wait),          REQUIRED(value),
#undef REQUIRED
};

/* The loaded plug-ins, which are never unloaded. */
typedef struct plugin {
    struct plugin *next;
    ln_device_ops ops;
    char *path;
} plugin;
static plugin *plugins;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { (void)pthread_mutex_lock(&lock); }
static void after_fork(void) { (void)pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static void host_log(int level, const char *line) { ln_log((ln_level)level, "%s", line); }
static const ln_device_host host = {
    .abi = LN_DEVICE_ABI, .size = sizeof host, .log = host_log, .release = ln_guard_release};

/* Copies the table of a plug-in; functions that it does not know become NULL. */
static ln_status copy_ops(const char *path, const ln_device_ops *from, ln_device_ops *to, ln_error *err) {
    if (!from)
        return ln_fail(err, LN_EDEVICE, "%s: the plug-in refuses to work with this version of linnet", path);
    if (from->abi != LN_DEVICE_ABI)
        return ln_fail(err, LN_EDEVICE,
                       "%s: device ABI %u, expected %u; use the plug-in of this version of linnet (%s)", path,
                       from->abi, (unsigned)LN_DEVICE_ABI, ln_version());
    *to = (ln_device_ops){0};
    memcpy(to, from, LN_MIN((size_t)from->size, sizeof *to));
    for (size_t i = 0; i < LN_COUNT(required); i++) {
        void (*function)(void);
        memcpy(&function, (const char *)to + required[i].at, sizeof function);
        if (!function)
            return ln_fail(err, LN_EDEVICE,
                           "%s: the device lacks the function `%s`; use the plug-in of this version of "
                           "linnet (%s)",
                           path, required[i].name, ln_version());
    }
    if (!to->name || !to->name[0]) return ln_fail(err, LN_EDEVICE, "%s: the device has no name", path);
    to->size = sizeof *to;
    return LN_OK;
}

static ln_status load_new(const char *path, plugin *p, ln_error *err) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return ln_fail(err, LN_EDEVICE, "the device cannot be loaded: %s", dlerror());
    void *symbol = dlsym(library, "ln_device_plugin");
    ln_device_plugin_fn *entry;
    memcpy(&entry, &symbol, sizeof entry);
    const ln_status st =
        symbol ? copy_ops(path, entry(&host), &p->ops, err)
               : ln_fail(err, LN_EDEVICE, "%s: no device of linnet: it exports no entry function", path);
    if (st != LN_OK) (void)dlclose(library);
    return st;
}

static ln_status load_locked(const char *path, const ln_device_ops **out, ln_error *err) {
    for (plugin *p = plugins; p; p = p->next)
        if (strcmp(p->path, path) == 0) {
            *out = &p->ops;
            return LN_OK;
        }
    plugin *p = ln_zalloc(1, sizeof *p);
    if (p) p->path = ln_strndup(path, strlen(path));
    ln_status st = p && p->path ? load_new(path, p, err) : LN_OOM(err, "a device");
    if (st != LN_OK) {
        if (p) ln_free(p->path);
        ln_free(p);
        return st;
    }
    p->next = plugins;
    plugins = p;
    *out = &p->ops;
    return LN_OK;
}

ln_status ln_device_load(const char *path, const ln_device_ops **out, ln_error *err) {
    *out = NULL;
    (void)pthread_mutex_lock(&lock);
    const ln_status st = load_locked(path, out, err);
    (void)pthread_mutex_unlock(&lock);
    return st;
}

enum { PATH_BYTES = 4096, PLACES = 4 };
/* The folder of the library or program that this code is in; empty: unknown. */
static void own_folder(char folder[PATH_BYTES]) {
    Dl_info here;
    folder[0] = 0;
    ln_os_program(folder, PATH_BYTES);
    if (dladdr(built_in, &here) && here.dli_fname && here.dli_fname[0] == '/')
        (void)snprintf(folder, PATH_BYTES, "%s", here.dli_fname);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    else folder[0] = 0;
}

/* The files that a plug-in may be in: next to this library or program, in the folder lib that lies next to
 * the program's (an installation that was moved, a wheel), in the folder of installed libraries, or in
 * the folder linnet of that one, as in Debian, because a plug-in is not a library to link with. */
static void plugin_paths(const char *name, char path[PLACES][PATH_BYTES]) {
    char folder[PATH_BYTES];
    own_folder(folder);
    path[0][0] = path[1][0] = 0;
    if (folder[0] && strlen(folder) + strlen(name) + 40 < PATH_BYTES) {
        const int n = (int)strlen(folder);
        (void)snprintf(path[0], PATH_BYTES, "%.*s/liblinnet-%s" LN_PLUGIN_SUFFIX, n, folder, name);
        if (n > 4 && strcmp(folder + n - 4, "/bin") == 0)
            (void)snprintf(path[1], PATH_BYTES, "%.*slib/liblinnet-%s" LN_PLUGIN_SUFFIX, n - 3, folder, name);
    }
    (void)snprintf(path[2], PATH_BYTES, "%s/liblinnet-%s" LN_PLUGIN_SUFFIX, LN_LIBDIR, name);
    (void)snprintf(path[3], PATH_BYTES, "%s/linnet/liblinnet-%s" LN_PLUGIN_SUFFIX, LN_LIBDIR, name);
}

static bool has_plugin(const char *name) {
    char path[PLACES][PATH_BYTES];
    bool found = false;
    plugin_paths(name, path);
    for (int i = 0; i < PLACES; i++) found = found || (path[i][0] && access(path[i], F_OK) == 0);
    return found;
}

/* How to get what the MLX device needs. */
static const char mlx_advice[] =
    "tools/mlx_wheel build (pip install " LN_MLX_WHEEL "), then make (docs/mlx.md)";

/* Loads a plug-in; says of MLX's how to get a library that it does not find or that is another version. */
static ln_status load_found(const char *name, const char *path, const ln_device_ops **out, ln_error *err) {
    ln_error why = {0};
    const ln_status st = ln_device_load(path, out, &why);
    if (st == LN_OK) return LN_OK;
    if (strcmp(name, "mlx") != 0 || st != LN_EDEVICE) return ln_fail(err, st, "%s", why.message);
    return ln_fail(err, st, "device mlx: %s; the plug-in needs the version of MLX that it was built for: %s",
                   why.message, mlx_advice);
}

static ln_status find_plugin(const char *name, const ln_device_ops **out, ln_error *err) {
    char path[PLACES][PATH_BYTES];
    if (strchr(name, '/') || strlen(name) >= sizeof(((ln_device_entry *)0)->name))
        return ln_fail(err, LN_EDEVICE, "device %s: expected a name of at most 31 letters", name);
    plugin_paths(name, path);
    for (int i = 0; i < PLACES; i++) {
        if (!path[i][0] || access(path[i], F_OK) != 0) continue;
        LN_TRY(load_found(name, path[i], out, err));
        if (strcmp((*out)->name, name) == 0) return LN_OK;
        ln_status st =
            ln_fail(err, LN_EDEVICE, "%s: it has the device %s, expected %s", path[i], (*out)->name, name);
        *out = NULL;
        return st;
    }
    return ln_fail(err, LN_EDEVICE,
                   "device %s: found neither %s nor %s; install that file%s%s, or use ln_options.device = "
                   "LN_DEVICE_CPU",
                   name, path[0][0] ? path[0] : "a plug-in next to this program", path[2],
                   strcmp(name, "mlx") == 0 ? ": " : "", strcmp(name, "mlx") == 0 ? mlx_advice : "");
}
#endif

ln_status ln_device_find(const char *name, const ln_device_ops **out, ln_error *err) {
    *out = NULL;
    for (size_t i = 0; i < LN_COUNT(built_in); i++)
        if (strcmp(built_in[i]->name, name) == 0) {
            *out = built_in[i];
            return LN_OK;
        }
    return find_plugin(name, out, err);
}

size_t ln_device_list(ln_device_entry *entries, size_t cap) {
    static const char *const names[] = {"cpu", "ref", "cuda", "mlx"};
    const size_t n = LN_MIN(cap, LN_COUNT(names));
    for (size_t i = 0; i < n; i++) {
        const ln_device_ops *ops;
        const ln_dev_options opt = {.size = sizeof opt, .n_threads = 1};
        ln_dev *dev = NULL;
        ln_error err = {0};
        ln_status st = ln_device_find(names[i], &ops, &err);
        entries[i] = (ln_device_entry){.info.size = sizeof entries[i].info};
        if (st == LN_OK) st = ops->open(&dev, &opt, &err);
        if (st == LN_OK) {
            ops->describe(dev, &entries[i].info);
            ops->close(&dev);
        }
        entries[i].available = st == LN_OK;
        (void)snprintf(entries[i].name, sizeof entries[i].name, "%s", names[i]);
        (void)snprintf(entries[i].reason, sizeof entries[i].reason, "%s", st == LN_OK ? "" : err.message);
    }
    return n;
}

/* ---- LN_DEVICE_AUTO ---- */

static pthread_once_t chosen_once = PTHREAD_ONCE_INIT;
static ln_device chosen = LN_DEVICE_CPU, told = LN_DEVICE_AUTO;
static uint32_t chosen_can = UINT32_MAX; /* the CPU runs everything */

static void choose(void) {
    const ln_device_ops *ops;
    const ln_dev_options opt = {.size = sizeof opt, .n_threads = 1};
    ln_dev *dev = NULL;
    ln_dev_info info = {.size = sizeof info};
    ln_error err = {0};
    if (!has_plugin("cuda")) return;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && !*visible) { /* the driver would be loaded for nothing, and it maps gigabytes */
        ln_log(LN_LOG_INFO, "device auto: cpu is used, because CUDA_VISIBLE_DEVICES is empty");
        return;
    }
    ln_status st = ln_device_find("cuda", &ops, &err);
    if (st == LN_OK) st = ops->open(&dev, &opt, &err);
    if (st != LN_OK) {
        ln_log(LN_LOG_INFO, "device auto: cpu is used, because cuda is not available: %s", err.message);
        return;
    }
    ops->describe(dev, &info);
    ops->close(&dev);
    chosen = LN_DEVICE_CUDA;
    chosen_can = info.can;
    ln_log(LN_LOG_INFO, "device auto: cuda is used, %s; ln_options.device = LN_DEVICE_CPU uses the CPU",
           info.isas);
}

ln_device ln_device_auto(uint32_t needs) {
    static const char *const kernels[] = {"adapters",
                                          "gradients",
                                          "experts",
                                          "weights in fp8 or with zero points",
                                          "layers with recurrent state",
                                          "attention to later tokens",
                                          "gradients of experts",
                                          "adapters of experts",
                                          "keys and values of 8 bits",
                                          "gradients of layers with recurrent state"};
    if (told != LN_DEVICE_AUTO && told != LN_DEVICE_CUDA) return told;
    (void)pthread_once(&chosen_once, choose);
    const uint32_t lacks = needs & ~chosen_can;
    if (!lacks) return told == LN_DEVICE_AUTO ? chosen : told;
    ln_log(LN_LOG_INFO, "device auto: cpu is used, because cuda has no kernels for %s",
           kernels[lacks & LN_CAN_ADAPTERS           ? 0
                   : lacks & LN_CAN_GRADIENTS        ? 1
                   : lacks & LN_CAN_EXPERTS          ? 2
                   : lacks & LN_CAN_CODED            ? 3
                   : lacks & LN_CAN_RECURRENT        ? 4
                   : lacks & LN_CAN_BOTH_WAYS        ? 5
                   : lacks & LN_CAN_EXPERT_GRADIENTS ? 6
                   : lacks & LN_CAN_EXPERT_ADAPTERS  ? 7
                   : lacks & LN_CAN_KV_Q8            ? 8
                                                     : 9]);
    return LN_DEVICE_CPU;
}

void ln_device_auto_set(ln_device device) { told = device; }
