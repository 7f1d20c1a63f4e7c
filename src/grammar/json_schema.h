/* Reading a JSON schema: what its parts share. */
#ifndef LN_JSON_SCHEMA_H
#define LN_JSON_SCHEMA_H

#include "grammar_build.h"

/* MOST_WORK bounds the time that a schema takes: references may stand for many times its text. */
enum { MOST_SCHEMA_DEPTH = 96, MOST_REFERENCES = 4096, MOST_WORK = 1 << 22 };

/* The place of a schema in its grammar, for messages: a list from the inside to the outside. */
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
    bool open;    /* as the standard says: other properties and other types than those named are allowed */
    bool unseen;  /* a negation lists no properties: what is not evaluated stands beside it */
    int depth;
    uint32_t work; /* that has been done; see MOST_WORK */
    ln_error *err;
} schema_reader;

/* Fails with LN_EINVALID and a message that begins with the place and, unless NULL, a keyword. */
ln_status schema_refuse(const schema_reader *r, const schema_place *at, const char *keyword, const char *fmt,
                        ...) LN_PRINTF(4, 5);
/* Notes why no value meets a schema: the first message is the error if nothing is left of the grammar.
 * Returns LN_OK, or LN_EINVALID and LN_EMEMORY of gr_check. */
ln_status schema_nothing(schema_reader *r, const schema_place *at, const char *keyword, const char *fmt, ...)
    LN_PRINTF(4, 5);
/* Adds to the work that has been done. LN_EINVALID: it is too much. */
ln_status schema_work(schema_reader *r, const schema_place *at, size_t amount);
/* The expression of a schema. */
ln_status schema_value(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
/* An integer that is not negative, or `none` where the keyword is absent. */
ln_status schema_count(const schema_reader *r, const json_t *s, const schema_place *at, const char *keyword,
                       uint32_t none, uint32_t *out);

/* Keywords of schemas that were made here: values and patterns that are excluded, numbers that are no
 * integers or no multiples. */
#define SCHEMA_MEMBERS      "\x01members" /* schemas of properties that this does not list or evaluate */
#define SCHEMA_WITHOUT      "\x01without"
#define SCHEMA_NOT_PATTERN  "\x01notPattern"
#define SCHEMA_NOT_MULTIPLE "\x01notMultipleOf"
#define SCHEMA_FRACTION     "\x01fraction"

/* ---- schema_join.c, schema_parts.c, schema_ids.c ---- */

/* Resolves the names of schemas ($id, $anchor): r->root becomes a copy whose references are pointers. */
ln_status schema_resolve_names(schema_reader *r);
/* Whether the keyword restricts nothing. */
bool schema_is_annotation(const char *keyword);
/* The schema that a $ref names, borrowed. LN_EINVALID: it is not in this document. */
ln_status schema_target(const schema_reader *r, const json_t *s, const schema_place *at, json_t **out);
/* Whether a schema has $ref, allOf, if or dependents at its top. */
bool schema_has_parts(const json_t *s);
/* A schema without such keywords that allows what `s` allows; borrowed from the reader. */
ln_status schema_flat(schema_reader *r, json_t *s, const schema_place *at, json_t **out);
/* The same for a part of another schema: what it says of items and properties that are not evaluated holds
 * for those that it does not name itself. */
ln_status schema_part(schema_reader *r, json_t *s, const schema_place *at, json_t **out);
/* A schema that allows what both allow; false where nothing does; borrowed from the reader.
 * unevaluatedProperties of `b` see the properties of both, those of `a` only its own. */
ln_status schema_join(schema_reader *r, json_t *a, json_t *b, const schema_place *at, json_t **out);
/* The same with the properties of `b` before those of `a`, if b_first. */
ln_status schema_join_ordered(schema_reader *r, json_t *a, json_t *b, bool b_first, const schema_place *at,
                              json_t **out);
/* Whether `properties` stands before a keyword. */
bool schema_names_first(const json_t *s, const char *keyword);
/* A copy of `s` without a keyword; borrowed from the reader, NULL without memory. */
json_t *schema_without(schema_reader *r, const json_t *s, const char *keyword);
/* Gives a value to the reader, which frees it in the end; NULL without memory. */
json_t *schema_keep(schema_reader *r, json_t *v);

/* ---- schema_negate.c, schema_exclude.c, schema_valid.c ---- */

/* A schema of values that do not meet `s`, perhaps not of all; borrowed from the reader. */
ln_status schema_negate(schema_reader *r, json_t *s, const schema_place *at, json_t **out);
/* What schema `which` of a oneOf, which `branch` stands for, allows and no other one of the list. */
ln_status schema_exclusive(schema_reader *r, json_t *list, size_t which, json_t *branch,
                           const schema_place *at, json_t **out);
/* Whether a value meets a schema, as the standard says. */
ln_status schema_admits(schema_reader *r, json_t *s, const schema_place *at, const json_t *v, bool *yes);
bool schema_same_value(const json_t *a, const json_t *b);  /* 1 and 1.0 are */
bool schema_has_type(const json_t *type, const json_t *v); /* of `type`, which may be NULL */

/* ---- schema_object.c, schema_array.c, schema_string.c, schema_number.c, formats.c ---- */

struct automaton;
ln_status schema_object(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
/* Whether objects may have properties that are neither listed nor of a pattern. */
bool schema_allows_others(const schema_reader *r, const json_t *s);
ln_status schema_array(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
/* prefixItems and items, or their older spellings; NULL: absent. */
void schema_items(json_t *s, json_t **given, json_t **rest);
ln_status schema_string(schema_reader *r, json_t *s, const schema_place *at, gr_node *out);
/* Joins all that a schema says of a string but its lengths to `all`, which is none where it says nothing. */
ln_status schema_string_automaton(schema_reader *r, const json_t *s, const schema_place *at,
                                  struct automaton *all);
ln_status schema_number(schema_reader *r, json_t *s, bool integer, const schema_place *at, gr_node *out);
ln_status schema_bounds(const schema_reader *r, const json_t *s, const schema_place *at, gr_bounds *b);
/* The pattern of a format, for whole texts; NULL: it is not known. */
const char *gr_format(const char *name);

#endif
