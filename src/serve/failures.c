/* Wrong API keys, counted by address. An address that sends many is told to wait: its wrong keys are answered
 * with 429 and the end of the connection. A right key is answered all the same, because clients may share an
 * address, behind a proxy all of them do. */
#include "server.h"

#include <string.h>

/* The slot of the address; else the oldest one, which is given to it. */
static failures *slot_of(server *s, const char *address) {
    failures *oldest = &s->failed[0];
    for (size_t i = 0; i < FAILURES_SLOTS; i++) {
        failures *f = &s->failed[i];
        if (strcmp(f->address, address) == 0) return f;
        if (f->since < oldest->since) oldest = f;
    }
    *oldest = (failures){0};
    memcpy(oldest->address, address, LN_MIN(strlen(address), sizeof oldest->address - 1));
    return oldest;
}

bool failures_count(server *s, const char *address, double now) {
    failures *f = slot_of(s, address);
    if (now - f->since > FAILURES_SECONDS) {
        f->since = now;
        f->n = 0;
    }
    if (f->n <= FAILURES_MOST) f->n++;
    return f->n <= FAILURES_MOST;
}
