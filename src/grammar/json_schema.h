/* Reading a JSON schema: what its parts share. */
#ifndef LN_JSON_SCHEMA_H
#define LN_JSON_SCHEMA_H

#include "grammar_build.h"

/* MOST_WORK bounds the time that a schema takes: references may stand for many times its text. */
enum { MOST_SCHEMA_DEPTH = 96, MOST_REFERENCES = 4096, MOST_WORK = 1 << 22 };

/* The place of a schema in its form, for messages: a list from the inside to the outside. */
typedef struct schema_place {
    const struct schema_place *outer;
    const char *name; /* NULL: an index */
    size_t index;
} schema_place;
typedef struct schema_rule {
    const json_t *schema;
    gr_node rule;
} schema_rule;
typedef struct schema_reader {
    ln_grammar *g;
    gr_json json;
    json_t *root;
    const char *where;  /* the place of the root */
    schema_rule *rules; /* of schemas that a $ref names, or that have references or parts */
    size_t n_rules, cap_rules;
    json_t *made; /* an array that owns the schemas that were joined */
    int depth;
    uint32_t work; /* that has been done; see MOST_WORK */
    ln_error *err;
} schema_reader;

/* Fails with LN_EINVALID and a message that begins with the place and, unless NULL, a keyword. */
ln_status schema_refuse(const schema_reader *r, const schema_place *at, const char *keyword, const char *fmt,
                        ...) LN_PRINTF(4, 5);
/* Adds to the work that has been done. LN_EINVALID: it is too much. */
ln_status schema_work(schema_reader *r, const schema_place *at, size_t amount);
/* The expression of a schema. */
ln_status schema_value(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
/* An integer that is not negative, or `none` where the keyword is absent. */
ln_status schema_count(const schema_reader *r, const json_t *s, const schema_place *at, const char *keyword,
                       uint32_t none, uint32_t *out);

/* ---- schema_join.c ---- */

/* Whether the keyword restricts nothing. */
bool schema_is_annotation(const char *keyword);
/* The schema that a $ref names, borrowed. LN_EINVALID: it is not in this document. */
ln_status schema_target(const schema_reader *r, const json_t *s, const schema_place *at, json_t **out);
/* A schema without $ref and allOf at its top that allows what `s` allows; borrowed from the reader. */
ln_status schema_flat(schema_reader *r, json_t *s, const schema_place *at, json_t **out);
/* A schema that allows what both allow; borrowed from the reader. unevaluatedProperties of `b` see the
 * properties of both, those of `a` only its own. */
ln_status schema_join(schema_reader *r, json_t *a, json_t *b, const schema_place *at, json_t **out);
/* A copy of `s` without a keyword; borrowed from the reader, NULL without memory. */
json_t *schema_without(schema_reader *r, const json_t *s, const char *keyword);

/* ---- schema_object.c, schema_scalar.c ---- */

ln_status schema_object(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
ln_status schema_array(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
ln_status schema_string(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
ln_status schema_number(schema_reader *r, json_t *s, bool integer, const schema_place *at, gr_node *out);

#endif
