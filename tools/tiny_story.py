"""Generates short stories from a grammar: fifteen plots, each a sequence of consistent sentences with a small problem and its solution.

A template is text with `[name]` for a value that the story has chosen and `{a|b|c}` for a free choice (choices nest). A story is returned as text
with questions that it answers, for training reading comprehension.
"""
import re

GIRLS = "Anna Lily Mia Emma Sara Nora Ruby Ella Zoe Lucy Clara Ida Maya Rosa Julia Hanna Eva Alice Lena Molly Tara Nina".split()
BOYS = "Tom Ben Max Leo Sam Jack Finn Noah Oscar Paul Theo Adam Luca Hugo Peter Otto Felix Henry Karl Mark Eli David".split()
ANIMALS = ("fox rabbit bear mouse duck cat dog hedgehog frog squirrel turtle badger hare pony dragon lion wolf elephant horse goat lamb piglet penguin monkey robot "
           "owl snail beaver raccoon linnet donkey tiger").split()
PETS = "Pip Dot Bruno Coco Milo Rusty Willow Hazel Biscuit Pepper Olive Nutmeg Ginger Button Clover Maple".split()
OBJECTS = {"kite": "red", "ball": "blue", "book": "old", "hat": "green", "key": "small", "drum": "tin", "scarf": "warm", "lantern": "yellow", "doll": "little",
           "boat": "wooden", "bell": "silver", "whistle": "shiny", "basket": "round", "umbrella": "striped", "coin": "golden", "blanket": "soft"}
PLACES = ["the forest", "the park", "the garden", "the village", "the meadow", "the old mill", "the beach", "the hill", "the farm", "the harbor"]
SPOTS = ["under {a bench|the bench}", "behind {a big tree|an old tree}", "in the tall grass", "near the pond", "beside the {old|stone} wall", "under a pile of leaves",
         "in a hollow log", "next to the well", "behind the shed", "on top of a bush"]
FAMILY = [("mother", "she", "her"), ("father", "he", "his"), ("grandmother", "she", "her"), ("grandfather", "he", "his"), ("sister", "she", "her"),
          ("brother", "he", "his"), ("aunt", "she", "her"), ("uncle", "he", "his")]
CHOICE = re.compile(r"\{([^{}]*)\}")


def expand(rng, text, v):
    """Expands a template: first the names, then the choices from the inside out."""
    text = re.sub(r"\[(\w+)\]", lambda m: v[m.group(1)], text)
    while True:
        text, n = CHOICE.subn(lambda m: rng.choice(m.group(1).split("|")), text)
        if not n:
            break
        text = re.sub(r"\[(\w+)\]", lambda m: v[m.group(1)], text)
    text = re.sub(r"\b([Aa]) (?=[aeiouAEIO])", r"\1n ", text)
    text = re.sub(r"(^|[.!?] \"?|\n\"?)([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)
    return re.sub(r"  +", " ", text).strip()


def person(rng, p, v, taken, animal=None):
    """Chooses the person [p], a child or an animal with a name. Sets [p], [p_he], [p_him], [p_his], [p_kind] and [p_intro]."""
    girl = rng.random() < 0.5
    if animal or (animal is None and rng.random() < 0.4):
        name, kind = rng.choice([n for n in PETS if n not in taken]), animal or rng.choice([a for a in ANIMALS if a not in taken])
        v[p + "_intro"] = rng.choice(["a {little|small|young} %s named %s", "a {little|small|brave|kind} %s called %s"]) % (kind, name)
    else:
        name, kind = rng.choice([n for n in (GIRLS if girl else BOYS) if n not in taken]), "girl" if girl else "boy"
        v[p + "_intro"] = rng.choice(["a {little|young|kind|clever|cheerful} %s named %s", "a {little|young} %s called %s"]) % (kind, name)
    taken.update((name, kind))
    v[p], v[p + "_kind"] = name, kind
    v[p + "_he"], v[p + "_him"], v[p + "_his"] = ("she", "her", "her") if girl else ("he", "him", "his")


OPEN = ["{Once upon a time|One day|Once}, there was [h_intro]{ who lived near [place]|}.", "[h_intro] lived {near|close to} [place].",
        "There once was [h_intro].", "Near [place] lived [h_intro]."]
WEATHER = ["It was a {sunny|warm|bright|quiet} {morning|afternoon|day}.", "The sun was {shining|bright} and the birds were singing.", "It was a {cool|windy} {morning|day} in {spring|autumn}.", ""]
END = ["[h] was {very |so |}{happy|glad} and {slept well that night|smiled all the way home|never forgot that day}.", "From that day on, [h] and [f] were {best|good} friends.",
       "And {everyone|they all} went home {happy|with a smile}.", "[h] {smiled|laughed} and said, \"{What a day|This was a good day|Thank you, my friend}!\""]
LEARN = ["[h] learned that %s.", "That day [h] learned that %s.", "Now [h] knew that %s."]

# Each plot: the names that it needs, its sentences, its moral, and the questions that it answers.
PLOTS = [
    dict(key="lost", inside=True, need="obj spots", text=[
        "[h] had a [adj] [obj] and {loved it very much|took it everywhere|played with it every day}.",
        "One {morning|afternoon|day}, [h_he] went to [place2] and lost the [obj]. \"{Oh no|Oh dear}! Where is my [obj]?\" {cried|said} [h].",
        "[h] {looked|searched} [spot1], but {it was not there|the [obj] was not there|found nothing}. {Then|After that} [h_he] looked [spot2], but {found only {leaves|stones|a snail}|it was not there}.",
        "{Then|Just then} [f_intro] came along. \"{Why are you sad|What is wrong|Can I help you}?\" asked [f]. \"I lost my [obj],\" said [h].",
        "\"{Do not worry|Do not be sad}, {I will help you|we can look together},\" said [f]. They looked {together|everywhere}{, and they did not give up|}.",
        "At last [f] found the [obj] [spot3]. \"{Here it is|I found it|Look}!\" {called|shouted} [f].", "[h] {hugged|thanked} [f] and {held the [obj] tight|danced with joy|jumped up and down}."],
        moral="{it is good to ask for help|two can find more than one|a friend makes hard things easy}",
        ask=[("What did [h] lose?", "[h] lost [h_his] [obj]."), ("Who helped [h]?", "[f] helped [h]."), ("Where was the [obj]?", "The [obj] was [spot3]."), ("Who found the [obj]?", "[f] found the [obj].")]),
    dict(key="cake", need="family", text=[
        "{Tomorrow|That day} was the birthday of [h_his] [fam]. [h] wanted to bake {a cake|an apple pie|a big cake|a honey cake} as a surprise.",
        "[h_he] took out the flour, the butter and the sugar. But {there were no eggs left|the milk was gone|there was no honey left}! \"{Oh no|Oh dear}, what can I do?\" said [h].",
        "[h_he] {walked|went|ran} to the house of [f_intro]. \"{Can you help me, please|Please, can you help me|Do you have some to spare}?\" {asked|said} [h].",
        "\"Of course,\" said [f]. \"{Take what you need|Come in|I have more than enough}. {May I help you bake|Let us bake it together|I love to bake}!\"",
        "They {mixed|stirred} everything in a big bowl. {Soon|After an hour} the {kitchen|whole house} smelled {sweet|wonderful|of sugar}.",
        "When the [fam] came home, [h] and [f] {shouted|called}, \"{Happy birthday|Surprise}!\" The [fam] {laughed with joy|was so happy|had tears of joy}."],
        moral="{a gift made with love is the best gift|good neighbors share|a problem is smaller with a friend}",
        ask=[("Whose birthday was it?", "It was the birthday of [h_his] [fam]."), ("Who helped [h]?", "[f] helped [h]."), ("What did [h] want to do?", "[h] wanted to bake for [h_his] [fam].")]),
    dict(key="rescue", need="beast", text=[
        "{One day|One morning}, [h] {walked|went for a walk} [in2]. {Suddenly|Then} [h_he] heard a {small|soft|sad} voice: \"Help! Help!\"",
        "It was a [beast] that {was stuck in a tree|was caught in a bush|had fallen into a hole}. It {could not get out|was very afraid|shook with fear}.",
        "\"{Do not be afraid|Stay calm},\" said [h]. \"I will help you.\" But [h] was {too small|not strong enough|not tall enough}.",
        "So [h_he] {ran to get|called} [f_intro]. \"{Come quickly|Please come}, a [beast] needs our help!\"",
        "[f] brought {a long rope|a ladder|a strong branch}, and together they {set the [beast] free|got the [beast] out}.",
        "\"{Thank you|Oh, thank you|You saved me},\" said the [beast]. It {gave them a berry|sang a little song|licked their hands|danced around them}."],
        moral="{even a small one can do a great thing|it is right to help those in need|kind deeds come back}",
        ask=[("Who needed help?", "A [beast] needed help."), ("Whom did [h] call?", "[h] called [f]."), ("Where did [h] walk?", "[h] walked [in2].")]),
    dict(key="dark", inside=True, need="family obj", text=[
        "[h] was {afraid of|scared of} {the dark|thunder|the long night}. {Every night|When evening came}, [h_he] {hid under the blanket|could not sleep}.",
        "One night {there was a big storm|the wind was loud|the moon was hidden}. \"{I am afraid|I cannot sleep},\" {said|whispered} [h].",
        "[h_his] [fam] came with a {small|warm} {lamp|candle} and sat down {beside the bed|next to [h]}. \"{The night is only the day asleep|Everything in this room is the same as by day|The storm is loud, but our house is strong},\" said the [fam].",
        "\"{Let us count the stars|Let us count slowly to ten|Let us listen to the rain},\" said the [fam]. They {counted|listened} {together|quietly}, and {the fear grew smaller|soon it was not so bad}.",
        "[h] held [h_his] [adj] [obj] and closed [h_his] eyes. {Soon|After a while} [h_he] was {asleep|sleeping deeply}.",
        "In the morning the sun was {shining|up}. \"{I was brave|I slept all night},\" said [h] {proudly|with a smile}."],
        moral="{fear grows smaller when you share it|the dark is nothing to fear|being brave means to try}", noend=True,
        ask=[("Who sat down with [h]?", "[h_his] [fam] sat down with [h]."), ("What did [h] hold?", "[h] held [h_his] [adj] [obj].")]),
    dict(key="share", need="obj", text=[
        "[h] and [f_intro] {were playing|played} [in2]. They found a [adj] [obj] {in the grass|on the path|under a tree}.",
        "\"{I saw it first|It is mine},\" said [h]. \"No, {I saw it first|it is mine},\" said [f]. They {pulled|both pulled} at the [obj] and {were angry|began to shout}.",
        "{Then|Suddenly} the [obj] fell into {the mud|a puddle}. {Both|They} {were quiet|stopped} and {looked at it|felt sorry}.",
        "\"{I am sorry|This is silly},\" said [h]. \"{We can take turns|Let us share it}. You {can have it|play with it} today, and I {take|have} it tomorrow.\"",
        "\"{That is fair|Good idea|I like that},\" said [f]. They {washed|cleaned} the [obj] and played {together|until the evening}."],
        moral="{sharing is more fun than fighting|it is better to share|taking turns makes two happy}",
        ask=[("What did they find?", "They found a [adj] [obj]."), ("Who was with [h]?", "[f] was with [h]."), ("Where did they play?", "They played [in2].")]),
    dict(key="school", need="hobby", text=[
        "It was the first day at a new school, and [h] {knew nobody|was very shy|was nervous}.",
        "At {lunch|noon} [h_he] sat alone {under a tree|at a small table|by the window} and {looked at the others|wished for a friend}. {So [h_he] began to [hobby1]|To feel better, [h_he] began to [hobby1]}.",
        "Then [f_intro] stopped and {looked|watched}. \"{Do you like to [hobby1]? I do too|You [hobby1] so well, I like that|I love to [hobby1] too},\" said [f].",
        "[h] {smiled|looked up}. \"{Would you like to join me|Do you want to do it together|Do you want to sit with me}?\" {asked|said} [h]{ in a small voice|}.",
        "They {began to [hobby1] together|sat together and talked} until the bell rang. {The next day|Soon} {more children came|others joined them too}."],
        moral="{a friend may be just one question away|it takes courage to say hello|you find friends in what you love}",
        ask=[("What did [h] and [f] both like?", "They both liked to [hobby1]."), ("Who talked to [h]?", "[f] talked to [h]."), ("Why was [h] alone?", "[h] was new at the school.")]),
    dict(key="seed", need="plant family", text=[
        "[h_his] [fam] gave [h] a {tiny|small} seed. \"{Plant it and be patient|Take good care of it},\" said the [fam].",
        "[h] {planted|put} the seed in {the garden|a pot} and {watered it|gave it water} every day. But {nothing happened|nothing grew}. {A week went by|Days went by}.",
        "\"{Maybe the seed is bad|It will never grow},\" said [h]. \"{Wait a little longer|Good things take time},\" said [f_intro] who lived next door.",
        "So [h] {waited|kept on watering} and {sang to the seed|made sure it had sun}. Then, one {morning|day}, {a green leaf|a tiny green tip} came out of the {earth|soil}!",
        "It grew and grew until it was a {tall|beautiful|big} [plant]. {Everybody|The whole street} came to {see|look at} it."],
        moral="{good things take time|patience makes things grow|you must not give up too soon}",
        ask=[("Who gave [h] the seed?", "[h_his] [fam] gave [h] the seed."), ("What did the seed become?", "It became a [plant]."), ("Who told [h] to wait?", "[f] told [h] to wait.")]),
    dict(key="way", need="", text=[
        "{One day|One afternoon}, [h] {followed|ran after} {a butterfly|a rabbit trail|a yellow leaf} deep into the {woods|forest}. When [h_he] {looked up|stopped}, {all the trees looked the same|the path was gone}.",
        "\"{I am lost|How do I get home},\" {said|whispered} [h]. It was getting {dark|late|cold}.",
        "Then [h_he] saw an old owl on a branch. \"{Dear owl|Please}, {do you know the way|can you show me the way home}?\" asked [h].",
        "\"{Follow the river|Follow the brightest star|Follow the smell of bread},\" said the owl, \"{and do not leave it|and you will be home soon}.\"",
        "[h] {thanked the owl and did so|did as the owl said}. {Step by step|Slowly} [h_he] {walked on|went on}, and {soon|at last} [h_he] saw the lights of [h_his] house.",
        "[f_intro] was {waiting at the door|looking out of the window}. \"{There you are|You are back}! {We were so worried|Come in, the soup is warm}!\" said [f]."],
        moral="{it is wise to ask when you are lost|a calm head finds the way|one should stay on the path}",
        ask=[("Whom did [h] ask for the way?", "[h] asked an old owl."), ("Who was waiting?", "[f] was waiting."), ("Where did [h] get lost?", "[h] got lost in the woods.")]),
    dict(key="truth", inside=True, need="vase family", text=[
        "{One rainy day|One afternoon}, [h] played {with a ball|too wildly} in the house. Crash! The [vase] fell and broke.",
        "It belonged to [h_his] [fam]. [h] {was frightened|felt very bad}. \"{I could hide it|Nobody saw me},\" [h_he] thought.",
        "But [f_intro], who was visiting, said, \"{It is better to tell the truth|A lie only makes it worse}.\"",
        "So [h] went to [h_his] [fam] and said, \"{I broke the [vase]|It was me. I broke the [vase]}. I am {so |very |}sorry.\"",
        "The [fam] was {quiet for a moment|sad at first} and then {smiled|took [h_his] hand}. \"{Thank you for telling me|I am glad that you told me}. {Let us fix it together|We can glue it}.\"",
        "They {worked with glue|glued the pieces} all {evening|afternoon}. {In the end|At last} the [vase] {stood on the shelf again|was almost as good as new}."],
        moral="{telling the truth takes courage|the truth is the best way|a mistake can be mended}", noend=True,
        ask=[("What broke?", "The [vase] broke."), ("What did [h] do?", "[h] told the truth."), ("Who said to tell the truth?", "[f] said so.")]),
    dict(key="race", need="", text=[
        "Every {year|summer} there was a big race [in2]. [h] wanted to {win|take part}, but [h_he] was {not very fast|slow}.",
        "\"{You will never win|You are too slow},\" said [f_intro]. [h] {did not answer|only smiled} and {trained|ran} every {day|morning}.",
        "On the day of the race, [f] ran {ahead|in front} and {laughed|waved}. But then [f] {tripped over a stone|fell over a root} and hurt [f_his] {foot|knee}.",
        "[h] could have {run past|won now}. But [h_he] stopped. \"{Lean on me|Take my hand},\" said [h]. {Together|Slowly} they {walked|went} over the line.",
        "They were last, but {everybody cheered|all the people clapped}. \"{I was wrong|I am sorry for what I said},\" said [f]. \"You are the real winner.\""],
        moral="{kindness is worth more than winning|a good heart wins in the end|helping is better than winning}",
        ask=[("Who fell in the race?", "[f] fell in the race."), ("Who stopped to help?", "[h] stopped to help."), ("Where was the race?", "The race was [in2].")]),
    dict(key="bridge", inside=True, need="", text=[
        "{One morning|After the big rain}, the bridge over the {river|stream} was {broken|gone}. [h] stood on one side, and [h_his] friend [f] stood on the other.",
        "\"{How can we meet|How can we play now}?\" {called|cried} [f]. {The water was too deep and too fast|Nobody could swim there}.",
        "[h] {thought hard|had an idea}. \"{There is a long log|I see a fallen tree} {on the bank|near the water},\" [h_he] said. But it was too heavy for one.",
        "So [h] asked {the bear|a strong horse|the beavers} for help. They {pushed|pulled} and {rolled|lifted}, and {at last|soon} the log {lay across the water|reached the other side}.",
        "[h] {walked|went} over it, {step by step|very carefully}. \"{Hooray|We did it}!\" {shouted|called} [f], and {they played all day|they danced in a circle}."],
        moral="{many hands make light work|together we are strong|a good idea needs good helpers}", friends=True,
        ask=[("What was broken?", "The bridge was broken."), ("Who stood on the other side?", "[f] stood on the other side."), ("What did they use as a bridge?", "They used a log.")]),
    dict(key="noise", inside=True, need="noise", text=[
        "One night [h] {woke up|could not sleep}. There was a strange noise: {tap, tap, tap|scratch, scratch|knock, knock}. \"{What is that|Who is there}?\" {whispered|asked} [h].",
        "[h_he] {woke|called} [f_intro], who was staying for the night. \"{Maybe it is a ghost|It sounds like a monster},\" said [f]{ with big eyes|}.",
        "They took a {lamp|light} and {tiptoed|crept} down the {stairs|hall}. The noise {came from|was in} the [room]. {Slowly|Bravely} [h] opened the door.",
        "It was {only|just} [noise]! [h] and [f] {looked at each other|stared} and began to laugh.",
        "They {drank warm milk|ate a cookie|told each other jokes} and went back to bed{. Soon both were asleep|}."],
        moral="{most monsters are very small|it helps to look before you fear|the night is full of small friends}", noend=True,
        ask=[("Where did the noise come from?", "The noise came from the [room]."), ("What made the noise?", "It was [noise]."), ("Who went with [h]?", "[f] went with [h].")]),
    dict(key="winter", need="food", animal=True, text=[
        "All {summer|autumn} long, [h] {gathered|saved} [food] for the winter. {The others played|Others slept in the sun}, but [h] worked {hard|every day}.",
        "Then the {snow|cold} came. {Everything was white|The pond froze}. [h] sat in [h_his] warm {house|den} and had {enough|plenty} to eat.",
        "{One evening|One cold night} there was a knock at the door. It was [f_intro]. \"{I am so hungry|I have nothing to eat},\" said [f]. \"{I forgot to save food|I only played in summer}.\"",
        "[h] {thought for a moment|looked at [h_his] [food]}. \"{Come in|Sit by the fire},\" [h_he] said. \"There is enough for two.\"",
        "They ate [food] and told stories {all winter|until spring}. {In spring|When the snow melted}, [f] {helped to plant and to gather|worked as hard as [h]}."],
        moral="{it is good to plan and good to share|food tastes better with a friend|a warm heart beats the cold}",
        ask=[("What did [h] gather?", "[h] gathered [food]."), ("Who knocked at the door?", "[f] knocked at the door."), ("What did [h] do?", "[h] shared the food.")]),
    dict(key="boat", need="material", text=[
        "[h] wanted to {sail on|cross} the {pond|lake} and built a little boat of [mat1]. {It looked wonderful|[h_he] was very proud}.",
        "But when [h_he] put it on the water, it {sank|filled with water|fell apart}. \"{Oh no|All that work}!\" said [h].",
        "[f_intro] {had watched|sat nearby}. \"{Try [mat2]|Wood|Use [mat2]}, [mat2] may be better,\" said [f]. \"{I will help you|Let us build it together}.\"",
        "They {measured and cut|worked} {all day|until sunset}. The second boat {leaned to one side|was too slow}, so they {fixed it|tried again}.",
        "The third boat {floated|sailed} {perfectly|like a swan}. [h] and [f] {sailed to the other side|waved from the water}, and {the ducks swam behind them|everybody on the shore clapped}."],
        moral="{you learn from what goes wrong|the third try may be the best|one should try again}",
        ask=[("What was the first boat made of?", "It was made of [mat1]."), ("Who helped [h]?", "[f] helped [h]."), ("What did [h] build?", "[h] built a boat.")]),
    dict(key="gift", need="gift family", text=[
        "It was almost the {birthday|name day} of [f], the best friend of [h]. But [h] had no money for a {gift|present}.",
        "[h_he] looked in {the shop window|all the shops} and {sighed|was sad}. \"{Everything costs so much|I cannot buy anything},\" [h_he] said.",
        "\"{You have two good hands|The best gifts are not bought},\" said [h_his] [fam]. \"{Make something yourself.|Why not make a gift yourself?}\"",
        "So [h] {took|found} some {wood|paper|wool|string} and made [gift]. It took {three days|a whole week}, and [h_he] worked {carefully|late into the evening}.",
        "When [f] opened {the box|it}, [f_he] {gasped|could not speak at first}. \"{You made this for me|This is the nicest gift of all}!\" said [f] and {hugged [h]|smiled from ear to ear}."],
        moral="{a gift from the heart is the best one|love cannot be bought|what you make with care is precious}", friends=True,
        ask=[("What did [h] make?", "[h] made [gift]."), ("Who got the gift?", "[f] got the gift."), ("Who told [h] to make something?", "[h_his] [fam] did.")]),
    dict(key="treasure", need="", text=[
        "[h] found an old map {in the attic|in a bottle|in a dusty book}. {A red cross was drawn on it|It showed [place2] and a red cross}.",
        "\"{A treasure|A treasure map}! Will you come with me?\" [h] asked [f_intro]. \"{Of course|I am not afraid|I will get a shovel},\" said [f].",
        "They {walked|went} past the {old mill|big oak|stone bridge} and counted {twenty|fifty|one hundred} steps. There they began to dig.",
        "{After an hour|When they were almost too tired}, the shovel hit {a box|a wooden chest}. \"{Open it|What can it be}?\" {whispered|asked} [f].",
        "There was no gold in it. There {was a letter|lay an old letter}: \"{The real treasure is the friend beside you|Who digs together has already found a treasure}.\"",
        "[h] and [f] {looked at each other|were quiet for a moment} and {laughed|smiled}. They put {a coin|a drawing|a note} into the box and {buried it again|hid it for the next one}."],
        moral="{a friend is the best treasure|the way can be better than the goal}",
        ask=[("What did [h] find?", "[h] found an old map."), ("Who came with [h]?", "[f] came with [h]."), ("Was there gold in the box?", "No, there was a letter.")]),
    dict(key="star", need="family", inside=True, text=[
        "Every {evening|night}, [h] looked at the stars. \"{I wish I could hold one|I want to catch one},\" said [h].",
        "[h_he] climbed on {a chair|the roof|a hill} and {reached up|jumped}, but the stars were too far away. [h] {was sad|sighed}.",
        "\"{Come with me|I will show you something},\" said [f_intro]. They {walked|went} to the {pond|lake}. The water was {still|like a mirror}.",
        "\"Look,\" said [f]. All the stars were {in the water|shining in the pond}. [h] {put|dipped} a hand into the water, and {a star danced on it|the stars danced around it}.",
        "\"{I am holding a star|I have touched a star}!\" {called|whispered} [h]. {Then they sat there until the moon went down|They stayed until it was late}."],
        moral="{some things are for looking and not for having|a wish can come true in another way}",
        ask=[("What did [h] want?", "[h] wanted to hold a star."), ("Who showed [h] the water?", "[f] showed [h] the water."), ("Where were the stars?", "The stars were in the water.")]),
    dict(key="song", need="", text=[
        "[h] loved to sing, but {only when nobody was near|never in front of others}. \"{My voice is too small|They will laugh at me},\" [h_he] thought.",
        "One day there was a {big|great} feast [in2], and the singer {was ill|did not come}. \"{Who will sing now|What is a feast without a song}?\" {everybody asked|asked the people}.",
        "[f_intro] had heard [h] {sing in the woods|sing by the river}. \"{You can do it|Your voice is beautiful},\" said [f]. \"{I will stand beside you|Look only at me}.\"",
        "[h] {took a deep breath|closed [h_his] eyes} and began, {very softly|quietly} at first. {Then the voice grew stronger|Then it went better and better}.",
        "When the song was over, it was {quiet|very still} for a moment. Then {all clapped|everybody cheered} and {asked for one more|called for another song}."],
        moral="{a small voice can be beautiful|courage comes with the first note|a friend can see what you hide}",
        ask=[("What did [h] love?", "[h] loved to sing."), ("Who stood beside [h]?", "[f] stood beside [h]."), ("Where was the feast?", "The feast was [in2].")]),
    dict(key="snowman", need="", inside=True, text=[
        "It had snowed all night, and [h] ran {out|outside} {before breakfast|in big boots}. [h_he] wanted to build the {biggest|tallest} snowman of all.",
        "[h_he] rolled a ball of snow until it was {too heavy to move|as big as a table}. \"{It is too heavy|I cannot lift it},\" said [h].",
        "[f_intro] came by with a sled. \"{Shall I help|May I help you}?\" asked [f]. Together they {pushed|lifted} the second ball on top of the first.",
        "They gave the snowman a carrot for a nose, {two stones|two nuts} for eyes and [h_his] {old|red|green} hat. \"{Now he looks happy|He is smiling},\" said [f].",
        "In {spring|March} the snowman melted, and {only the hat was left|the hat lay in the grass}. \"{Do not be sad|He will be back}. {The snow comes again next year|We will build a new one},\" said [f]."],
        moral="{what is good comes back|together even heavy things are light}",
        ask=[("What did [h] build?", "[h] built a snowman."), ("Who helped [h]?", "[f] helped [h]."), ("What was the nose?", "The nose was a carrot.")]),
]
HOBBIES = ["draw birds", "read books", "fold paper boats", "sing songs", "play chess", "draw maps", "tell jokes", "paint flowers"]
NOISES = [("a mouse with a nut", "kitchen"), ("a branch at the window", "attic"), ("the cat with a ball of wool", "living room"), ("a hedgehog looking for food", "cellar"),
          ("an old clock", "hall"), ("a bird in the chimney", "living room"), ("a loose window", "kitchen")]


def story(rng, about=None, friend=None):
    """Returns (text, hero, questions with answers, plot key). about: the animal that is the hero, or the key of a plot.
    friend: the animal that is the second character."""
    plot = rng.choice([p for p in PLOTS if p["key"] == about] or [p for p in PLOTS if not friend or any("[f]" in t for t in p["text"])])
    v, taken = {}, set()
    animal = about if about in ANIMALS else None
    person(rng, "h", v, taken, animal or (rng.choice(ANIMALS) if plot.get("animal") else None))
    person(rng, "f", v, taken, friend or (rng.choice([a for a in ANIMALS if a not in taken]) if plot.get("animal") else None))
    places = rng.sample(PLACES, 2)
    v["place"], v["place2"] = places
    v["in2"] = {"the beach": "at ", "the hill": "on ", "the farm": "on ", "the harbor": "at ", "the old mill": "near "}.get(places[1], "in ") + places[1]
    v["obj"] = rng.choice(sorted(OBJECTS))
    v["adj"] = OBJECTS[v["obj"]]
    v["fam"] = rng.choice(FAMILY)[0]
    v["spot1"], v["spot2"], v["spot3"] = [expand(rng, s, {}) for s in rng.sample(SPOTS, 3)]
    v["spot1"], v["spot2"], v["spot3"] = [s[0].lower() + s[1:] for s in (v["spot1"], v["spot2"], v["spot3"])]
    v["beast"] = rng.choice([b for b in ["kitten", "bird", "lamb", "puppy", "baby owl", "young deer"]])
    v["hobby1"] = rng.choice(HOBBIES)
    v["plant"] = rng.choice(["sunflower", "apple tree", "rose", "pumpkin", "bean plant", "cherry tree"])
    v["vase"] = rng.choice(["blue vase", "big mirror", "green bowl", "old clock", "glass lamp", "painted plate"])
    v["noise"], v["room"] = rng.choice(NOISES)
    v["food"] = rng.choice(["nuts", "berries", "seeds", "apples", "acorns", "mushrooms"])
    v["mat1"], v["mat2"] = rng.choice(["paper", "straw", "leaves", "cloth"]), rng.choice(["wood", "bark", "cork"])
    v["gift"] = rng.choice(["a small wooden bird", "a paper lantern", "a woolen hat", "a picture book", "a bracelet", "a little flute"])
    parts = [rng.choice(OPEN)]
    if plot.get("friends"):
        parts.append("[h_his] best friend was [f_intro].")
    parts += ["" if plot.get("inside") else rng.choice(WEATHER)] + plot["text"]
    parts.append(rng.choice(LEARN) % plot["moral"] if rng.random() < 0.6 else "" if plot.get("noend") else rng.choice(END))
    text = " ".join(filter(None, (expand(rng, p, v) for p in parts)))
    cut = rng.random()
    if cut < 0.5:       # two paragraphs
        sentences = re.split(r"(?<=[.!?\"]) (?=[A-Z\"])", text)
        k = next((i for i in range(len(sentences) // 2, len(sentences)) if sentences[i][0] != '"'), 0)
        a, b = " ".join(sentences[:k]), " ".join(sentences[k:])
        text = a + "\n\n" + b if k and a.count('"') % 2 == 0 else text
    asks = [("Who is the story about?", "The story is about %s." % v["h"])] + [(expand(rng, q, v), expand(rng, a, v)) for q, a in plot["ask"]]
    return text, v, asks, plot["key"]
