/* What the machine is and can do (ln_machine); `measure` takes about a second and 256 MiB. */
#ifndef LN_DOCTOR_H
#define LN_DOCTOR_H

#include "../base/base.h"

ln_status ln_run_doctor(bool measure, ln_machine *out, ln_error *err);

#endif
