/* `linnet serve`: OpenAI's API over HTTP for one model. The design is docs/decisions/023.
 *
 * The module uses the public API of the library, the bodies of wire/ and libevent; it is a part of the
 * command, not of the library. */
#ifndef LN_SERVE_H
#define LN_SERVE_H

#include "../base/base.h"

/* Limits. docs/server.md lists them. */
enum {
    SERVE_MOST_BODY = 32 << 20,     /* bytes of a request's body */
    SERVE_MOST_TEXTS = 256 << 20,   /* of all bodies and what is made of them, where the plan has as many */
    SERVE_MOST_CONNECTIONS = 10240, /* open at once */
    SERVE_MOST_OF_ADDRESS = 1024,   /* of them from one address that is not loopback */
    SERVE_MOST_CHOICES = 128,       /* choices of one request */
    SERVE_MOST_OUTPUT = 256 << 10,  /* bytes of an answer that wait for a slow reader */
    SERVE_MOST_INPUT = 64 << 10,    /* bytes of further requests that wait for an answer */
    SERVE_HEAD_SECONDS = 10,        /* from the first byte of a head to its last */
    SERVE_IDLE_SECONDS = 75,        /* between two requests */
    SERVE_BODY_SECONDS = 5,         /* after which a body comes with 1 KiB a second at least */
    SERVE_STALL_SECONDS = 30,       /* in which a reader takes nothing */
    SERVE_KEEPALIVE_SECONDS = 15,   /* of silence in a stream before a comment */
    SERVE_DRAIN_SECONDS = 30,       /* from SIGTERM to the end */
    SERVE_PARALLEL = 8,             /* --parallel without the flag */
    SERVE_MOST_QUEUE = 512          /* --max-queue without the flag */
};

/* An adapter that requests choose by `model`. */
typedef struct ln_serve_lora {
    const char *name;
    ln_adapter_part part;
} ln_serve_lora;

typedef struct ln_serve_options {
    const char *model; /* as ln_model_open takes it */
    /* What the model is called in /v1/models; NULL: the name of its directory. */
    const char *name;
    const char *const *aliases; /* [n_aliases] further names of the model; "*": every name is its own */
    size_t n_aliases;
    /* [n_origins] Origins whose pages may use the server: SCHEME://HOST[:PORT], with * as the host or the
     * port, or "null", or "*", which is every origin. */
    const char *const *origins;
    size_t n_origins;
    ln_options engine;          /* n_parallel is set */
    const ln_serve_lora *loras; /* [n_loras]; engine.n_adapters is large enough for them */
    size_t n_loras;
    /* Directory below which adapters may be loaded while the server runs, by any authorised client; NULL:
     * adapters stay as they are. engine.n_adapters and engine.adapter_rank are large enough for them. */
    const char *lora_dir;
    const char *host;
    int port;                /* 0: the system picks one */
    const char *const *keys; /* [n_keys] API keys; none: no authentication */
    size_t n_keys;
    int max_queue; /* choices that may wait */
    bool log_json; /* lines of the log are JSON */
    bool quiet;    /* no line for each request */
    double idle_seconds, head_seconds, stall_seconds, keepalive_seconds, drain_seconds; /* 0: those above */
    /* Becomes readable when the server is to stop; *take_stops then returns how often that was asked since
     * the last call: once, the server drains; once more, it ends what runs. */
    int stop_fd;
    int (*take_stops)(void);
    void (*say)(const char *line); /* a line for people on stderr */
    /* Appends a message of the library with the names of its fields replaced by what people can set; NULL:
     * none are. Any thread. */
    void (*reword)(ln_str *out, const char *message);
} ln_serve_options;

/* Sets n_ctx, pool_positions and kv_bytes of *o where they are 0, for o->n_parallel requests at once; for
 * linnet plan too. Errors: those of ln_plan_memory. */
ln_status serve_size(const char *model, ln_options *o, ln_error *err);

/* Runs the server until it is asked to stop. LN_EIO: the address cannot be bound. Other errors are those of
 * ln_model_open and ln_engine_open. */
ln_status serve_run(const ln_serve_options *o, ln_error *err);

#endif
