/* The MLX device: its thread, its memory, its weights, and the one function that the plug-in exports. */
#include "mlx_device.h"

#include <cstring>
#include <string>
#include <dlfcn.h>

static const ln_device_host *host;

/* ---- the thread ---- */

mlx_thread::mlx_thread() : thread([this] { loop(); }) {}

mlx_thread::~mlx_thread() {
    {
        std::lock_guard<std::mutex> held(lock);
        stop = true;
    }
    changed.notify_all();
    thread.join();
}

void mlx_thread::loop() {
    std::unique_lock<std::mutex> held(lock);
    for (;;) {
        changed.wait(held, [this] { return job || stop; });
        if (!job) return;
        held.unlock();
        job();
        held.lock();
        job = nullptr;
        changed.notify_all();
    }
}

static ln_status without_exceptions(const std::function<ln_status(ln_error *)> &what, ln_error *err) {
    try {
        return what(err);
    } catch (const std::bad_alloc &) {
        return ln_fail(err, LN_EMEMORY, "device mlx: out of memory");
    } catch (const std::exception &x) {
        const bool memory = strstr(x.what(), "llocate") || strstr(x.what(), "alloc]");
        return ln_fail(err, memory ? LN_EMEMORY : LN_EDEVICE, "device mlx: %s", x.what());
    }
}

ln_status mlx_thread::run(const std::function<ln_status(ln_error *)> &what, ln_error *err) {
    if (is_here()) return without_exceptions(what, err); /* a trace's callback reads a page */
    ln_status st = LN_OK;
    bool done = false;
    std::unique_lock<std::mutex> held(lock);
    changed.wait(held, [this] { return !job; }); /* that of another thread */
    job = [&] {
        st = without_exceptions(what, err);
        std::lock_guard<std::mutex> again(lock);
        done = true;
    };
    changed.notify_all();
    changed.wait(held, [&] { return done; });
    return st;
}

/* ---- the device ---- */

/* What MLX may keep of freed memory for its next arrays. */
enum { CACHE_BYTES = 64 << 20 };

/* Rejects a library of MLX that is another version than the one that this file was compiled for, and says
 * where it is and how to replace it. A wheel unpacks it to PACKAGES/mlx/lib. */
static ln_status another_version(ln_error *err) {
    Dl_info in = {};
    const std::string file = dladdr((void *)&mx::version, &in) && in.dli_fname ? in.dli_fname : "libmlx";
    const size_t package = file.rfind("/mlx/lib/");
    const std::string where =
        package == std::string::npos ? "" : "--upgrade --target " + file.substr(0, package) + " ";
    return ln_fail(err, LN_EDEVICE,
                   "device mlx: %s is MLX %s, expected %s, for which the plug-in was built; install that "
                   "one: "
                   "pip install %s%s==%s",
                   file.c_str(), mx::version(), LN_MLX_VERSION, where.c_str(), LN_MLX_WHEEL, LN_MLX_VERSION);
}

static ln_status device_open(ln_dev **out, const ln_dev_options *opt, ln_error *err) {
    *out = nullptr;
    if (opt && opt->ordinal != 0)
        return ln_fail(err, LN_EDEVICE, "device mlx: there is one, number 0; found number %d", opt->ordinal);
    if (strcmp(mx::version(), LN_MLX_VERSION) != 0) return another_version(err);
    try {
        *out = new ln_dev;
    } catch (const std::exception &x) {
        return ln_fail(err, LN_EMEMORY, "device mlx: its thread cannot be started: %s", x.what());
    }
    return (*out)->thread.run([](ln_error *) { return mx::set_cache_limit(CACHE_BYTES), LN_OK; }, err);
}

static void device_close(ln_dev **dev) {
    if (!*dev) return;
    (void)(*dev)->thread.run(
        [&](ln_error *) {
            (*dev)->blocks.clear();
            mx::clear_cache();
            return LN_OK;
        },
        nullptr);
    delete *dev;
    *dev = nullptr;
}

static void device_describe(const ln_dev *, ln_dev_info *out) {
    const uint32_t size = out->size;
    memset(out, 0, sizeof *out);
    out->size = size;
    (void)snprintf(out->name, sizeof out->name, "mlx");
    (void)snprintf(out->isa, sizeof out->isa, "mlx");
    (void)snprintf(out->isas, sizeof out->isas, "MLX %.20s, %s", mx::version(),
                   mx::default_device() == mx::Device::gpu ? "Metal, bits not compared"
                                                           : "CPU, same bits alone and in a batch");
    (void)snprintf(out->quantised, sizeof out->quantised, "fast: x in bf16; exact: f32; by group");
    out->real_bytes = 4;
    out->n_threads = 1;
    out->upload_rows = 1;
    out->can = LN_CAN_ADAPTERS;
}

/* ---- memory ---- */

enum { ALIGN = MLX_ALIGN, ROW = 4096 };

static ln_status device_alloc(ln_dev *d, size_t bytes, size_t, void **out, ln_error *err) {
    *out = nullptr;
    return d->thread.run(
        [&](ln_error *) {
            const size_t rows = (bytes + ALIGN + ROW - 1) / ROW; /* a dimension has 31 bits */
            mx::array a(mx::allocator::malloc(rows * ROW), mx::Shape{(int)rows, ROW}, mx::uint8);
            char *p = a.data<char>();
            p += (ALIGN - (uintptr_t)p % ALIGN) % ALIGN;
            memset(p, 0, bytes);
            d->blocks.emplace(p, mlx_block{std::move(a), bytes});
            *out = p;
            return LN_OK;
        },
        err);
}

static void device_free(ln_dev *d, void *p, size_t) {
    if (!p) return;
    (void)d->thread.run([&](ln_error *) { return d->blocks.erase((char *)p), LN_OK; }, nullptr);
}

static const std::pair<char *const, mlx_block> &block_of(const ln_dev *d, const void *at) {
    auto next = d->blocks.upper_bound((char *)at);
    if (next == d->blocks.begin()) throw std::runtime_error("an address is in no block of the device");
    --next;
    if ((char *)at > next->first + next->second.size)
        throw std::runtime_error("an address is in no block of the device");
    return *next;
}

size_t mlx_bytes_after(const ln_dev *d, const void *at) {
    const auto &b = block_of(d, at);
    return b.second.size - (size_t)((char *)at - b.first);
}

mx::array mlx_view(const ln_dev *d, const void *at, const mx::Shape &shape, const mx::Strides &strides,
                   mx::Dtype dtype) {
    const mx::array &block = block_of(d, at).second.bytes;
    mx::array view(shape, dtype, nullptr, {});
    int64_t last = 0, dense = 1;
    bool contiguous = true;
    for (int i = (int)shape.size() - 1; i >= 0; i--) {
        if (shape[i] > 1 && strides[i] != dense) contiguous = false;
        dense *= shape[i];
        last += (shape[i] - 1) * strides[i];
    }
    const int64_t bytes = (const char *)at - block.data<char>();
    /* The offset counts elements of the view's type: blocks and MLX's own memory begin at multiples of 8. */
    view.copy_shared_buffer(block, strides, {contiguous, contiguous, dense == 1 || shape.size() == 1},
                            (size_t)(contiguous ? dense : last + 1), bytes / (int64_t)mx::size_of(dtype));
    view.set_status(mx::array::Status::available);
    return view;
}

mx::array mlx_view(const ln_dev *d, const void *at, const mx::Shape &shape, mx::Dtype dtype) {
    mx::Strides strides(shape.size(), 1);
    for (int i = (int)shape.size() - 2; i >= 0; i--) strides[i] = strides[i + 1] * shape[i + 1];
    return mlx_view(d, at, shape, strides, dtype);
}

static ln_status device_copy(ln_queue *q, void *to, const void *from, size_t bytes, int, ln_error *err) {
    return q->dev->thread.run(
        [&](ln_error *) {
            if (from) memcpy(to, from, bytes);
            else memset(to, 0, bytes);
            return LN_OK;
        },
        err);
}

/* ---- weights ---- */

static bool has_encoding(ln_encoding e) {
    return ln_encoding_is_dense(e) || (e.kind == LN_STORED_AFFINE && e.scale != LN_I32);
}

mlx_weight_parts mlx_parts_of(ln_encoding enc, int64_t rows, int64_t cols) {
    mlx_weight_parts p = {};
    p.row = ln_encoding_row(enc, cols);
    p.scales = (rows * p.row.data + ALIGN - 1) / ALIGN * ALIGN;
    p.offsets = p.scales + (rows * p.row.scales + ALIGN - 1) / ALIGN * ALIGN;
    p.bytes = p.offsets + rows * p.row.offsets;
    return p;
}

static ln_status weight_size(const ln_dev *, const ln_weight_desc *w, const ln_host_weight *,
                             ln_weight_size *out, ln_error *err) {
    if (!has_encoding(w->enc))
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: the mlx device has no layout for its encoding (%s); use "
                       "ln_options.device = LN_DEVICE_CPU",
                       w->name, ln_stored_name(w->enc.kind));
    const size_t bytes = (size_t)mlx_parts_of(w->enc, ln_weight_desc_rows(w), ln_weight_desc_cols(w)).bytes;
    *out = ln_weight_size{false, bytes, bytes};
    return LN_OK;
}

/* Copies rows, and releases the pages of the mapped file a piece at a time, so that no large tensor is in
 * memory twice. */
static void copy_rows(char *to, int64_t to_pitch, const void *from, int64_t pitch, int64_t bytes, int64_t n) {
    enum { PIECE = 8 << 20 };
    if (!from) return;
    if (!pitch) pitch = bytes;
    const int64_t piece = LN_MAX(PIECE / pitch, (int64_t)1);
    for (int64_t r = 0; r < n;) {
        const int64_t first = r, end = LN_MIN(r + piece, n);
        for (; r < end; r++) memcpy(to + r * to_pitch, (const char *)from + r * pitch, (size_t)bytes);
        host->release((const char *)from + first * pitch, (size_t)((end - first - 1) * pitch + bytes));
    }
}

static ln_status upload(ln_dev *d, const ln_weight_desc *w, const ln_host_weight *h, void *out_bytes,
                        ln_device_weight *out, ln_error *err) {
    const int64_t D = ln_weight_desc_rows(w), C = ln_weight_desc_cols(w);
    const ln_groups code = ln_encoding_groups(w->enc);
    const int64_t unit = code.bits ? code.group : 1;
    if (h->row0 < 0 || h->n_rows < 0 || h->row0 > D - h->n_rows || h->col0 < 0 || h->n_cols < 0 ||
        h->col0 > C - h->n_cols || h->col0 % unit || h->n_cols % unit)
        return ln_fail(err, LN_EUNSUPPORTED,
                       "weight %s: expected a range of [%lld, %lld] in whole groups of columns", w->name,
                       (long long)D, (long long)C);
    const mlx_weight_parts p = mlx_parts_of(w->enc, D, C);
    const ln_row_bytes before = ln_encoding_row(w->enc, h->col0), row = ln_encoding_row(w->enc, h->n_cols);
    char *to = (char *)out_bytes;
    *out = ln_device_weight{out_bytes, (size_t)p.bytes, 0, 0};
    if (!h->n_rows || !h->n_cols) return LN_OK;
    return d->thread.run(
        [&](ln_error *) {
            copy_rows(to + h->row0 * p.row.data + before.data, p.row.data, h->data, h->pitch, row.data,
                      h->n_rows);
            copy_rows(to + p.scales + h->row0 * p.row.scales + before.scales, p.row.scales, h->scales,
                      h->scale_pitch, row.scales, h->n_rows);
            copy_rows(to + p.offsets + h->row0 * p.row.offsets + before.offsets, p.row.offsets, h->offsets,
                      h->offset_pitch, row.offsets, h->n_rows);
            return LN_OK;
        },
        err);
}

mlx_weight mlx_weight_of(const ln_dev *d, const ln_pvalue *v) {
    mlx_weight w;
    mx::Shape shape;
    for (int i = 0; i < v->n_dims; i++) shape.push_back((int)v->dims[i]);
    const int64_t C = v->n_dims > 1 ? v->dims[v->n_dims - 1] : 1;
    int64_t D = 1;
    for (int i = 0; i < LN_MAX(v->n_dims - 1, 1); i++) D *= v->dims[i];
    const ln_groups code = ln_encoding_groups(v->enc);
    if (!code.bits) {
        w.dense = mlx_view(d, v->data, shape, mlx_dtype((ln_dtype)v->enc.scale));
        return w;
    }
    const mlx_weight_parts p = mlx_parts_of(v->enc, D, C);
    const char *at = (const char *)v->data;
    w.bits = code.bits, w.group = code.group;
    shape.back() = (int)(p.row.data / 4);
    w.codes = mlx_view(d, at, shape, mx::uint32);
    shape.back() = (int)(C / code.group);
    w.scales = mlx_view(d, at + p.scales, shape, mlx_dtype((ln_dtype)v->enc.scale));
    w.biases = mlx_view(d, at + p.offsets, shape, mlx_dtype((ln_dtype)v->enc.offset));
    return w;
}

extern "C" {
static const ln_device_ops ops = {
    .abi = LN_DEVICE_ABI,
    .size = sizeof(ln_device_ops),
    .name = "mlx",
    .open = device_open,
    .close = device_close,
    .describe = device_describe,
    .queue_open = mlx_queue_open,
    .queue_close = mlx_queue_close,
    .alloc = device_alloc,
    .free = device_free,
    .weight_size = weight_size,
    .upload = upload,
    .copy = device_copy,
    .kv_bytes = mlx_kv_bytes,
    .page = mlx_page,
    .lower = mlx_lower,
    .scratch_bytes = mlx_scratch_bytes,
    .prepare = mlx_prepare,
    .release = mlx_release,
    .submit = mlx_submit,
    .wait = mlx_wait,
    .value = mlx_value,
    .argmax = nullptr,
    .measure = nullptr,
    .sample = nullptr,
};

static void to_host(void *, ln_level level, const char *line) { host->log((int)level, line); }

__attribute__((visibility("default"))) ln_device_plugin_fn ln_device_plugin;
const ln_device_ops *ln_device_plugin(const ln_device_host *h) {
    if (h->abi != LN_DEVICE_ABI) return nullptr;
    host = h;
    ln_log_set(to_host, nullptr); /* of this library's own copy of the log */
    return &ops;
}
}
