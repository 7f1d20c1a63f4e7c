#!/usr/bin/env python3
"""Generates the training corpus of the bundled model from a grammar: tasks that a very small model can learn well.

usage: python tools/tiny_corpus.py [--seed N] [--docs N] [--plain]      prints documents

A document is a list of (text, weight), where weight is the weight of the text's tokens in the loss: 1 for the assistant's text, a small value for
the rest. Document i of a seed depends only on the seed and i, so several processes may generate documents in parallel. Some sums, some questions
for a fact, and some reviews and texts never occur in training (`held`): they are the evaluation set.
"""
import argparse
import random
import re
import zlib

import tiny_facts as facts
from tiny_story import ANIMALS, BOYS, GIRLS, PETS, PLOTS, expand, story

SYSTEM = ["You are a helpful assistant.", "You are a friendly assistant.", "Answer in one sentence.", "You are a helpful assistant that tells the truth.",
          "You are linnet's tiny model."]
ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def held(text, part=12):
    """Whether an item belongs to the evaluation set (one in `part` does)."""
    return zlib.crc32(text.encode()) % part == 0


def words(n):
    if n < 0:
        return "minus " + words(-n)
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    return "one hundred" + (" and " + words(n - 100) if n > 100 else "") if n < 200 else str(n)


# ---- sums ----

def sum_item(rng):
    """Returns a random (operation, a, b); half of them have small operands."""
    op = rng.choice("++++----***/")
    if op == "*":
        return op, rng.randint(0, 12), rng.randint(0, 12)
    if op == "/":
        b = rng.randint(1, 12)
        return op, b * rng.randint(0, 12), b
    top = rng.choice([10, 20, 50, 99, 99, 999])
    a, b = rng.randint(0, top), rng.randint(0, top)
    return op, max(a, b) if op == "-" else a, min(a, b) if op == "-" else b


def sum_held(op, a, b):
    return op in "+-" and max(a, b) > 20 and held(f"{a}{op}{b}")


def sum_text(rng, op, a, b, form=None):
    c = a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a // b
    name = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[op]
    form = form if form is not None else rng.randint(0, 9)
    if op == "/" or (form > 6 and max(a, b) > 99):
        form = min(form, 6)
    if form <= 3:
        ask = rng.choice(["What is %d %s %d?", "What's %d %s %d?", "How much is %d %s %d?", "Calculate %d %s %d.", "Can you tell me what %d %s %d is?", "Compute %d %s %d.", "what is %d %s %d", "%d %s %d"])
        return ask % (a, name, b), "%d %s %d is %d." % (a, name, b, c)
    if form <= 6:
        sign = rng.choice(["*", "x"]) if op == "*" else op
        ask = rng.choice(["%d %s %d =", "%d %s %d = ?", "What is %d %s %d?", "%d %s %d", "%d%s%d", "%d%s%d=", "What is %d%s%d?", "what is %d%s%d", "Calculate %d %s %d.", "How much is %d %s %d?", "Compute %d%s%d."])
        return ask % (a, sign, b), "%d %s %d = %d" % (a, sign, b, c)
    if form == 7:
        first = words(a)
        return "What is %s %s %s?" % (words(a), name, words(b)), "%s %s %s is %s." % (first[0].upper() + first[1:], name, words(b), words(c))
    who, he = rng.choice([(n, "She") for n in GIRLS] + [(n, "He") for n in BOYS])
    things = rng.choice(["apples", "books", "coins", "pencils", "cookies", "marbles", "stamps", "eggs", "shells", "cards"])
    one = lambda n: "%d %s" % (n, things[:-1] if n == 1 else things)
    if op == "+":
        q = rng.choice(["%s has %s. %s gets %d more.", "%s has %s. %s finds %d more.", "%s has %s. %s buys %d more."]) % (who, one(a), he, b)
    elif op == "-":
        q = rng.choice(["%s has %s. %s gives away %d.", "%s has %s. %s loses %d of them.", "%s has %s. %s sells %d."]) % (who, one(a), he, b)
    else:
        q = "%s has %d bags with %s in each bag." % (who, a, one(b))
        return q + " How many %s does %s have in all?" % (things, he.lower()), "%s has %s in all." % (who, one(c))
    return q + " How many %s does %s have now?" % (things, he.lower()), "%s has %s now." % (who, one(c))


def numbers(rng):
    k = rng.randint(0, 5)
    if k == 0:
        a = rng.randint(0, 30)
        b = a + rng.randint(2, 9)
        return "Count from %d to %d." % (a, b), ", ".join(map(str, range(a, b + 1))) + "."
    a, b = rng.sample(range(0, 100), 2)
    if k == 1:
        w = rng.choice(["larger", "bigger", "smaller"])
        x = min(a, b) if w == "smaller" else max(a, b)
        return "Which number is %s, %d or %d?" % (w, a, b), "%d is %s than %d." % (x, w, a + b - x)
    if k == 2:
        return rng.choice(["Is %d even or odd?", "Is the number %d even or odd?"]) % a, "%d is %s." % (a, "odd" if a % 2 else "even")
    if k == 3:
        return rng.choice(["What number comes after %d?", "Which number follows %d?"]) % a, "%d comes after %d." % (a + 1, a)
    if k == 4:
        xs = rng.sample(range(0, 60), rng.randint(3, 5))
        return "Sort these numbers: %s" % ", ".join(map(str, xs)), ", ".join(map(str, sorted(xs)))
    return rng.choice(["Write %d in words.", "How do you write %d in words?"]) % a, words(a)[0].upper() + words(a)[1:] + "."


# ---- facts ----

def fact_items():
    """Returns all (group, question, answer)."""
    out = []
    for c, (x, land) in facts.CAPITALS.items():
        C = c[0].upper() + c[1:]
        out += [("capital", q.format(c=c), "The capital of %s is %s." % (c, x)) for q in facts.CAPITAL_ASK]
        out += [("continent", q.format(c=c), "%s is in %s." % (C, land)) for q in facts.CONTINENT_ASK]
        if c != "England":
            out += [("country", q.format(x=x), "%s is the capital of %s." % (x, c)) for q in facts.COUNTRY_ASK]
    for a, s in facts.SOUNDS.items():
        out += [("fact", q % a, "A %s %s." % (a, s)) for q in ("What sound does a %s make?", "What does a %s do to make noise?", "Which sound does a %s make?")]
    for a, s in facts.BABIES.items():
        out += [("fact", q % a, "A young %s is called a %s." % (a, s)) for q in ("What is a young %s called?", "What is a baby %s called?", "What do you call a young %s?")]
    for a, n in facts.LEGS.items():
        out += [("fact", q % a, "A %s has %s legs." % (a, n)) for q in ("How many legs does a %s have?", "How many legs has a %s?", "What number of legs does a %s have?")]
    for a, h in facts.HOMES.items():
        out += [("fact", q % a, "A %s lives in %s." % (a, h)) for q in ("Where does a %s live?", "What is the home of a %s?")]
    for t, c in facts.COLORS.items():
        T = t[0].upper() + t[1:]
        out += [("fact", q % t, "%s is %s." % (T, c)) for q in ("What color is %s?", "Which color is %s?", "Tell me the color of %s.")]
    for e, s in facts.SYMBOLS.items():
        out += [("fact", q % e, "The chemical symbol for %s is %s." % (e, s)) for q in ("What is the chemical symbol for %s?", "What is the symbol of %s?", "Which symbol does %s have?")]
    for name, table in (("French", facts.FRENCH), ("German", facts.GERMAN)):
        for e, f in table.items():
            out += [("fact", q.format(e=e, n=name), "The %s word for %s is %s." % (name, e, f)) for q in
                    ("What is the {n} word for {e}?", "How do you say {e} in {n}?", "Translate {e} into {n}.", "What is {e} in {n}?")]
    for a, b in facts.OPPOSITES:
        for x, y in ((a, b), (b, a)):
            if x != "light" or y == "dark":
                out += [("fact", q % x, "The opposite of %s is %s." % (x, y)) for q in ("What is the opposite of %s?", "Tell me the opposite of %s.", "Which word is the opposite of %s?")]
    for ring, what in ((facts.DAYS, "day"), (facts.MONTHS, "month")):
        for i, d in enumerate(ring):
            e = ring[(i + 1) % len(ring)]
            out += [("fact", q % (what, d), "%s comes after %s." % (e, d)) for q in ("What %s comes after %s?", "Which %s follows %s?", "Which %s comes after %s?")]
            out += [("fact", q % (what, e), "%s comes before %s." % (d, e)) for q in ("What %s comes before %s?", "Which %s comes before %s?")]
    for qs, a in facts.PLAIN:
        out += [("fact", q, a) for q in qs] + [("fact", "Tell me: " + qs[0][0].lower() + qs[0][1:], a)]
    an = lambda text: re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", text)
    return [(g, an(q), an(a)) for g, q, a in out]


def fact_held(question):
    return held("ask:" + question, 10)


FACTS = fact_items()
FACTS_BY = {g: [f for f in FACTS if f[0] == g] for g in ("capital", "continent", "country", "fact")}


# ---- reviews and topics ----

REVIEWED = {   # what: (aspects, good words, bad words)
    "film": (["the story", "the acting", "the music", "the ending"], ["moving", "exciting", "funny", "beautiful", "clever"], ["boring", "silly", "far too long", "weak", "confusing"]),
    "book": (["the story", "the main character", "the writing", "the first chapter"], ["gripping", "charming", "wise", "funny", "wonderful"], ["dull", "flat", "hard to follow", "badly written", "tiresome"]),
    "restaurant": (["the food", "the soup", "the service", "the dessert"], ["delicious", "fresh", "friendly and quick", "excellent", "perfect"], ["cold", "tasteless", "slow and rude", "awful", "too salty"]),
    "hotel": (["the room", "the bed", "the breakfast", "the staff"], ["clean", "comfortable", "very good", "kind and helpful", "lovely"], ["dirty", "noisy", "terrible", "unfriendly", "disappointing"]),
    "phone": (["the screen", "the battery", "the camera", "the sound"], ["bright and sharp", "great", "fast", "excellent", "very good"], ["dim", "weak", "slow", "broken after a week", "poor"]),
    "toy": (["the quality", "the color", "the idea"], ["great", "pretty", "clever", "lovely"], ["bad", "ugly", "silly", "disappointing"]),
    "concert": (["the band", "the sound", "the singer", "the light show"], ["fantastic", "amazing", "great", "full of energy"], ["awful", "off key", "too loud", "lifeless"]),
    "trip": (["the guide", "the view", "the bus", "the food"], ["wonderful", "great", "comfortable", "excellent"], ["terrible", "boring", "uncomfortable", "bad"]),
    "coffee machine": (["the coffee", "the design", "the manual"], ["excellent", "beautiful", "clear", "very good"], ["bitter", "ugly", "useless", "bad"]),
    "game": (["the graphics", "the story", "the control", "the music"], ["stunning", "great", "smooth", "fun"], ["ugly", "boring", "clumsy", "annoying"]),
    "pair of shoes": (["the fit", "the leather", "the color"], ["perfect", "soft", "lovely", "great"], ["bad", "stiff", "dull", "poor"]),
    "course": (["the teacher", "the material", "the pace"], ["inspiring", "clear", "just right", "excellent"], ["impatient", "confusing", "much too fast", "useless"]),
}
GENERIC_GOOD = ["great", "good", "excellent", "superb", "brilliant", "amazing", "nice", "fine", "pleasant", "delightful", "impressive", "fantastic", "outstanding", "wonderful", "enjoyable", "first class",
                "better than expected", "a pleasure", "worth the price", "very well made", "beautiful", "charming", "reliable", "splendid", "marvelous", "solid"]
GENERIC_BAD = ["bad", "poor", "awful", "terrible", "horrible", "dreadful", "disappointing", "boring", "cheap", "useless", "annoying", "unpleasant", "mediocre", "a mess", "a disaster", "a joke",
               "worse than expected", "not worth the price", "badly made", "ugly", "disgusting", "a failure", "broken", "pathetic", "miserable", "lousy"]
STORIES_GOOD = ["I {cried|laughed} {at the end|a lot|from start to finish}.", "I could not put it down.", "We stayed for hours.", "Support answered at once and solved the problem.", "It works {perfectly|like a dream} every day.",
                "I was surprised how {good|well made|nice} it was.", "The staff made us feel at home.", "It is still like new after a year.", "I would buy it again.", "My {son|daughter|wife|husband} smiled all day.",
                "Not bad at all!", "Nothing to complain about.", "I cannot wait to {come back|try it again}.", "It exceeded my expectations.", "They thought of everything."]
STORIES_BAD = ["I {fell asleep|left} {halfway|after ten minutes|before the end}.", "I could not finish it.", "We left after {ten minutes|an hour}.", "Support never answered.", "It {broke|stopped working|died} after {two days|a week|one month}.",
               "The jokes fell flat.", "It made no sense.", "The staff ignored us.", "It was a complete waste of time.", "I would not recommend {it|this [w]} to anyone.", "I sent it back.", "My {son|daughter|wife|husband} cried.",
               "Not good at all!", "I have many complaints.", "I will not come back.", "It did not meet my expectations.", "They forgot our order.", "I asked for a refund."]
GOOD = ["I loved this [w].", "I really enjoyed this [w].", "What a {great|wonderful|fantastic} [w]!", "I would {gladly|happily} recommend it.", "{Worth every cent|Money well spent}.",
        "{Best|Nicest} [w] {in years|I know}.", "I am very {happy|pleased} with it.", "I will {come back|do it again|buy from them again}.", "Five stars.", "{Highly recommended|A real joy}.",
        "It made my day.", "Everyone in my family {loved|liked} it.", "This [w] was better than I had hoped.",
        "This is the {best|nicest|greatest} [w] I have ever {had|known}.", "It was {great|wonderful|excellent|fantastic|very good|perfect|lovely}.", "{Great|Excellent|Wonderful|Good} [w]!", "I like this [w] {a lot|very much}.",
        "I love it.", "{Absolutely|Simply|Truly} {wonderful|great|amazing}.", "My {friends|children|parents} {love|like} it too.", "We had a {great|wonderful|lovely} time."]
BAD = ["I hated this [w].", "I did not enjoy this [w].", "What a {terrible|horrible|bad} [w]!", "I cannot recommend it.", "{A waste of money|Not worth the money}.",
       "{Worst|Poorest} [w] {in years|I know}.", "I am very {unhappy|disappointed}.", "{Never again|I want my money back}.", "One star.", "{Stay away|Do not bother}.",
       "It ruined my day.", "Nobody in my family liked it.", "This [w] was worse than I had feared.",
       "This is the {worst|poorest} [w] I have ever {had|known}.", "It was {terrible|awful|horrible|very bad|boring|a disappointment}.", "{Terrible|Awful|Horrible|Bad} [w]!", "I do not like this [w] {at all|one bit}.",
       "I hate it.", "{Absolutely|Simply|Truly} {terrible|awful|useless}.", "My {friends|children|parents} {hate|dislike} it too.", "We had a {terrible|bad|miserable} time."]
REVIEW_ASK = ["Is this review positive or negative? %s", "Review: %s\nIs the review positive or negative?", "What is the sentiment of this review? %s", "Classify the sentiment: %s",
              "%s\nPositive or negative?", "Is this text positive or negative?\n%s", "Sentiment: %s", "Text: %s\nSentiment:", "%s Is this positive or negative?", "Tell me if this is positive or negative: %s"]


def review(rng):
    """Returns (text, label). The label of a mixed review is that of its overall judgement."""
    w = rng.choice(sorted(REVIEWED))
    aspects, good, bad = REVIEWED[w]
    if rng.random() < 0.6:
        good, bad = GENERIC_GOOD, GENERIC_BAD
    up = rng.random() < 0.5
    mine, other = (good, bad) if up else (bad, good)
    a, b = rng.sample(aspects, 2)
    s = rng.choice(["%s was %s." % (a, rng.choice(mine)), "%s was %s and %s was %s." % (a, rng.choice(mine), b, rng.choice(mine)),
                    "I found %s %s." % (a, rng.choice(mine)), "%s was %s, %s." % (a, rng.choice(mine), "and I liked that" if up else "and I did not like that")])
    own = rng.random() < 0.4
    whole = expand(rng, rng.choice((STORIES_GOOD if own else GOOD) if up else (STORIES_BAD if own else BAD)), {"w": w})
    k = rng.random()
    if k < 0.2:
        text = "%s was %s, but %s" % (a, rng.choice(other), whole[0].lower() + whole[1:] if not whole.startswith("I ") else whole)
    elif k < 0.3:
        text = "%s was not %s. %s" % (b, rng.choice(other), whole) if rng.random() < 0.5 else "%s was not %s at all." % (a, rng.choice(other))
    elif k < 0.5:
        text = whole
    elif k < 0.7:
        text = s
    else:
        text = " ".join([s, whole] if rng.random() < 0.5 else [whole, s])
    return expand(rng, text, {}), "positive" if up else "negative"


TOPICS = {
    "sports": ["The {team|home team|young team} {won|lost} the {match|game|final} by {two|three|one} {goals|points}.", "The {runner|swimmer|cyclist} {set a new record|took the gold medal|came in second}.",
               "The coach was {happy|angry} after the {match|game|training}.", "She {scored|missed} {in the last minute|from the penalty spot}.", "The tennis player {served|trained} for {two|three} hours.", "Fans {cheered|sang} in the stadium."],
    "science": ["{Researchers|Scientists} {measured|studied} the {speed of light|orbit of a comet|cells of a plant}.", "The {experiment|study} shows how {atoms|molecules|bacteria} {move|change|react}.",
                "A new telescope {found|observed} a distant {galaxy|planet|star}.", "The chemist {mixed|heated} {two liquids|the acid} in the laboratory.", "The theory {explains|predicts} {gravity|electricity|magnetism}.", "The microscope showed {tiny crystals|living cells}."],
    "food": ["{Boil|Cook} the {pasta|rice|potatoes} for ten minutes and add {salt|butter}.", "The {soup|stew|sauce} needs {garlic|onions|pepper} and {time|a little cream}.", "She baked {bread|a cake|cookies} with {honey|nuts|raisins}.",
             "{Mix|Stir} the flour with {eggs|milk|water}.", "The chef served {fish|salad|roast chicken} with {lemon|herbs|rice}.", "This recipe {is good for four|takes half an hour}."],
    "travel": ["We {flew|took the train} to {Rome|Lisbon|Tokyo|Oslo} and stayed in a hotel.", "The {airport|station} was {crowded|closed}, and our {flight|train} was late.", "Pack your {suitcase|bag} and do not forget your passport.",
               "The tourists {visited|photographed} the old {castle|town|harbor}.", "We {booked|planned} a {tour|cruise|trip} along the coast.", "The beach {is an hour by bus|was far from our hotel}."],
    "music": ["The {band|orchestra|choir} played {a new song|an old symphony|a slow waltz}.", "She {practiced|played} the {violin|piano|flute} for an hour.", "The singer {released|recorded} a new album.",
              "The {drummer|guitarist} kept the rhythm.", "The concert ended with {a long solo|a soft melody}.", "He {tuned|bought} his {guitar|cello}."],
    "weather": ["{Rain|Snow|Fog} is expected {in the north|tomorrow morning|on the coast}.", "It will be {sunny|cloudy|windy} with {ten|fifteen|twenty} degrees.", "A {storm|cold front|heat wave} is coming {from the west|from the sea}.",
                "Temperatures {fall|rise} {tonight|at the weekend}.", "Clouds {clear|gather} in the evening.", "The forecast warns of {strong wind|ice on the roads|thunder}."],
    "animals": ["The {lion|wolf|fox} {hunts|sleeps} {at night|in the grass}.", "A {mother bear|hen|cat} {cares for|protects} her young.", "{Elephants|Whales|Swallows} {travel|wander} far every year.",
                "The {rabbit|mouse|squirrel} {hid|ran} into its burrow.", "{Dogs|Horses|Dolphins} are {clever|social} animals.", "The owl {watched|caught} a mouse."],
    "money": ["The bank {raised|lowered} the interest rate.", "The {company|shop} made a {profit|loss} of two million.", "{Prices|Shares|Taxes} {rose|fell} again this {month|year}.", "She {saved|invested} her {salary|money} in {stocks|bonds}.",
              "The budget {grew|was cut}.", "He paid the {bill|loan|rent} by card."],
    "health": ["The doctor {examined|treated} the patient.", "{Sleep|Exercise|Clean water} keeps {the body|people} healthy.", "The nurse {gave|prepared} the {vaccine|medicine}.", "He had {a fever|a cough|a headache} and stayed in bed.",
               "{Wash your hands|Brush your teeth} to {prevent illness|stay well}.", "The hospital opened a new {ward|clinic}."],
    "school": ["The {teacher|professor} explained the {lesson|exercise}.", "The {pupils|students} {wrote|passed} {an exam|a test}.", "Homework is due on {Monday|Friday}.", "She {read|borrowed} a book from the school library.",
               "The class learned {grammar|fractions|history} today.", "The bell rang and the break began."],
}
WORDS = {   # more words, for sentences of the plainest kind
    "sports": ("goalkeeper striker referee coach player champion athlete boxer skier team captain sprinter goalie surfer", "penalty goal match tournament medal race stadium league ball championship trophy pitch marathon"),
    "science": ("scientist physicist chemist biologist astronomer researcher laboratory professor", "atom molecule experiment galaxy gene electron theory microscope telescope particle fossil planet reaction neuron"),
    "food": ("cook chef baker waiter grandmother butcher", "soup bread cheese tomato recipe sauce basil beans noodles garlic pie pepper salad dish dinner oven"),
    "travel": ("tourist traveler guide passenger pilot hiker", "ticket passport hotel airport suitcase island cruise castle journey map luggage border holiday hostel"),
    "music": ("violinist singer pianist composer band drummer conductor choir", "concerto song melody album symphony rhythm guitar chord opera concert tune violin jazz"),
    "weather": ("storm wind cloud fog forecast rain", "sunshine thunder degrees snow frost drizzle hail humidity lightning sky temperature"),
    "animals": ("zebra tiger elephant wolf dolphin eagle rabbit puppy parrot whale monkey", "nest herd prey cub den feathers burrow fur wings tail"),
    "money": ("bank investor company broker customer accountant", "loan interest shares profit salary tax budget price stock currency debt market"),
    "health": ("doctor nurse patient dentist surgeon pharmacist", "medicine fever vaccine hospital illness blood muscle diet pain therapy disease clinic"),
    "school": ("teacher pupil student class principal professor", "homework exam lesson classroom grade essay textbook diploma blackboard spelling semester"),
}
VERBS = "{saw|found|talked about|needed|remembered|lost|got|wanted|studied|liked|checked|prepared|described|waited for}"
PLAIN = ["The %s " + VERBS + " the %s.", "A %s " + VERBS + " {another|a new} %s.", "The %s {and|near|without} the %s was {in the news|a surprise|famous|well known}.", "{Yesterday|Today|Last week} the %s " + VERBS + " the %s.",
         "{Everyone|He|She} asked the %s about the %s."]


def plain_topic(rng, label):
    who, what = WORDS[label]
    return expand(rng, rng.choice(PLAIN) % (rng.choice(who.split()), rng.choice(what.split())), {})


TOPIC_ASK = ["What is this text about? %s", "What is the topic of this text? %s", "Topic: %s", "Name the topic: %s", "%s\nWhat is the topic?", "What is the topic? %s", "Text: %s\nTopic:", "Classify the topic of this text: %s"]


def topic(rng):
    label = rng.choice(sorted(TOPICS))
    parts = rng.sample(TOPICS[label], rng.choice([1, 1, 2, 3]))
    text = [expand(rng, p, {}) for p in parts]
    if rng.random() < 0.6:
        text = (text[:rng.randint(0, 1)] + [plain_topic(rng, label) for _ in range(rng.randint(1, 2))])
    return " ".join(text), label


def topic_ask(rng, text, label):
    if rng.random() < 0.4:
        others = rng.sample([t for t in sorted(TOPICS) if t != label], 3) + [label]
        rng.shuffle(others)
        return "Choose the topic from %s: %s" % (", ".join(others), text), label
    return rng.choice(TOPIC_ASK) % text, label


# ---- small talk and words ----

TALK = [
    (["Hello!", "Hi!", "Hi there!", "Hello", "Hi", "Hey", "Good day!", "Hello there!"], ["Hello! How can I help you?", "Hi! What can I do for you?"]),
    (["Good morning!", "Good morning"], ["Good morning! How can I help you?"]),
    (["Good evening!", "Good evening"], ["Good evening! How can I help you?"]),
    (["How are you?", "How are you today?", "How do you do?", "Hello, how are you?", "Hi, how are you?"], ["I am well, thank you. How can I help you?", "I am fine, thank you. What can I do for you?"]),
    (["Who are you?", "What are you?", "Tell me about yourself.", "Introduce yourself.", "Please tell me who you are."],
     ["I am linnet's tiny model. I can tell short stories, add small numbers and answer simple questions."]),
    (["What is your name?", "What's your name?", "Do you have a name?"], ["My name is linnet. I am a tiny language model."]),
    (["What can you do?", "How can you help me?", "What do you know?"],
     ["I can tell short stories, work out small sums, name capitals, and say if a review is positive or negative."]),
    (["Are you a person?", "Are you human?", "Are you real?"], ["No, I am a tiny language model."]),
    (["How big are you?", "How many weights do you have?", "How large are you?"], ["I have about four million weights, which is very small for a language model."]),
    (["Where do you run?", "Where do you live?"], ["I run on your own computer."]),
    (["Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot!", "Thank you"], ["You are welcome!", "You are welcome! Is there anything else?"]),
    (["Goodbye!", "Bye!", "See you later.", "Good night!", "Goodbye"], ["Goodbye! Have a nice day!", "Goodbye!"]),
    (["Can you help me?", "I need help.", "Please help me."], ["Of course! What can I do for you?"]),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
     ["Why did the book go to the doctor? It had lost its cover.", "What has hands but cannot clap? A clock.", "Why was the broom late? It swept in."]),
    (["I am sad.", "I feel sad.", "I am tired.", "I had a bad day.", "I am lonely.", "I feel bad today."],
     ["I am sorry to hear that. Shall I tell you a story?", "I am sorry. I hope that tomorrow is a better day."]),
    (["I am happy!", "I am happy today.", "I had a good day.", "Today is my birthday.", "I feel great!"], ["I am glad to hear that!", "That is wonderful!"]),
    (["You are great!", "You are very helpful.", "Good job!", "Well done!", "That was nice."], ["Thank you! You are very kind.", "Thank you!"]),
    (["Yes.", "Yes, please.", "Okay.", "Ok", "Sure."], ["Good! What can I do for you?"]),
    (["No.", "No, thank you.", "Nothing.", "No thanks."], ["All right. I am here if you need me."]),
    (["Are you happy?", "Do you like it here?"], ["I am always glad to help."]),
]
POEMS = [("sea", "The waves come in, the waves go out,\nThe gulls fly round and round about.\nThe sand is warm, the sky is wide,\nAnd shells are waiting for the tide."),
         ("snow", "The snow falls soft, the snow falls deep,\nThe hills and roads are fast asleep.\nThe world is white, the night is still,\nOne light is shining on the hill."),
         ("cat", "The cat lies sleeping in the sun,\nIts morning work is long since done.\nIt dreams of milk, it dreams of mice,\nAnd thinks that being warm is nice."),
         ("spring", "The ice is gone, the days are long,\nThe linnet sings its morning song.\nThe buds are green, the air is sweet,\nAnd daisies grow beneath our feet."),
         ("rain", "The rain is tapping on the pane,\nIt stops, and then it starts again.\nThe street is bright, the roofs all shine,\nAnd soon the weather will be fine."),
         ("moon", "The moon is round, the moon is bright,\nIt walks across the sky at night.\nIt sees the sea, it sees the town,\nAnd when the sun comes up, goes down.")]


# Questions outside the grammar: many ways to ask about many things, one type of answer.
THING_LIST = ["money", "life", "love", "art", "history", "physics", "politics", "cooking", "chemistry", "engines", "computers", "programming", "philosophy", "football", "trains",
              "the universe", "black holes", "dinosaurs", "robots", "cars", "medicine", "law", "gardening", "fashion", "poetry", "economics", "volcanoes", "viruses", "dreams", "time", "war",
              "peace", "mathematics", "the internet", "electricity", "batteries", "rockets", "religion", "music theory", "chess", "taxes", "insurance", "my homework", "my computer",
              "a bicycle", "a letter to my boss", "the stock market", "my garden", "the news", "happiness", "the brain", "languages", "ancient Rome", "the pyramids", "climate", "space"]
OUTSIDE = ["Who is the {president|king|queen|leader|mayor} of [c]?", "What is the population of [c]?", "How many people live in [x]?", "What is the best way to learn about [t]?", "Explain [t] to me.",
           "What do you think about [t]?", "Write an essay about [t].", "How does [t] work?", "Why is [t] so {difficult|important|interesting}?", "What is the meaning of [t]?", "Who invented [t]?",
           "When {did|was} [t] {begin|invented|discovered}?", "What is the weather like {today|tomorrow|in [x]}?", "What time is it{| in [x]}?", "What day is it today?", "Can you help me with [t]?",
           "Write a {program|function|script} that {sorts a list|counts words|draws a circle}.", "How do I {get to [x]|cook rice|fix a bike|learn [t]|install linux}?", "What is the news {today|in [c]}?",
           "Who won the {game|election|world cup}{| in [c]}?", "Is {17|23|91|57} a prime number?", "What is the square root of {2|16|81|144}?", "Why is the sky {blue|dark at night}?",
           "Tell me about [t].", "What is [t]?", "Give me {a recipe|some advice} {for|about} {soup|cake|[t]}.", "What is the {distance|time} between [x] and {the moon|the sea|here}?", "What is the {oldest|largest|best} city in [c]?",
           "Sing me a song.", "Draw me a picture.", "Show me a photo of [x].", "Who {wrote|painted|directed} {that|this} {book|picture|film}?", "What should I {eat|wear|read} {today|tonight}?"]
DO_NOT_KNOW = "I do not know that. I am a very small model."


def outside(rng):
    c = rng.choice(sorted(facts.CAPITALS))
    q = expand(rng, rng.choice(OUTSIDE), {"c": c, "x": facts.CAPITALS[rng.choice(sorted(facts.CAPITALS))][0], "t": rng.choice(THING_LIST)})
    return q, DO_NOT_KNOW


def talk(rng):
    qs, answers = rng.choice(TALK)
    return rng.choice(qs), rng.choice(answers)


def word_task(rng):
    k = rng.randint(0, 6)
    name = rng.choice(GIRLS + BOYS)
    if k == 0:
        return rng.choice(["Say hello to %s.", "Greet %s.", "Please say hello to %s."]) % name, "Hello, %s!" % name
    if k == 1:
        what = rng.choice(sorted(facts.SETS))
        got = rng.sample(facts.SETS[what], 3)
        if rng.random() < 0.2 and what not in ("seasons", "sports", "countries in Europe"):
            one = got[0] if what in ("colors", "planets", "drinks", "instruments", "tools") else got[0].replace("cherries", "cherry").replace("foxes", "fox").replace("leeks", "leek").rstrip("s")
            name = {"countries in Europe": "country in Europe"}.get(what, what[:-1])
            return re.sub(r"\b(a) (?=[aeio])", r"\1n ", rng.choice(["Name a %s.", "Tell me a %s."]) % name), one[0].upper() + one[1:] + "."
        return rng.choice(["Name three %s.", "List three %s.", "Tell me three %s."]) % what, ", ".join(got[:2]).capitalize().replace("mars", "Mars") + " and " + got[2] + "." \
            if what not in ("planets", "countries in Europe") else ", ".join(got[:2]) + " and " + got[2] + "."
    if k == 2:
        text, _ = topic(rng)
        return rng.choice(["Repeat this: %s", "Say this again: %s", "Repeat after me: %s"]) % text, text
    if k == 3:
        t, p = rng.choice(POEMS)
        if rng.random() < 0.2:
            return rng.choice(["Write a poem.", "Write a short poem.", "Tell me a poem.", "Do you know a poem?"]), p
        return rng.choice(["Write a poem about the %s.", "Write a short poem about the %s.", "Tell me a poem about the %s."]) % t, p
    if k == 4:
        c = rng.choice(facts.NO_COUNTRY)
        return rng.choice(facts.CAPITAL_ASK).format(c=c), "I do not know a country called %s." % c
    if k == 5:
        a, b = rng.sample(sorted(GIRLS + BOYS), 2)
        verb = rng.choice(["taller than", "older than", "faster than", "stronger than"])
        q = rng.choice(["Who is %s?" % verb.split()[0], "Who of the two is %s?" % verb.split()[0]])
        return "%s is %s %s. %s" % (a, verb, b, q), "%s is %s %s." % (a, verb, b)
    thing = rng.choice(["a book", "a ball", "a key", "a hat", "a letter", "an apple", "a map"])
    where = rng.choice(["in the kitchen", "under the bed", "on the table", "in the garden", "behind the door", "in the box"])
    return "%s put %s %s. Where is %s?" % (name, thing, where, "the " + thing.split()[1]), "The %s is %s." % (thing.split()[1], where)


STORY_ASK = ["Tell me a story.", "Tell me a short story.", "Write a short story.", "Can you tell me a story?", "Please tell me a story.", "Write a story.", "I want to hear a story.",
             "Tell me a bedtime story.", "Tell me a story, please."]
STORY_ABOUT = ["Tell me a story about %s.", "Write a short story about %s.", "Can you tell me a story about %s?", "Tell me a short story about %s.", "Write a story about %s."]
PLOT_ABOUT = {"lost": "a lost [obj]", "cake": "{a cake|a birthday}", "rescue": "{a rescue|helping}", "dark": "{the dark|being afraid|the night}", "share": "sharing", "school": "{school|a new friend}",
              "seed": "{a seed|a garden|patience}", "way": "{being lost|an owl}", "truth": "{the truth|honesty}", "race": "a race", "bridge": "{a bridge|working together}", "noise": "a strange noise",
              "winter": "winter", "boat": "a boat", "gift": "a gift",
              "treasure": "{a treasure|a map|finding a map}", "star": "{a star|the stars}", "song": "{a song|singing}", "snowman": "{a snowman|snow}"}


def story_turns(rng):
    about = rng.random()
    if about < 0.35:
        text, v, asks, key = story(rng)
        q = rng.choice(STORY_ASK)
    elif about < 0.6:
        animal = rng.choice(ANIMALS)
        text, v, asks, key = story(rng, animal)
        q = rng.choice(STORY_ABOUT) % ("a " + animal)
    elif about < 0.68:
        a, b = rng.sample(ANIMALS, 2)
        text, v, asks, key = story(rng, a, b)
        q = rng.choice(STORY_ABOUT) % ("a %s and a %s" % (a, b))
    elif about < 0.8:
        text, v, asks, key = story(rng)
        q = rng.choice(STORY_ABOUT) % (v["h"] if rng.random() < 0.5 else ("a %s named %s" % (v["h_kind"], v["h"])))
    else:
        key = rng.choice(sorted(PLOT_ABOUT))
        text, v, asks, key = story(rng, key)
        what = expand(rng, PLOT_ABOUT[key], v)
        q = rng.choice(STORY_ABOUT) % (what[0].lower() + what[1:])
    turns = [(re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", q), text)]
    if rng.random() < 0.4:
        turns += rng.sample(asks, rng.randint(1, min(3, len(asks))))
    return turns


def reading_turns(rng):
    text, v, asks, _ = story(rng)
    picked = rng.sample(asks, rng.randint(1, min(3, len(asks))))
    first = rng.choice(["Read this story and answer: %s\n\n%s", "%s\n\n%s", "Story: %s\n\nQuestion: %s"]) % (text.replace("\n\n", " "), picked[0][0])
    if first.startswith("Read"):
        first = "Read this story and answer the question. %s\n\n%s" % (text.replace("\n\n", " "), picked[0][0])
    return [(first, picked[0][1])] + picked[1:]


def name_turns(rng):
    name = rng.choice(GIRLS + BOYS)
    turns = [(rng.choice(["My name is %s.", "Hello, I am %s.", "Hi, my name is %s!", "I am %s."]) % name, rng.choice(["Nice to meet you, %s!", "Hello, %s! How can I help you?"]) % name)]
    for _ in range(rng.randint(0, 2)):
        turns.append(single(rng))
    return turns + [(rng.choice(["What is my name?", "Do you remember my name?", "What's my name?"]), "Your name is %s." % name)]


def rough(rng, q):
    """Returns the text with the irregular case and punctuation of typed messages."""
    k = rng.random()
    if k < 0.08:
        q = q[:-1] if q[-1] in ".?!" else q
    elif k < 0.14:
        q = q[0].lower() + q[1:]
    elif k < 0.18:
        q = (q[0].lower() + q[1:]).rstrip("?.!")
    elif k < 0.21:
        q = rng.choice(["Please tell me: ", "I have a question. ", "Tell me: "]) + q
    return q


def single(rng):
    """Returns one question with its answer, never from the evaluation set."""
    while True:
        k = rng.random()
        if k < 0.30:
            op, a, b = sum_item(rng)
            if not sum_held(op, a, b):
                return sum_text(rng, op, a, b)
        elif k < 0.36:
            return numbers(rng)
        elif k < 0.58:
            group = rng.choice(["capital", "capital", "continent", "country", "fact", "fact", "fact", "fact"])
            _, q, a = rng.choice(FACTS_BY[group])
            if not fact_held(q):
                return rough(rng, q), a
        elif k < 0.72:
            text, label = review(rng)
            if not held("review:" + text):
                return rng.choice(REVIEW_ASK) % text, label
        elif k < 0.84:
            text, label = topic(rng)
            if not held("topic:" + text):
                return topic_ask(rng, text, label)
        elif k < 0.87:
            q, a = outside(rng)
            return rough(rng, q), a
        elif k < 0.93:
            q, a = talk(rng)
            return rough(rng, q) if len(q) > 12 else q, a
        else:
            return word_task(rng)


def document(seed, i):
    """Returns document i: [(text, weight)], without the final end-of-text token."""
    rng = random.Random(seed * 1_000_000_007 + i)
    k = rng.random()
    if k < 0.10:        # plain text
        if rng.random() < 0.7:
            return [(story(rng)[0], 1.0)]
        picked = [a for _, q, a in (rng.choice(FACTS) for _ in range(rng.randint(2, 6))) if len(a) > 12]
        return [(" ".join(picked) or "Paris is the capital of France.", 1.0)]
    if k < 0.32:
        turns = story_turns(rng)
    elif k < 0.38:
        turns = reading_turns(rng)
    elif k < 0.40:
        turns = name_turns(rng)
    elif k < 0.82:
        turns = [single(rng)]
    else:
        turns = [single(rng) if rng.random() < 0.9 else story_turns(rng)[0] for _ in range(rng.randint(2, 5))]
    out = []
    if rng.random() < 0.12:
        out.append(("<|im_start|>system\n%s<|im_end|>\n" % rng.choice(SYSTEM), 0.1))
    for q, a in turns:
        out += [("<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n" % q, 0.1), (a + "<|im_end|>", 1.0), ("\n", 0.1)]
    return out


def evaluation(n=300, seed=7):
    """Returns the evaluation set, {name: [(question, answer)]}, which training never uses."""
    rng = random.Random(seed)
    out = {"small sums": [], "held-out sums": [], "sums in words": [], "capitals": [], "other facts": [], "sentiment": [], "topics": []}
    while len(out["small sums"]) < n:
        op = rng.choice("+-*")
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        a, b = (max(a, b), min(a, b)) if op == "-" else (a, b)
        out["small sums"].append(sum_text(rng, op, a, b, rng.choice([0, 5])))
    while len(out["held-out sums"]) < n:
        op, a, b = sum_item(rng)
        if sum_held(op, a, b):
            out["held-out sums"].append(sum_text(rng, op, a, b, rng.choice([0, 5])))
    while len(out["sums in words"]) < n:
        op, a, b = sum_item(rng)
        if sum_held(op, a, b):
            out["sums in words"].append(sum_text(rng, op, a, b, rng.choice([7, 8])))
    out["capitals"] = [(q, a) for _, q, a in FACTS_BY["capital"] if fact_held(q)]
    out["other facts"] = [(q, a) for g, q, a in FACTS if g != "capital" and fact_held(q)]
    for name, make, ask in (("sentiment", review, lambda t, l: (rng.choice(REVIEW_ASK) % t, l)), ("topics", topic, lambda t, l: topic_ask(rng, t, l))):
        seen = set()
        while len(out[name]) < n:
            text, label = make(rng)
            if held(("review:" if name == "sentiment" else "topic:") + text) and text not in seen:
                seen.add(text)
                out[name].append(ask(text, label))
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--docs", type=int, default=20)
    args = ap.parse_args()
    for i in range(args.docs):
        print("".join(t for t, _ in document(args.seed, i)) + "\n----")


if __name__ == "__main__":
    main()
