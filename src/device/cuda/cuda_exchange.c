/* How the GPUs of several ranks are connected (decision 062): by mapping each other's memory if all pairs
 * can, else by NCCL. Ranks are threads of one process or processes, of one host or several.
 *
 * A program's exchange memory, the inbox, is in its block of device memory, and the block of temporary values
 * is mapped too. All ranks connect a program after all have prepared it, and captured graphs are made then,
 * because kernels have the addresses of the others as parameters. */
#include "cuda_exchange.h"

#include "cuda_nccl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a rank tells the others of itself and of its memory. */
typedef struct card {
    int32_t status; /* ln_status */
    int32_t ordinal;
    uint64_t process; /* a random number */
    char host[40];    /* the id of the running system */
    char gpu[32];     /* its address on the bus */
    uint64_t temp, block, inbox_at;
    bool has_handles; /* other processes can map the two blocks */
    cudaIpcMemHandle_t temp_handle, block_handle;
    uint32_t mark; /* what the first word of its inbox is */
    gpu_nccl_id id;
    char why[200]; /* why it cannot map the memory of another rank */
} card;

/* ---- what a program needs ---- */

static bool is_gather(const ln_pnode *n) { return n->op == LN_OP_ALL_GATHER; }
bool gpu_exchanges(const ln_program *p) {
    for (int i = 0; i < p->n_nodes; i++)
        if (is_gather(ln_program_node(p, i))) return true;
    return false;
}

static gpu_array shape_of(const ln_program *p, ln_v i) {
    const ln_pvalue *v = ln_program_value(p, i);
    return (gpu_array){.cols = (int32_t)v->dims[1], .rows = (int32_t)v->dims[0], .type = GPU_F32};
}
/* Bytes of a slot: of the largest exchange by words that steps have. */
static size_t slot_bytes(const ln_dev *d, const ln_program *p) {
    size_t most = 16;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        if (!is_gather(n)) continue;
        gpu_gather g = {.x = shape_of(p, n->in[0]), .y = shape_of(p, n->out[0])};
        const int64_t rows = ln_dim(g.x.rows, &p->bounds);
        most = LN_MAX(most, gpu_words_bytes(&g, rows));
        g.single = true;
        most = LN_MAX(most, gpu_words_bytes(&g, LN_MIN(rows, GPU_FUSED_ROWS)));
    }
    return LN_MIN(most, LN_MAX((size_t)d->words, (size_t)16));
}
/* The slot of a gather: those that follow each other have different ones. Gathers of the rows of a step take
 * two in turn, the last of an odd number a third, because the first of the next step follows. Others have no
 * rows in some steps, and slots of their own. -1: the program has one gather only, which follows itself. */
enum { SLOTS = 5 };
static int32_t slot_of(const ln_program *p, const ln_pnode *of) {
    const ln_bounds rows_alone = {.T = 1};
    int32_t n[2] = {0, 0}, at = 0;
    const bool is_whole = ln_dim(shape_of(p, of->in[0]).rows, &rows_alone) > 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *g = ln_program_node(p, i);
        if (!is_gather(g)) continue;
        const bool whole = ln_dim(shape_of(p, g->in[0]).rows, &rows_alone) > 0;
        if (g == of) at = n[whole];
        n[whole]++;
    }
    if (n[1] < 2) return -1;
    if (!is_whole) return 3 + at % 2;
    return at == n[1] - 1 && n[1] % 2 ? 2 : at % 2;
}
static int ranks_of(const ln_program *p) {
    int n = 1;
    for (int i = 0; i < p->n_nodes; i++)
        if (is_gather(ln_program_node(p, i))) n = ln_program_node(p, i)->p.gather.n_ranks;
    return n;
}
size_t gpu_inbox_bytes(const ln_dev *d, const ln_program *p) {
    return gpu_exchanges(p) ? GPU_INBOX_HEAD + SLOTS * (size_t)ranks_of(p) * slot_bytes(d, p) : 0;
}

/* ---- waiting for a stream ---- */

ln_status gpu_sync(ln_queue *q, const char *what, ln_error *err) {
    ln_transport *t = q->ranks;
    cudaError_t e = cudaErrorNotReady;
    if (!t) GPU_TRY(cudaStreamSynchronize(q->stream), what);
    for (double checked = ln_now(); t && (e = cudaStreamQuery(q->stream)) == cudaErrorNotReady;) {
        enum { LOOKS = 64 };
        for (int i = 0; i < LOOKS && (e = cudaStreamQuery(q->stream)) == cudaErrorNotReady; i++) continue;
        if (e != cudaErrorNotReady) break;
        if (ln_now() - checked < 0.01) continue;
        checked = ln_now();
        if (t->check(t) == LN_OK) continue;
        gpu_disconnect(q); /* kernels that wait for the other rank end */
        (void)cudaStreamSynchronize(q->stream);
        (void)cudaGetLastError();
        return ln_ranks_failed(t, err);
    }
    if (t) (void)cudaGetLastError(); /* a query that was not ready is no error of a later call */
    if (t) GPU_TRY(e, what);
    return LN_OK;
}

void gpu_disconnect(ln_queue *q) {
    if (q->stop) *(volatile uint32_t *)q->stop = 1;
    if (q->nccl) gpu_nccl_abort(&q->nccl);
}

/* ---- connecting ---- */

static void read_host(char out[40]) {
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = 0;
    if (f && !fgets(out, 40, f)) out[0] = 0;
    if (f) (void)fclose(f);
}

static uint64_t process_number(void) {
    static uint64_t number;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    while (!number)
        if (getentropy(&number, sizeof number) != 0) number = (uint64_t)getpid();
    (void)pthread_mutex_unlock(&lock);
    return number;
}

/* Describes this rank; the first word of its inbox is set to a mark, which shows that a mapping is right. */
static ln_status describe(ln_exec *e, card *c, ln_error *err) {
    ln_queue *q = e->queue;
    c->ordinal = q->dev->ordinal;
    c->process = process_number();
    c->temp = (uint64_t)(uintptr_t)e->temp, c->block = (uint64_t)(uintptr_t)e->block;
    c->inbox_at = (uint64_t)(e->inbox - (char *)e->block);
    c->mark = 0x6c6e0000u + (uint32_t)q->ranks->rank;
    read_host(c->host);
    if (!q->stop) {
        void *stop = NULL;
        GPU_TRY(cudaHostAlloc(&stop, sizeof *q->stop, cudaHostAllocPortable | cudaHostAllocMapped),
                "connecting GPUs");
        q->stop = stop, *q->stop = 0;
    }
    GPU_TRY(cudaDeviceGetPCIBusId(c->gpu, sizeof c->gpu, c->ordinal), "connecting GPUs");
    c->has_handles = cudaIpcGetMemHandle(&c->temp_handle, e->temp) == cudaSuccess &&
                     cudaIpcGetMemHandle(&c->block_handle, e->block) == cudaSuccess;
    (void)cudaGetLastError();
    return gpu_copy(q, e->inbox, &c->mark, sizeof c->mark, LN_COPY_IN, err);
}

/* Why memory cannot be mapped: a CUDA error. */
static bool refused(card *mine, const card *other, cudaError_t e) {
    if (e == cudaSuccess) return false;
    (void)cudaGetLastError();
    (void)snprintf(mine->why, sizeof mine->why, "GPU %s cannot reach the memory of GPU %s: %s", mine->gpu,
                   other->gpu, cudaGetErrorString(e));
    return true;
}

/* Allows a GPU to reach the memory of another, once in a process. */
static cudaError_t enable(int from, int to) {
    enum { MOST = 64 };
    static bool enabled[MOST][MOST];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    cudaError_t e = cudaSuccess;
    if (from >= MOST || to >= MOST) return cudaErrorPeerAccessUnsupported;
    (void)pthread_mutex_lock(&lock);
    if (!enabled[from][to]) e = cudaDeviceEnablePeerAccess(to, 0);
    enabled[from][to] = e == cudaSuccess;
    (void)pthread_mutex_unlock(&lock);
    return e;
}

/* Maps the memory of a rank of this process. */
static bool map_thread(ln_exec *e, int rank, card *mine, const card *other) {
    gpu_exchange *x = &e->link.exchange;
    int can = 1;
    if (other->ordinal != mine->ordinal) {
        if (refused(mine, other, cudaDeviceCanAccessPeer(&can, mine->ordinal, other->ordinal))) return false;
        if (refused(mine, other,
                    can ? enable(mine->ordinal, other->ordinal) : cudaErrorPeerAccessUnsupported))
            return false;
    }
    x->temp[rank] = (char *)(uintptr_t)other->temp;
    x->inbox[rank] = (char *)(uintptr_t)(other->block + other->inbox_at);
    return true;
}
/* Maps that of another process of this host. */
static bool map_process(ln_exec *e, int rank, card *mine, const card *other) {
    gpu_exchange *x = &e->link.exchange;
    void **mapped = e->link.mapped[rank];
    if (!other->has_handles) return !refused(mine, other, cudaErrorNotSupported);
    if (refused(mine, other,
                cudaIpcOpenMemHandle(&mapped[0], other->temp_handle, cudaIpcMemLazyEnablePeerAccess)))
        return false;
    if (refused(mine, other,
                cudaIpcOpenMemHandle(&mapped[1], other->block_handle, cudaIpcMemLazyEnablePeerAccess)))
        return false;
    x->temp[rank] = mapped[0];
    x->inbox[rank] = (char *)mapped[1] + other->inbox_at;
    return true;
}

/* Maps the memory of all others, and looks for their marks. */
static bool map_all(ln_exec *e, card *mine, const card *all) {
    const ln_transport *t = e->queue->ranks;
    gpu_exchange *x = &e->link.exchange;
    if (!e->queue->dev->maps) {
        (void)snprintf(mine->why, sizeof mine->why, "mapping is off in this test");
        return false;
    }
    for (int i = 0; i < t->size; i++) {
        const card *o = &all[i];
        uint32_t mark = 0;
        if (i == t->rank) x->temp[i] = e->temp, x->inbox[i] = e->inbox;
        else if (strcmp(o->host, mine->host) != 0) {
            (void)snprintf(mine->why, sizeof mine->why, "rank %d is on another host", i);
            return false;
        } else if (!(o->process == mine->process ? map_thread(e, i, mine, o) : map_process(e, i, mine, o)))
            return false;
        if (refused(mine, o, cudaMemcpy(&mark, x->inbox[i], sizeof mark, cudaMemcpyDefault))) return false;
        if (mark == o->mark) continue;
        (void)snprintf(mine->why, sizeof mine->why, "the memory of rank %d is mapped wrongly", i);
        return false;
    }
    return true;
}

/* Exchanges cards; a rank that has failed is named. */
static ln_status tell(ln_transport *t, const card *mine, card *all, ln_error *err) {
    if (t->all_gather(t, mine, sizeof *mine, all) != LN_OK) return ln_ranks_failed(t, err);
    for (int i = 0; i < t->size; i++)
        if (all[i].status != LN_OK && i != t->rank)
            return ln_fail(err, (ln_status)all[i].status, "rank %d of %d: %s", i, t->size, all[i].why);
    return (ln_status)mine->status;
}

static void note_status(card *mine, ln_status st, const ln_error *why) {
    mine->status = (int32_t)st;
    if (st != LN_OK) (void)snprintf(mine->why, sizeof mine->why, "%.199s", why->message);
}

/* Opens the communicator of NCCL in all ranks of a queue, which has one for all programs. */
static ln_status open_nccl(ln_exec *e, card *mine, card *all, const char *why_not, ln_error *err) {
    ln_queue *q = e->queue;
    ln_transport *t = q->ranks;
    ln_error reason = {0};
    if (q->nccl) return LN_OK;
    if (t->rank == 0) ln_log(LN_LOG_INFO, "device cuda: %s; ranks exchange values by NCCL", why_not);
    const ln_status st = gpu_nccl_load(t->rank == 0 ? &mine->id : NULL, &reason);
    note_status(mine, st, &reason);
    if (st != LN_OK && err) *err = reason;
    LN_TRY(tell(t, mine, all, err));
    return gpu_nccl_open(&q->nccl, &all[0].id, t->size, t->rank, err);
}

/* Two ranks of one GPU could wait for each other for ever: a kernel that waits may leave no space for the one
 * that it waits for. */
static ln_status check_apart(const ln_transport *t, const card *all, ln_error *err) {
    for (int i = 0; i < t->size; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(all[i].host, all[k].host) == 0 && strcmp(all[i].gpu, all[k].gpu) == 0)
                return ln_fail(err, LN_EUSAGE,
                               "ranks %d and %d of %d use the same GPU (%s); start one rank for each GPU", k,
                               i, t->size, all[i].gpu);
    return LN_OK;
}

static ln_status connect(ln_exec *e, card *mine, card *all, ln_error *err) {
    ln_transport *t = e->queue->ranks;
    ln_error reason = {0};
    char why_not[sizeof mine->why];
    ln_status st = describe(e, mine, &reason);
    note_status(mine, st, &reason);
    if (st != LN_OK && err) *err = reason;
    LN_TRY(tell(t, mine, all, err));
    LN_TRY(check_apart(t, all, err));
    mine->why[0] = 0;
    bool maps = map_all(e, mine, all);
    mine->has_handles = maps; /* from here on: whether it has mapped all others */
    LN_TRY(tell(t, mine, all, err));
    const char *why = "";
    for (int i = t->size - 1; i >= 0; i--)
        if (!all[i].has_handles) maps = false, why = all[i].why;
    e->link.maps = maps;
    e->link.exchange.stop = e->queue->stop;
    (void)snprintf(why_not, sizeof why_not, "%s", why);
    const uint32_t zero = 0; /* instead of the mark, in all ranks before one of them sends */
    st = gpu_copy(e->queue, e->inbox, &zero, sizeof zero, LN_COPY_IN, &reason);
    note_status(mine, st, &reason);
    if (st != LN_OK && err) *err = reason;
    LN_TRY(tell(t, mine, all, err));
    return maps ? LN_OK : open_nccl(e, mine, all, why_not, err);
}

ln_status gpu_connect(ln_exec *e, ln_error *err) {
    ln_queue *q = e->queue;
    if (!q->ranks || !gpu_exchanges(e->program)) return LN_OK;
    card mine, *all = ln_zalloc((size_t)q->ranks->size, sizeof *all);
    memset(&mine, 0, sizeof mine);
    if (!all) return LN_OOM(err, "ranks");
    ln_status st = gpu_use(q->dev, err);
    if (st == LN_OK) st = connect(e, &mine, all, err);
    if (st == LN_OK && e->link.maps) st = gpu_capture(e, err); /* NCCL connects in its first operations */
    ln_free(all);
    GPU_TRY(cudaStreamSynchronize(q->stream), "connecting GPUs");
    return st;
}

void gpu_unmap(ln_exec *e) {
    for (int i = 0; i < GPU_MOST_RANKS; i++)
        for (int k = 0; k < 2; k++)
            if (e->link.mapped[i][k]) (void)cudaIpcCloseMemHandle(e->link.mapped[i][k]);
}

/* ---- the op ---- */

enum { PIECE = 4 << 20 }; /* bytes of a rank that NCCL gathers at a time, unless a row has more */
static int64_t piece_rows(int64_t cols) { return LN_MAX(1, PIECE / (cols * (int64_t)sizeof(float))); }

static bool can_gather(const ln_lower_ask *q) {
    return ((const ln_p_gather *)q->params)->n_ranks <= GPU_MOST_RANKS;
}
static void gather_bytes(const ln_dev *d, const ln_program *p, const ln_pnode *n, gpu_need *need) {
    const gpu_array x = shape_of(p, n->in[0]);
    const int64_t rows = LN_MIN(ln_dim(x.rows, &p->bounds), piece_rows(x.cols));
    (void)d;
    need->scratch =
        LN_MAX(need->scratch, (size_t)(rows * x.cols * (n->p.gather.n_ranks + 1)) * sizeof(float));
}
static ln_status prepare_gather(gpu_preparing *p, gpu_node *g, ln_error *err) {
    ln_exec *e = (ln_exec *)(uintptr_t)p->e;
    const int size = e->queue->ranks ? e->queue->ranks->size : 1;
    if (p->n->p.gather.n_ranks != size)
        return ln_fail(err, LN_EINTERNAL, "program: it is one of %d ranks, found %d", p->n->p.gather.n_ranks,
                       size);
    g->exec = e;
    g->work = e->scratch;
    g->at = slot_of(e->program, p->n);
    return gpu_operand(p, 0, &g->x, err);
}

/* By NCCL, in pieces of rows: all ranks send as many rows, those of the launch. */
static int launch_nccl(const gpu_launch *l, const gpu_step *s, const gpu_exchange *e, const gpu_gather *a,
                       const gpu_node *g) {
    const ln_bounds most = {l->T, l->N, l->B};
    const int64_t rows = ln_dim(a->x.rows, &most), some = piece_rows(a->x.cols),
                  row = a->x.cols * (a->y.type == GPU_F32 ? 4 : 2);
    char *mine = g->work;
    for (int64_t r = 0; r < rows; r += some) {
        const int64_t n = LN_MIN(some, rows - r);
        char *all = mine + LN_MIN(some, rows) * row;
        int error = gpu_pack_part(l, s, e->rank, a, r, n, mine);
        if (!error)
            error = gpu_nccl_all_gather(g->exec->queue->nccl, mine, all, (size_t)(n * row), l->stream);
        if (!error) error = gpu_place_parts(l, s, e->size, a, r, n, all);
        if (error) return error;
    }
    return 0;
}

/* Whether the part is in its columns of y already. */
static bool is_placed(const gpu_gather *a, int rank) {
    const int64_t S = a->x.cols, first = LN_MIN(rank * S, a->y.cols - S);
    return a->x.data == (char *)a->y.data + first * (a->y.type == GPU_F32 ? 4 : 2) &&
           a->x.pitch == a->y.pitch && a->x.type == a->y.type;
}

/* A gather as a launch does it; *words: by words. */
static gpu_gather gather_of(const gpu_launch *l, const gpu_node *g, bool *words) {
    const gpu_exchange *e = &g->exec->link.exchange;
    const ln_bounds most = {l->T, l->N, l->B};
    const bool few = l->T <= GPU_FUSED_ROWS;
    gpu_gather a = {.x = g->few.data && few ? g->few : g->x,
                    .residual = g->second,
                    .y = g->y,
                    .single = few,
                    .slot = (int32_t)g->at};
    a.placed = is_placed(&a, e->rank);
    *words = a.slot >= 0 && gpu_words_bytes(&a, ln_dim(a.x.rows, &most)) <= (size_t)e->slot_bytes;
    return a;
}
bool gpu_tail_of(const gpu_launch *l, const gpu_node *gather, gpu_tail *out) {
    const gpu_link *link = &gather->exec->link;
    bool words;
    if (!link->maps || !gather->pair || !gather->exec->queue->dev->tails) return false;
    *out = (gpu_tail){.exchange = link->exchange, .gather = gather_of(l, gather, &words)};
    return words && out->gather.single && out->gather.placed;
}

static int launch_gather(const gpu_launch *l, const gpu_step *s, const gpu_node *g) {
    const gpu_exchange *e = &g->exec->link.exchange;
    bool words;
    if (g->pair && g->exec->did_tail) return 0;
    const gpu_gather a = gather_of(l, g, &words);
    if (!g->exec->link.maps) return launch_nccl(l, s, e, &a, g);
    return words ? gpu_exchange_words(l, s, e, &a) : gpu_exchange_pull(l, s, e, &a);
}
const gpu_op gpu_op_all_gather = {
    .can = can_gather, .bytes = gather_bytes, .prepare = prepare_gather, .launch = launch_gather};

void gpu_link_begin(ln_exec *e) {
    const ln_transport *t = e->queue->ranks;
    e->link.exchange = (gpu_exchange){.size = t ? t->size : 1,
                                      .rank = t ? t->rank : 0,
                                      .slot_bytes = (int64_t)slot_bytes(e->queue->dev, e->program)};
}
