/* How a model directory says that texts become embeddings: the files of sentence-transformers. */
#ifndef LN_POOLING_H
#define LN_POOLING_H

#include "../base/base.h"

/* Reads 1_Pooling/config.json and modules.json of a directory. *out: LN_POOLING_LAST or LN_POOLING_MEAN;
 * LN_POOLING_AUTO where the directory says nothing. LN_EUNSUPPORTED: another pooling, or a module that linnet
 * does not compute (a Dense layer); LN_EINVALID: a file is malformed; LN_EIO, LN_EMEMORY. */
ln_status ln_pooling_read(const char *dir, ln_pooling *out, ln_error *err);

#endif
