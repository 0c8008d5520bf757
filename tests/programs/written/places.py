"""Allocators, schedulers, parsers, trackers and caches that keep None where nothing is yet."""

# as people write it

from __future__ import annotations

from collections import OrderedDict, defaultdict

import torch
from torch import nn

from tests.programs.written import program

T = torch.tensor


@program(T([2, 5, 2, 7, 5]), T([1, 1, 1, 1, 1]), T([0, 1, 2, 3, 4]))
def page_table(pages):
    """First touch gets the next frame; later touches look it up."""
    frame_of = [None] * 8
    free, faults = 0, 0
    trace = torch.zeros(len(pages), dtype=torch.long)
    for t, page in enumerate(pages.tolist()):
        if frame_of[page] is None:
            frame_of[page] = free
            free += 1
            faults += 1
        trace[t] = frame_of[page]
    return trace, faults


@program(T([[3, 2], [1, 4], [3, 1]]), T([[0, 1], [0, 1], [0, 1]]), T([[9, 1], [0, 9], [2, 0]]))
def meeting_rooms(meetings):
    """The first room that is free takes the meeting; None while a room is empty."""
    busy_until = [None, None]
    taken, refused = [], 0
    for start, length in sorted(meetings.tolist()):
        for room, end in enumerate(busy_until):
            if end is None or end <= start:
                busy_until[room] = start + length
                taken.append(room)
                break
        else:
            refused += 1
    last = max((end for end in busy_until if end is not None), default=0)
    return len(taken), refused, last


@program((T(1), T(4)), (T(2), T(3)), (T(1), T(-1)), (T(3), T(9)), (T(4), T(2)), (T(5), T(1)))
class SlotAllocator(nn.Module):
    """Requests take the first empty slot; a negative length releases the slot of a request."""

    def __init__(self, slots=3):
        super().__init__()
        self.owner = [None] * slots
        self.dropped = 0

    def forward(self, request, length):
        if length < 0:
            for i, owner in enumerate(self.owner):
                if owner == request:
                    self.owner[i] = None
        elif None in self.owner:
            self.owner[self.owner.index(None)] = request.item()
        else:
            self.dropped += 1
        used = sum(owner is not None for owner in self.owner)
        return torch.tensor(used), torch.tensor(self.dropped)


@program(T([1, 0, 2, 0]), T([3, 2, 1, 0]), T([0, 0, 0, 0]), T([1, 2, 3, 1]))
def linked_list_order(following):
    """Who points here: the last one wins, None for nobody; walk back from node 0."""
    previous = [None] * len(following)
    for node, after in enumerate(following.tolist()):
        previous[after] = node
    steps, node = 0, previous[0]
    while node is not None and steps < 6:
        node = previous[node]
        steps += 1
    heads = sum(1 for each in previous if each is None)
    return steps, -1 if node is None else node, heads


@program(T([1.0, 4.0, 2.0, 8.0]), T([5.0, 5.0, 1.0, 1.0]), T([0.5, 0.1, 0.2, 9.0]))
def best_per_bucket(values):
    """Best value and its index of each bucket, as a tuple or None."""
    best = [None] * 3
    for i, value in enumerate(values):
        bucket = min(int(value) // 2, 2)
        if best[bucket] is None or value > best[bucket][1]:
            best[bucket] = (i, value)
    total = torch.zeros(())
    which = []
    for entry in best:
        if entry is None:
            which.append(-1)
            continue
        index, value = entry
        which.append(index)
        total = total + value
    return total, torch.tensor(which)


@program(T([3, 5, 3, 9]), T([1, 1, 2, 2]), T([7, 8, 9, 7]))
def first_and_last_seen(keys):
    """Key to first and last place; last stays None until it is seen again."""
    seen = {}
    for at, key in enumerate(keys.tolist()):
        if key not in seen:
            seen[key] = [at, None]
        else:
            seen[key][1] = at
    repeats = [last - first for first, last in seen.values() if last is not None]
    return len(seen), sum(repeats)


@program(T([4, 4, 6]), T([1, 2, 3]), T([4, 1, 1]), T([6, 6, 6]), T([2, 9, 4]))
class NegativeCache(nn.Module):
    """An LRU that remembers misses as None."""

    def __init__(self, size=3):
        super().__init__()
        self.size = size
        self.cache = OrderedDict()
        self.lookups = 0

    def fetch(self, key):
        self.lookups += 1
        return None if key % 2 else key * 10

    def forward(self, keys):
        found = 0
        for key in keys.tolist():
            if key in self.cache:
                self.cache.move_to_end(key)
            else:
                self.cache[key] = self.fetch(key)
                if len(self.cache) > self.size:
                    self.cache.popitem(last=False)
            value = self.cache[key]
            if value is not None:
                found += value
        return torch.tensor(found), torch.tensor(self.lookups)


@program(
    (T([[0.0, 0.0], [5.0, 5.0]])),
    (T([[0.5, 0.0], [9.0, 9.0]])),
    (T([[0.6, 0.1], [0.0, 9.0]])),
    (T([[5.0, 5.0], [0.6, 0.2]])),
)
class SlotTracker(nn.Module):
    """Detections go to the nearest slot within the gate, else to an empty one; slots age out."""

    def __init__(self, slots=3, gate=2.0, patience=1):
        super().__init__()
        self.gate, self.patience = gate, patience
        self.tracks = [None] * slots

    def forward(self, detections):
        seen = [False] * len(self.tracks)
        for det in detections:
            best, best_distance = None, self.gate
            for i, track in enumerate(self.tracks):
                if track is None or seen[i]:
                    continue
                distance = (track[0] - det).norm()
                if distance < best_distance:
                    best, best_distance = i, distance
            if best is None:
                for i, track in enumerate(self.tracks):
                    if track is None:
                        best = i
                        break
            if best is not None:
                self.tracks[best] = (det, 0)
                seen[best] = True
        for i, track in enumerate(self.tracks):
            if track is not None and not seen[i]:
                center, missed = track
                self.tracks[i] = None if missed >= self.patience else (center, missed + 1)
        return sum(track is not None for track in self.tracks)


@program(T([1, 2, 10, 3, 11]), T([5, 10, 1, 11, 11]), T([10, 10, 2, 3, 11]))
def stack_machine(tokens):
    """Numbers are pushed; 10 adds and 11 multiplies the two on top, a missing one is None."""
    stack, faults = [], 0
    for token in tokens.tolist():
        if token < 10:
            stack.append(token)
            continue
        right = stack.pop() if stack else None
        left = stack.pop() if stack else None
        if left is None or right is None:
            faults += 1
            stack.append(None)
        elif token == 10:
            stack.append(left + right)
        else:
            stack.append(left * right)
    top = stack[-1] if stack else None
    return (0 if top is None else top), faults, len(stack)


@program(T([0, 2, 1, 2, 0]), T([1, 1, 1, 2, 2]), T([2, 2, 0, 0, 0]))
def last_message_of_sender(senders):
    """The gap to each sender's previous message: None at the first one, and out of the mean."""
    last = defaultdict(lambda: None)
    gaps = []
    for t, sender in enumerate(senders.tolist()):
        gaps.append(None if last[sender] is None else t - last[sender])
        last[sender] = t
    known = [gap for gap in gaps if gap is not None]
    return len(known), sum(known) / max(len(known), 1)
