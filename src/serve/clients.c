/* The queue of choices, and which client is next.
 *
 * Each client (a client) has a virtual time, the tokens that were computed for it. Choices wait in the server
 * in a list for each client; the next one that starts is the first of the client whose time is least. A
 * client that had nothing to do begins at the time of the one that was served last, so that it can save no
 * credit. With one client this is first come, first served. */
#include "server.h"

enum {
    IN_ENGINE_TOO = 2
}; /* choices in the engine's own queue, so that a sequence that ends is replaced at once */

static bool is_active(const client *t) { return t->n_queued > 0 || t->n_running > 0; }

client *client_of(server *s, const char *name) {
    client *t = s->clients;
    while (t && strcmp(t->name, name) != 0) t = t->next;
    if (!t) {
        t = ln_zalloc(1, sizeof *t);
        if (!t) return NULL;
        t->last = &t->first;
        memcpy(t->name, name, LN_MIN(strlen(name), sizeof t->name - 1));
        t->served = s->clock;
        t->next = s->clients;
        s->clients = t;
    }
    t->n_refs++;
    texts_of_client(s, t);
    return t;
}

void client_leave(server *s, client *t) {
    if (!t || --t->n_refs > 0) return;
    for (client **at = &s->clients; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    ln_free(t);
}

/* Choices that run or wait in the engine. Those that have finished there, and whose reader is too slow to
 * have been told, do not count against the limit. */
static int64_t in_engine(const server *s) {
    ln_engine_stats e = {.size = sizeof e};
    ln_error err;
    return ln_engine_get_stats(s->engine, &e, &err) == LN_OK ? e.n_running + e.n_waiting : s->n_running;
}

int fair_check(const server *s, const client *t, size_t n) {
    const size_t most = (size_t)s->o->max_queue, running = (size_t)s->plan.n_parallel;
    if ((size_t)(s->n_queued + in_engine(s)) + n > most + running) return 503;
    /* one of several keys has half of the queue at most */
    const size_t part = s->n_keys > 1 ? LN_MAX(most / 2, (size_t)1) : most;
    return (size_t)(t->n_queued + t->n_running) + n > part + running ? 429 : 0;
}

void fair_add(request_context *x) {
    client *t = x->client;
    if (!is_active(t) && t->served < x->s->clock) t->served = x->s->clock;
    x->queued = true;
    x->next_queued = NULL;
    *t->last = x;
    t->last = &x->next_queued;
    t->n_queued += (int)x->n_choices;
    x->s->n_queued += (int)x->n_choices;
}

void fair_remove(request_context *x) {
    client *t = x->client;
    if (!x->queued) return;
    x->queued = false;
    const int left = (int)(x->n_choices - x->n_started);
    t->n_queued -= left;
    x->s->n_queued -= left;
    for (request_context **at = &t->first; *at; at = &(*at)->next_queued)
        if (*at == x) {
            *at = x->next_queued;
            if (!x->next_queued) t->last = at;
            break;
        }
}

void fair_charge(client *t, double tokens) { t->served += tokens; }

static client *next_client(server *s) {
    client *best = NULL;
    for (client *t = s->clients; t; t = t->next)
        if (t->first && (!best || t->served < best->served)) best = t;
    return best;
}

/* Starts the next choice of x. */
static void start_choice(request_context *x) {
    choice *c = &x->choices[x->n_started];
    client *t = x->client;
    ln_error err;
    c->started = true;
    fair_charge(t, x->weight);
    t->n_queued--;
    x->s->n_queued--;
    t->n_running++;
    x->s->n_running++;
    if (++x->n_started == x->n_choices) fair_remove(x);
    if (ln_request_start(c->request, &err) == LN_OK) return;
    x->s->lost = true; /* the engine cannot go on: /health says so, and the choice ends with an error */
    (void)wire_fail(&x->why, ln_fail(&x->why.error, LN_EDEVICE, "%s", err.message));
    c->failed = true;
    choice_wake(c);
}

void fair_pump(server *s) {
    int64_t n = in_engine(s);
    for (client *t; n < s->plan.n_parallel + IN_ENGINE_TOO && (t = next_client(s)); n++) {
        if (t->served > s->clock) s->clock = t->served;
        start_choice(t->first);
    }
}
