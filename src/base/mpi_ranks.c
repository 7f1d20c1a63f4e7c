/* A transport over MPI. The library is loaded at run time, and the functions in use are declared here, so
 * that the binary needs none: Open MPI's libmpi.so.40, whose handles are addresses of objects that it
 * exports, or the standard ABI of MPI 5 (libmpi_abi.so.1, of MPICH 5 for example), whose handles are numbers.
 *
 * No call blocks inside MPI. Collectives are started, then tested until they are complete or a rank has
 * failed. A thread of each rank sends a byte to every other one four times a second, whatever the rank
 * computes, and notes when it has last heard of each: a rank that has ended, or whose process is stopped, is
 * silent, and after SILENCE seconds the group has failed. One lock serialises all calls of the library
 * (MPI_THREAD_SERIALIZED). */
#include "mpi_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SILENCE 4.0 /* seconds */
#define GRACE   1.5 /* seconds from a failure to the end of the process */
enum { BEAT_MS = 250, BEAT_TAG = 1, PIECE = 64 << 20, NAME_BYTES = 256 };

typedef void *mpi_handle; /* a communicator, a type, a request, an error handler */

/* Values of the standard ABI (MPI 5.0, appendix A). serialized: MPI_THREAD_SERIALIZED, there and of Open MPI.
 */
static const uintptr_t abi_world = 0x101, abi_byte = 0x247, abi_errors_return = 0x143;
static const int abi_serialized = 2048, open_mpi_serialized = 2;
static const char open_mpi[] = "libmpi.so.40", standard_abi[] = "libmpi_abi.so.1";

/* The functions in use, as the MPI standard declares them; statuses are not asked for. */
#define MPI_FUNCTIONS(X)                                                                              \
    X(Init_thread, (int *, char ***, int, int *))                                                     \
    X(Finalize, (void))                                                                               \
    X(Comm_rank, (mpi_handle, int *))                                                                 \
    X(Comm_size, (mpi_handle, int *))                                                                 \
    X(Comm_set_errhandler, (mpi_handle, mpi_handle))                                                  \
    X(Get_processor_name, (char *, int *))                                                            \
    X(Error_string, (int, char *, int *))                                                             \
    X(Iallgather, (const void *, int, mpi_handle, void *, int, mpi_handle, mpi_handle, mpi_handle *)) \
    X(Ibcast, (void *, int, mpi_handle, int, mpi_handle, mpi_handle *))                               \
    X(Isend, (const void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *))                     \
    X(Irecv, (void *, int, mpi_handle, int, int, mpi_handle, mpi_handle *))                           \
    X(Cancel, (mpi_handle *))                                                                         \
    X(Request_free, (mpi_handle *))                                                                   \
    X(Test, (mpi_handle *, int *, void *))
typedef struct mpi_functions {
#define X(name, args) int(*name) args;
    MPI_FUNCTIONS(X)
#undef X
} mpi_functions;

/* What a rank knows of another one. */
typedef struct peer {
    char host[NAME_BYTES];
    mpi_handle sent, received; /* beats that are under way */
    bool sends, receives;
    char out, in;
    double heard; /* when the last beat came */
} peer;

typedef struct mpi_ranks {
    ln_transport t; /* first: what the functions are passed */
    void *library;
    mpi_functions f;
    mpi_handle world, byte, errors_return;
    int serialized;
    peer *peers; /* [size] */
    pthread_mutex_t lock;
    pthread_t beating;
    bool beats, stop; /* the thread runs; it is to end */
} mpi_ranks;

/* ---- the launcher ---- */

static int number_of(const char *name, int otherwise) {
    const char *text = getenv(name);
    int64_t n;
    return text && ln_parse_i64(text, strlen(text), &n) && n >= 0 && n < 1 << 20 ? (int)n : otherwise;
}

static bool has_standard_abi(void) {
    void *library = dlopen(standard_abi, RTLD_LAZY | RTLD_LOCAL);
    if (library) (void)dlclose(library);
    return library != NULL;
}

int ln_mpi_local_rank(void) {
    const int mpich = number_of("MPI_LOCALRANKID", 0);
    return number_of("OMPI_COMM_WORLD_LOCAL_RANK", number_of("SLURM_LOCALID", mpich));
}

ln_launch ln_mpi_launch(void) {
    ln_launch l = {number_of("OMPI_COMM_WORLD_RANK", -1), number_of("OMPI_COMM_WORLD_SIZE", 0), false};
    if (l.size == 0 && getenv("PMIX_RANK") && getenv("SLURM_NTASKS")) /* srun --mpi=pmix */
        l = (ln_launch){number_of("PMIX_RANK", -1),
                        number_of("SLURM_STEP_NUM_TASKS", number_of("SLURM_NTASKS", 0)), true};
    if (l.size == 0 && number_of("PMI_SIZE", 0) > 1 && has_standard_abi()) /* MPICH, or srun --mpi=pmi2 */
        l = (ln_launch){number_of("PMI_RANK", -1), number_of("PMI_SIZE", 0), getenv("SLURM_NTASKS") != NULL};
    return l;
}

int ln_mpi_others_alone(void) {
    if (ln_mpi_launch().size) return 0;
    /* A batch script of Slurm has SLURM_NTASKS, too, but is no step that srun has started. */
    const int slurm = number_of("SLURM_STEP_NUM_TASKS", 0), mpich = number_of("PMI_SIZE", 0);
    if (mpich > 1) return number_of("PMI_RANK", 1) == 0 ? mpich : 0;
    return slurm > 1 && number_of("SLURM_PROCID", 1) == 0 ? slurm : 0;
}

/* ---- failures ---- */

/* Keeps a failure, the first alone, with the lock held. */
static ln_status fail(mpi_ranks *m, const char *what, int code) {
    char text[1024] = "";
    int n;
    if (m->t.failed.code == LN_OK) {
        (void)m->f.Error_string(code, text, &n);
        (void)ln_fail(&m->t.failed, LN_EDEVICE, "rank %d of %d: MPI_%s: %s", m->t.rank, m->t.size, what,
                      text);
    }
    return m->t.failed.code;
}

/* A short wait, longer the longer a call has waited: a follower may be idle for hours. */
static void wait_some(double since) {
    const double waited = ln_now() - since;
    const long ns = waited < 2e-3 ? 0 : waited < 1 ? 50000 : 500000;
    const struct timespec t = {0, ns};
    if (ns) (void)nanosleep(&t, NULL);
}

/* Waits for a request that has been started with status `code`. */
static ln_status finish(mpi_ranks *m, const char *what, int code, mpi_handle *request) {
    const double since = ln_now();
    ln_status st = code ? fail(m, what, code) : m->t.failed.code;
    int done = 0;
    (void)pthread_mutex_unlock(&m->lock);
    while (st == LN_OK && !done) {
        (void)pthread_mutex_lock(&m->lock);
        const int tested = m->f.Test(request, &done, NULL);
        st = tested ? fail(m, what, tested) : m->t.failed.code;
        (void)pthread_mutex_unlock(&m->lock);
        if (st == LN_OK && !done) wait_some(since);
    }
    return st;
}

/* ---- collectives ---- */

static ln_status all_gather(ln_transport *t, const void *mine, size_t bytes, void *all) {
    mpi_ranks *m = (mpi_ranks *)t;
    mpi_handle request = NULL;
    if (bytes > PIECE) {
        (void)ln_fail(&t->failed, LN_EINTERNAL, "an exchange of %zu bytes, at most %d", bytes, PIECE);
        return LN_EINTERNAL;
    }
    (void)pthread_mutex_lock(&m->lock);
    const int code = t->failed.code ? 0
                                    : m->f.Iallgather(mine, (int)bytes, m->byte, all, (int)bytes, m->byte,
                                                      m->world, &request);
    return finish(m, "Iallgather", code, &request);
}

static ln_status broadcast(ln_transport *t, void *data, size_t bytes) {
    mpi_ranks *m = (mpi_ranks *)t;
    ln_status st = LN_OK;
    for (size_t at = 0; at < bytes && st == LN_OK; at += PIECE) {
        mpi_handle request = NULL;
        const int n = (int)LN_MIN(bytes - at, (size_t)PIECE);
        (void)pthread_mutex_lock(&m->lock);
        const int code =
            t->failed.code ? 0 : m->f.Ibcast((char *)data + at, n, m->byte, 0, m->world, &request);
        st = finish(m, "Ibcast", code, &request);
    }
    return st;
}

static ln_status check(ln_transport *t) {
    mpi_ranks *m = (mpi_ranks *)t;
    (void)pthread_mutex_lock(&m->lock);
    const ln_status st = t->failed.code;
    (void)pthread_mutex_unlock(&m->lock);
    return st;
}
/* The beats end with it, and the others notice that. */
static void end_here(ln_transport *t, const ln_error *why) {
    mpi_ranks *m = (mpi_ranks *)t;
    (void)pthread_mutex_lock(&m->lock);
    if (t->failed.code == LN_OK) t->failed = *why;
    (void)pthread_mutex_unlock(&m->lock);
}

/* ---- beats ---- */

/* Sends a beat to a rank, unless one is under way, and takes those that it has sent; with the lock held. */
static void beat(mpi_ranks *m, int rank, double now) {
    peer *p = &m->peers[rank];
    int done = 0;
    if (p->sends && m->f.Test(&p->sent, &done, NULL) == 0 && done) p->sends = false;
    if (!p->sends) p->sends = m->f.Isend(&p->out, 1, m->byte, rank, BEAT_TAG, m->world, &p->sent) == 0;
    for (done = 1; done;) {
        if (!p->receives)
            p->receives = m->f.Irecv(&p->in, 1, m->byte, rank, BEAT_TAG, m->world, &p->received) == 0;
        if (!p->receives || m->f.Test(&p->received, &done, NULL) != 0 || !done) return;
        p->receives = false;
        p->heard = now;
    }
}

static void check_peer(mpi_ranks *m, int rank, double now) {
    const peer *p = &m->peers[rank];
    if (now - p->heard < SILENCE || m->t.failed.code != LN_OK) return;
    (void)ln_fail(&m->t.failed, LN_EDEVICE,
                  "rank %d of %d (host %.60s) has not answered for %.0f s: it has ended or hangs", rank,
                  m->t.size, p->host, SILENCE);
}

/* Ends the process, unless it leaves the group soon after a failure: the command does, when it has reported
 * the error to its caller, and a server does not, which can answer nothing any more. */
static void end_process(mpi_ranks *m) {
    const struct timespec pause = {0, BEAT_MS * 1000000L};
    const double since = ln_now();
    for (bool stop = false; !stop; (void)nanosleep(&pause, NULL)) {
        (void)pthread_mutex_lock(&m->lock);
        stop = m->stop;
        (void)pthread_mutex_unlock(&m->lock);
        if (stop || ln_now() - since < GRACE) continue;
        ln_log(LN_LOG_ERROR, "%s; this rank ends", m->t.failed.message);
        _exit(LN_EDEVICE);
    }
}

static void *beat_all(void *user) {
    mpi_ranks *m = user;
    const struct timespec pause = {0, BEAT_MS * 1000000L};
    double before = ln_now();
    for (bool stop = false; !stop; (void)nanosleep(&pause, NULL)) {
        (void)pthread_mutex_lock(&m->lock);
        const double now = ln_now();
        for (int i = 0; i < m->t.size; i++) {
            if (i == m->t.rank) continue;
            if (now - before > 1) m->peers[i].heard += now - before; /* this process was stopped itself */
            beat(m, i, now);
            check_peer(m, i, now);
        }
        before = now;
        stop = m->stop || m->t.failed.code != LN_OK;
        (void)pthread_mutex_unlock(&m->lock);
    }
    if (m->t.failed.code != LN_OK) end_process(m);
    return NULL;
}

/* ---- opening ---- */

/* Loads the library: Open MPI's, unless MPICH's launcher has started this process or only the other is
 * installed. global: it loads components that refer to it. */
static const char *load_library(mpi_ranks *m) {
    const bool by_open_mpi = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK");
    m->library = by_open_mpi ? dlopen(open_mpi, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (m->library) {
        m->world = dlsym(m->library, "ompi_mpi_comm_world");
        m->byte = dlsym(m->library, "ompi_mpi_byte");
        m->errors_return = dlsym(m->library, "ompi_mpi_errors_return");
        m->serialized = open_mpi_serialized;
        return open_mpi;
    }
    m->library = dlopen(standard_abi, RTLD_NOW | RTLD_GLOBAL);
    m->world = (mpi_handle)abi_world, m->byte = (mpi_handle)abi_byte; /* handles are numbers */
    m->errors_return = (mpi_handle)abi_errors_return;
    m->serialized = abi_serialized;
    return standard_abi;
}

static ln_status load(mpi_ranks *m, ln_error *err) {
    const char *name = load_library(m), *missing = NULL;
    if (!m->library)
        return ln_fail(err, LN_EDEVICE,
                       "this process is one of several that mpirun has started, and neither %s nor %s is "
                       "installed; install Open MPI (Debian: apt-get install openmpi-bin), or start one "
                       "process",
                       open_mpi, standard_abi);
#define X(function, args)                                           \
    *(void **)&m->f.function = dlsym(m->library, "MPI_" #function); \
    if (!m->f.function) missing = "MPI_" #function;
    MPI_FUNCTIONS(X)
#undef X
    if (!m->world || !m->byte || !m->errors_return) missing = "ompi_mpi_comm_world";
    if (missing)
        return ln_fail(err, LN_EDEVICE,
                       "%s lacks %s: it is not of Open MPI 4 or 5, nor of MPI 5; install Open MPI", name,
                       missing);
    return LN_OK;
}

static ln_status join(mpi_ranks *m, int *n_local, ln_error *err) {
    int got = 0, n = 0;
    if (m->f.Init_thread(NULL, NULL, m->serialized, &got) != 0 || got < m->serialized)
        return ln_fail(err, LN_EDEVICE,
                       "MPI_Init_thread failed: expected MPI_THREAD_SERIALIZED (%d), found %d", m->serialized,
                       got);
    (void)m->f.Comm_rank(m->world, &m->t.rank);
    (void)m->f.Comm_size(m->world, &m->t.size);
    const ln_launch launch = ln_mpi_launch();
    if (m->t.size != launch.size || m->t.rank != launch.rank)
        return ln_fail(err, LN_EDEVICE,
                       "the launcher has started this process as rank %d of %d, and MPI made it rank %d of "
                       "%d: "
                       "the library does not belong to the launcher; use the mpirun of the same MPI",
                       launch.rank, launch.size, m->t.rank, m->t.size);
    (void)m->f.Comm_set_errhandler(m->world, m->errors_return);
    m->peers = ln_zalloc((size_t)m->t.size, sizeof *m->peers);
    char(*hosts)[NAME_BYTES] = ln_zalloc((size_t)m->t.size, sizeof *hosts), mine[NAME_BYTES] = "";
    if (!m->peers || !hosts) {
        ln_free(hosts);
        return LN_OOM(err, "ranks");
    }
    (void)m->f.Get_processor_name(mine, &n);
    mine[NAME_BYTES - 1] = '\0';
    const ln_status st = all_gather(&m->t, mine, NAME_BYTES, hosts);
    for (int i = 0; i < m->t.size; i++) {
        memcpy(m->peers[i].host, hosts[i], NAME_BYTES);
        *n_local += strncmp(hosts[i], mine, NAME_BYTES) == 0;
        m->peers[i].heard = ln_now();
    }
    ln_free(hosts);
    if (st != LN_OK && err) *err = m->t.failed;
    return st;
}

ln_status ln_mpi_open(ln_transport **out, int *n_local, ln_error *err) {
    mpi_ranks *m = ln_zalloc(1, sizeof *m);
    *out = NULL, *n_local = 0;
    if (!m) return LN_OOM(err, "ranks");
    (void)pthread_mutex_init(&m->lock, NULL);
    m->t.all_gather = all_gather;
    m->t.broadcast = broadcast;
    m->t.check = check;
    m->t.end = end_here;
    ln_status st = load(m, err);
    if (st == LN_OK) st = join(m, n_local, err);
    if (st == LN_OK) {
        m->beats = pthread_create(&m->beating, NULL, beat_all, m) == 0;
        if (!m->beats) st = LN_OOM(err, "the thread of the ranks");
    }
    ln_transport *t = &m->t;
    if (st == LN_OK) *out = t;
    else if (m->library) ln_mpi_close(&t, true);
    else ln_free(m);
    return st;
}

/* Withdraws the beats that are under way. */
static void end_beats(mpi_ranks *m) {
    for (int i = 0; i < m->t.size; i++) {
        peer *p = &m->peers[i];
        if (p->sends) (void)m->f.Request_free(&p->sent);
        if (!p->receives) continue;
        (void)m->f.Cancel(&p->received);
        (void)m->f.Request_free(&p->received);
    }
}

void ln_mpi_close(ln_transport **t, bool alone) {
    mpi_ranks *m = (mpi_ranks *)*t;
    if (!m) return;
    (void)pthread_mutex_lock(&m->lock);
    m->stop = true;
    (void)pthread_mutex_unlock(&m->lock);
    if (m->beats) (void)pthread_join(m->beating, NULL);
    if (m->t.failed.code == LN_OK && !alone) { /* else it would wait for ranks that do not answer */
        end_beats(m);
        (void)m->f.Finalize();
    }
    ln_free(m->peers);
    (void)pthread_mutex_destroy(&m->lock);
    ln_free(m); /* the library stays: its threads may still run */
    *t = NULL;
}
