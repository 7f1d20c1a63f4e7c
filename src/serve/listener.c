/* The listening socket: binding, and accepting without ever spinning. */
#include "../base/os.h"
#include "server.h"

#include <event2/event.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_ACCEPTS = 64, MOST_BACKLOG = 1024 };

/* As many descriptors as the system allows: each connection needs one. */
static void raise_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= r.rlim_max) return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
}

static int open_reserve(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

/* Writes the address as text: a mapped IPv4 address as IPv4. */
static bool address_text(const struct sockaddr_storage *a, char *out, size_t cap, bool *loopback) {
    const struct sockaddr_in *v4 = (const void *)a;
    const struct sockaddr_in6 *v6 = (const void *)a;
    uint32_t raw = 0;
    bool is_v4 = a->ss_family == AF_INET;
    if (is_v4) memcpy(&raw, &v4->sin_addr, 4);
    if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(&raw, v6->sin6_addr.s6_addr + 12, 4);
        is_v4 = true;
    }
    *loopback = is_v4 ? ntohl(raw) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    if (is_v4) return inet_ntop(AF_INET, &raw, out, (socklen_t)cap) != NULL;
    return a->ss_family == AF_INET6 && inet_ntop(AF_INET6, &v6->sin6_addr, out, (socklen_t)cap) != NULL;
}

/* No descriptor is left: gives up the reserved one to take a connection and close it. False: none was taken.
 */
static bool refuse_one(server *s) {
    if (s->reserve_fd < 0) s->reserve_fd = open_reserve();
    if (s->reserve_fd < 0) return false;
    (void)close(s->reserve_fd);
    const int fd = ln_os_accept(s->listen_fd, NULL, NULL, false);
    if (fd >= 0) (void)close(fd);
    s->reserve_fd = open_reserve();
    s->m.rejected += fd >= 0;
    return fd >= 0;
}

/* A connection that waits and cannot be taken would make the loop spin: no event until the next tick. */
static void pause_accepting(server *s) {
    s->is_paused = true;
    (void)event_del(s->accept_event);
}

void listener_resume(server *s) {
    if (s->is_paused && s->accept_event) (void)event_add(s->accept_event, NULL);
    s->is_paused = false;
}

static void on_accept(evutil_socket_t listening, short what, void *user) {
    server *s = user;
    (void)what;
    for (int i = 0; i < MOST_ACCEPTS; i++) {
        struct sockaddr_storage a;
        socklen_t n = sizeof a;
        char text[48] = "?";
        bool loopback = false;
        const int fd = ln_os_accept(listening, (struct sockaddr *)&a, &n, true);
        if (fd >= 0) {
            (void)address_text(&a, text, sizeof text, &loopback);
            conn_accept(s, fd, text, loopback);
        } else if (errno == EMFILE || errno == ENFILE) {
            if (refuse_one(s)) continue;
            if (s->reserve_fd < 0) pause_accepting(s);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
            if (errno != EAGAIN) pause_accepting(s); /* memory is short, for instance */
            return;
        }
    }
}

static ln_status bind_one(server *s, const struct addrinfo *a, ln_error *err) {
    const int on = 1;
    char why[LN_ERRNO_TEXT];
    s->listen_fd = ln_os_socket(a->ai_family, SOCK_STREAM, true);
    if (s->listen_fd >= 0 && setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(s->listen_fd, a->ai_addr, a->ai_addrlen) == 0 && listen(s->listen_fd, MOST_BACKLOG) == 0)
        return LN_OK;
    const int number = errno;
    listener_close(s);
    return ln_fail(err, LN_EIO, "cannot listen on %s port %d: %s%s", s->o->host, s->o->port,
                   ln_errno_text(why, number),
                   number == EADDRINUSE ? "; choose another ln_serve_options.port, or 0 for any"
                   : number == EACCES ? "; ports under 1024 need rights, choose another ln_serve_options.port"
                                      : "");
}

static ln_status bind_any(server *s, ln_error *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    char port[16];
    (void)snprintf(port, sizeof port, "%d", s->o->port);
    const int bad = getaddrinfo(s->o->host, port, &hints, &all);
    if (bad)
        return ln_fail(err, LN_EIO,
                       "cannot listen on %s: %s; ln_serve_options.host takes an address of this machine",
                       s->o->host, gai_strerror(bad));
    ln_status st = LN_EIO;
    for (const struct addrinfo *a = all; a && st != LN_OK; a = a->ai_next) st = bind_one(s, a, err);
    freeaddrinfo(all);
    return st;
}

static void name_address(server *s) {
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    char text[48] = "?";
    (void)getsockname(s->listen_fd, (struct sockaddr *)&a, &n);
    (void)address_text(&a, text, sizeof text, &s->loopback);
    s->port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                            : ((struct sockaddr_in *)&a)->sin_port);
    (void)snprintf(s->address, sizeof s->address, strchr(text, ':') ? "[%s]:%d" : "%s:%d", text, s->port);
}

ln_status listener_open(server *s, ln_error *err) {
    raise_limit();
    s->reserve_fd = open_reserve();
    LN_TRY(bind_any(s, err));
    name_address(s);
    s->accept_event = event_new(s->base, s->listen_fd, EV_READ | EV_PERSIST, on_accept, s);
    return s->accept_event && event_add(s->accept_event, NULL) == 0 ? LN_OK : LN_OOM(err, "the event loop");
}

void listener_close(server *s) {
    if (s->accept_event) event_free(s->accept_event);
    s->accept_event = NULL;
    if (s->listen_fd >= 0) (void)close(s->listen_fd);
    s->listen_fd = -1;
}
