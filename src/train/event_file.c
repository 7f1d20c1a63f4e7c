/* Event files (contract: event_file.h). A record is its length, a checksum of that, a message Event of
 * TensorFlow's event.proto in the encoding of protocol buffers, and a checksum of the message. */
#include "event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- checksums: CRC-32C, rotated and shifted as TensorFlow does ---- */

static uint32_t masked_crc(const char *data, size_t bytes) {
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        c ^= (uint8_t)data[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* ---- messages ---- */

/* Numbers of fields with their wire type. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3,
    EVENT_FILE_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION_LOG = 7 << 3 | 2,
    SESSION_STATUS = 1 << 3,
    SESSION_START = 1,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
    VALUE_TENSOR = 8 << 3 | 2,
    VALUE_METADATA = 9 << 3 | 2,
    METADATA_PLUGIN = 1 << 3 | 2,
    PLUGIN_NAME = 1 << 3 | 2,
    TENSOR_TYPE = 1 << 3,
    TYPE_STRING = 7,
    TENSOR_SHAPE = 2 << 3 | 2,
    TENSOR_STRING = 8 << 3 | 2,
    SHAPE_DIM = 2 << 3 | 2,
    DIM_SIZE = 1 << 3
};

static void put_little(ln_str *s, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) ln_str_add(s, (const char[]){(char)(value >> 8 * i & 0xff)}, 1);
}
static void put_varint(ln_str *s, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put_little(s, (value & 0x7f) | 0x80, 1);
    put_little(s, value, 1);
}
static void put_bytes(ln_str *s, int field, const char *data, size_t bytes) {
    put_varint(s, (uint64_t)field);
    put_varint(s, bytes);
    ln_str_add(s, data, bytes);
}

/* Adds a number to a summary, unless it is NaN: the run does not have it. */
static void put_scalar(ln_str *s, const char *tag, double number) {
    const float value = (float)number;
    uint32_t bits;
    ln_str one = {0};
    if (isnan(number)) return;
    memcpy(&bits, &value, sizeof bits);
    put_bytes(&one, VALUE_TAG, tag, strlen(tag));
    put_varint(&one, VALUE_SIMPLE);
    put_little(&one, bits, 4);
    put_bytes(s, SUMMARY_VALUE, one.data, one.len);
    s->failed = s->failed || one.failed;
    ln_str_free(&one);
}

/* Adds a message as a field, and frees it. */
static void put_message(ln_str *s, int field, ln_str *inside) {
    put_bytes(s, field, inside->data ? inside->data : "", inside->len);
    s->failed = s->failed || inside->failed;
    ln_str_free(inside);
}

/* Adds a text to a summary, as a tensor of one string for the plug-in of texts. */
static void put_text_value(ln_str *s, const char *tag, const char *text, size_t bytes) {
    ln_str one = {0}, dim = {0}, shape = {0}, tensor = {0}, plugin = {0}, metadata = {0};
    put_varint(&dim, DIM_SIZE), put_varint(&dim, 1);
    put_message(&shape, SHAPE_DIM, &dim);
    put_varint(&tensor, TENSOR_TYPE), put_varint(&tensor, TYPE_STRING);
    put_message(&tensor, TENSOR_SHAPE, &shape);
    put_bytes(&tensor, TENSOR_STRING, text, bytes);
    put_bytes(&plugin, PLUGIN_NAME, "text", 4);
    put_message(&metadata, METADATA_PLUGIN, &plugin);
    put_bytes(&one, VALUE_TAG, tag, strlen(tag));
    put_message(&one, VALUE_TENSOR, &tensor);
    put_message(&one, VALUE_METADATA, &metadata);
    put_message(s, SUMMARY_VALUE, &one);
}

/* Adds the lines of a text as code of Markdown, in which they are shown as they are. */
static void put_code(ln_str *s, const char *text, size_t bytes) {
    ln_str_adds(s, "\n\n    ");
    for (size_t i = 0; i < bytes; i++) {
        ln_str_add(s, text + i, 1);
        if (text[i] == '\n') ln_str_adds(s, "    ");
    }
    ln_str_adds(s, "\n\n");
}

/* ---- records ---- */

static double wall_time(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static ln_status cannot_write(const train_events *e, ln_error *err) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    return ln_fail(err, LN_EIO, "%s: cannot write: %s", ln_path_text(shown, e->path),
                   ln_errno_text(why, errno));
}

/* Writes a record with the field `what` of an event; frees *inside. */
static ln_status write_event(const train_events *e, int64_t step, int what, ln_str *inside, ln_error *err) {
    const double now = wall_time();
    uint64_t bits;
    ln_str event = {0}, record = {0};
    memcpy(&bits, &now, sizeof bits);
    put_varint(&event, EVENT_WALL_TIME);
    put_little(&event, bits, 8);
    put_varint(&event, EVENT_STEP);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, what, inside->data, inside->len);
    put_little(&record, event.len, 8);
    put_little(&record, record.failed ? 0 : masked_crc(record.data, record.len), 4);
    ln_str_add(&record, event.data, event.len);
    put_little(&record, event.failed ? 0 : masked_crc(event.data, event.len), 4);
    ln_status st = LN_OK;
    if (inside->failed || event.failed || record.failed) st = LN_OOM(err, "a record of events");
    else if (write(e->fd, record.data, record.len) != (ssize_t)record.len) st = cannot_write(e, err);
    ln_str_free(&event), ln_str_free(&record), ln_str_free(inside);
    return st;
}

ln_status train_events_open(train_events *e, const char *dir, int64_t step, ln_error *err) {
    ln_str text = {0}, start = {0};
    const long long now = (long long)wall_time();
    *e = (train_events){.fd = -1};
    for (int i = 0; i < 1000 && e->fd < 0; i++) { /* two runs may begin in one second */
        (void)snprintf(e->path, sizeof e->path, "%s/events.out.tfevents.%lld.linnet.%ld.%d", dir, now,
                       (long)getpid(), i);
        e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
        if (e->fd < 0 && errno != EEXIST) break;
    }
    if (e->fd < 0) return cannot_write(e, err);
    ln_str_adds(&text, "brain.Event:2");
    LN_TRY(write_event(e, 0, EVENT_FILE_VERSION, &text, err));
    if (step == 0) return LN_OK;
    put_varint(&start, SESSION_STATUS);
    put_varint(&start, SESSION_START);
    return write_event(e, step + 1, EVENT_SESSION_LOG, &start, err);
}

void train_events_close(train_events *e) {
    if (e->path[0] && e->fd >= 0) (void)close(e->fd);
    *e = (train_events){.fd = -1};
}

ln_status train_events_step(const train_events *e, const ln_step_report *r, ln_error *err) {
    ln_str s = {0};
    if (!e->path[0]) return LN_OK;
    put_scalar(&s, "train/loss", r->loss);
    put_scalar(&s, "train/learning_rate", r->lr);
    put_scalar(&s, "train/grad_norm", r->grad_norm);
    put_scalar(&s, "train/epoch", r->epoch);
    put_scalar(&s, "train/tokens_per_second", r->tok_s);
    put_scalar(&s, "train/rewards/accuracies", r->accuracy);
    put_scalar(&s, "train/rewards/margins", r->margin);
    return write_event(e, r->step, EVENT_SUMMARY, &s, err);
}

ln_status train_events_valid(const train_events *e, const ln_valid_report *r, ln_error *err) {
    ln_str s = {0};
    if (!e->path[0]) return LN_OK;
    put_scalar(&s, "eval/loss", r->loss);
    put_scalar(&s, "eval/perplexity", r->perplexity);
    put_scalar(&s, "eval/rewards/accuracies", r->accuracy);
    put_scalar(&s, "eval/rewards/margins", r->margin);
    return write_event(e, r->step, EVENT_SUMMARY, &s, err);
}

ln_status train_events_text(const train_events *e, const ln_text_report *r, ln_error *err) {
    ln_str s = {0}, text = {0};
    char tag[40];
    if (!e->path[0]) return LN_OK;
    (void)snprintf(tag, sizeof tag, "samples/%zu", r->index + 1);
    ln_str_adds(&text, "prompt:");
    put_code(&text, r->prompt, r->prompt_bytes);
    ln_str_adds(&text, "text:");
    put_code(&text, r->text, r->text_bytes);
    put_text_value(&s, tag, text.data ? text.data : "", text.len);
    s.failed = s.failed || text.failed;
    ln_str_free(&text);
    return write_event(e, r->step, EVENT_SUMMARY, &s, err);
}
