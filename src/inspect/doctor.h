/* Facts of the machine, as ln_doctor and `linnet doctor` report them. */
#ifndef LN_DOCTOR_H
#define LN_DOCTOR_H

#include <linnet_tools.h>

#include "../base/base.h"

/* Computes the bytes that measuring would take now: LN_MEASURE_MOST, or less if less is available, or if the
 * process would hold more than memory_bytes (0: no such limit). LN_EMEMORY, with *out 0: LN_MEASURE_LEAST is
 * not available. */
ln_status ln_run_measure_bytes(uint64_t memory_bytes, size_t *out, ln_error *err);

/* Fills *out; with `measure` also the ceilings, on n_threads threads (0: the default), with a buffer of
 * ln_run_measure_bytes(memory_bytes). See ln_doctor. */
ln_status ln_run_doctor(bool measure, uint64_t memory_bytes, int n_threads, ln_machine *out, ln_error *err);

#endif
