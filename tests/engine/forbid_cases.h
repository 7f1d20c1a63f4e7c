/* Written by tools/golden_forbid.py with transformers 5.24.0 and torch 2.15.0. */
enum { FORBID_V = 8 };
static const int32_t forbid_stop_ids[] = {3, 6};
/* A history, how many of its tokens are generated, a generation_config.json, the forbidden ids. */
static const struct {
    const char *history;
    int n_generated;
    const char *keys, *forbidden;
} forbid_rows[] = {
    {"[2,6,0,1,1,5]", 1,
     "{\"suppress_tokens\":[0],\"begin_suppress_tokens\":[1,7],\"bad_words_ids\":[[1],[0],"
     "[6,0,3],[2]],\"no_repeat_ngram_size\":1}",
     "[0,1,2,5,6]"},
    {"[4,2,1,3,5,1,1,0,3,7]", 1,
     "{\"begin_suppress_tokens\":[5,2],\"bad_words_ids\":[[3,1,4],[7,5,7]],"
     "\"no_repeat_ngram_size\":1,\"min_new_tokens\":4}",
     "[0,1,2,3,4,5,6,7]"},
    {"[5,2,7]", 1, "{\"suppress_tokens\":[5],\"begin_suppress_tokens\":[7,4],\"no_repeat_ngram_size\":1}",
     "[2,5,7]"},
    {"[1,0,4,7,4,6,5,0]", 0,
     "{\"suppress_tokens\":[7],\"begin_suppress_tokens\":[2,5],\"bad_words_ids\":[[1,2],[6,"
     "4],[6],[4,6,5]],\"min_new_tokens\":2}",
     "[2,3,5,6,7]"},
    {"[1,2,2]", 2,
     "{\"begin_suppress_tokens\":[4],\"bad_words_ids\":[[5,5],[0]],"
     "\"no_repeat_ngram_size\":3}",
     "[0]"},
    {"[6,6,6,1,7,6,0]", 5,
     "{\"suppress_tokens\":[7],\"begin_suppress_tokens\":[0,7],\"bad_words_ids\":[[1,5,0],"
     "[3]],\"min_new_tokens\":3}",
     "[7]"},
    {"[5,7,1,1,7,7]", 2, "{\"begin_suppress_tokens\":[5],\"no_repeat_ngram_size\":3,\"min_new_tokens\":1}",
     "[]"},
    {"[5,2,0,4]", 3, "{\"begin_suppress_tokens\":[2,7]}", "[]"},
    {"[3,3,3,6,3,3]", 1, "{\"min_new_tokens\":2}", "[3,6]"},
    {"[5,7,5,5,1,3,1,3,7,3]", 4,
     "{\"suppress_tokens\":[7],\"bad_words_ids\":[[1,6,3]],\"no_repeat_ngram_size\":1,"
     "\"min_new_tokens\":3}",
     "[1,3,5,7]"},
    {"[6,7]", 0, "{\"begin_suppress_tokens\":[2],\"no_repeat_ngram_size\":3}", "[2]"},
    {"[2,7,5,2,2,0,0,1,2,6,3]", 7,
     "{\"suppress_tokens\":[4],\"no_repeat_ngram_size\":3,\"min_new_tokens\":2}", "[4]"},
    {"[5]", 0, "{}", "[]"},
    {"[2,0,7]", 2, "{\"bad_words_ids\":[[1,0],[7,1]],\"min_new_tokens\":2}", "[1]"},
    {"[0,1,7,0,1]", 1, "{\"suppress_tokens\":[4],\"no_repeat_ngram_size\":1}", "[0,1,4,7]"},
    {"[3,7,2,6,1]", 1,
     "{\"begin_suppress_tokens\":[6],\"bad_words_ids\":[[2],[5,2,4],[7]],"
     "\"no_repeat_ngram_size\":1,\"min_new_tokens\":4}",
     "[1,2,3,6,7]"},
    {"[3,2,6]", 0, "{\"bad_words_ids\":[[5,0,5]],\"min_new_tokens\":1}", "[3,6]"},
    {"[5,4,1,1,3,1,1]", 4, "{\"suppress_tokens\":[4]}", "[4]"},
    {"[6,2,7,5,1]", 2, "{\"suppress_tokens\":[6],\"bad_words_ids\":[[1,4,1]],\"min_new_tokens\":3}", "[3,6]"},
    {"[7,0]", 0, "{\"min_new_tokens\":2}", "[3,6]"},
    {"[2,4]", 1, "{\"suppress_tokens\":[4,7],\"bad_words_ids\":[[5,0],[0,0]],\"no_repeat_ngram_size\":3}",
     "[4,7]"},
    {"[7,3,7,1]", 0, "{\"min_new_tokens\":2}", "[3,6]"},
    {"[5,3,2,6]", 1,
     "{\"bad_words_ids\":[[2,0],[6],[4,3,4]],\"no_repeat_ngram_size\":1,"
     "\"min_new_tokens\":4}",
     "[2,3,5,6]"},
    {"[4]", 0, "{\"no_repeat_ngram_size\":2,\"min_new_tokens\":2}", "[3,6]"},
    {"[5]", 0,
     "{\"suppress_tokens\":[3,1],\"bad_words_ids\":[[2],[0,6],[4]],"
     "\"no_repeat_ngram_size\":1,\"min_new_tokens\":5}",
     "[1,2,3,4,5,6]"},
    {"[6,5,7]", 2, "{\"suppress_tokens\":[0],\"min_new_tokens\":5}", "[0,3,6]"},
    {"[0,3,1]", 2, "{\"suppress_tokens\":[1,3]}", "[1,3]"},
    {"[3,7,4,0,7,1,1,1,7,4,1]", 6,
     "{\"suppress_tokens\":[3],\"no_repeat_ngram_size\":2,\"min_new_tokens\":3}", "[1,3,7]"},
    {"[3]", 0,
     "{\"begin_suppress_tokens\":[2,0],\"bad_words_ids\":[[1,3],[7,4,4],[7,7],[3]],"
     "\"no_repeat_ngram_size\":1}",
     "[0,2,3]"},
    {"[4]", 0,
     "{\"suppress_tokens\":[4,3],\"begin_suppress_tokens\":[1],\"no_repeat_ngram_size\":3,"
     "\"min_new_tokens\":3}",
     "[1,3,4,6]"},
    {"[4,1,5]", 2, "{\"bad_words_ids\":[[7],[7,6,4]],\"min_new_tokens\":4}", "[3,6,7]"},
    {"[1,5,0,5,5,6]", 5,
     "{\"begin_suppress_tokens\":[4],\"bad_words_ids\":[[6,1]],\"no_repeat_ngram_size\":2}", "[1]"},
    {"[4]", 0, "{\"suppress_tokens\":[2,1],\"bad_words_ids\":[[5],[0,6],[3,1,0]],\"min_new_tokens\":5}",
     "[1,2,3,5,6]"},
    {"[4,7,0]", 0, "{\"suppress_tokens\":[6,2],\"begin_suppress_tokens\":[4,3],\"no_repeat_ngram_size\":3}",
     "[2,3,4,6]"},
    {"[2,2]", 1, "{\"suppress_tokens\":[3,7],\"no_repeat_ngram_size\":1}", "[2,3,7]"},
    {"[1,2,5,1]", 1,
     "{\"suppress_tokens\":[3,0],\"bad_words_ids\":[[3,6,4],[0,7],[5,2],[3,1,4]],"
     "\"min_new_tokens\":4}",
     "[0,3,6]"},
    {"[4,0,2,0,6,7,7]", 6,
     "{\"suppress_tokens\":[7,1],\"bad_words_ids\":[[1,7,1],[0,0,2]],"
     "\"no_repeat_ngram_size\":1}",
     "[0,1,2,4,6,7]"},
    {"[2,4,6,1,1]", 4, "{\"suppress_tokens\":[6],\"begin_suppress_tokens\":[0],\"min_new_tokens\":3}", "[6]"},
    {"[3,7,3,3,0,6,4,0,0,3,7]", 0, "{\"begin_suppress_tokens\":[6],\"no_repeat_ngram_size\":1}",
     "[0,3,4,6,7]"},
    {"[5,6,3,0,4,1,3]", 3,
     "{\"begin_suppress_tokens\":[3],\"bad_words_ids\":[[1,7],[2,3,7],[0,2]],"
     "\"min_new_tokens\":1}",
     "[]"},
    {"[2,6,0,0,2,6,7,5,1,1]", 7,
     "{\"suppress_tokens\":[7],\"begin_suppress_tokens\":[5,2],\"bad_words_ids\":[[1]],"
     "\"no_repeat_ngram_size\":2,\"min_new_tokens\":1}",
     "[1,7]"},
    {"[3,6,5,4,6,1,0,7,3]", 3,
     "{\"bad_words_ids\":[[6],[6],[6],[7]],\"no_repeat_ngram_size\":1,\"min_new_tokens\":1}",
     "[0,1,3,4,5,6,7]"},
    {"[5,5,4,5,0,4,5,4,4,0]", 0, "{\"no_repeat_ngram_size\":1,\"min_new_tokens\":4}", "[0,3,4,5,6]"},
    {"[4,6,7,2,7,2,0]", 0,
     "{\"begin_suppress_tokens\":[3],\"bad_words_ids\":[[5,1],[3,6,2],[6]],"
     "\"no_repeat_ngram_size\":1,\"min_new_tokens\":5}",
     "[0,2,3,4,6,7]"},
    {"[2,6,1,1,4,1]", 4,
     "{\"suppress_tokens\":[7,1],\"begin_suppress_tokens\":[7,4],\"no_repeat_ngram_size\":3}", "[1,7]"},
    {"[1,4,4,4,4,5,4,4,3,7,3]", 8,
     "{\"suppress_tokens\":[4],\"no_repeat_ngram_size\":2,\"min_new_tokens\":2}", "[4,7]"},
    {"[3,1,7,0,1,0,7,3,7]", 3,
     "{\"suppress_tokens\":[3,0],\"begin_suppress_tokens\":[1],\"bad_words_ids\":[[4,0],"
     "[5]],\"no_repeat_ngram_size\":2,\"min_new_tokens\":1}",
     "[0,3,5]"},
    {"[4,0,3,0]", 1, "{\"begin_suppress_tokens\":[1,7],\"bad_words_ids\":[[7,1,6],[6],[2,1,2],[4,6]]}", "[]"},
    {"[0,4,5,6,6,0,5]", 1, "{\"suppress_tokens\":[3,0],\"bad_words_ids\":[[6],[0]],\"min_new_tokens\":2}",
     "[0,3,6]"},
    {"[0,0,2]", 0,
     "{\"begin_suppress_tokens\":[2,1],\"bad_words_ids\":[[2,1,1],[7,3]],"
     "\"no_repeat_ngram_size\":1}",
     "[0,1,2]"},
    {"[5,0,6,1,2,3,6,3]", 0,
     "{\"suppress_tokens\":[0],\"begin_suppress_tokens\":[6],\"bad_words_ids\":[[3],[0]],"
     "\"min_new_tokens\":4}",
     "[0,3,6]"},
    {"[7,4,6,4,3,6,6,5,7,7]", 7, "{\"suppress_tokens\":[7,1]}", "[1,7]"},
    {"[6,1,1,2,5,6,5,1]", 0, "{\"bad_words_ids\":[[5],[1,0,6]]}", "[5]"},
    {"[1]", 0, "{\"suppress_tokens\":[4,6],\"bad_words_ids\":[[5],[4,2,5]],\"min_new_tokens\":4}",
     "[3,4,5,6]"},
    {"[4,7,3]", 0,
     "{\"suppress_tokens\":[5],\"begin_suppress_tokens\":[2],\"bad_words_ids\":[[5,6,2],[1,"
     "0],[5,7,1]],\"no_repeat_ngram_size\":3}",
     "[2,5]"},
    {"[5,4,6,5,2,5,5]", 0, "{\"suppress_tokens\":[2],\"no_repeat_ngram_size\":3,\"min_new_tokens\":5}",
     "[2,3,6]"},
    {"[5,0,0,3,2,4,6,6,5,0,2]", 3,
     "{\"suppress_tokens\":[0],\"begin_suppress_tokens\":[4,0],\"min_new_tokens\":3}", "[0]"},
    {"[2,3,5,7,2,2,0,3,2,7]", 8, "{\"suppress_tokens\":[4],\"bad_words_ids\":[[5]]}", "[4,5]"},
    {"[7,3,2,0,0,0,0,6,2,3]", 7, "{\"suppress_tokens\":[0],\"no_repeat_ngram_size\":2,\"min_new_tokens\":5}",
     "[0,2]"},
    {"[6,2,4,1,4,0,7,0,6,6,7]", 9, "{\"bad_words_ids\":[[3,0]],\"no_repeat_ngram_size\":3}", "[]"},
    {"[0,4,6,4,4]", 3, "{\"suppress_tokens\":[2],\"begin_suppress_tokens\":[3],\"min_new_tokens\":4}",
     "[2,3,6]"},
    {"[3,6,7,7,0,0]", 2, "{\"begin_suppress_tokens\":[3,7],\"no_repeat_ngram_size\":1,\"min_new_tokens\":1}",
     "[0,3,6,7]"},
    {"[1,2]", 0, "{\"bad_words_ids\":[[0,1,0],[5]],\"no_repeat_ngram_size\":3}", "[5]"},
    {"[6,1]", 1,
     "{\"suppress_tokens\":[0],\"begin_suppress_tokens\":[4],\"bad_words_ids\":[[3],[5,5]],"
     "\"no_repeat_ngram_size\":1,\"min_new_tokens\":3}",
     "[0,1,3,6]"},
    {"[5]", 0, "{\"bad_words_ids\":[[0,6,0],[1,5],[0,3]]}", "[]"},
    {"[4,2,6,0,3,4,0,0,5,7]", 8, "{\"bad_words_ids\":[[5,4,2],[3,3],[2,1],[1,7,1]],\"min_new_tokens\":4}",
     "[]"},
    {"[1,6,0,5,3,4,4]", 3, "{\"bad_words_ids\":[[2,0],[5,2]],\"min_new_tokens\":5}", "[3,6]"},
    {"[2,7,7,4,3,2]", 3, "{\"bad_words_ids\":[[4,2],[2,3,5]],\"min_new_tokens\":2}", "[]"},
    {"[3,4,1,2,1,3]", 2,
     "{\"suppress_tokens\":[4],\"bad_words_ids\":[[1],[3,6]],\"no_repeat_ngram_size\":1,"
     "\"min_new_tokens\":4}",
     "[1,2,3,4,6]"},
    {"[4,7,0,2]", 1, "{\"min_new_tokens\":5}", "[3,6]"},
    {"[6,3,3,2,1,7,6,5,4,1]", 3,
     "{\"suppress_tokens\":[2,7],\"bad_words_ids\":[[6,2,5]],\"min_new_tokens\":4}", "[2,3,6,7]"},
    {"[0,4]", 1,
     "{\"suppress_tokens\":[5],\"begin_suppress_tokens\":[3,5],\"bad_words_ids\":[[5,5,6]],"
     "\"min_new_tokens\":2}",
     "[3,5,6]"},
    {"[1,5,0,4,4,6,6]", 6,
     "{\"suppress_tokens\":[6,5],\"bad_words_ids\":[[3],[6,3],[7,3]],"
     "\"no_repeat_ngram_size\":1}",
     "[0,1,3,4,5,6]"},
    {"[3,7,3,2,5,6,7,4,2,7,5]", 7,
     "{\"suppress_tokens\":[4,3],\"bad_words_ids\":[[3,4],[7,7],[1,5]],"
     "\"no_repeat_ngram_size\":2}",
     "[3,4,6]"},
    {"[1]", 0, "{\"begin_suppress_tokens\":[0,5],\"bad_words_ids\":[[4,4,1]]}", "[0,5]"},
    {"[7,5,2]", 2, "{\"bad_words_ids\":[[4,3,7]]}", "[]"},
    {"[1,1,4,6,3,2,7,7]", 7, "{\"no_repeat_ngram_size\":1}", "[1,2,3,4,6,7]"},
    {"[2]", 0, "{\"min_new_tokens\":4}", "[3,6]"},
    {"[1,2,5,0,0,0,5,1,7,7,2]", 10, "{\"suppress_tokens\":[2,7],\"begin_suppress_tokens\":[5,3]}", "[2,7]"},
    {"[6,5,6,4,0]", 2, "{\"suppress_tokens\":[6,2],\"bad_words_ids\":[[7],[5],[5]],\"min_new_tokens\":1}",
     "[2,5,6,7]"},
};
static const int32_t forbid_prompt[] = {5, 17, 20, 44, 3, 9, 50, 7};
/* A generation_config.json, the ids that follow the prompt. */
static const struct {
    const char *keys, *ids;
} forbid_runs[] = {
    {"{}", "[104,77,136,165,79,79,47,68,75,264,65,230,83,149,44,79,47,217,77,144]"},
    {"{\"suppress_tokens\":[104,77]}", "[68,237,265,89,117,188,255,64,130,223,29,103,178,37,258,107,103,178,"
                                       "37,258]"},
    {"{\"begin_suppress_tokens\":[104]}", "[68,237,265,89,117,188,255,64,130,223,29,103,178,37,258,107,103,"
                                          "178,37,258]"},
    {"{\"no_repeat_ngram_size\":1}", "[104,77,136,165,79,0,150,4,264,87,176,149,46,234,192,29,166,227,123,"
                                     "15]"},
    {"{\"no_repeat_ngram_size\":2}", "[104,77,136,165,79,79,47,68,75,264,65,230,83,149,44,79,185,49,248,"
                                     "140]"},
    {"{\"bad_words_ids\":[[104],[77,136],[7,77]]}", "[68,237,265,89,117,188,255,64,130,223,29,103,178,37,258,"
                                                    "107,103,178,37,258]"},
    {"{\"bad_words_ids\":[[77,136],[77,136,165],[77,0],[257]]}", "[104,77,144,207,227,123,174,14,215,64,75,"
                                                                 "13,115,29,103,178,118,112,172,122]"},
    {"{\"eos_token_id\":[257,136]}", "[104,77]"},
    {"{\"eos_token_id\":[257,136],\"min_new_tokens\":6}", "[104,77,144,207,227,123,174,14,215,64,75,13,115,"
                                                          "29,103,178,118,112,172,122]"},
    {"{\"repetition_penalty\":1.3,\"suppress_tokens\":[165],\"begin_suppress_tokens\":[104],"
     "\"no_repeat_ngram_size\":2,\"bad_words_ids\":[[77],[79,79]],\"eos_token_id\":[257,"
     "136],\"min_new_tokens\":4}",
     "[68,237,265,89,117,188,255,64,130,223,29,103,178,37,258,107,172,122,115,112]"},
};
