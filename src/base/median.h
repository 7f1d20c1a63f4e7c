/* The median of measurements. */
#ifndef LN_MEDIAN_H
#define LN_MEDIAN_H

/* Sorts x[0..n), n > 0, and returns the median: the mean of the two in the middle if n is even. */
double ln_median(double *x, int n);

#endif
