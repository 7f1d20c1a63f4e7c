/* What the machine is and can do (ln_machine). `measure`: also its ceilings, with n_threads (0: the default). */
#ifndef LN_DOCTOR_H
#define LN_DOCTOR_H

#include "../base/base.h"

/* The bytes that measuring takes now: LN_MEASURE_MOST, or less where less is available; LN_EMEMORY where even the least does not fit. */
ln_status ln_run_measure_bytes(size_t *out, ln_error *err);

ln_status ln_run_doctor(bool measure, int n_threads, ln_machine *out, ln_error *err);

#endif
