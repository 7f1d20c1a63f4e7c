/* The open devices of the process, counted.
 *
 * The lock is held while a device is opened, so that two engines that start at once share one. fork waits for
 * it: opening takes no longer than starting the device, and calls no function of the program's. */
#include "registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct open_device {
    struct open_device *next;
    const ln_device_ops *ops;
    ln_dev_options opt;
    char isa[16]; /* LINNET_CPU when it was opened, which decides its kernels */
    ln_dev *dev;
    int n_users;
} open_device;

static open_device *devices;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { (void)pthread_mutex_lock(&lock); }
static void after_fork(void) { (void)pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* The ISA level that the environment asks for, for debugging; cut where it is no level's name. */
static void wanted_isa(char out[16]) {
    const char *isa = getenv("LINNET_CPU");
    (void)snprintf(out, 16, "%s", isa ? isa : "");
}

static open_device *find_open(const ln_device_ops *ops, const ln_dev_options *opt) {
    open_device *d = devices;
    char isa[16];
    wanted_isa(isa);
    while (d && (strcmp(d->isa, isa) != 0 || d->ops != ops || d->opt.ordinal != opt->ordinal ||
                 d->opt.by_rank != opt->by_rank || d->opt.n_threads != opt->n_threads ||
                 d->opt.mlock != opt->mlock || d->opt.pool != opt->pool))
        d = d->next;
    return d;
}

static ln_status open_new(const ln_device_ops *ops, const ln_dev_options *opt, open_device **out,
                          ln_error *err) {
    open_device *d = ln_zalloc(1, sizeof *d);
    if (!d) return LN_OOM(err, "a device");
    const ln_status st = ops->open(&d->dev, opt, err);
    if (st != LN_OK) {
        ln_free(d);
        return st;
    }
    wanted_isa(d->isa);
    d->ops = ops;
    d->opt = *opt;
    d->next = devices;
    devices = *out = d;
    return LN_OK;
}

ln_status ln_device_acquire(const ln_device_ops *ops, const ln_dev_options *opt, ln_dev **out,
                            ln_error *err) {
    *out = NULL;
    (void)pthread_mutex_lock(&lock);
    open_device *d = find_open(ops, opt);
    const ln_status st = d ? LN_OK : open_new(ops, opt, &d, err);
    if (st == LN_OK) d->n_users++, *out = d->dev;
    (void)pthread_mutex_unlock(&lock);
    return st;
}

void ln_device_release(ln_dev **dev) {
    if (!*dev) return;
    (void)pthread_mutex_lock(&lock);
    open_device **at = &devices;
    while (*at && (*at)->dev != *dev) at = &(*at)->next;
    open_device *d = *at;
    if (d && --d->n_users == 0) {
        *at = d->next;
        d->ops->close(&d->dev);
        ln_free(d);
    }
    (void)pthread_mutex_unlock(&lock);
    *dev = NULL;
}
