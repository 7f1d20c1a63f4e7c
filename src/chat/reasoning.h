/* Reasoning in generated text: its delimiters, and a streaming parser that separates reasoning from the
 * answer. channels.c parses answers whose messages have headers. */
#ifndef LN_REASONING_H
#define LN_REASONING_H

#include "../tokenizer/tokenizer.h"
#include "chat_template.h"

/* The strings that a model writes before and after its reasoning, such as <think> and </think>. */
typedef struct ln_reasoning_delims {
    const char *open, *end;
    const char *leave;  /* what is forced to end reasoning: the closing delimiter as templates write it */
    const char *answer; /* ... and to begin the answer, if it need not be a call; "": nothing */
    bool channels;      /* the answer is messages with headers, and the reasoning one of their channels */
} ln_reasoning_delims;

/* The byte before a special token in the text of a detokenizer with `marks`. No UTF-8 text has it. */
#define LN_MARK_BYTE '\xff'
/* Before the recipient of a call in the answer's text, after it, and after the call. No UTF-8 text has them.
 */
#define LN_CHANNEL_CALL "\xff"
#define LN_CHANNEL_TEXT "\xfe"
#define LN_CHANNEL_END  "\xfd"

/* The reasoning delimiters of a model: those that its vocabulary contains as tokens or that its chat
 * template mentions. NULL: the model has none. */
const ln_reasoning_delims *ln_reasoning_delims_of(const ln_tok *tok, const ln_model_template *tmpl_or_null);
/* Sets *opened to whether a prompt of n token ids ends with the opening delimiter, so that generation
 * starts inside the reasoning. LN_EMEMORY. */
ln_status ln_reasoning_opened(const ln_reasoning_delims *delims, const ln_tok *tok, const int32_t *ids,
                              size_t n, bool *opened, ln_error *err);
/* The state of the streaming parser. It owns its strings; free it with ln_reasoning_close. */
typedef struct ln_reasoning {
    const ln_reasoning_delims *delims;
    enum { LN_REASONING_UNDECIDED, LN_REASONING_INSIDE, LN_REASONING_ANSWER } state;
    /* begun: some text of this state was emitted; closed: the closing delimiter was seen. */
    bool begun, closed;
    /* of channels: calls are marked for a parser; the message is a call, nothing of it was given; some
     * reasoning was */
    bool marks_calls, in_call, fresh, reasoned;
    ln_str header;    /* of the message that begins */
    ln_str held;      /* input not emitted yet, because it may be part of a delimiter */
    ln_str reasoning; /* the reasoning that the last push or flush emitted */
    ln_str answer;    /* the answer that it emitted; both are valid until the next call */
    uint64_t before;  /* bytes of the text so far that do not belong to the answer */
} ln_reasoning;
/* Starts a parser; `opened` as from ln_reasoning_opened. With NULL delimiters the whole text is the
 * answer. */
void ln_reasoning_open(ln_reasoning *t, const ln_reasoning_delims *marks_or_null, bool opened);
/* Starts a parser of channels after the beginning of a message, which ln_channel_header gives and which is
 * not generated text. marks_calls: a message to a recipient is given as LN_CHANNEL_CALL, the recipient,
 * LN_CHANNEL_TEXT, the text and LN_CHANNEL_END. LN_EMEMORY. */
ln_status ln_reasoning_open_channels(ln_reasoning *t, const ln_reasoning_delims *marks, const char *header,
                                     size_t bytes, bool marks_calls, ln_error *err);
/* Feeds the next `bytes` bytes of generated text. The text that became certain is in t->reasoning and
 * t->answer. LN_EMEMORY. */
ln_status ln_reasoning_push(ln_reasoning *t, const char *text, size_t bytes, ln_error *err);
/* Ends the text: what is held back is emitted as reasoning or answer according to the current state.
 * LN_EMEMORY. */
ln_status ln_reasoning_flush(ln_reasoning *t, ln_error *err);
void ln_reasoning_close(ln_reasoning *t);

/* ---- channels.c ---- */

enum { LN_CHANNEL_TOKENS = 7 };
/* The special tokens of headers; -1: the vocabulary lacks it. */
void ln_channel_tokens(const ln_tok *tok, int32_t ids[LN_CHANNEL_TOKENS]);
/* Appends the beginning of the message that a prompt ends with, each mark behind LN_MARK_BYTE; nothing if the
 * prompt begins no message. LN_EMEMORY. */
ln_status ln_channel_header(const ln_tok *tok, const int32_t *ids, size_t n, ln_str *out, ln_error *err);
/* Moves what is certain of the held text to the reasoning and the answer; for reasoning.c. */
void channels_take(ln_reasoning *t);

#endif
