"""Words that exclude each other in one place of a sentence, for example "rose" and "fell", or "before" and "after"."""

from __future__ import annotations

from functools import cache
from typing import Final

from rageval_hooks.text.word_lists.common_words import read_list
from rageval_hooks.text.words import fold, stem

__all__ = ["NEGATIONS", "opposites_of"]

NEGATIONS: Final = frozenset(
    stem(word)
    for word in "not no never none nobody nothing neither nor without cannot lack lacks fail fails "
    "failed refuse refused deny denied denies unable".split()
)
"""Keys of words that negate a statement. "hardly" is not among them: it has the key of "hard"."""

# Words on one side, a bar, and the words that exclude them. Words of one side do not exclude each other. An indented
# line continues the one before.
_LINES: Final = """
increase increased increasing rise rose risen rising grow grew grown growth gain gained climb climbed up upward
  higher expand expanded surge surged soar soared raise raised | decrease decreased decreasing decline declined
  declining fall fell fallen falling drop dropped shrink shrank shrunk down downward lower lowered reduce reduced
  reduction loss plunge plunged contract contracted cut
more greater larger bigger | less fewer smaller
most majority | least few minority
high | low
large big huge major vast | small little tiny minor
long longer | short shorter
early earlier earliest | late later latest
before prior preceding | after following subsequent
first | last final second third
begin began begun start started open opened opening launch launched | end ended finish finished close closed closing
  stop stopped shut
always | never sometimes rarely seldom occasionally
often frequently usually commonly | rarely seldom never infrequently
all every each | some few several none
many numerous | few
both | neither
with | without
include included including includes | exclude excluded excluding excludes
accept accepted accepts approve approved allow allowed allows permit permitted agree agreed support supported |
  reject rejected rejects refuse refused deny denied forbid forbidden ban banned prohibit prohibited disagree
  disagreed oppose opposed
win won winner victory beat defeated | lose lost loser defeat
succeed succeeded success successful successfully | fail failed failure unsuccessful unsuccessfully
positive positively | negative negatively
good better best well | bad worse worst poorly
strong stronger strengthen strengthened | weak weaker weaken weakened
easy easily | difficult hard
hot hotter warm warmer | cold colder cool cooler
old older oldest | young younger youngest new newer
rich wealthy | poor
safe safely safety | dangerous unsafe danger
fast faster quick quickly rapid rapidly | slow slower slowly
left | right
north northern | south southern east eastern west western
male man men boy boys father son brother husband he him his king | female woman women girl girls mother daughter
  sister wife she her queen
alive living | dead
born | died
buy bought purchase purchased acquire acquired | sell sold
import imported imports | export exported exports
send sent give gave given | receive received get got take took taken
arrive arrived enter entered join joined come came | leave left depart departed exit exited quit
top | bottom
above over | below under beneath
inside indoor internal interior | outside outdoor external exterior
public | private
legal lawful legally | illegal unlawful illegally
possible possibly | impossible
likely | unlikely
able | unable
true | false
same similar | different opposite
present | absent
full | empty
day daily daytime | night nightly
morning | evening afternoon night
summer | winter spring autumn
past former formerly previous previously | future upcoming next
temporary temporarily | permanent permanently
voluntary | mandatory compulsory required
active | passive inactive
guilty convicted | innocent acquitted
love loved like liked enjoy enjoyed | hate hated dislike disliked
friend friendly ally | enemy hostile
remember remembered | forget forgot forgotten
improve improved improvement improves | worsen worsened deteriorate deteriorated
create created build built | destroy destroyed demolish demolished
cause caused causes promote promoted | prevent prevented prevents
expensive costly | cheap inexpensive
common | rare uncommon
popular | unpopular
famous | unknown obscure
simple | complex complicated
attack attacked | defend defended
may might could possibly perhaps | must will certainly definitely
million | billion thousand trillion hundred
"""


def _key(word: str) -> str:
    return stem(fold(word))


@cache
def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in _LINES.strip().replace("\n  ", " ").splitlines():
        sides = [{_key(word) for word in side.split()} for side in line.split("|")]
        for one, other in (sides, sides[::-1]):
            for word in one:
                # "second" and "left" are on several lines, and a stem can be on both sides of one.
                found.setdefault(word, set()).update(other - {word})
    for pair in map(str.split, read_list("antonyms.txt")):
        found.setdefault(pair[0], set()).add(pair[1])
        found.setdefault(pair[1], set()).add(pair[0])
    return {word: frozenset(others) for word, others in found.items()}


def opposites_of(key: str) -> frozenset[str]:
    """Return the keys of the words that exclude a word; empty for most words."""
    return _opposites().get(key, frozenset())
