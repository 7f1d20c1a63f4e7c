/* Limits of what callers and configuration files may give. */
#ifndef LN_PUBLIC_LIMITS_H
#define LN_PUBLIC_LIMITS_H

enum {
    LN_STOP_MOST = 1024,  /* most bytes of a stop string, and most stop strings */
    LN_ADAPTER_PARTS = 16 /* most parts of a sum of adapters */
};

#endif
