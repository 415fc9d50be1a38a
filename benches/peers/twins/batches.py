"""Which examples go together, as heedful documents it: batches within a budget of padded tokens."""

import random

# Examples are sorted by length in pools of about so many batches.
POOL = 100


def sides(lengths: tuple[int, int]) -> tuple[int, int]:
    """The longer side, which decides what an example costs, and the shorter one."""
    return max(*lengths, 1), min(lengths)


def within_budget(order: list[int], lengths: list[tuple[int, int]], budget: int) -> list[list[int]]:
    """Cuts examples, in their order, where rows times the longest of them would exceed the budget."""
    batches: list[list[int]] = []
    longest = 0
    for index in order:
        length, _ = sides(lengths[index])
        if batches and (len(batches[-1]) + 1) * max(longest, length) <= budget:
            batches[-1].append(index)
            longest = max(longest, length)
        else:
            batches.append([index])
            longest = length
    return batches


def by_length(lengths: list[tuple[int, int]], budget: int) -> list[list[int]]:
    """Batches for evaluation: all examples sorted by length."""
    return within_budget(sorted(range(len(lengths)), key=lambda index: sides(lengths[index])), lengths, budget)


def shuffled(lengths: list[tuple[int, int]], budget: int, source: random.Random) -> list[list[int]]:
    """Batches for training: shuffled examples, sorted by length in pools of about a hundred batches, in shuffled order."""
    order = list(range(len(lengths)))
    source.shuffle(order)
    batches: list[list[int]] = []
    pool: list[int] = []
    tokens = 0
    for index in order:
        if tokens >= POOL * budget:
            batches += within_budget(sorted(pool, key=lambda index: sides(lengths[index])), lengths, budget)
            pool, tokens = [], 0
        pool.append(index)
        tokens += sides(lengths[index])[0]
    batches += within_budget(sorted(pool, key=lambda index: sides(lengths[index])), lengths, budget)
    source.shuffle(batches)
    return batches
