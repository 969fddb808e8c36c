"""Chance as a pure function: what comes out depends on the seed and the numbers that are asked for.

No generator has a state, so that any row can be made anywhere, in any order, as often as wanted.
"""

from typing import Final

WORD: Final = (1 << 64) - 1
_GAMMA: Final = 0x9E3779B97F4A7C15


def mixed(word: int) -> int:
    """The finaliser of splitmix64: every bit in changes half of the bits out."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def draw(seed: int, purpose: int, *numbers: int) -> int:
    """64 bits. `purpose` keeps draws apart that are made for the same thing."""
    word = further(seed, purpose)
    for number in numbers:
        word = further(word, number)
    return word


def further(word: int, number: int) -> int:
    """What `draw` would give with one number more."""
    return mixed((word + _GAMMA * (number + 1)) & WORD)


def unit(word: int) -> float:
    """In (0, 1), both ends excluded, with the upper 53 bits of the word."""
    return ((word >> 11) + 0.5) / (1 << 53)


def shuffled(index: int, size: int, seed: int, purpose: int) -> int:
    """Where `index` of `range(size)` goes: a permutation, and no table of it.

    A Feistel network over the next power of four; what falls outside is sent through again.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(4):
            left, right = right, left ^ (draw(seed, purpose, turn, right) & mask)
        index = left << half | right
        if index < size:
            return index
