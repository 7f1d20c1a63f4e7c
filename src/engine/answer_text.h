/* The text of one answer: generated ids become text, reasoning is split off, and what ends the text is found.
 *
 * Text goes through four filters: the detokenizer; reasoning.c, which splits off the reasoning; tool_calls.c,
 * which splits off calls of tools where they are asked for; stop_text.c, which sees the rest of the answer.
 * Stop texts that are special tokens or delimiters of reasoning never occur in the text: their ids end the
 * answer instead. If a stop text contains a special token and more, stop_text.c sees all special tokens as
 * marks at their places in the text. */
#ifndef LN_ANSWER_TEXT_H
#define LN_ANSWER_TEXT_H

#include "../package/package.h"
#include "stop_text.h"

/* What the last push or flush has found of a call of a tool, after `at` bytes of its text: a piece of its
 * arguments (LN_EVENT_TOOL_ARGUMENTS), or the whole call (LN_EVENT_TOOL_CALL). */
typedef struct ln_answer_call {
    ln_event_kind kind;
    size_t at;
    size_t name, end; /* ln_answer.found[name .. end): the tool's name and the text, each with a NUL byte */
} ln_answer_call;

/* The tools that may be called, borrowed. */
typedef struct ln_answer_tools {
    const ln_call_tool *list; /* [n] */
    size_t n;
} ln_answer_tools;

typedef struct ln_answer {
    const ln_package *model;
    const ln_sampling *how;
    ln_detok detok;
    ln_reasoning think;
    ln_calls calls;
    ln_stop stop;
    const char **stops; /* stop texts of the caller, then those of the model */
    int32_t *stop_ids;  /* [stop.n_texts] the id of a stop text that is a token without a text; else -1 */
    bool *mixed;        /* [stop.n_texts] whether a stop text contains a special token and more */
    bool has_mixed;
    /* special tokens that stop_text.c has not seen yet, because text before them is held back */
    struct ln_answer_mark {
        uint64_t at; /* bytes of the detokenizer's text before it; UINT64_MAX: it ended the answer */
        int32_t id;
        size_t token; /* its number */
    } * marks;
    size_t n_marks, cap_marks;
    int32_t end_ids[LN_COUNT(((ln_genconfig *)0)->eos)]; /* [n_end_ids] the model's stop ids; with ignore_eos
                                                            without those that the caller names as stop texts
                                                          */
    int n_end_ids;
    ln_str header;       /* of channels: the beginning of the message that the prompt ends with */
    ln_ids end;          /* tokens that are forced when the budget of reasoning is spent: its end delimiter */
    size_t n_forced;     /* how many of them were taken */
    bool no_text;        /* the model has no tokenizer: ids alone are generated */
    int64_t n_reasoning; /* generated tokens of reasoning */
    uint64_t *ends;      /* [n] bytes that the detokenizer had given after each generated token */
    size_t n, cap_ends;  /* n: generated tokens */
    uint64_t detokenised; /* bytes that the detokenizer has given */
    /* what the last push or flush added; valid until the next */
    ln_str reasoning, text;
    ln_str found;
    ln_answer_call *new_calls; /* [n_calls] */
    size_t n_calls, cap_calls;
    bool has_cut; /* the text ended in a call */
    ln_str cut;   /* its tool's name, a NUL byte and the beginning of its arguments */
} ln_answer;

/* `how` must outlive the answer. With `split` the prompt went through a chat template, and reasoning is split
 * off where the model knows delimiters; ids[0..n) is the prompt. Calls of `tools` are split
 * off where how->tool_choice asks for it. Call ln_answer_close after an error too. */
ln_status ln_answer_open(ln_answer *a, const ln_package *model, const ln_sampling *how,
                         const ln_answer_tools *tools_or_null, bool split, const int32_t *ids, size_t n,
                         ln_error *err);
void ln_answer_close(ln_answer *a);
/* Whether the id ends the answer; *stop_text is the number of the stop text that it is, or -1. */
bool ln_answer_ends_at(const ln_answer *a, int32_t id, int *stop_text);
/* Warns about stop texts that never occur, because they mix a delimiter of reasoning or a tag of calls with
 * other text; not again while *warned is their hash. */
ln_status ln_answer_warn(const ln_answer *a, _Atomic uint64_t *warned, ln_error *err);
/* The id that is appended for the model, because the budget of reasoning is spent; -1: none. */
int32_t ln_answer_forced(ln_answer *a);
/* The same without advancing over it. */
int32_t ln_answer_next_forced(ln_answer *a);
/* Appends a generated id; a->stop.hit says whether a stop text is complete, a->calls.ended whether the only
 * call that was wanted is. */
ln_status ln_answer_push(ln_answer *a, int32_t id, ln_error *err);
/* Notes that `id` has ended the answer, for a stop text that it completes. */
ln_status ln_answer_end(ln_answer *a, int32_t id, ln_error *err);
/* Ends the text: releases what the filters hold back. The last bytes may complete a stop text. */
ln_status ln_answer_flush(ln_answer *a, ln_error *err);
/* Computes how many of the generated ids[0..a->n) the result has: without those of a stop text. */
ln_status ln_answer_visible(const ln_answer *a, const int32_t *ids, size_t *out, ln_error *err);

#endif
