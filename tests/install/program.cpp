// The header from C++: RAII around handles, a lambda as the callback, an exception kept out of C.
#include <linnet.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {
void check(ln_status st, const ln_error &err) {
    if (st != LN_OK) throw std::runtime_error(err.message);
}
struct close_model {
    void operator()(ln_model *m) const { ln_model_close(&m); }
};
struct close_engine {
    void operator()(ln_engine *e) const { ln_engine_close(&e); }
};
} // namespace

int main(int argc, char **argv) try {
    ln_error err{};
    ln_model *m = nullptr;
    ln_engine *e = nullptr;
    check(ln_model_open(&m, argc > 1 ? argv[1] : "tiny", nullptr, &err), err);
    std::unique_ptr<ln_model, close_model> model(m);
    check(ln_engine_open(&e, m, nullptr, &err), err);
    std::unique_ptr<ln_engine, close_engine> engine(e);
    ln_sampling how{};
    how.size = sizeof how;
    check(ln_sampling_default(m, &how, &err), err);
    how.n_max = 12;
    const std::string text = "Tell me";
    ln_prompt prompt = ln_prompt_default();
    prompt.text = text.data();
    prompt.text_bytes = text.size();
    std::string streamed;
    ln_result result{};
    result.size = sizeof result;
    const ln_status st = ln_generate(
        e, &prompt, &how,
        [](void *user, const char *piece, size_t bytes, ln_error *) noexcept {
            static_cast<std::string *>(user)->append(piece, bytes);
            return LN_OK;
        },
        &streamed, &result, &err);
    const std::string whole(result.text ? result.text : "", result.text_bytes);
    ln_result_free(&result);
    check(st, err);
    if (whole != streamed || whole.empty()) throw std::runtime_error("the pieces are not the whole");
    std::cout << ln_version() << '\n';
    return ln_model_info(nullptr, nullptr, nullptr) == LN_EUSAGE &&
                   std::string(ln_last_error()->message).find("NULL") != std::string::npos
               ? 0
               : 1;
} catch (const std::exception &x) {
    std::cerr << x.what() << '\n';
    return 1;
}
