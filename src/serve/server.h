/* The parts of the server: what its files share. Everything here belongs to the I/O thread, except workers,
 * completion_queue and the fields of a request while a worker holds it. */
#ifndef LN_SERVER_H
#define LN_SERVER_H

#include "../base/text_memory.h"
#include "../wire/wire.h"
#include "http.h"
#include "serve.h"

#include <pthread.h>
#include <stdatomic.h>

struct event_base;
struct event;
struct bufferevent;
typedef struct server server;
typedef struct conn conn;
typedef struct request_context request_context;
typedef struct choice choice;
typedef struct client client;

/* ---- workers (workers.c) ---- */

/* A piece of work: `run` is called on a worker, then `done` on the I/O thread. */
typedef struct work {
    struct work *next;
    void (*run)(struct work *w);
    void (*done)(struct work *w);
    client *client; /* NULL: the server itself */
    uint64_t cost;  /* bytes of the body */
} work;

/* What other threads hand to the I/O thread: finished work, under a lock, and choices that have events, on a
 * stack without one, because the engine's thread pushes to it. event: ln_os_event_open. */
typedef struct completion_queue {
    int event[2];
    pthread_mutex_t lock;
    work *first, **last;
    _Atomic(choice *) ready;
} completion_queue;
ln_status completion_queue_open(completion_queue *q, ln_error *err);
void completion_queue_close(completion_queue *q);
void completion_queue_wake(completion_queue *q);
work *completion_queue_take(completion_queue *q); /* all finished work, oldest first */

/* Workers with one queue. The next work is that of the client whose work has had the fewest bytes; large work
 * of a client is done one after the other, and the first of several workers does small work only. */
enum { WORKERS_MOST = 3, WORK_SMALL = 256 << 10 }; /* the most workers; bytes of the largest small work */
typedef enum workers_id { WORKERS_PREPARING = 0, WORKERS_CALLING, N_WORKERS_IDS } workers_id;
typedef struct workers {
    workers_id id;
    completion_queue *finished;
    pthread_t threads[WORKERS_MOST];
    int n_workers, n_named; /* that were started; that know which one they are */
    bool several, stop;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    work *first, **last;
    size_t n, most;
    uint64_t clock; /* client_share.read of the client that was served last */
} workers;
/* A client's share of the workers. Guarded by workers.lock. */
typedef struct client_share {
    uint64_t read;      /* bytes, as virtual time */
    int n_all, n_large; /* work that waits or runs; large work that runs */
} client_share;
ln_status workers_open(workers *c, workers_id id, int n_workers, completion_queue *finished, size_t most,
                       ln_error *err);
/* Ends the workers after the work that they are doing; what is queued is dropped. */
void workers_close(workers *c);
/* Queues work. False: the queue is full. */
bool workers_submit(workers *c, work *w);

/* ---- clients (clients.c) ---- */

/* A client as far as fairness goes: an API key, or without keys an address. It is owed service in turn: the
 * next choice that starts is of the client whose `served` is least. */
struct client {
    struct client *next; /* in the list of all */
    char name[64];
    double served;           /* tokens, as virtual time */
    int n_queued, n_running; /* choices */
    int n_refs;              /* requests that refer to it */
    ln_budget texts;         /* of their bodies and answers */
    uint64_t large_bytes;    /* of their large bodies that are read or worked on */
    client_share shares[N_WORKERS_IDS];
    request_context *first, **last; /* requests with choices that wait */
};

/* ---- a request and its answer (request_context.c) ---- */

typedef struct route route;

/* ---- models by name (model_list.c) ---- */

/* The base model and the adapters, by the names that requests choose: see model_list.c. */
typedef struct model_list {
    int n_refs;
    size_t n, n_base;      /* names; the first n_base of them are the base model's: its name and aliases */
    const char **names;    /* [n] then those of adapters */
    ln_adapter **adapters; /* [n] NULL: none but that of the engine. A handle may have been closed meanwhile
                            */
    double *scales;        /* [n] factors, for /lora-adapters */
    wire_target target;    /* for bodies: it has these names and adapters */
} model_list;
/* Makes the first list, with the base model alone, whose target is server.target with its names:
 * server.name and ln_serve_options.aliases. */
ln_status model_list_open(server *s, ln_error *err);
/* Closes the adapters of the current list and releases it. */
void model_list_close(server *s);
model_list *model_list_hold(model_list *r);
void model_list_release(model_list *r);
/* The index of a name; r->n: there is none. */
size_t model_list_index(const model_list *r, const char *name, size_t n);
/* Adds an adapter, or replaces that of this name, and takes its handle. LN_EMEMORY: nothing has changed. */
ln_status model_list_put(server *s, const char *name, ln_adapter *adapter, double scale, ln_error *err);
/* Takes entry i >= n_base out and closes its adapter. LN_EMEMORY: nothing has changed. */
ln_status model_list_remove(server *s, size_t i, ln_error *err);
/* Returns the status of a call with adapter `model` of x->models. If it failed because the adapter was
 * unloaded since the request began, *why is set to a 404 that says so. Any thread. */
ln_status model_list_check(const request_context *x, size_t model, ln_status st, wire_error *why);

/* A change of adapters that a request asks for (lora_routes.c). */
typedef struct lora_change lora_change;
void lora_change_free(lora_change *c);

/* The first events of a choice make its stream's first chunk; the finish makes the last one. */
struct choice {
    choice *next_ready; /* on the completion queue's stack */
    atomic_bool is_ready;
    request_context *x;
    size_t index;
    ln_request *request;
    bool started, done, begun; /* begun: its first chunk was sent */
    bool failed;               /* it could not be started: request_context.why */
    ln_result result;          /* once it is done */
    ln_result tokens;          /* of a stream with log-probabilities: ids, logprobs, top so far */
    size_t cap_ids, cap_logprobs, cap_top;
    size_t n_calls;    /* of tools, that were sent */
    bool in_call;      /* ... and a piece of one more */
    size_t n_sent;     /* of these tokens */
    wire_place place;  /* of the next one in the text */
    double last_token; /* ln_now of the token that was read last */
};

/* One request and its answer. It is freed once no connection, worker or choice refers to it. */
struct request_context {
    work job;
    void (*run)(work *w);         /* what job.run calls inside the account */
    ln_account texts;             /* the body, what is made of it, the answer until it is sent */
    request_context *next, *prev; /* in server.requests */
    request_context *next_queued; /* in client.first */
    server *s;
    conn *c; /* NULL: the client has left, or has its answer */
    const route *route;
    client *client;
    model_list *models; /* that was current when the head was read; NULL before */
    char id[28];        /* request id */
    char model[64];
    http_method method;
    int minor;
    bool keep_alive;
    int status;                     /* of the answer, 0 before it */
    double began, first, last_sent; /* ln_now: head complete, first token, last byte of a stream */
    ln_str body, path;              /* path: what follows a route's prefix, decoded */
    ln_str fields;                  /* header fields of its answer: those of origin_allow */
    uint64_t held;                  /* bytes of server.held */
    uint64_t large_bytes;           /* of client.large_bytes */
    int retry_seconds;              /* Retry-After of a refusal; 0: 1 */
    int n_pins;                     /* workers that hold it */
    bool ended;                     /* its answer is complete, or there will be none */
    bool answered;                  /* its answer is complete */
    bool streaming;
    bool cut;         /* by the end of a drain */
    atomic_bool left; /* the client waits for the answer no longer; for workers */
    int64_t created;  /* Unix time */

    /* generation */
    bool has_request, queued;
    wire_request q;
    wire_answer answer;
    wire_error why;  /* http 0: no error */
    choice *choices; /* [n_choices] */
    size_t n_choices, n_started, n_done, n_open;
    int64_t prompt_tokens, cached_tokens, generated_tokens;
    double weight; /* of a choice in virtual time, from the length of its body, until its tokens are known */
    const char *finish;

    /* the dialect of the API (dialect.h); NULL: chat completions */
    const struct dialect *dialect;
    bool raw;            /* the body is translated to one of /v1/completions */
    char note[120];      /* what was asked for and cannot be had: a warning of the answer */
    int block, sequence; /* of a stream: the part of the answer that is sent, the next event's number */
    char block_kind;     /* 't'ext, 'r'easoning, 'c'all, 0: none is open */
    /* of /v1/responses: what a request said about tools and the format of the text; of a stream: items that
     * have ended, the text of the one that is open, calls so far */
    ln_str asked, items, said;
    char called[128]; /* the tool of the call that is open */
    size_t n_calls;

    /* other routes: the worker's answer, or what it changed */
    ln_str out;
    lora_change *change; /* NULL: nothing */
};

request_context *request_new(server *s, conn *c);
/* The client has left: cancels, and frees as soon as nothing needs it. */
void request_abandon(request_context *x);
/* Frees it if nothing needs it any more. */
void request_release(request_context *x);
/* Frees those that waited for the completion queue; called after all of its choices were read. */
void request_sweep(server *s);
/* The last byte of the answer was sent: counts it, and lets the connection go on. */
void request_complete(request_context *x);
/* Appends the header fields that every answer has. */
void request_put_fields(const request_context *x, ln_str *out);
/* Sends a whole answer, and takes the text of `body`. */
void request_give(request_context *x, ln_str *body);
/* Sends a whole answer. */
void request_reply(request_context *x, int status, const char *type, const char *body, size_t bytes,
                   const char *more);
/* Replaces names of the library's fields in the message of x->why. */
void request_reword(request_context *x);
/* Sends the error in x->why. */
void request_reply_error(request_context *x);
/* Fills x->why and sends it: an error that concerns no field. */
void request_reject(request_context *x, int status, const char *code, const char *fmt, ...) LN_PRINTF(4, 5);
/* On a worker: reads the body as an object, which the caller releases, after an error too; x->why. */
ln_status request_read_object(request_context *x, struct json_t **root);
/* The end of a work that has put its answer into x->out, or an error into x->why. */
void request_answer(work *w);
/* Sends the answer in x->out, or the error in x->why. */
void request_answer_now(request_context *x);
/* Runs `run` on a worker and `done` afterwards; if the client has left by then, the request is
 * released instead. Rejects the request if the queue is full. */
void request_work(request_context *x, workers *c, void (*run)(work *w), void (*done)(work *w));
/* Returns the request of a finished work, unpinned. NULL: its client has left, and it was released. */
request_context *request_of(work *w);

/* ---- memory of texts (texts.c) ---- */

/* Counts what libevent allocates; before its first use. */
void texts_count_buffers(void);
/* Sets the budgets from the plan. */
void texts_open(server *s);
void texts_close(server *s);
void texts_of_client(server *s, client *t);
/* On a worker: runs request_context.run inside the account. */
void texts_run(work *w);
/* Where x->why is a lack of memory that the account has caused: what it says to the client. */
void texts_explain(request_context *x);
/* Returns what the answers so far have freed to the system; called a few times a second while no choice runs
 * or waits. */
void texts_trim(server *s);
/* Answers that the account has refused memory. */
void texts_refuse(request_context *x);
/* Appends to the body. False: the account refuses it. */
bool texts_add_body(request_context *x, const http_head *h, const char *data, size_t n);
/* The text is counted as a connection's from now on; texts_free_sent frees it. */
void texts_to_buffer(request_context *x, ln_str *text);
void texts_free_sent(const void *data, size_t bytes, void *user);

/* ---- connections (conn.c) ---- */

void conn_accept(server *s, int fd, const char *address, bool loopback);
void conn_close(conn *c);
const char *conn_address(const conn *c);
/* Sends bytes of an answer. conn_end: the answer is complete; the next request may be read. */
void conn_send(conn *c, const char *data, size_t n);
/* The same without a copy, for a text that `x` has counted; takes it. */
void conn_give(conn *c, request_context *x, ln_str *text);
void conn_end(conn *c, bool keep_alive);
size_t conn_unsent(const conn *c);
/* Whether the request was read to its end, so that the next one can follow on the same connection. */
bool conn_is_read(const conn *c);
/* The body was worked on: others of the client that wait are read. */
void conn_large_done(request_context *x);
/* Whether an answer is made or on its way on some connection. */
bool conn_any_busy(const server *s);
void conn_close_all(server *s);
/* Looks at deadlines; called a few times a second. */
void conn_tick_all(server *s, double now);
/* Looks at connections that may have gone without a word; called every 20 ms while there are such. */
void conn_watch_all(server *s);
const http_head *conn_head(const conn *c);

/* ---- routes (routes.c) ---- */

enum {
    ROUTE_PUBLIC = 1,  /* without a key, and while the model loads */
    ROUTE_COUNTS = 2,  /* /count_tokens: nothing is generated */
    ROUTE_EXACT = 4,   /* answered by exactly this path */
    ROUTE_UNTYPED = 8, /* see check_content in routes.c */
    ROUTE_MEANT = 300  /* bytes of a path that is answered as another one */
};
struct route {
    const char *path; /* one that ends in / is a prefix, except / itself */
    unsigned methods; /* bits of http_method */
    unsigned flags;
    void (*handle)(request_context *x);
};
/* Judges a head. True: the body is to be read, then route->handle is called; else the request was answered.
 */
bool route_begin(request_context *x, const http_head *h);
/* The methods that are answered at the path of a route, as the field Allow has them. */
const char *route_methods(const route *r);
/* Returns the route that a path means, or NULL (paths.c). *meant: that route's spelling of the path, in `buf`
 * or the path itself. */
const route *route_of(http_span path, http_method method, http_span *meant, char buf[ROUTE_MEANT]);
/* Appends what to use instead of a path that nothing answers; nothing if that is not known. */
void route_advise(http_span path, ln_str *out);

/* ---- pages of other origins (origins.c) ---- */

/* Returns whether ln_serve_options.origins has the origin of the page that asks; then x->fields lets that
 * page read the answer. */
bool origin_allow(request_context *x, const http_head *h);
/* Appends what a browser asks before it sends a request of such a page. */
void origin_preflight(ln_str *out, const http_head *h, const char *methods);

/* ---- keys (routes.c) ---- */

void auth_open(server *s);

/* ---- failed keys (failures.c) ---- */

enum { FAILURES_MOST = 100, FAILURES_SECONDS = 60, FAILURES_SLOTS = 256 };
/* Wrong keys of one address since `since`. */
typedef struct failures {
    char address[48];
    double since;
    int n;
} failures;
/* Counts a wrong key of an address. False: it has sent more than FAILURES_MOST in FAILURES_SECONDS. */
bool failures_count(server *s, const char *address, double now);

/* ---- handlers ---- */

void handle_page(request_context *x); /* page.c */
void handle_health(request_context *x);
void handle_version(request_context *x);
void handle_props(request_context *x);
void handle_slots(request_context *x);
void handle_openapi(request_context *x);
void handle_models(request_context *x);
void handle_model(request_context *x);
void handle_status(request_context *x);
void handle_metrics(request_context *x);
void handle_tokenize(request_context *x);
void handle_detokenize(request_context *x);
void handle_apply_template(request_context *x);
void handle_chat(request_context *x);
void handle_completion(request_context *x);
void handle_messages(request_context *x);
void handle_count_tokens(request_context *x);
void handle_responses(request_context *x);
void handle_classify(request_context *x);
void handle_score(request_context *x);
void handle_rerank(request_context *x);
void handle_embeddings(request_context *x); /* embed_routes.c */
void handle_load_lora(request_context *x);  /* lora_routes.c */
void handle_unload_lora(request_context *x);
void handle_loras(request_context *x);
void handle_ollama_chat(request_context *x);
void handle_ollama_generate(request_context *x);
void handle_ollama_embed(request_context *x);
void handle_ollama_embeddings(request_context *x);
void handle_tags(request_context *x); /* ollama_models.c */
void handle_show(request_context *x);
void handle_ps(request_context *x);
void handle_api_version(request_context *x);
void handle_scale_loras(request_context *x);
/* Appends entry i of /v1/models. */
void put_model(ln_str *out, const server *s, size_t i);
/* Sends a JSON text and frees it. */
void reply_json(request_context *x, ln_str *out);

/* ---- generating (generation.c, stream.c) ---- */

/* Puts a choice on the completion queue's stack; any thread. */
void choice_wake(choice *c);
/* A choice was taken from the stack: reads its events. */
void choice_ready(choice *c);
/* The reader of a stream has taken some: reads on. */
void generation_resume(request_context *x);
/* On a worker: reads the body of a conversation, in the request's dialect, to x->q; false: x->why. */
bool generation_read(request_context *x, wire_kind kind);
/* Cancels all choices. */
void generation_cancel(request_context *x);
/* The same at the end of a drain: the client gets an error. */
void generation_cut(request_context *x);
/* An array of the results of all choices, to be freed; NULL: out of memory. */
ln_result *request_results(const request_context *x);
void generation_free(request_context *x);
/* Sends the head of a stream. False: out of memory, nothing was sent. */
bool stream_begin(request_context *x);
/* Sends what the event says. False: the request has ended. */
void stream_event(choice *c, const ln_event *ev);
/* Counts the calls of a stream by its events; true: the event begins a call. */
bool choice_follow_call(choice *c, ln_event_kind kind);
void stream_finish(choice *c);
void stream_end(request_context *x);
void stream_keepalive(request_context *x);
void stream_error(request_context *x);

/* ---- the queue (clients.c) ---- */

client *client_of(server *s, const char *name); /* one more reference; NULL: out of memory */
void client_leave(server *s, client *t);
/* Whether `n` more choices may wait: 0, or 429 or 503. */
int fair_check(const server *s, const client *t, size_t n);
void fair_add(request_context *x);
void fair_remove(request_context *x); /* what of it still waits */
void fair_pump(server *s);            /* starts choices while the engine has room */
void fair_charge(client *t, double tokens);

/* ---- measuring (metrics.c, log_lines.c) ---- */

enum { METRIC_BUCKETS = 16, METRIC_STATUSES = 64 };
typedef struct histogram {
    uint64_t counts[METRIC_BUCKETS + 1];
    double sum;
    uint64_t n;
} histogram;
typedef struct metrics {
    uint64_t requests[600]; /* by status */
    uint64_t finishes[4];   /* by ln_finish; 3: error */
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t rejected, cancelled, stalled, connections, malformed;
    histogram first_token, between_tokens, total, queue;
} metrics;
void metric_observe(histogram *h, double seconds);
/* Counts and logs a request that was answered or whose client left. */
void log_request(const request_context *x);
void log_line(server *s, const char *text, size_t n);

/* ---- sandbox_linux.c, sandbox_macos.c ---- */

/* Allows only the system calls that a server needs once it listens, for all threads; with `gpu` those of the
 * GPU's driver too. With `secrets` no other process may read its memory. False: the kernel has no such
 * filter. */
bool sandbox_enter(bool secrets, bool gpu);
/* Gives up all files but those that are open, and reading below /proc, /sys and `paths`; new TCP connections
 * and ports; signals to, and abstract sockets of, other processes (if the kernel has such rules). Holds for
 * the calling thread and threads that it starts from now on: the worker that loads calls it before the
 * engine's threads exist (with adapters before its own thread does, when the threads for kernels do), and the
 * I/O thread before the other worker exists. False: the kernel has no such rules (Landlock). */
bool sandbox_files(const char *const *paths, size_t n);
/* The socket on which systemd is told the state (NOTIFY_SOCKET), or -1. */
int notify_open(void);
void notify_send(int fd, const char *state);

/* ---- listening (listener.c) ---- */

ln_status listener_open(server *s, ln_error *err);
void listener_close(server *s);
/* Accepts again after a lack of descriptors or memory; called a few times a second. */
void listener_resume(server *s);

/* ---- the server ---- */

typedef enum phase { PHASE_LOADING = 0, PHASE_READY, PHASE_DRAINING, PHASE_ENDING } phase;

typedef struct api_key {
    uint8_t digest[32];
    char name[32]; /* of its client: key-1 */
} api_key;

struct server {
    const ln_serve_options *o;
    phase phase;
    struct event_base *base;
    struct event *accept_event, *stop_event, *finished_event, *tick_event, *watch_event;
    int notify_fd;             /* to systemd, or -1 */
    int listen_fd, reserve_fd; /* reserve_fd: given up for a moment where no descriptor is left */
    int port;
    bool is_paused;   /* nothing is accepted until the next tick */
    bool loopback;    /* bound to it alone */
    char address[80]; /* HOST:PORT that it is bound to */
    completion_queue completions;
    workers preparing, calling; /* bodies; calls that wait for the engine */
    work load;
    ln_error error; /* of loading, or of what ended the server */
    ln_model *model;
    ln_engine *engine;
    const ln_tokenizer *tok;
    ln_info info;
    ln_plan plan;
    char name[256];
    ln_str chat_template; /* its text, for /props and /api/show */
    char fingerprint[WIRE_FINGERPRINT];
    wire_target target; /* except names and adapters, which models->target has */
    model_list *models; /* the current one; NULL: the model is being loaded */
    double started, loaded, drain_until;
    int64_t created;     /* Unix time */
    char created_at[72]; /* the same as 2026-01-31T12:00:00Z */
    conn *conns;         /* all */
    int n_conns, n_watched, n_paused;
    request_context *requests;
    request_context *garbage; /* ended, with choices that are still on the completion queue's stack */
    int n_requests;
    ln_budget texts; /* ln_plan.text_bytes */
    uint64_t held;   /* bytes of bodies */
    client *clients;
    int n_queued, n_running; /* choices that wait here; that are with the engine */
    double clock;            /* virtual time of the queue */
    api_key *keys;
    size_t n_keys;
    failures failed[FAILURES_SLOTS];
    metrics m;
    /* of the watch over the engine: its steps at the last look, and since when they stand still with work */
    uint64_t n_steps;
    double still_since;
    bool stuck, lost;
    bool untrimmed; /* answers were made since the C library was last asked to return freed memory */
    uint64_t n_lost_lines;
};

#endif
