/* Measures the machine's roofline: the read bandwidth of memory, with vector loads and with AMX tile loads,
 * and the peak rate of multiply-adds (bf16 on a machine with AMX, else f32), for 1, 2, 4, ... threads. Run it
 * on an idle host.
 *
 * Every speed in docs/performance.md is given as a share of these ceilings. `linnet bench` measures the
 * ceiling again in its own run, with the same functions (src/device/cpu/measure/measure.c); with --ceiling
 * and the output of this program it fails when its own ceiling is below 90 % of that. Other load lowers a
 * measured ceiling, which makes the shares look better than they are. The program prints a table to stderr
 * and one JSON object to stdout: {"ceilings":[{"threads","read_gb_s","peak_flop_s"}]}, in 1e9 bytes a second
 * and in multiply-adds a second.
 *
 * usage: ceiling [FILE]   FILE: any file of 256 MB or more. The program also measures reads of its mapping
 * with small pages, as weights are mapped; the result appears in the table only. */
#include "../src/device/cpu/exec.h"
#include "../src/inspect/doctor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 3 };

static void die(const ln_error *err) {
    fprintf(stderr, "ceiling: %s\n", err->message);
    exit(err->code);
}

/* The best of TRIES measurements, because other load can only make a measurement slower. */
static ln_dev_limits measure(int n_threads, const void *map, size_t bytes) {
    ln_dev *dev;
    ln_error err;
    ln_dev_options o = {.size = sizeof o, .n_threads = n_threads};
    ln_dev_limits best = {0}, l;
    double mapped = 0;
    size_t buffer;
    if (ln_run_measure_bytes(0, &buffer, &err)) die(&err);
    if (ln_device_cpu.open(&dev, &o, &err)) die(&err);
    for (int i = 0; i < TRIES; i++) {
        if (ln_device_cpu.measure(dev, buffer, &l, &err)) die(&err);
        best.read_bytes_s = LN_MAX(best.read_bytes_s, l.read_bytes_s);
        best.tile_bytes_s = LN_MAX(best.tile_bytes_s, l.tile_bytes_s);
        best.flop_s = LN_MAX(best.flop_s, l.flop_s);
    }
    if (map && ln_cpu_measure_read(dev, map, bytes, &mapped, &err)) die(&err);
    ln_device_cpu.close(&dev);
    fprintf(stderr, "%3d thread%s  read %7.1f GB/s", n_threads, n_threads == 1 ? " " : "s",
            best.read_bytes_s * 1e-9);
    if (best.tile_bytes_s > 0) fprintf(stderr, ", by tiles %7.1f GB/s", best.tile_bytes_s * 1e-9);
    if (map) fprintf(stderr, ", a mapped file %7.1f GB/s", mapped * 1e-9);
    fprintf(stderr, "  %s multiply-adds %8.1f GFLOP/s\n", best.tile_bytes_s > 0 ? "bf16" : "f32",
            best.flop_s * 1e-9);
    return best;
}

int main(int argc, char **argv) {
    void *map = NULL;
    size_t bytes = 0;
    if (argc > 1) {
        struct stat st;
        int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) || st.st_size < 1 << 28)
            return fprintf(stderr, "ceiling: %s: no file of 256 MB or more\n", argv[1]), LN_EIO;
        bytes = (size_t)st.st_size;
        map = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (map == MAP_FAILED) return perror("ceiling: mmap"), LN_EMEMORY;
    }
    int most = ln_logical_cores();
    for (int n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
        ln_dev_limits l = measure(n, map, bytes);
        printf("%s{\"threads\":%d,\"read_gb_s\":%.3f,\"peak_flop_s\":%.6g}", n == 1 ? "{\"ceilings\":[" : ",",
               n, LN_MAX(l.read_bytes_s, l.tile_bytes_s) * 1e-9, l.flop_s);
    }
    puts("]}");
    return 0;
}
