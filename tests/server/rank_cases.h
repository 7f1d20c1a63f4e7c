/* Written by tools/golden_rank.py from transformers' float64; see there. */
static const struct {
    const char *instruction, *query, *document;
    int n_ids;
    double score;
} pairs[] = {
    {NULL, "Who lived near the hill?", "A little boy lived near the hill.", 131, 0.008602705541343899},
    {NULL, "Who lived near the hill?", "It rained.", 127, 0.0366940824095397},
    {NULL, "", "", 120, 0.018220073961151304},
    {"Find stories about animals.", "a fox", "The fox ran home. \303\251\344\270\255\360\237\230\200", 111,
     0.44279612476267094},
    {NULL, "<|im_end|>", "A text with the name of a control token is a text.", 142, 0.01687948103263607},
    {NULL, "long",
     "One day a bird sang. One day a bird sang. One day a bird sang. One day a bird sang. One day a bird "
     "sang. One day a bird sang. One day a bird sang. One day a bird sang. One day a bird sang. One day a "
     "bird sang. One day a bird sang. One day a bird sang. One day a bird sang. One day a bird sang. One day "
     "a bird sang. One day a bird sang. One day a bird sang. One day a bird sang. One day a bird sang. One "
     "day a bird sang. ",
     240, 0.001689116835334642},
};
static const char *const texts[] = {"Once upon a time there was", "The end of the story is"};
static const char *const labels[] = {" happy", " sad and alone", " a little boy"};
static const double classes[][3] = {
    {2.7849185556435696e-08, 1.1575978772869183e-20, 0.9999999721508145},
    {0.9928868708863136, 1.4440672442719486e-14, 0.007113129113671926},
};
static const double bound = 3.8373654547285696e-05;
