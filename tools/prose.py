#!/usr/bin/env python3
"""English-like prose for tokenizer timing: 480,000 bytes, the same for the same seed.

usage: prose.py [BYTES [SEED]] > FILE

Common words are drawn from a list by Zipf's law, rare words are composed of syllables. Sentences have commas, quotes, numbers, contractions and
an occasional foreign word, like the texts that a tokenizer usually encodes."""
import random
import sys

COMMON = """the of and to a in that he was it his is with I as had for you be on at by not her but which have him she this are all from
they were my so me one said would will there been when no if who them what an or out up their more into do any time man some could see
than then now little its great good upon old day two made did long over before must come very after such know way down how first men
about where house much here most think years never own people work came might world through again eyes hand water room head away found
went still hands every nothing moment night country door young thing side both life seemed among under always letter money morning
gentleman nature evening together question village garden mountain tea river council machine weather history kitchen captain""".split()
ONSET = "b c d f g h l m n p r s t v w br ch cl cr dr fl gr pl pr sh sl st str th tr".split()
NUCLEUS = "a e i o u ai ea ee ie oa oo ou".split()
CODA = ["", "", "", "n", "r", "s", "t", "l", "m", "nd", "ng", "st", "ck", "ght"]
FOREIGN = ["café", "naïve", "Zürich", "façade", "jalapeño", "Straße", "déjà", "Москва", "東京", "Ångström"]


WEIGHTS = [1 / (rank + 2.7) for rank in range(len(COMMON))]


def word(rng):
    x = rng.random()
    if x < 0.80:
        return rng.choices(COMMON, WEIGHTS)[0]
    if x < 0.985:
        w = "".join(rng.choice(ONSET) + rng.choice(NUCLEUS) + rng.choice(CODA) for _ in range(rng.randint(1, 3)))
        return w + rng.choice(["", "", "", "s", "ed", "ing", "ly", "er"])
    if x < 0.995:
        return str(rng.randint(1, 2100))
    return rng.choice(FOREIGN)


def sentence(rng):
    words = [word(rng) for _ in range(rng.randint(5, 24))]
    for i in range(len(words) - 1):
        x = rng.random()
        if x < 0.07:
            words[i] += ","
        elif x < 0.08:
            words[i] += ";"
        elif x < 0.09:
            words[i] = rng.choice(["don't", "it's", "we'll", "they're", "I've", "he'd"])
    text = " ".join(words)
    text = text[0].upper() + text[1:] + rng.choice([".", ".", ".", ".", "?", "!"])
    return '"' + text + '"' if rng.random() < 0.1 else text


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 480_000
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    parts, n = [], 0
    while n < size:
        paragraph = " ".join(sentence(rng) for _ in range(rng.randint(2, 7))) + "\n\n"
        parts.append(paragraph)
        n += len(paragraph.encode())
    sys.stdout.buffer.write("".join(parts).encode()[:size].decode(errors="ignore").encode())


main()
