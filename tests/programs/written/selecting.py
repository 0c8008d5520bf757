"""Routing, detection, search, graphs, data structures."""

from __future__ import annotations

import heapq
from collections import deque

import torch
from torch import nn

from tests.programs.written import program, seeded


@program(*((seeded(5, 4, seed=n),) for n in range(3)), torch.zeros(5, 4))
class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == i)
            if len(rows) == 0:
                continue
            out[rows] += weights[rows, slot, None] * expert(x[rows])
        return out


@program(*((seeded(5, 4, seed=n),) for n in range(3)))
class SwitchRouting(nn.Module):
    """One expert for each token, as many tokens as it has room for."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        load, out, dropped = [0, 0, 0], [], 0
        for token, e in zip(x, self.gate(x).argmax(-1).tolist(), strict=True):
            if load[e] >= 2:
                dropped += 1
                out.append(token)
            else:
                load[e] += 1
                out.append(self.experts[e](token))
        return torch.stack(out), dropped, torch.tensor(load)


@program(*((seeded(4, seed=n),) for n in range(4)))
class EarlyExit(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

    def forward(self, x):
        for n, (layer, head) in enumerate(zip(self.layers, self.heads, strict=True), 1):
            x = layer(x).relu()
            y = head(x).softmax(-1)
            if y.max() > 0.6:
                return y, n
        return y, n


def boxes(seed):
    corner = torch.rand(6, 2, generator=torch.Generator().manual_seed(seed)) * 4
    return torch.cat([corner, corner + 2], 1)


def overlap(a, b):
    width = (torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
    height = (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0)
    inter = width * height
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


@program(*((boxes(n), seeded(6, seed=n)) for n in range(3)))
def greedy_suppression(found, scores):
    order = scores.argsort(descending=True).tolist()
    kept = []
    for i in order:
        if all(overlap(found[i], found[j]) < 0.3 for j in kept):
            kept.append(i)
    return torch.tensor(kept), len(kept)


@program(*((boxes(n), seeded(6, seed=n)) for n in range(3)))
def suppression_by_removal(found, scores):
    left, kept = scores.argsort(descending=True), []
    while left.numel() > 0 and len(kept) < 6:
        best = left[0]
        kept.append(best)
        rest = left[1:]
        ious = torch.stack([overlap(found[best], found[j]) for j in range(6)])
        left = rest[ious[rest] < 0.3]
    return torch.stack(kept)


@program(
    *(
        (torch.tensor(e),)
        for e in ([[0, 1], [1, 2], [3, 4]], [[0, 0], [1, 1], [2, 2]], [[0, 4], [4, 1], [1, 0]])
    )
)
def union_find(edges):
    parent = list(range(5))

    def find(i):
        for _ in range(5):
            if parent[i] == i:
                break
            i = parent[i]
        return i

    merged = 0
    for a, b in edges.tolist():
        ra, rb = find(a), find(b)
        if ra != rb:
            parent[ra] = rb
            merged += 1
    return torch.tensor(parent), merged


WEIGHTS = [torch.rand(4, 4, generator=torch.Generator().manual_seed(n)) * 9 for n in range(3)]


@program(*WEIGHTS)
def dijkstra(weights):
    distance, done = [0.0] + [float("inf")] * 3, [False] * 4
    for _ in range(4):
        best, node = float("inf"), -1
        for i in range(4):
            if not done[i] and distance[i] < best:
                best, node = distance[i], i
        if node < 0:
            break
        done[node] = True
        for j in range(4):
            if distance[node] + weights[node, j] < distance[j]:
                distance[j] = distance[node] + weights[node, j]
    return torch.tensor(distance)


@program(*((torch.tensor(t),) for t in ([5, 1, 4, 2], [1, 1, 1, 1], [9, 8, 7, 6])))
def priority_queue(costs):
    heap, total = [], 0
    for c in costs.tolist():
        heapq.heappush(heap, c)
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        total += merged
        heapq.heappush(heap, merged)
    return total


@program(*((torch.tensor(t),) for t in ([1, 2, 3, 0], [2, 0, 3, 1], [0, 0, 0, 0])))
def cycle_length(following):
    seen, at, steps = {}, 0, 0
    while at not in seen and steps < 5:
        seen[at] = steps
        at = int(following[at])
        steps += 1
    return steps - seen[at], len(seen)


@program(*((torch.tensor(m),) for m in ([[1, 1, 0], [0, 1, 0], [1, 0, 1]], [[0] * 3] * 3, [[1] * 3] * 3)))
def flood_fill(grid):
    seen, queue = set(), deque([(0, 0)])
    for _ in range(9):
        if not queue:
            break
        r, c = queue.popleft()
        if (r, c) in seen or grid[r, c] == 0:
            continue
        seen.add((r, c))
        for dr, dc in ((0, 1), (1, 0)):
            if r + dr < 3 and c + dc < 3:
                queue.append((r + dr, c + dc))
    return len(seen)


@program(*((seeded(6, seed=n),) for n in range(3)))
def running_top_k(stream):
    best = []
    for v in stream.tolist():
        if len(best) < 3:
            best.append(v)
            best.sort()
        elif v > best[0]:
            best[0] = v
            best.sort()
    return torch.tensor(best)


@program(*((seeded(7, seed=n),) for n in range(3)), torch.arange(7.0), -torch.arange(7.0))
def peaks(signal):
    found = [i for i in range(1, 6) if signal[i - 1] < signal[i] > signal[i + 1]]
    if not found:
        return torch.full((1,), -1), 0
    return torch.tensor(found), len(found)


@program(*((seeded(5, seed=n), torch.tensor(float(n))) for n in range(3)))
def binary_search(values, wanted):
    items = values.sort().values
    low, high = 0, 5
    while low < high:
        middle = (low + high) // 2
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@program(*((torch.tensor(t),) for t in ([3, 1, 2, 5, 4], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1])))
def longest_increasing_run(values):
    best = run = 1
    for a, b in zip(values, values[1:], strict=False):  # noqa: RUF007  # as people write it
        run = run + 1 if b > a else 1
        best = max(best, run)
    return best


@program(*((seeded(5, 2, seed=n), seeded(5, 2, seed=n + 3)) for n in range(3)))
def greedy_matching(a, b):
    cost = torch.cdist(a, b)
    used, pairs = set(), []
    for i in range(5):
        best, at = float("inf"), -1
        for j in range(5):
            if j not in used and cost[i, j] < best:
                best, at = cost[i, j], j
        used.add(at)
        pairs.append(at)
    return torch.tensor(pairs), len(used)
