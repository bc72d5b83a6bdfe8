/* The story grammar: tables for grammar.c.  Easy spans (formulae, copies, sums, repeated lists)
 * occur next to hard ones (names, things, places), so that depth can be compared with true
 * difficulty. */
#include "data/synth.h"

/* Pronoun fields of a character: 1 she, 2 her, 3 She, 4 her (object), 5 in a sentence, 6 at its
 * start. */
#define GIRL(n) n "|she|her|She|her|" n "|" n
#define BOY(n) n "|he|his|He|him|" n "|" n
#define BEAST(n) n "|it|its|It|it|the " n "|The " n

/* clang-format off */
#define RULE(name) {#name, name, DS_LEN(name)}

static const struct grammar_alt story[] = {
    {8, "{intro} {wish} {look}\n\n{journey} {meeting}\n{talk}\n\n{task} {task}\n\n{task} "
        "{feeling}\n\n{task} {ending}{last}"},
    {7, "{intro} {hum}\n\n{journey} {look} {again} {meeting}\n\n{task} {task} {again}\n\n{task} "
        "{again}\n\n{feeling} {ending}{last}"},
    {6, "{intro} {wish}\n\n{packing} {journey} {look} {meeting}\n\n{task} {task} "
        "{unpacking}\n\n{task} {feeling} {ending}{last}"},
    {5, "{intro} {look}\n\n{boxes} {meeting}\n{talk}\n\n{task} {opened} {task}\n\n{task} "
        "{feeling} {ending}{last}"},
    {4, "{intro} {wish}\n\n{meeting} {giving}\n{talk}\n\n{journey} {look} {task} {task} "
        "{task}\n\n{feeling} {ending}{last}"},
};
static const struct grammar_alt intro[] = {
    {6, "Once upon a time, there was a {trait} girl named {h=girl}."},
    {6, "Once upon a time, there was a {trait} boy named {h=boy}."},
    {3, "Once upon a time, there was a {trait} {h=beast} who lived {home=home}."},
    {4, "{h=girl} was a {trait} girl who lived {home=home}."},
    {4, "{h=boy} was a {trait} boy who lived {home=home}."},
    {2, "One {time}, a {trait} {h=beast} woke up {home=home}."},
};
static const struct grammar_alt girl[] = {
    {9, GIRL("Lily")}, {8, GIRL("Mia")}, {7, GIRL("Anna")}, {6, GIRL("Sara")}, {5, GIRL("Rosa")},
    {5, GIRL("Lucy")},
    {4, GIRL("Nora")}, {4, GIRL("Ella")}, {3, GIRL("Amy")}, {3, GIRL("Zoe")}, {2, GIRL("Ivy")},
    {2, GIRL("Clara")},
    {1, GIRL("Beatrix")}, {1, GIRL("Ottilie")},
};
static const struct grammar_alt boy[] = {
    {9, BOY("Tom")}, {8, BOY("Ben")}, {7, BOY("Max")}, {6, BOY("Sam")}, {5, BOY("Leo")}, {5,
    BOY("Tim")},
    {4, BOY("Jack")}, {4, BOY("Finn")}, {3, BOY("Paul")}, {3, BOY("Hugo")}, {2, BOY("Oscar")},
    {2, BOY("Theo")},
    {1, BOY("Bartholomew")}, {1, BOY("Ignatius")},
};
static const struct grammar_alt beast[] = {
    {5, BEAST("fox")}, {5, BEAST("bear")}, {4, BEAST("mouse")}, {4, BEAST("rabbit")}, {3,
    BEAST("hedgehog")},
    {3, BEAST("otter")}, {2, BEAST("badger")}, {2, BEAST("squirrel")}, {1, BEAST("porcupine")},
};
static const struct grammar_alt helper[] = {
    {6, BEAST("bird")}, {6, BEAST("dog")}, {5, BEAST("cat")}, {5, BEAST("frog")}, {4,
    BEAST("duck")},
    {4, BEAST("turtle")}, {3, BEAST("goat")}, {3, BEAST("owl")}, {2, BEAST("snail")}, {2,
    BEAST("donkey")},
    {1, BEAST("dragonfly")}, {1, BEAST("chameleon")},
};
static const struct grammar_alt trait[] = {
    {9, "little"}, {6, "happy"}, {5, "kind"}, {5, "brave"}, {4, "curious"}, {4, "clever"}, {3,
    "quiet"},
    {3, "sleepy"}, {2, "cheerful"}, {2, "careful"}, {1, "stubborn"},
};
static const struct grammar_alt home[] = {
    {6, "in a small house"}, {5, "near the sea"}, {4, "in a big forest"}, {4, "on a green hill"},
    {3, "by the river"}, {2, "in an old mill"}, {2, "at the edge of the village"}, {1, "under a "
        "lighthouse"},
};
static const struct grammar_alt time_of_day[] = {
    {5, "morning"}, {4, "day"}, {2, "evening"}, {2, "summer day"}, {1, "rainy afternoon"},
};

/* Things: {n} is the noun with its plural, {t} the whole "red ball". */
static const struct grammar_alt thing[] = {
    {1, "{adj} {n=noun}"},
};
static const struct grammar_alt adj[] = {
    {8, "red"}, {8, "blue"}, {6, "green"}, {5, "yellow"}, {5, "shiny"}, {4, "soft"}, {4, "tiny"},
    {3, "round"},
    {3, "golden"}, {2, "wooden"}, {2, "heavy"}, {1, "crooked"},
};
static const struct grammar_alt noun[] = {
    {8, "ball|balls"}, {7, "apple|apples"}, {6, "shell|shells"}, {6, "cup|cups"}, {5, "kite|kites"},
    {5, "stone|stones"}, {4, "button|buttons"}, {4, "flower|flowers"}, {4, "pear|pears"}, {3,
    "bell|bells"},
    {3, "feather|feathers"}, {2, "spoon|spoons"}, {2, "lantern|lanterns"}, {2, "basket|baskets"},
    {2, "pencil|pencils"}, {2, "ribbon|ribbons"}, {2, "wheel|wheels"},
    {1, "marble|marbles"}, {1, "thimble|thimbles"}, {1, "trumpet|trumpets"}, {1, "acorn|acorns"},
    {1, "candle|candles"},
};
static const struct grammar_alt toy[] = {
    {5, "a rope"}, {5, "a map"}, {4, "a book"}, {4, "a blanket"}, {3, "a drum"}, {2, "a torch"},
    {1, "a compass"},
};
static const struct grammar_alt food[] = {
    {5, "some bread"}, {5, "some cheese"}, {4, "a cake"}, {4, "three plums"}, {3, "a jar of "
        "honey"}, {1, "some soup"},
};
static const struct grammar_alt cloth[] = {
    {5, "a warm hat"}, {4, "a scarf"}, {4, "two socks"}, {3, "a raincoat"}, {1, "a purple "
        "umbrella"},
};
static const struct grammar_alt place[] = {
    {7, "the park"}, {6, "the garden"}, {5, "the forest"}, {5, "the beach"}, {4, "the market"},
    {4, "the pond"},
    {3, "the farm"}, {3, "the old bridge"}, {2, "the castle"}, {2, "the meadow"}, {1, "the "
        "windmill"}, {1, "the quarry"},
};

static const struct grammar_alt wish[] = {
    {5, "{$h.3} wanted a {t=thing} more than anything."},
    {4, "{$h.3} had a {t=thing}, and {$h.1} loved the {$t} very much."},
    {3, "{$h.6} liked to play with a {t=thing}. The {$t} was {$h.2} best thing."},
    {2, "Every day {$h.1} dreamed of a {t=thing}."},
};
static const struct grammar_alt hum[] = {
    {1, "{$h.3} liked to sing a song. It went like this: \"{song=song}\""},
    {1, "{$h.3} knew one song by heart: \"{song=song}\""},
};
static const struct grammar_alt song[] = {
    {3, "{word} and {word}, {word} and {word}, {rhyme}"},
    {2, "Oh {word}, oh {word}, my {adj} {noun}, {rhyme}"},
    {2, "{adj} {noun}, {adj} {noun}, {rhyme}"},
};
static const struct grammar_alt word[] = {
    {5, "sun"}, {5, "moon"}, {4, "rain"}, {4, "wind"}, {3, "star"}, {3, "leaf"}, {2, "snow"}, {2,
    "cloud"}, {1, "thunder"},
};
static const struct grammar_alt rhyme[] = {
    {4, "come and play with me!"}, {4, "how far away you are!"}, {3, "sleep until the morning!"},
    {2, "nobody knows but me!"}, {1, "tralala!"},
};
static const struct grammar_alt again[] = {
    {5, "And {$h.1} sang: \"{$song}\""},
    {3, "{$h.6} sang again: \"{$song}\""},
    {2, "\"{$song}\" sang {$h.5}."},
};
static const struct grammar_alt journey[] = {
    {6, "One {time}, {$h.5} went to {p=place}."},
    {3, "One {time}, {$h.1} walked all the way to {p=place}."},
    {3, "Then it was time to go to {p=place}. {$h.6} {way} to {$p}."},
    {2, "{$h.6} {way} to {p=place}, because {$p} was {$h.2} favorite place."},
};
static const struct grammar_alt way[] = {
    {5, "ran"}, {4, "walked"}, {3, "skipped"}, {2, "hurried"}, {1, "tiptoed"},
};
static const struct grammar_alt meeting[] = {
    {5, "There {$h.1} met a {trait} {f=helper}."},
    {3, "Soon a {trait} {f=helper} came by."},
    {2, "Suddenly, {$h.1} heard a noise. It was a {trait} {f=helper}!"},
    {2, "A {f=helper} was sitting there, all alone."},
};
static const struct grammar_alt talk[] = {
    {5, "\"Hello, {$f}!\" said {$h.5}. \"Hello, {$h}!\" said {$f.5}. {asking}"},
    {3, "\"Who are you?\" asked {$f.5}. \"I am {$h.5},\" said {$h.5}. {asking}"},
    {2, "\"Good {greeting}!\" said {$f.5}. \"Good {greeting}, {$f}!\" said {$h.5}. {asking}"},
};
static const struct grammar_alt greeting[] = {
    {3, "morning"}, {2, "day"}, {1, "evening"},
};
static const struct grammar_alt asking[] = {
    {4, "\"Do you want to {game=game}?\" \"Yes, I want to {$game}!\" So {$h.5} and {$f.5} began "
        "to {$game}."},
    {3, "\"Can you help me?\" asked {$f.5}. \"Yes, I can help you,\" said {$h.5}."},
    {2, "\"What do you have there?\" \"It is a {o=thing}. You may hold the {$o}.\" And {$f.5} "
        "held the {$o}."},
    {2, "\"I know a word,\" said {$f.5}. \"It is {w=odd}. Say it three times!\" \"{$w}, {$w}, "
        "{$w}!\" said {$h.5}."},
};
static const struct grammar_alt odd[] = {
    {1, "{syllable}{syllable}"}, {1, "{syllable}{syllable}{syllable}"}, {1,
    "{syllable}-{syllable}"},
};
static const struct grammar_alt syllable[] = {
    {1, "ba"}, {1, "bo"}, {1, "du"}, {1, "fi"}, {1, "ga"}, {1, "ka"}, {1, "lo"}, {1, "mi"}, {1,
    "no"}, {1, "pe"},
    {1, "ri"}, {1, "su"}, {1, "ta"}, {1, "vo"}, {1, "we"}, {1, "zu"},
};
static const struct grammar_alt game[] = {
    {4, "play hide and seek"}, {4, "climb the tree"}, {3, "build a tower"}, {3, "jump over the "
        "stream"},
    {2, "look for treasure"}, {1, "paint the fence"},
};

static const struct grammar_alt task[] = {
    {6, "{finder} found some {many}. {counting}"},
    {6, "{finder} had {sum}"},
    {4, "{finder} had {less}"},
    {3, "\"Look, a {o=thing}!\" said {$f.5}. {$h.6} looked at the {$o}. {keeping}"},
    {3, "{order}"},
    {3, "{race}"},
    {3, "{secret}"},
};
static const struct grammar_alt finder[] = {
    {3, "{$h.6}"}, {2, "{$f.6}"},
};
static const struct grammar_alt many[] = {
    {1, "{m=noun}s"}, {1, "{adj} {m=noun}s"}, /* every noun's plural is noun + s */
};
static const struct grammar_alt counting[] = {
    {1, "They counted: one. There was only one {$m}."},
    {2, "They counted: one, two. There were two {$m.1}."},
    {4, "They counted: one, two, three. There were three {$m.1}."},
    {4, "They counted: one, two, three, four. There were four {$m.1}."},
    {3, "They counted: one, two, three, four, five. There were five {$m.1}."},
    {2, "They counted: one, two, three, four, five, six. There were six {$m.1}."},
    {1, "They counted: one, two, three, four, five, six, seven. There were seven {$m.1}."},
};
#define SUM(w, a, b, c) \
    {w, a " {m=noun} and " b " {$m.1}. So " a " {$m} and " b " {$m.1} make " c " {$m.1}."}
#define SUMS(w, a, b, c) \
    {w, a " {m=noun}s and " b " more. So " a " {$m.1} and " b " {$m.1} make " c " {$m.1}."}
static const struct grammar_alt sum[] = {
    SUM(6, "one", "two", "three"), SUM(4, "one", "three", "four"), SUM(3, "one", "four", "five"),
    SUM(2, "one", "five", "six"), SUMS(6, "two", "two", "four"), SUMS(5, "two", "three", "five"),
    SUMS(4, "two", "four", "six"), SUMS(3, "two", "five", "seven"), SUMS(4, "three", "two", "five"),
    SUMS(4, "three", "three", "six"), SUMS(3, "three", "four", "seven"), SUMS(2, "three", "five",
    "eight"),
    SUMS(3, "four", "two", "six"), SUMS(2, "four", "three", "seven"), SUMS(2, "four", "four",
    "eight"),
    SUMS(1, "four", "five", "nine"), SUMS(2, "five", "two", "seven"), SUMS(1, "five", "three",
    "eight"),
    SUMS(1, "five", "four", "nine"), SUMS(1, "five", "five", "ten"),
};
#define LESS(w, a, b, c) \
    {w, a " {m=noun}s and gave away " b ". Then there were only " c " {$m.1} left."}
static const struct grammar_alt less[] = {
    LESS(4, "four", "two", "two"), LESS(4, "five", "two", "three"), LESS(3, "five", "three", "two"),
    LESS(3, "six", "two", "four"), LESS(3, "six", "three", "three"), LESS(2, "seven", "two",
    "five"),
    LESS(2, "seven", "three", "four"), LESS(2, "eight", "four", "four"), LESS(1, "nine", "four",
    "five"),
    LESS(1, "ten", "three", "seven"),
};
static const struct grammar_alt number[] = {
    {1, "{a=digit} {b=digit} {c=digit}"}, {1, "{a=digit} {b=digit} {c=digit} {d=digit}"},
};
static const struct grammar_alt digit[] = {
    {2, "0"}, {3, "1"}, {3, "2"}, {3, "3"}, {2, "4"}, {2, "5"}, {2, "6"}, {2, "7"}, {1, "8"}, {1,
    "9"},
};
static const struct grammar_alt secret[] = {
    {1, "On the door was a number: {e=number}. {$h.6} had to say it. \"{$e}!\" The door opened."},
    {1, "{$f.6} had forgotten a number. \"It was {e=number},\" said {$h.5}. \"Yes, {$e}!\" said "
        "{$f.5}."},
};
static const struct grammar_alt look[] = {
    {4, "The sky was {color} and the air was {air}."},
    {3, "There were {color} {noun}s, {color} {noun}s, and even a {color} {noun}."},
    {2, "It was {air} that {time}, and {$h.5} wore {cloth}."},
    {2, "On the table were {toy}, {food}, and a {thing}."},
    {1, "Far away lived a {beast} called {name=odd}. Nobody had ever seen {$name}."},
};
static const struct grammar_alt color[] = {
    {6, "red"}, {6, "blue"}, {5, "green"}, {4, "yellow"}, {3, "white"}, {3, "gray"}, {2,
    "orange"}, {2, "pink"},
    {1, "violet"}, {1, "turquoise"},
};
static const struct grammar_alt air[] = {
    {5, "warm"}, {4, "cold"}, {3, "fresh"}, {3, "windy"}, {2, "foggy"}, {1, "stormy"},
};
static const struct grammar_alt keeping[] = {
    {3, "\"You can keep the {$o},\" said {$f.5}. So {$h.5} kept the {$o}."},
    {2, "\"Please give the {$o} back,\" said {$f.5}. So {$h.5} gave the {$o} back."},
    {1, "The {$o} was broken. {$h.6} fixed the {$o}, and {$f.5} was glad."},
};
static const struct grammar_alt order[] = {
    {1, "{$f.6} said three words: {a=word}, {b=word}, {c=word}. {$h.6} said them again: {$a}, "
        "{$b}, {$c}."},
    {1, "{$f.6} said three words: {a=word}, {b=word}, {c=word}. {$h.6} said them backwards: {$c}, "
        "{$b}, {$a}."},
};
static const struct grammar_alt race[] = {
    {2, "The {a=helper} and the {b=beast} had a race. The {$a} was fast. The {$b} was faster. So "
        "the {$b} won."},
    {2, "The {a=helper} and the {b=beast} had a race. The {$a} fell down. So the {$b} won, not "
        "the {$a}."},
    {1, "The {a=helper} and the {b=beast} had a race. The {$b} fell asleep. So the {$a} won, not "
        "the {$b}."},
};

static const struct grammar_alt packing[] = {
    {1, "{$h.3} packed {i=toy}, {j=food}, and {k=cloth}."},
    {1, "Into {$h.2} bag went {k=cloth}, {i=toy}, and {j=food}."},
};
static const struct grammar_alt unpacking[] = {
    {3, "Then {$h.5} opened {$h.2} bag. Out came {$i}, {$j}, and {$k}."},
    {1, "It was cold, so {$h.5} took out {$k}. Then {$h.1} took out {$i} and {$j}."},
    {1, "{$f.6} was hungry, so {$h.5} shared {$j}. Only {$i} and {$k} were left in the bag."},
};
static const struct grammar_alt boxes[] = {
    {1, "{$h.3} had three boxes. In the red box was {i=toy}. In the blue box was {j=food}. In the "
        "green box was {k=cloth}."},
};
static const struct grammar_alt opened[] = {
    {1, "{$h.6} opened the red box and found {$i}."},
    {1, "{$h.6} opened the blue box and found {$j}."},
    {1, "{$h.6} opened the green box and found {$k}."},
    {1, "{$f.6} opened the green box and found {$k}, and then the red box and found {$i}."},
};
static const struct grammar_alt giving[] = {
    {2, "{$h.6} gave the {$t} to {$f.5}. {$f.6} gave the {$t} to a {q=beast}. The {$q} gave the "
        "{$t} back to {$h.5}."},
    {1, "{$h.6} gave the {$t} to {$f.5}. {$f.6} lost the {$t}. They looked for the {$t} "
        "everywhere, and a {q=beast} found it."},
};

static const struct grammar_alt feeling[] = {
    {5, "{$h.6} felt {mood}."}, {3, "{$f.6} felt {mood}, and {$h.5} felt {mood}."},
    {2, "{$h.6} was so {mood} that {$h.1} {did}."},
};
static const struct grammar_alt mood[] = {
    {7, "happy"}, {5, "proud"}, {4, "tired"}, {3, "sad"}, {3, "hungry"}, {2, "surprised"}, {2,
    "calm"}, {1, "bewildered"},
};
static const struct grammar_alt did[] = {
    {4, "danced"}, {4, "laughed"}, {3, "fell asleep"}, {2, "sat down"}, {1, "whistled"},
};
static const struct grammar_alt ending[] = {
    {5, "From that day on, {$h.5} and {$f.5} were best friends."},
    {4, "Then {$h.5} went home and told {$h.2} mother about {$f.5}."},
    {3, "And {$h.5} never forgot {$f.5}."},
    {2, "At night, {$h.5} dreamed of {dream}."},
};
static const struct grammar_alt dream[] = {
    {3, "{$f.5}"}, {3, "{place}"}, {2, "a {thing}"}, {1, "{word} and {word}"},
};
static const struct grammar_alt last[] = {
    {3, ""}, {2, " The end."}, {1, "\n\nThe end."},
};

const struct grammar_rule synth_rules[] = {
    RULE(story), RULE(intro), RULE(girl), RULE(boy), RULE(beast), RULE(helper), RULE(trait),
    RULE(home),
    {"time", time_of_day, DS_LEN(time_of_day)},
    RULE(thing), RULE(adj), RULE(noun), RULE(toy), RULE(food), RULE(cloth), RULE(place),
    RULE(wish), RULE(hum),
    RULE(song), RULE(word), RULE(rhyme), RULE(again), RULE(journey), RULE(way), RULE(meeting),
    RULE(talk),
    RULE(greeting), RULE(asking), RULE(odd), RULE(syllable), RULE(game), RULE(task),
    RULE(finder), RULE(many),
    RULE(counting), RULE(sum), RULE(less), RULE(keeping), RULE(number), RULE(digit),
    RULE(secret), RULE(look), RULE(color), RULE(air), RULE(order), RULE(race), RULE(packing),
    RULE(unpacking),
    RULE(boxes), RULE(opened), RULE(giving), RULE(feeling), RULE(mood), RULE(did), RULE(ending),
    RULE(dream), RULE(last),
};
/* clang-format on */
const size_t synth_rules_n = DS_LEN(synth_rules);
