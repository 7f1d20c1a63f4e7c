/* The bundled model `tiny`: the places in which it is looked for, and the message for when it is in none.
 *
 * It is searched for relative to the executable, then relative to the library (a different place if another
 * program uses linnet), then in the configured data directory, so that the working directory does not matter,
 * and a tree that was moved or staged has a model of its own. */
#include "../base/os.h"
#include "directory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder in which the build installs its data: the absolute path, and the paths relative to the
 * directories of the command and of the library. Defaults for builds that do not use CMakeLists.txt. */
#ifndef LN_DATADIR
#define LN_DATADIR       "/usr/local/share"
#define LN_DATA_FROM_BIN "../share"
#define LN_DATA_FROM_LIB "../share"
#endif

/* Resolves `dir` to path[LN_PATH_MAX]. *found: it is a directory that contains `needs`. */
static ln_status look_in(char *path, const char *dir, const char *needs, bool *found, ln_error *err) {
    char file[LN_PATH_MAX];
    LN_TRY(ln_look_dir(dir, found, err));
    if (!*found) return LN_OK;
    if (!realpath(dir, path)) return ln_cannot_reach(dir, errno, err);
    LN_TRY(ln_path_join(file, path, needs, err));
    return ln_look(file, found, err);
}

/* Writes the i-th place of the bundled model relative to the directory of a program or library to
 * dir[LN_PATH_MAX]: in a build tree, in an installed tree, and in two common layouts, the last of which is
 * for lib/x86_64-linux-gnu. False: the path is too long. */
enum { N_BESIDE = 4 };
static bool place_beside(char *dir, const char *binary, const char *data, int i) {
    const char *const ways[N_BESIDE] = {"..", data, "../share", "../../share"};
    const char *slash = strrchr(binary, '/');
    if (!slash) return false;
    int n = snprintf(dir, LN_PATH_MAX, "%.*s/%s%s/models/tiny", (int)(slash - binary), binary, ways[i],
                     i ? "/linnet" : "");
    return n > 0 && n < LN_PATH_MAX;
}

/* Searches for the bundled model in these places. A location that cannot be accessed does not stop the
 * search; the first such failure is returned if the model is not found. */
static ln_status look_beside(char *path, const char *binary, const char *data, const char *needs, bool *found,
                             ln_error *err) {
    char dir[LN_PATH_MAX];
    ln_status first = LN_OK;
    *found = false;
    for (int i = 0; i < N_BESIDE; i++) {
        ln_error why = {0};
        ln_status st = place_beside(dir, binary, data, i) ? look_in(path, dir, needs, found, &why) : LN_OK;
        if (st == LN_OK && *found) return LN_OK;
        if (st != LN_OK && first == LN_OK) first = ln_fail(err, st, "%s", why.message);
        *found = false;
    }
    return first;
}

static const char in_library[1] = ""; /* its address tells in which library this file is linked */

/* Appends a path without its "..", each with the name before it, unless the list has that path already. */
static void add_place_name(ln_str *list, const char *path) {
    char plain[LN_PATH_MAX], shown[LN_PATH_TEXT + 2];
    size_t n = 0;
    while (*path && n < sizeof plain - 1) {
        size_t len = *path == '/' ? 1 + strcspn(path + 1, "/") : strcspn(path, "/");
        if (len == 3 && strncmp(path, "/..", 3) == 0) {
            while (n > 0 && plain[--n] != '/') continue;
        } else {
            len = LN_MIN(len, sizeof plain - 1 - n);
            memcpy(plain + n, path, len);
            n += len;
        }
        path += len;
    }
    plain[n] = '\0';
    ln_path_text(shown, plain);
    size_t bytes = strlen(shown);
    for (const char *at = list->data; at && (at = strstr(at, shown)); at += bytes)
        if ((at == list->data || at[-1] == ' ') && (at[bytes] == ',' || at[bytes] == '\0')) return;
    ln_str_addf(list, "%s%s", list->len ? ", " : "", shown);
}

/* The message for a missing bundled model: all places in which it was looked for. */
ln_status ln_bundled_missing(ln_error *err) {
    char exe[LN_PATH_MAX], dir[LN_PATH_MAX];
    Dl_info here;
    ln_str list = {0};
    ln_os_program(exe, LN_PATH_MAX);
    bool library = dladdr(in_library, &here) && here.dli_fname && here.dli_fname[0] == '/';
    for (int i = 0; i < N_BESIDE; i++)
        if (place_beside(dir, exe, LN_DATA_FROM_BIN, i)) add_place_name(&list, dir);
    for (int i = 0; library && i < N_BESIDE; i++)
        if (place_beside(dir, here.dli_fname, LN_DATA_FROM_LIB, i)) add_place_name(&list, dir);
    add_place_name(&list, LN_DATADIR "/linnet/models/tiny");
    ln_status st = list.failed ? LN_OOM(err, "a message")
                               : ln_fail(err, LN_EIO,
                                         "tiny: the bundled model is in none of its places (%s); reinstall "
                                         "linnet, or name a model",
                                         list.data);
    ln_str_free(&list);
    return st;
}

/* Searches relative to the executable, then relative to the library (a different place if another program
 * uses linnet), then in the configured data directory: a tree that was moved or staged has a model of its
 * own. A location that cannot be accessed does not stop the search; the failure is returned if the model is
 * not found anywhere. */
ln_status ln_bundled_find(char *path, const char *needs, bool *found, ln_error *err) {
    char exe[LN_PATH_MAX];
    Dl_info here;
    ln_error why = {0};
    ln_os_program(exe, LN_PATH_MAX);
    ln_status beside = look_beside(path, exe, LN_DATA_FROM_BIN, needs, found, &why);
    if (*found) return LN_OK;
    if (dladdr(in_library, &here) && here.dli_fname) {
        ln_status st =
            look_beside(path, here.dli_fname, LN_DATA_FROM_LIB, needs, found, beside == LN_OK ? &why : NULL);
        if (*found) return LN_OK;
        if (beside == LN_OK) beside = st;
    }
    LN_TRY(look_in(path, LN_DATADIR "/linnet/models/tiny", needs, found, err));
    if (*found || beside == LN_OK) return LN_OK;
    return ln_fail(err, beside, "%s", why.message);
}
