/* The median of measurements. */
#ifndef LN_MEDIAN_H
#define LN_MEDIAN_H

/* The median of x[0..n), n > 0, which it sorts: the mean of the two in the middle where n is even. */
double ln_median(double *x, int n);

#endif
