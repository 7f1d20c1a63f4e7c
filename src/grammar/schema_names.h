/* The names of properties that a schema does not list. */
#ifndef LN_SCHEMA_NAMES_H
#define LN_SCHEMA_NAMES_H

#include "automaton.h"
#include "json_schema.h"

enum { MOST_PATTERNS = 62, MOST_LABELS = 256 };

typedef struct property_names {
    json_t *patterns; /* patternProperties */
    automaton all;    /* names with their labels: bit i is pattern i; none: any name, of no pattern */
} property_names;
/* Finds the names that patternProperties and propertyNames allow. The caller closes *names, after an error
 * too. */
ln_status property_names_open(schema_reader *r, json_t *s, const schema_place *at, property_names *names);
void property_names_close(property_names *names);
/* The label of a name; 0: propertyNames excludes it. */
uint64_t property_names_label(const property_names *names, const char *name);
/* The schema of a property: its own one, which may be NULL, and those of its patterns; `others` where there
 * is none of both. */
ln_status property_names_value(schema_reader *r, const property_names *names, uint64_t label, json_t *own,
                               json_t *others, const schema_place *at, json_t **out);
/* A property of another name than the n listed ones, with its value; GR_NOTHING: there is none. Changes
 * *names. */
ln_status property_names_further(schema_reader *r, property_names *names, const gr_span *listed, size_t n,
                                 json_t *others, const schema_place *at, gr_node *out);

#endif
