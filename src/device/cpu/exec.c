/* Execution of programs on the thread pool: every thread walks the same stages, computes its partition of
 * each node, and meets the others at a barrier between stages.
 *
 *     for stage                            barrier; idle threads prefetch the weights of the next product
 *       for group of nodes
 *         row-wise nodes (fused row loop)  for ROWS_AT_ONCE rows, for node of the group
 *         other nodes                      own chunks in order, then chunks that others have not claimed
 *
 * Inside a stage there is no barrier: its nodes depend on each other row by row at most, and all row-wise
 * kernels partition rows alike, so a thread reads only rows that it has written itself. For the same reason
 * consecutive row-wise nodes are fused: all of them process ROWS_AT_ONCE rows, then the next rows, so that
 * the output of one node is still in L1 when the next reads it. With a single row, independent nodes run on
 * different threads instead. The partitions of other nodes are cut into chunks for work stealing: a thread
 * that has finished its own chunks claims those that other threads have not begun, since cores rarely run
 * equally fast for long.
 *
 * Operands are resolved and scratch memory is allocated when a program is prepared; a run writes only the
 * step and the counts of claimed chunks. */
#include "../../base/transport.h"
#include "../../ops/value_rows.h"
#include "exec.h"
#include "simd/prefetch.h"
#include "tuning.h"

#include <stdatomic.h>

enum {
    ROWS_AT_ONCE = tune_exec_ROWS_AT_ONCE_all, /* rows of a fused row loop */
    SMALL_M = tune_exec_SMALL_M_all, /* with fewer rows chunk sizes halve and idle threads prefetch */
    MIN_CHUNK_BYTES = tune_exec_MIN_CHUNK_BYTES_all, /* smallest chunk, in bytes of weights */
    PREFETCH_LINES = tune_exec_PREFETCH_LINES_all, /* lines of each block between two checks of the barrier */
    PREFETCH_MAX_BYTES = tune_exec_PREFETCH_MAX_BYTES_all /* limit for a thread at one barrier */
};

struct ln_queue {
    ln_dev *dev;
    ln_transport *ranks;
    ln_host_queue host;
};

struct ln_exec {
    ln_queue *queue;
    ln_dev *dev; /* the queue's */
    const ln_program *program;
    void *temp; /* the block of the program's temps */
    ln_arena arena;
    ln_call *calls;
    const ln_kernel **kernels; /* [n_nodes] in the device's table */
    int *small_m_chunks;       /* [n_nodes] chunks of a thread's partition for small M */
    _Atomic int *claimed; /* [n_threads][n_claims] chunks claimed of each partition; each thread's counts are
                             in cache lines of their own */
    int n_claims;         /* n_nodes rounded up to whole cache lines, plus one line */
    int *group_end;       /* [n_nodes] end of the fused row loop that begins with this node */
    int *chain; /* [n_nodes] dependency chain within the stage that a node belongs to; chains are independent
                   of each other */
    int *next_gemm; /* [n_stages] the first product with a weight in this or a later stage; n_nodes: none, or
                       its kernel does not describe what it reads */
    ln_step step;   /* view of the caller's step; the calls point to it */
    uint8_t *scratch; /* [n_threads][thread_bytes] */
    size_t thread_bytes;
    const ln_trace *trace; /* of the current run; NULL: not traced */
};

/* Bytes of scratch for each thread: the largest need of any node in whole cache lines, plus 4096 bytes, so
 * that the threads' scratch does not map to the same cache sets. */
static size_t thread_bytes(const ln_dev *d, const ln_program *p) {
    size_t most = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        const ln_kernel *k = ln_kernel_of(&d->table, n->op, ln_node_variant(p, n));
        if (k && k->scratch) most = LN_MAX(most, k->scratch(p, n, &p->bounds));
        if (k && k->composed_scratch) most = LN_MAX(most, k->composed_scratch(&d->table, p, n, &p->bounds));
    }
    return most ? (most + 63) / 64 * 64 + 4096 : 0;
}

/* Counters for each thread: one for each node, in whole cache lines, plus one line. */
static int claim_slots(const ln_program *p) { return (p->n_nodes + 31) / 16 * 16; }

size_t ln_cpu_scratch_bytes(const ln_dev *d, const ln_program *p) {
    size_t lists = (size_t)(p->n_nodes + 1) * (sizeof(ln_call) + sizeof(ln_kernel *) + 4 * sizeof(int)) +
                   (size_t)(claim_slots(p) * d->n_threads) * sizeof(int);
    return thread_bytes(d, p) * (size_t)d->n_threads + lists + sizeof(ln_exec);
}

void ln_cpu_queue_close(ln_queue **queue) {
    if (!*queue) return;
    ln_host_queue_close(&(*queue)->host);
    ln_free(*queue);
    *queue = NULL;
}

ln_status ln_cpu_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err) {
    ln_queue *q = ln_zalloc(1, sizeof *q);
    *out = NULL;
    if (!q) return LN_OOM(err, "a queue");
    q->dev = d;
    q->ranks = opt->ranks;
    ln_status st = ln_host_queue_open(&q->host, opt->kv, opt->n_slots, opt->n_blocks, err);
    if (st != LN_OK) ln_cpu_queue_close(&q);
    *out = q;
    return st;
}

void ln_cpu_release(ln_exec **exec) {
    ln_exec *e = *exec;
    if (!e) return;
    if (e->scratch) ln_device_cpu.free(e->dev, e->scratch, e->thread_bytes * (size_t)e->dev->n_threads);
    ln_arena_free(&e->arena);
    ln_free(e);
    *exec = NULL;
}

/* The operand whose rows partition a row-wise node; NULL for other nodes. */
static const ln_arg *partitioned_rows(const ln_call *c) {
    const uint32_t props = c->node->props;
    return !(props & LN_PROP_ROWWISE) ? NULL : props & LN_PROP_EFFECT ? &c->in[1] : &c->out[0];
}

/* Symbolic first dimension of that operand, 0 for nodes that are not row-wise; the nodes of a fused loop must
 * have the same. */
static int64_t row_size(const ln_exec *e, int i) {
    const ln_pnode *n = e->calls[i].node;
    const ln_arg *a = partitioned_rows(&e->calls[i]);
    return !a ? 0 : ln_program_value(e->program, a == &e->calls[i].in[1] ? n->in[1] : n->out[0])->dims[0];
}

static void find_groups(ln_exec *e) {
    const ln_program *p = e->program;
    for (int s = 0; s < p->n_stages; s++)
        for (int i = p->stage_begin[s + 1]; i-- > p->stage_begin[s];) {
            bool joins =
                i + 1 < p->stage_begin[s + 1] && row_size(e, i) != 0 && row_size(e, i) == row_size(e, i + 1);
            e->group_end[i] = joins ? e->group_end[i + 1] : i + 1;
        }
}

/* Whether node j must run after node i of the same stage, because it reads an output of i. A version of a
 * state that j only replaces does not count where versions are disjoint. */
static bool follows(const ln_program *p, const ln_pnode *i, const ln_pnode *j) {
    for (int a = 0; a < i->n_out; a++)
        for (int b = 0; b < j->n_in; b++)
            if (i->out[a] == j->in[b] &&
                !(ln_pnode_replaces(j, b) && ln_program_value(p, j->in[b])->flags & LN_STATE_DISJOINT))
                return true;
    return false;
}
/* Connected components of each stage by merging: a chain is first identified by the index of its first node
 * within the stage. */
static void find_chains(ln_exec *e) {
    const ln_program *p = e->program;
    for (int s = 0; s < p->n_stages; s++)
        for (int first = p->stage_begin[s], j = first; j < p->stage_begin[s + 1]; j++) {
            e->chain[j] = j - first;
            for (int i = first; i < j; i++) {
                if (!follows(p, e->calls[i].node, e->calls[j].node)) continue;
                const int one = LN_MIN(e->chain[i], e->chain[j]), other = LN_MAX(e->chain[i], e->chain[j]);
                for (int m = first; m <= j; m++) e->chain[m] = e->chain[m] == other ? one : e->chain[m];
            }
        }
    for (int s = 0; s < p->n_stages; s++) /* then chains are numbered consecutively */
        for (int first = p->stage_begin[s], j = first, chains = 0; j < p->stage_begin[s + 1]; j++)
            e->chain[j] = e->chain[j] == j - first ? chains++ : e->chain[first + e->chain[j]];
}

/* Chunks of a thread's partition for small M: the smallest chunk holds at least MIN_CHUNK_BYTES of weights
 * and at least the blocks that the kernel reads at once (of a gated pair the first weight counts). */
static int small_m_chunks_of(const ln_exec *e, int i) {
    ln_call c = e->calls[i];
    ln_reads r;
    int k = 1;
    c.out[0].rows = 1;
    c.n_threads = e->dev->n_threads;
    if (!e->kernels[i]->reads) return k;
    e->kernels[i]->reads(&c, &r);
    while ((r.end - r.at) >> k >= LN_MAX((int64_t)MIN_CHUNK_BYTES, r.block * r.n)) k++;
    return k;
}

/* Whether a node is a product with a weight. */
static bool is_gemm(const ln_exec *e, int i) {
    const ln_pnode *n = e->calls[i].node;
    return !partitioned_rows(&e->calls[i]) && n->n_in > 1 &&
           ln_program_value(e->program, n->in[1])->kind == LN_KIND_WEIGHT;
}
/* Fills next_gemm. */
static void find_gemms(ln_exec *e) {
    const ln_program *p = e->program;
    for (int s = p->n_stages, next = p->n_nodes; s-- > 0;) {
        for (int i = p->stage_begin[s + 1]; i-- > p->stage_begin[s];)
            if (is_gemm(e, i)) next = e->kernels[i]->reads ? i : p->n_nodes;
        e->next_gemm[s] = next;
    }
}

ln_status ln_cpu_prepare(ln_queue *q, const ln_program *p, void *temp, ln_exec **out, ln_error *err) {
    *out = NULL;
    ln_status st = LN_OK;
    ln_dev *d = q->dev;
    ln_exec *e = ln_zalloc(1, sizeof *e);
    if (!e) return LN_OOM(err, "a prepared program");
    e->queue = q;
    e->dev = d;
    e->program = p;
    e->temp = temp;
    e->thread_bytes = thread_bytes(d, p);
    LN_GO(ln_calls_new(p, temp, q->ranks, &e->arena, &e->calls, err));
    e->kernels = ln_arena_alloc(&e->arena, (size_t)(p->n_nodes + 1) * sizeof *e->kernels);
    e->group_end = ln_arena_alloc(&e->arena, (size_t)(p->n_nodes + 1) * sizeof *e->group_end);
    e->n_claims = claim_slots(p);
    e->claimed = ln_arena_alloc(&e->arena, (size_t)(e->n_claims * d->n_threads) * sizeof *e->claimed);
    e->chain = ln_arena_alloc(&e->arena, (size_t)(p->n_nodes + 1) * sizeof *e->chain);
    e->next_gemm = ln_arena_alloc(&e->arena, (size_t)(p->n_stages + 1) * sizeof *e->next_gemm);
    e->small_m_chunks = ln_arena_alloc(&e->arena, (size_t)(p->n_nodes + 1) * sizeof *e->small_m_chunks);
    if (!e->kernels || !e->group_end || !e->claimed || !e->chain || !e->next_gemm || !e->small_m_chunks)
        LN_GO(LN_OOM(err, "a prepared program"));
    for (int i = 0; i < p->n_nodes; i++) {
        e->kernels[i] = ln_kernel_of(&d->table, e->calls[i].node->op, ln_node_variant(p, e->calls[i].node));
        if (!e->kernels[i] || !e->calls[i].node->kernel)
            LN_GO(ln_fail(err, LN_EUNSUPPORTED, "the CPU device has no kernel for %s",
                          ln_op_name(e->calls[i].node->op)));
    }
    for (int i = 0; i < p->n_nodes; i++) e->small_m_chunks[i] = small_m_chunks_of(e, i);
    find_groups(e);
    find_chains(e);
    find_gemms(e);
    if (e->thread_bytes) {
        void *scratch;
        LN_GO(ln_device_cpu.alloc(d, e->thread_bytes * (size_t)d->n_threads,
                                  e->thread_bytes * (size_t)d->n_threads, &scratch, err));
        e->scratch = scratch;
    }
    *out = e;
    return LN_OK;
out:
    ln_cpu_release(&e);
    return st;
}

/* Runs partition `partition` of n_partitions of node i on one thread. Only the operands that the node has are
 * copied. */
static void run_partition(const ln_exec *e, int i, int thread, int partition, int n_partitions) {
    const ln_call *from = &e->calls[i];
    ln_call c;
    c.node = from->node;
    c.table = &e->dev->table;
    c.ranks = from->ranks;
    c.step = from->step;
    c.thread = partition;
    c.n_threads = n_partitions;
    c.scratch = e->scratch + e->thread_bytes * (size_t)thread;
    for (int k = 0; k < c.node->n_in; k++) c.in[k] = from->in[k];
    for (int k = 0; k < c.node->n_out; k++) c.out[k] = from->out[k];
    e->kernels[i]->fn(&c);
}

static bool is_small_m(const ln_exec *e, int i) { return e->calls[i].out[0].rows < SMALL_M; }

static void prefetch_bytes(const void *p, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)p + at);
}

/* Streamed weights evict everything else from L1 and L2, so the calls of the next nodes are prefetched while
 * this node runs. */
static void prefetch_next_nodes(const ln_exec *e, int i) {
    if (i + 2 >= e->program->n_nodes) return;
    prefetch_bytes(&e->calls[i + 2], sizeof *e->calls);
    prefetch_bytes(e->calls[i + 1].node, sizeof *e->calls->node);
}

/* Chunks of each thread's partition of a node; 0 or 1: not cut. */
static int chunks_of(const ln_exec *e, int i) {
    return is_small_m(e, i) ? e->small_m_chunks[i] : e->kernels[i]->pieces;
}
/* Runs chunk `chunk` of k of the partition of thread `owner`. For large M all chunks have one size. For small
 * M each chunk is half of what the chunks before it leave, and the last two have one size: then few chunks
 * are claimed, and a thread that waits for another waits for a small chunk. Partitions nest: partition b of 2
 * n is one half of partition b / 2 of n. */
static void run_chunk(const ln_exec *e, int i, int thread, int owner, int n_threads, int chunk, int k) {
    const bool small_m_chunks = is_small_m(e, i);
    const int parts = small_m_chunks ? 1 << LN_MIN(chunk + 1, k - 1) : k; /* of this chunk's size */
    run_partition(e, i, thread,
                  owner * parts + (!small_m_chunks ? chunk
                                   : chunk + 1 < k ? parts - 2
                                                   : parts - 1),
                  n_threads * parts);
}
/* A thread claims the chunks of its own partition in order, so that it reads one stream, and then chunks that
 * other threads have not claimed. */
static void run_chunks(const ln_exec *e, int i, int thread, int n_threads, int k) {
    prefetch_next_nodes(e, i);
    for (int j = 0; j < n_threads; j++) {
        const int owner = (thread + j) % n_threads;
        _Atomic int *claimed = &e->claimed[owner * e->n_claims + i];
        for (int chunk; atomic_load_explicit(claimed, memory_order_relaxed) < k &&
                        (chunk = atomic_fetch_add_explicit(claimed, 1, memory_order_relaxed)) < k;)
            run_chunk(e, i, thread, owner, n_threads, chunk, k);
    }
}

/* A fused loop over a single row: each dependency chain runs on one thread through the whole stage. */
static void run_chains(const ln_exec *e, int first, int thread, int n_threads) {
    for (int i = first; i < e->group_end[first]; i++) {
        prefetch_next_nodes(e, i);
        if (e->chain[i] % n_threads == n_threads - 1 - thread) run_partition(e, i, thread, 0, 1);
    }
}

/* Runs a fused row loop, or a single node that is not cut. Partitions of a row-wise kernel nest: partition b
 * of n * k is part of partition b / k of n. */
static void run_group(const ln_exec *e, int first, int thread, int n_threads) {
    const int end = e->group_end[first];
    const ln_arg *shared = partitioned_rows(&e->calls[first]);
    if (n_threads > 1 && shared && shared->rows == 1) {
        run_chains(e, first, thread, n_threads);
        return;
    }
    const int64_t rows = end > first + 1 ? shared->rows : 0;
    const int k = rows > n_threads * ROWS_AT_ONCE ? (int)(rows / (n_threads * ROWS_AT_ONCE))
                                                  : 1; /* few rows: one pass */
    for (int b = thread * k; b < (thread + 1) * k; b++)
        for (int i = first; i < end; i++) {
            prefetch_next_nodes(e, i);
            run_partition(e, i, thread, b, n_threads * k);
        }
}

static void run_node(const ln_exec *e, int i, int thread, int n_threads) {
    const int k = n_threads > 1 ? chunks_of(e, i) : 1;
    if (k > 1) run_chunks(e, i, thread, n_threads, k);
    else run_group(e, i, thread, n_threads);
}

/* ---- idle-time prefetch at a barrier ---- */

/* State of the prefetch of an idle thread: it prefetches the weights that its own partition of node i
 * reads. */
typedef struct idle_prefetch {
    const ln_exec *e;
    int i, thread, n_threads;
    bool started;
    ln_reads reads;
    int64_t line, left;
} idle_prefetch;

static void begin_idle_prefetch(idle_prefetch *a) {
    const ln_exec *e = a->e;
    a->started = true;
    if (a->i >= e->program->n_nodes || e->calls[a->i].out[0].rows < 1 || !is_small_m(e, a->i)) return;
    ln_call c = e->calls[a->i];
    c.thread = a->thread;
    c.n_threads = a->n_threads;
    e->kernels[a->i]->reads(&c, &a->reads);
    a->left = PREFETCH_MAX_BYTES;
}
/* Prefetches the next lines of each block into L2; false when nothing is left. */
static bool prefetch_some(void *user) {
    idle_prefetch *a = user;
    ln_reads *r = &a->reads;
    if (!a->started) begin_idle_prefetch(a);
    if (a->left <= 0 || r->at >= r->end) return false;
    for (int i = 0; i < PREFETCH_LINES; i++, a->line += 64)
        for (int j = 0; j < r->n; j++) {
            prefetch_l2(r->at + j * r->block + a->line);
            if (r->second) prefetch_l2(r->at + r->second + j * r->block + a->line);
        }
    a->left -= PREFETCH_LINES * 64 * r->n * (r->second ? 2 : 1);
    if (a->line >= r->block) r->at += r->n * r->block, a->line = 0;
    return true;
}
/* Waits for the other threads, and prefetches this thread's next weights meanwhile. */
static void wait_at_barrier(const ln_exec *e, int stage, int thread, int n_threads) {
    idle_prefetch a = {.e = e, .i = e->next_gemm[stage], .thread = thread, .n_threads = n_threads};
    ln_pool_barrier_idle(thread, prefetch_some, &a);
}

static void run_thread(void *user, int thread, int n_threads) {
    const ln_exec *e = user;
    const ln_program *p = e->program;
    for (int s = 0; s < p->n_stages; s++) {
        if (s && n_threads > 1) wait_at_barrier(e, s, thread, n_threads);
        for (int i = p->stage_begin[s]; i < p->stage_begin[s + 1]; i = e->group_end[i])
            run_node(e, i, thread, n_threads);
    }
}

static void run_thread_watched(void *user, int thread, int n_threads) {
    const ln_exec *e = user;
    for (int i = 0; i < e->program->n_nodes; i++) {
        double start = ln_now();
        const int k = n_threads > 1 ? chunks_of(e, i) : 1;
        if (k > 1) run_chunks(e, i, thread, n_threads, k);
        else run_partition(e, i, thread, thread, n_threads);
        if (n_threads > 1) ln_pool_barrier(thread);
        if (thread == 0) e->trace->fn(e->trace->user, i, ln_now() - start);
        if (n_threads > 1) ln_pool_barrier(thread);
    }
}

ln_status ln_cpu_submit(ln_exec *e, const ln_step_block *block, const ln_trace *trace, uint64_t *fence,
                        ln_error *err) {
    const int32_t n_rows = e->step.n_rows, n_out = e->step.n_out, n_seqs = e->step.n_seqs;
    *fence = ln_host_queue_submit(&e->queue->host, block, &e->step);
    if (block->n_rows == 0) return LN_OK;
    if (n_rows != block->n_rows || n_out != block->n_out || n_seqs != block->n_seqs)
        ln_calls_live(e->program, e->calls, &e->step); /* else the live rows are already set */
    e->trace = trace;
    for (int i = 0; i < e->n_claims * e->dev->n_threads; i++)
        atomic_store_explicit(&e->claimed[i], 0, memory_order_relaxed);
    ln_pool_run(e->dev->pool, e->dev->n_threads, trace ? run_thread_watched : run_thread, e);
    return ln_ranks_failed(e->queue->ranks, err);
}

ln_status ln_cpu_wait(ln_queue *q, uint64_t fence, ln_error *err) {
    return ln_host_queue_wait(&q->host, fence, err);
}

ln_status ln_cpu_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write, ln_error *err) {
    const ln_bounds live = {e->step.n_rows, e->step.n_out, e->step.n_seqs};
    return ln_cpu_rows(e->program, e->temp, &live, v, row, n, rows, write, err);
}

ln_status ln_cpu_argmax(ln_exec *e, int v, int64_t row, int64_t n, int32_t *ids, ln_error *err) {
    const ln_pvalue *x = v >= 0 && v < e->program->n_values ? ln_program_value(e->program, v) : NULL;
    const ln_bounds live = {e->step.n_rows, e->step.n_out, e->step.n_seqs};
    if (!x || x->kind != LN_KIND_TEMP || x->offset < 0 || x->format.kind != LN_FORMAT_F32 || x->layout ||
        row < 0 || n < 0 || row > ln_dim(x->dims[0], &live) - n)
        return ln_fail(err, LN_EINTERNAL, "argmax of rows %lld .. %lld of %s: expected rows of f32",
                       (long long)row, (long long)(row + n - 1), x ? x->name : "an unknown value");
    const float *rows = (const float *)(const void *)((const char *)e->temp + x->offset);
    const int64_t pitch = ln_temp_pitch(e->program, x);
    ln_cpu_argmax_rows(e->dev->pool, e->dev->n_threads, rows + row * pitch, pitch, x->dims[1], n, ids);
    return LN_OK;
}
