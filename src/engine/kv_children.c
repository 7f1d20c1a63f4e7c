/* The children of a node, in lexicographic order of their tokens: a list, and a treap to search it by.
 *
 * No child's tokens are a prefix of another's. So the children that have most tokens in common with a text
 * are those beside its place in the order, and fewer are in common the farther away a child is. */
#include "kv_tree.h"

/* Whether a node comes before tokens[0..n); a text comes before those that it is a prefix of. */
static bool before(const ln_kv *kv, int32_t node, const int32_t *tokens, int64_t n) {
    const int64_t k = ln_kv_common(kv, node, tokens, n);
    if (k == n) return false;
    return k == kv->nodes[node].n || ln_kv_tokens_of(kv, node)[k] < tokens[k];
}

/* The priority of a node in the treap: the same for as long as it is in use, and as good as random. */
static uint32_t priority(int32_t node) {
    uint32_t x = (uint32_t)node + 1;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

int32_t ln_kv_child_at(const ln_kv *kv, int32_t parent, const int32_t *tokens, int64_t n, int32_t *prev) {
    int32_t at = kv->nodes[parent].top, after = -1;
    *prev = -1;
    while (at >= 0) {
        if (before(kv, at, tokens, n)) *prev = at, at = kv->nodes[at].right;
        else after = at, at = kv->nodes[at].left;
    }
    return after;
}

void ln_kv_add_child(ln_kv *kv, int32_t parent, int32_t node) {
    const int32_t *tokens = ln_kv_tokens_of(kv, node);
    const int64_t n = kv->nodes[node].n;
    ln_kv_node *here = &kv->nodes[node];
    here->parent = parent;
    here->next = ln_kv_child_at(kv, parent, tokens, n, &here->prev);
    *(here->prev < 0 ? &kv->nodes[parent].child : &kv->nodes[here->prev].next) = node;
    if (here->next >= 0) kv->nodes[here->next].prev = node;
    int32_t *link = &kv->nodes[parent].top, *left = &here->left, *right = &here->right;
    while (*link >= 0 && priority(*link) > priority(node))
        link = before(kv, *link, tokens, n) ? &kv->nodes[*link].right : &kv->nodes[*link].left;
    int32_t at = *link;
    *link = node;
    while (at >= 0) { /* the subtree that was here is split into what comes before the node and after it */
        if (before(kv, at, tokens, n)) *left = at, left = &kv->nodes[at].right, at = *left;
        else *right = at, right = &kv->nodes[at].left, at = *right;
    }
    *left = *right = -1;
}

void ln_kv_remove_child(ln_kv *kv, int32_t node) {
    ln_kv_node *here = &kv->nodes[node];
    *(here->prev < 0 ? &kv->nodes[here->parent].child : &kv->nodes[here->prev].next) = here->next;
    if (here->next >= 0) kv->nodes[here->next].prev = here->prev;
    int32_t *link = &kv->nodes[here->parent].top, a = here->left, b = here->right;
    while (*link != node)
        link = before(kv, *link, ln_kv_tokens_of(kv, node), here->n) ? &kv->nodes[*link].right
                                                                     : &kv->nodes[*link].left;
    while (a >= 0 && b >= 0) { /* its two subtrees become one */
        if (priority(a) > priority(b)) *link = a, link = &kv->nodes[a].right, a = *link;
        else *link = b, link = &kv->nodes[b].left, b = *link;
    }
    *link = a >= 0 ? a : b;
}
