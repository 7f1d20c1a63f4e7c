/* Event files, which TensorBoard reads: a record for each step and validation, with the names that
 * transformers' Trainer gives the numbers (train/loss, eval/loss, ...). */
#ifndef LN_EVENT_FILE_H
#define LN_EVENT_FILE_H

#include <linnet_train.h>

#include "../base/base.h"

typedef struct train_events {
    char path[4096 + 96]; /* of the file; "" if none is written */
    int fd;
} train_events;

/* Creates a file in `dir`. A run that continues after step `step` writes a file of its own, whose first
 * record says so: readers then leave out what an earlier file has of later steps. LN_EIO. */
ln_status train_events_open(train_events *e, const char *dir, int64_t step, ln_error *err);
void train_events_close(train_events *e);
/* Appends a record; nothing if no file is written. LN_EIO, LN_EMEMORY. */
ln_status train_events_step(const train_events *e, const ln_step_report *r, ln_error *err);
/* A text, as TensorBoard's page of texts shows it. */
ln_status train_events_text(const train_events *e, const ln_text_report *r, ln_error *err);
ln_status train_events_valid(const train_events *e, const ln_valid_report *r, ln_error *err);

#endif
