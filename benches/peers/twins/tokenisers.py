"""Words, byte-pair encoding (Sennrich et al. 2016; over bytes as in Radford et al. 2019) and WordPiece (Devlin et al. 2019), trained from a text.

Every vocabulary begins with the seven special tokens that heedful documents.
"""

import heapq
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

PAD, UNKNOWN, BEGIN, END, CLASSIFY, SEPARATE, MASK = range(7)
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<cls>", "<sep>", "<mask>"]
# A pair that the text holds once is not merged.
LEAST_PAIRS = 2

T = TypeVar("T", str, bytes)


class Words:
    """The words between white space, all of them. A word that is spelt like a special token is unknown."""

    def __init__(self, lines: Iterable[str]) -> None:
        counts = Counter(word for line in lines for word in line.split() if word not in SPECIAL)
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        self.ids = {word: len(SPECIAL) + index for index, word in enumerate(ordered)}
        self.size = len(SPECIAL) + len(self.ids)

    def encode(self, text: str) -> list[int]:
        return [self.ids.get(word, UNKNOWN) for word in text.split()]


def learn_merges(words: dict[tuple[T, ...], int], known: set[T], size: int, join: Callable[[T, T], T]) -> list[tuple[T, T]]:
    """Merges the most frequent pair of neighbours until there are `size` symbols; of equally frequent pairs the smaller comes first.

    `words` are symbols and how often the text has them. `known` are the symbols at the start, to which the merged ones are added.
    """
    spelt = [list(word) for word in words]
    often = list(words.values())
    pairs: Counter[tuple[T, T]] = Counter()
    places: defaultdict[tuple[T, T], set[int]] = defaultdict(set)
    for index, word in enumerate(spelt):
        for pair in zip(word, word[1:]):
            pairs[pair] += often[index]
            places[pair].add(index)
    queue = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(queue)
    merges = []
    while len(known) < size and queue:
        count, pair = heapq.heappop(queue)
        if -count != pairs[pair]:
            # It has become rarer since; there is an entry for what it is now.
            continue
        if -count < LEAST_PAIRS:
            break
        merged = join(*pair)
        merges.append(pair)
        known.add(merged)
        changed: set[tuple[T, T]] = set()
        for index in places.pop(pair):
            old = spelt[index]
            new = replaced(old, pair, merged)
            if len(new) == len(old):
                continue
            for other in zip(old, old[1:]):
                pairs[other] -= often[index]
                changed.add(other)
            for other in zip(new, new[1:]):
                pairs[other] += often[index]
                places[other].add(index)
                changed.add(other)
            spelt[index] = new
        for other in changed:
            if other != pair and pairs[other] > 0:
                heapq.heappush(queue, (-pairs[other], other))
    return merges


def replaced(word: list[T], pair: tuple[T, T], merged: T) -> list[T]:
    """The symbols of a word with every occurrence of the pair merged, from the left."""
    found, index = [], 0
    while index < len(word):
        if index + 1 < len(word) and (word[index], word[index + 1]) == pair:
            found.append(merged)
            index += 2
        else:
            found.append(word[index])
            index += 1
    return found


class BytePairs:
    """Byte-pair encoding over bytes, in the pieces of GPT-2: letters, digits or others, each with the space before it."""

    # Letters are what is neither digit nor underscore among word characters; `regex` has \p{L}, the standard library has not.
    PIECES = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

    def __init__(self, lines: Iterable[str], size: int) -> None:
        counts = Counter(piece for line in lines for piece in self.PIECES.findall(line))
        words: Counter[tuple[bytes, ...]] = Counter()
        for piece, count in counts.items():
            words[tuple(bytes([byte]) for byte in piece.encode())] += count
        alphabet = [bytes([byte]) for byte in range(256)]
        known = set(alphabet)
        merges = learn_merges(words, known, size - len(SPECIAL), lambda left, right: left + right)
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        tokens = list(dict.fromkeys(alphabet + [left + right for left, right in merges]))
        self.tokens = [b""] * len(SPECIAL) + tokens
        self.ids = {token: len(SPECIAL) + index for index, token in enumerate(tokens)}
        self.size = len(self.tokens)
        self.cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        return [token for piece in self.PIECES.findall(text) for token in self.piece(piece)]

    def piece(self, piece: str) -> list[int]:
        """The tokens of one piece: the merge that was learnt first is done first."""
        if piece not in self.cache:
            word = [bytes([byte]) for byte in piece.encode()]
            while len(word) > 1:
                pair = min(zip(word, word[1:]), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
                if pair not in self.ranks:
                    break
                word = replaced(word, pair, pair[0] + pair[1])
            self.cache[piece] = [self.ids[token] for token in word]
        return self.cache[piece]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens, without special ones. Bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.tokens[index] for index in ids).decode("utf-8", errors="replace")


class WordPieces:
    """WordPiece as BERT reads it, the longest piece first, with pieces that are learnt as in byte-pair encoding; accents are kept."""

    LONGEST_WORD = 100

    def __init__(self, lines: Iterable[str], size: int, lowercase: bool) -> None:
        self.lowercase = lowercase
        counts = Counter(word for line in lines for word in self.words(line))
        words = {(word[0], *("##" + letter for letter in word[1:])): count for word, count in counts.items()}
        letters = {letter for word in counts for letter in word} | {symbol for word in words for symbol in word}
        known = set(letters)
        learn_merges(words, known, size - len(SPECIAL), lambda left, right: left + right.removeprefix("##"))
        self.ids = {piece: len(SPECIAL) + index for index, piece in enumerate(sorted(known))}
        self.size = len(SPECIAL) + len(self.ids)

    def words(self, text: str) -> list[str]:
        """Words and single punctuation marks, after BERT's cleaning."""
        found, word = [], ""
        for letter in text.lower() if self.lowercase else text:
            category = unicodedata.category(letter)
            if letter in "\t\n\r" or category == "Zs":
                found, word = [*found, word], ""
            elif letter in "\0\ufffd" or category in ("Cc", "Cf", "Cn", "Co"):
                continue
            elif category.startswith("P") or letter in "$+<=>^`|~" or "\u4e00" <= letter <= "\u9fff":
                found, word = [*found, word, letter], ""
            else:
                word += letter
        return [word for word in [*found, word] if word]

    def encode(self, text: str) -> list[int]:
        return [piece for word in self.words(text) for piece in self.pieces(word)]

    def pieces(self, word: str) -> list[int]:
        """The longest piece that the rest of the word begins with, again and again; unknown as a whole if there is none."""
        found, start = [], 0
        if len(word) > self.LONGEST_WORD:
            return [UNKNOWN]
        while start < len(word):
            prefix = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in self.ids), None)
            if end is None:
                return [UNKNOWN]
            found.append(self.ids[prefix + word[start:end]])
            start = end
        return found
