/* What the process knows about this library as a whole: its version, and how often something was stopped. */
#include "base.h"
#include "stop_count.h"

_Atomic uint64_t ln_stop_count;

const char *ln_version(void) { return LN_VERSION; }
