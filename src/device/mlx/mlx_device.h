/* The MLX device: MLX's arrays behind device.h (docs/mlx.md, decision 056).
 *
 * All memory of the device is MLX's. alloc makes one array of bytes, a block; weights, pages and pools of
 * adapters are views of blocks, which share their memory. The host writes blocks by their addresses, because
 * MLX's memory can be addressed by the CPU on all of its devices, and only while no step runs.
 *
 * A step builds MLX's lazy graph node by node, in the order of the program, and evaluates it once. A value's
 * handle is dropped after its last reader, so that MLX frees and reuses its buffer during the evaluation, and
 * nothing of a step but its outputs is left afterwards. Keys and values of the step's rows are outputs too:
 * once evaluated, the host copies them to their pages.
 *
 * MLX's streams belong to threads: one thread of the device makes all calls of MLX. */
#ifndef LN_MLX_DEVICE_H
#define LN_MLX_DEVICE_H

extern "C" {
#include "../device.h"
}

#include <mlx/allocator.h>
#include <mlx/array.h>
#include <mlx/fast.h>
#include <mlx/memory.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>
#include <mlx/version.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace mx = mlx::core;

/* The thread that makes all calls of MLX. run() returns once the job is done; an exception of the job becomes
 * an error. */
class mlx_thread {
  public:
    mlx_thread();
    ~mlx_thread();
    ln_status run(const std::function<ln_status(ln_error *)> &job, ln_error *err);
    bool is_here() const { return std::this_thread::get_id() == thread.get_id(); }

  private:
    void loop();
    std::mutex lock;
    std::condition_variable changed;
    std::function<void()> job;
    bool stop = false;
    std::thread thread; /* last: it uses the others */
};

/* What addresses of blocks and of the parts of a weight are multiples of. */
enum { MLX_ALIGN = 64 };

/* A block of memory: the array that owns it, and how many bytes the caller asked for. */
struct mlx_block {
    mx::array bytes;
    size_t size;
};

struct ln_dev {
    mlx_thread thread;
    std::map<char *, mlx_block> blocks; /* by the address that alloc returned; of the thread alone */
};

struct ln_queue {
    ln_dev *dev;
    int n_slots, n_blocks;
    std::vector<int32_t> pages[LN_STATE_GROUPS]; /* the page tables (graph/step.h) */
    int32_t pages_per_block[LN_STATE_GROUPS];
    uint64_t fence;
};

/* A view of part of a block in this shape, without padding unless strides (in elements) are given. The
 * address may be anywhere in the block. Throws if it is in none. */
mx::array mlx_view(const ln_dev *d, const void *at, const mx::Shape &shape, mx::Dtype dtype);
mx::array mlx_view(const ln_dev *d, const void *at, const mx::Shape &shape, const mx::Strides &strides,
                   mx::Dtype dtype);
/* Bytes from an address to the end of its block. */
size_t mlx_bytes_after(const ln_dev *d, const void *at);

inline mx::Dtype mlx_dtype(ln_dtype t) {
    return t == LN_BF16 ? mx::bfloat16 : t == LN_F16 ? mx::float16 : t == LN_I32 ? mx::int32 : mx::float32;
}
inline mx::array mlx_f32(const mx::array &x) {
    return x.dtype() == mx::float32 ? x : mx::astype(x, mx::float32);
}

/* A weight as views of its block: the elements, or codes with scales and biases. */
struct mlx_weight {
    std::optional<mx::array> dense, codes, scales, biases;
    int bits = 0, group = 0;
};
/* The offsets of the parts of a weight in its memory, and all of its bytes. */
struct mlx_weight_parts {
    int64_t scales, offsets, bytes;
    ln_row_bytes row;
};
mlx_weight_parts mlx_parts_of(ln_encoding enc, int64_t rows, int64_t cols);
mlx_weight mlx_weight_of(const ln_dev *d, const ln_pvalue *v);

/* The arrays of a step in host memory. */
struct mlx_step {
    int32_t T, N, B;
    const int32_t *ids, *pos, *seq, *adapter, *row0, *slot, *n_prompt, *out_rows;
};

/* Keys and values of the rows of a step, of one layer, in the type of the pages: [T, K, E] and [T, K, Ev]. */
struct mlx_kv_write {
    const ln_p_kv *kv;
    const ln_pvalue *pool;
    mx::array keys, values;
};

struct ln_exec {
    ln_queue *queue;
    const ln_program *program;
    std::vector<std::optional<mlx_weight>> weights; /* by value */
    std::vector<int> last;                          /* by value: the last node that reads it */
    std::vector<bool> is_output;                    /* by value */
    std::vector<std::optional<mx::array>> values;   /* by value, those of the step that still have a reader */
    std::vector<mlx_kv_write> writes;
    mlx_step step;
};

/* mlx_ops.cpp, mlx_attention.cpp. Whether the device has an op; the arrays of a node's outputs from those of
 * its inputs. */
bool mlx_has_op(int op);
void mlx_build(ln_exec *e, const ln_pnode *n);
void mlx_build_kv_write(ln_exec *e, const ln_pnode *n);
mx::array mlx_build_attention(ln_exec *e, const ln_pnode *n);
/* Copies the keys and values of a step, which have been evaluated, to their pages. */
void mlx_store_kv(ln_exec *e);
/* The value that is input k of a node. */
inline const ln_pvalue *mlx_operand(const ln_exec *e, const ln_pnode *n, int k) {
    return ln_program_value(e->program, n->in[k]);
}
inline const mx::array &mlx_input(const ln_exec *e, const ln_pnode *n, int k) { return *e->values[n->in[k]]; }

/* mlx_lower.cpp: what the device chooses for a node (device.h). */
bool mlx_lower(const ln_dev *d, const ln_lower_ask *q, ln_lower_answer *a);
/* Whether the operands of a linear node are in bf16 and multiplied as they are. */
bool mlx_multiplies_bf16(const ln_program *p, const ln_pnode *n);

/* mlx_exec.cpp: functions of the device (device.h). */
ln_status mlx_prepare(ln_queue *q, const ln_program *p, void *temp, ln_exec **out, ln_error *err);
void mlx_release(ln_exec **exec);
ln_status mlx_submit(ln_exec *e, const ln_step_block *step, const ln_trace *trace, uint64_t *fence,
                     ln_error *err);
ln_status mlx_wait(ln_queue *q, uint64_t fence, ln_error *err);
ln_status mlx_value(ln_exec *e, int v, int64_t row, int64_t n, float *rows, bool write, ln_error *err);
size_t mlx_scratch_bytes(const ln_dev *d, const ln_program *p);

/* mlx_pages.cpp: page tables and pages. */
ln_status mlx_queue_open(ln_dev *d, const ln_queue_options *opt, ln_queue **out, ln_error *err);
void mlx_queue_close(ln_queue **queue);
int64_t mlx_kv_bytes(const ln_dev *d, const ln_page_job *job);
ln_status mlx_page(ln_queue *q, const ln_page_job *job, ln_error *err);

#endif
