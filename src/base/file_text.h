/* Files that the assembler includes in the program: the page of the server, the program of the child.
 *
 *     LN_EMBED("ln_page", LN_EMBED_FILE("page.html") LN_EMBED_FILE("page.css"))
 *     extern const char ln_page_begin[], ln_page_end[];
 *
 * stores the bytes of the files one after another, and a NUL after them. ELF and Mach-O differ in the names
 * of sections and symbols. In Mach-O the linker may move what follows a symbol, unless that is an alternative
 * entry of what it is in. */
#ifndef LN_FILE_TEXT_H
#define LN_FILE_TEXT_H

#define LN_EMBED_FILE(path) ".incbin \"" path "\"\n"

#ifdef __MACH__
#define LN_EMBED_NAME(name) ".globl _" name "\n.private_extern _" name "\n"
#define LN_EMBED(name, files)                                                                             \
    __asm__(".section __TEXT,__const\n" LN_EMBED_NAME(name                                                \
                                                      "_begin") "_" name "_begin:\n" files                \
                                                                ".alt_entry _" name                       \
                                                                "_end\n" LN_EMBED_NAME(name               \
                                                                                       "_end") "_" name   \
                                                                                               "_end:\n." \
                                                                                               "byte "    \
                                                                                               "0\n."     \
                                                                                               "text\n");
#else
#define LN_EMBED_NAME(name) ".global " name "\n.hidden " name "\n"
#define LN_EMBED(name, files)                                                                 \
    __asm__(".section .rodata\n" LN_EMBED_NAME(name "_begin") LN_EMBED_NAME(name "_end") name \
            "_begin:\n" files name "_end:\n.byte 0\n.previous\n");
#endif

#endif
