/* Large bodies: those of one client wait for each other, and no body takes more than its client's share of
 * the memory for texts. text_limits.py has the limits of the whole process. */
/* run: slow tsan-long */
#include "server_test.h"

static int status_of(const char *method, const char *path, const char *fields, const char *body) {
    reply r = call(method, path, fields, body);
    const int status = r.status;
    drop_reply(&r);
    return status;
}

enum { MIB = 1 << 20, BODY = 32 * MIB };

/* Opens a connection of client one with the head of a body of 32 MiB. */
static int begin_large(void) {
    static const char head[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nx-api-key: one\r\n" JSON
                               "Content-Length: 33554432\r\n\r\n";
    const int fd = dial();
    put(fd, head, sizeof head - 1);
    return fd;
}

/* Sends the rest of a body of blanks, and checks that it was read: it is no JSON. */
static void end_large(int fd, const char *block, size_t sent) {
    ln_str rest = {0};
    for (size_t n; sent < BODY; sent += n) put(fd, block, n = LN_MIN(BODY - sent, (size_t)MIB));
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 400);
    drop_reply(&r);
    ln_str_free(&rest);
    (void)close(fd);
}

/* Large bodies of one client wait in their sockets while others of it are read, up to a third of its share of
 * the memory for texts. Small ones, and those of other clients, are answered. */
static void large_bodies_of_one_client_wait(void **state) {
    (void)state;
    enum { N = 5 };
    if (fewer(0, 1)) skip(); /* 64 MB go through the socket */
    static char path[] = "/tmp/linnet-keys-XXXXXX", flag[64];
    const int keys = mkstemp(path);
    assert_int_equal(write(keys, "one\ntwo\n", 8), 8);
    (void)close(keys);
    (void)snprintf(flag, sizeof flag, "@%s", path);
    START("--log-format", "none", "--api-key", flag);
    (void)unlink(path);
    int fd[N];
    size_t sent[N] = {0};
    char *block = ln_alloc(MIB);
    memset(block, ' ', MIB);
    for (int i = 0; i < N; i++) fd[i] = begin_large();
    for (; sent[0] < 16 * MIB; sent[0] += MIB) put(fd[0], block, MIB);
    for (int i = 1; i < N; i++) { /* what the sockets hold */
        for (ssize_t n; (n = send(fd[i], block, MIB, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;) sent[i] += (size_t)n;
        assert_true(sent[i] < BODY);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(status_of("POST", "/tokenize",
                                   i ? JSON "x-api-key: two\r\n" : JSON "x-api-key: one\r\n",
                                   "{\"content\":\"a\"}"),
                         200);
    end_large(fd[0], block, sent[0]);
    end_large(fd[1], block, sent[1]); /* the next one is read now */
    (void)close(fd[2]);               /* clients that leave while their bodies wait hold up no other */
    (void)close(fd[3]);
    end_large(fd[4], block, sent[4]);
    ln_free(block);
    assert_int_equal(stop(), 0);
}

/* A body that is longer than the share of its client is rejected by its head; one of unknown length when it
 * outgrows the share. Both numbers are told, and small requests go on. */
static void bodies_keep_the_share_of_texts(void **state) {
    (void)state;
    char memory[40];
    ln_plan p = {.size = sizeof p};
    ln_options o = ln_options_default();
    assert_int_equal(ln_plan_memory(LN_ROOT "/models/tiny", &o, &p, NULL), LN_OK);
    (void)snprintf(memory, sizeof memory, "%llu", (unsigned long long)p.peak_bytes + (44 << 20));
    START("--log-format", "none", "--memory", memory);
    ln_str rest = {0};
    int fd = begin_large();
    reply r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 413);
    assert_non_null(strstr(r.body.data, "takes 33.6 MB or more, and the share of one client leaves "));
    drop_reply(&r);
    (void)close(fd);
    static const char head[] =
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n100000\r\n";
    char *block = ln_alloc(MIB + 10);
    memset(block, ' ', MIB);
    memcpy(block + MIB, "\r\n100000\r\n", 10);
    fd = dial();
    put(fd, head, sizeof head - 1);
    ssize_t n = MIB;
    for (int i = 0; i < 32 && n > 0; i++) n = send(fd, block, MIB + 10, MSG_NOSIGNAL);
    rest.len = 0;
    r = read_reply(fd, &rest, false);
    assert_int_equal(r.status, 413);
    assert_non_null(strstr(r.body.data, "the share of one client leaves "));
    drop_reply(&r);
    (void)close(fd);
    ln_free(block);
    ln_str_free(&rest);
    assert_int_equal(status_of("POST", "/tokenize", JSON, "{\"content\":\"a\"}"), 200);
    assert_int_equal(status_at("memory.bodies_bytes"), 0);
    assert_true(status_at("memory.text_bytes") < 1 << 20);
    assert_int_equal(stop(), 0);
}

#define SERVED(fn) cmocka_unit_test_teardown(fn, kill_server)

int main(void) {
    const struct CMUnitTest tests[] = {SERVED(large_bodies_of_one_client_wait),
                                       SERVED(bodies_keep_the_share_of_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
