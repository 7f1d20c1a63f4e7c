/* Prints the directory of the bundled model, as a program that embeds the library finds it. */
#include <linnet.h>
#include <stdio.h>

int main(void) {
    static ln_info info = {.size = sizeof info};
    ln_error err;
    if (ln_show("tiny", NULL, &info, &err) != LN_OK) return fprintf(stderr, "%s\n", err.message), 1;
    puts(info.path);
    return 0;
}
